from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from hypothesis import strategies as st

from tests.formats.oracles import by_onnxruntime, by_reference
from visualquant.core.tensors import ELEMENT_TYPES
from visualquant.formats.scheme import find_sites
from visualquant.testing.conformance import Sample, SchemeConformance, dequantized
from visualquant.testing.models import data_type, graph_of, model, node, tensor, value
from visualquant.testing.strategies import FLOAT_CODES, INTEGER_CODES, codes, generators, scales, shapes


def _reader(weight: str, rank: int) -> onnx.NodeProto:
    """Hands its operand on unchanged, so that an oracle's first output is the operand."""
    return node("Add", [weight, "zero"], ["y"], "reader")


def _formula(q: np.ndarray, scale: np.ndarray, zero: np.ndarray | None) -> np.ndarray:
    """(q − zero)·scale with numpy broadcasting, the subtraction in float64 (exact for every code type)."""
    shift = 0.0 if zero is None else zero.astype(np.float64)
    return (q.astype(np.float64) - shift) * scale.astype(np.float64)


@st.composite
def _stored(draw: st.DrawFn) -> Sample:
    """DequantizeLinear over stored codes: every granularity, with the axis written in every way."""
    rng = draw(generators())
    dtype = draw(st.sampled_from(INTEGER_CODES + FLOAT_CODES))
    shape = draw(shapes())
    rank = len(shape)
    kind = draw(st.sampled_from(["per_tensor", "per_channel", "blocked"]))
    axis = draw(st.integers(0, rank - 1))
    attributes: dict[str, int] = {}
    block = None
    if kind == "per_tensor":
        scale_shape: tuple[int, ...] = draw(st.sampled_from([(), (1,)]))
        spread = ()
    elif kind == "per_channel":
        scale_shape = (shape[axis],)
        spread = tuple(-1 if k == axis else 1 for k in range(rank))
        if not (axis == 1 and draw(st.booleans())):
            attributes["axis"] = axis - rank if draw(st.booleans()) else axis
    else:
        block = draw(st.integers(1, shape[axis] + 1))
        attributes = {"axis": axis - rank if draw(st.booleans()) else axis, "block_size": block}
        scale_shape = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
    q, scale = codes(rng, dtype, shape), scales(rng, scale_shape)
    zero = None
    if ELEMENT_TYPES[dtype].is_integer and draw(st.booleans()):
        zero = codes(rng, dtype, scale_shape) if dtype != "int32" else np.zeros(scale_shape, np.int32)

    def full(array: np.ndarray) -> np.ndarray:
        if kind == "per_tensor":
            return array.reshape(())
        if kind == "per_channel":
            return array.reshape(spread)
        return np.repeat(array, block, axis=axis).take(range(shape[axis]), axis=axis)

    operand = _formula(q, full(scale), None if zero is None else full(zero))
    domain = draw(st.sampled_from(["", "com.microsoft"])) if kind != "blocked" else ""
    inputs = ["w", "scale"] + ([] if zero is None else ["zp"])
    tensors = [tensor("w", q, dtype), tensor("scale", scale), tensor("zero", np.zeros((), np.float32))]
    tensors += [] if zero is None else [tensor("zp", zero, dtype)]
    dq = node("DequantizeLinear", inputs, ["x"], "dq", domain, **attributes)
    # one channel, or one block of everything, is one scale for the tensor
    one = kind == "per_tensor" or (kind == "per_channel" and shape[axis] == 1)
    runs = dtype in ("int8", "uint8", "int4", "uint4", "int16", "uint16") and domain == "" and kind != "blocked"
    return Sample(
        model([dq, _reader("x", rank)], tensors, [], [value("y")], opset=21),
        "w",
        "reader",
        0,
        operand,
        dtype,
        "per_tensor" if one else kind,
        None if one else axis,
        block,
        role="bias" if dtype == "int32" else "weight",
        feeds={} if runs else None,
    )


class TestStoredCodes(SchemeConformance):
    scheme = "qdq"
    examples = 120
    oracle = "onnxruntime"

    def samples(self) -> st.SearchStrategy[Sample]:
        return _stored()

    def run_oracle(self, sample: Sample) -> np.ndarray:
        return by_onnxruntime(sample.model, sample.feeds or {})

    def malformed(self) -> Iterator[tuple[str, onnx.ModelProto]]:
        w = tensor("w", np.arange(-12, 12, dtype=np.int8).reshape(6, 4))
        x, y = value("x", shape=[2, 6]), value("y")

        def dq(scale: np.ndarray | None, zero: np.ndarray | None = None, **attributes: int) -> onnx.ModelProto:
            tensors = (
                [w] + ([] if scale is None else [tensor("s", scale)]) + ([] if zero is None else [tensor("z", zero)])
            )
            inputs = ["w", "" if scale is None else "s"] + ([] if zero is None else ["z"])
            nodes = [node("DequantizeLinear", inputs, ["d"], "dq", **attributes), node("MatMul", ["x", "d"], ["y"])]
            return model(nodes, tensors, [x], [y])

        yield "no scale", dq(None)
        yield "scale of another length", dq(np.ones(5, np.float32), axis=1)
        yield "empty scale", dq(np.ones(0, np.float32), axis=1)
        yield "zero points of another length", dq(np.ones(4, np.float32), np.zeros(3, np.int8), axis=1)
        yield "an axis that is not there", dq(np.ones(5, np.float32), axis=7)
        yield "block size that does not divide", dq(np.ones((2, 4), np.float32), axis=0, block_size=4 * 4)
        yield "negative block size", dq(np.ones((2, 4), np.float32), axis=0, block_size=-2)
        yield "blocks along the other axis", dq(np.ones((6, 2), np.float32), axis=0, block_size=2)
        one = [node("DequantizeLinear", ["w", "s"], ["d"], "dq"), node("MatMul", ["x", "d"], ["y"])]
        yield "scale is an input", model(one, [w], [x, value("s", shape=[])], [y])


@st.composite
def _run_time(draw: st.DrawFn) -> Sample:
    """A float weight that passes Q and DQ, with a Transpose in front or not."""
    rng = draw(generators())
    dtype = draw(st.sampled_from(["int8", "uint8", "int16", "uint16", "int4", "uint4"]))
    shape = draw(shapes(2, 3))
    per_channel = draw(st.booleans())
    turned = draw(st.booleans())
    seen = shape[::-1] if turned else shape
    axis = draw(st.integers(0, len(shape) - 1))
    w = rng.normal(0, 1, shape).astype(np.float32)
    scale = scales(rng, (seen[axis],) if per_channel else ())
    zero = codes(rng, dtype, scale.shape)
    kind = ELEMENT_TYPES[dtype]
    low = 0 if kind.kind == "uint" else -(1 << (kind.bits - 1))
    high = low + (1 << kind.bits) - 1
    clip = draw(st.booleans()) and kind.bits == 8
    if clip:
        low, high = low + 3, high - 5
    x = w.T if turned else w
    spread = tuple(-1 if k == axis else 1 for k in range(len(seen))) if per_channel else ()
    s, z = scale.reshape(spread), zero.astype(np.int64).reshape(spread)
    q = np.clip(np.rint((x / s).astype(np.float32)).astype(np.int64) + z, low, high)
    tensors = [tensor("w", w), tensor("s", scale), tensor("z", zero, dtype), tensor("zero", np.zeros((), np.float32))]
    nodes = [node("Transpose", ["w"], ["t"], "turn")] if turned else []
    attributes = {"axis": axis} if per_channel else {}
    nodes.append(node("QuantizeLinear", ["t" if turned else "w", "s", "z"], ["q"], "q", **attributes))
    if clip:
        tensors += [tensor("lo", np.array(low), dtype), tensor("hi", np.array(high), dtype)]
        nodes.append(node("Clip", ["q", "lo", "hi"], ["c"], "clip"))
    nodes.append(node("DequantizeLinear", ["c" if clip else "q", "s", "z"], ["d"], "dq", **attributes))
    nodes.append(_reader("d", len(seen)))
    one = not per_channel or seen[axis] == 1
    return Sample(
        model(nodes, tensors, [], [value("y")]),
        "w",
        "reader",
        0,
        (q - z) * s.astype(np.float64),
        dtype,
        "per_tensor" if one else "per_channel",
        None if one else axis,
        feeds={},
    )


class TestQuantizedAtRunTime(SchemeConformance):
    scheme = "qdq"
    examples = 60
    oracle = "onnxruntime"

    def samples(self) -> st.SearchStrategy[Sample]:
        return _run_time()

    def run_oracle(self, sample: Sample) -> np.ndarray:
        return by_onnxruntime(sample.model, sample.feeds or {})

    def test_it_is_said(self) -> None:
        site, _, _ = self.site_of(_example(_run_time()))
        assert site.quantized_at_run_time


def _example(strategy: st.SearchStrategy[Sample]) -> Sample:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return strategy.example()


@st.composite
def _float_at_run_time(draw: st.DrawFn) -> Sample:
    """A float weight rounded to float8 or float4 when the model runs."""
    rng = draw(generators())
    dtype = draw(st.sampled_from(FLOAT_CODES))
    shape = draw(shapes(1, 2))
    w = rng.normal(0, 30, shape).astype(np.float32)
    scale = scales(rng, ())
    top = float(np.max(_all_finite(dtype)))
    with np.errstate(all="ignore"):
        q = np.clip(w / scale, -top, top).astype(ELEMENT_TYPES[dtype].numpy)
    tensors = [tensor("w", w), tensor("s", scale), tensor("zero", np.zeros((), np.float32))]
    nodes = [
        node("QuantizeLinear", ["w", "s"], ["q"], "q", output_dtype=data_type(dtype)),
        node("DequantizeLinear", ["q", "s"], ["d"], "dq"),
        _reader("d", len(shape)),
    ]
    proto = model(nodes, tensors, [], [value("y")], opset=23)
    return Sample(proto, "w", "reader", 0, q.astype(np.float64) * np.float64(scale), dtype, "per_tensor", feeds={})


def _all_finite(dtype: str) -> np.ndarray:
    kind = ELEMENT_TYPES[dtype]
    every = np.arange(1 << kind.bits, dtype=np.uint8).view(kind.numpy).astype(np.float64)
    return every[np.isfinite(every)]


class TestFloatCodesAtRunTime(SchemeConformance):
    scheme = "qdq"
    oracle = "onnx.reference"

    def samples(self) -> st.SearchStrategy[Sample]:
        return _float_at_run_time()

    def run_oracle(self, sample: Sample) -> np.ndarray:
        return by_reference(sample.model, sample.feeds or {})


@st.composite
def _two_levels(draw: st.DrawFn) -> Sample:
    """MX (float8e8m0 scales) and NVFP4 (float8 scales, themselves scaled by a float32)."""
    rng = draw(generators())
    rows, blocks, block = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.sampled_from([2, 16]))
    dtype = draw(st.sampled_from(["float4e2m1", "float8e4m3fn", "float6e2m3", "float6e3m2"]))
    q = codes(rng, dtype, (rows, blocks * block))
    tensors = [tensor("w", q, dtype), tensor("zero", np.zeros((), np.float32))]
    nodes = []
    if draw(st.booleans()):
        scale = np.exp2(rng.integers(-8, 8, (rows, blocks))).astype(np.float32)
        tensors.append(tensor("s", scale, "float8e8m0"))
        factor = scale.astype(np.float64)
    else:
        inner, outer = codes(rng, "float8e4m3fn", (rows, blocks)), scales(rng, ())
        tensors += [tensor("inner", inner, "float8e4m3fn"), tensor("outer", outer)]
        nodes.append(node("DequantizeLinear", ["inner", "outer"], ["s"], "dq_scale"))
        factor = inner.astype(np.float64) * np.float64(outer)
    nodes += [node("DequantizeLinear", ["w", "s"], ["d"], "dq", axis=-1, block_size=block), _reader("d", 2)]
    operand = q.astype(np.float64) * np.repeat(factor, block, axis=1)
    proto = model(nodes, tensors, [], [value("y")], opset=23)
    return Sample(proto, "w", "reader", 0, operand, dtype, "blocked", 1, block)


class TestTwoLevelScales(SchemeConformance):
    scheme = "qdq"

    def samples(self) -> st.SearchStrategy[Sample]:
        return _two_levels()


@st.composite
def _layouts(draw: st.DrawFn) -> Sample:
    """Layout operators before and behind DequantizeLinear, with a scale an element of an axis or a block."""
    rng = draw(generators())
    q = codes(rng, "int8", (3, 4))
    before = draw(st.sampled_from(["none", "transpose", "unsqueeze", "merge"]))
    behind = draw(st.sampled_from(["none", "transpose", "reshape", "cast"]))
    if before == "merge":
        q = q.reshape(3, 2, 2)
    tensors = [tensor("w", q), tensor("zero", np.zeros((), np.float32))]
    nodes, seen, name = [], q, "w"
    if before == "transpose":
        nodes.append(node("Transpose", ["w"], ["b"], "b", perm=[1, 0]))
        seen, name = q.T, "b"
    elif before == "unsqueeze":
        tensors.append(tensor("axes", np.array([0], np.int64)))
        nodes.append(node("Unsqueeze", ["w", "axes"], ["b"], "b"))
        seen, name = q[None], "b"
    elif before == "merge":
        tensors.append(tensor("flat", np.array([3, 4], np.int64)))
        nodes.append(node("Reshape", ["w", "flat"], ["b"], "b"))
        seen, name = q.reshape(3, 4), "b"
    axis = draw(st.integers(0, seen.ndim - 1))
    attributes = {"axis": axis}
    if draw(st.booleans()):
        block = draw(st.integers(1, seen.shape[axis]))
        counts = (*seen.shape[:axis], -(-seen.shape[axis] // block), *seen.shape[axis + 1 :])
        scale, attributes["block_size"] = scales(rng, counts), block
        full = np.repeat(scale, block, axis=axis).take(range(seen.shape[axis]), axis=axis)
    else:
        scale = scales(rng, (seen.shape[axis],))
        full = scale.reshape([-1 if k == axis else 1 for k in range(seen.ndim)])
    tensors.append(tensor("s", scale))
    nodes.append(node("DequantizeLinear", [name, "s"], ["d"], "dq", **attributes))
    operand = _formula(seen, full, None)
    last = "d"
    if behind == "transpose":
        nodes.append(node("Transpose", ["d"], ["e"], "e"))
        operand, last = operand.T, "e"
    elif behind == "reshape":
        tensors.append(tensor("shape", np.array([2, -1], np.int64)))
        nodes.append(node("Reshape", ["d", "shape"], ["e"], "e"))
        operand, last = operand.reshape(2, -1), "e"
    elif behind == "cast":
        nodes.append(node("Cast", ["d"], ["e"], "e", to=1))
        last = "e"
    nodes.append(_reader(last, operand.ndim))
    return Sample(model(nodes, tensors, [], [value("y")]), "w", "reader", 0, operand, "int8")


class TestLayouts(SchemeConformance):
    scheme = "qdq"
    examples = 80

    def samples(self) -> st.SearchStrategy[Sample]:
        return _layouts()


@pytest.mark.parametrize(
    ("domain", "op_type", "stored", "scale", "attributes"),
    [
        ("trt", "TRT_FP8DequantizeLinear", "uint8", np.float32(0.5), {}),
        ("trt", "TRT_INT8DequantizeLinear", "int8", np.float32(0.5), {}),
        ("trt", "TRT_INT4DequantizeLinear", "int4", np.full((2, 4), 0.5, np.float32), {"axis": 0, "block_size": 2}),
        ("trt", "TRT_MXFP8DequantizeLinear", "float8e4m3fn", np.full((4, 1), 126, np.uint8), {"axis": 1}),
        ("com.amd.quark", "ExtendedDequantizeLinear", "bfloat16", np.float32(0.5), {}),
        ("com.vai.quantize", "VitisDequantizeLinear", "int16", np.float32(0.5), {}),
    ],
)
def test_vendor_operators(
    domain: str, op_type: str, stored: str, scale: np.ndarray, attributes: dict[str, int]
) -> None:
    q = codes(np.random.default_rng(3), "float8e4m3fn" if "FP8" in op_type else stored, (4, 4))
    kept = q.view(np.uint8) if stored == "uint8" else q
    nodes = [
        node(op_type, ["w", "s"], ["d"], "dq", domain, **attributes),
        node("MatMul", ["x", "d"], ["y"], "reader"),
    ]
    proto = model(
        nodes, [tensor("w", kept, stored), tensor("s", np.asarray(scale))], [value("x", shape=[1, 4])], [value("y")]
    )
    sites = find_sites(graph_of(proto))
    site = next(s for s in sites.sites if s.role == "weight")
    np.testing.assert_array_equal(dequantized(site), q.astype(np.float64) * 0.5)
    assert site.problem is None and sites.unknown_operators == ()


def test_axis_of_opset_10_is_no_axis() -> None:
    """One scale a tensor below opset 13; several are said, and read along the only axis that fits."""
    q = codes(np.random.default_rng(0), "int8", (5, 3, 2, 2))
    nodes = [node("DequantizeLinear", ["w", "s"], ["d"], "dq"), node("Conv", ["x", "d"], ["y"], "conv")]
    tensors = [tensor("w", q), tensor("s", np.ones(5, np.float32))]
    site = find_sites(graph_of(model(nodes, tensors, [value("x", shape=[1, 3, 4, 4])], [value("y")], 10))).sites[0]
    assert site.problem is not None and "opset 13" in site.problem
    assert site.params is not None and site.params.axis == 0


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, 1e-45])
def test_odd_scales_are_kept(bad: float) -> None:
    nodes = [node("DequantizeLinear", ["w", "s"], ["d"], "dq"), node("MatMul", ["x", "d"], ["y"], "mm")]
    tensors = [tensor("w", np.ones((2, 2), np.int8)), tensor("s", np.array(bad, np.float32))]
    site = find_sites(graph_of(model(nodes, tensors, [value("x", shape=[1, 2])], [value("y")]))).sites[0]
    assert site.params is not None
    np.testing.assert_array_equal(site.params.scale, np.float64(np.float32(bad)))


def test_shared_weight_gives_a_site_for_each_reader() -> None:
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["d"], "dq"),
        node("MatMul", ["x", "d"], ["h"], "first"),
        node("Transpose", ["d"], ["t"], "turn"),
        node("MatMul", ["h", "t"], ["y"], "second"),
    ]
    tensors = [tensor("w", np.ones((2, 3), np.int8)), tensor("s", np.array(0.1, np.float32))]
    graph = graph_of(model(nodes, tensors, [value("x", shape=[1, 2])], [value("y")]))
    sites = find_sites(graph).sites
    assert [(graph.nodes[s.reader or 0].name, s.slot, dequantized(s).shape) for s in sites] == [
        ("first", 1, (2, 3)),
        ("second", 1, (3, 2)),
    ]


def test_activation_between_q_and_dq() -> None:
    """One site a quantize node: codes, range of a Clip, the dequantized value and the first reader."""
    tensors = [
        tensor("s", np.array(0.1, np.float32)),
        tensor("z", np.array(3, np.uint8)),
        tensor("lo", np.array(0, np.uint8)),
        tensor("hi", np.array(15, np.uint8)),
    ]
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        node("Clip", ["q", "lo", "hi"], ["c"], "clip"),
        node("DequantizeLinear", ["c", "s", "z"], ["d"], "dq"),
        node("Relu", ["d"], ["y"], "relu"),
    ]
    graph = graph_of(model(nodes, tensors, [value("x", shape=["n", 4])], [value("y")]))
    (site,) = find_sites(graph).sites
    assert site.role == "activation" and graph.values[site.value].name == "q"
    assert site.params is not None and (site.params.qmin, site.params.qmax) == (0, 15)
    assert graph.nodes[site.reader or 0].name == "relu"
    assert {graph.nodes[n].name for n in site.nodes} == {"q", "clip", "dq"}


def test_awq_pre_scale_is_found() -> None:
    """ModelOpt multiplies the data by the reciprocal of what it multiplied the weight by."""
    factor = np.array([1.0, 2.0, 4.0], np.float32)
    w = np.arange(6, dtype=np.int8).reshape(3, 2)
    nodes = [
        node("Mul", ["x", "w_awq_scale"], ["p"], "w_PQS"),
        node("DequantizeLinear", ["w_i8", "s"], ["d"], "dq"),
        node("MatMul", ["p", "d"], ["y"], "mm"),
    ]
    tensors = [tensor("w_awq_scale", 1 / factor), tensor("w_i8", w), tensor("s", np.array(1.0, np.float32))]
    site = find_sites(graph_of(model(nodes, tensors, [value("x", shape=[1, 3])], [value("y")]))).sites[0]
    assert site.pre_scale is not None
    np.testing.assert_allclose(site.pre_scale, factor[:, None])
    np.testing.assert_allclose(dequantized(site), w / factor[:, None])
