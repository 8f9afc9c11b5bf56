"""What alignment finds in small graphs that show one thing each."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from tests.align.build import Net, decoder, quantized
from visualquant.align import align
from visualquant.core.alignment import Alignment, MatchGroup
from visualquant.core.evidence import ActivationEvidence
from visualquant.core.graph import GraphView
from visualquant.core.pins import parse_pins, pins_of
from visualquant.errors import UsageError

RNG = np.random.default_rng(0)


def weight(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def node(graph: GraphView, op_type: str, number: int = 0) -> int:
    return [n.id for n in graph.nodes if n.op_type == op_type][number]


def group_with(alignment: Alignment, float_node: int) -> MatchGroup:
    return alignment.group_of_float[float_node]


def ops(graph: GraphView, ids: tuple[int, ...]) -> list[str]:
    return sorted(graph.nodes[k].op_type for k in ids)


def is_partition(alignment: Alignment, float_graph: GraphView, quant_graph: GraphView) -> bool:
    floats = sorted(k for g in alignment.groups for k in g.float_nodes)
    quants = sorted(k for g in alignment.groups for k in g.quant_nodes)
    return floats == list(range(len(float_graph.nodes))) and quants == list(range(len(quant_graph.nodes)))


def conv_bn_relu() -> Net:
    net = Net(["x"], ["y"])
    for k in range(2):
        net.const(f"w{k}", weight(8, 8, 3, 3))
        for n, low in (("g", 0.5), ("b", -0.3), ("m", -0.2), ("v", 0.5)):
            net.const(f"{n}{k}", (low + RNG.random(8)).astype(np.float32))
        c = net.add("Conv", "x" if k == 0 else "r0", f"w{k}", out=f"c{k}", kernel_shape=(3, 3), pads=(1, 1, 1, 1))
        b = net.add("BatchNormalization", c, f"g{k}", f"b{k}", f"m{k}", f"v{k}", out=f"n{k}", epsilon=1e-5)
        net.add("Relu", b, out="y" if k else "r0")
    return net


def folded(net: Net) -> Net:
    """BatchNormalization folded into Conv, Relu fused, as optimisers do."""
    out = Net(["x"], ["y"])
    for k in range(2):
        factor = net.constants[f"g{k}"] / np.sqrt(net.constants[f"v{k}"] + 1e-5)
        out.const(f"fw{k}", (net.constants[f"w{k}"] * factor[:, None, None, None]).astype(np.float32))
        out.const(f"fb{k}", (net.constants[f"b{k}"] - net.constants[f"m{k}"] * factor).astype(np.float32))
        args = ("x" if k == 0 else "f0", f"fw{k}", f"fb{k}")
        out.add("FusedConv", *args, out="y" if k else "f0", kernel_shape=(3, 3), pads=(1, 1, 1, 1), activation="Relu")
    return out


def test_folded_layers_are_one_group_each_and_the_factor_is_exact() -> None:
    net = conv_bn_relu()
    fused = folded(net)
    float_graph, quant_graph = net.view(), fused.view(random.Random(2), rename=True)
    alignment = align(float_graph, quant_graph)
    assert is_partition(alignment, float_graph, quant_graph)
    for k in range(2):
        group = group_with(alignment, node(float_graph, "Conv", k))
        assert ops(float_graph, group.float_nodes) == ["BatchNormalization", "Conv", "Relu"]
        assert ops(quant_graph, group.quant_nodes) == ["FusedConv"]
        assert any(e == "fusion:Conv+BatchNormalization+Relu" for e in group.evidence)
    weights = [w for w in alignment.weights if w.quant[1] == 1]
    assert [w.transform for w in weights] == ["bn_folded"] * 2
    for pair in weights:
        reader = quant_graph.nodes[pair.quant[0]]
        want = quant_graph.const(reader.inputs[1])
        have = float_graph.const(float_graph.nodes[pair.floats[0].node].inputs[pair.floats[0].slot])
        assert want is not None and have is not None and pair.factor is not None
        np.testing.assert_allclose(have.array() * pair.factor, want.array(), rtol=1e-5)
    biases = [w for w in alignment.weights if w.quant[1] == 2]
    assert len(biases) == 2 and all(w.factor is not None for w in biases)


@pytest.mark.parametrize("reverse", [False, True])
def test_gelu_norm_and_bias_are_recognised_in_both_directions(reverse: bool) -> None:
    spelled, fused = Net(["x"], ["y"]), Net(["x"], ["y"])
    for net in (spelled, fused):
        for n, shape in (("w1", (8, 16)), ("w2", (16, 8))):
            net.const(n, weight(*shape) if net is spelled else spelled.constants[n])
        for n, size in (("b1", 16), ("gain", 8), ("shift", 8)):
            net.const(n, weight(size) if net is spelled else spelled.constants[n])
    for n, value in (("two", 2.0), ("eps", 1e-5), ("half", 0.5), ("one", 1.0), ("root", 2**0.5)):
        spelled.const(n, np.float32(value))
    mean = spelled.add("ReduceMean", "x", out="m")
    centred = spelled.add("Sub", "x", mean, out="cx")
    variance = spelled.add("ReduceMean", spelled.add("Pow", centred, "two", out="sq"), out="var")
    deviation = spelled.add("Sqrt", spelled.add("Add", variance, "eps", out="ve"), out="sd")
    scaled = spelled.add("Mul", spelled.add("Div", centred, deviation, out="nx"), "gain", out="ng")
    h = spelled.add("MatMul", spelled.add("Add", scaled, "shift", out="ln"), "w1", out="h")
    a = spelled.add("Add", "b1", h, out="hb")
    erf = spelled.add("Erf", spelled.add("Div", a, "root", out="ar"), out="e")
    inner = spelled.add("Mul", a, spelled.add("Add", erf, "one", out="e1"), out="ae")
    spelled.add("MatMul", spelled.add("Mul", inner, "half", out="g"), "w2", out="y")
    t = fused.add("LayerNormalization", "x", "gain", "shift", out="ln_")
    g = fused.add("BiasGelu", fused.add("MatMul", t, "w1", out="h_"), "b1", out="g_")
    fused.add("MatMul", g, "w2", out="y")
    pair = (fused.view(), spelled.view(random.Random(1), rename=True))
    float_graph, quant_graph = pair if reverse else (spelled.view(), fused.view(random.Random(1), rename=True))
    alignment = align(float_graph, quant_graph)
    patterns = sorted(f.pattern for f in alignment.fusions)
    assert patterns == ["BiasGelu", "LayerNormalization"]
    sizes = sorted((len(g.float_nodes), len(g.quant_nodes)) for g in alignment.groups)
    want = [(1, 1), (1, 1), (6, 1), (9, 1)]
    assert sizes == (sorted((b, a) for a, b in want) if reverse else want)


def test_packed_projections_form_a_group_and_one_weight_pair() -> None:
    net, packed = Net(["x"], ["q", "k", "v"]), Net(["x"], ["q", "k", "v"])
    parts = [net.const(f"w{n}", weight(16, size)) for n, size in zip("qkv", (16, 8, 8), strict=True)]
    for n, w in zip("qkv", parts, strict=True):
        net.add("MatMul", "x", w, out=n)
    packed.const("w", np.concatenate([net.constants[w] for w in parts], axis=1))
    packed.const("sizes", np.array([16, 8, 8]))
    packed.add("MatMul", "x", "w", out="p")
    packed.add("Split", "p", "sizes", out=("q", "k", "v"), axis=-1)
    packed.shapes["p"] = (2, 32)
    float_graph, quant_graph = net.view(), packed.view()
    alignment = align(float_graph, quant_graph)
    assert len(alignment.groups) == 1
    assert len(alignment.groups[0].float_nodes) == 3
    assert [f.pattern for f in alignment.fusions] == ["packed: MatMul+MatMul+MatMul"]
    (pair,) = alignment.weights
    assert pair.transform == "concatenated" and pair.concat_axis == 1 and len(pair.floats) == 3
    assert [float_graph.values[float_graph.nodes[f.node].outputs[0] or 0].name for f in pair.floats] == ["q", "k", "v"]


def test_transposed_square_weight_is_seen_by_content() -> None:
    net, other = Net(["x"], ["y"]), Net(["x"], ["y"])
    net.const("w", weight(8, 8))
    net.add("Gemm", "x", "w", out="y", transB=1)
    other.const("w", net.constants["w"].T.copy())
    other.add("MatMul", "x", "w", out="y")
    (pair,) = align(net.view(), other.view()).weights
    assert pair.transform == "transposed" and pair.floats[0].steps[0].args == (1, 0)


def test_another_checkpoint_is_aligned_and_paired_by_place() -> None:
    net = decoder(3, seed=1)
    float_graph, quant_graph = net.view(), quantized(decoder(3, seed=2)).view()
    alignment = align(float_graph, quant_graph)
    assert alignment.related
    assert all(len(g.float_nodes) == 1 for g in alignment.groups)
    square = [p for p in alignment.weights if float_graph.nodes[p.floats[0].node].op_type == "MatMul"]
    assert len(square) == 3 * 7 and all(p.evidence == ("topology",) for p in square)


def test_unrelated_models_get_a_sentence_and_no_ties() -> None:
    float_graph, quant_graph = decoder(2).view(), conv_bn_relu().view()
    alignment = align(float_graph, quant_graph)
    assert not alignment.related and "unrelated" in alignment.reason
    assert is_partition(alignment, float_graph, quant_graph)
    assert all(g.kind in ("inserted", "removed") and g.reason for g in alignment.groups)


def test_the_same_model_is_one_to_one() -> None:
    for net in (decoder(4), quantized(decoder(4)), conv_bn_relu()):
        graph = net.view()
        alignment = align(graph, graph)
        assert all(g.float_nodes == g.quant_nodes and len(g.float_nodes) == 1 for g in alignment.groups)


def test_equal_layers_are_tied_in_order() -> None:
    net = Net(["x"], ["y"])
    net.const("one", np.ones(8, np.float32))
    v = "x"
    for k in range(24):
        v = net.add("Mul", net.add("Relu", v, out=f"r{k}"), "one", out="y" if k == 23 else f"m{k}")
    float_graph = net.view()
    quant_graph = net.view(random.Random(5), rename=True)
    alignment = align(float_graph, quant_graph)
    order = list(quant_graph.topological)
    for group in alignment.groups:
        assert len(group.float_nodes) == len(group.quant_nodes) == 1
        assert order.index(group.quant_nodes[0]) == group.float_nodes[0]


def test_values_are_compared_behind_the_quantizer_and_a_lost_relu_lives_in_its_range() -> None:
    net, quant = Net(["x"], ["y"]), Net(["x"], ["y"])
    for k in range(2):
        net.const(f"w{k}", weight(8, 8))
        quant.const(f"w{k}", net.constants[f"w{k}"])
    net.add("MatMul", net.add("Relu", net.add("MatMul", "x", "w0", out="a"), out="r"), "w1", out="y")
    quant.const("s", np.float32(0.1))
    quant.const("z", np.uint8(0))
    q = quant.add("QuantizeLinear", quant.add("MatMul", "x", "w0", out="a"), "s", "z", out="rq")
    quant.add("MatMul", quant.add("DequantizeLinear", q, "s", "z", out="rdq"), "w1", out="y")
    float_graph, quant_graph = net.view(), quant.view()
    alignment = align(float_graph, quant_graph)
    group = group_with(alignment, node(float_graph, "Relu"))
    assert ops(float_graph, group.float_nodes) == ["MatMul", "Relu"]
    assert ops(quant_graph, group.quant_nodes) == ["DequantizeLinear", "MatMul", "QuantizeLinear"]
    names = {float_graph.values[p.float_value].name: quant_graph.values[p.quant_value].name for p in alignment.values}
    assert names == {"r": "rdq", "y": "y"}


def test_an_extra_head_is_a_group_of_its_own_with_a_reason() -> None:
    net = decoder(2)
    more = net.copy()
    more.const("head", weight(16, 4))
    more.add("Tanh", more.add("MatMul", "l0.r1", "head", out="hm"), out="extra")
    more.outputs = ["y", "extra"]
    float_graph, quant_graph = more.view(), net.view()
    alignment = align(float_graph, quant_graph)
    lonely = [g for g in alignment.groups if g.kind == "removed"]
    assert len(lonely) == 1 and ops(float_graph, lonely[0].float_nodes) == ["MatMul", "Tanh"]
    assert "output" in lonely[0].reason


def test_pins_win_over_evidence() -> None:
    net = Net(["x"], ["y"])
    for k in range(2):
        net.const(f"w{k}", weight(8, 8))
    net.add("Add", net.add("MatMul", "x", "w0", out="a"), net.add("MatMul", "x", "w1", out="b"), out="y")
    graph = net.view()
    pins = parse_pins({"together": [{"float": ["a"], "quant": ["b"]}, {"float": "b", "quant": "a"}]}, graph, graph)
    alignment = align(graph, graph, pins=pins)
    assert group_with(alignment, 0).quant_nodes == (1,)
    assert group_with(alignment, 0).evidence == ("user",) and group_with(alignment, 0).confidence == 1.0
    apart = parse_pins({"apart": [{"float": "a", "quant": "a"}]}, graph, graph)
    assert 0 not in group_with(align(graph, graph, pins=apart), 0).quant_nodes
    again = parse_pins(pins_of(alignment), graph, graph)
    assert [dataclasses.astuple(g)[1:3] for g in align(graph, graph, pins=again).groups] == [
        dataclasses.astuple(g)[1:3] for g in alignment.groups
    ]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "pins file"),
        ({"together": [{"float": ["nowhere"]}]}, "nowhere"),
        ({"together": [{"float": ["a"]}, {"float": ["a"]}]}, "two groups"),
        ({"together": 3}, "list"),
        ({"together": [{"float": ["a"], "quant": ["a"]}], "apart": [{"float": "a", "quant": "a"}]}, "apart"),
    ],
)
def test_bad_pins_are_explained(data: object, words: str) -> None:
    net = Net(["x"], ["a"])
    net.add("Relu", "x", out="a")
    with pytest.raises(UsageError, match=words):
        parse_pins(data, net.view(), net.view())


def test_measured_activations_decide_what_structure_can_not() -> None:
    net = Net(["x"], ["y"])
    net.add("Concat", net.add("Relu", "x", out="a"), net.add("Relu", "x", out="b"), out="y", axis=1)
    swapped = Net(["x"], ["y"])
    swapped.add("Concat", swapped.add("Relu", "x", out="c"), swapped.add("Relu", "x", out="d"), out="y", axis=1)
    float_graph, quant_graph = net.view(), swapped.view()
    names = {v.name: v.id for v in float_graph.values}
    others = {v.name: v.id for v in quant_graph.values}
    evidence = ActivationEvidence(
        same=((names["a"], others["d"], 1.0), (names["b"], others["c"], 1.0)),
        different=frozenset({(names["a"], others["c"]), (names["b"], others["d"])}),
        samples=4,
    )
    alignment = align(float_graph, quant_graph, activations=evidence)
    made = {float_graph.values[names["a"]].producer: quant_graph.values[others["d"]].producer}
    for a, b in made.items():
        assert a is not None and group_with(alignment, a).quant_nodes == (b,)


def test_work_can_be_stopped() -> None:
    class Stop(Exception):
        pass

    def tick(done: float) -> None:
        assert 0 <= done <= 1
        raise Stop

    graph = decoder(2).view()
    with pytest.raises(Stop):
        align(graph, graph, tick=tick)
