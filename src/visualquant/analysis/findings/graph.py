"""Rules that look at the graphs and at scales, not at weights."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator

import numpy as np

from visualquant.analysis.findings.context import Context, Draft, label
from visualquant.core.graph import NodeView, ValueId
from visualquant.core.operators import DEQUANTIZE_OPS, QUANTIZE_OPS, WEIGHT_SLOTS, is_weight_slot
from visualquant.core.quant import QuantSite, code_limits
from visualquant.core.trace import LAYOUT_OPS

FUSES_INTO_COMPUTE = frozenset({"Relu", "Clip", "BatchNormalization", "LeakyRelu"})
COMPUTE = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
CAN_LOSE_ITS_ACTIVATION = (
    QUANTIZE_OPS
    | DEQUANTIZE_OPS
    | LAYOUT_OPS
    | COMPUTE
    | {"QLinearConv", "QGemm", "QLinearMatMul", "Add", "QLinearAdd", "BatchNormalization"}
)


def not_quantized(context: Context) -> Iterator[Draft]:
    """NOT_QUANTIZED: no site at all, or activations only."""
    model = context.quant_model
    if any(s.role == "weight" for s in model.sites):
        return  # also half precision, and weights that were dequantized in the file: other findings speak of them
    if model.unclaimed and not model.sites:
        return  # what is stored looks quantized: WEIGHT_UNCLAIMED speaks of it
    if context.float_model.sha256 is not None and context.float_model.sha256 == model.sha256:
        what = "Both files are the same: nothing to compare."
    elif model.sites:
        what = f"{model.name} quantizes activations, but not one weight."
    else:
        what = f"Nothing in {model.name} is quantized."
        swapped = any(s.role == "weight" for s in context.float_model.sites)
        if swapped:
            what += f" {context.float_model.name} is: are the two files swapped?"
    yield Draft("NOT_QUANTIZED", "warning", what, effect=100, where={"model": model.name})


def duplicate_names(context: Context) -> Iterator[Draft]:
    """DUPLICATE_NAMES in the main graph of the quantized model."""
    names = collections.Counter(n.name for n in context.graph.main_nodes if n.name)
    repeated = {name: count for name, count in names.items() if count > 1}
    if repeated:
        first = next(iter(repeated))
        first_node = next(n.id for n in context.graph.main_nodes if n.name == first)
        yield Draft(
            "DUPLICATE_NAMES",
            "warning",
            f"{sum(repeated.values())} nodes share {len(repeated)} names, the first {first!r}.",
            node=first_node,
            numbers={"names": len(repeated), "nodes": sum(repeated.values())},
        )


def unknown_operators(context: Context) -> Iterator[Draft]:
    """UNKNOWN_OPERATOR, one finding for each operator."""
    kinds: dict[tuple[str, str], list[NodeView]] = {}
    for node_id in context.quant_model.unknown_operators:
        node = context.graph.nodes[node_id]
        kinds.setdefault((node.domain, node.op_type), []).append(node)
    for (domain, op_type), nodes in kinds.items():
        yield Draft(
            "UNKNOWN_OPERATOR",
            "warning",
            f"{len(nodes)} nodes of {domain or 'ai.onnx'}:{op_type} are kept as they are, the first {label(nodes[0])}.",
            node=nodes[0].id,
            where={"operator": op_type, "domain": domain},
            numbers={"nodes": len(nodes)},
        )


def unclaimed(context: Context) -> Iterator[Draft]:
    """WEIGHT_UNCLAIMED, and what two readers claimed."""
    for value in context.quant_model.unclaimed:
        view = context.graph.values[value]
        readers = context.readers(value)
        yield Draft(
            "WEIGHT_UNCLAIMED",
            "warning",
            f"{view.key!r} ({view.dtype}, shape {list(view.const.shape) if view.const else '?'}) looks like a "
            "quantized weight, and no scheme reader understands it"
            + (f"; {label(readers[0])} reads it." if readers else "."),
            node=readers[0].id if readers else None,
            value=view.key,
        )


def not_encoded(context: Context) -> Iterator[Draft]:
    """NOT_ENCODED: operands that the encodings file says nothing of."""
    for value in context.quant_model.not_encoded:
        readers = context.readers(value)
        yield Draft(
            "NOT_ENCODED",
            "warning",
            f"The encodings say nothing of {context.graph.values[value].key!r}"
            + (f", which {label(readers[0])} reads beside quantized operands." if readers else "."),
            effect=10,
            node=readers[0].id if readers else None,
            value=context.graph.values[value].key,
        )


def scale_shape(context: Context) -> Iterator[Draft]:
    """SCALE_SHAPE where parameters do not fit, SCALE_VALUE where a scale is no usable number."""
    for site in context.quant_model.sites:
        name = context.quant_model.key(site.value)
        if site.problem is not None:
            yield Draft("SCALE_SHAPE", "error", site.problem, effect=50, node=site.reader, value=name)
        elif site.params is not None:
            bad = _bad_scales(site)
            if bad:
                kinds = ", ".join(f"{count} {kind}" for kind, count in bad.items())
                # NOTE: some quantizers (NNCF) use negative scales on purpose; codes times them are right all the same
                broken = "zero" in bad or "not finite" in bad
                yield Draft(
                    "SCALE_VALUE",
                    "error" if broken else "info",
                    f"Of {site.params.scale.size} scale values of {name!r} there are {kinds}"
                    + (": what they scale is lost." if broken else ": not every runtime takes them."),
                    effect=60 if broken else 0,
                    node=site.reader,
                    value=name,
                    numbers={k.replace(" ", "_").replace("-", "_"): v for k, v in bad.items()},
                )


def _bad_scales(site: QuantSite) -> dict[str, int]:
    assert site.params is not None
    scale = site.params.scale
    counts = {
        "zero": int(np.count_nonzero(scale == 0)),
        "negative": int(np.count_nonzero(scale < 0)),
        "not finite": int(np.count_nonzero(~np.isfinite(scale))),
        "denormal": int(np.count_nonzero((np.abs(scale) < np.finfo(np.float32).tiny) & (scale != 0))),
    }
    return {kind: count for kind, count in counts.items() if count}


def opset_too_old(context: Context) -> Iterator[Draft]:
    """OPSET_TOO_OLD: attributes and types of Q/DQ of the ONNX domain that its opset lacks."""
    opset = context.graph.opsets.get("", 0)
    if not opset:
        return
    seen: dict[str, tuple[int, NodeView]] = {}
    for node in context.graph.nodes:
        if node.domain != "" or node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        for what, since in _needs(context, node):
            if opset < since and what not in seen:
                seen[what] = (since, node)
    for what, (since, node) in seen.items():
        yield Draft(
            "OPSET_TOO_OLD",
            "warning",
            f"{label(node)} uses {what}, which exists since opset {since}; the file declares opset {opset}.",
            node=node.id,
            where={"uses": what},
            numbers={"opset": opset, "needs": since},
        )


def _needs(context: Context, node: NodeView) -> Iterator[tuple[str, int]]:
    scale = node.input(1)
    view = None if scale is None else context.graph.values[scale]
    shape = None if view is None else view.const.shape if view.const is not None else view.shape
    if "axis" in node.attributes or (shape is not None and len(shape) == 1 and shape[0] != 1):
        yield "per-channel scales (axis)", 13
    if node.int_attribute("block_size", 0):
        yield "blocked scales (block_size)", 21
    if "output_dtype" in node.attributes:
        yield "output_dtype", 21 if node.op_type == "QuantizeLinear" else 23
    code = node.input(2) if node.input(2) is not None else node.input(0) if node.op_type == "DequantizeLinear" else None
    dtype = None if code is None else context.graph.values[code].dtype
    if dtype is not None:
        since = {2: 25, 4: 21, 6: 26}.get(dtype.bits) or (21 if dtype.bits == 16 and dtype.is_integer else None)
        if dtype.is_float and dtype.bits == 8:
            since = 19
        if dtype.name == "float4e2m1":
            since = 23
        if since:
            yield f"{dtype} codes", since


def blocks_fusion(context: Context) -> Iterator[Draft]:
    """QDQ_BLOCKS_FUSION: Q/DQ between a compute node and the BatchNormalization or activation behind it."""
    graph = context.graph
    for node in graph.nodes:
        if node.op_type not in COMPUTE or node.outputs[0] is None:
            continue
        quantizer = _only_reader(context, node, QUANTIZE_OPS)
        dequantizer = None if quantizer is None else _only_reader(context, quantizer, DEQUANTIZE_OPS)
        behind = None if dequantizer is None else _only_reader(context, dequantizer, FUSES_INTO_COMPUTE)
        if quantizer is not None and behind is not None:
            pattern = f"{node.op_type}+{behind.op_type}"
            effect = 40.0 if behind.op_type == "BatchNormalization" else 20.0
            yield Draft(
                "QDQ_BLOCKS_FUSION",
                "warning",
                f"{label(quantizer)} stands between {label(node)} and {label(behind)}: the runtime can't fuse "
                f"{pattern}, and the value between them is rounded to 8 bits before "
                + ("the normalisation enlarges it." if effect > 30 else "the activation cuts it."),
                effect=effect,
                node=node.id,
                value=graph.values[node.outputs[0]].key,
                groups=context.groups_of(node.id) + context.groups_of(behind.id),
                where={"node": node.name, "then": behind.name, "quantizer": quantizer.name},
            )


def _only_reader(context: Context, node: NodeView, ops: frozenset[str]) -> NodeView | None:
    """The one node that reads the first output, where there is one only and it is of these operators."""
    readers = [] if node.outputs[0] is None else context.readers(node.outputs[0])
    return readers[0] if len(readers) == 1 and readers[0].op_type in ops else None


def redundant(context: Context) -> Iterator[Draft]:
    """QDQ_REDUNDANT: a Quantize right behind a Dequantize."""
    graph = context.graph
    found: list[tuple[NodeView, NodeView]] = []
    for node in graph.nodes:
        if node.op_type in QUANTIZE_OPS and node.op_type != "DynamicQuantizeLinear":
            before = graph.producer_of(node.input(0))
            if before is not None and before.op_type in DEQUANTIZE_OPS and graph.const(before.input(0)) is None:
                found.append((before, node))
    if found:
        before, node = found[0]
        yield Draft(
            "QDQ_REDUNDANT",
            "info",
            f"{len(found)} times a Quantize stands right behind a Dequantize, "
            f"first {label(node)} behind {label(before)}.",
            node=node.id,
            numbers={"pairs": len(found)},
        )


def float_islands(context: Context) -> Iterator[Draft]:
    """FLOAT_ISLAND: layers with weights left in float while most are quantized statically."""
    model, graph = context.quant_model, context.graph
    quantized = {s.reader for s in model.sites if s.role == "weight" and s.params is not None and s.params.is_quantized}
    if not quantized or not {"qdq", "qoperator"} & set(model.schemes) or not model.activation_sites:
        return
    left: list[NodeView] = []
    for node in graph.nodes:
        if node.op_type not in WEIGHT_SLOTS or node.id in quantized or node.op_type.startswith(("Gather", "Q")):
            continue
        has_weight = any(
            (const := graph.const(v)) is not None and len(const.shape) >= 2 and const.dtype.is_float
            for slot, v in enumerate(node.inputs)
            if is_weight_slot(node, slot)
        )
        if has_weight:
            left.append(node)
    if left and len(left) <= 2 * len(quantized):
        names = ", ".join(repr(n.name or n.op_type) for n in left[:3]) + (", …" if len(left) > 3 else "")
        yield Draft(
            "FLOAT_ISLAND",
            "info",
            f"{len(left)} of {len(left) + len(quantized)} layers with weights run in float between quantized ones: "
            f"{names}.",
            node=left[0].id,
            groups=tuple(g for n in left for g in context.groups_of(n.id)),
            numbers={"layers": len(left), "quantized": len(quantized)},
        )


def pad_zero_point(context: Context) -> Iterator[Draft]:
    """ACT_PAD_ZERO_POINT: Pad on codes with another constant than the zero point."""
    graph = context.graph
    for node in graph.nodes:
        if node.op_type != "Pad" or node.input(0) is None or node.attributes.get("mode", "constant") != "constant":
            continue
        site = context.activation_at.get(_behind_layout(context, node.inputs[0]))
        dtype = graph.values[node.inputs[0]].dtype if node.inputs[0] is not None else None
        on_codes = dtype is not None and dtype.is_integer
        if site is None or site.params is None or not on_codes or not site.params.code_type.is_integer:
            continue
        filled = 0
        constant = graph.const(node.input(2))
        if constant is not None and constant.size == 1:
            filled = int(constant.array().reshape(-1)[0])
        zero = 0 if site.params.zero_point is None else int(np.asarray(site.params.zero_point).reshape(-1)[0])
        if filled != zero:
            step = float(site.params.scale.reshape(-1)[0])
            yield Draft(
                "ACT_PAD_ZERO_POINT",
                "error",
                f"{label(node)} fills the border with code {filled}, but 0 is code {zero}: the border holds "
                f"{(filled - zero) * step:.4g} instead of 0.",
                effect=45,
                node=node.id,
                value=graph.values[node.outputs[0]].key if node.outputs[0] is not None else None,
                numbers={"code": filled, "zero_point": zero, "value": (filled - zero) * step},
                settings=f"Pad constant_value = {zero}",
            )


def _behind_layout(context: Context, value: ValueId | None) -> ValueId:
    while value is not None:
        node = context.graph.producer_of(value)
        if node is None or node.op_type not in LAYOUT_OPS or value in context.activation_at:
            return value
        value = node.input(0)
    return -1


def activation_lost(context: Context) -> Iterator[Draft]:
    """ACT_LOST: a Relu or Clip that only the range of the following Quantize could make, and does not."""
    float_graph, graph = context.float_model.graph, context.graph
    for group in context.alignment.groups:
        inside = set(group.float_nodes)
        cuts = [
            node
            for n in group.float_nodes
            if (node := float_graph.nodes[n]).op_type in ("Relu", "Clip")
            and (made := float_graph.producer_of(node.input(0))) is not None
            and made.id in inside  # a cut that stands first belongs to what the group reads
        ]
        if not cuts or not group.quant_nodes or group.confidence < 0.5:
            continue
        members = [graph.nodes[n] for n in group.quant_nodes]
        if any(n.op_type in ("Relu", "Clip") or "activation" in n.attributes for n in members):
            continue
        if any(
            n.op_type
            not in QUANTIZE_OPS
            | DEQUANTIZE_OPS
            | LAYOUT_OPS
            | COMPUTE
            | {"QLinearConv", "QGemm", "QLinearMatMul", "Add", "QLinearAdd", "BatchNormalization"}
            for n in members
        ):
            continue
        site = _last_site(context, members)
        if site is None or site.params is None:
            continue
        for cut in cuts[-1:]:
            yield from _cut_missing(context, cut, site, group.id)


def _last_site(context: Context, members: list[NodeView]) -> QuantSite | None:
    found = None
    for node in members:
        for out in node.outputs:
            if out is not None and (site := context.activation_at.get(out)) is not None:
                found = site
    return found


def _cut_missing(context: Context, cut: NodeView, site: QuantSite, group: str) -> Iterator[Draft]:
    assert site.params is not None
    limits = code_limits(site.params)
    if limits is None or site.params.scale.size != 1:
        return
    step = float(site.params.scale.reshape(-1)[0])
    zero = 0 if site.params.zero_point is None else float(np.asarray(site.params.zero_point).reshape(-1)[0])
    low, high = ((limit - zero) * step for limit in limits)
    wanted_low, wanted_high = _cut_of(context, cut)
    lets_low = wanted_low is not None and low < wanted_low - step / 2
    lets_high = wanted_high is not None and high > wanted_high + step / 2
    if not (lets_low or lets_high):
        return
    end, bound = (low, wanted_low) if lets_low else (high, wanted_high)
    assert bound is not None
    yield Draft(
        "ACT_LOST",
        "error" if lets_low else "warning",
        f"{label(cut)} of the float model is gone, and the range that follows, [{low:.4g}, {high:.4g}], lets values "
        f"through to {end:.4g} where it cut at {bound:.4g}.",
        effect=55,
        value=context.quant_model.key(site.value),
        groups=(group,),
        where={"float_node": cut.name, "value": context.quant_model.key(site.value)},
        numbers={"range_low": low, "range_high": high, "cut": bound},
    )


def _cut_of(context: Context, cut: NodeView) -> tuple[float | None, float | None]:
    if cut.op_type == "Relu":
        return 0.0, None
    bounds: list[float | None] = []
    for slot, name in ((1, "min"), (2, "max")):
        stated = cut.attributes.get(name)
        const = context.float_model.graph.const(cut.input(slot))
        if const is not None and const.size == 1:
            bound: float | None = float(const.array().reshape(-1)[0])
        else:
            bound = float(stated) if isinstance(stated, int | float) else None
        bounds.append(bound if bound is not None and math.isfinite(bound) and abs(bound) < 3e38 else None)
    return bounds[0], bounds[1]


RULES = (
    not_quantized,
    scale_shape,
    not_encoded,
    pad_zero_point,
    activation_lost,
    blocks_fusion,
    opset_too_old,
    unclaimed,
    unknown_operators,
    duplicate_names,
    redundant,
    float_islands,
)
