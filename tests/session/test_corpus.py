"""Every pair of the corpus that a quantizer wrote: schema, partition, alignment score, figures."""

from __future__ import annotations

import functools
import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import numpy as np
import pytest

from tests.conftest import corpus_folder
from tests.reference import naive
from visualquant.analysis.weights import WeightOptions, measure_weights
from visualquant.core.report import Report
from visualquant.reports.json_report import schema, to_plain
from visualquant.session.pipeline import align_models, compare_models, load_model

# What quantizers wrote; optimised and simplified files belong to the alignment's tests.
# The shared tools leave files to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
WRITTEN = ("ort_qdq_", "ort_qop_", "ort_dyn_", "nncf_", "modelopt_", "brevitas_", "inc_", "quark_")
RELATIVE = 1e-6
DECIBEL = 1e-4


def _pairs() -> list[tuple[str, str]]:
    folder = corpus_folder()
    if folder is None:
        return []
    index = json.loads((folder / "index.json").read_text())
    return [
        (f"{m['model']}/fp32.onnx", m["file"])
        for m in index
        if m["file"].endswith(".onnx") and m["variant"].startswith(WRITTEN) and "__ortopt" not in m["variant"]
    ]


@functools.cache
def _tool(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("alignment_truth", folder / "alignment_truth.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["alignment_truth"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema())


@pytest.mark.parametrize(("float_file", "quant_file"), _pairs(), ids=lambda f: f)
def test_pair(
    float_file: str,
    quant_file: str,
    corpus: Path,
    tmp_path: Path,
    validator: jsonschema.Draft202012Validator,
    capsys: pytest.CaptureFixture[str],
) -> None:
    float_model, quant_model = load_model(corpus / float_file), load_model(corpus / quant_file)
    report = compare_models(float_model, quant_model)
    plain = to_plain(report)
    validator.validate(plain)
    _partition(report)

    path = tmp_path / "report.json"
    path.write_text(json.dumps(plain))
    tool = _tool(corpus.parent / "tools")
    assert tool.score(str(corpus / float_file), str(corpus / quant_file), str(path), None) == 0
    score = json.loads(capsys.readouterr().out)
    assert score["partition"] and score["f1"] >= 0.98, score


def _partition(report: Report) -> None:
    for side in ("float", "quant"):
        placed = [n for g in report.alignment for n in getattr(g, side)]
        assert sorted(placed) == sorted(n.id for n in report.nodes[side])
    for group in report.alignment:
        if group.kind in ("inserted", "removed"):
            assert group.reason


@pytest.mark.parametrize(("float_file", "quant_file"), _pairs(), ids=lambda f: f)
def test_metrics_equal_the_reference(float_file: str, quant_file: str, corpus: Path) -> None:
    float_model, quant_model = load_model(corpus / float_file), load_model(corpus / quant_file)
    alignment = align_models(float_model, quant_model)
    measured = measure_weights(float_model, quant_model, alignment, WeightOptions())
    checked = 0
    for item in measured:
        if item.stats is None or item.site is None or item.pair is None or item.site.codes is None:
            continue
        if item.row.transform == "rescaled":  # against factors that are found, not given
            continue
        x = _reference_operand(float_model.graph, item)
        codes, params = item.site.codes.array(), item.site.params
        if x is None or not x.shape or x.shape != codes.shape or x.size > 100_000:
            continue
        want = naive.weight_metrics(x, codes, params, item.stats.channel_axis)
        _compare(item.row.metrics, want, item.row.value)
        checked += 1
    assert checked or not any(s.role == "weight" and s.params for s in quant_model.sites)


def _reference_operand(graph: Any, item: Any) -> np.ndarray | None:
    """The float operand in the layout of the codes, the slow way: dequantize positions, not arrays."""
    from visualquant.core.trace import trace_operand

    if item.site.pre_scale is not None or item.site.permutation is not None:
        return None
    parts = []
    for operand in item.pair.floats:
        trace = trace_operand(graph, graph.nodes[operand.node].inputs[operand.slot])
        array = graph.const(trace.source).array().astype(np.float64)
        for step in (*trace.steps, *operand.steps):
            array = step.apply(array)
        parts.append(array)
    whole = np.concatenate(parts, axis=item.pair.concat_axis) if len(parts) > 1 else parts[0]
    if item.pair.factor is not None:
        whole = whole * item.pair.factor
    # where each stored code ends up in the operand
    place = np.arange(item.site.codes.size).reshape(item.site.codes.shape)
    for step in item.site.view:
        place = step.apply(place)
    if place.shape != whole.shape or place.size != item.site.codes.size:
        return None
    out = np.empty(item.site.codes.size)
    out[place.reshape(-1)] = whole.reshape(-1)
    return out.reshape(item.site.codes.shape)


def _compare(got: Any, want: dict[str, float], name: str) -> None:
    for key, value in want.items():
        if key not in got:
            continue
        mine = float(got[key])
        if key.startswith("sqnr_db"):
            assert mine == value or math.isclose(mine, value, abs_tol=DECIBEL), (name, key, mine, value)
        elif key == "cosine":
            assert math.isclose(1 - mine, 1 - value, abs_tol=1e-9), (name, key, mine, value)
        elif key == "bias":
            assert math.isclose(mine, value, rel_tol=RELATIVE, abs_tol=1e-6 * want["rmse"]), (name, key, mine, value)
        else:
            assert math.isclose(mine, value, rel_tol=RELATIVE, abs_tol=1e-12), (name, key, mine, value)
