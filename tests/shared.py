"""The material beside the checkout: corpus, cases, and the tools that score them."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

CORPUS = Path(os.environ.get("VISUALQUANT_CORPUS") or Path(__file__).resolve().parents[2] / "shared" / "corpus")
SHARED = CORPUS.parent


def corpus_folder() -> Path | None:
    """The corpus; None where it is absent."""
    return CORPUS if (CORPUS / "index.json").exists() else None


def load_tool(name: str) -> ModuleType:
    """A script of the shared tools as a module."""
    key = f"shared_tools_{name}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, SHARED / "tools" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[key] = module
        spec.loader.exec_module(module)
    return sys.modules[key]


def case_names(wanted: Callable[[Mapping[str, Any]], bool]) -> list[str]:
    """Folders of the cases whose expect.json is wanted; none where there is no corpus."""
    found = sorted((SHARED / "cases").glob("*/expect.json"))
    return [p.parent.name for p in found if wanted(json.loads(p.read_text()))]
