"""Who reads a value in the end, seen through layout operators, function calls and Q/DQ pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from visualquant.core.graph import GraphView, NodeId, NodeView, ValueId
from visualquant.core.quant import ViewStep
from visualquant.core.trace import LAYOUT_OPS, Trace, trace_operand

BIAS_SLOTS: dict[str, int] = {
    "Conv": 2,
    "ConvTranspose": 2,
    "FusedConv": 2,
    "NhwcFusedConv": 2,
    "DeformConv": 3,
    "Gemm": 2,
    "FusedGemm": 2,
    "LayerNormalization": 2,
    "InstanceNormalization": 2,
    "GroupNormalization": 2,
    "SkipLayerNormalization": 3,
    "LSTM": 3,
    "GRU": 3,
    "RNN": 3,
    "Attention": 2,
    "MatMulNBits": 5,
    "DynamicQuantizeMatMul": 4,
    "MatMulIntegerToFloat": 6,
    "QLinearConv": 8,
    "QGemm": 6,
    "BiasGelu": 1,
}
"""The input slot of the bias, by operator type."""


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """One compute node that reads a value.

    Attributes:
        node, slot: the reader.
        steps: from the value to the operand.
        passed: plumbing nodes on the way.
        exact: False where a shape on the way is unknown; then `steps` is empty.
    """

    node: NodeView
    slot: int
    steps: tuple[ViewStep, ...]
    passed: tuple[NodeId, ...]
    exact: bool = True


class Flow:
    """Forward walks over one graph."""

    def __init__(self, graph: GraphView) -> None:
        self.graph = graph
        self._outside: dict[ValueId, list[ValueId]] = {}
        for node in graph.nodes:
            if node.is_call:
                for inner, outer in zip(node.bodies[0].outputs, node.outputs, strict=False):
                    if inner is not None and outer is not None:
                        self._outside.setdefault(inner, []).append(outer)

    def uses(self, value: ValueId, through: frozenset[str] = LAYOUT_OPS) -> list[Use]:
        """Each (node, slot) that computes with a value, in node order; layout operators are looked through."""
        found: list[Use] = []
        for node, slot, operand in self._ends(value, through):
            trace = trace_operand(self.graph, operand)
            reached = trace.source == value
            found.append(Use(node, slot, trace.steps if reached else (), trace.nodes, trace.exact and reached))
        found.sort(key=lambda use: (use.node.id, use.slot))
        return found

    def readers(self, value: ValueId) -> Iterator[tuple[NodeView, int]]:
        """The nodes that read a value itself or its name outside a function, calls left out."""
        for current in (value, *self._outside.get(value, ())):
            for node, slot in self.graph.readers_of(current):
                if not node.is_call:
                    yield node, slot

    def _ends(self, value: ValueId, through: frozenset[str]) -> Iterator[tuple[NodeView, int, ValueId]]:
        waiting, seen = [value], {value}
        while waiting:
            current = waiting.pop()
            for outer in self._outside.get(current, ()):
                if outer not in seen:
                    seen.add(outer)
                    waiting.append(outer)
            for node, slot in self.graph.readers_of(current):
                if node.is_call:
                    continue  # the nodes inside read the value themselves
                if slot == 0 and node.domain == "" and node.op_type in through:
                    made = node.output()
                    if made is not None and made not in seen:
                        seen.add(made)
                        waiting.append(made)
                else:
                    yield node, slot, current


def is_bias(node: NodeView, slot: int) -> bool:
    """True where an operator adds this input to its result."""
    return BIAS_SLOTS.get(node.op_type) == slot


PICKING_OPS = frozenset({"Gather", "GatherElements", "GatherND", "Slice", "Split"})
"""Operators that return some elements of their first input."""


def picked_from(graph: GraphView, value: ValueId | None) -> tuple[NodeView, Trace, tuple[NodeId, ...]] | None:
    """The operator that picks rows of a stored table, where `value` holds such rows and nothing else.

    Returns:
        That node (slot 0 reads the table), the way from the stored table to its slot 0, and the plumbing between
        the node and `value`; None where no stored tensor stands behind.
    """
    passed: tuple[NodeId, ...] = ()
    first: NodeView | None = None
    for _ in range(16):
        if value is None:
            return None
        trace = trace_operand(graph, value)
        if graph.const(trace.source) is not None:
            return None if first is None else (first, trace, passed[1:])
        made = graph.producer_of(trace.source)
        if made is None or made.domain != "" or made.op_type not in PICKING_OPS:
            return None
        first, passed = made, (made.id, *trace.nodes, *passed)
        value = made.input(0)
    return None


def place(node: NodeView) -> str:
    """How a message names a node."""
    return f"the {node.op_type} {node.name or '#' + str(node.id)!r}"
