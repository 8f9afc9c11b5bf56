"""The cases of ../shared/cases that need data, by the checker's own rules: findings, outputs, what comes first."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.shared import case_names, load_tool
from visualquant.cli.main import run

# The shared tools leave files to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
PARTS = ("exit", "weights", "findings", "sound", "outputs", "first")


@pytest.mark.parametrize("case", case_names(lambda expected: bool(expected.get("needs_data"))))
def test_case(case: str, cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_process(_cmd: Any, float_path: Path, quant_path: Path, data: Path | None, seconds: int = 0) -> Any:
        out, err = tmp_path / f"{quant_path.stem}.json", io.StringIO()
        given = [] if data is None else ["--data", str(data)]
        with redirect_stdout(io.StringIO()), redirect_stderr(err):
            code = run(["compare", str(float_path), str(quant_path), "--json", str(out), *given])
        return code, err.getvalue(), json.loads(out.read_text()) if out.exists() else None

    checker = load_tool("check_case")
    monkeypatch.setattr(checker, "run", in_process)
    assert checker.check(cases / case, ["visualquant"], list(PARTS)) == []
