"""The pairs on which alignment is scored, and the scorers of the shared tools, called in process."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from visualquant.core.alignment import Alignment
from visualquant.core.graph import GraphView

CHECKOUT = Path(__file__).resolve().parents[2]
CORPUS = Path(os.environ.get("VISUALQUANT_CORPUS") or CHECKOUT.parent / "shared" / "corpus")
SHARED = CORPUS.parent


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """Two files to align. `case` is the folder with anchors.json or expect.json, where there is one."""

    set_name: str
    name: str
    float_path: Path
    quant_path: Path
    case: Path | None = None


def load_tool(name: str) -> Any:
    """A script of the shared tools as a module."""
    key = f"shared_tools_{name}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, SHARED / "tools" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[key] = module
        spec.loader.exec_module(module)
    return sys.modules[key]


def corpus_pairs() -> list[Pair]:
    """Every ONNX file of corpus and zoo against the fp32.onnx of its folder."""
    found = []
    for set_name, root in (("corpus", CORPUS), ("zoo", SHARED / "zoo" / "corpus")):
        for entry in json.loads((root / "index.json").read_text()):
            path = root / entry["file"]
            if path.suffix == ".onnx" and entry["variant"] != "fp32":
                found.append(Pair(set_name, entry["file"], path.parent / "fp32.onnx", path))
    return found


def extra_pairs(root: Path) -> list[Pair]:
    """Pairs of a folder that is laid out like the corpus, without an index; sub-folder `cross` holds cases."""
    found = [
        Pair("extra", f"{p.parent.name}/{p.name}", p.parent / "fp32.onnx", p)
        for p in sorted(root.glob("*/*.onnx"))
        if p.name != "fp32.onnx" and (p.parent / "fp32.onnx").exists()
    ]
    return found + [_case("extra_cross", p.parent) for p in sorted(root.glob("cross/*/expect.json"))]


def cross_pairs() -> list[Pair]:
    """Float of one exporter against the quantized file of another."""
    return [_case("cross", p.parent) for p in sorted((SHARED / "zoo" / "cases").glob("*/expect.json"))]


def case_pairs() -> list[Pair]:
    """The small cases that say which nodes belong together."""
    cases = [_case("cases", p.parent) for p in sorted((SHARED / "cases").glob("*/expect.json"))]
    return [c for c in cases if c.case and json.loads((c.case / "expect.json").read_text()).get("aligned")]


def _case(set_name: str, folder: Path) -> Pair:
    expect = json.loads((folder / "expect.json").read_text())
    paths = [(folder / expect.get(k, f"{k}.onnx")).resolve() for k in ("float", "quant")]
    return Pair(set_name, folder.name, paths[0], paths[1], folder)


def report_of(float_graph: GraphView, quant_graph: GraphView, alignment: Alignment) -> dict[str, Any]:
    """The part of the JSON report that the scorers read."""

    def nodes(graph: GraphView) -> list[dict[str, Any]]:
        return [
            {
                "id": f"n{n.id}",
                "name": n.name,
                "op_type": n.op_type,
                "outputs": [graph.values[o].name for o in n.outputs if o is not None],
                "scope": n.scope,
            }
            for n in graph.nodes
        ]

    return {
        "nodes": {"float": nodes(float_graph), "quant": nodes(quant_graph)},
        "alignment": [
            {
                "group": g.id,
                "float": [f"n{k}" for k in g.float_nodes],
                "quant": [f"n{k}" for k in g.quant_nodes],
                "confidence": g.confidence,
                "evidence": list(g.evidence),
            }
            for g in alignment.groups
        ],
    }


@lru_cache(maxsize=8)
def _truth_of(pair: Pair) -> Any:
    """The truth does not depend on the engine: once a pair is enough for its names and all its scrambles."""
    tool = load_tool("alignment_truth")
    plain = tool.anchors
    if pair.case is not None:
        ties = [tuple(x) for x in json.loads((pair.case / "anchors.json").read_text())["anchors"]]
        tool.anchors = lambda *_: (ties, {x for x, _ in ties})
    try:
        return tool.truth(
            *(tool.onnx.load(p, load_external_data=False).graph for p in (pair.float_path, pair.quant_path))
        )
    finally:
        tool.anchors = plain


@contextlib.contextmanager
def quiet_about_files() -> Iterator[None]:
    """The shared tools leave closing files to the garbage collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def has_truth(pair: Pair) -> bool:
    """False for cases that only state `aligned`."""
    return pair.set_name != "cases" and (pair.case is None or (pair.case / "anchors.json").exists())


def score(pair: Pair, report: dict[str, Any], map_path: Path | None = None) -> dict[str, Any]:
    """The JSON line of alignment_truth.py (or cross_score.py) for a report."""
    tool = load_tool("alignment_truth")
    truth = _truth_of(pair)
    plain = tool.truth, tool.onnx
    tool.truth = lambda *_: truth
    tool.onnx = _NoLoad
    out = io.StringIO()
    try:
        with (
            tempfile.NamedTemporaryFile("w", suffix=".json") as file,
            contextlib.redirect_stdout(out),
            quiet_about_files(),
        ):
            json.dump(report, file)
            file.flush()
            tool.score(str(pair.float_path), str(pair.quant_path), file.name, str(map_path) if map_path else None)
    except SystemExit:
        return {"f1": None, "partition": True}
    finally:
        tool.truth, tool.onnx = plain
    result: dict[str, Any] = json.loads(out.getvalue())
    return result


def judged_groups(
    pair: Pair, report: dict[str, Any], map_path: Path | None = None
) -> list[tuple[str, float, bool, bool]]:
    """(group, confidence, judged, right) for each group with nodes of both sides.

    Right: every judged (float, quant) pair in the group is true, as the scorer counts them.
    """
    f, q, fj, qj = _truth_of(pair)
    renamed = json.loads(map_path.read_text()) if map_path else {}
    owner: dict[str, dict[str, int]] = {}
    for side, graph, names in (("float", f, {}), ("quant", q, renamed)):
        made = {names.get(t, t): k for t, k in graph.made.items()}
        owner[side] = {}
        for node in report["nodes"][side]:
            k = next((made[o] for o in node["outputs"] if o in made), None)
            if not node["scope"] and k is not None:
                owner[side][node["id"]] = k
    rows = []
    for group in report["alignment"]:
        fs = {k for k in (owner["float"].get(i) for i in group["float"]) if k in fj}
        qs = {k for k in (owner["quant"].get(i) for i in group["quant"]) if k in qj}
        if not group["float"] or not group["quant"]:
            continue
        plumbing = all(f.plumb[a] for a in fs) or all(q.plumb[b] for b in qs)
        pairs = [(a, b) for a in fs for b in qs if plumbing or not (f.plumb[a] or q.plumb[b])]
        right = all(fj[a] & qj[b] for a, b in pairs)
        rows.append((group["group"], group["confidence"], bool(pairs), right))
    return rows


class _NoLoad:
    """Stands in for the onnx module while a cached truth is used."""

    class _Model:
        graph = None

    @staticmethod
    def load(*_: object, **__: object) -> _NoLoad._Model:
        return _NoLoad._Model()
