"""Rules that hold aligned nodes against each other: attributes, preprocessing, layout; and joins of ranges."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np

from visualquant.analysis.findings.context import Context, Draft, label, value_range
from visualquant.core.graph import Attribute, GraphView, NodeView
from visualquant.core.operators import DEQUANTIZE_OPS, QUANTIZE_OPS
from visualquant.core.quant import QuantSite
from visualquant.core.trace import LAYOUT_OPS, trace_operand

# Attributes that never change a result here, or that differ for good reason between equal graphs.
_HARMLESS = frozenset(
    {"to", "saturate", "training_mode", "momentum", "kernel_shape", "spatial", "consumed_inputs", "cubic_coeff_a"}
    | {"perm", "axes", "axis", "allowzero", "split", "num_outputs", "noop_with_empty_axes", "keepdims", "block_size"}
)
_MATTERS_ANYWHERE = ("epsilon",)
_AFFINE = frozenset({"Add", "Sub", "Mul", "Div", "BatchNormalization"})
# Operators whose outputs lie in a known range whatever the input is.
_KNOWN_RANGE = {"Sigmoid": (0.0, 1.0), "Softmax": (0.0, 1.0), "HardSigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0)}
_JOINS = frozenset({"Concat", "QLinearConcat"})


def attributes_differ(context: Context) -> Iterator[Draft]:
    """ATTRIBUTES_DIFFER between the members of a group that are the same operator; epsilon in any form."""
    float_graph, graph = context.float_model.graph, context.graph
    for group in context.alignment.groups:
        floats = [float_graph.nodes[n] for n in group.float_nodes]
        quants = [graph.nodes[n] for n in group.quant_nodes]
        for name in _MATTERS_ANYWHERE:
            left = [(n, v) for n in floats if (v := _stated(float_graph, n, name)) is not None]
            right = [(n, v) for n in quants if (v := _stated(graph, n, name)) is not None]
            if len(left) == 1 and len(right) == 1 and not _same(left[0][1], right[0][1]):
                yield _differs(context, group.id, name, left[0], right[0])
        for op in {n.op_type for n in floats} - QUANTIZE_OPS - DEQUANTIZE_OPS - LAYOUT_OPS:
            ours = [n for n in floats if n.op_type == op]
            theirs = [n for n in quants if n.op_type == op and n.domain == ours[0].domain]
            if len(ours) != 1 or len(theirs) != 1:
                continue
            names = (set(ours[0].attributes) | set(theirs[0].attributes)) - _HARMLESS - set(_MATTERS_ANYWHERE)
            for name in sorted(names):
                a, b = _stated(float_graph, ours[0], name), _stated(graph, theirs[0], name)
                if a is not None and b is not None and not _same(a, b):
                    yield _differs(context, group.id, name, (ours[0], a), (theirs[0], b))


def _differs(
    context: Context, group: str, name: str, ours: tuple[NodeView, Attribute], theirs: tuple[NodeView, Attribute]
) -> Draft:
    output = theirs[0].outputs[0] if theirs[0].outputs else None
    return Draft(
        "ATTRIBUTES_DIFFER",
        "warning",
        f"{name} is {_shown(ours[1])} at {label(ours[0])} of the float model and {_shown(theirs[1])} at "
        f"{label(theirs[0])}.",
        effect=35,
        node=theirs[0].id,
        value=None if output is None else context.graph.values[output].key,
        groups=(group,),
        where={"attribute": name, "node": theirs[0].name, "float_node": ours[0].name},
    )


def _shown(value: Attribute) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _stated(graph: GraphView, node: NodeView, name: str) -> Attribute | None:
    if name in node.attributes:
        return node.attributes[name]
    return _defaults(node.op_type, node.domain, graph.opsets.get(node.domain, 1)).get(name)


@cache
def _defaults(op_type: str, domain: str, opset: int) -> Mapping[str, Attribute]:
    """Default attributes of an operator by onnx's schema; empty for operators that onnx does not define."""
    import onnx

    try:
        schema = onnx.defs.get_schema(op_type, max(opset, 1), domain)
    except onnx.defs.SchemaError:
        return {}
    found: dict[str, Attribute] = {}
    for name, attribute in schema.attributes.items():
        value = attribute.default_value
        if value.type == onnx.AttributeProto.FLOAT:
            found[name] = float(value.f)
        elif value.type == onnx.AttributeProto.INT:
            found[name] = int(value.i)
        elif value.type == onnx.AttributeProto.STRING:
            found[name] = value.s.decode()
    return found


def _same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-5)
    if isinstance(a, tuple) and isinstance(b, tuple) and a and b and isinstance(a[0], float):
        return len(a) == len(b) and all(
            math.isclose(float(x), float(y), rel_tol=1e-5) for x, y in zip(a, b, strict=True)
        )
    if isinstance(a, int | float | str | bytes | tuple):
        return a == b
    return True  # tensors: the weights' rows speak of them


def preprocessing_one_side(context: Context) -> Iterator[Draft]:
    """PREPROCESSING_ONE_SIDE: affine operators with constants right behind an input, in one model only."""
    ours, theirs = context.float_model.graph, context.graph
    for left, right in zip(ours.inputs, theirs.inputs, strict=False):
        chains = _affine_chain(ours, left), _affine_chain(theirs, right)
        if bool(chains[0]) == bool(chains[1]):
            continue
        side = 0 if chains[0] else 1
        chain, graph, value = chains[side], (ours, theirs)[side], (left, right)[side]
        model = (context.float_model, context.quant_model)[side]
        groups = (context.alignment.group_of_float, context.alignment.group_of_quant)[side]
        group = groups.get(chain[0].id)
        folded = {p.quant[0] for p in context.alignment.weights if p.factor is not None}
        folded |= {w.reader.id for w in context.weights if w.reader is not None and w.row.transform == "rescaled"}
        if group is not None and folded & set(group.quant_nodes):
            continue  # folded into the first layer's weights
        key = graph.values[value].key
        yield Draft(
            "PREPROCESSING_ONE_SIDE",
            "warning",
            f"{model.name} begins with {'+'.join(n.op_type for n in chain)} on its input {key!r} ({label(chain[0])}); "
            "the other model does not.",
            effect=70,
            node=chain[0].id if side else None,
            value=key,
            groups=() if group is None else (group.id,),
            where={"node": chain[0].name, "input": key, "model": model.name},
        )


def _affine_chain(graph: GraphView, value: int) -> list[NodeView]:
    chain: list[NodeView] = []
    for _ in range(16):
        readers = [n for n, _ in graph.readers_of(value)]
        node = readers[0] if len(readers) == 1 else None
        behind = node.outputs[0] if node is not None and node.outputs else None
        if node is None or behind is None:
            break
        others = [v for v in node.inputs if v is not None and v != value]
        constant = all(graph.const(trace_operand(graph, v).source) is not None for v in others)
        if node.op_type in _AFFINE and constant:
            chain.append(node)
        elif node.op_type not in LAYOUT_OPS | QUANTIZE_OPS | DEQUANTIZE_OPS:
            break
        value = behind
    return chain


def layout_differs(context: Context) -> Iterator[Draft]:
    """LAYOUT_DIFFERS: the inputs of the two models have the same sizes in another order."""
    ours = [context.float_model.graph.values[v] for v in context.float_model.graph.inputs]
    theirs = [context.graph.values[v] for v in context.graph.inputs]
    for a, b in zip(ours, theirs, strict=False):
        if a.shape is None or b.shape is None or len(a.shape) != len(b.shape) or a.shape == b.shape:
            continue
        sizes = [sorted(n for n in s if isinstance(n, int)) for s in (a.shape, b.shape)]
        if len(a.shape) >= 3 and sizes[0] == sizes[1] and len(sizes[0]) == len(a.shape):
            yield Draft(
                "LAYOUT_DIFFERS",
                "warning",
                f"Input {a.key!r} of the float model has shape {list(a.shape)}, its counterpart {b.key!r} "
                f"{list(b.shape)}: the same sizes in another order.",
                effect=30,
                value=b.key,
                float_value=a.key,
            )


def joins(context: Context) -> Iterator[Draft]:
    """JOIN_MIXED_RANGES where one step serves very different inputs, JOIN_REQUANTIZED where scales differ."""
    graph = context.graph
    for node in graph.nodes:
        if node.op_type not in _JOINS or not node.outputs or node.outputs[0] is None:
            continue
        out = _site_of_output(context, node)
        if out is None or out.params is None or out.params.scale.size != 1:
            continue
        step = float(out.params.scale.reshape(-1)[0])
        parts = _parts(context, node)
        ranges = [(value, span, site) for value, span, site in parts if span is not None and span > 0]
        if len(ranges) >= 2 and step > 0:
            small = min(ranges, key=lambda r: r[1])
            large = max(ranges, key=lambda r: r[1])
            if large[1] >= 16 * small[1] and step >= small[1] / 32:
                yield Draft(
                    "JOIN_MIXED_RANGES",
                    "warning",
                    f"{label(node)} joins {small[0]!r}, which spans {small[1]:.4g}, and {large[0]!r}, which spans "
                    f"{large[1]:.4g}, under one step of {step:.4g}: the smaller keeps {small[1] / step:.1f} steps.",
                    effect=65 if step >= small[1] / 2 else 30,
                    node=node.id,
                    value=small[0],
                    where={"value": small[0], "large": large[0], "node": node.name},
                    numbers={"small": small[1], "large": large[1], "step": step, "ratio": large[1] / small[1]},
                )
        steps = {
            float(s.params.scale.reshape(-1)[0]) for _, _, s in parts if s and s.params and s.params.scale.size == 1
        }
        if steps and any(not math.isclose(s, step, rel_tol=1e-4) for s in steps):
            yield Draft(
                "JOIN_REQUANTIZED",
                "info",
                f"The inputs of {label(node)} have other steps ({', '.join(f'{s:.4g}' for s in sorted(steps))}) "
                f"than its output ({step:.4g}): each is rounded once more.",
                node=node.id,
                numbers={"output_step": step},
            )


def _site_of_output(context: Context, node: NodeView) -> QuantSite | None:
    value = node.outputs[0]
    assert value is not None
    if (site := context.activation_at.get(value)) is not None:
        return site
    for reader in context.readers(value):
        if reader.op_type in QUANTIZE_OPS and reader.outputs[0] is not None:
            return context.activation_at.get(reader.outputs[0])
    return None


def _parts(context: Context, node: NodeView) -> list[tuple[str, float | None, QuantSite | None]]:
    """(name, span of values, site) of the inputs of a join; the span is the smaller of range and known range."""
    graph = context.graph
    found = []
    for operand in node.inputs:
        if operand is None or graph.const(operand) is not None:
            continue
        value = operand
        site = context.activation_at.get(value)
        made = graph.producer_of(value)
        for _ in range(8):  # what really makes it, behind Q, DQ and layout
            if made is None or made.op_type not in QUANTIZE_OPS | DEQUANTIZE_OPS | LAYOUT_OPS or made.input(0) is None:
                break
            behind = made.inputs[0]
            if behind is None:
                break
            value, made = behind, graph.producer_of(behind)
        known = None if made is None else _KNOWN_RANGE.get(made.op_type.removeprefix("QLinear"))
        spans = [
            high - low for r in (known, value_range(None if site is None else site.params)) if r for low, high in [r]
        ]
        if node.op_type == "QLinearConcat" and site is None:
            continue
        found.append((graph.values[value].key if value is not None else "", min(spans) if spans else None, site))
    return found


def int8_compute(context: Context) -> Iterator[Draft]:
    """RUNTIME_INT8_COMPUTE: MatMulNBits with accuracy_level 4."""
    nodes = [n for n in context.graph.nodes if n.op_type == "MatMulNBits" and n.int_attribute("accuracy_level", 0) == 4]
    if nodes:
        yield Draft(
            "RUNTIME_INT8_COMPUTE",
            "info",
            f"{len(nodes)} MatMulNBits nodes ask for accuracy_level 4: the runtime rounds their activations to 8 bits, "
            "an error that no weight comparison shows.",
            node=nodes[0].id,
            numbers={"nodes": len(nodes)},
            settings="accuracy_level = 0",
        )


def may_saturate(context: Context) -> Iterator[Draft]:
    """RUNTIME_SATURATES as far as files tell: uint8 activations, int8 weights that use all 8 bits."""
    graph = context.graph
    risky: list[tuple[float, QuantSite]] = []
    for site in context.quant_model.sites:
        if site.role != "weight" or site.params is None or site.params.code_type.name != "int8" or site.codes is None:
            continue
        reader = None if site.reader is None else graph.nodes[site.reader]
        if reader is None or reader.op_type.startswith(("Gather", "ConvTranspose")):
            continue
        data = context.activation_at.get(reader.inputs[0]) if reader.inputs and reader.inputs[0] is not None else None
        if data is None or data.params is None or data.params.code_type.name != "uint8" or site.codes.size < 2:
            continue
        share = _saturating_share(site)
        if share > 0:
            risky.append((share, site))
    if risky:
        share, site = max(risky, key=lambda pair: pair[0])
        yield Draft(
            "RUNTIME_SATURATES",
            "info",
            f"{len(risky)} layers multiply uint8 activations with int8 weights of full range: on x86 without VNNI a "
            f"pair of products can leave 16 bits, in {context.quant_model.key(site.value)!r} with {share:.1%} of the "
            "adjacent weights.",
            node=site.reader,
            value=context.quant_model.key(site.value),
            numbers={"layers": len(risky), "share": share},
            settings="reduce_range=True",
        )


def _saturating_share(site: QuantSite) -> float:
    """Share of adjacent weight pairs along the reduction whose products with code 255 leave int16 (sampled)."""
    assert site.codes is not None
    rows = next(site.codes.chunks(1 << 20))[1].astype(np.int64)
    pairs = rows[: rows.size // 2 * 2].reshape(-1, 2)
    worst = np.maximum(np.clip(pairs, 0, None).sum(axis=1), -np.clip(pairs, None, 0).sum(axis=1))
    return float(np.mean(worst * 255 > 32767)) if worst.size else 0.0


RULES = (preprocessing_one_side, joins, attributes_differ, layout_differs, int8_compute, may_saturate)
