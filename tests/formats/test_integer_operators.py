"""QOperator and dynamic: operators that compute with codes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from hypothesis import strategies as st

from tests.formats.oracles import by_onnxruntime
from visualquant.formats.scheme import find_sites
from visualquant.testing.conformance import Sample, SchemeConformance, dequantized
from visualquant.testing.models import graph_of, model, node, tensor, value
from visualquant.testing.strategies import codes, generators, scales


def _one(name: str, scale: float = 0.05, zero: int = 0, dtype: str = "uint8") -> list[onnx.TensorProto]:
    """Scale and zero point of one tensor, named after it."""
    return [tensor(f"{name}_s", np.array(scale, np.float32)), tensor(f"{name}_z", np.array(zero), dtype)]


@st.composite
def _conv(draw: st.DrawFn) -> Sample:
    """QLinearConv of either domain, a scale a tensor or an output channel, with weight or bias looked at."""
    rng = draw(generators())
    out, inner = draw(st.integers(2, 5)), draw(st.integers(1, 3))
    dtype = draw(st.sampled_from(["int8", "uint8"]))
    per_channel, of_bias = draw(st.booleans()), draw(st.booleans())
    w = codes(rng, dtype, (out, inner, 2, 2))
    scale = scales(rng, (out,) if per_channel else ())
    zero = codes(rng, dtype, scale.shape)
    bias = rng.integers(-9999, 9999, out).astype(np.int32)
    tensors = [*_one("x"), *_one("y"), tensor("w", w), tensor("ws", scale), tensor("wz", zero), tensor("b", bias)]
    inputs = ["x", "x_s", "x_z", "w", "ws", "wz", "y_s", "y_z", "b"]
    domain = draw(st.sampled_from(["", "com.microsoft"]))
    nodes = [node("QLinearConv", inputs, ["y"], "conv", domain)]
    proto = model(nodes, tensors, [value("x", "uint8", [1, inner, 4, 4])], [value("y", "uint8")])
    granularity = "per_channel" if per_channel else "per_tensor"
    axis = 0 if per_channel else None
    if of_bias:
        operand = bias.astype(np.float64) * (np.float64(np.float32(0.05)) * scale.astype(np.float64))
        return Sample(proto, "b", "conv", 8, operand, "int32", granularity, axis, role="bias")
    spread = (-1, 1, 1, 1) if per_channel else ()
    shifted = w.astype(np.float64) - zero.astype(np.float64).reshape(spread)
    operand = shifted * scale.astype(np.float64).reshape(spread)
    return Sample(proto, "w", "conv", 3, operand, dtype, granularity, axis)


class TestQLinearConv(SchemeConformance):
    scheme = "qoperator"
    examples = 60

    def samples(self) -> st.SearchStrategy[Sample]:
        return _conv()

    def malformed(self) -> Iterator[tuple[str, onnx.ModelProto]]:
        w = tensor("w", np.ones((4, 3, 1, 1), np.int8))

        def conv(scale: onnx.TensorProto | None, zero: np.ndarray) -> onnx.ModelProto:
            tensors = [*_one("x"), *_one("y"), w, tensor("wz", zero), *([] if scale is None else [scale])]
            inputs = ["x", "x_s", "x_z", "w", "ws", "wz", "y_s", "y_z"]
            nodes = [node("QLinearConv", inputs, ["y"], "conv")]
            return model(nodes, tensors, [value("x", "uint8", [1, 3, 4, 4])], [value("y", "uint8")])

        yield "no scale", conv(None, np.array(0, np.int8))
        yield "scale of another length", conv(tensor("ws", np.ones(3, np.float32)), np.array(0, np.int8))
        yield "zero points of another length", conv(tensor("ws", np.ones(4, np.float32)), np.zeros(3, np.int8))


@st.composite
def _matmul(draw: st.DrawFn) -> Sample:
    """QLinearMatMul and QGemm: columns with scales of their own; the oracle returns the codes of the result."""
    rng = draw(generators())
    k, n = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    gemm = draw(st.booleans())
    turned = gemm and draw(st.booleans())
    per_column = draw(st.booleans())
    w = codes(rng, "int8", (n, k) if turned else (k, n))
    scale = scales(rng, (n,) if per_column else ())
    zero = codes(rng, "int8", scale.shape)
    tensors = [*_one("x", 1.0), *_one("y", 0.1, 0, "int8"), tensor("w", w), tensor("ws", scale), tensor("wz", zero)]
    domain = "com.microsoft" if gemm else ""
    inputs = ["x", "x_s", "x_z", "w", "ws", "wz", *([""] if gemm else []), "y_s", "y_z"]
    attributes = {"transB": 1} if turned else {}
    nodes = [node("QGemm" if gemm else "QLinearMatMul", inputs, ["y"], "mm", domain, **attributes)]
    axis = 0 if turned else 1
    spread = tuple(-1 if a == axis else 1 for a in (0, 1)) if per_column else ()
    shifted = w.astype(np.float64) - zero.astype(np.float64).reshape(spread)
    return Sample(
        model(nodes, tensors, [value("x", "uint8", [k, k])], [value("y", "int8")]),
        "w",
        "mm",
        3,
        shifted * scale.astype(np.float64).reshape(spread),
        "int8",
        "per_channel" if per_column else "per_tensor",
        axis if per_column else None,
    )


class TestQLinearMatMul(SchemeConformance):
    scheme = "qoperator"

    def samples(self) -> st.SearchStrategy[Sample]:
        return _matmul()


@st.composite
def _elementwise(draw: st.DrawFn) -> Sample:
    """A stored operand of the com.microsoft operators that take (codes, scale, zero point) triples."""
    rng = draw(generators())
    op_type = draw(st.sampled_from(["QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearWhere"]))
    w = codes(rng, "uint8", (2, 3))
    zero = int(rng.integers(0, 255))
    tensors = [*_one("x"), *_one("w", 0.25, zero), *_one("y"), tensor("w", w), tensor("c", np.ones((2, 3), np.bool_))]
    x, ww, y = (["x", "x_s", "x_z"], ["w", "w_s", "w_z"], ["y_s", "y_z"])
    order = {
        "QLinearAdd": (x + ww + y, 3),
        "QLinearMul": (ww + x + y, 0),
        "QLinearConcat": (y + x + ww, 5),
        "QLinearWhere": (["c", *x, *ww, *y], 4),
    }
    inputs, slot = order[op_type]
    attributes = {"axis": 0} if op_type == "QLinearConcat" else {}
    nodes = [node(op_type, inputs, ["y"], "op", "com.microsoft", **attributes)]
    proto = model(nodes, tensors, [value("x", "uint8", [2, 3])], [value("y", "uint8")])
    return Sample(proto, "w", "op", slot, (w.astype(np.float64) - zero) * 0.25, "uint8", "per_tensor")


class TestElementwise(SchemeConformance):
    scheme = "qoperator"

    def samples(self) -> st.SearchStrategy[Sample]:
        return _elementwise()


@st.composite
def _integer_matmul(draw: st.DrawFn) -> Sample:
    """MatMulInteger with its Mul chain in each order; the weight on either side, with zero points a row or column."""
    rng = draw(generators())
    k, n = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    left = draw(st.booleans())
    per_axis = draw(st.booleans())
    dtype = draw(st.sampled_from(["int8", "uint8"]))
    w = codes(rng, "uint8" if left else dtype, (n, k) if left else (k, n))
    scale = scales(rng, (n,) if per_axis else ())
    zero = codes(rng, str(w.dtype), scale.shape) if draw(st.booleans()) else None
    held = scale[:, None] if left and per_axis else scale
    tensors = [tensor("w", w), tensor("ws", held), tensor("one", np.array(1.0, np.float32))]
    tensors += [tensor("xz", np.array(0, np.uint8))]
    if zero is not None:
        tensors.append(tensor("wz", zero))
    wz = "wz" if zero is not None else ""
    inputs = ["w", "xq", wz, "xz"] if left else ["xq", "w", "xz", wz]
    nodes = [node("MatMulInteger", inputs, ["i"], "mm"), node("Cast", ["i"], ["f"], "cast", to=1)]
    if draw(st.booleans()):
        nodes += [node("Mul", ["one", "ws"], ["s"], "scales"), node("Mul", ["f", "s"], ["y"], "scaled")]
    else:
        nodes += [node("Mul", ["ws", "f"], ["g"], "first"), node("Mul", ["g", "one"], ["y"], "second")]
    axis = 0 if left else 1
    spread = tuple(-1 if a == axis else 1 for a in (0, 1)) if per_axis else ()
    shifted = w.astype(np.float64) - (0 if zero is None else zero.astype(np.float64).reshape(spread))
    return Sample(
        model(nodes, tensors, [value("xq", "uint8", [k, k])], [value("y")]),
        "w",
        "mm",
        0 if left else 1,
        shifted * scale.astype(np.float64).reshape(spread),
        str(w.dtype),
        "per_channel" if per_axis else "per_tensor",
        axis if per_axis else None,
        feeds={"xq": np.eye(k, dtype=np.uint8)} if zero is None or not per_axis else None,
    )


class TestMatMulInteger(SchemeConformance):
    scheme = "dynamic"
    examples = 60
    oracle = "onnxruntime"

    def samples(self) -> st.SearchStrategy[Sample]:
        return _integer_matmul()

    def run_oracle(self, sample: Sample) -> np.ndarray:
        return by_onnxruntime(sample.model, sample.feeds or {})

    def malformed(self) -> Iterator[tuple[str, onnx.ModelProto]]:
        tensors = [tensor("w", np.ones((3, 4), np.int8)), tensor("ws", np.ones(3, np.float32))]
        x, y = value("xq", "uint8", [1, 3]), value("y")
        integer = node("MatMulInteger", ["xq", "w"], ["i"], "mm")
        yield "no scale behind", model([integer], tensors[:1], [x], [value("i", "int32")])
        chain = [integer, node("Cast", ["i"], ["f"], "c", to=1), node("Mul", ["f", "ws"], ["y"], "m")]
        yield "scale of another length", model(chain, tensors, [x], [y])


@st.composite
def _with_scales(draw: st.DrawFn) -> Sample:
    """DynamicQuantizeMatMul, MatMulIntegerToFloat and the weights of DynamicQuantizeLSTM."""
    rng = draw(generators())
    op_type = draw(st.sampled_from(["DynamicQuantizeMatMul", "MatMulIntegerToFloat", "DynamicQuantizeLSTM"]))
    per_column = draw(st.booleans())
    if op_type == "DynamicQuantizeLSTM":
        directions, hidden, inner = draw(st.sampled_from([1, 2])), 2, 3
        w, r = codes(rng, "int8", (directions, inner, 4 * hidden)), codes(rng, "int8", (directions, hidden, 4 * hidden))
        scale = scales(rng, (directions, 4 * hidden) if per_column else (directions,))
        zero = codes(rng, "int8", scale.shape)
        tensors = [tensor("w", w), tensor("r", r), tensor("ws", scale), tensor("wz", zero)]
        inputs = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "ws", "wz"]
        attributes = {"hidden_size": hidden, "direction": "bidirectional" if directions == 2 else "forward"}
        nodes = [node(op_type, inputs, ["y"], "op", "com.microsoft", **attributes)]
        spread = (directions, 1, -1)
        operand = (w.astype(np.float64) - zero.reshape(spread)) * scale.astype(np.float64).reshape(spread)
        proto = model(nodes, tensors, [value("x", shape=[1, 1, inner])], [value("y")])
        return Sample(proto, "w", "op", 1, operand, "int8")
    w = codes(rng, "uint8", (3, 4))
    scale = scales(rng, (4,) if per_column else (1,))
    zero = codes(rng, "uint8", scale.shape)
    tensors = [tensor("w", w), tensor("ws", scale), tensor("wz", zero), *_one("x", 1.0)]
    operand = (w.astype(np.float64) - zero) * scale.astype(np.float64)
    granularity, axis = ("per_channel", 1) if per_column else ("per_tensor", None)
    if op_type == "DynamicQuantizeMatMul":
        nodes = [node(op_type, ["x", "w", "ws", "wz"], ["y"], "op", "com.microsoft")]
        proto = model(nodes, tensors, [value("x", shape=[3, 3])], [value("y")])
        return Sample(proto, "w", "op", 1, operand, "uint8", granularity, axis)
    nodes = [node(op_type, ["x", "w", "x_s", "ws", "x_z", "wz"], ["y"], "op", "com.microsoft")]
    proto = model(nodes, tensors, [value("x", "uint8", [3, 3])], [value("y")])
    feeds = {"x": np.eye(3, dtype=np.uint8)}
    return Sample(proto, "w", "op", 1, operand, "uint8", granularity, axis, feeds=feeds)


class TestOperatorsWithScales(SchemeConformance):
    scheme = "dynamic"
    oracle = "onnxruntime (MatMulIntegerToFloat)"

    def samples(self) -> st.SearchStrategy[Sample]:
        return _with_scales()

    def run_oracle(self, sample: Sample) -> np.ndarray:
        return by_onnxruntime(sample.model, sample.feeds or {})


def test_rows_of_a_table() -> None:
    """An embedding of codes: Gather first, its rows dequantized or handed to a QLinear operator."""
    w = codes(np.random.default_rng(1), "uint8", (7, 4))
    tensors = [tensor("w", w), *_one("w", 0.5, 3), *_one("y"), *_one("b"), tensor("b", np.ones(4, np.uint8))]
    gather = node("Gather", ["w", "ids"], ["g"], "gather")
    ids = value("ids", "int64", [2])
    dequantize = [gather, node("DequantizeLinear", ["g", "w_s", "w_z"], ["y"], "dq")]
    add = ["g", "w_s", "w_z", "b", "b_s", "b_z", "y_s", "y_z"]
    add_node = [gather, node("QLinearAdd", add, ["y"], "add", "com.microsoft")]
    for nodes, scheme in ((dequantize, "qdq"), (add_node, "qoperator")):
        graph = graph_of(model(nodes, tensors, [ids], [value("y")]))
        sites = find_sites(graph)
        site = next(s for s in sites.sites if graph.values[s.value].name == "w")
        assert (graph.nodes[site.reader or 0].name, site.slot, site.scheme) == ("gather", 0, scheme)
        np.testing.assert_array_equal(dequantized(site), (w.astype(np.float64) - 3) * 0.5)
        assert sites.unclaimed == ()


def test_attention_and_embedding() -> None:
    """QAttention's packed weight by column, and the five tables of QEmbedLayerNormalization."""
    rng = np.random.default_rng(2)
    w, scale = codes(rng, "int8", (4, 12)), scales(rng, (12,))
    tensors = [tensor("w", w), tensor("ws", scale), tensor("b", np.zeros(12, np.float32)), *_one("x")]
    nodes = [node("QAttention", ["x", "w", "b", "x_s", "ws", "", "x_z", ""], ["y"], "op", "com.microsoft", num_heads=1)]
    (site,) = find_sites(graph_of(model(nodes, tensors, [value("x", "uint8", [1, 2, 4])], [value("y")]))).sites
    np.testing.assert_array_equal(dequantized(site), w * scale.astype(np.float64))
    names = ["word", "position", "segment", "gamma", "beta"]
    tables = [codes(rng, "uint8", (5, 4) if k < 3 else (4,)) for k in range(5)]
    tensors = [tensor(n, t) for n, t in zip(names, tables, strict=True)]
    tensors += [t for n in names for t in _one(n, 0.5, 7)]
    inputs = ["ids", "ids", *names, "", *(f"{n}_s" for n in names), *(f"{n}_z" for n in names)]
    nodes = [node("QEmbedLayerNormalization", inputs, ["y", "m"], "op", "com.microsoft")]
    sites = find_sites(graph_of(model(nodes, tensors, [value("ids", "int32", [1, 2])], [value("y")]))).sites
    assert [s.slot for s in sites] == [2, 3, 4, 5, 6]
    for site, table in zip(sites, tables, strict=True):
        np.testing.assert_array_equal(dequantized(site), (table.astype(np.float64) - 7) * 0.5)


@pytest.mark.parametrize("bits", ["int8", "uint8"])
def test_results_are_activations(bits: str) -> None:
    """The result of an operator that computes with codes, with its scale, zero point and dequantized value."""
    tensors = [*_one("x"), *_one("y", 0.125, 5, bits)]
    nodes = [
        node("QLinearSigmoid", ["x", "x_s", "x_z", "y_s", "y_z"], ["q"], "op", "com.microsoft"),
        node("DequantizeLinear", ["q", "y_s", "y_z"], ["d"], "dq"),
        node("Relu", ["d"], ["y"], "relu"),
    ]
    graph = graph_of(model(nodes, tensors, [value("x", "uint8", [1, 4])], [value("y")]))
    (site,) = find_sites(graph).sites
    assert site.params is not None and site.params.code_type.name == bits
    assert float(site.params.scale) == 0.125 and int(site.params.zero_point) == 5  # type: ignore[arg-type]
    assert graph.values[site.dequantized or 0].name == "d" and graph.nodes[site.reader or 0].name == "relu"


def test_integer_weight_through_a_transpose() -> None:
    w, scale = codes(np.random.default_rng(3), "int8", (4, 3)), np.array([1, 2, 4, 8], np.float32)
    nodes = [
        node("Transpose", ["w"], ["t"], "turn"),
        node("MatMulInteger", ["x", "t"], ["i"], "mm"),
        node("Cast", ["i"], ["f"], "cast", to=1),
        node("Mul", ["f", "s"], ["y"], "mul"),
    ]
    graph = graph_of(model(nodes, [tensor("w", w), tensor("s", scale)], [value("x", "uint8", [1, 3])], [value("y")]))
    (site,) = find_sites(graph).sites
    np.testing.assert_array_equal(dequantized(site), w.T * scale.astype(np.float64))
