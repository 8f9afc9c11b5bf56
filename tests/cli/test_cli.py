"""The command line: start-up, exit codes, plain text, the demo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import visualquant
from tests.models import mlp, quantized_mlp, save
from visualquant.cli.main import COMMANDS, run
from visualquant.core.catalogue import CATALOGUE
from visualquant.reports.json_report import SCHEMA_PATH, schema

WEIGHT = np.random.default_rng(11).normal(size=(16, 8)).astype(np.float32)
HEAVY = {"numba", "onnx", "onnxruntime", "grpc", "rich", "numpy"}


def _modules_after(*args: str) -> set[str]:
    code = (
        "import sys, json\nfrom visualquant.cli.main import run\n"
        f"run({list(args)!r})\n"
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("args", [["--version"], ["--help"], []])
def test_start_up_imports_nothing_heavy(args: list[str]) -> None:
    assert _modules_after(*args) & HEAVY == set()


@pytest.mark.parametrize("args", [["compare", "--help"], ["explain", "ACT_CLIPPED"], ["explain"]])
def test_help_of_commands_loads_no_runtime(args: list[str]) -> None:
    assert _modules_after(*args) & {"numba", "onnx", "onnxruntime", "grpc"} == set()


def test_report_loads_no_runtime(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    visualquant.save(visualquant.compare(*pair), tmp_path / "r.vqz")
    assert _modules_after("report", str(tmp_path / "r.vqz")) & {"numba", "onnx", "onnxruntime", "grpc"} == set()


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return save(mlp(WEIGHT), tmp_path / "float.onnx"), save(quantized_mlp(WEIGHT), tmp_path / "int8.onnx")


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out
    for name in COMMANDS:
        assert name in listed
        assert run([name, "--help"]) == 0
        assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize(
    "args",
    [
        ["frobnicate"],
        ["compare"],
        ["compare", "a.onnx"],
        ["compare", "a.onnx", "b.onnx", "--top", "-3"],
        ["compare", "a.onnx", "b.onnx", "--fail-below-sqnr", "nan"],
        ["compare", "a.onnx", "b.onnx", "--fail-below-sqnr", "many"],
        ["compare", "a.onnx", "b.onnx", "--save", "/no/such/folder/r.vqz"],
        ["explain", "NO_SUCH_CODE"],
        ["report", "nowhere.vqz"],
        ["inspect", "nowhere.onnx"],
    ],
)
def test_bad_usage_is_exit_2_and_one_paragraph(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(args) == 2
    message = capsys.readouterr().err
    assert message.strip() and "Traceback" not in message


def test_threshold(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(p) for p in pair]
    assert run(["compare", *files, "--fail-below-sqnr", "20"]) == 0
    assert run(["compare", *files, "--fail-below-sqnr", "90"]) == 1
    assert "w_q" in capsys.readouterr().err


def test_json_on_standard_output_is_nothing_but_json(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", *map(str, pair), "--json", "-", "--what-if"]) == 0
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, schema())
    schemes = {w["scheme"] for w in report["weights"][0]["what_if"]}
    for bits in ("int8", "int4"):
        for form in ("per tensor", "per channel"):
            assert f"{bits} symmetric, {form}" in schemes and f"{bits} asymmetric, {form}" in schemes


def test_schema_in_the_repository_is_that_of_the_types() -> None:
    assert json.loads(SCHEMA_PATH.read_text()) == json.loads(json.dumps(schema())), (
        "run: python -m visualquant.reports.json_report"
    )


def test_plain_text_where_output_is_no_terminal(pair: tuple[Path, Path], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "visualquant", "compare", *map(str, pair)]
    done = subprocess.run(command, capture_output=True, check=True)
    assert b"\x1b" not in done.stdout and done.stderr == b""
    text = done.stdout.decode()
    assert all(line == line.rstrip() for line in text.splitlines())
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    assert subprocess.run(command, capture_output=True, check=True, env=ascii_only).stdout.isascii()


def test_no_color_on_a_terminal(pair: tuple[Path, Path]) -> None:
    import pty

    def colours(**extra: str) -> bool:
        read, write = pty.openpty()
        command = [sys.executable, "-m", "visualquant", "compare", *map(str, pair)]
        environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"} | extra
        with subprocess.Popen(command, stdout=write, stderr=write, env=environment) as process:
            os.close(write)
            data = b""
            while True:
                try:
                    piece = os.read(read, 65536)
                except OSError:
                    break
                if not piece:
                    break
                data += piece
            assert process.wait() == 0
        os.close(read)
        return b"\x1b[32m" in data or b"\x1b[31m" in data or b"\x1b[33m" in data

    assert colours()
    assert not colours(NO_COLOR="1")


def test_interrupt_is_exit_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("visualquant.session.compare.load_model", stop)
    assert run(["compare", "a", "b"]) == 130
    assert "Interrupted" in capsys.readouterr().err


def test_own_faults_are_a_sentence_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError("inner")

    monkeypatch.delenv("VISUALQUANT_DEBUG", raising=False)
    monkeypatch.setattr("visualquant.session.compare.load_model", fail)
    assert run(["compare", "a", "b"]) == 70
    message = capsys.readouterr().err
    assert "fault of visualquant" in message and "Traceback" not in message


def test_demo_needs_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["demo"]) == 0
    shown = capsys.readouterr().out
    assert "int4 weights per channel" in shown and "What to try next" in shown and "uint4 b32" in shown


def test_inspect(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(pair[1])]) == 0
    shown = capsys.readouterr().out
    assert "int8 per channel, axis 1" in shown and "onnx.checker" in shown and "bits per weight" in shown
    assert run(["inspect", str(pair[0]), "--what-if", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["weights"][0]["value"] == "w" and found["weights"][0]["what_if"]
    assert found["model"]["storage"]["bits_per_weight"] == 32


def test_explain_knows_every_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain"]) == 0
    listed = capsys.readouterr().out
    for code, entry in CATALOGUE.items():
        assert code in listed
        assert run(["explain", code]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert " ".join(entry.why.split()) in text and " ".join(entry.fix.split()) in text


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "kernels" in shown and "qdq" in shown and "BAD" not in shown


def test_public_names() -> None:
    assert sorted(visualquant.__all__) == ["__version__", "compare", "load", "save"]
    for name in visualquant.__all__:
        assert getattr(visualquant, name) is not None
    with pytest.raises(AttributeError):
        visualquant.nothing  # noqa: B018
