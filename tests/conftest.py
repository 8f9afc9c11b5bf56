"""Where tests find the corpus."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.shared import corpus_folder


@pytest.fixture(scope="session")
def corpus() -> Path:
    folder = corpus_folder()
    if folder is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no corpus: set VISUALQUANT_CORPUS")
        pytest.skip("no corpus beside the checkout (VISUALQUANT_CORPUS)")
    return folder


@pytest.fixture(scope="session")
def cases(corpus: Path) -> Path:
    return corpus.parent / "cases"


@pytest.fixture(scope="session")
def zoo(corpus: Path) -> Path:
    return corpus.parent / "zoo"
