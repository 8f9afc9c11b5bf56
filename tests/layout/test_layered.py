"""The layered drawing: downward, straight, free of overlaps, always the same, and as good as dot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.layout.oracle import crossings_of, dot_crossings, request_of
from visualquant.errors import CancelledError
from visualquant.layout import layered, pieces
from visualquant.layout.drawing import Drawing, LayoutRequest
from visualquant.layout.layered import layout


def request(nodes: int, edges: list[tuple[int, int]], widths: list[float] | None = None) -> LayoutRequest:
    sources = np.array([a for a, _ in edges], np.int64)
    targets = np.array([b for _, b in edges], np.int64)
    width = np.full(nodes, 100.0) if widths is None else np.array(widths)
    return LayoutRequest(width, np.full(nodes, 26.0), sources, targets, sources.copy())


@st.composite
def graphs(draw: st.DrawFn) -> LayoutRequest:
    nodes = draw(st.integers(1, 40))
    pair = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))
    widths = draw(st.lists(st.floats(20, 200), min_size=nodes, max_size=nodes))
    return request(nodes, draw(st.lists(pair, max_size=80)), widths)


def check(asked: LayoutRequest, drawing: Drawing) -> None:
    for y in np.unique(np.round(drawing.y, 3)):
        row = np.flatnonzero(np.abs(drawing.y - y) < 1e-2)
        row = row[np.argsort(drawing.x[row])]
        room = np.diff(drawing.x[row]) - (asked.width[row][1:] + asked.width[row][:-1]) / 2
        assert (room > pieces.NODE_GAP - 1e-6).all()
    assert drawing.offsets.size == asked.sources.size + 1
    for e, (a, b) in enumerate(zip(asked.sources, asked.targets, strict=True)):
        points = drawing.points[drawing.offsets[e] : drawing.offsets[e + 1]]
        ends = np.array([[drawing.x[a], drawing.y[a]], [drawing.x[b], drawing.y[b]]])
        assert np.allclose(points[[0, -1], 0], ends[:, 0])
        assert (np.abs(points[[0, -1], 1] - ends[:, 1]) <= asked.height[[a, b]] / 2 + 1e-6).all()
        if not drawing.jumps[e]:
            step = np.diff(points[:, 1])
            assert (step >= -1e-6).all() or (step <= 1e-6).all()


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_any_graph_is_drawn_in_layers_without_overlap(asked: LayoutRequest) -> None:
    check(asked, layout(asked))


@given(graphs())
@settings(max_examples=15, deadline=None)
def test_compiled_and_interpreted_draw_alike(asked: LayoutRequest) -> None:
    assembled = []
    for small in (0, 10_000):
        layered.forget()
        pieces.forget()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(layered, "SMALL", small)
            assembled.append(layout(asked))
    one, other = assembled
    assert np.array_equal(one.x, other.x) and np.array_equal(one.points, other.points)


def test_edges_of_sorted_graphs_lead_down() -> None:
    rng = np.random.default_rng(3)
    edges = [(int(rng.integers(max(0, b - 20), b)), b) for b in range(1, 400) for _ in range(2)]
    asked = request(400, edges)
    drawing = layout(asked)
    check(asked, drawing)
    assert (drawing.y[asked.sources] < drawing.y[asked.targets]).all()


def test_a_chain_with_weights_is_one_vertical_line() -> None:
    edges, data = [], [0]
    nodes = 1
    for _ in range(300):  # each layer reads the data and two dequantized constants
        edges += [(data[-1], nodes + 2), (nodes, nodes + 2), (nodes + 1, nodes + 2)]
        data.append(nodes + 2)
        nodes += 3
    drawing = layout(request(nodes, edges))
    assert np.ptp(drawing.x[data]) == 0
    assert drawing.shapes.size > 10 and np.unique(drawing.shapes).size <= 3


def test_equal_blocks_look_equal_and_the_trunk_is_straight() -> None:
    edges = []
    for block in range(60):
        at = 10 * block
        edges += [(at + k, at + k + 1) for k in range(10)] + [(at, at + 4), (at + 2, at + 9)]
    drawing = layout(request(601, edges))
    assert np.unique(drawing.shapes).size <= 4
    starts = np.arange(0, 601, 10)
    assert np.ptp(drawing.x[starts]) < 1e-9


def test_unsorted_files_cycles_and_double_edges() -> None:
    edges = [(3, 2), (2, 1), (1, 0), (0, 2), (1, 1), (3, 2), (3, 2)]
    asked = request(5, edges)
    check(asked, layout(asked))


def test_long_edges_are_stubs() -> None:
    edges = [(k, k + 1) for k in range(400)] + [(0, 400)]
    drawing = layout(request(401, edges))
    assert drawing.jumps.tolist() == [False] * 400 + [True]
    assert drawing.offsets[-1] - drawing.offsets[-2] == 4


def test_wide_layers_wrap() -> None:
    edges = [(0, k) for k in range(1, 3001)] + [(k, 3001) for k in range(1, 3001)]
    drawing = layout(request(3002, edges))
    assert np.bincount(drawing.layer).max() == layered.WIDEST


def test_the_same_graph_always_looks_the_same() -> None:
    edges = [(k, k + 1 + j) for k in range(200) for j in (0, 2, 5) if k + 1 + j < 200]
    asked = request(200, edges)
    first = layout(asked)
    assert layout(request(200, edges)) is first
    layered.forget()
    pieces.forget()
    again = layout(asked)
    assert np.array_equal(first.x, again.x) and np.array_equal(first.points, again.points)


def test_it_can_be_cancelled() -> None:
    edges = [(k, k + 1) for k in range(500)]
    with pytest.raises(CancelledError):
        layout(request(501, [*edges, (3, 9)]), cancel=lambda: True)


def test_nothing() -> None:
    assert layout(request(0, [])).bounds == (0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("sample", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_crossings_are_close_to_dot(corpus, sample: int) -> None:
    own = dots = 0
    for path in sorted(corpus.glob("*/*.onnx"))[::sample]:
        asked = request_of(path)
        if 1 < asked.width.size <= 420:
            own += crossings_of(layout(asked))
            dots += dot_crossings(asked)
    assert own <= 1.15 * dots + 20 * (sample > 1)
