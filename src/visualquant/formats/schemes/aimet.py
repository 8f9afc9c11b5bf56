"""AIMET: encodings beside a float model say how each tensor is to be quantized."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator

import numpy as np

from visualquant.core.graph import GraphView, NodeView, ValueId
from visualquant.core.quant import QuantParams, QuantSite
from visualquant.core.tensors import ELEMENT_TYPES, TensorRef
from visualquant.core.trace import trace_operand
from visualquant.formats.aimet_encodings import Encoding, encodings_of
from visualquant.formats.element_types import held_in
from visualquant.formats.schemes._affine import Array, Reading, Shape
from visualquant.formats.schemes._flow import Flow
from visualquant.formats.schemes._quantize import computed, quantize_linear
from visualquant.formats.schemes._sites import activation_site, weight_sites

NAME = "aimet"


def find(graph: GraphView) -> Iterable[QuantSite]:
    """One site for each encoding and reader of its tensor."""
    encodings = list(encodings_of(graph))
    flow = Flow(graph) if encodings else None
    for encoding in encodings:
        value = graph.by_key.get(encoding.name)
        if value is None or flow is None:
            continue
        stored = graph.const(value)
        if stored is None:
            params = _activation_params(graph, value, encoding)
            yield activation_site(flow, NAME, value, params, problem=encoding.problem)
        elif stored.dtype.is_float:
            yield from _parameter(flow, value, stored, encoding)


def not_encoded(graph: GraphView) -> tuple[ValueId, ...]:
    """Operands of layers that the encodings quantize only in part; empty where no encodings are attached.

    Looked at are data and weight of operators that multiply; a value counts as encoded where it or what it is laid
    out from is. Biases are left out: tools derive them.
    """
    encoded = {graph.by_key[e.name] for e in encodings_of(graph) if e.name in graph.by_key}
    found: dict[ValueId, None] = {}
    for node in graph.nodes:
        if not encoded or node.op_type not in _MULTIPLYING:
            continue
        operands = [v for v in node.inputs[:2] if v is not None]
        said = [_is_encoded(graph, v, encoded) for v in operands]
        if any(said):
            found.update(dict.fromkeys(v for v, known in zip(operands, said, strict=True) if not known))
    return tuple(found)


_MULTIPLYING = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def _is_encoded(graph: GraphView, value: ValueId, encoded: set[ValueId]) -> bool:
    trace = trace_operand(graph, value)
    on_the_way = [graph.nodes[n].output() for n in trace.nodes]
    return value in encoded or trace.source in encoded or any(v in encoded for v in on_the_way)


def _activation_params(graph: GraphView, value: ValueId, encoding: Encoding) -> QuantParams | None:
    shape = graph.values[value].shape
    count = encoding.scale.size
    if count == 1:
        return _read(encoding, (), None, None).params
    if shape is None:
        return None
    return _read(encoding, tuple(n if isinstance(n, int) else count for n in shape), 1, None).params


def _parameter(flow: Flow, value: ValueId, stored: TensorRef, encoding: Encoding) -> Iterator[QuantSite]:
    readers = [use for use in flow.uses(value) if not use.steps]
    channel, block = _axes(readers[0].node, len(stored.shape)) if readers else (0, 1)
    reading = _read(encoding, stored.shape, channel, block)
    codes = stored
    if reading.params is not None:
        params = reading.params
        held = held_in(params.code_type)
        codes = computed(held, stored.shape, lambda: quantize_linear(stored.array(), params, ELEMENT_TYPES["float32"]))
    for site in weight_sites(flow, NAME, value, codes, reading, value, at_run_time=True):
        yield dataclasses.replace(site, dequantized=None)


def _axes(node: NodeView, rank: int) -> tuple[int, int]:
    """The axes of a weight that count output and input channels."""
    if node.op_type == "ConvTranspose":
        return 1, 0
    if node.op_type == "Gemm":
        return (0, 1) if node.int_attribute("transB", 0) else (1, 0)
    if node.op_type == "MatMul" and rank >= 2:
        return rank - 1, rank - 2
    return 0, min(1, max(rank - 1, 0))


def _read(encoding: Encoding, shape: Shape, channel: int | None, block: int | None) -> Reading:
    """Parameters for a tensor of `shape`; the axes are used where the encoding names none."""
    if encoding.block_size:
        cut = encoding.axis % len(shape) if encoding.axis is not None and shape else block
        return _blocked(encoding, shape, channel, cut)
    scale, zero = encoding.scale, encoding.zero_point
    if scale.size == 1:
        flat = scale.reshape(())
        shift = None if zero is None else zero.reshape(-1)[:1].reshape(())
        return Reading(_params(encoding, flat, shift, None, None))
    axis = encoding.axis % len(shape) if encoding.axis is not None and shape else channel
    fits = axis is not None and axis < len(shape) and shape[axis] == scale.size
    if not fits or (zero is not None and zero.size not in (1, scale.size)):
        why = f"the encoding of {encoding.name!r} has {scale.size} scales, which fit no axis of shape {list(shape)}."
        return Reading(None, why)
    shift = None if zero is None else np.broadcast_to(zero.reshape(-1), (scale.size,)).copy()
    return Reading(_params(encoding, scale.reshape(-1), shift, axis, None))


def _blocked(encoding: Encoding, shape: Shape, channel: int | None, block: int | None) -> Reading:
    """Scales in blocks: nested as the tensor, or flat with output channels outermost (schema 1.0.0)."""
    size = encoding.block_size
    why = f"the encoding of {encoding.name!r} in blocks of {size} does not fit a tensor of shape {list(shape)}."
    if channel is None or block is None or len(shape) < 2 or channel == block:
        return Reading(None, why)
    want = [1] * len(shape)
    want[channel], want[block] = shape[channel], math.ceil(shape[block] / size)
    blocks = want[channel] * want[block]
    scale: Array = encoding.scale
    if encoding.block_scale is not None:
        steps = _nested(encoding.block_scale, want, channel, block)
        if steps is None or scale.size not in (1, shape[channel]):
            return Reading(None, why)
        per_channel = scale.reshape([-1 if k == channel and scale.size > 1 else 1 for k in range(len(shape))])
        scale = steps * per_channel
    elif scale.size == blocks:
        found = _nested(scale, want, channel, block)
        if found is None:
            return Reading(None, why)
        scale = found
    else:
        return Reading(None, why)
    zero: Array | None = None
    if encoding.zero_point is not None:
        zero = _nested(encoding.zero_point, want, channel, block)
        if zero is None:
            return Reading(None, why)
    full = tuple(math.ceil(n / size) if k == block else n for k, n in enumerate(shape))
    scale = np.broadcast_to(scale, full).copy()
    shift = None if zero is None else np.broadcast_to(zero, full).copy()
    return Reading(_params(encoding, scale, shift, block, size))


def _nested(values: Array, want: list[int], channel: int, block: int) -> Array | None:
    """Values in the shape `want`; flat ones stand with channels outermost."""
    if values.size != math.prod(want):
        return None
    if values.ndim > 1:
        return values.reshape(want)
    ordered = values.reshape(want[channel], want[block])
    return (ordered if channel < block else ordered.T).reshape(want)


def _params(encoding: Encoding, scale: Array, zero: Array | None, axis: int | None, block: int | None) -> QuantParams:
    return QuantParams(encoding.code_type, scale, zero, axis, block, encoding.low, encoding.high)
