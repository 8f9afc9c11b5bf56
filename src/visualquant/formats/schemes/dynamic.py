"""Dynamic quantization: activations get their scale when the model runs, weights keep theirs in the file."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from visualquant.core.graph import GraphView, NodeId, NodeView, ValueId
from visualquant.core.quant import QuantSite
from visualquant.core.trace import trace_operand
from visualquant.formats.schemes._affine import Array, Reading, broadcast_params
from visualquant.formats.schemes._constants import constant
from visualquant.formats.schemes._flow import Flow, place
from visualquant.formats.schemes._qdq_ops import is_quantize
from visualquant.formats.schemes._quantize import computed
from visualquant.formats.schemes._sites import Origin, activation_site, origin_of
from visualquant.formats.schemes.qoperator import Operand, read_operand

NAME = "dynamic"
_INTEGER = {"MatMulInteger", "ConvInteger"}
_CARRIES = frozenset({"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze"})

WITH_SCALES: dict[tuple[str, str], tuple[Operand, ...]] = {
    ("com.microsoft", "DynamicQuantizeMatMul"): (Operand(1, 2, 3),),
    ("com.microsoft", "MatMulIntegerToFloat"): (Operand(0, 2, 4, "rows"), Operand(1, 3, 5)),
    ("com.microsoft", "DynamicQuantizeLSTM"): (Operand(1, 8, 9, "gates"), Operand(2, 10, 11, "gates")),
}
"""Operators that quantize their data themselves and take the scales of their weights as inputs."""


def find(graph: GraphView) -> Iterable[QuantSite]:
    """Weights of integer operators and of operators that quantize their input, and run-time activations."""
    flow = Flow(graph)
    for node in graph.nodes:
        if node.op_type in _INTEGER and node.domain == "":
            for slot in (0, 1):
                site = _integer_operand(graph, flow, node, slot)
                if site is not None:
                    yield site
        for operand in WITH_SCALES.get((node.domain, node.op_type), ()):
            site = _operand(graph, node, operand)
            if site is not None:
                yield site
        made = node.output()
        if node.op_type == "DynamicQuantizeLinear" and node.domain == "" and made is not None:
            yield activation_site(flow, NAME, made, None, nodes=(node.id,))


def _operand(graph: GraphView, node: NodeView, operand: Operand) -> QuantSite | None:
    value = node.input(operand.slot)
    stored = graph.const(value)
    if value is None or stored is None or not stored.dtype.is_integer:
        return None
    return QuantSite(
        value=value,
        scheme=NAME,
        role="weight",
        params=(reading := read_operand(graph, node, operand, stored.dtype, stored.shape)).params,
        codes=stored,
        reader=node.id,
        slot=operand.slot,
        problem=reading.problem,
    )


def _integer_operand(graph: GraphView, flow: Flow, node: NodeView, slot: int) -> QuantSite | None:
    """A stored operand of MatMulInteger or ConvInteger; its scale stands in the Mul behind."""
    origin = origin_of(graph, node.input(slot))
    if origin is None or not origin.stored.dtype.is_integer:
        return None
    where = place(node)
    zero = constant(graph, node.input(2 + slot))
    nodes: tuple[NodeId, ...] = ()
    if zero is None and node.input(2 + slot) is not None:
        reading = Reading(None, f"{where} takes a zero point that is no constant of the file.")
    else:
        scale, nodes = _scale_behind(graph, flow, node, slot)
        reading = _reading(where, node, slot, origin, scale, zero)
    # scales follow the operand, so a stored tensor that is laid out otherwise is seen as the operand
    codes = computed(origin.stored.dtype, origin.shape, origin.operand) if origin.steps else origin.stored
    return QuantSite(
        value=origin.value,
        scheme=NAME,
        role="weight",
        params=reading.params,
        codes=codes,
        reader=node.id,
        slot=slot,
        nodes=(*origin.nodes, *nodes),
        problem=reading.problem,
    )


def _reading(
    where: str,
    node: NodeView,
    slot: int,
    origin: Origin,
    scale: Array | None,
    zero: Array | None,
) -> Reading:
    shape = origin.shape
    if scale is None:
        return Reading(None, f"{where} is followed by no Mul with a constant: the scale of its weight is not known.")
    conv = node.op_type == "ConvInteger"
    axis = (0 if slot else None) if conv else (len(shape) - 1 if slot else len(shape) - 2)

    def along(array: Array) -> Array:
        if array.size == 1 or axis is None:
            return array.reshape(()) if array.size == 1 else array
        if sum(n != 1 for n in array.shape) == 1 and axis >= 0:
            return array.reshape([-1 if k == axis else 1 for k in range(len(shape))])
        return array

    shaped, shift = along(scale), None if zero is None else along(zero)
    params = broadcast_params(origin.stored.dtype, shape, shaped, shift)
    if params is None:
        counts = f"a scale of shape {list(scale.shape)}"
        counts += "" if zero is None else f" and a zero point of shape {list(zero.shape)}"
        return Reading(None, f"{where} has a weight of shape {list(shape)} with {counts}: they do not fit.")
    return Reading(params)


def _scale_behind(graph: GraphView, flow: Flow, node: NodeView, slot: int) -> tuple[Array | None, tuple[NodeId, ...]]:
    """The constant factor of the Mul chain behind an integer operator that is not the data's own scale."""
    data_scale = _data_scale(graph, node, 1 - slot)
    found: list[Array] = []
    nodes: list[NodeId] = []
    dynamic = False
    value = node.output()
    while value is not None and not (found and dynamic):
        readers = [(n, s) for n, s in flow.readers(value)]
        if len(readers) != 1:
            break
        reader, at = readers[0]
        if reader.op_type in _CARRIES and at == 0 and reader.domain == "":
            nodes.append(reader.id)
        elif reader.op_type == "Mul" and reader.domain == "":
            other = reader.input(1 - at)
            factors = [] if other is None else _factors(graph, other, nodes)
            if not factors:
                break
            nodes.append(reader.id)
            for factor in factors:
                array = constant(graph, factor)
                if array is None or factor == data_scale:
                    dynamic = True
                else:
                    found.append(array.astype(np.float64))
        else:
            break
        value = reader.output()
    if not found:
        return None, tuple(nodes)
    try:
        np.broadcast_shapes(*(f.shape for f in found))
    except ValueError:  # a damaged file: no product, so no scale
        return None, tuple(nodes)
    product = found[0]
    for more in found[1:]:
        product = product * more
    return (product if product.size else None), tuple(nodes)


def _factors(graph: GraphView, value: ValueId, nodes: list[NodeId]) -> list[ValueId]:
    """Leaves of a product of scales: constants, and scales that DynamicQuantizeLinear makes; else nothing."""
    source = trace_operand(graph, value).source
    if graph.const(source) is not None:
        return [value]
    made = graph.producer_of(source)
    if made is None:
        return []
    if made.op_type == "DynamicQuantizeLinear":
        return [source]
    if made.op_type == "Mul" and made.domain == "":
        sides = [_factors(graph, v, nodes) for v in made.inputs if v is not None]
        if len(sides) == 2 and all(sides):
            nodes.append(made.id)
            return sides[0] + sides[1]
    return []


def _data_scale(graph: GraphView, node: NodeView, slot: int) -> ValueId | None:
    """The scale of the other operand where a quantize node with a constant scale makes it."""
    value = node.input(slot)
    made = None if value is None else graph.producer_of(trace_operand(graph, value).source)
    return made.input(1) if made is not None and is_quantize(made) else None
