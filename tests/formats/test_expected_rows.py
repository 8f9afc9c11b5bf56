"""Every row of zoo/weights.json and of the cases' expect.json, by numpy on the sites alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import corpus_folder
from tests.formats.expected import complaints
from visualquant.formats.container import open_model
from visualquant.formats.scheme import find_sites

PENDING_CASES: set[str] = set()


def _zoo_files() -> list[str]:
    folder = corpus_folder()
    if folder is None:
        return []
    return sorted(json.loads((folder.parent / "zoo" / "weights.json").read_text()))


def _cases() -> list[str]:
    folder = corpus_folder()
    if folder is None:
        return []
    found = [p.parent for p in sorted((folder.parent / "cases").glob("*/expect.json"))]
    return [p.name for p in found if json.loads((p / "expect.json").read_text()).get("weights")]


@pytest.mark.parametrize("file", _zoo_files())
def test_zoo(zoo: Path, file: str) -> None:
    rows = json.loads((zoo / "weights.json").read_text())[file]["rows"]
    path = zoo / "corpus" / file
    graph, partner = open_model(path), open_model(path.parent / "fp32.onnx")
    sites = find_sites(graph)
    assert [c for row in rows for c in complaints(sites, graph, partner, row)] == []
    assert [graph.values[v].key for v in sites.unclaimed] == []
    assert sites.conflicts == () and sites.unknown_operators == ()
    assert [s.problem for s in sites.sites if s.problem] == []


@pytest.mark.parametrize("case", [c for c in _cases() if c not in PENDING_CASES])
def test_case(cases: Path, case: str) -> None:
    expect = json.loads((cases / case / "expect.json").read_text())
    graph = open_model(cases / case / expect.get("quant", "quant.onnx"))
    partner = open_model(cases / case / expect.get("float", "float.onnx"))
    sites = find_sites(graph)
    # a weight that BatchNormalization was folded into needs the alignment's factor
    rows = [row for row in expect["weights"] if row.get("transform") != "bn_folded"]
    assert [c for row in rows for c in complaints(sites, graph, partner, row)] == []
    assert sites.unclaimed == () and sites.unknown_operators == ()
    if "schemes" in expect:
        assert list(sites.schemes) == expect["schemes"]
