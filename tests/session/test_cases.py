"""The cases of ../shared/cases through the checker's own rules, with the command run in this process."""

from __future__ import annotations

import importlib.util
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import corpus_folder
from visualquant.cli.main import run

# The shared tools leave files to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
KINDS = ("reader", "weights", "bad_input", "scheme", "alignment")


def _cases() -> list[str]:
    folder = corpus_folder()
    if folder is None:
        return []
    found = sorted((folder.parent / "cases").glob("*/expect.json"))
    return [p.parent.name for p in found if json.loads(p.read_text())["kind"] in KINDS]


@pytest.fixture(scope="module")
def checker(corpus: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_case", corpus.parent / "tools" / "check_case.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", _cases())
def test_case(case: str, cases: Path, checker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_process(_cmd: Any, float_path: Path, quant_path: Path, _data: Any, seconds: int = 0) -> Any:
        out, err = tmp_path / "report.json", io.StringIO()
        with redirect_stdout(io.StringIO()), redirect_stderr(err):
            code = run(["compare", str(float_path), str(quant_path), "--json", str(out)])
        return code, err.getvalue(), json.loads(out.read_text()) if out.exists() else None

    monkeypatch.setattr(checker, "run", in_process)
    assert checker.check(cases / case, ["visualquant"], ["exit", "weights", "aligned"]) == []
