"""What the readers find together: float reduction, stored float, unclaimed tensors, unknown operators, sub-graphs."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from tests.conftest import corpus_folder
from visualquant.core.graph import GraphView
from visualquant.core.quant import QuantSite
from visualquant.formats.container import open_model
from visualquant.formats.scheme import SCHEMES, SchemeReader, Sites, find_sites
from visualquant.testing.conformance import dequantized
from visualquant.testing.models import graph_of, model, node, tensor, value

RNG = np.random.default_rng(0)


def _names(graph: GraphView, sites: Sites) -> list[tuple[str, str, str]]:
    return [
        (graph.values[s.value].name, s.scheme, "" if s.reader is None else graph.nodes[s.reader].name)
        for s in sites.sites
        if s.role != "activation"
    ]


def test_readers_are_what_they_say() -> None:
    import importlib

    for name in SCHEMES:
        assert isinstance(importlib.import_module(name), SchemeReader), name


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_constants(dtype: str) -> None:
    """One site a constant and reader, behind a Cast or not; settings of operators are none."""
    w = RNG.normal(0, 1, (4, 3)).astype(np.float32)
    nodes = [
        node("Cast", ["w"], ["f"], "cast", to=1),
        node("MatMul", ["x", "f"], ["h"], "mm"),
        node("Cast", ["h"], ["i"], "to_half", to=10 if dtype == "float16" else 16),
        node("Add", ["i", "b"], ["j"], "add"),
        node("Resize", ["j", "", "sizes"], ["y"], "resize"),
    ]
    tensors = [tensor("w", w, dtype), tensor("b", np.ones(3), dtype), tensor("sizes", np.ones(2, np.float32))]
    graph = graph_of(model(nodes, tensors, [value("x", shape=[1, 4])], [value("y", dtype)]))
    sites = find_sites(graph)
    assert _names(graph, sites) == [("w", dtype, "mm"), ("b", dtype, "add")]
    assert sites.schemes == (dtype,)
    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    np.testing.assert_array_equal(dequantized(sites.sites[0]), w.astype(kind).astype(np.float64))


@pytest.mark.parametrize(("double", "found"), [(True, 1), (False, 0)])
def test_double_counts_only_where_it_rules(double: bool, found: int) -> None:
    w = RNG.normal(0, 1, (4, 3))
    other = "float64" if double else "float32"
    nodes = [node("MatMul", ["x", "w"], ["h"], "mm"), node("Mul", ["h", "k"], ["y"], "mul")]
    tensors = [tensor("w", w, other), tensor("k", np.array(2.0), other if double else "float64")]
    graph = graph_of(model(nodes, tensors, [value("x", other, [1, 4])], [value("y", other)]))
    sites = [s for s in find_sites(graph).sites if s.codes is not None and s.codes.size > 1]
    assert len(sites) == found


def _between_quantized(w: np.ndarray) -> GraphView:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], ["d"], "dq"),
        node("Conv", ["d", "w"], ["y"], "conv"),
    ]
    tensors = [tensor("w", w), tensor("s", np.float32(0.1)), tensor("z", np.uint8(3))]
    return graph_of(model(nodes, tensors, [value("x", shape=[1, w.shape[1], 8, 8])], [value("y")]))


@pytest.mark.parametrize("asymmetric", [False, True])
def test_stored_float_lies_on_a_grid(asymmetric: bool) -> None:
    """Values that are code times scale in each channel, as a folded DequantizeLinear leaves them."""
    q = RNG.integers(-128, 128, (6, 4, 3, 3))
    if asymmetric:
        q = q + 100
    scale = np.exp(RNG.uniform(-6, 0, (6, 1, 1, 1))).astype(np.float32)
    graph = _between_quantized((q.astype(np.float32) * scale).astype(np.float32))
    sites = find_sites(graph)
    (site,) = [s for s in sites.sites if s.role == "weight"]
    assert (site.scheme, site.slot) == ("stored_float", 1)
    assert sites.schemes == ("qdq",)


def test_float_weights_are_no_grid() -> None:
    for w in (
        RNG.normal(0, 1, (6, 4, 3, 3)),
        np.zeros((6, 4, 3, 3)),
        np.full((6, 1, 1, 1), 0.3),
        RNG.normal(0, 1, (6, 2, 1, 1)),
    ):
        assert [s for s in find_sites(_between_quantized(w.astype(np.float32))).sites if s.role == "weight"] == []


def test_integer_weight_that_nobody_knows() -> None:
    """Codes read by an unknown operator are unclaimed; the operator is named; indices and masks are neither."""
    nodes = [
        node("FancyMatMul", ["x", "w", "scale"], ["h"], "fancy", "acme"),
        node("Gather", ["h", "indices"], ["g"], "gather"),
        node("Where", ["mask", "g", "g"], ["y"], "where"),
    ]
    tensors = [
        tensor("w", np.ones((8, 8), np.int8)),
        tensor("scale", np.ones(8, np.float32)),
        tensor("indices", np.zeros(32, np.int64)),
        tensor("mask", np.ones(32, np.bool_)),
    ]
    graph = graph_of(model(nodes, tensors, [value("x", shape=[1, 8])], [value("y")]))
    sites = find_sites(graph)
    assert [graph.values[v].name for v in sites.unclaimed] == ["w"]
    assert [graph.nodes[n].name for n in sites.unknown_operators] == ["fancy"]


def test_small_integer_tensors_are_no_weights() -> None:
    tensors = [tensor("k", np.ones(4, np.uint8)), tensor("axes", np.array([0], np.int64))]
    nodes = [node("Cast", ["k"], ["f"], "cast", to=1), node("Add", ["x", "f"], ["y"], "add")]
    assert find_sites(graph_of(model(nodes, tensors, [value("x", shape=[4])], [value("y")]))).unclaimed == ()


def test_branches_that_capture_one_weight() -> None:
    """A dequantized weight of the outer graph gives a site for its reader in each branch."""

    def branch(name: str, kind: str) -> onnx.GraphProto:
        inner = [
            node("MatMul", ["x", "d"], [f"{name}_h"], f"{name}_mm"),
            node(kind, [f"{name}_h"], [f"{name}_y"], name),
        ]
        return helper.make_graph(inner, name, [], [value(f"{name}_y")])

    nodes = [
        node("DequantizeLinear", ["w", "s"], ["d"], "dq"),
        node("If", ["c"], ["y"], "if", then_branch=branch("a", "Relu"), else_branch=branch("b", "Tanh")),
    ]
    tensors = [tensor("w", np.ones((3, 2), np.int8)), tensor("s", np.float32(0.5))]
    graph = graph_of(model(nodes, tensors, [value("c", "bool", []), value("x", shape=[1, 3])], [value("y")]))
    assert sorted(_names(graph, find_sites(graph))) == [("w", "qdq", "a_mm"), ("w", "qdq", "b_mm")]


def test_functions_of_the_file() -> None:
    """Q and DQ inside functions, called twice, with the weight's layout changed outside."""
    body = [helper.make_node("DequantizeLinear", ["c", "k"], ["o"], axis=1)]
    function = helper.make_function("acme", "dequantize", ["c", "k"], ["o"], body, [helper.make_opsetid("", 21)])
    nodes = [
        node("dequantize", ["w1", "s"], ["d1"], "one", "acme"),
        node("dequantize", ["w2", "s"], ["d2"], "two", "acme"),
        node("Transpose", ["d2"], ["t"], "turn"),
        node("MatMul", ["x", "d1"], ["h"], "first"),
        node("MatMul", ["h", "t"], ["y"], "second"),
    ]
    w1, w2 = RNG.integers(-9, 9, (2, 3, 4)).astype(np.int8)
    scale = np.array([0.5, 1, 2, 4], np.float32)
    tensors = [tensor("w1", w1), tensor("w2", w2), tensor("s", scale)]
    proto = model(nodes, tensors, [value("x", shape=[1, 3])], [value("y")])
    proto.functions.append(function)
    graph = graph_of(proto)
    sites = find_sites(graph)
    assert _names(graph, sites) == [("w1", "qdq", "first"), ("w2", "qdq", "second")]
    np.testing.assert_array_equal(dequantized(sites.sites[1]), (w2 * scale.astype(np.float64)).T)
    assert sites.unknown_operators == () and sites.unclaimed == ()


def test_mixed_schemes_in_one_file() -> None:
    """QDQ, MatMulNBits, dynamic and float16 side by side; the scheme of most elements comes first."""
    nodes = [
        node("DequantizeLinear", ["a", "s"], ["ad"], "dq"),
        node("MatMul", ["x", "ad"], ["h1"], "qdq"),
        node("MatMulNBits", ["h1", "b", "bs"], ["h2"], "nbits", "com.microsoft", K=16, N=16, bits=4, block_size=16),
        node("DynamicQuantizeMatMul", ["h2", "c", "s"], ["h3"], "dynamic", "com.microsoft"),
        node("Cast", ["h3"], ["h4"], "half", to=10),
        node("MatMul", ["h4", "d"], ["y"], "fp16"),
    ]
    tensors = [
        tensor("a", np.ones((16, 16), np.int8)),
        tensor("b", np.ones((16, 1, 8), np.uint8)),
        tensor("bs", np.ones((16, 1), np.float32)),
        tensor("c", np.ones((16, 64), np.int8)),
        tensor("s", np.float32(1)),
        tensor("d", np.ones((64, 2), np.float16)),
    ]
    graph = graph_of(model(nodes, tensors, [value("x", shape=[1, 16])], [value("y", "float16")]))
    sites = find_sites(graph)
    assert _names(graph, sites) == [
        ("a", "qdq", "qdq"),
        ("b", "matmul_nbits", "nbits"),
        ("c", "dynamic", "dynamic"),
        ("d", "float16", "fp16"),
    ]
    assert sites.schemes == ("dynamic", "matmul_nbits", "qdq", "float16")


def _corpus_files() -> list[str]:
    folder = corpus_folder()
    if folder is None:
        return []
    return [r["file"] for r in json.loads((folder / "index.json").read_text())]


@pytest.mark.parametrize("file", _corpus_files())
def test_every_file_of_the_corpus(corpus: Path, file: str) -> None:
    """Opens; nothing is unclaimed, unknown or claimed twice; what has a number has a sound one."""
    graph = open_model(corpus / file)
    sites = find_sites(graph)
    assert [graph.values[v].key for v in sites.unclaimed] == []
    assert [graph.nodes[n].op_type for n in sites.unknown_operators] == [] and sites.conflicts == ()
    name = file.split("/")[1]
    float_file = name.startswith(("fp32", "ov_fp32")) or file == "digits_resnet/ort_nbits4_b32_sym.onnx"
    assert bool(sites.schemes) is not float_file
    for site in sites.sites:
        if site.role == "activation":
            continue
        assert site.params is not None and site.codes is not None, site.problem
        site.params.validate(site.codes.shape)
        operand = dequantized(site)
        assert np.isfinite(operand).all()
        if site.reader is not None and site.slot < len(graph.nodes[site.reader].inputs):
            value_id = graph.nodes[site.reader].inputs[site.slot]
            shape = None if value_id is None or site.dequantized is None else graph.values[value_id].shape
            assert shape is None or tuple(n for n in shape if isinstance(n, int)) == operand.shape


# Files of one network in which a toolchain wrote the same codes in two ways.
_TWINS = [
    ("digits_resnet/brevitas_graph_qcdq.onnx", "digits_resnet/brevitas_graph_qonnx.onnx"),
    ("digits_resnet/brevitas_graph_qonnx.onnx", "digits_resnet/brevitas_graph_qonnx_clean.onnx"),
    ("digits_resnet/brevitas_layerwise_qcdq.onnx", "digits_resnet/brevitas_layerwise_qonnx.onnx"),
    ("digits_resnet/modelopt_int8_fp32.onnx", "digits_resnet/modelopt_int8_dqonly.onnx"),
    ("digits_resnet/inc_static_qdq.onnx", "digits_resnet/inc_static_qop.onnx"),
    ("digits_resnet/ort_qdq_u8u8_pt.onnx", "digits_resnet/ort_qop_u8u8_pt.onnx"),
    ("digits_resnet/ort_qdq_u8u8_pt.onnx", "digits_resnet/ort_qdq_u8u8_pt__ortopt_all.onnx"),
    ("digits_resnet/ort_qdq_s8s8_pc.onnx", "digits_resnet/ort_qdq_s8s8_pc__ortopt_all.onnx"),
    ("digits_resnet/ort_dyn_u8w.onnx", "digits_resnet/ort_dyn_u8w__ortopt_all.onnx"),
    ("mnist_mbnet/ort_qop_u8s8_pc.onnx", "mnist_mbnet/ort_qdq_s8s8_pc.onnx"),
    ("digits_resnet/nncf_w8_asym.onnx", "digits_resnet/ov_nncf_w8.xml"),
    ("digits_resnet/nncf_w4_sym_g32.onnx", "digits_resnet/ov_nncf_w4.xml"),
]


@pytest.mark.parametrize(("one", "other"), _TWINS)
def test_twins_hold_the_same_weights(corpus: Path, one: str, other: str) -> None:
    """The toolchain's own second form is the oracle: equal weights, found as a multiset of sorted values."""

    def weights(file: str) -> list[np.ndarray]:
        found: dict[int, QuantSite] = {}
        for site in find_sites(open_model(corpus / file)).sites:
            if site.role == "weight" and site.codes is not None and site.codes.size > 64:
                found.setdefault(site.value, site)
        return sorted((np.sort(dequantized(s).reshape(-1)) for s in found.values()), key=lambda w: (w.size, *w[:4]))

    first, second = weights(one), weights(other)
    assert len(first) == len(second) > 5
    half_scales = other.endswith(".xml")  # OpenVINO keeps them in float16
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3 if half_scales else 2e-7, atol=1e-9)
