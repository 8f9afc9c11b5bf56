"""QDQ: QuantizeLinear and DequantizeLinear of ONNX and of the vendors' domains, with Clip between them (QCDQ)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from visualquant.core.graph import GraphView, NodeId, NodeView, ValueId
from visualquant.core.quant import QuantParams, QuantSite, SiteRole, ViewStep
from visualquant.core.tensors import ElementType, TensorRef
from visualquant.core.trace import Trace, static_shape, trace_operand
from visualquant.formats.schemes._affine import Reading, Shape, Spec, pull_back, read_affine
from visualquant.formats.schemes._constants import constant
from visualquant.formats.schemes._flow import Flow, Use, is_bias, picked_from, place
from visualquant.formats.schemes._qdq_ops import is_dequantize, is_quantize, qdq_op, quantized_type
from visualquant.formats.schemes._quantize import computed, quantize_linear

NAME = "qdq"


@dataclasses.dataclass(frozen=True, slots=True)
class _Codes:
    """Where a DequantizeLinear's codes come from, seen through layout operators and Clip.

    Attributes:
        source: the stored tensor, or the output of the quantize node, or whatever else makes them.
        steps, shapes: from the source to the input of the DequantizeLinear; a shape before each step and at the end.
        nodes: plumbing passed.
        low, high: range of a Clip on the way.
        exact: False where a shape on the way is unknown.
    """

    source: ValueId
    steps: tuple[ViewStep, ...]
    shapes: tuple[Shape, ...]
    nodes: tuple[NodeId, ...]
    low: int | None
    high: int | None
    exact: bool


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
        if graph.const(codes.source) is not None:
            yield from _stored(graph, flow, node, codes)
        elif made is not None and is_quantize(made):
            pairs[made.id].append(node)
        elif (site := _picked(graph, node)) is not None:
            yield site
        elif graph.values[codes.source].role == "input":
            yield _activation(graph, flow, codes.source, None, node, [node])
    for quantize_id, dequantizes in pairs.items():
        quantize = graph.nodes[quantize_id]
        origin = _float_source(graph, quantize)
        if origin is not None and dequantizes:
            for node in dequantizes:
                yield from _at_run_time(graph, flow, quantize, node, origin)
        elif quantize.outputs[0] is not None:
            yield _activation(graph, flow, quantize.outputs[0], quantize, quantize, dequantizes)


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
        if made is None or made.op_type != "Clip" or made.domain != "" or made.input(0) is None:
            break
        nodes = (made.id, *nodes)
        low, high = _bound(graph, made, 1, low), _bound(graph, made, 2, high)
        value = made.inputs[0]
        assert value is not None
    shapes: list[Shape] = []
    shape = static_shape(graph, value)
    if shape is not None and exact:
        shapes.append(shape)
        for step in steps:
            shapes.append(_shape_after(step, shapes[-1]))
    return _Codes(value, steps, tuple(shapes), nodes, low, high, exact)


def _bound(graph: GraphView, clip: NodeView, slot: int, known: int | None) -> int | None:
    found = constant(graph, clip.input(slot))
    if found is None or found.size != 1:
        return known
    bound = int(found.reshape(-1)[0])
    if known is None:
        return bound
    return max(bound, known) if slot == 1 else min(bound, known)


def _shape_after(step: ViewStep, shape: Shape) -> Shape:
    if step.kind == "transpose":
        return tuple(shape[k] for k in step.args)
    return step.args


def _spec(graph: GraphView, node: NodeView, code_type: ElementType, shape: Shape | None, codes: _Codes | None) -> Spec:
    axis = node.attributes.get("axis")
    opset = graph.opsets.get(node.domain, 0)
    return Spec(
        where=place(node),
        code_type=code_type,
        shape=shape,
        scale=node.input(1),
        zero_point=node.input(2),
        axis=axis if isinstance(axis, int) else None,
        default_axis=None if node.domain == "" and 0 < opset < 13 else 1,
        block_size=node.int_attribute("block_size", 0),
        qmin=None if codes is None else codes.low,
        qmax=None if codes is None else codes.high,
    )


def _stored(graph: GraphView, flow: Flow, node: NodeView, codes: _Codes) -> Iterator[QuantSite]:
    """Sites of one DequantizeLinear over a tensor of the file."""
    stored = graph.const(codes.source)
    assert stored is not None
    op = qdq_op(node)
    code_type = stored.dtype
    if op is not None and op.code_type is not None:
        stored, code_type = _reinterpreted(stored, op.code_type)
    if stored.dtype.kind not in ("int", "uint", "float"):
        return
    if not codes.exact:
        problem = f"The shape of {graph.values[codes.source].key!r} on its way to {node.name!r} is unknown."
        yield from _sites(graph, flow, node, codes.source, stored, Reading(None, problem), (), codes.nodes)
        return
    reading = read_affine(graph, _spec(graph, node, code_type, codes.shapes[-1], codes))
    tensor, steps = _clipped(stored, codes, reading), codes.steps
    if reading.params is not None and steps:
        before = pull_back(reading.params, steps, codes.shapes)
        if before is not None:
            reading = Reading(before, reading.problem)
        elif all(s.kind == "reshape" for s in steps):
            # NOTE: scales that exist only after a reshape: the same bytes, seen in that shape
            tensor, steps = dataclasses.replace(tensor, shape=codes.shapes[-1]), ()
        else:
            why = f"The scales of {node.name!r} do not follow one axis of {graph.values[codes.source].key!r} as stored."
            reading = Reading(None, why)
    yield from _sites(graph, flow, node, codes.source, tensor, reading, steps, codes.nodes)


def _clipped(stored: TensorRef, codes: _Codes, reading: Reading) -> TensorRef:
    """The codes behind a Clip."""
    if (codes.low is None and codes.high is None) or reading.params is None or not stored.dtype.is_integer:
        return stored
    low, high = reading.params.qmin, reading.params.qmax
    return computed(stored.dtype, stored.shape, lambda: np.clip(stored.array().astype(np.int64), low, high))


def _reinterpreted(stored: TensorRef, code_type: str) -> tuple[TensorRef, ElementType]:
    """Vendor operators keep float8 codes in uint8 tensors: the same bytes under their real type."""
    from visualquant.core.tensors import ELEMENT_TYPES

    wanted = ELEMENT_TYPES[code_type]
    if stored.dtype.bits == wanted.bits and stored.dtype.is_integer and wanted.is_float:
        return dataclasses.replace(stored, dtype=wanted), wanted
    return stored, stored.dtype


def _sites(
    graph: GraphView,
    flow: Flow,
    node: NodeView,
    value: ValueId,
    tensor: TensorRef,
    reading: Reading,
    steps: tuple[ViewStep, ...],
    nodes: tuple[NodeId, ...],
    *,
    at_run_time: bool = False,
) -> Iterator[QuantSite]:
    """One site for each compute node behind a DequantizeLinear; one without a reader where there is none."""
    made = node.outputs[0]
    uses: list[tuple[Use, tuple[NodeId, ...]]] = [] if made is None else _uses(flow, made)
    code_type = tensor.dtype if reading.params is None else reading.params.code_type
    for use, extra in uses:
        problem = reading.problem
        if not use.exact:
            problem = f"A shape between {graph.values[value].key!r} and its reader {use.node.name!r} is unknown."
        yield QuantSite(
            value=value,
            scheme=NAME,
            role=_role(use, code_type),
            params=reading.params if use.exact else None,
            codes=tensor,
            reader=use.node.id,
            slot=use.slot,
            view=steps + use.steps,
            nodes=tuple(dict.fromkeys((*nodes, node.id, *extra, *use.passed))),
            dequantized=made,
            quantized_at_run_time=at_run_time,
            problem=problem,
        )
    if not uses:
        yield QuantSite(
            value=value,
            scheme=NAME,
            role="weight",
            params=reading.params,
            codes=tensor,
            reader=None,
            slot=0,
            view=steps,
            nodes=(*nodes, node.id),
            dequantized=made,
            quantized_at_run_time=at_run_time,
            problem=reading.problem,
        )


def _uses(flow: Flow, value: ValueId) -> list[tuple[Use, tuple[NodeId, ...]]]:
    """Readers of a dequantized tensor; a further Q/DQ pair behind it is looked through."""
    found: list[tuple[Use, tuple[NodeId, ...]]] = []
    for use in flow.uses(value):
        if not (is_quantize(use.node) and use.slot == 0 and use.node.outputs[0] is not None):
            found.append((use, ()))
            continue
        inner = [u for u in flow.uses(use.node.outputs[0]) if is_dequantize(u.node) and u.node.outputs[0] is not None]
        for dequantize in inner:
            passed = (*use.passed, use.node.id, *dequantize.passed, dequantize.node.id)
            for last in flow.uses(dequantize.node.outputs[0] or 0):
                exact = use.exact and dequantize.exact and last.exact
                steps = use.steps + dequantize.steps + last.steps
                found.append((Use(last.node, last.slot, steps, last.passed, exact), passed))
        if not inner:
            found.append((use, ()))
    return found


def _role(use: Use, code_type: ElementType) -> SiteRole:
    if is_bias(use.node, use.slot):
        return "bias"
    return "bias" if code_type.name == "int32" and use.node.op_type in ("Add", "Sum") else "weight"


def _float_source(graph: GraphView, quantize: NodeView) -> Trace | None:
    """The stored float tensor behind a QuantizeLinear, None where its input is computed."""
    value = quantize.input(0)
    if value is None:
        return None
    trace = trace_operand(graph, value)
    stored = graph.const(trace.source)
    return trace if stored is not None and stored.dtype.is_float else None


def _at_run_time(
    graph: GraphView, flow: Flow, quantize: NodeView, node: NodeView, origin: Trace
) -> Iterator[QuantSite]:
    """Sites of a float tensor of the file that passes Q and DQ when the model runs."""
    stored = graph.const(origin.source)
    codes = _codes_of(graph, node.input(0))
    assert stored is not None and codes is not None
    shape: Shape | None = stored.shape
    for step in origin.steps:
        shape = _shape_after(step, shape or ())
    code_type = quantized_type(graph, quantize)
    nodes = (*origin.nodes, quantize.id, *codes.nodes)
    first = read_affine(graph, _spec(graph, quantize, code_type, shape, None))
    second = read_affine(graph, _spec(graph, node, code_type, codes.shapes[-1] if codes.shapes else shape, codes))
    problem = first.problem or second.problem
    params = second.params
    if params is not None and codes.steps:
        params = pull_back(params, codes.steps, codes.shapes) if codes.exact and codes.shapes else None
    shapes = [stored.shape]
    for step in origin.steps:
        shapes.append(_shape_after(step, shapes[-1]))
    if params is not None and origin.steps:
        params = pull_back(params, origin.steps, tuple(shapes))
    quantizer = first.params
    if quantizer is not None and origin.steps:
        quantizer = pull_back(quantizer, origin.steps, tuple(shapes))
    if params is None or quantizer is None or not origin.exact:
        problem = problem or f"The way of {graph.values[origin.source].key!r} through {quantize.name!r} is not known."
        tensor, params = stored, None
    else:
        scale = quantize.input(1)
        scale_type = graph.values[scale].dtype if scale is not None else None
        tensor = _quantized(stored, quantizer, params, scale_type or stored.dtype, quantize)
    steps = origin.steps + codes.steps
    yield from _sites(
        graph, flow, node, origin.source, tensor, Reading(params, problem), steps, nodes, at_run_time=True
    )


def _quantized(
    stored: TensorRef, quantizer: QuantParams, params: QuantParams, scale_type: ElementType, node: NodeView
) -> TensorRef:
    saturate = node.int_attribute("saturate", 1) != 0

    def make() -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
        codes = quantize_linear(stored.array(), quantizer, scale_type, saturate=saturate)
        narrow = (params.qmin, params.qmax) != (quantizer.qmin, quantizer.qmax)
        return np.clip(codes, params.qmin, params.qmax) if narrow and params.code_type.is_integer else codes

    return computed(params.code_type, stored.shape, make)


def _picked(graph: GraphView, node: NodeView) -> QuantSite | None:
    """An embedding table of codes: Gather (or the like) first, DequantizeLinear behind."""
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
        why = f"{node.name!r} dequantizes rows of {graph.values[trace.source].key!r} along an axis that Gather makes."
        reading = Reading(None, why)
    return QuantSite(
        value=trace.source,
        scheme="qoperator",  # the picking node computes with codes
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
    graph: GraphView, flow: Flow, value: ValueId, quantize: NodeView | None, stated: NodeView, others: list[NodeView]
) -> QuantSite:
    """The site of a computed tensor: the quantize node (or, for codes that are an input, the dequantize node)."""
    codes = _codes_of(graph, others[0].input(0)) if others else None
    known = graph.values[value].dtype
    code_type = quantized_type(graph, quantize) if quantize is not None else known
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
    made = (direct or others or [stated])[0].outputs[0] if others else None
    uses = flow.uses(made) if made is not None else flow.uses(value)
    nodes = dict.fromkeys(([] if quantize is None else [quantize.id]) + [n.id for n in others])
    if codes is not None:
        nodes.update(dict.fromkeys(codes.nodes))
    return QuantSite(
        value=value,
        scheme=NAME if others else "qoperator",
        role="activation",
        params=reading.params,
        codes=None,
        reader=uses[0].node.id if uses else None,
        slot=uses[0].slot if uses else 0,
        nodes=tuple(nodes),
        dequantized=direct[0].outputs[0] if direct else None,
        problem=reading.problem,
    )
