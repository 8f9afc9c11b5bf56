"""What calibration showed of each value, against a plain run of the float model on the calibration samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import visualquant
from tests.session.test_with_data import _every_value
from visualquant.cli.main import run
from visualquant.core.report import Report
from visualquant.runtime.feeds import FeedOptions
from visualquant.session.with_data import DataOptions

COUNT = 40


@pytest.fixture
def pair(corpus: Path) -> tuple[Path, Path]:
    folder = corpus / "digits_resnet"
    return folder / "fp32.onnx", folder / "ort_qdq_s8s8_pc.onnx"


@pytest.fixture
def digits(corpus: Path) -> dict[str, np.ndarray]:
    with np.load(corpus / "data" / "digits.npz") as arrays:
        return {k: arrays[k] for k in arrays.files}


def _report(pair: tuple[Path, Path], path: Path, calibration: Path | None = None) -> Report:
    options = DataOptions(
        str(path),
        calibration=None if calibration is None else str(calibration),
        feeds=FeedOptions(limit=COUNT),
        profile=False,
    )
    return visualquant.compare(*pair, data=options)


def test_ranges_are_those_of_a_plain_run(
    pair: tuple[Path, Path], digits: dict[str, np.ndarray], tmp_path: Path
) -> None:
    np.savez(tmp_path / "d.npz", calib_input=digits["calib_input"], val_input=digits["val_input"])
    report = _report(pair, tmp_path / "d.npz")
    feeds = {"input": digits["calib_input"][:COUNT]}
    values = _every_value(pair[0], feeds) | feeds
    seen = {a.float_value: a.range_calibration for a in report.activations if a.range_calibration is not None}
    assert "input" in seen and len(seen) >= 10
    for name, ends in seen.items():
        assert ends == pytest.approx((values[name].min(), values[name].max()), rel=1e-6)
    np.savez(tmp_path / "calib.npz", input=digits["calib_input"])
    np.savez(tmp_path / "val.npz", input=digits["val_input"])
    apart = _report(pair, tmp_path / "val.npz", tmp_path / "calib.npz")
    assert {a.float_value: a.range_calibration for a in apart.activations if a.range_calibration} == seen
    assert all(a.range_calibration is None for a in _report(pair, tmp_path / "val.npz").activations)


def test_only_what_calibration_did_not_show_is_its_fault(
    pair: tuple[Path, Path], digits: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """Inputs five times as large clip everywhere; calibration is blamed where it saw none of them."""
    loud = digits["val_input"] * 5
    for name, calibration, blamed in (("quiet", digits["calib_input"], True), ("loud", loud[:COUNT], False)):
        np.savez(tmp_path / f"{name}.npz", calib_input=calibration, val_input=loud)
        report = _report(pair, tmp_path / f"{name}.npz")
        found = [f for f in report.findings if f.code == "DATA_NARROW_CALIBRATION"]
        assert bool(found) is blamed
        assert all("It reached [" in f.what for f in found)


def test_the_table_shows_what_calibration_saw(
    pair: tuple[Path, Path], corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", str(corpus / "data" / "digits.npz"), "--samples", "8"]
    assert run(["compare", *map(str, pair), *data]) == 0
    assert "calibration saw" in capsys.readouterr().out


def test_samples_that_do_not_fit_are_a_note(
    pair: tuple[Path, Path], digits: dict[str, np.ndarray], tmp_path: Path
) -> None:
    np.savez(tmp_path / "d.npz", calib_input=np.zeros((3, 5), np.float32), val_input=digits["val_input"])
    report = _report(pair, tmp_path / "d.npz")
    assert any("calibration samples were not run" in n for r in report.runs for n in r.notes)
    assert report.outputs
