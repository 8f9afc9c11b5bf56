"""Stateful models: each model is fed its own state, step by step, as a plain loop over the runtime does it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import visualquant
from visualquant.cli.main import run
from visualquant.core.activations import PairSums, StepSums
from visualquant.core.report import OutputRow, Report
from visualquant.kernels.pair_sums import add_pair
from visualquant.runtime.feeds import FeedOptions
from visualquant.session.with_data import DataOptions

STATE = {"state": "stateN"}
STEPS, SEQUENCES = 12, 3


def _loop(path: Path, sequences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and states [sequences, steps, ...] of a plain loop."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    state = np.zeros((2, sequences.shape[0], 128), np.float32)
    outputs, states = [], []
    for step in range(sequences.shape[1]):
        feeds = {"input": sequences[:, step], "state": state, "sr": np.array(16000, np.int64)}
        output, state = session.run(["output", "stateN"], feeds)
        outputs.append(output)
        states.append(state)
    return np.stack(outputs, axis=1), np.stack([np.moveaxis(s, 1, 0) for s in states], axis=1)


def _sqnr(x: np.ndarray, y: np.ndarray) -> float:
    a, b = x.astype(np.float64), y.astype(np.float64)
    return float(10 * np.log10((a**2).sum() / ((a - b) ** 2).sum()))


def _rows(report: Report) -> dict[str, OutputRow]:
    return {o.float_value: o for o in report.outputs}


@pytest.fixture(scope="module")
def pair(corpus: Path) -> tuple[Path, Path]:
    folder = corpus / "silero_vad_16k"
    return folder / "fp32.onnx", folder / "ort_dyn_u8w.onnx"


@pytest.fixture(scope="module")
def audio(corpus: Path) -> np.ndarray:
    with np.load(corpus / "data" / "silero.npz") as arrays:
        return np.asarray(arrays["val_input"][: STEPS * SEQUENCES])


def test_consecutive_samples_are_steps(pair: tuple[Path, Path], audio: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", input=audio)
    feeds = FeedOptions(constants={"sr": "16000"}, state=STATE)
    report = visualquant.compare(*pair, data=DataOptions(str(tmp_path / "d.npz"), feeds=feeds, profile=False))
    (x, state_x), (y, state_y) = (_loop(p, audio[None]) for p in pair)
    rows = _rows(report)
    assert rows["output"].metrics["sqnr_db"] == pytest.approx(_sqnr(x, y), abs=1e-3)
    assert rows["stateN"].metrics["sqnr_db"] == pytest.approx(_sqnr(state_x, state_y), abs=1e-3)
    assert rows["stateN"].state and not rows["output"].state
    assert [first for first, _ in rows["stateN"].steps] == list(range(audio.shape[0]))
    for step, level in rows["stateN"].steps:
        assert level == pytest.approx(_sqnr(state_x[:, step], state_y[:, step]), abs=1e-3)


def test_a_step_axis_holds_sequences_that_run_beside_each_other(
    pair: tuple[Path, Path], audio: np.ndarray, tmp_path: Path
) -> None:
    sequences = audio.reshape(SEQUENCES, STEPS, -1)
    labels = np.arange(SEQUENCES * STEPS).reshape(SEQUENCES, STEPS) % 2
    np.savez(tmp_path / "d.npz", input=sequences, label=labels)
    feeds = FeedOptions(constants={"sr": "16000"}, state=STATE, step_axis={"input": 1}, batch=2)
    report = visualquant.compare(*pair, data=DataOptions(str(tmp_path / "d.npz"), feeds=feeds, profile=False))
    x, state_x = _loop(pair[0], sequences)
    # NOTE: one by one, since a dynamically quantized model takes its ranges over the whole batch
    alone = [_loop(pair[1], sequences[k : k + 1]) for k in range(SEQUENCES)]
    y, state_y = (np.concatenate([a[k] for a in alone]) for k in (0, 1))
    rows = _rows(report)
    assert rows["output"].metrics["sqnr_db"] == pytest.approx(_sqnr(x, y), abs=1e-3)
    assert [s for s, _ in rows["stateN"].steps] == list(range(STEPS))
    for step, level in rows["stateN"].steps:
        assert level == pytest.approx(_sqnr(state_x[:, step], state_y[:, step]), abs=1e-3)
    (task,) = report.task
    assert task.n == SEQUENCES * STEPS
    assert task.float == pytest.approx(float(((x.reshape(-1) > 0.5) == labels.reshape(-1)).mean()))
    assert task.quant == pytest.approx(float(((y.reshape(-1) > 0.5) == labels.reshape(-1)).mean()))


def test_groups_behind_a_run_time_quantizer_run_alone(
    pair: tuple[Path, Path], audio: np.ndarray, tmp_path: Path
) -> None:
    np.savez(tmp_path / "d.npz", input=audio)
    feeds = FeedOptions(constants={"sr": "16000"}, state=STATE)
    report = visualquant.compare(*pair, data=DataOptions(str(tmp_path / "d.npz"), feeds=feeds, profile=False))
    alone = {a.float_value: a.isolated["sqnr_db"] for a in report.activations if a.isolated}
    convolutions = [name for name in alone if name.endswith("reparam_conv/Conv_output_0")]
    assert len(convolutions) == 4 and min(alone[c] for c in convolutions) < 20  # one scale over unlike channels
    assert not [n for r in report.runs for n in r.notes if "could not be run alone" in n]


@pytest.mark.parametrize(
    ("options", "telling"),
    [
        (["--state", "state=nothing"], "no output 'nothing'"),
        (["--state", "nothing=stateN"], "no input 'nothing'"),
        (["--state", "state=stateN", "--step-axis", "input=7"], "--step-axis 7 does not exist"),
        (["--state", "state=stateN", "--step-axis", "input=x"], "whole number"),
    ],
)
def test_what_does_not_exist_is_named(
    options: list[str],
    telling: str,
    pair: tuple[Path, Path],
    audio: np.ndarray,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.savez(tmp_path / "d.npz", input=audio)
    paths = [str(p) for p in pair]
    assert run(["compare", *paths, "--data", str(tmp_path / "d.npz"), "--set", "sr=16000", *options]) == 2
    assert telling in capsys.readouterr().err


def test_many_steps_are_kept_in_few_ranges() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 8))
    y = x + rng.normal(size=x.shape) * 0.1
    sums, whole = StepSums(limit=8), PairSums()
    for step in range(100):
        add_pair(sums.at(step), x[step], y[step])
        add_pair(whole, x[step], y[step])
    assert sums.width == 16 and len(sums.ranges) == 7
    joined = PairSums()
    for one in sums.ranges:
        joined.merge(one)
    assert joined.metrics() == pytest.approx(whole.metrics())
    assert [first for first, _ in sums.levels()] == [0, 16, 32, 48, 64, 80, 96]
    assert sums.levels()[1][1] == pytest.approx(_sqnr(x[16:32], y[16:32]))
