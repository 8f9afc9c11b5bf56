"""`--metric`: a user's function on both models' outputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.models import mlp, quantized_mlp, save
from tests.session.test_with_data import WEIGHT
from visualquant.cli.main import run


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(12, 16)).astype(np.float32), wanted=np.arange(12))
    return [
        str(save(mlp(WEIGHT), tmp_path / "f.onnx")),
        str(save(quantized_mlp(WEIGHT), tmp_path / "q.onnx")),
        "--data",
        str(tmp_path / "d.npz"),
    ]


def test_a_file_beside_the_user(pair: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def error(outputs, labels):\n"
        "    assert sorted(labels) == ['wanted'] and len(labels['wanted']) == 8\n"
        "    return abs(next(iter(outputs.values()))).sum(axis=1)\n"
        "error.higher_is_better = False\n"
    )
    out = tmp_path / "r.json"
    metric = f"{tmp_path / 'mine.py'}:error"
    assert run(["compare", *pair, "--samples", "8", "--metric", metric, "--json", str(out)]) == 0
    (task,) = json.loads(out.read_text())["task"]
    assert task["metric"] == "error" and task["n"] == 8 and task["higher_is_better"] is False
    assert task["float"] != task["quant"] and task["ci95_float"][0] < task["float"] < task["ci95_float"][1]


@pytest.mark.parametrize(
    ("content", "name", "telling"),
    [
        (
            "def f(o, l):\n    raise ValueError('no such thing')\n",
            "f",
            "fails on the float model's outputs: ValueError",
        ),
        ("def f(o, l):\n    return float('nan')\n", "f", "one finite number"),
        ("def f(o, l):\n    return [[1.0]]\n", "f", "one finite number"),
        ("x = 1\n", "x", "has no function 'x'"),
        ("import nothing_like_it\n", "f", "can't be imported"),
    ],
)
def test_what_is_wrong_is_said(
    content: str, name: str, telling: str, pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(content)
    assert run(["compare", *pair, "--metric", f"{tmp_path / 'mine.py'}:{name}"]) == 2
    assert telling in " ".join(capsys.readouterr().err.split())


def test_a_metric_needs_samples(pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *pair[:2], "--metric", "a:b"]) == 2
    assert "--metric needs --data" in capsys.readouterr().err
