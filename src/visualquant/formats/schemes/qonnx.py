"""QONNX: Quant, BipolarQuant and Trunc of Brevitas and FINN. Weights stay float in the file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from visualquant.core.graph import GraphView, NodeView, ValueId
from visualquant.core.quant import QuantParams, QuantSite
from visualquant.core.tensors import ElementType
from visualquant.formats.element_types import held_in, integer_type
from visualquant.formats.schemes._affine import Array, Reading, broadcast_params
from visualquant.formats.schemes._constants import constant
from visualquant.formats.schemes._flow import Flow, place
from visualquant.formats.schemes._quantize import computed
from visualquant.formats.schemes._sites import activation_site, origin_of, weight_sites

NAME = "qonnx"
DOMAINS = frozenset({"qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general"})
BIPOLAR = ElementType("bipolar", 1, "int", np.dtype(np.int8))
"""The codes −1 and 1."""

# Source: qonnx, custom_op/general/intquant.py, resolve_rounding_mode.
ROUNDING: dict[str, Callable[[Array], Array]] = {
    "ROUND": np.rint,
    "HALF_EVEN": np.rint,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": np.trunc,
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - 0.5),
}


@dataclasses.dataclass(frozen=True, slots=True)
class _How:
    """Rounding mode and the bounds that codes are clamped to before rounding."""

    rounding: str = "ROUND"
    low: float = -1.0
    high: float = 1.0


def find(graph: GraphView) -> Iterable[QuantSite]:
    """Weights, biases and activations behind quantizer nodes."""
    flow = Flow(graph)
    for node in graph.nodes:
        made = node.output()
        if node.domain not in DOMAINS or made is None:
            continue
        if node.op_type in ("Quant", "IntQuant"):
            yield from _quant(flow, node, made, _integer_reading)
        elif node.op_type == "BipolarQuant":
            yield from _quant(flow, node, made, _bipolar_reading)
        elif node.op_type == "Trunc":
            yield activation_site(flow, NAME, made, None, nodes=(node.id,), dequantized=made)


def code_limits(bits: float, *, signed: bool, narrow: bool) -> tuple[float, float]:
    """Lowest and highest code before rounding; widths need not be whole. Source: qonnx, min_int and max_int."""
    if signed:
        half = 2.0 ** (bits - 1)
        return -half + (1 if narrow else 0), half - 1
    return 0.0, 2.0**bits - (2 if narrow else 1)


def int_quant(x: Array, params: QuantParams, how: _How) -> Array:
    """Codes of a Quant node: clamped first, rounded then, in float32 as the operator does.

    Source: qonnx, custom_op/general/intquant.py, int_quant.
    """
    zero = np.float32(0) if params.zero_point is None else params.broadcast(params.zero_point, x.shape)
    with np.errstate(all="ignore"):
        y = x.astype(np.float32) / params.broadcast(params.scale.astype(np.float32), x.shape)
        y = y + np.asarray(zero, np.float32)
    if params.code_type == BIPOLAR or (params.code_type.name == "int1"):
        return np.where(y >= 0, 1, -1)
    # NOTE: float64, since the bounds of 32 bits are no float32
    return ROUNDING[how.rounding](np.clip(np.nan_to_num(y.astype(np.float64), nan=0.0), how.low, how.high))


_Read = Callable[[GraphView, NodeView, tuple[int, ...]], tuple[Reading, _How]]


def _quant(flow: Flow, node: NodeView, made: ValueId, read: _Read) -> Iterator[QuantSite]:
    graph = flow.graph
    origin = origin_of(graph, node.input(0))
    if origin is None or not origin.stored.dtype.is_float:
        shape = graph.values[made].shape
        sizes = () if shape is None else tuple(n if isinstance(n, int) else 1 for n in shape)
        params = read(graph, node, sizes)[0].params
        yield activation_site(flow, NAME, made, params, nodes=(node.id,), dequantized=made)
        return
    reading, how = read(graph, node, origin.shape)
    codes = origin.stored
    params = reading.params
    if params is not None:
        kept = params
        codes = computed(held_in(params.code_type), origin.shape, lambda: int_quant(origin.operand(), kept, how))
    nodes = (*origin.nodes, node.id)
    yield from weight_sites(flow, NAME, origin.value, codes, reading, made, (), nodes, at_run_time=True)


def _integer_reading(graph: GraphView, node: NodeView, shape: tuple[int, ...]) -> tuple[Reading, _How]:
    """Parameters of a Quant node for data of `shape`, and how it rounds."""
    where = place(node)
    rounding = str(node.attributes.get("rounding_mode", "ROUND")).upper()
    if rounding not in ROUNDING:
        return Reading(None, f"{where} rounds by {rounding!r}, which QONNX does not define."), _How()
    scale, zero, bits = (constant(graph, node.input(k)) for k in (1, 2, 3))
    if scale is None or zero is None or bits is None or bits.size != 1:
        return Reading(None, f"{where} has a scale, zero point or bit width that is missing or no constant."), _How()
    width = float(bits.reshape(-1)[0])
    if not 0 < width <= 64:
        return Reading(None, f"{where} says {width:g} bits: no code has such a width."), _How()
    signed = node.int_attribute("signed", 1) != 0
    low, high = code_limits(width, signed=signed, narrow=node.int_attribute("narrow", 0) != 0)
    params = broadcast_params(integer_type(math.ceil(width), signed=signed), shape, scale, _whole(zero))
    if params is None:
        why = f"{where} has a scale of shape {list(scale.shape)} for data of shape {list(shape)}: they do not fit."
        return Reading(None, why), _How()
    ends = (-1.0, 1.0) if width == 1 and signed else (low, high)
    return Reading(_limited(params, *ends)), _How(rounding, low, high)


def _bipolar_reading(graph: GraphView, node: NodeView, shape: tuple[int, ...]) -> tuple[Reading, _How]:
    scale = constant(graph, node.input(1))
    params = None if scale is None else broadcast_params(BIPOLAR, shape, scale, None)
    if params is None:
        return Reading(None, f"{place(node)} has a scale that is missing, no constant, or does not fit."), _How()
    return Reading(_limited(params, -1.0, 1.0)), _How()


def _limited(params: QuantParams, low: float, high: float) -> QuantParams:
    return dataclasses.replace(params, qmin=math.floor(low), qmax=math.ceil(high))


def _whole(zero: Array) -> Array | None:
    """Zero points as integers where they are whole; None where all are 0."""
    if not zero.any():
        return None
    return zero.astype(np.int64) if (zero == np.rint(zero)).all() else zero
