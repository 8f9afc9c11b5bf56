"""One graph as alignment sees it: plumbing looked through, constants set apart from data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

from visualquant.align.families import MOVE, QUANTIZERS, family, is_quiet
from visualquant.align.folding import small_ints
from visualquant.align.operands import Operands
from visualquant.align.ordering import canonical_order
from visualquant.align.sketches import Sketch
from visualquant.core.graph import GraphView, NodeId, NodeView, ValueId
from visualquant.core.quant import QuantSite

_TO_THE_END = 2**31 - 1
NodeKind = Literal["compute", "move", "quiet", "static", "call"]


@dataclasses.dataclass(frozen=True, slots=True)
class DataArg:
    """One input of a node that data reach.

    Attributes:
        slot: input slot; inputs that bodies hand out follow the formal ones.
        value: as read.
        root: the value behind plumbing.
    """

    slot: int
    value: ValueId
    root: ValueId


class Side:
    """Derived views of one graph.

    Attributes:
        graph: the graph.
        operands: constant operands, decoded by the scheme readers' sites or folded.
        folder: values of constant sub-graphs.
        sketches: by (node, slot), made when first asked for.
        features: of simple units, by what identifies them.
    """

    def __init__(self, graph: GraphView, sites: Sequence[QuantSite] = ()) -> None:
        self.graph = graph
        self.operands = Operands(graph, sites)
        self.folder = self.operands.folder
        self.features: dict[Any, Any] = {}
        self.sketches: dict[tuple[NodeId, int], tuple[Sketch, ...]] = {}
        self._root: dict[ValueId, ValueId] = {}
        self._quiet_root: dict[ValueId, ValueId] = {}

    @cached_property
    def reads(self) -> tuple[tuple[ValueId | None, ...], ...]:
        """What each node reads: its inputs, then what its bodies give it (branch results, loop results)."""
        out = []
        for node in self.graph.nodes:
            found: list[ValueId | None] = [] if node.is_call else list(node.inputs)
            for body in node.bodies:
                found += body.outputs
            out.append(tuple(found))
        return tuple(out)

    @cached_property
    def readers(self) -> tuple[tuple[tuple[NodeId, int], ...], ...]:
        """(node, slot) pairs that read each value, results of bodies included."""
        found: list[list[tuple[NodeId, int]]] = [[] for _ in self.graph.values]
        for node_id, reads in enumerate(self.reads):
            for slot, value in enumerate(reads):
                if value is not None:
                    found[value].append((node_id, slot))
        return tuple(tuple(x) for x in found)

    @cached_property
    def live(self) -> bytearray:
        """For each value whether data reach it: from graph inputs, never through Shape or Size."""
        graph = self.graph
        live = bytearray(len(graph.values))
        todo = list(graph.inputs)
        for node in graph.nodes:  # what a loop body gets from outside by position is data too
            for body in node.bodies:
                todo += list(body.inputs)
        for value in todo:
            live[value] = 1
        done = bytearray(len(graph.nodes))
        while todo:
            for node_id, _ in self.readers[todo.pop()]:
                node = graph.nodes[node_id]
                if done[node_id] or node.op_type in ("Shape", "Size"):
                    continue
                done[node_id] = 1
                for out in node.outputs:
                    if out is not None and not live[out]:
                        live[out] = 1
                        todo.append(out)
        return live

    @cached_property
    def scale_only(self) -> frozenset[ValueId]:
        """Values that only carry scales and zero points computed at run time."""
        graph = self.graph
        found: set[ValueId] = set()
        todo: list[ValueId] = []
        for node in graph.nodes:
            if node.op_type == "DynamicQuantizeLinear":
                todo += [o for o in node.outputs[1:] if o is not None]
        found.update(todo)
        while todo:
            for node_id, _ in self.readers[todo.pop()]:
                node = graph.nodes[node_id]
                data = [v for v in node.inputs if v is not None and self.live[v]]
                if node.op_type in ("Mul", "Cast", "Reshape", "Unsqueeze", "Squeeze") and all(v in found for v in data):
                    fresh = [o for o in node.outputs if o is not None and o not in found]
                    found.update(fresh)
                    todo += fresh
        return frozenset(found)

    @cached_property
    def kinds(self) -> tuple[NodeKind, ...]:
        """What part each node plays."""
        return tuple(self._kind(node) for node in self.graph.nodes)

    def _kind(self, node: NodeView) -> NodeKind:
        if node.is_call:
            return "call"
        outs = [o for o in node.outputs if o is not None]
        if not any(self.live[o] for o in outs) or all(o in self.scale_only for o in outs):
            return "static"
        if is_quiet(node.op_type) or self._narrows_codes(node) or self._applies_scale(node):
            return "quiet"
        return "move" if node.op_type in MOVE or self._takes_all(node) else "compute"

    def _takes_all(self, node: NodeView) -> bool:
        """A Slice from the first to the last element, which exporters write and optimisers drop."""
        if node.op_type != "Slice" or len(node.inputs) < 3:
            return False
        starts, ends = (small_ints(self.folder, node.input(k)) for k in (1, 2))
        steps = small_ints(self.folder, node.input(4)) if node.input(4) is not None else (1,)
        if starts is None or ends is None or steps is None:
            return False
        return not any(starts) and all(e >= _TO_THE_END for e in ends) and all(s == 1 for s in steps)

    def _narrows_codes(self, node: NodeView) -> bool:
        made = self.graph.producer_of(node.input(0))
        return node.op_type == "Clip" and made is not None and made.op_type in QUANTIZERS

    def _applies_scale(self, node: NodeView) -> bool:
        if node.op_type != "Mul":
            return False
        scaled = [v in self.scale_only for v in node.inputs if v is not None]
        return len(scaled) == 2 and sum(scaled) == 1

    def carried(self, node: NodeView) -> ValueId | None:
        """The input whose value a plumbing node hands on."""
        for value in node.inputs:
            if value is not None and self.live[value] and value not in self.scale_only:
                return value
        return node.input(0)

    def producer(self, value: ValueId) -> NodeId | None:
        """The node that makes a value; for a function call the inner node."""
        return self._producers[value]

    @cached_property
    def _producers(self) -> tuple[NodeId | None, ...]:
        made = (self.graph.producer_of(value.id) for value in self.graph.values)
        return tuple(None if node is None else node.id for node in made)

    def root(self, value: ValueId) -> ValueId:
        """The value behind all plumbing: Q/DQ, casts, and operators that only move elements."""
        return self._behind(value, self._root, ("quiet", "move"))

    def quiet_root(self, value: ValueId) -> ValueId:
        """The value behind Q/DQ and casts only."""
        return self._behind(value, self._quiet_root, ("quiet",))

    def _behind(self, value: ValueId, memo: dict[ValueId, ValueId], kinds: tuple[str, ...]) -> ValueId:
        path = []
        while value not in memo:
            path.append(value)
            inner = self.graph.inner(value)
            made = self.graph.values[inner].producer
            if made is None or self.kinds[made] not in kinds or not self.live[inner]:
                memo[value] = inner
                break
            behind = self.carried(self.graph.nodes[made])
            if behind is None or behind in path:
                memo[value] = inner
                break
            value = behind
        found = memo[value]
        for step in path:
            memo[step] = found
        return found

    @cached_property
    def args(self) -> tuple[tuple[DataArg, ...], ...]:
        """The data inputs of each node."""
        out = []
        for node_id, reads in enumerate(self.reads):
            found = []
            for slot, value in enumerate(reads):
                if value is not None and self.live[value] and value not in self.scale_only:
                    found.append(DataArg(slot, value, self.root(value)))
            out.append(tuple(found) if self.kinds[node_id] != "static" else ())
        return tuple(out)

    @cached_property
    def users(self) -> dict[ValueId, list[tuple[NodeId, int]]]:
        """For each root value the compute nodes that read it, through plumbing, with the position of the argument."""
        found: dict[ValueId, list[tuple[NodeId, int]]] = {}
        for node_id, args in enumerate(self.args):
            if self.kinds[node_id] == "compute":
                for position, arg in enumerate(args):
                    found.setdefault(arg.root, []).append((node_id, position))
        return found

    @cached_property
    def order(self) -> tuple[NodeId, ...]:
        """Node ids in a dataflow order that does not depend on the order in the file."""
        return canonical_order(self.graph, self.graph.topological, self.reads, self.producer)

    @cached_property
    def rank(self) -> tuple[int, ...]:
        """Position of each node in dataflow order."""
        rank = [0] * len(self.graph.nodes)
        for position, node_id in enumerate(self.order):
            rank[node_id] = position
        return tuple(rank)

    @cached_property
    def file_rank(self) -> tuple[int, ...]:
        """Position of each node in the dataflow order nearest to that of the file."""
        rank = [0] * len(self.graph.nodes)
        for position, node_id in enumerate(self.graph.topological):
            rank[node_id] = position
        return tuple(rank)

    @cached_property
    def families(self) -> tuple[str, ...]:
        """The operator family of each node."""
        return tuple(self._family(n) for n in self.graph.nodes)

    def _family(self, node: NodeView) -> str:
        """A mean over all places of an image is a global pooling, whatever it is called."""
        if node.op_type == "ReduceMean":
            axes = small_ints(self.folder, node.input(1)) or node.ints_attribute("axes")
            if axes is not None and sorted(axes) in ([2, 3], [-2, -1], [2, 3, 4], [-3, -2, -1]):
                return "GlobalAveragePool"
        return family(node.op_type)

    @cached_property
    def compute(self) -> tuple[NodeId, ...]:
        """Compute nodes in dataflow order."""
        return tuple(k for k in self.order if self.kinds[k] == "compute")

    def outputs(self, node_id: NodeId) -> tuple[ValueId | None, ...]:
        """The outputs of a node, in order."""
        return self.graph.nodes[node_id].outputs
