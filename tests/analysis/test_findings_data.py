"""Faults planted in a real quantized file: the right layer and code come first; and no error on the sound file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import visualquant
from tests.models import save
from visualquant.core.report import Report
from visualquant.runtime.feeds import FeedOptions
from visualquant.session.with_data import DataOptions

ACTIVATIONS = (
    "/stem/stem.2/Relu_output_0",
    "/l/l.0/Relu_output_0",
    "/l/l.0/c2/Conv_output_0",
    "/l/l.0/Relu_1_output_0",
    "/l/l.1/Relu_output_0",
    "/l/l.1/sk/sk.0/Conv_output_0",
    "/l/l.1/c2/Conv_output_0",
    "/l/l.1/Relu_1_output_0",
    "/l/l.2/Relu_output_0",
    "/l/l.2/sk/sk.0/Conv_output_0",
    "/l/l.2/c2/Conv_output_0",
    "/l/l.2/Relu_1_output_0",
    "/GlobalAveragePool_output_0",
    "logits",
)
BIASES = tuple(f"onnx::Conv_{k}" for k in (90, 93, 96, 99, 102, 105, 108, 111, 114))
QUICK = 4  # every so many layers; all of them in the slow tests
Edit = Callable[[onnx.ModelProto], None]


def get(proto: onnx.ModelProto, name: str) -> np.ndarray:
    return numpy_helper.to_array(next(i for i in proto.graph.initializer if i.name == name))


def put(proto: onnx.ModelProto, name: str, array: np.ndarray) -> None:
    old = next(i for i in proto.graph.initializer if i.name == name)
    old.CopyFrom(numpy_helper.from_array(np.asarray(array), name))


def _some(names: Sequence[str]) -> list[Any]:
    return [n if k % QUICK == 0 else pytest.param(n, marks=pytest.mark.slow) for k, n in enumerate(names)]


@pytest.fixture
def broken(corpus: Path, tmp_path: Path) -> Callable[..., Report]:
    def compare(edit: Edit, *, file: str = "ort_qdq_s8s8_pc", float_edit: Edit | None = None) -> Report:
        folder = corpus / "digits_resnet"
        ours, theirs = onnx.load(folder / "fp32.onnx"), onnx.load(folder / f"{file}.onnx")
        if float_edit is not None:
            float_edit(ours)
        edit(theirs)
        paths = save(ours, tmp_path / "f.onnx"), save(theirs, tmp_path / "q.onnx")
        data = str(corpus / "data" / "digits.npz")
        return visualquant.compare(*paths, data=DataOptions(data, feeds=FeedOptions(limit=64, batch=64), profile=False))

    return compare


def first(report: Report) -> tuple[str, set[str]]:
    """The code of the first finding that is not information, and all names that it points to."""
    finding = next(f for f in report.findings if f.severity != "info")
    names = {finding.value, finding.float_value, finding.node, *map(str, finding.where.values())}
    for group in (g for g in report.alignment if g.group in finding.groups):
        for side, ids in (("float", group.float), ("quant", group.quant)):
            names |= {n.name for n in report.nodes[side] if n.id in ids}
    return finding.code, {n for n in names if n}


def _as_it_is(_proto: onnx.ModelProto) -> None:
    """No edit."""


@pytest.mark.parametrize("file", ["ort_qdq_s8s8_pc", "ort_qdq_u8u8_pt", "ort_qop_u8u8_pt"])
def test_sound_files_have_no_error(file: str, broken: Callable[..., Report]) -> None:
    report = broken(_as_it_is, file=file)
    assert [(f.code, f.value) for f in report.findings if f.severity == "error"] == []


@pytest.mark.parametrize("value", _some(ACTIVATIONS))
def test_a_range_cut_to_a_third(value: str, broken: Callable[..., Report]) -> None:
    def cut(proto: onnx.ModelProto) -> None:
        put(proto, f"{value}_scale", get(proto, f"{value}_scale") / np.float32(3))

    code, names = first(broken(cut))
    assert code == "ACT_CLIPPED" and any(n.startswith(value) for n in names), names


@pytest.mark.parametrize("value", _some((*ACTIVATIONS[:2], *ACTIVATIONS[3:5], *ACTIVATIONS[7:9], ACTIVATIONS[11])))
def test_a_zero_point_at_the_other_end(value: str, broken: Callable[..., Report]) -> None:
    def swap(proto: onnx.ModelProto) -> None:
        put(proto, f"{value}_zero_point", (-1 - get(proto, f"{value}_zero_point").astype(int)).astype(np.int8))

    code, names = first(broken(swap))
    assert code == "ACT_CLIPPED" and any(n.startswith(value) for n in names), names


@pytest.mark.parametrize("bias", _some(BIASES))
def test_a_wrong_bias_scale(bias: str, broken: Callable[..., Report]) -> None:
    def scale(proto: onnx.ModelProto) -> None:
        put(proto, f"{bias}_quantized_scale", get(proto, f"{bias}_quantized_scale") * np.float32(8))

    code, names = first(broken(scale))
    assert code == "BIAS_SCALE" and any(n.startswith(bias) for n in names), (code, names)


CONV, BIAS, NEXT, NEXT_BIAS = "onnx::Conv_107", "onnx::Conv_108", "onnx::Conv_110", "onnx::Conv_111"


def test_one_channel_scaled_by_50_under_one_scale(broken: Callable[..., Report], corpus: Path) -> None:
    """The next layer takes the factor back, so that the float model computes what it did."""

    def scaled(proto: onnx.ModelProto) -> None:
        for name, axis, factor in ((CONV, 0, 50), (BIAS, 0, 50), (NEXT, 1, 0.02)):
            array = get(proto, name).copy()
            array[(slice(None),) * axis + (3,)] *= np.float32(factor)
            put(proto, name, array)

    def quantized(proto: onnx.ModelProto) -> None:
        ours = onnx.load(corpus / "digits_resnet" / "fp32.onnx")
        scaled(ours)
        value = "/l/l.2/Relu_output_0"
        ours.graph.output.append(onnx.ValueInfoProto(name=value))
        with np.load(corpus / "data" / "digits.npz") as arrays:
            feeds = {"input": arrays["calib_input"][:64]}
        session = ort.InferenceSession(ours.SerializeToString(), providers=["CPUExecutionProvider"])
        step = np.float32(session.run([value], feeds)[0].max() / 255)
        source = get(proto, "/l/l.1/Relu_1_output_0_scale")
        put(proto, f"{value}_scale", step)
        for weight, bias, before in ((CONV, BIAS, source), (NEXT, NEXT_BIAS, step)):
            w, b = get(ours, weight), get(ours, bias)
            one = np.float32(np.abs(w).max() / 127)
            low, high = (1, 255) if get(proto, f"{weight}_zero_point").dtype == np.uint8 else (-127, 127)
            zero = get(proto, f"{weight}_zero_point")
            put(proto, f"{weight}_quantized", np.clip(np.rint(w / one) + zero, low, high).astype(zero.dtype))
            put(proto, f"{weight}_scale", one)
            shape = get(proto, f"{bias}_quantized_scale").shape
            put(proto, f"{bias}_quantized_scale", np.full(shape, one * before, np.float32))
            put(proto, f"{bias}_quantized", np.rint(b / (one * before)).astype(np.int32))

    code, names = first(broken(quantized, file="ort_qdq_s8s8_pt", float_edit=scaled))
    assert code == "WEIGHT_ONE_SCALE" and any(n.startswith(CONV) for n in names), (code, names)
