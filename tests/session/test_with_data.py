"""`compare --data` on models of the corpus: three levels, against a plain script on the runtime's outputs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import visualquant
from tests.models import mlp, model, quantized_mlp, save, tensor
from visualquant.cli.main import run
from visualquant.core.report import Report
from visualquant.core.taps import RunOptions
from visualquant.errors import CancelledError
from visualquant.reports.json_report import schema, to_plain
from visualquant.runtime.feeds import FeedOptions
from visualquant.session.with_data import DataOptions

COUNT = 32
PAIRS = [
    ("digits_resnet", "digits", "ort_qdq_s8s8_pc"),
    ("digits_resnet", "digits", "ort_qop_u8u8_pt"),
    ("mnist_mbnet", "mnist", "ort_qdq_u8u8_pt"),
]
WEIGHT = np.random.default_rng(2).normal(size=(16, 8)).astype(np.float32)


def _session(model: Path | bytes, level: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{level}")
    source = model if isinstance(model, bytes) else str(model)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def _every_value(path: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    proto = onnx.load(path)
    listed = {o.name for o in proto.graph.output}
    made = [out for n in proto.graph.node for out in n.output if out and out not in listed]
    proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in made)
    session = _session(proto.SerializeToString(), "DISABLE_ALL")
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def _sqnr(x: np.ndarray, y: np.ndarray) -> float:
    a, b = x.astype(np.float64), y.astype(np.float64)
    noise = ((a - b) ** 2).sum()
    return float(10 * np.log10((a**2).sum() / noise)) if noise else math.inf


@pytest.fixture(scope="module", params=PAIRS, ids=lambda p: f"{p[0]}/{p[2]}")
def measured(request: Any, corpus: Path) -> tuple[Report, Path, Path, dict[str, np.ndarray]]:
    folder, data, name = request.param
    paths = corpus / folder / "fp32.onnx", corpus / folder / f"{name}.onnx"
    file = corpus / "data" / f"{data}.npz"
    report = visualquant.compare(*paths, data=DataOptions(str(file), feeds=FeedOptions(limit=COUNT)))
    with np.load(file) as arrays:
        return report, *paths, {k: arrays[k][:COUNT] for k in ("val_input", "val_label")}


def test_outputs_and_task_against_a_plain_script(measured: tuple[Report, Path, Path, dict[str, np.ndarray]]) -> None:
    report, ours, theirs, arrays = measured
    x, labels = arrays["val_input"], arrays["val_label"]
    a, b = [], []
    for start in range(0, COUNT, 16):
        part = {"input": x[start : start + 16]}
        a.append(_session(ours, "DISABLE_ALL").run(None, part)[0])
        b.append(_session(theirs, "ENABLE_ALL").run(None, part)[0])
    p, q = np.concatenate(a).astype(np.float64), np.concatenate(b).astype(np.float64)

    (row,) = report.outputs
    e = p - q
    softmax = [np.exp(v - v.max(1, keepdims=True)) for v in (p, q)]
    soft_p, soft_q = (v / v.sum(1, keepdims=True) for v in softmax)
    kl = (soft_p * np.log(soft_p / soft_q)).sum(1)
    top = np.argsort(-q, axis=1)[:, :5]
    want = {
        "sqnr_db": _sqnr(p, q),
        "nsr": (e**2).sum() / (p**2).sum(),
        "mse": (e**2).mean(),
        "mae": np.abs(e).mean(),
        "max_abs_error": np.abs(e).max(),
        "cosine": (p * q).sum() / np.sqrt((p**2).sum() * (q**2).sum()),
        "bias": e.mean(),
        "sqnr_db_worst_channel": min(_sqnr(p[:, k], q[:, k]) for k in range(p.shape[1])),
        "logit_kl": kl.mean(),
        "logit_kl_p99": np.percentile(kl, 99),
        "top1_agreement": (p.argmax(1) == q.argmax(1)).mean(),
        "top5_agreement": np.mean([k in t for k, t in zip(p.argmax(1), top, strict=True)]),
    }
    for name, value in want.items():
        assert float(row.metrics[name]) == pytest.approx(value, rel=1e-6, abs=1e-12), name

    (task,) = report.task
    good_p, good_q = p.argmax(1) == labels, q.argmax(1) == labels
    assert (task.metric, task.n) == ("top1", COUNT)
    assert (task.float, task.quant) == pytest.approx((good_p.mean(), good_q.mean()), rel=1e-12)
    lost = np.flatnonzero(good_p & ~good_q)
    assert (task.lost, task.won) == (lost.size, (~good_p & good_q).sum())
    assert [(f.sample, f.label, f.quant) for f in task.flipped] == [
        (k, labels[k], q[k].argmax()) for k in lost.tolist()
    ]
    for flipped in task.flipped:
        others = np.delete(p[flipped.sample], flipped.label).max()
        assert flipped.float_margin == pytest.approx(p[flipped.sample, flipped.label] - others, rel=1e-5)
    for label, split in task.by_class.items():
        here = labels == int(label)
        assert (split["n"], split["float"]) == (here.sum(), pytest.approx(good_p[here].mean()))
    assert task.ci95_float[0] <= task.float <= task.ci95_float[1] and 0 <= task.p_value <= 1


def test_layers_against_a_plain_script(measured: tuple[Report, Path, Path, dict[str, np.ndarray]]) -> None:
    """Where the quantized model runs unoptimised every value has its own name: figures must be equal there."""
    _, ours, theirs, arrays = measured
    x = {"input": arrays["val_input"][:12]}
    floats, quants = _every_value(ours, x) | x, _every_value(theirs, x)
    options = DataOptions(
        str(ours.parents[1] / "data" / ("digits.npz" if "digits" in str(ours) else "mnist.npz")),
        feeds=FeedOptions(limit=12, batch=5),
        quant=RunOptions(level="none"),
        profile=False,
    )
    report = visualquant.compare(ours, theirs, data=options)
    assert report.latency == ()
    checked = 0
    for row in report.activations:
        a, b = floats[row.float_value], quants.get(row.quant_value)
        assert row.range_float is None or row.range_float == pytest.approx((a.min(), a.max()), rel=1e-6)
        if b is None or b.dtype.kind != "f" or a.shape != b.shape:
            continue
        assert row.observable and row.samples == 12 and row.layout is None
        want = _sqnr(a, b)
        assert float(row.cumulative["sqnr_db"]) == pytest.approx(want, rel=1e-6), row.quant_value
        assert float(row.cumulative["max_abs_error"]) == pytest.approx(np.abs(a - b.astype(float)).max(), rel=1e-6)
        if row.range_quant is not None:
            low, high = (float(v) for v in row.range_quant)
            half = (high - low) / 255 / 2
            share = ((a < low - half) | (a > high + half)).mean()
            assert row.clipped_share == pytest.approx(share, abs=2 / a.size)
        checked += 1
    assert checked >= 8 or ("qop" in theirs.name and checked >= 1)


def test_levels_are_filled(measured: tuple[Report, Path, Path, dict[str, np.ndarray]]) -> None:
    report, *_ = measured
    assert [r.id for r in report.runs] == ["r0", "r1"] and all(r.taps_verified is True for r in report.runs)
    assert all(r.samples == COUNT and r.complete and r.kind == "local" for r in report.runs)
    seen = [a for a in report.activations if a.observable]
    assert len(seen) >= 8 and all("sqnr_db" in a.cumulative for a in seen)
    assert sum(bool(a.isolated) for a in report.activations) >= 8
    assert all(a.reason for a in report.activations if not a.observable)
    assert [a.depth for a in report.activations] == sorted(a.depth for a in report.activations)
    groups = {g.group for g in report.alignment}
    assert all(a.group is None or a.group in groups for a in report.activations)
    assert [row.run for row in report.latency] == ["r0", "r1"]
    for row in report.latency:
        assert row.total_p50_us > 0 and row.repeats == 20 and row.nodes and 0 <= row.conversion_share <= 1


def test_schema_and_archive(measured: tuple[Report, Path, Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    report, *_ = measured
    plain = to_plain(report)
    jsonschema.validate(json.loads(json.dumps(plain)), schema())
    visualquant.save(report, tmp_path / "r.vqz")
    again = visualquant.load(tmp_path / "r.vqz")
    for section in ("runs", "activations", "outputs", "task", "latency", "findings"):
        assert (to_plain(again)[section] == plain[section] and plain[section]) or section == "findings", section


def test_sound_files_have_no_error(measured: tuple[Report, Path, Path, dict[str, np.ndarray]]) -> None:
    report, *_ = measured
    assert "DATA_LABELS" not in {f.code for f in report.findings}
    assert [f.code for f in report.findings if f.severity == "error"] == []
    assert "DATA_RANDOM" not in {f.code for f in report.findings}


def _json(arguments: list[str], tmp_path: Path) -> dict[str, Any]:
    out = tmp_path / "out.json"
    assert run(["compare", *arguments, "--json", str(out)]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    jsonschema.validate(found, schema())
    return found


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    proto = mlp(WEIGHT)
    quant = quantized_mlp(WEIGHT)
    for side in (proto, quant):
        side.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    return [str(save(proto, tmp_path / "f.onnx")), str(save(quant, tmp_path / "q.onnx"))]


def _data(path: Path, **more: np.ndarray) -> str:
    rng = np.random.default_rng(3)
    np.savez(path, **({"val_x": rng.normal(size=(24, 16)).astype(np.float32)} | more))
    return str(path)


def _codes(report: dict[str, Any]) -> set[str]:
    return {f["code"] for f in report["findings"]}


def test_random_data_is_marked(pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = _json([*pair, "--data", "random"], tmp_path)
    assert "DATA_RANDOM" in _codes(report)
    assert all(r["data"] == {"file": "random", "random": True} for r in report["runs"])
    assert run(["compare", *pair, "--data", "random"]) == 0
    assert "random" in capsys.readouterr().out
    real = _json([*pair, "--data", _data(tmp_path / "d.npz")], tmp_path)
    assert "DATA_RANDOM" not in _codes(real) and real["runs"][0]["data"] == {"file": "d.npz", "random": False}


def test_reused_samples(pair: list[str], tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x, fresh = (rng.normal(size=(24, 16)).astype(np.float32) for _ in range(2))
    mixed = np.concatenate([fresh[:9], x[4:9]])
    report = _json([*pair, "--data", _data(tmp_path / "d.npz", val_x=x, calib_x=mixed)], tmp_path)
    (finding,) = [f for f in report["findings"] if f["code"] == "DATA_REUSED"]
    assert finding["numbers"]["samples"] == 5
    sound = _data(tmp_path / "s.npz", val_x=x, calib_x=fresh)
    assert "DATA_REUSED" not in _codes(_json([*pair, "--data", sound], tmp_path))
    for key in ("calib_x", "x", "val_x"):
        np.savez(tmp_path / "c.npz", **{key: mixed})
        report = _json([*pair, "--data", sound, "--calib", str(tmp_path / "c.npz")], tmp_path)
        assert "DATA_REUSED" in _codes(report), key
    np.save(tmp_path / "c.npy", mixed)
    np.save(tmp_path / "v.npy", x)
    report = _json([*pair, "--data", str(tmp_path / "v.npy"), "--calib", str(tmp_path / "c.npy")], tmp_path)
    assert "DATA_REUSED" in _codes(report), "the only array of a file belongs to the only input"


def test_reused_samples_of_several_inputs(tmp_path: Path) -> None:
    """A mask that is equal everywhere makes no two samples equal."""
    nodes = [helper.make_node("Mul", ["a", "mask"], ["y"], name="mul")]
    path = str(save(model(nodes, inputs=[("mask", ["N", 4]), ("a", ["N", 4])]), tmp_path / "m.onnx"))
    rng = np.random.default_rng(3)
    a, mask = rng.normal(size=(12, 4)).astype(np.float32), np.ones((12, 4), np.float32)
    fresh = {"val_a": a, "val_mask": mask, "calib_a": a + 1, "calib_mask": mask}
    for arrays, reused in ((fresh, False), (fresh | {"calib_a": a[::-1]}, True)):
        np.savez(tmp_path / "d.npz", **arrays)
        report = _json([path, path, "--data", str(tmp_path / "d.npz")], tmp_path)
        assert ("DATA_REUSED" in _codes(report)) == reused


def test_shifted_labels(corpus: Path, tmp_path: Path) -> None:
    folder = corpus / "digits_resnet"
    paths = [str(folder / "fp32.onnx"), str(folder / "ort_qdq_u8u8_pt.onnx")]
    with np.load(corpus / "data" / "digits.npz") as arrays:
        x, labels = arrays["val_input"][:40], arrays["val_label"][:40]
    for shift in (1, -1):
        options = DataOptions(_data(tmp_path / "d.npz", val_input=x, val_label=labels + shift), profile=False)
        first = visualquant.compare(*paths, data=options).findings[0]
        assert (first.code, first.severity, first.numbers["shift"]) == ("DATA_LABELS", "error", -shift)


def test_a_refused_quantized_file_is_a_finding(pair: list[str], tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="fc"),
        helper.make_node("Magic", ["m"], ["y"], name="magic", domain="org.foreign"),
    ]
    quant = model(nodes, [tensor("w", WEIGHT)], inputs=[("x", ["N", 16])], extra_opsets=[("org.foreign", 1)])
    bad = str(save(quant, tmp_path / "bad.onnx"))
    data = _data(tmp_path / "d.npz")
    report = _json([pair[0], bad, "--data", data], tmp_path)
    (finding,) = [f for f in report["findings"] if f["code"] == "RUNTIME_REFUSES"]
    assert "bad.onnx" in finding["what"] and report["activations"] == report["outputs"] == report["runs"] == []
    assert run(["compare", bad, pair[1], "--data", data]) == 2, "a float model that can't be run is bad input"


def test_a_quantized_file_that_fails_in_the_run_is_a_finding(pair: list[str], tmp_path: Path) -> None:
    quant = quantized_mlp(WEIGHT)
    quant.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    quant.graph.node[-1].output[0] = "r"
    quant.graph.node.append(helper.make_node("Reshape", ["r", "s"], ["y"], name="reshape"))
    quant.graph.initializer.append(tensor("s", np.int64([7, 3])))
    bad = str(save(quant, tmp_path / "bad.onnx"))
    report = _json([pair[0], bad, "--data", _data(tmp_path / "d.npz")], tmp_path)
    (finding,) = [f for f in report["findings"] if f["code"] == "RUNTIME_REFUSES"]
    assert "fails when it runs" in finding["what"]
    assert run(["compare", bad, pair[1], "--data", str(tmp_path / "d.npz")]) == 2


def test_samples_that_are_not_numbers_are_counted(pair: list[str], tmp_path: Path) -> None:
    x = np.random.default_rng(3).normal(size=(24, 16)).astype(np.float32)
    x[3] = np.nan
    x[:, 2] = np.where(np.arange(24) == 5, np.inf, x[:, 2])
    report = _json([*pair, "--data", _data(tmp_path / "d.npz", val_x=x)], tmp_path)
    assert report["outputs"][0]["metrics"]["non_finite_float"] >= 8
    everything = _json([*pair, "--data", _data(tmp_path / "d.npz", val_x=np.full_like(x, np.nan))], tmp_path)
    assert "sqnr_db" not in everything["outputs"][0]["metrics"]


def test_figures_do_not_depend_on_batches(corpus: Path) -> None:
    folder = corpus / "digits_resnet"
    paths = folder / "fp32.onnx", folder / "ort_qdq_u8u8_pt.onnx"
    reports = [
        visualquant.compare(
            *paths,
            data=DataOptions(
                str(corpus / "data" / "digits.npz"), feeds=FeedOptions(limit=20, batch=batch), profile=False
            ),
        )
        for batch in (20, 7, 1)
    ]
    for other in reports[1:]:
        for a, b in zip(reports[0].activations, other.activations, strict=True):
            assert a.quant_value == b.quant_value and set(a.cumulative) == set(b.cumulative)
            for name in ("sqnr_db", "mse", "cosine"):
                if name in a.cumulative:
                    assert float(b.cumulative[name]) == pytest.approx(float(a.cumulative[name]), rel=1e-3, abs=1e-6)


def test_one_file_against_itself(pair: list[str], tmp_path: Path) -> None:
    report = _json([pair[0], pair[0], "--data", _data(tmp_path / "d.npz")], tmp_path)
    assert all(float(o["metrics"]["sqnr_db"]) > 100 for o in report["outputs"])
    assert [f for f in report["findings"] if f["severity"] == "error"] == []


def test_stopping(pair: list[str], tmp_path: Path) -> None:
    data = _data(tmp_path / "d.npz")
    with pytest.raises(CancelledError):
        calls: list[str] = []

        def stage(name: str, done: int, total: int) -> None:
            calls.append(name)

        visualquant.compare(*pair, data=data, progress=stage, cancel=lambda: "running samples" in calls)
    seen: list[tuple[int, int]] = []
    visualquant.compare(*pair, data=data, progress=lambda n, d, t: seen.append((d, t)) if n[:7] == "running" else None)
    assert seen[-1] == (24, 24) and seen == sorted(seen)


def test_a_bound_below_the_floor_is_refused_with_the_floor(corpus: Path, tmp_path: Path) -> None:
    """In a process of its own: memory that earlier work gave back would hide the growth."""
    folder = corpus / "digits_resnet"
    command = [sys.executable, "-m", "visualquant", "compare", folder / "fp32.onnx", folder / "ort_qdq_s8s8_pc.onnx"]
    command += ["--data", corpus / "data" / "digits.npz", "--samples", "2", "--json", tmp_path / "r", "--memory"]
    small = subprocess.run([*map(str, command), "1KB"], capture_output=True, text=True, check=False)
    message = " ".join(small.stderr.split())
    assert small.returncode == 2 and "Give at least --memory" in message
    least = int(message.split("at least --memory ")[1].split("MB")[0])
    enough = subprocess.run([*map(str, command), f"{least * 2 + 64}MB"], capture_output=True, text=True, check=False)
    assert enough.returncode == 0, enough.stderr


# Float codes as bytes, values before a quantizer that does a Relu's work, integer kernels, blocked layouts.
OPTIMISED = [
    *[("digits_resnet", "digits", f"ort_{f}") for f in ("qdq_s8s8_pt", "qdq_s8s8_pc", "qdq_u8u8_pt", "qop_u8u8_pt")],
    ("digits_resnet", "digits", "modelopt_fp8"),
    ("mnist_vit", "mnist", "modelopt_fp8"),
    ("mnist_mbnet", "mnist", "fp32_onnxsim"),
]


@pytest.mark.parametrize(("model", "data", "file"), OPTIMISED)
def test_values_of_the_optimised_graph_are_the_values(model: str, data: str, file: str, corpus: Path) -> None:
    """What a sound pair holds in the graph that really runs is near the float model's, everywhere."""
    folder = corpus / model
    options = DataOptions(str(corpus / "data" / f"{data}.npz"), feeds=FeedOptions(limit=12), profile=False)
    report = visualquant.compare(folder / "fp32.onnx", folder / f"{file}.onnx", data=options)
    levels = {a.float_value: float(a.cumulative["sqnr_db"]) for a in report.activations if "sqnr_db" in a.cumulative}
    assert len(levels) >= 6 and min(levels.values()) > 12, levels
