"""The generated decoder: it is what it says, runs, and its files fit each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from visualquant.errors import CancelledError, InputError
from visualquant.session.compare import compare
from visualquant.testing.bench.large import sizes_for, write_large


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_large(tmp_path_factory.mktemp("large"), 2 << 20)


def run(path: Path) -> np.ndarray:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    out: np.ndarray = session.run(None, {"ids": np.arange(12, dtype=np.int64)})[0]
    return out


def test_sizes_are_near_what_was_asked_for_and_grow_without_limit() -> None:
    for size in (2 << 20, 10**8, 10**9, 8 * 10**9, 100 * 10**9):
        found = sizes_for(size)
        assert 0.5 < found.parameters * 4 / size < 1.3
    assert sizes_for(10**11).layers >= 8
    with pytest.raises(InputError, match="too small"):
        sizes_for(1000)


def test_all_three_models_are_valid_and_give_finite_like_results(models: dict[str, Path]) -> None:
    for path in models.values():
        onnx.checker.check_model(str(path))
    results = {name: run(path) for name, path in models.items()}
    assert np.isfinite(results["float"]).all()
    spread = results["float"].std()
    assert np.abs(results["int8"] - results["float"]).mean() < 0.2 * spread
    assert np.abs(results["int4"] - results["float"]).mean() < 0.8 * spread


def test_every_weight_is_found_and_measured(models: dict[str, Path]) -> None:
    for name, low, high in (("int8", 25.0, 50.0), ("int4", 12.0, 25.0)):
        report = compare(models["float"], models[name], threads=1)
        rows = [w for w in report.weights if w.role == "weight"]
        assert len(rows) == 2 + 7 * sizes_for(2 << 20).layers
        assert all(low < float(w.metrics["sqnr_db"]) < high for w in rows)
        assert all(float(w.metrics.get("clipped_low", 0)) == 0 for w in rows)


def test_equal_seeds_give_equal_files_and_cancel_stops(tmp_path: Path, models: dict[str, Path]) -> None:
    again = write_large(tmp_path, 2 << 20)
    for name, path in again.items():
        assert path.read_bytes() == models[name].read_bytes()
        assert path.with_suffix(".data").read_bytes() == models[name].with_suffix(".data").read_bytes()
    with pytest.raises(CancelledError):
        write_large(tmp_path / "other", 2 << 20, cancel=lambda: True)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(InputError, match="can't be written"):
        write_large(blocked / "below", 2 << 20)
