"""QOperator: operators that compute with codes and take scales and zero points as inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from visualquant.core.graph import GraphView, NodeView, ValueId
from visualquant.core.quant import QuantParams, QuantSite
from visualquant.core.tensors import ELEMENT_TYPES, ElementType
from visualquant.formats.schemes._affine import Array, Reading, broadcast_params, code_range
from visualquant.formats.schemes._constants import constant
from visualquant.formats.schemes._flow import Flow, picked_from, place
from visualquant.formats.schemes._qdq_ops import is_dequantize
from visualquant.formats.schemes._quantize import computed
from visualquant.formats.schemes._sites import activation_site, origin_of

NAME = "qoperator"


@dataclasses.dataclass(frozen=True, slots=True)
class Operand:
    """Input slots of one quantized tensor and of what its codes mean.

    Attributes:
        slot, scale, zero: input slots; zero is -1 where the operator takes none.
        per: what a scale with several elements runs along: "first" axis, "rows" (last but one), "columns" (last),
            "gates" (directions of a recurrent weight, or directions and columns).
    """

    slot: int
    scale: int
    zero: int
    per: str = "columns"


@dataclasses.dataclass(frozen=True, slots=True)
class QOperator:
    """One operator: its quantized operands, the scale of its result, and its bias.

    Attributes:
        operands: data first, then weights.
        result: (scale slot, zero point slot) of output 0, or None for a float result.
        bias: slot of an int32 bias with scale = product of the scales of the first two operands, or None.
        code_type: what the operands are where their stored type does not say so.
    """

    operands: tuple[Operand, ...]
    result: tuple[int, int] | None = None
    bias: int | None = None


_BINARY = QOperator((Operand(0, 1, 2), Operand(3, 4, 5)), (6, 7))
_UNARY = QOperator((Operand(0, 1, 2),), (3, 4))
_CONV = QOperator((Operand(0, 1, 2), Operand(3, 4, 5, "first")), (6, 7), 8)
_EMBED = QOperator((Operand(2, 8, 13), Operand(3, 9, 14), Operand(4, 10, 15), Operand(5, 11, 16), Operand(6, 12, 17)))

OPERATORS: dict[tuple[str, str], QOperator] = {
    ("", "QLinearConv"): _CONV,
    ("com.microsoft", "QLinearConv"): _CONV,
    ("com.ms.internal.nhwc", "QLinearConv"): _CONV,
    ("com.ms.internal.nhwc", "QLinearConvTranspose"): _CONV,
    ("", "QLinearMatMul"): QOperator((Operand(0, 1, 2, "rows"), Operand(3, 4, 5)), (6, 7)),
    ("com.microsoft", "QLinearAdd"): _BINARY,
    ("com.microsoft", "QLinearMul"): _BINARY,
    ("com.microsoft", "QLinearSigmoid"): _UNARY,
    ("com.microsoft", "QLinearLeakyRelu"): _UNARY,
    ("com.microsoft", "QLinearSoftmax"): _UNARY,
    ("com.microsoft", "QLinearAveragePool"): _UNARY,
    ("com.microsoft", "QLinearGlobalAveragePool"): _UNARY,
    ("com.microsoft", "QLinearReduceMean"): _UNARY,
    ("com.microsoft", "QLinearWhere"): QOperator((Operand(1, 2, 3), Operand(4, 5, 6)), (7, 8)),
    ("com.microsoft", "QGemm"): QOperator((Operand(0, 1, 2, "rows"), Operand(3, 4, 5)), (7, 8), 6),
    ("com.microsoft", "QAttention"): QOperator((Operand(0, 3, 6), Operand(1, 4, 7))),
    ("com.microsoft", "QEmbedLayerNormalization"): _EMBED,
    ("com.microsoft", "QOrderedMatMul"): QOperator((Operand(0, 1, -1), Operand(2, 3, -1)), (4, -1)),
}


def operator_of(node: NodeView) -> QOperator | None:
    """How a node's inputs are to be read, None for operators of other schemes."""
    if (node.domain, node.op_type) == ("com.microsoft", "QLinearConcat"):
        triples = range(2, len(node.inputs) - 2, 3)
        return QOperator(tuple(Operand(k, k + 1, k + 2) for k in triples), (0, 1))
    return OPERATORS.get((node.domain, node.op_type))


def find(graph: GraphView) -> Iterable[QuantSite]:
    """Stored operands, int32 biases, and the results of operators that compute with codes."""
    flow = Flow(graph)
    for node in graph.nodes:
        operator = operator_of(node)
        if operator is None:
            continue
        for operand in operator.operands:
            site = _operand(graph, node, operand)
            if site is not None:
                yield site
        if operator.bias is not None:
            yield from _bias(graph, node, operator)
        made = node.output()
        if operator.result is not None and made is not None:
            yield _result(graph, flow, node, made, operator.result)


def _operand(graph: GraphView, node: NodeView, operand: Operand) -> QuantSite | None:
    value = node.input(operand.slot)
    if value is None:
        return None
    origin = origin_of(graph, value)
    if origin is None:
        return _picked(graph, node, operand)
    stored, shape = origin.stored, origin.shape
    if not stored.dtype.is_integer:
        return None
    reading = read_operand(graph, node, operand, stored.dtype, shape)
    codes, view = stored, origin.steps
    if reading.params is not None and reading.params.axis is not None and origin.steps:
        # NOTE: rare (a runtime folds it); scales follow the operand, so the stored tensor is seen as the operand
        codes, view = computed(stored.dtype, shape, origin.operand), ()
    return QuantSite(
        value=origin.value,
        scheme=NAME,
        role="weight",
        params=reading.params,
        codes=codes,
        reader=node.id,
        slot=operand.slot,
        view=view,
        nodes=origin.nodes,
        problem=reading.problem,
    )


def _picked(graph: GraphView, node: NodeView, operand: Operand) -> QuantSite | None:
    """A stored table whose rows (Gather, Slice) an operator computes with; the picking node reads it."""
    found = picked_from(graph, node.input(operand.slot))
    if found is None:
        return None
    reader, trace, passed = found
    stored = graph.const(trace.source)
    if stored is None or not stored.dtype.is_integer or stored.dtype.bits > 16:
        return None
    reading = read_operand(graph, node, operand, stored.dtype, stored.shape)
    if reading.params is not None and reading.params.axis is not None:
        why = f"{node.name!r} gives rows of {graph.values[trace.source].key!r} scales along an axis that is made later."
        reading = Reading(None, why)
    return QuantSite(
        value=trace.source,
        scheme=NAME,
        role="weight",
        params=reading.params,
        codes=stored,
        reader=reader.id,
        slot=0,
        view=trace.steps,
        nodes=(*trace.nodes, *passed),
        problem=reading.problem,
    )


def read_operand(
    graph: GraphView, node: NodeView, operand: Operand, code_type: ElementType, shape: tuple[int, ...]
) -> Reading:
    """Parameters of one operand from the node's scale and zero point inputs."""
    where = place(node)
    scale = constant(graph, node.input(operand.scale))
    zero = constant(graph, node.input(operand.zero)) if operand.zero >= 0 else None
    if scale is None:
        return Reading(None, f"{where} takes a scale for input {operand.slot} that is missing or no constant.")
    if zero is None and operand.zero >= 0 and node.input(operand.zero) is not None:
        return Reading(None, f"{where} takes a zero point for input {operand.slot} that is no constant.")
    if scale.size == 0 or (zero is not None and zero.size == 0):
        return Reading(None, f"{where} takes a scale or zero point for input {operand.slot} without elements.")
    scale = _along(scale.astype(np.float64), operand, node, shape)
    zero = None if zero is None else _along(zero, operand, node, shape)
    params = broadcast_params(code_type, shape, scale, zero)
    if params is None:
        counts = f"a scale of shape {list(scale.shape)}"
        counts += "" if zero is None else f" and a zero point of shape {list(zero.shape)}"
        return Reading(None, f"{where} gives input {operand.slot}, of shape {list(shape)}, {counts}: they do not fit.")
    return Reading(params)


def _along(array: Array, operand: Operand, node: NodeView, shape: tuple[int, ...]) -> Array:
    """A one-dimensional scale or zero point, reshaped so that it broadcasts along the axis it belongs to."""
    if operand.per == "gates" and len(shape) == 3 and array.size > 1:  # a scale a direction, or a direction and column
        return array.reshape(array.shape[0], 1, -1)
    if array.ndim != 1 or array.size == 1 or not shape:
        return array.reshape(()) if array.size == 1 else array
    axis = {"first": 0, "rows": len(shape) - 2}.get(operand.per, len(shape) - 1)
    if node.op_type == "QGemm" and node.int_attribute("transB" if operand.slot == 3 else "transA", 0):
        axis = len(shape) - 2 if operand.per == "columns" else len(shape) - 1
    if node.op_type == "QLinearConvTranspose" and operand.per == "first":
        axis = 1
    axis = max(axis, 0)
    return array.reshape([-1 if k == axis else 1 for k in range(len(shape))])


def _bias(graph: GraphView, node: NodeView, operator: QOperator) -> Iterator[QuantSite]:
    """The int32 bias, whose scale stands nowhere: it is the product of input and weight scale."""
    assert operator.bias is not None
    value = node.input(operator.bias)
    stored = graph.const(value)
    if value is None or stored is None or not stored.dtype.is_integer:
        return
    data, weight = (constant(graph, node.input(o.scale)) for o in operator.operands[:2])
    params: QuantParams | None = None
    problem = None
    if data is None or weight is None or data.size != 1 or weight.size == 0:
        problem = f"the bias of {place(node)} has no scale: those of its input and weight are no constants that fit."
    else:
        product = float(data.reshape(-1)[0]) * weight.astype(np.float64).reshape(-1)
        low, high = code_range(stored.dtype)
        channels = stored.shape[-1] if stored.shape else 1
        if product.size == 1:
            params = QuantParams(stored.dtype, product.reshape(()), None, None, None, low, high)
        elif product.size == channels and stored.size == channels:
            params = QuantParams(stored.dtype, product, None, len(stored.shape) - 1, None, low, high)
        else:
            problem = f"the bias of {place(node)} has shape {list(stored.shape)}, its weight {product.size} scales."
    yield QuantSite(
        value=value,
        scheme=NAME,
        role="bias",
        params=params,
        codes=stored,
        reader=node.id,
        slot=operator.bias,
        problem=problem,
    )


def _result(graph: GraphView, flow: Flow, node: NodeView, value: ValueId, slots: tuple[int, int]) -> QuantSite:
    """The activation site of what an operator makes."""
    scale = constant(graph, node.input(slots[0]))
    zero_id = node.input(slots[1]) if slots[1] >= 0 else None
    zero = constant(graph, zero_id)
    code_type = graph.values[value].dtype
    if code_type is None and zero_id is not None:
        code_type = graph.values[zero_id].dtype
    code_type = code_type or ELEMENT_TYPES["int8"]
    params = None
    if scale is not None and scale.size == 1 and (zero is None or zero.size == 1):
        low, high = code_range(code_type)
        shift = None if zero is None else zero.reshape(())
        params = QuantParams(code_type, scale.astype(np.float64).reshape(()), shift, None, None, low, high)
    dequantize = next((n for n, _ in flow.readers(value) if is_dequantize(n)), None)
    made = None if dequantize is None else dequantize.output()
    return activation_site(
        flow,
        NAME,
        value,
        params,
        nodes=() if dequantize is None else (dequantize.id,),
        dequantized=made,
        behind=made,
    )
