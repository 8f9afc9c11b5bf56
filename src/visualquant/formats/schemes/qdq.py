"""QDQ: QuantizeLinear and DequantizeLinear of ONNX and of the vendors' domains, with Clip between them (QCDQ)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from visualquant.core.graph import GraphView, NodeId, NodeView, ValueId
from visualquant.core.quant import QuantParams, QuantSite, ViewStep
from visualquant.core.tensors import ELEMENT_TYPES, ElementType, TensorRef
from visualquant.core.trace import static_shape, trace_operand
from visualquant.formats.onnx_types import BY_NUMBER
from visualquant.formats.schemes._affine import Array, Reading, Shape, Spec, pull_back, read_affine
from visualquant.formats.schemes._constants import constant
from visualquant.formats.schemes._flow import Flow, picked_from, place
from visualquant.formats.schemes._qdq_ops import (
    is_dequantize,
    is_quantize,
    qdq_op,
    quantized_type,
)
from visualquant.formats.schemes._quantize import computed, quantize_linear
from visualquant.formats.schemes._sites import Origin, activation_site, origin_of, shape_after, weight_sites

NAME = "qdq"


@dataclasses.dataclass(frozen=True, slots=True)
class _Codes:
    """Where a DequantizeLinear's codes come from, seen through layout operators and Clip.

    Attributes:
        source: the stored tensor, or the output of the quantize node, or whatever else makes them.
        steps, shapes: from the source to the input of the DequantizeLinear; a shape before each step and at the
            end. No shapes where one on the way is unknown.
        nodes: plumbing passed.
        low, high: range of a Clip on the way.
    """

    source: ValueId
    steps: tuple[ViewStep, ...]
    shapes: tuple[Shape, ...]
    nodes: tuple[NodeId, ...]
    low: int | None
    high: int | None


def find(graph: GraphView) -> Iterable[QuantSite]:
    """Weights and biases behind DequantizeLinear, float weights between Q and DQ, and activations."""
    flow = Flow(graph)
    pairs: dict[NodeId, list[NodeView]] = {n.id: [] for n in graph.nodes if is_quantize(n)}
    for node in graph.nodes:
        if not is_dequantize(node):
            continue
        codes = _codes_of(graph, node.input(0))
        if codes is None:
            continue
        made = graph.producer_of(codes.source)
        stored = graph.const(codes.source)
        if stored is not None:
            yield from _stored(flow, node, codes, stored)
        elif made is not None and is_quantize(made):
            pairs[made.id].append(node)
        elif (site := _picked(flow, node)) is not None:
            yield site
        elif graph.values[codes.source].role == "input":
            yield _activation(flow, codes.source, None, node, [node])
    for quantize_id, dequantizes in pairs.items():
        quantize = graph.nodes[quantize_id]
        origin = origin_of(graph, quantize.input(0))
        if origin is not None and origin.stored.dtype.is_float and dequantizes:
            for node in dequantizes:
                yield from _at_run_time(flow, quantize, node, origin)
        elif (made_codes := quantize.output()) is not None:
            yield _activation(flow, made_codes, quantize, quantize, dequantizes)


def _codes_of(graph: GraphView, value: ValueId | None) -> _Codes | None:
    """Walks back from a DequantizeLinear's input through layout operators and Clips."""
    if value is None:
        return None
    steps: tuple[ViewStep, ...] = ()
    nodes: tuple[NodeId, ...] = ()
    low: int | None = None
    high: int | None = None
    exact = True
    for _ in range(8):
        trace = trace_operand(graph, value)
        steps, nodes, exact, value = trace.steps + steps, trace.nodes + nodes, exact and trace.exact, trace.source
        made = graph.producer_of(value)
        before = None if made is None else made.input(0)
        if made is None or made.op_type != "Clip" or made.domain != "" or before is None:
            break
        nodes = (made.id, *nodes)
        low, high = _bound(graph, made, 1, low), _bound(graph, made, 2, high)
        value = before
    shapes: list[Shape] = []
    shape = static_shape(graph, value)
    if shape is not None and exact:
        shapes.append(shape)
        for step in steps:
            shapes.append(shape_after(step, shapes[-1]))
    return _Codes(value, steps, tuple(shapes), nodes, low, high)


def _bound(graph: GraphView, clip: NodeView, slot: int, known: int | None) -> int | None:
    found = constant(graph, clip.input(slot))
    if found is None or found.size != 1:
        return known
    bound = int(found.reshape(-1)[0])
    if known is None:
        return bound
    return max(bound, known) if slot == 1 else min(bound, known)


def _spec(graph: GraphView, node: NodeView, code_type: ElementType, shape: Shape | None, codes: _Codes | None) -> Spec:
    axis = node.attributes.get("axis")
    op = qdq_op(node)
    assert op is not None
    before_axes = node.domain == "" and 0 < graph.opsets.get("", 0) < 13
    return Spec(
        where=place(node),
        code_type=code_type,
        shape=shape,
        scale=node.input(1),
        zero_point=node.input(2),
        axis=axis if isinstance(axis, int) else None,
        default_axis=None if before_axes else op.default_axis,
        block_size=node.int_attribute("block_size", op.default_block),
        qmin=None if codes is None else codes.low,
        qmax=None if codes is None else codes.high,
        scale_is_exponent=op.scale_is_exponent,
    )


def _stored(flow: Flow, node: NodeView, codes: _Codes, stored: TensorRef) -> Iterator[QuantSite]:
    """Sites of one DequantizeLinear over a tensor of the file."""
    graph = flow.graph
    stored = _real_type(node, stored)
    if stored.dtype.kind not in ("int", "uint", "float"):
        return
    name, nodes, made = graph.values[codes.source].key, (*codes.nodes, node.id), node.output()
    if not codes.shapes:
        reading = Reading(None, f"The shape of {name!r} on its way to {place(node)} is unknown.")
        yield from weight_sites(flow, NAME, codes.source, stored, reading, made, (), nodes)
        return
    reading = read_affine(graph, _spec(graph, node, stored.dtype, codes.shapes[-1], codes))
    tensor, steps = _clipped(stored, codes, reading.params), codes.steps
    if reading.params is not None and steps:
        before = pull_back(reading.params, steps, codes.shapes)
        if before is not None:
            reading = Reading(before, reading.problem)
        elif all(s.kind == "reshape" for s in steps):
            # NOTE: scales that exist only after a reshape: the same bytes, seen in that shape
            tensor, steps = dataclasses.replace(tensor, shape=codes.shapes[-1]), ()
        else:
            reading = Reading(None, f"The scales of {place(node)} do not follow one axis of {name!r} as stored.")
    yield from weight_sites(flow, NAME, codes.source, tensor, reading, made, steps, nodes)


def _clipped(stored: TensorRef, codes: _Codes, params: QuantParams | None) -> TensorRef:
    """The codes behind a Clip."""
    if params is None or (codes.low is None and codes.high is None) or not stored.dtype.is_integer:
        return stored
    low, high = params.qmin, params.qmax
    return computed(stored.dtype, stored.shape, lambda: np.clip(stored.array().astype(np.int64), low, high))


def _real_type(node: NodeView, stored: TensorRef) -> TensorRef:
    """Vendor operators keep float8 codes in uint8 tensors: the same bytes under their real type."""
    op = qdq_op(node)
    if op is None or op.code_type is None or not stored.dtype.is_integer:
        return stored
    wanted = ELEMENT_TYPES[op.code_type]
    return dataclasses.replace(stored, dtype=wanted) if wanted.is_float and stored.dtype.bits == wanted.bits else stored


def _at_run_time(flow: Flow, quantize: NodeView, node: NodeView, origin: Origin) -> Iterator[QuantSite]:
    """Sites of a float tensor of the file that passes Q and DQ when the model runs.

    The codes are those that QuantizeLinear makes, in its own layout; the view leads from there to the reader.
    """
    graph = flow.graph
    codes = _codes_of(graph, node.input(0))
    assert codes is not None
    code_type = quantized_type(graph, quantize)
    nodes = (*origin.nodes, quantize.id, *codes.nodes, node.id)
    shapes = [origin.shape]
    for step in codes.steps:
        shapes.append(shape_after(step, shapes[-1]))
    first = read_affine(graph, _spec(graph, quantize, code_type, origin.shape, None))
    second = read_affine(graph, _spec(graph, node, code_type, shapes[-1], codes))
    params = None if second.params is None else pull_back(second.params, codes.steps, tuple(shapes))
    problem = first.problem or second.problem
    tensor = origin.stored
    if params is None or first.params is None:
        params = None
        problem = problem or f"The scales of {place(node)} do not follow one axis of what {place(quantize)} makes."
    else:
        tensor = _quantized(origin, first.params, params, _precision(graph, quantize), quantize)
    reading = Reading(params, problem)
    made = node.output()
    yield from weight_sites(flow, NAME, origin.value, tensor, reading, made, codes.steps, nodes, at_run_time=True)


def _precision(graph: GraphView, quantize: NodeView) -> ElementType:
    """The type in which x / scale is computed.

    QuantizeLinear-23 and newer: the attribute `precision`, else the type of the scale. Before that the standard said
    nothing, and runtimes divide in float32.
    """
    if quantize.domain != "" or graph.opsets.get("", 0) < 23:
        return ELEMENT_TYPES["float32"]
    stated = BY_NUMBER.get(quantize.int_attribute("precision", 0))
    scale = quantize.input(1)
    return stated or (graph.values[scale].dtype if scale is not None else None) or ELEMENT_TYPES["float32"]


def _quantized(
    origin: Origin, quantizer: QuantParams, params: QuantParams, precision: ElementType, node: NodeView
) -> TensorRef:
    """The codes of a quantize node over a stored tensor, computed when read."""
    saturate = node.int_attribute("saturate", 1) != 0
    narrow = (params.qmin, params.qmax) != (quantizer.qmin, quantizer.qmax)

    def make() -> Array:
        codes = quantize_linear(origin.operand(), quantizer, precision, saturate=saturate)
        return np.clip(codes, params.qmin, params.qmax) if narrow and params.code_type.is_integer else codes

    return computed(params.code_type, origin.shape, make)


def _picked(flow: Flow, node: NodeView) -> QuantSite | None:
    """An embedding table of codes: Gather (or the like) first, DequantizeLinear behind."""
    graph = flow.graph
    found = picked_from(graph, node.input(0))
    if found is None:
        return None
    reader, trace, passed = found
    stored = graph.const(trace.source)
    assert stored is not None
    if not stored.dtype.is_integer or stored.dtype.bits > 16:
        return None
    reading = read_affine(graph, _spec(graph, node, stored.dtype, None, None))
    if reading.params is not None and reading.params.axis is not None:
        why = f"{place(node)} dequantizes rows of {graph.values[trace.source].key!r} along an axis that is made later."
        reading = Reading(None, why)
    rows = reader.output()
    shared = rows is not None and any(not is_dequantize(use.node) for use in flow.uses(rows))
    return QuantSite(
        value=trace.source,
        scheme="qoperator" if shared else NAME,  # other operators compute with the picked codes
        role="weight",
        params=reading.params,
        codes=stored,
        reader=reader.id,
        slot=0,
        view=trace.steps,
        nodes=(*trace.nodes, *passed, node.id),
        problem=reading.problem,
    )


def _activation(
    flow: Flow, value: ValueId, quantize: NodeView | None, stated: NodeView, others: list[NodeView]
) -> QuantSite:
    """The site of a computed tensor, as its quantize node (or, for codes that are an input, dequantize node) states."""
    graph = flow.graph
    codes = _codes_of(graph, others[0].input(0)) if others else None
    code_type = quantized_type(graph, quantize) if quantize is not None else graph.values[value].dtype
    shape = graph.values[value].shape
    reading = Reading(None)
    if code_type is not None and code_type.kind in ("int", "uint", "float"):
        scale = constant(graph, stated.input(1))
        count = 1 if scale is None else scale.size  # stands in for symbolic sizes: a per-axis scale fits its axis
        sizes = None if shape is None else tuple(n if isinstance(n, int) else count for n in shape)
        reading = read_affine(graph, _spec(graph, stated, code_type, sizes, codes), stored=False)
        if sizes is None or sizes != shape:
            reading = Reading(reading.params)
    direct = [n for n in others if n.input(0) == value]
    nodes = [n.id for n in ([] if quantize is None else [quantize]) + others]
    return activation_site(
        flow,
        NAME if others else "qoperator",
        value,
        reading.params,
        nodes=nodes + list(codes.nodes if codes is not None else ()),
        dequantized=direct[0].output() if direct else None,
        behind=(direct or others)[0].output() if others else None,
        problem=reading.problem,
    )
