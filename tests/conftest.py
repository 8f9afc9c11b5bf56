"""Where tests find the corpus, and how they run commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DEFAULT_CORPUS = Path(__file__).parents[2] / "shared" / "corpus"


def corpus_folder() -> Path | None:
    """The corpus; None where it is absent."""
    folder = Path(os.environ.get("VISUALQUANT_CORPUS", DEFAULT_CORPUS))
    return folder if (folder / "index.json").exists() else None


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
