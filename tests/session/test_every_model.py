"""Outputs and task of every corpus model with data, against a plain numpy script on the runtime's outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import visualquant
from visualquant.runtime.feeds import FeedOptions
from visualquant.session.with_data import DataOptions

COUNT = 24
# model, quantized file, data, constants, sample axes, samples of one run
MODELS = [
    ("digits_resnet", "ort_qdq_u8u8_pt", "digits", {}, {}, COUNT),
    ("mnist_mbnet", "nncf_int8_perf", "mnist", {}, {}, COUNT),
    ("mnist_vit", "ort_qop_u8u8_pt", "mnist", {}, {}, COUNT),
    ("silero_vad_16k", "ort_dyn_u8w", "silero", {"sr": 16000}, {"state": 1}, 1),
    ("ppocr_cls", "ort_qop_u8u8_pt", "ppocr_cls", {}, {}, 8),
    ("ppocr_v4_det", "fp32_ortopt_extended", "ppocr_det", {}, {}, 1),
    ("llama_char", "ort_nbits4_b32_sym", "llama", {}, {}, 8),
    ("llama_builder", "builder_int4_b32", "llama_builder", {}, {}, 4),
]


def _outputs(path: Path, level: str, feeds: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{level}")
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    found = [
        session.run(names, {k: v for k, v in f.items() if k in {i.name for i in session.get_inputs()}}) for f in feeds
    ]
    return {name: np.concatenate([f[k].astype(np.float64).reshape(-1) for f in found]) for k, name in enumerate(names)}


@pytest.mark.slow
@pytest.mark.parametrize(("model", "file", "data", "constants", "axes", "batch"), MODELS, ids=lambda x: str(x)[:24])
def test_outputs_and_task(
    model: str, file: str, data: str, constants: dict[str, int], axes: dict[str, int], batch: int, corpus: Path
) -> None:
    paths = corpus / model / "fp32.onnx", corpus / model / f"{file}.onnx"
    source = corpus / "data" / f"{data}.npz"
    count = min(COUNT, batch * 4)
    options = DataOptions(
        str(source),
        feeds=FeedOptions(
            constants={k: str(v) for k, v in constants.items()}, sample_axis=axes, limit=count, batch=batch
        ),
        profile=False,
    )
    report = visualquant.compare(*paths, data=options)
    with np.load(source) as arrays:
        given = {k.removeprefix("val_"): arrays[k] for k in arrays.files if k.startswith("val_")}
    labels = given.pop("label", None)
    feeds: list[dict[str, Any]] = []
    for start in range(0, count, batch):
        part = {k: np.take(v, range(start, start + batch), axis=axes.get(k, 0)) for k, v in given.items()}
        feeds.append(part | {k: np.array(v, np.int64) for k, v in constants.items()})
    ours, theirs = _outputs(paths[0], "DISABLE_ALL", feeds), _outputs(paths[1], "ENABLE_ALL", feeds)
    assert report.outputs
    for row in report.outputs:
        x, y = ours[row.float_value], theirs[row.quant_value]
        noise = ((x - y) ** 2).sum()
        want = {
            "sqnr_db": 10 * np.log10((x**2).sum() / noise),
            "mse": noise / x.size,
            "max_abs_error": abs(x - y).max(),
        }
        for name, value in want.items():
            assert float(row.metrics[name]) == pytest.approx(value, rel=1e-6), (row.float_value, name)
    if labels is not None and report.task:
        (task,) = report.task
        truth = labels[:count]
        for share, outputs in ((task.float, ours), (task.quant, theirs)):
            scores = next(iter(outputs.values())).reshape(count, -1)
            says = scores.argmax(axis=1) if scores.shape[1] > 1 else scores[:, 0] > 0.5
            assert share == pytest.approx(float((says == truth).mean()))
