"""Stored tensors of a code type that no scheme reader understands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from visualquant.core.graph import GraphView, NodeId, NodeView, ValueId
from visualquant.core.quant import QuantSite
from visualquant.core.trace import LAYOUT_OPS
from visualquant.formats.schemes._qdq_ops import is_dequantize

MIN_ELEMENTS = 16
_PARAMETER_OPS = LAYOUT_OPS | {"Mul", "Div"}
_CODE_TYPES = frozenset({"int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2"})
# Quantizers of stored float values (slot 0) that no reader understands yet.
_UNREAD_QUANTIZERS = frozenset({"FloatQuant", "QuantizeBFP", "QuantizeWithOrder"})
# Input slots that hold indices, masks, shapes or plain data of another kind, whatever their type.
_NOT_WEIGHTS: dict[str, frozenset[int]] = {
    "Gather": frozenset({1}),
    "GatherElements": frozenset({1}),
    "GatherND": frozenset({1}),
    "ScatterElements": frozenset({1}),
    "ScatterND": frozenset({1}),
    "Where": frozenset({0}),
    "Equal": frozenset({0, 1}),
    "And": frozenset({0, 1}),
    "Or": frozenset({0, 1}),
    "Not": frozenset({0}),
}


def unclaimed_weights(graph: GraphView, sites: Iterable[QuantSite]) -> Iterator[ValueId]:
    """Stored tensors that look like quantized weights and belong to no site, in id order.

    Integers and small floats, and floats that a quantizer unknown to the readers takes.
    """
    claimed: set[ValueId] = set()
    for site in sites:
        claimed.add(site.value)
        for node_id in (*site.nodes, *(() if site.reader is None else (site.reader,))):
            _claim(graph, node_id, claimed, through=site.role != "activation")
    for value in graph.values:
        const = value.const
        if const is None or value.id in claimed or const.size < MIN_ELEMENTS:
            continue
        readers = [(n, s) for n, s in graph.readers_of(value.id) if not n.is_call]
        small_float = const.dtype.is_float and const.dtype.bits < 16
        fed = any(s == 0 and n.op_type in _UNREAD_QUANTIZERS for n, s in readers)
        if const.dtype.name not in _CODE_TYPES and not small_float and not fed:
            continue
        if readers and not all(_is_other(n, s) for n, s in readers):
            yield value.id


def _claim(graph: GraphView, node_id: NodeId, claimed: set[ValueId], *, through: bool) -> None:
    """Adds a node's inputs and, behind them, what scales and zero points are made of."""
    waiting = [v for v in graph.nodes[node_id].inputs if v is not None and v not in claimed]
    while waiting:
        value = waiting.pop()
        claimed.add(value)
        made = graph.producer_of(value) if through else None
        if made is not None and (made.op_type in _PARAMETER_OPS or is_dequantize(made)):
            waiting += [v for v in made.inputs if v is not None and v not in claimed]


def _is_other(node: NodeView, slot: int) -> bool:
    return slot in _NOT_WEIGHTS.get(node.op_type, frozenset())
