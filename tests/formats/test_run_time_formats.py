"""Formats whose weights stay float in the file: QONNX, block formats, FakeQuantize; and written-out arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import strategies as st

from tests.formats.oracles import by_onnxruntime
from visualquant.formats.scheme import find_sites
from visualquant.testing.conformance import Sample, SchemeConformance, dequantized
from visualquant.testing.models import graph_of, model, node, tensor, value
from visualquant.testing.strategies import codes, generators, scales, shapes

QONNX = "qonnx.custom_op.general"
ZERO = tensor("zero", np.zeros((), np.float32))
READER = node("Add", ["q", "zero"], ["y"], "reader")


def _round(x: float, mode: str) -> float:
    """One value by QONNX's rounding modes, in plain Python."""
    if mode == "ROUND":
        return float(round(x))
    if mode == "CEIL":
        return float(math.ceil(x))
    if mode == "FLOOR":
        return float(math.floor(x))
    size = {
        "UP": math.ceil(abs(x)),
        "DOWN": math.floor(abs(x)),
        "HALF_UP": math.floor(abs(x) + 0.5),
        "HALF_DOWN": math.ceil(abs(x) - 0.5),
    }[mode]
    return math.copysign(size, x) if size else 0.0


@st.composite
def _quant(draw: st.DrawFn) -> Sample:
    rng = draw(generators())
    shape = draw(shapes(1, 3))
    bits = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 12]))
    signed, narrow = draw(st.booleans()), draw(st.booleans())
    mode = draw(st.sampled_from(["ROUND", "CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN"]))
    axis = draw(st.integers(0, len(shape) - 1))
    per_channel = draw(st.booleans())
    spread = tuple(n if k == axis else 1 for k, n in enumerate(shape))
    scale = scales(rng, spread if per_channel else ())
    zero = np.float32(draw(st.sampled_from([0, 0, 2, -1])))
    w = rng.normal(0, 1, shape).astype(np.float32)
    if draw(st.booleans()):  # values halfway between codes
        w = (np.rint(w / scale * 2) / 2 * scale).astype(np.float32)
    low = (-(2 ** (bits - 1)) + narrow) if signed else 0
    high = (2 ** (bits - 1) - 1) if signed else 2**bits - 1 - narrow
    q = np.empty(shape)
    for place in np.ndindex(shape):
        s = np.broadcast_to(scale, shape)[place]
        y = float(np.float32(w[place] / s) + zero)
        if bits == 1 and signed:
            q[place] = 1 if y >= 0 else -1
        else:
            q[place] = _round(min(max(y, low), high), mode)
    operand = (q - np.float64(zero)) * scale.astype(np.float64)
    attributes = {"signed": int(signed), "narrow": int(narrow), "rounding_mode": mode}
    tensors = [tensor("w", w), tensor("s", scale), tensor("z", zero), tensor("b", np.float32(bits)), ZERO]
    proto = model(
        [node("Quant", ["w", "s", "z", "b"], ["q"], "quant", QONNX, **attributes), READER], tensors, [], [value("y")]
    )
    one = not per_channel or shape[axis] == 1
    name = f"{'' if signed else 'u'}int{bits}"
    granularity = "per_tensor" if one else "per_channel"
    return Sample(proto, "w", "reader", 0, operand, name, granularity, None if one else axis)


class TestQonnx(SchemeConformance):
    scheme = "qonnx"
    examples = 80

    def samples(self) -> st.SearchStrategy[Sample]:
        return _quant()

    def malformed(self) -> Iterator[tuple[str, onnx.ModelProto]]:
        w = tensor("w", np.ones((3, 4), np.float32))

        def quant(scale: np.ndarray, bits: float, mode: str = "ROUND") -> onnx.ModelProto:
            tensors = [w, tensor("s", scale), tensor("z", np.float32(0)), tensor("b", np.float32(bits)), ZERO]
            nodes = [node("Quant", ["w", "s", "z", "b"], ["q"], "q", QONNX, rounding_mode=mode), READER]
            return model(nodes, tensors, [], [value("y")])

        yield "scale of another length", quant(np.ones(3, np.float32), 4)
        yield "no bits", quant(np.ones((), np.float32), 0)
        yield "a rounding mode that does not exist", quant(np.ones((), np.float32), 4, "SIDEWAYS")
        nodes = [node("Quant", ["w", "", "z", "b"], ["q"], "q", QONNX), READER]
        yield (
            "no scale",
            model(nodes, [w, tensor("z", np.float32(0)), tensor("b", np.float32(4)), ZERO], [], [value("y")]),
        )


def test_bipolar_and_trunc() -> None:
    w = np.array([[-0.5, 0.0, 2.0]], np.float32)
    tensors = [tensor("w", w), tensor("s", np.float32(0.25)), tensor("z", np.float32(0)), tensor("b", np.float32(8))]
    nodes = [
        node("BipolarQuant", ["w", "s"], ["q"], "bipolar", QONNX),
        node("MatMul", ["q", "x"], ["h"], "mm"),
        node("Trunc", ["h", "s", "z", "b", "b"], ["t"], "trunc", QONNX, rounding_mode="FLOOR"),
        node("Relu", ["t"], ["y"], "relu"),
    ]
    sites = find_sites(graph_of(model(nodes, tensors, [value("x", shape=[3, 1])], [value("y")])))
    weight, activation = sites.sites
    np.testing.assert_array_equal(dequantized(weight), [[-0.25, 0.25, 0.25]])
    assert weight.params is not None and weight.params.code_type.name == "bipolar"
    assert activation.role == "activation" and sites.unknown_operators == ()


W = np.array([0.1, -1.7, 3.99, 0.0, -0.03125, 0.5, 2.75, -7.9, 1e-3, 0.75], np.float32)
BFP = {"bfp_method": "to_bfp", "axis": 0, "block_size": 8, "bit_width": 13}
PRIME = {"bfp_method": "to_bfp_prime", "axis": 0, "block_size": 8, "bit_width": 13}
BY_COMPILER = {**BFP, "bit_width": 16, "use_compiler_version_cpu_kernel": 1}
MX = {"axis": 0, "block_size": 8, "rounding_mode": 2}


# The values are those of Quark 0.13's own CPU kernels (compiled apart); 593 random cases agreed bit for bit.
@pytest.mark.parametrize(
    ("op_type", "attributes", "want"),
    [
        ("BFP", {**BFP, "rounding_mode": 0}, [0, -1.5, 4, 0, 0, 0.5, 3, -7.5, 0, 0.75]),
        ("BFP", {**BY_COMPILER, "rounding_mode": 0}, [0.125, -1.6875, 4, 0, -0.0625, 0.5, 2.75, -7.875, 0, 0.75]),
        ("BFP", {**BY_COMPILER, "rounding_mode": 1}, [0.125, -1.6875, 4, 0, 0, 0.5, 2.75, -7.875, 0, 0.75]),
        ("BFP", {**PRIME, "rounding_mode": 2}, [0, -1.75, 3.75, 0, 0, 0.5, 3, -7.5, 0, 0.75]),
        ("MX", {**MX, "element_dtype": "fp8_e5m2"}, [0.09375, -1.75, 4, 0, -0.03125, 0.5, 3, -7, 0.0009765625, 0.75]),
        (
            "MX",
            {**MX, "element_dtype": "fp8_e4m3"},
            [0.1015625, -1.75, 4, 0, -0.03125, 0.5, 2.75, -7, 0.0009765625, 0.75],
        ),
        ("MX", {**MX, "element_dtype": "fp6_e3m2"}, [0.09375, -1.75, 4, 0, -0.03125, 0.5, 3, -7, 0.001953125, 0.75]),
        ("MX", {**MX, "element_dtype": "fp6_e2m3"}, [0.125, -1.75, 4, 0, 0, 0.5, 2.75, -7.5, 0, 0.75]),
        ("MX", {**MX, "element_dtype": "fp4_e2m1"}, [0, -1.5, 4, 0, 0, 0.5, 3, -6, 0, 0.75]),
        ("MX", {**MX, "element_dtype": "int8"}, [0.125, -1.6875, 4, 0, 0, 0.5, 2.75, -7.875, 0, 0.75]),
    ],
)
def test_quark_kernels(op_type: str, attributes: dict[str, object], want: list[float]) -> None:
    nodes = [node(f"{op_type}QuantizeDequantize", ["w"], ["q"], "q", "com.amd.quark", **attributes), READER]
    (site,) = find_sites(graph_of(model(nodes, [tensor("w", W), ZERO], [], [value("y")]))).sites
    np.testing.assert_array_equal(dequantized(site), want)
    assert site.quantized_at_run_time and site.scheme == op_type.lower()


@st.composite
def _bfp(draw: st.DrawFn) -> Sample:
    """Block floating point by its definition: one exponent a block, `bit_width − 9` bits of mantissa."""
    rng = draw(generators())
    shape = draw(shapes(1, 3))
    if math.prod(shape) < 2:
        shape = (3, 2)
    axis = draw(st.integers(0, len(shape) - 1))
    block, bits = draw(st.sampled_from([2, 4, 8])), draw(st.sampled_from([12, 16]))
    rounding = draw(st.sampled_from([0, 1, 2]))
    w = (rng.normal(0, 1, shape) * np.exp(rng.normal(0, 2, shape))).astype(np.float32)
    mantissa = bits - 9
    operand = np.empty(shape)
    for place in np.ndindex(shape):
        first = place[axis] // block * block
        line = w[(*place[:axis], slice(first, first + block), *place[axis + 1 :])]
        shared = max(math.frexp(float(v))[1] - 1 for v in line)
        step = 2.0 ** (shared - (mantissa - 1))
        x = float(w[place]) / step
        away = math.copysign(math.floor(abs(x) + 0.5), x)
        whole = {0: away, 1: math.floor(x + 0.5), 2: float(round(x))}[rounding]
        top = 2**mantissa - 1
        operand[place] = min(max(whole, -top), top) * step
    attributes = {"axis": axis, "block_size": block, "bit_width": bits, "rounding_mode": rounding}
    nodes = [node("BFPQuantizeDequantize", ["w"], ["q"], "q", "com.amd.quark", **attributes), READER]
    proto = model(nodes, [tensor("w", w), ZERO], [], [value("y")])
    return Sample(proto, "w", "reader", 0, operand, f"int{bits - 8}", "blocked", axis, block)


class TestBlockFloatingPoint(SchemeConformance):
    scheme = "bfp"

    def samples(self) -> st.SearchStrategy[Sample]:
        return _bfp()

    def malformed(self) -> Iterator[tuple[str, onnx.ModelProto]]:
        for op_type, attributes in (
            ("BFPQuantizeDequantize", {"bit_width": 3}),
            ("BFPQuantizeDequantize", {"block_size": 0}),
            ("BFPQuantizeDequantize", {"bfp_method": "to_nothing"}),
            ("BFPQuantizeDequantize", {"axis": 4}),
            ("BFPQuantizeDequantize", {"rounding_mode": 9}),
            ("MXQuantizeDequantize", {"element_dtype": "fp3"}),
        ):
            nodes = [node(op_type, ["w"], ["q"], "q", "com.amd.quark", **attributes), READER]
            yield str(attributes), model(nodes, [tensor("w", W.reshape(2, 5)), ZERO], [], [value("y")])


def test_quark_bfloat16_pair() -> None:
    """ExtendedQuantizeLinear with a bfloat16 zero point rounds to bfloat16."""
    w = np.random.default_rng(0).normal(0, 1, (3, 4)).astype(np.float32)
    tensors = [tensor("w", w), tensor("s", np.float32(1)), tensor("z", np.zeros(()), "bfloat16"), ZERO]
    nodes = [
        node("ExtendedQuantizeLinear", ["w", "s", "z"], ["c"], "q", "com.amd.quark"),
        node("ExtendedDequantizeLinear", ["c", "s", "z"], ["q"], "dq", "com.amd.quark"),
        READER,
    ]
    (site,) = find_sites(graph_of(model(nodes, tensors, [], [value("y")]))).sites
    np.testing.assert_array_equal(dequantized(site), w.astype(ml_dtypes.bfloat16).astype(np.float64))


@st.composite
def _fake_quantize(draw: st.DrawFn) -> Sample:
    rng = draw(generators())
    shape = draw(shapes(1, 3))
    levels = draw(st.sampled_from([2, 15, 16, 255, 256]))
    axis = draw(st.integers(0, len(shape) - 1))
    spread = tuple(n if k == axis else 1 for k, n in enumerate(shape)) if draw(st.booleans()) else ()
    low = -rng.uniform(0.1, 2, spread).astype(np.float32)
    high = rng.uniform(0.1, 2, spread).astype(np.float32)
    w = rng.normal(0, 1, shape).astype(np.float32)
    x, lo, hi = w.astype(np.float64), low.astype(np.float64), high.astype(np.float64)
    steps = np.where(x <= lo, 0, np.where(x > hi, levels - 1, np.rint((x - lo) / (hi - lo) * (levels - 1))))
    scale = (hi - lo) / (levels - 1)
    tensors = [tensor("w", w), tensor("lo", low), tensor("hi", high), ZERO]
    nodes = [
        node("FakeQuantize", ["w", "lo", "hi", "lo", "hi"], ["q"], "fq", "org.openvinotoolkit", levels=levels),
        READER,
    ]
    # the same sum as ONNX's (code − zero point)·scale, whose zero point is a fraction here
    operand = (steps - (-lo / scale)) * scale
    return Sample(
        model(nodes, tensors, [], [value("y")]), "w", "reader", 0, operand, f"uint{(levels - 1).bit_length()}"
    )


class TestFakeQuantize(SchemeConformance):
    scheme = "fake_quantize"

    def samples(self) -> st.SearchStrategy[Sample]:
        return _fake_quantize()

    def malformed(self) -> Iterator[tuple[str, onnx.ModelProto]]:
        for what, bound, levels in (
            ("bounds that do not fit", np.ones(5, np.float32), 256),
            ("no levels", np.float32(1), 0),
        ):
            tensors = [tensor("w", np.ones((3, 4), np.float32)), tensor("b", np.asarray(bound)), ZERO]
            nodes = [node("FakeQuantize", ["w"] + ["b"] * 4, ["q"], "fq", "org.openvinotoolkit", levels=levels), READER]
            yield what, model(nodes, tensors, [], [value("y")])


@st.composite
def _arithmetic(draw: st.DrawFn) -> Sample:
    """Cast, Sub and Mul written out; onnxruntime runs it."""
    rng = draw(generators())
    dtype = draw(st.sampled_from(["int8", "uint8", "int4", "uint4", "int16"]))
    shape = draw(shapes(1, 3))
    if math.prod(shape) < 2:
        shape = (2, 2)
    axis = draw(st.integers(0, len(shape) - 1))
    per_channel, shifted = draw(st.booleans()), draw(st.booleans())
    spread = tuple(n if k == axis else 1 for k, n in enumerate(shape)) if per_channel else ()
    q, scale = codes(rng, dtype, shape), scales(rng, spread)
    zero = codes(rng, "uint8", spread).astype(np.float32)
    nodes = [node("Cast", ["w"], ["f"], "cast", to=1)]
    if shifted:
        nodes.append(node("Sub", ["f", "z"], ["g"], "sub"))
    nodes += [node("Mul", ["s", "g" if shifted else "f"], ["q"], "mul"), READER]
    tensors = [tensor("w", q, dtype), tensor("s", scale), tensor("z", zero), ZERO]
    shift = zero.astype(np.float64) if shifted else 0.0
    operand = (q.astype(np.float64) - shift) * scale.astype(np.float64)
    one = not per_channel or shape[axis] == 1
    granularity = "per_tensor" if one else "per_channel"
    proto = model(nodes, tensors, [], [value("y")])
    return Sample(proto, "w", "reader", 0, operand, dtype, granularity, None if one else axis, feeds={})


class TestArithmetic(SchemeConformance):
    scheme = "arithmetic"
    oracle = "onnxruntime"

    def samples(self) -> st.SearchStrategy[Sample]:
        return _arithmetic()

    def run_oracle(self, sample: Sample) -> np.ndarray:
        return by_onnxruntime(sample.model, sample.feeds or {})


@pytest.mark.parametrize("kind", ["f8e4m3", "f8e5m2"])
def test_fake_convert(kind: str) -> None:
    """Rounds x·scale − shift to float8. (OpenVINO's own runtime agreed to 5e-8.)"""
    w = np.array([[0.1, -1.7, 300.0, 1e5]], np.float32)
    tensors = [tensor("w", w), tensor("s", np.float32(4)), tensor("b", np.float32(0.25)), ZERO]
    nodes = [node("FakeConvert", ["w", "s", "b"], ["q"], "fc", "org.openvinotoolkit", destination_type=kind), READER]
    (site,) = find_sites(graph_of(model(nodes, tensors, [], [value("y")]))).sites
    narrow = ml_dtypes.float8_e4m3fn if kind == "f8e4m3" else ml_dtypes.float8_e5m2
    top = float(ml_dtypes.finfo(narrow).max)
    codes_of = np.clip(w * 4 - np.float32(0.25), -top, top).astype(narrow).astype(np.float64)
    np.testing.assert_array_equal(dequantized(site), (codes_of + 0.25) * 0.25)
