"""Read-only views of a model's graph, whatever its container: no protobuf, no file format."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal

from visualquant.core.tensors import ElementType, TensorRef

NodeId = int
ValueId = int
Dim = int | str | None
Attribute = int | float | str | bytes | TensorRef | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
Role = Literal["input", "output", "initializer", "activation"]


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """A graph inside a node: a branch or loop body, or the instance of a model-local function at one call.

    Attributes:
        name: the attribute ("then_branch", "body") or "function".
        inputs: formal inputs; empty for functions, whose inner nodes read the caller's values themselves.
        outputs: inner values that become the node's outputs, in order (Loop and Scan: after their own rules).
        nodes: ids of the nodes directly inside.
    """

    name: str
    inputs: tuple[ValueId, ...]
    outputs: tuple[ValueId | None, ...]
    nodes: tuple[NodeId, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class NodeView:
    """One operator. Constant nodes are values, never nodes.

    Attributes:
        id: index into `GraphView.nodes`: file order of the main graph first, then bodies; stable for unnamed
            and equally named nodes.
        name: as in the file, may be empty or repeated.
        inputs: value ids in order; None where an optional input is left out.
        outputs: value ids in order; None where left out.
        attributes: everything but graphs.
        scope: "" in the main graph, else the path of bodies, e.g. "branch_if/then_branch".
        parent: the node whose body holds this one, or None.
        bodies: graphs inside this node.
        metadata: metadata_props of the node (module path, code line where the exporter wrote them).
    """

    id: NodeId
    name: str
    op_type: str
    domain: str
    inputs: tuple[ValueId | None, ...]
    outputs: tuple[ValueId | None, ...]
    attributes: Mapping[str, Attribute]
    scope: str = ""
    parent: NodeId | None = None
    bodies: tuple[Body, ...] = ()
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def is_call(self) -> bool:
        """True for a call of a model-local function; its body is the instance for this call."""
        return bool(self.bodies) and self.bodies[0].name == "function"

    def input(self, slot: int) -> ValueId | None:
        """The value at an input slot, None where it is left out or beyond the end."""
        return self.inputs[slot] if slot < len(self.inputs) else None

    def output(self, slot: int = 0) -> ValueId | None:
        """The value at an output slot, None where it is left out or beyond the end."""
        return self.outputs[slot] if slot < len(self.outputs) else None

    def inner(self, value: ValueId) -> ValueId | None:
        """For a call: the value in its body that becomes this output; None where the function makes fewer."""
        slot = self.outputs.index(value)
        made = self.bodies[0].outputs
        return made[slot] if slot < len(made) else None

    def int_attribute(self, name: str, default: int) -> int:
        """An integer attribute, or the default where absent or of another type."""
        got = self.attributes.get(name)
        return got if isinstance(got, int) else default

    def ints_attribute(self, name: str) -> tuple[int, ...] | None:
        """A tuple of integers, or None where absent or of another type."""
        got = self.attributes.get(name)
        if isinstance(got, tuple) and all(isinstance(x, int) for x in got):
            return tuple(int(x) for x in got)
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class ValueView:
    """One tensor of the graph.

    Attributes:
        id: index into `GraphView.values`.
        name: as in the file; unique within its scope only.
        key: unique in the whole model: the name, with its scope in front where the bare name is taken.
        dtype, shape: as stored or inferred; None where unknown. A dimension is an int, a symbol, or None.
        role: input, output, initializer (also Constant nodes), or activation.
        producer: node id, or None for inputs and initializers.
        const: the stored data of initializers and Constant nodes.
        scope: like `NodeView.scope`.
    """

    id: ValueId
    name: str
    key: str
    dtype: ElementType | None
    shape: tuple[Dim, ...] | None
    role: Role
    producer: NodeId | None = None
    const: TensorRef | None = None
    scope: str = ""


@dataclasses.dataclass(frozen=True)
class GraphView:
    """A whole model, flat: nodes of the main graph and of all bodies, with producer and consumer index.

    Attributes:
        nodes, values: indexed by id.
        inputs, outputs: of the main graph; initializers that are also listed as inputs are not inputs.
        opsets: version by domain ("" is the ONNX domain).
        functions: (domain, name) of model-local functions.
        metadata: metadata_props of the model.
        container: which reader made this ("onnx", "openvino", ...).
        notes: what the reader noticed and a user should know (becomes findings or report notes).
    """

    name: str
    nodes: tuple[NodeView, ...]
    values: tuple[ValueView, ...]
    inputs: tuple[ValueId, ...]
    outputs: tuple[ValueId, ...]
    opsets: Mapping[str, int] = dataclasses.field(default_factory=dict)
    ir_version: int = 0
    producer: str = ""
    functions: frozenset[tuple[str, str]] = frozenset()
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    container: str = "onnx"
    notes: tuple[str, ...] = ()

    @cached_property
    def consumers(self) -> tuple[tuple[tuple[NodeId, int], ...], ...]:
        """For each value the (node id, input slot) pairs that read it, in node order."""
        found: list[list[tuple[NodeId, int]]] = [[] for _ in self.values]
        for node in self.nodes:
            for slot, value in enumerate(node.inputs):
                if value is not None:
                    found[value].append((node.id, slot))
        return tuple(tuple(x) for x in found)

    @cached_property
    def by_key(self) -> dict[str, ValueId]:
        """Value id by unique key."""
        return {v.key: v.id for v in self.values}

    @cached_property
    def main_nodes(self) -> tuple[NodeView, ...]:
        """The nodes of the main graph only."""
        return tuple(n for n in self.nodes if n.parent is None)

    @cached_property
    def topological(self) -> tuple[NodeId, ...]:
        """All node ids, producers before consumers, ties in id order; files need not be sorted.

        A node that has bodies stands after the inner nodes that make its outputs, and inner nodes stand
        after the producers of what they capture. Nodes on a cycle come last, in id order.
        """
        needs: list[set[NodeId]] = [set() for _ in self.nodes]
        for node in self.nodes:
            for value in node.inputs:
                if value is not None and (made := self.values[value].producer) is not None:
                    needs[node.id].add(made)
            for body in node.bodies:
                needs[node.id].update(body.nodes)
        for node in self.nodes:  # NOTE: an inner node may read what its own parent's siblings make, never its parent
            needs[node.id].discard(node.id)
        return after_needs(needs, range(len(self.nodes)))

    def const(self, value: ValueId | None) -> TensorRef | None:
        """The stored data of a value, None for anything computed or left out."""
        return None if value is None else self.values[value].const

    def producer_of(self, value: ValueId | None) -> NodeView | None:
        """The node that makes a value; for the output of a function call, the inner node that does."""
        while value is not None:
            made = self.values[value].producer
            if made is None:
                return None
            node = self.nodes[made]
            if not node.is_call:
                return node
            value = node.inner(value)
        return None

    def inner(self, value: ValueId) -> ValueId:
        """The value inside a function for the output of its call, else the value itself."""
        while (made := self.values[value].producer) is not None and self.nodes[made].is_call:
            got = self.nodes[made].inner(value)
            if got is None:
                break
            value = got
        return value

    def readers_of(self, value: ValueId) -> Iterator[tuple[NodeView, int]]:
        """The nodes that read a value, with the slot."""
        for node_id, slot in self.consumers[value]:
            yield self.nodes[node_id], slot


def after_needs(needs: Sequence[Collection[NodeId]], places: Sequence[int]) -> tuple[NodeId, ...]:
    """All node ids, each after the ones that it needs.

    Args:
        needs: for each node the others that come before it.
        places: of the nodes that are free to come next the one with the least place does; all differ.

    Returns:
        Node ids; those on a cycle, and behind one, come last in id order.
    """
    users: list[list[NodeId]] = [[] for _ in needs]
    for node_id, found in enumerate(needs):
        for other in found:
            users[other].append(node_id)
    waiting = [len(found) for found in needs]
    ready = [(places[k], k) for k, n in enumerate(waiting) if n == 0]
    heapq.heapify(ready)
    order: list[NodeId] = []
    while ready:
        node_id = heapq.heappop(ready)[1]
        order.append(node_id)
        for user in users[node_id]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, (places[user], user))
    if len(order) < len(needs):
        done = set(order)
        order += [k for k in range(len(needs)) if k not in done]
    return tuple(order)
