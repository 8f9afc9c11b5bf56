"""Each finding that files alone can show: planted once, and silent on a sound pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import visualquant
from tests.models import mlp, mlp_qdq, model, quantized_mlp, save, tensor
from visualquant.core.report import Finding, Report

RNG = np.random.default_rng(23)
WEIGHT = RNG.normal(size=(32, 16)).astype(np.float32)
KERNEL = RNG.normal(size=(8, 4, 3, 3)).astype(np.float32)
IMAGE = [("x", (1, 4, 8, 8))]


@pytest.fixture
def compare(tmp_path: Path) -> Any:
    def run(float_model: onnx.ModelProto, quant_model: onnx.ModelProto) -> Report:
        return visualquant.compare(save(float_model, tmp_path / "f.onnx"), save(quant_model, tmp_path / "q.onnx"))

    return run


def found(report: Report, code: str) -> Finding:
    hits = [f for f in report.findings if f.code == code]
    assert hits, [f.code for f in report.findings]
    return hits[0]


def codes(report: Report) -> set[str]:
    return {f.code for f in report.findings}


def q(array: np.ndarray, scale: np.ndarray | float, low: int = -127, high: int = 127) -> np.ndarray:
    return np.clip(np.rint(array / scale), low, high).astype(np.int8)


def per_row(kernel: np.ndarray) -> np.ndarray:
    return (np.abs(kernel).reshape(kernel.shape[0], -1).max(axis=1) / 127).astype(np.float32)


def qdq(value: str, scale: float, zero: int = 0, dtype: Any = np.int8) -> tuple[list[onnx.NodeProto], list[Any], str]:
    """Quantize and dequantize a value; (nodes, initializers, name of the dequantized value)."""
    inits = [tensor(f"{value}_s", np.float32(scale)), tensor(f"{value}_z", dtype(zero))]
    inputs = [f"{value}_s", f"{value}_z"]
    nodes = [
        helper.make_node("QuantizeLinear", [value, *inputs], [f"{value}_q"], name=f"{value}_Q"),
        helper.make_node("DequantizeLinear", [f"{value}_q", *inputs], [f"{value}_dq"], name=f"{value}_DQ"),
    ]
    return nodes, inits, f"{value}_dq"


def conv_net(
    *, kernel: np.ndarray = KERNEL, act: str | None = "Relu", bias: np.ndarray | None = None
) -> onnx.ModelProto:
    inits = [tensor("k", kernel)] + ([tensor("b", bias)] if bias is not None else [])
    inputs = ["x", "k"] + (["b"] if bias is not None else [])
    nodes = [helper.make_node("Conv", inputs, ["c" if act else "y"], name="conv", kernel_shape=[3, 3])]
    if act:
        nodes.append(helper.make_node(act, ["c"], ["y"], name="act"))
    return model(nodes, inits, inputs=IMAGE)


def quantized_conv(
    *,
    act: str | None = "Relu",
    between: bool = False,
    out: tuple[float, int, Any] = (0.1, 0, np.uint8),
    bias: tuple[np.ndarray, np.ndarray] | None = None,
    image: tuple[float, int, Any] = (0.05, 0, np.int8),
) -> onnx.ModelProto:
    scale = per_row(KERNEL)
    pre, inits, data = qdq("x", image[0], image[1], image[2])
    inits += [tensor("k_q", q(KERNEL, scale[:, None, None, None])), tensor("k_s", scale)]
    nodes = [*pre, helper.make_node("DequantizeLinear", ["k_q", "k_s"], ["k"], name="k_DQ", axis=0)]
    inputs = [data, "k"]
    if bias is not None:
        inits += [tensor("b_q", bias[0]), tensor("b_s", bias[1])]
        nodes.append(helper.make_node("DequantizeLinear", ["b_q", "b_s"], ["b"], name="b_DQ", axis=0))
        inputs.append("b")
    nodes.append(helper.make_node("Conv", inputs, ["c"], name="conv", kernel_shape=[3, 3]))
    last = "c"
    if between:
        more, extra, last = qdq("c", 0.1)
        nodes, inits = nodes + more, inits + extra
    if act:
        nodes.append(helper.make_node(act, [last], ["a"], name="act"))
        last = "a"
    more, extra, _ = qdq(last, *out)
    more[-1].output[0] = "y"
    return model(nodes + more, inits + extra, inputs=IMAGE)


def test_sound_pairs_are_silent(compare: Any) -> None:
    assert compare(mlp(WEIGHT), quantized_mlp(WEIGHT)).findings == ()
    assert not [f for f in compare(conv_net(), quantized_conv()).findings if f.severity != "info"]


def test_weight_clipped(compare: Any) -> None:
    report = compare(mlp(WEIGHT), mlp_qdq(q(WEIGHT, 0.01), np.float32(0.01)))
    finding = found(report, "WEIGHT_CLIPPED")
    assert finding.value == "w_q" and finding.severity == "warning" and finding.numbers["clipped"] > 0


def test_weight_one_scale(compare: Any) -> None:
    weight = WEIGHT * np.logspace(0, -3, 16).astype(np.float32)
    scale = np.float32(np.abs(weight).max() / 127)
    finding = found(compare(mlp(weight), mlp_qdq(q(weight, scale), scale)), "WEIGHT_ONE_SCALE")
    assert finding.severity == "warning" and finding.where["channel"] in range(8, 16)
    assert float(finding.numbers["gain_db"]) > 12


def test_weight_outlier_in_block(compare: Any) -> None:
    weight = (WEIGHT * 0.05).astype(np.float32)
    weight[[5, 13, 21], [3, 4, 5]] = 20
    blocks = np.abs(weight).reshape(4, 8, 16).max(axis=1) / 7
    codes_ = np.clip(np.rint(weight / np.repeat(blocks, 8, axis=0)), -7, 7).astype(ml_dtypes.int4)
    quant = mlp_qdq(codes_, blocks.astype(np.float32), axis=0, block_size=8)
    finding = found(compare(mlp(weight), quant), "WEIGHT_OUTLIER_IN_BLOCK")
    assert float(finding.numbers["share"]) == pytest.approx(3 / 64)


def test_weight_wrong_axis(compare: Any) -> None:
    weight = WEIGHT * np.logspace(0, -2, 16).astype(np.float32)
    scale = (np.abs(weight).max(axis=1) / 127).astype(np.float32)
    quant = mlp_qdq(q(weight, scale[:, None]), scale, axis=0)
    finding = found(compare(mlp(weight), quant), "WEIGHT_WRONG_AXIS")
    assert finding.where == {"axis": 0, "output_axis": 1} and finding.settings == "axis = 1"


def test_weight_mismatch(compare: Any) -> None:
    other = RNG.normal(size=WEIGHT.shape).astype(np.float32)
    assert found(compare(mlp(WEIGHT), quantized_mlp(other)), "WEIGHT_MISMATCH").severity == "error"
    drifted = WEIGHT + 0.1 * other  # a later checkpoint of the same training
    assert found(compare(mlp(WEIGHT), quantized_mlp(drifted)), "WEIGHT_MISMATCH").severity == "error"


def test_weight_unclaimed(compare: Any) -> None:
    codes_ = RNG.integers(-100, 100, size=(32, 16)).astype(np.int8)
    nodes = [
        helper.make_node("Magic", ["x", "w_q"], ["m"], name="magic", domain="org.foreign"),
        helper.make_node("Relu", ["m"], ["y"], name="act"),
    ]
    quant = model(nodes, [tensor("w_q", codes_)], inputs=[("x", (1, 32))], extra_opsets=[("org.foreign", 1)])
    report = compare(mlp(WEIGHT), quant)
    assert found(report, "WEIGHT_UNCLAIMED").value == "w_q"
    assert "UNKNOWN_OPERATOR" in codes(report)
    assert "NOT_QUANTIZED" not in codes(report)


def test_weight_of_a_quantizer_that_no_reader_knows(compare: Any) -> None:
    domain = "qonnx.custom_op.general"
    settings = {"one": 1.0, "exponent_bits": 4.0, "mantissa_bits": 3.0, "bias": 7.0, "largest": 448.0}
    nodes = [
        helper.make_node("FloatQuant", ["w", *settings], ["w_q"], name="quant", domain=domain),
        helper.make_node("MatMul", ["x", "w_q"], ["m"], name="fc"),
        helper.make_node("Relu", ["m"], ["y"], name="act"),
    ]
    inits = [tensor("w", WEIGHT), *(tensor(k, np.float32(v)) for k, v in settings.items())]
    report = compare(mlp(WEIGHT), model(nodes, inits, inputs=[("x", (1, 32))], extra_opsets=[(domain, 1)]))
    assert found(report, "WEIGHT_UNCLAIMED").value == "w"
    assert "NOT_QUANTIZED" not in codes(report)
    assert "no reader understands" in report.summary.sentence


def test_weight_at_run_time(compare: Any) -> None:
    nodes, inits, dequantized = qdq("w", np.abs(WEIGHT).max() / 127)
    nodes += [
        helper.make_node("MatMul", ["x", dequantized], ["m"], name="fc"),
        helper.make_node("Relu", ["m"], ["y"], name="act"),
    ]
    quant = model(nodes, [*inits, tensor("w", WEIGHT)], inputs=[("x", (1, 32))])
    report = compare(mlp(WEIGHT), quant)
    assert found(report, "WEIGHT_AT_RUN_TIME").value == "w"
    assert 35 < float(report.weights[0].metrics["sqnr_db"]) < 50


def test_weight_stored_float(compare: Any) -> None:
    scale = np.float32(np.abs(WEIGHT).max() / 127)
    pre, inits, data = qdq("x", 0.05)
    folded = q(WEIGHT, scale).astype(np.float32) * scale
    nodes = [*pre, helper.make_node("MatMul", [data, "w"], ["m"], name="fc"), helper.make_node("Relu", ["m"], ["y"])]
    quant = model(nodes, [*inits, tensor("w", folded)], inputs=[("x", (1, 32))])
    assert found(compare(mlp(WEIGHT), quant), "WEIGHT_STORED_FLOAT").value == "w"


def test_weight_float_copy(compare: Any) -> None:
    quant = quantized_mlp(WEIGHT)
    quant.graph.initializer.append(tensor("w_left", WEIGHT))
    quant.graph.node[0].output[0] = "w_dq"
    quant.graph.node[1].input[1] = "w_dq"
    quant.graph.initializer[-1].name = "w"
    assert found(compare(mlp(WEIGHT), quant), "WEIGHT_FLOAT_COPY").value == "w"


def test_bias_overflow_and_scale(compare: Any) -> None:
    bias = np.linspace(0.5, 1, 8).astype(np.float32)
    scale = (per_row(KERNEL) * 0.05).astype(np.float32)
    right = np.rint(bias / scale).astype(np.int32)
    sound = compare(conv_net(bias=bias), quantized_conv(bias=(right, scale)))
    assert not {"BIAS_OVERFLOW", "BIAS_SCALE"} & codes(sound)
    (row,) = [w for w in sound.weights if w.role == "bias"]
    assert row.code_type == "int32" and float(row.metrics["sqnr_db"]) > 60

    cut, tiny = right.copy(), scale.copy()
    cut[3], tiny[3] = np.iinfo(np.int32).max, 1e-12
    finding = found(compare(conv_net(bias=bias), quantized_conv(bias=(cut, tiny))), "BIAS_OVERFLOW")
    assert finding.severity == "error" and finding.where["channel"] == 3

    wrong = compare(conv_net(bias=bias), quantized_conv(bias=((right / 2).astype(np.int32), scale * 2)))
    assert found(wrong, "BIAS_SCALE").value == "b_q"


def test_pad_with_another_code(compare: Any) -> None:
    def net(fill: int | None) -> onnx.ModelProto:
        inits = [tensor("pads", np.int64([0, 0, 1, 1, 0, 0, 1, 1]))]
        if fill is None:
            return model([helper.make_node("Pad", ["x", "pads"], ["y"], name="pad")], inits, inputs=IMAGE)
        nodes, more, _ = qdq("x", 0.1, 40, np.uint8)
        nodes[1].input[0] = "p"
        pad = helper.make_node("Pad", ["x_q", "pads", "fill"], ["p"], name="pad")
        nodes[1].output[0] = "y"
        return model([nodes[0], pad, nodes[1]], [*inits, *more, tensor("fill", np.uint8(fill))], inputs=IMAGE)

    finding = found(compare(net(None), net(0)), "ACT_PAD_ZERO_POINT")
    assert finding.numbers["zero_point"] == 40 and float(finding.numbers["value"]) == pytest.approx(-4)
    assert "ACT_PAD_ZERO_POINT" not in codes(compare(net(None), net(40)))


def test_activation_lost(compare: Any) -> None:
    lost = compare(conv_net(), quantized_conv(act=None, out=(0.1, 0, np.int8)))
    assert found(lost, "ACT_LOST").where["float_node"] == "act"
    cut_by_range = compare(conv_net(), quantized_conv(act=None, out=(0.1, 0, np.uint8)))
    assert "ACT_LOST" not in codes(cut_by_range)


def test_qdq_inside_a_fusable_pattern(compare: Any) -> None:
    assert found(compare(conv_net(), quantized_conv(between=True)), "QDQ_BLOCKS_FUSION").where["then"] == "act"


def _concat(float_only: bool, step: float = 2.5) -> onnx.ModelProto:
    shapes = [("x", (1, 4)), ("z", (1, 4))]
    nodes = [helper.make_node("Sigmoid", ["x"], ["s"], name="score"), helper.make_node("Neg", ["z"], ["n"], name="box")]
    if float_only:
        nodes.append(helper.make_node("Concat", ["s", "n"], ["y"], name="join", axis=1))
        return model(nodes, inputs=shapes)
    inits = []
    names = []
    for value, own in (("s", step), ("n", step)):
        more, extra, name = qdq(value, own, 0, np.uint8)
        nodes, inits, names = nodes + more, inits + extra, [*names, name]
    more, extra, _ = qdq("j", step, 0, np.uint8)
    more[-1].output[0] = "y"
    nodes += [helper.make_node("Concat", names, ["j"], name="join", axis=1), *more]
    return model(nodes, inits + extra, inputs=shapes)


def test_join_of_very_different_ranges(compare: Any) -> None:
    finding = found(compare(_concat(True), _concat(False)), "JOIN_MIXED_RANGES")
    assert finding.where["node"] == "join" and finding.value == "s"
    assert "JOIN_MIXED_RANGES" not in codes(compare(_concat(True), _concat(False, step=1 / 255)))


def test_back_to_back_pairs(compare: Any) -> None:
    first, inits, name = qdq("x", 0.05)
    second, more, _ = qdq(name, 0.06)
    second[-1].output[0] = "y"
    float_model = model([helper.make_node("Identity", ["x"], ["y"], name="same")])
    assert "QDQ_REDUNDANT" in codes(compare(float_model, model([*first, *second], [*inits, *more])))


def test_opset_too_old(compare: Any) -> None:
    quant = quantized_mlp(WEIGHT)
    quant.opset_import[0].version = 12
    assert "OPSET_TOO_OLD" in codes(compare(mlp(WEIGHT), quant))


def test_duplicate_names(compare: Any) -> None:
    quant = quantized_mlp(WEIGHT)
    for node in quant.graph.node:
        node.name = "same"
    assert found(compare(mlp(WEIGHT), quant), "DUPLICATE_NAMES").numbers["nodes"] == 3


def test_attributes_differ(compare: Any) -> None:
    def net(epsilon: float) -> onnx.ModelProto:
        inits = [tensor("g", np.ones(4, np.float32)), tensor("b", np.zeros(4, np.float32))]
        node = helper.make_node("LayerNormalization", ["x", "g", "b"], ["y"], name="norm", epsilon=epsilon)
        return model([node], inits)

    finding = found(compare(net(1e-5), net(1e-6)), "ATTRIBUTES_DIFFER")
    assert finding.where["attribute"] == "epsilon" and "1e-06" in finding.what
    assert "ATTRIBUTES_DIFFER" not in codes(compare(net(1e-5), net(1e-5)))


def test_preprocessing_in_one_model_only(compare: Any) -> None:
    quant = quantized_conv()
    nodes = list(quant.graph.node)
    del quant.graph.node[:]
    quant.graph.node.extend(
        [
            helper.make_node("Sub", ["x", "mean"], ["x0"], name="minus_mean"),
            helper.make_node("Div", ["x0", "std"], ["x1"], name="by_std"),
            *nodes,
        ]
    )
    quant.graph.node[2].input[0] = "x1"
    quant.graph.initializer.extend([tensor("mean", np.float32(0.4)), tensor("std", np.float32(0.2))])
    assert found(compare(conv_net(), quant), "PREPROCESSING_ONE_SIDE").where["node"] == "minus_mean"


def test_layout_differs(compare: Any) -> None:
    quant = conv_net()
    quant.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8, 8, 4]))
    quant.graph.node.insert(0, helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2], name="to_nchw"))
    quant.graph.node[1].input[0] = "t"
    assert found(compare(conv_net(), quant), "LAYOUT_DIFFERS").value == "x"


def test_half_precision_range(compare: Any) -> None:
    weight = WEIGHT.copy()
    weight[0, 0], weight[1, 1] = 1e6, 1e-9
    half = mlp(weight)
    with np.errstate(over="ignore"):
        half.graph.initializer[0].CopyFrom(tensor("w_h", weight.astype(np.float16)))
    half.graph.node.insert(0, helper.make_node("Cast", ["w_h"], ["w"], to=onnx.TensorProto.FLOAT, name="widen"))
    report = compare(mlp(weight), half)
    assert found(report, "FP16_OVERFLOW").severity == "error"
    assert found(report, "FP16_UNDERFLOW").numbers["elements"] == 1
    assert "WEIGHT_NON_FINITE" not in codes(report) and "NOT_QUANTIZED" not in codes(report)


def test_uint8_by_full_range_int8_may_saturate(compare: Any) -> None:
    quant = quantized_conv(image=(0.05, 128, np.uint8))
    assert found(compare(conv_net(), quant), "RUNTIME_SATURATES").severity == "info"


def test_ids_are_stable_and_groups_exist(compare: Any) -> None:
    quant = mlp_qdq(q(WEIGHT, 0.01), np.float32(0.01))
    one, two = compare(mlp(WEIGHT), quant), compare(mlp(WEIGHT), quant)
    assert [f.id for f in one.findings] == [f.id for f in two.findings]
    groups = {g.group for g in one.alignment}
    assert all(set(f.groups) <= groups for f in one.findings)
    ranks = [{"error": 0, "warning": 1, "info": 2}[f.severity] for f in one.findings]
    assert ranks == sorted(ranks)
