"""F1 of every corpus, zoo, cross-exporter and case pair at once: python tests/align/corpus_report.py [options].

--sets corpus,zoo,cross,cases  --seeds 0,1,2,3 (0: names kept)  --extra DIR  --match TEXT  --jobs N  --worst N
--json F  --against F
`--against` names an earlier --json file and prints what was won and lost since.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import json
import pickle
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pairs as shared

from visualquant.align import align
from visualquant.formats.container import open_model
from visualquant.formats.scheme import find_sites

CACHE = Path(tempfile.gettempdir()) / "visualquant-align-cache"


def graph_and_sites(path: Path) -> Any:
    """A graph and its sites, from a cache of this machine where it is fresh."""
    cached = CACHE / (str(path).replace("/", "_") + ".pickle")
    if cached.exists() and cached.stat().st_mtime > path.stat().st_mtime:
        return pickle.loads(cached.read_bytes())
    graph = open_model(path)
    sites = find_sites(graph).sites
    with contextlib.suppress(TypeError, AttributeError, pickle.PicklingError):
        cached.write_bytes(pickle.dumps((graph, sites)))
    return graph, sites


def scrambled(pair: shared.Pair, seed: int) -> tuple[Path, Path]:
    stem = str(pair.quant_path).replace("/", "_") + f".{seed}"
    out, names = CACHE / f"{stem}.onnx", CACHE / f"{stem}.map.json"
    if not names.exists():
        shared.load_tool("alignment_truth").scramble(str(pair.quant_path), str(out), str(names), seed)
    return out, names


def run_pair(pair: shared.Pair, seeds: list[int]) -> list[dict[str, Any]]:
    rows = []
    float_graph, float_sites = graph_and_sites(pair.float_path)
    for seed in seeds:
        if seed and pair.case is not None:
            continue
        path, names = (pair.quant_path, None) if not seed else scrambled(pair, seed)
        row: dict[str, Any] = {"set": pair.set_name, "name": pair.name, "seed": seed}
        start = time.perf_counter()
        try:
            quant_graph, quant_sites = graph_and_sites(path)
            start = time.perf_counter()
            result = align(float_graph, quant_graph, float_sites=float_sites, quant_sites=quant_sites)
            row["seconds"] = time.perf_counter() - start
            report = shared.report_of(float_graph, quant_graph, result)
            if shared.has_truth(pair):
                row.update(shared.score(pair, report, names))
                row["groups"] = shared.judged_groups(pair, report, names)
            if pair.case is not None:
                tool = shared.load_tool("check_case")
                expect = json.loads((pair.case / "expect.json").read_text())
                row["missing"] = list(tool.check_aligned(expect, tool.Report(report)))
            row["related"] = result.related
        except Exception as error:
            row.update(f1=0.0, error=f"{type(error).__name__}: {error}", seconds=time.perf_counter() - start)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="corpus,zoo,cross,cases")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--extra", type=Path, help="a folder of further folders with fp32.onnx and its other files")
    parser.add_argument("--match", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--worst", type=int, default=12)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--against", type=Path)
    args = parser.parse_args()
    CACHE.mkdir(exist_ok=True)
    sets, seeds = args.sets.split(","), [int(x) for x in args.seeds.split(",")]
    todo = [p for p in (*shared.corpus_pairs(), *shared.cross_pairs(), *shared.case_pairs()) if p.set_name in sets]
    todo += shared.extra_pairs(args.extra) if args.extra else []
    todo = [p for p in todo if args.match in p.name]
    rows: list[dict[str, Any]] = []
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        for got in pool.map(run_pair, todo, [seeds] * len(todo), chunksize=4):
            rows += got
    show(rows, args.worst)
    if args.json:
        args.json.write_text(json.dumps(rows))
    if args.against:
        compare(rows, json.loads(args.against.read_text()))


def show(rows: list[dict[str, Any]], worst: int) -> None:
    by: dict[tuple[str, bool], list[dict[str, Any]]] = collections.defaultdict(list)
    for row in rows:
        by[row["set"], bool(row["seed"])].append(row)
    for (set_name, is_scrambled), found in sorted(by.items()):
        label = f"{set_name} {'scrambled' if is_scrambled else 'kept'}"
        scored = sorted((r for r in found if r.get("f1") is not None), key=lambda r: r["f1"])
        if scored:
            f1 = [r["f1"] for r in scored]
            print(
                f"{label:18} pairs {len(f1):4}  mean {statistics.mean(f1):.4f}  min {f1[0]:.3f}  "
                f"=1: {sum(x >= 0.99999 for x in f1)}  partition {all(r.get('partition') for r in scored)}  "
                f"{sum(r['seconds'] for r in found):.1f} s"
            )
            for r in scored[:worst]:
                if r["f1"] < 0.99999:
                    print(
                        f"    {r['f1']:.3f} r{r.get('recall', 0):.3f} p{r.get('precision', 0):.3f} {r['name']} "
                        f"seed {r['seed']} {r.get('error', '')}"
                    )
        missing = [r for r in found if r.get("missing")]
        for r in missing:
            print(f"    {r['name']}: {len(r['missing'])} missing: {r['missing'][:3]}")
        if any("missing" in r for r in found):
            print(
                f"{label:18} aligned: {sum('missing' in r and not r['missing'] for r in found)} of "
                f"{sum('missing' in r for r in found)}"
            )
        for r in found:
            if r.get("error"):
                print("    ERROR", r["name"], r["seed"], r["error"])
    sure = [g for r in rows for g in r.get("groups", ()) if g[2] and g[1] >= 0.9]
    judged = [g for r in rows for g in r.get("groups", ()) if g[2]]
    if judged:
        print(
            f"confidence >= 0.9: {len(sure)} of {len(judged)} groups, "
            f"right {sum(g[3] for g in sure) / max(len(sure), 1):.4f}; "
            f"below: right {sum(g[3] for g in judged if g[1] < 0.9) / max(len(judged) - len(sure), 1):.4f}"
        )


def compare(rows: list[dict[str, Any]], old_rows: list[dict[str, Any]]) -> None:
    old = {(r["set"], r["name"], r["seed"]): r.get("f1") for r in old_rows}
    moved = []
    for r in rows:
        before = old.get((r["set"], r["name"], r["seed"]))
        if before is not None and r.get("f1") is not None and abs(before - r["f1"]) > 1e-4:
            moved.append((r["f1"] - before, before, r["f1"], r["set"], r["name"], r["seed"]))
    moved.sort()
    print(
        f"{sum(m[0] > 0 for m in moved)} won, {sum(m[0] < 0 for m in moved)} lost, sum {sum(m[0] for m in moved):+.3f}"
    )
    for gain, before, after, *what in [*moved[:25], *moved[25:][-15:]]:
        print(f"{'won ' if gain > 0 else 'LOST'} {before:.3f} -> {after:.3f} {what}")


if __name__ == "__main__":
    main()
