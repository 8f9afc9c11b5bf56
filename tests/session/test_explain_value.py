"""One number walked through the quantizer: every station against the formula, on files of several schemes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from visualquant.analysis.walk import walk
from visualquant.analysis.weights import paired_arrays
from visualquant.cli.main import run
from visualquant.core.quant import QuantParams
from visualquant.core.tensors import ELEMENT_TYPES
from visualquant.runtime.feeds import FeedOptions
from visualquant.session.explain_value import explain_value
from visualquant.session.pipeline import align_models, load_model
from visualquant.session.with_data import DataOptions


@pytest.fixture
def folder(corpus: Path) -> Path:
    return corpus / "digits_resnet"


def _array(path: Path, name: str) -> np.ndarray:
    return numpy_helper.to_array(next(i for i in onnx.load(path).graph.initializer if i.name == name))


def test_a_weight_per_channel(folder: Path) -> None:
    paths, name, index = (folder / "fp32.onnx", folder / "ort_qdq_s8s8_pc.onnx"), "onnx::Conv_107", (5, 1, 2, 0)
    found = explain_value(*paths, name, index=index)
    x, codes, scale = _array(paths[0], name), *(_array(paths[1], f"{name}_{s}") for s in ("quantized", "scale"))
    assert (found.index, found.channel, found.granularity, found.code_type) == (index, 5, "per_channel", "int8")
    assert found.x == x[index] and found.scale == scale[5] and found.zero_point == 0
    assert found.divided == pytest.approx(float(x[index]) / float(scale[5]), rel=1e-12)
    assert found.rounded == found.shifted == found.expected == found.code == codes[index]
    assert found.dequantized == pytest.approx(float(codes[index]) * float(scale[5]), rel=1e-12)
    assert found.error == pytest.approx(found.x - found.dequantized, abs=1e-15) and not found.is_clipped
    worst = explain_value(*paths, name)
    error = np.abs(x.astype(np.float64) - codes * scale.astype(np.float64)[:, None, None, None])
    assert abs(worst.error) == pytest.approx(error.max()) and worst.index == np.unravel_index(error.argmax(), x.shape)


@pytest.mark.parametrize(
    "file", ["ort_qop_u8s8_pc", "ort_dyn_u8w", "ort_qdq_a8w4_pc", "../mnist_vit/ort_nbits4_b32_sym", "modelopt_fp8"]
)
def test_schemes(file: str, folder: Path) -> None:
    quant_path = (folder / f"{file}.onnx").resolve()
    paths = quant_path.parent / "fp32.onnx", quant_path
    models = load_model(paths[0]), load_model(paths[1])
    names = [p.value for p in paired_arrays(*models, align_models(*models)) if p.role == "weight" and p.arrays()[2]]
    found = explain_value(*paths, names[0])
    assert found.code is not None
    assert found.error == pytest.approx(found.x - found.dequantized, abs=1e-12)
    if found.limits is not None:
        assert found.limits[0] <= found.code <= found.limits[1]
        assert found.dequantized == pytest.approx((found.code - found.zero_point) * found.scale, rel=1e-6)


def test_an_activation_needs_samples(folder: Path, corpus: Path) -> None:
    paths = folder / "fp32.onnx", folder / "ort_qdq_s8s8_pc.onnx"
    data = DataOptions(str(corpus / "data" / "digits.npz"), feeds=FeedOptions(limit=9))
    with pytest.raises(Exception, match="Activations need --data"):
        explain_value(*paths, "logits")
    found = explain_value(*paths, "logits", index=(0, 3), data=data)
    assert found.role == "activation" and found.code is None and found.index == (0, 3) and found.shape == (1, 10)
    assert found.expected == np.clip(np.rint(found.x / found.scale) + found.zero_point, -128, 127)
    assert abs(found.error) <= found.scale / 2 * 1.001 or found.is_clipped


def test_golden_clip() -> None:
    params = QuantParams(ELEMENT_TYPES["int8"], np.array(0.1))
    x, codes = np.array([-0.26, 0, 0.26, 20]), np.array([-3, 0, 3, 127], np.int8)
    found = walk(x, params, codes, None, value="q", float_value="x", role="weight")
    assert found.index == (3,) and found.is_clipped and found.shifted == 200 and found.expected == 127
    assert found.error == pytest.approx(7.3) and found.error_in_steps == pytest.approx(73)
    odd = walk(x, params, np.array([-3, 1, 3, 127], np.int8), (1,), value="q", float_value="x", role="weight")
    assert odd.code == 1 and odd.expected == 0


def test_the_command_shows_the_stations(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = [str(folder / "fp32.onnx"), str(folder / "ort_qdq_s8s8_pc.onnx")]
    assert run(["explain", *pair, "--value", "onnx::Conv_107", "--index", "0,1,2,0"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("x / scale", "half to even", "code in the file", "x̂", "rounding only"))


@pytest.mark.parametrize(
    ("options", "telling"),
    [
        (["--value", "onnx::Conv_17"], "Did you mean 'onnx::Conv_107'"),
        (["--value", "onnx::Conv_107", "--index", "900,0,0,0"], "outside shape [64, 32, 3, 3]"),
        (["--value", "onnx::Conv_107", "--index", "a"], "whole numbers"),
        ([], "--value NAME"),
    ],
)
def test_what_is_wrong_is_said(
    options: list[str], telling: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = [str(folder / "fp32.onnx"), str(folder / "ort_qdq_s8s8_pc.onnx")]
    assert run(["explain", *pair, *options]) == 2
    assert telling in " ".join(capsys.readouterr().err.split())
