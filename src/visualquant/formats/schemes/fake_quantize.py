"""FakeQuantize and FakeConvert of OpenVINO: float in, float out, rounded to levels between bounds, or to float8."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from visualquant.core.graph import GraphView, NodeView, ValueId
from visualquant.core.quant import QuantParams, QuantSite
from visualquant.core.tensors import ELEMENT_TYPES, TensorRef
from visualquant.formats.element_types import held_in, integer_type
from visualquant.formats.schemes._affine import Array, Reading, Shape, broadcast_params
from visualquant.formats.schemes._constants import constant
from visualquant.formats.schemes._flow import Flow, place
from visualquant.formats.schemes._quantize import computed, to_float_codes
from visualquant.formats.schemes._sites import Origin, activation_site, origin_of, weight_sites

NAME = "fake_quantize"
DOMAINS = frozenset({"openvino", "org.openvinotoolkit"})


def find(graph: GraphView) -> Iterable[QuantSite]:
    """Weights and activations behind FakeQuantize and FakeConvert nodes."""
    flow = Flow(graph)
    for node in graph.nodes:
        made = node.output()
        if node.domain not in DOMAINS or made is None:
            continue
        if node.op_type == "FakeQuantize":
            yield from _node(flow, node, made, _read, _codes)
        elif node.op_type == "FakeConvert":
            yield from _node(flow, node, made, _read_convert, _converted)


_Read = Callable[[GraphView, NodeView, Shape], Reading]
_Codes = Callable[[GraphView, NodeView, Origin, QuantParams], TensorRef]


def _node(flow: Flow, node: NodeView, made: ValueId, read: _Read, codes_of: _Codes) -> Iterator[QuantSite]:
    graph = flow.graph
    origin = origin_of(graph, node.input(0))
    if origin is None or not origin.stored.dtype.is_float:
        shape = graph.values[made].shape
        given = [constant(graph, v) for v in node.inputs[1:]]
        count = max((b.size for b in given if b is not None), default=1)
        sizes = None if shape is None else tuple(n if isinstance(n, int) else count for n in shape)
        params = None if sizes is None else read(graph, node, sizes).params
        yield activation_site(flow, NAME, made, params, nodes=(node.id,), dequantized=made)
        return
    reading = read(graph, node, origin.shape)
    codes = origin.stored if reading.params is None else codes_of(graph, node, origin, reading.params)
    nodes = (*origin.nodes, node.id)
    yield from weight_sites(flow, NAME, origin.value, codes, reading, made, (), nodes, at_run_time=True)


def _read(graph: GraphView, node: NodeView, shape: Shape) -> Reading:
    """x̂ = code · (high − low) / (levels − 1) + low, of the output bounds, as scale and (fractional) zero point."""
    low, high = (constant(graph, node.input(k)) for k in (3, 4))
    levels = node.int_attribute("levels", 0)
    if low is None or high is None:
        return Reading(None, f"{place(node)} has bounds that are missing or no constants.")
    if not 2 <= levels <= 1 << 16:
        return Reading(None, f"{place(node)} says {levels} levels.")
    low, high = low.astype(np.float64), high.astype(np.float64)
    with np.errstate(all="ignore"):
        try:
            scale = (high - low) / (levels - 1)
            zero = np.where(scale == 0, 0.0, -low / np.where(scale == 0, 1.0, scale))
        except ValueError:
            return Reading(None, f"{place(node)} has bounds of shapes {list(low.shape)} and {list(high.shape)}.")
    whole = np.rint(zero)
    if np.abs(zero - whole).max(initial=0.0) < 1e-6:
        zero = whole.astype(np.int64)
    code_type = integer_type((levels - 1).bit_length(), signed=False)
    params = broadcast_params(code_type, shape, scale, zero)
    if params is None:
        why = f"{place(node)} has bounds of shape {list(scale.shape)} for data of shape {list(shape)}: they do not fit."
        return Reading(None, why)
    return Reading(dataclasses.replace(params, qmin=0, qmax=levels - 1))


def _codes(graph: GraphView, node: NodeView, origin: Origin, params: QuantParams) -> TensorRef:
    """Source: OpenVINO's FakeQuantize-1: clamp to the input bounds, scale to levels − 1, round half to even."""
    bounds = [constant(graph, node.input(k)) for k in (1, 2)]
    assert params.qmax is not None
    top = params.qmax

    def make() -> Array:
        x = origin.operand().astype(np.float64)
        low, high = (np.broadcast_to(np.float64(0) if b is None else b.astype(np.float64), x.shape) for b in bounds)
        below, above = np.minimum(low, high), np.maximum(low, high)
        with np.errstate(all="ignore"):
            steps = np.rint((np.clip(x, below, above) - low) / (high - low) * top)
        steps = np.where(x <= below, 0, np.where(x > above, top, steps))
        return np.asarray(np.clip(np.nan_to_num(steps), 0, top))

    return computed(held_in(params.code_type), origin.shape, make)


_FLOAT_TYPES = {"f8e4m3": "float8e4m3fn", "f8e5m2": "float8e5m2"}


def _read_convert(graph: GraphView, node: NodeView, shape: Shape) -> Reading:
    """x̂ = (code + shift) / scale, as scale 1 / scale and zero point −shift."""
    scale, shift = constant(graph, node.input(1)), constant(graph, node.input(2))
    stated = str(node.attributes.get("destination_type", "f8e4m3")).lower()
    if scale is None or stated not in _FLOAT_TYPES or (shift is None and node.input(2) is not None):
        return Reading(None, f"{place(node)} has no constant scale and shift, or converts to {stated!r}.")
    with np.errstate(all="ignore"):
        inverse = 1.0 / scale.astype(np.float64)
    zero = None if shift is None or not shift.any() else -shift.astype(np.float64)
    params = broadcast_params(ELEMENT_TYPES[_FLOAT_TYPES[stated]], shape, inverse, zero)
    if params is None:
        why = (
            f"{place(node)} has a scale of shape {list(scale.shape)} for data of shape {list(shape)}: they do not fit."
        )
        return Reading(None, why)
    return Reading(params)


def _converted(graph: GraphView, node: NodeView, origin: Origin, params: QuantParams) -> TensorRef:
    """Source: OpenVINO's FakeConvert-13: round(x · scale − shift) to float8."""
    scale, shift = constant(graph, node.input(1)), constant(graph, node.input(2))
    assert scale is not None

    def make() -> Array:
        x = origin.operand().astype(np.float32) * scale.astype(np.float32)
        x = x if shift is None else x - shift.astype(np.float32)
        if params.code_type.name == "float8e5m2":
            x = np.clip(x, -65504, 65504).astype(np.float16)  # OpenVINO rounds to float16 on the way
        return to_float_codes(x, params.code_type)

    return computed(params.code_type, origin.shape, make)
