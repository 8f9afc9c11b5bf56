"""Graphviz dot as the oracle for crossings: both drawings are counted gap by gap between their ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pygraphviz

from visualquant.formats.container import open_model
from visualquant.layout.drawing import Drawing, LayoutRequest

Gaps = dict[float, list[tuple[float, float]]]


def request_of(path: Path) -> LayoutRequest:
    graph = open_model(path)
    place = {n.id: k for k, n in enumerate(graph.main_nodes)}
    edges = [
        (place[made], place[n.id], v)
        for n in graph.main_nodes
        for v in n.inputs
        if v is not None and (made := graph.values[v].producer) in place
    ]
    sources, targets, tensors = np.array(edges, np.int64).reshape(-1, 3).T.copy()
    return LayoutRequest(np.full(len(place), 110.0), np.full(len(place), 26.0), sources, targets, tensors)


def inversions(gaps: Iterable[list[tuple[float, float]]]) -> int:
    total = 0
    for segments in gaps:
        a, b = np.array(segments).T
        total += int(((a[:, None] < a - 1e-3) & (b[:, None] > b + 1e-3)).sum())
    return total


def crossings_of(drawing: Drawing) -> int:
    gaps: Gaps = {}
    for e in np.flatnonzero(~drawing.jumps):
        points = drawing.points[drawing.offsets[e] : drawing.offsets[e + 1]]
        for (xa, ya), (xb, yb) in itertools.pairwise(points):
            if yb > ya + 30:  # between two layers, not down through one
                gaps.setdefault(round(ya, 2), []).append((xa, xb))
    return inversions(gaps.values())


def dot_crossings(asked: LayoutRequest) -> int:
    graph = pygraphviz.AGraph(directed=True, strict=False)
    graph.graph_attr.update(ranksep="0.47", nodesep="0.25", splines="polyline")
    for v in range(asked.width.size):
        graph.add_node(v, shape="box", width=110 / 72, height=26 / 72, fixedsize=True, label="")
    ends = list(zip(asked.sources.tolist(), asked.targets.tolist(), strict=True))
    for e, (a, b) in enumerate(ends):
        graph.add_edge(a, b, key=str(e), arrowhead="none")
    graph.layout("dot")
    place = np.array([_point(graph.get_node(v).attr["pos"]) for v in range(asked.width.size)])
    ranks = np.unique(np.round(place[:, 1], 1))[::-1]
    gaps: Gaps = {}
    for e, (a, b) in enumerate(ends):
        bends = [
            _point(p)
            for p in graph.get_edge(a, b, key=str(e)).attr["pos"].replace("\\\n", "").split()
            if p[0] not in "es"
        ]
        line = np.array([place[a], *bends[::3], place[b]])
        line = line[np.argsort(-line[:, 1], kind="stable")]
        levels = ranks[(ranks <= line[0, 1] + 1) & (ranks >= line[-1, 1] - 1)]
        xs = np.interp(-levels, -line[:, 1], line[:, 0])
        for k in range(levels.size - 1):
            gaps.setdefault(round(levels[k], 1), []).append((xs[k], xs[k + 1]))
    return inversions(gaps.values())


def _point(text: str) -> tuple[float, float]:
    x, y = text.split(",")
    return float(x), float(y)
