"""`python -m benchmarks.layout`: layout of large graphs, and crossings beside Graphviz dot where a corpus is given."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from benchmarks.large_pair import large_report

from visualquant.layout import layered, pieces
from visualquant.layout.drawing import LayoutRequest
from visualquant.layout.layered import layout
from visualquant.viewmodel.boxes import ViewOptions, make_boxes
from visualquant.viewmodel.sides import read_pair


def request(sources: np.ndarray, targets: np.ndarray, nodes: int) -> LayoutRequest:
    sources, targets = sources.astype(np.int64), targets.astype(np.int64)
    return LayoutRequest(np.full(nodes, 110.0), np.full(nodes, 30.0), sources, targets, sources.copy())


def decoder(nodes: int) -> LayoutRequest:
    pair = read_pair(large_report(nodes))
    return make_boxes(pair, pair.sides["quant"], ViewOptions(plumbing=True)).request


def chain(nodes: int) -> LayoutRequest:
    return request(np.arange(nodes - 1), np.arange(1, nodes), nodes)


def unet(nodes: int) -> LayoutRequest:
    skips = np.arange(0, nodes // 2, 8)
    sources = np.concatenate([np.arange(nodes - 1), skips])
    return request(sources, np.concatenate([np.arange(1, nodes), nodes - 1 - skips]), nodes)


def tangled(nodes: int) -> LayoutRequest:
    """No two pieces alike: random short edges, some long."""
    rng = np.random.default_rng(1)
    edges = []
    for b in range(1, nodes):
        for _ in range(1 + (rng.random() < 0.6)):
            reach = rng.exponential(3) if rng.random() < 0.97 else rng.integers(200)
            edges.append((max(0, b - 1 - int(reach)), b))
    sources, targets = np.array(edges).T
    return request(sources, targets, nodes)


def main() -> None:
    layout(chain(500))
    layout(tangled(100))
    makers: tuple[Callable[[int], LayoutRequest], ...] = (decoder, chain, unet, tangled)
    for maker in makers:
        for nodes in (2_000, 50_000):
            asked, times = maker(nodes), []
            for _ in range(3):
                layered.forget()
                pieces.forget()
                start = time.perf_counter()
                drawing = layout(asked)
                times.append(time.perf_counter() - start)
            print(
                f"{maker.__name__:<10}{asked.width.size:>8,} nodes {asked.sources.size:>8,} edges"
                f"{statistics.median(times) * 1e3:>9.1f} ms, {drawing.shapes.size:,} pieces, "
                f"{np.unique(drawing.shapes).size:,} distinct"
            )
    if len(sys.argv) > 1:
        from tests.layout.oracle import crossings_of, dot_crossings, request_of

        own = dots = files = 0
        for path in sorted(Path(sys.argv[1]).glob("*/*.onnx")):
            asked = request_of(path)
            if 1 < asked.width.size <= 420:
                files, own, dots = files + 1, own + crossings_of(layout(asked)), dots + dot_crossings(asked)
        print(f"{files} corpus models: {own:,} crossings, Graphviz dot {dots:,}, ratio {own / dots:.3f}")


if __name__ == "__main__":
    main()
