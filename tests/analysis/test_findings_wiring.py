"""Graphs that compute something else: planted in a real quantized file; and silence on every sound pair."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.align import pairs as shared
from tests.analysis import faults
from tests.shared import corpus_folder
from visualquant.analysis.findings import wiring
from visualquant.analysis.findings.context import Context
from visualquant.core.report import Report
from visualquant.errors import VisualQuantError
from visualquant.session.pipeline import align_models, load_model

FEW = 12  # the quick test takes every so many pairs


@pytest.fixture
def model(corpus: Path) -> onnx.ModelProto:
    return onnx.load(corpus / "digits_resnet" / "ort_qdq_s8s8_pc.onnx")


def _report(model: onnx.ModelProto, folder: Path) -> Report:
    path = folder / "quant.onnx"
    onnx.save(model, path)
    return faults.compared("digits_resnet", (shared.CORPUS / "digits_resnet" / "fp32.onnx", path))


def test_a_skip_that_comes_from_elsewhere(model: onnx.ModelProto, tmp_path: Path) -> None:
    (add,) = (n for n in model.graph.node if n.name == "/l/l.0/Add")
    assert add.input[1] == "/stem/stem.2/Relu_output_0_DequantizeLinear_Output"
    add.input[1] = "/l/l.0/Relu_output_0_DequantizeLinear_Output"
    finding = _report(model, tmp_path).findings[0]
    assert (finding.code, finding.severity, finding.where) == ("WIRED_DIFFERENTLY", "error", {})
    assert finding.float_value == "/stem/stem.2/Relu_output_0" and "/l/l.0/Relu_output_0" in finding.what


def test_another_pooling(model: onnx.ModelProto, tmp_path: Path) -> None:
    (pool,) = (n for n in model.graph.node if n.op_type == "GlobalAveragePool")
    pool.op_type = "GlobalMaxPool"
    finding = _report(model, tmp_path).findings[0]
    assert (finding.code, finding.severity) == ("OPERATOR_REPLACED", "error")
    assert "GlobalMaxPool" in finding.what and "float model has GlobalAveragePool" in finding.what


def test_a_difference_for_a_sum(model: onnx.ModelProto, tmp_path: Path) -> None:
    (add,) = (n for n in model.graph.node if n.name == "/l/l.1/Add")
    add.op_type = "Sub"
    finding = _report(model, tmp_path).findings[0]
    assert (finding.code, finding.severity) == ("OPERATOR_REPLACED", "error") and "has Add" in finding.what


def _sound() -> list[shared.Pair]:
    if corpus_folder() is None:
        return []
    return [*shared.corpus_pairs(), *shared.cross_pairs()]


def _silent(pair: shared.Pair) -> None:
    try:
        models = load_model(pair.float_path), load_model(pair.quant_path)
    except VisualQuantError:
        return
    context = Context(*models, align_models(*models))
    found = [draft.what for rule in wiring.RULES for draft in rule(context)]
    assert found == [], pair.name


def test_silence_on_some_sound_pairs() -> None:
    for pair in _sound()[::FEW]:
        _silent(pair)


@pytest.mark.slow
def test_silence_on_every_sound_pair() -> None:
    for pair in _sound():
        _silent(pair)
