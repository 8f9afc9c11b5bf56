"""Colours, search, tables, details, camera, settings."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.viewmodel.conftest import small_report
from visualquant.core.report import WeightDetail
from visualquant.errors import UsageError
from visualquant.layout.drawing import LayoutRequest
from visualquant.layout.layered import layout
from visualquant.viewmodel import details, tables
from visualquant.viewmodel.camera import Camera, Index, fitted, strips, worst_by_piece
from visualquant.viewmodel.colours import METRICS, SCALE, colour_by, ink_on, palette, rgb
from visualquant.viewmodel.history import History
from visualquant.viewmodel.search import search
from visualquant.viewmodel.settings import Settings, read_settings, write_settings
from visualquant.viewmodel.sides import Pair, module_of


def find(pair: Pair, query: str, side: str = "quant") -> list[str]:
    own = pair.sides["quant" if side == "quant" else "float"]
    hits = search(pair, own, query, lambda name: colour_by(pair, name).values)  # type: ignore[arg-type]
    return [own.nodes[k].op_type for k in hits.nodes]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", []),
        ("block1", ["QLinearConv"]),
        ("CONV block0", ["Conv"]),
        ("op:conv", ["Conv"]),
        ("op:add", ["Add"]),
        ("sqnr<20", ["QLinearConv"]),
        ("sqnr>=40", ["Conv"]),
        ("activation<20", ["QLinearConv", "Add"]),
        ("bits<5 op:QLinearConv", ["QLinearConv"]),
        ("/block[01]/ op:conv", ["Conv"]),
        ("kind:inserted", ["Cast"]),
        ("tensor:w0d", ["DequantizeLinear", "Conv"]),
        ("fusion:batch op:conv", ["Conv"]),
        ("finding:outlier", ["QLinearConv"]),
        ('"head/mul"', ["Mul"]),
        ("nothing", []),
    ],
)
def test_search(pair: Pair, query: str, found: list[str]) -> None:
    assert find(pair, query) == found


@pytest.mark.parametrize("query", ["/(/", "colour<3"])
def test_search_says_what_it_cannot_read(pair: Pair, query: str) -> None:
    with pytest.raises(UsageError):
        find(pair, query)


def test_matches_step_round(pair: Pair) -> None:
    hits = search(pair, pair.sides["float"], "conv", lambda name: colour_by(pair, name).values)  # type: ignore[arg-type]
    assert hits.nodes == (0, 1, 3, 4) or len(hits.nodes) >= 2
    assert hits.step(None) == hits.nodes[0] and hits.step(hits.nodes[-1]) == hits.nodes[0]
    assert hits.step(hits.nodes[0], forward=False) == hits.nodes[-1]


@pytest.mark.parametrize("metric", [m.name for m in METRICS])
def test_unmeasured_looks_unmeasured(pair: Pair, metric: str) -> None:
    coloured = colour_by(pair, metric)  # type: ignore[arg-type]
    table = palette(coloured, (1, 2, 3, 255))
    known = ~np.isnan(coloured.values)
    assert (table[:-1][~known] == (1, 2, 3, 255)).all() and (table[-1] == (1, 2, 3, 255)).all()
    assert (table[:-1][known][:, :3] != (1, 2, 3)).any(axis=1).all()


def test_the_scale_runs_from_good_to_bad(pair: Pair) -> None:
    assert rgb(0.0) == SCALE[0] and rgb(1.0) == SCALE[-1]
    coloured = colour_by(pair, "weight_sqnr")
    assert coloured.badness[0] < coloured.badness[1]
    assert coloured.ticks[0][1].startswith("≥") and coloured.ticks[-1][1].startswith("≤")
    assert colour_by(pair, "clipped").values[4] == pytest.approx(2.0)


@given(st.floats(0, 1))
def test_ink_reads_on_every_colour(at: float) -> None:
    fill = rgb(at)

    def luminance(colour: tuple[int, ...]) -> float:
        linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    a, b = sorted((luminance(fill), luminance(ink_on(fill))))
    assert (b + 0.05) / (a + 0.05) >= 4.5


@given(st.lists(st.one_of(st.floats(-50, 50), st.just(math.nan)), max_size=20), st.booleans())
def test_tables_sort_with_unmeasured_last(numbers: list[float], descending: bool) -> None:
    rows = tuple((f"row {k}", x) for k, x in enumerate(numbers))
    table = tables.Table("t", ("name", "x"), (False, True), rows, tuple(range(len(rows))))
    order = table.order(1, descending)
    values = [numbers[k] for k in order]
    known = [x for x in values if not math.isnan(x)]
    assert known == sorted(known, reverse=descending)
    assert all(math.isnan(x) for x in values[len(known) :])
    assert table.order(None, False, "ROW") == list(range(len(rows)))
    assert table.order(None, False, "nothing") == []


def test_tables_of_a_report(pair: Pair) -> None:
    names = ("activation_sqnr", "isolated_sqnr", "clipped")
    layers = tables.layers(pair, {m: colour_by(pair, m).values for m in names})  # type: ignore[arg-type]
    assert [r[0] for r in layers.rows] == ["/block0/conv/Conv", "/block1/conv/Conv", "/head/add/Add"]
    assert layers.groups == (0, 1, 4)
    assert tables.findings(pair).groups == (1,)
    assert tables.fusions(pair).rows[0][:3] == (
        "Conv+BatchNormalization+Relu",
        "Conv + BatchNormalization + Relu",
        "Conv",
    )
    assert len(tables.alignment(pair).rows) == 8
    assert tables.flipped(pair).rows == ()


def test_details(pair: Pair) -> None:
    words = [line for s in details.describe(pair, 1) for line in s.lines]
    assert ("fix", "do this") in words and any("int4" in v for _, v in words)
    assert any(k == "no counterpart" for s in details.describe(pair, 2) for k, _ in s.lines)
    drift = details.drift(pair)
    assert drift.groups.tolist() == [1, 4] and drift.nearest(4.1, 18.0) == 4


def test_histograms_and_channels(pair: Pair) -> None:
    weight = small_report().weights[0]
    detail = WeightDetail(
        channel_sqnr_db=np.array([30.0, np.nan, 12.0]),
        edges=np.array([-np.inf, -1.0, 0.0, 1.0, np.inf]),
        counts_float=np.array([0, 5, 6, 0]),
        counts_quant=np.array([0, 4, 7, 0]),
    )
    chart = details.histogram(weight, detail)
    assert chart is not None and chart.centres.tolist() == [-0.5, 0.5] and chart.counts_quant.tolist() == [4, 7]
    channels = details.channels(weight, detail)
    assert channels is not None and channels.channel.tolist() == [2, 0, 1]
    assert details.histogram(weight, None) is None and details.channels(weight, WeightDetail()) is None


@given(st.floats(0.01, 3), st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), st.floats(0.5, 2))
def test_zoom_keeps_what_is_under_the_pointer(scale: float, x: float, y: float, factor: float) -> None:
    camera = Camera(scale, 5, 7)
    before = camera.to_world(x, y)
    assert camera.zoomed(factor, x, y).to_world(x, y) == pytest.approx(before, abs=1e-5 * (1 + abs(x) + abs(y)) / scale)


def test_the_index_finds_what_is_in_view() -> None:
    count = 600
    sources = np.array([*range(count - 1), 0, 5])
    targets = np.array([*range(1, count), 400, 40])
    request = LayoutRequest(np.full(count, 90.0), np.full(count, 30.0), sources, targets, sources.copy())
    drawing = layout(request)
    index = Index(drawing, request.width, request.height)
    rng = np.random.default_rng(0)
    left, top, right, bottom = drawing.bounds
    for _ in range(50):
        x, y = rng.uniform(left, right), rng.uniform(top, bottom)
        window = (x - 200, y - 400, x + 200, y + 400)
        found = set(index.boxes(window).tolist())
        for b in range(count):
            inside = abs(drawing.y[b] - y) < 400 + 15 and abs(drawing.x[b] - x) < 200 + 45
            assert (b in found) == inside
        edges = set(index.edges(window).tolist())
        for e in np.flatnonzero(~drawing.jumps).tolist():
            points = drawing.points[drawing.offsets[e] : drawing.offsets[e + 1]]
            if (np.abs(points - (x, y)) < (200, 400)).all(axis=1).any():
                assert e in edges
    assert index.at(float(drawing.x[3]), float(drawing.y[3])) == 3
    folded = strips(drawing, 0.001)
    assert folded[0].first == 0 and folded[-1].last == drawing.shapes.size - 1
    assert [s.first for s in folded[1:]] == [s.last + 1 for s in folded[:-1]]
    assert len(folded) <= (bottom - top) * 0.001 / 4 + 3
    far = strips(drawing, 0.005)
    assert max(s.repeats for s in far) > 1 and len(far) < drawing.shapes.size
    values = np.full(count, np.nan)
    values[7] = 0.5
    assert np.nanmax(worst_by_piece(drawing, values)) == 0.5
    assert fitted(drawing.bounds, 800, 600).window(800, 600)[1] <= top


def test_history_is_bounded_by_its_ends() -> None:
    history = History(0)
    history.push(0)
    history.push(1)
    assert history.undo() == 0 and history.undo() == 0 and history.redo() == 1 and history.redo() == 1
    history.undo()
    history.push(2)
    assert history.redo() == 2


@given(st.one_of(st.none(), st.text(), st.dictionaries(st.text(), st.one_of(st.none(), st.floats(), st.text()))))
def test_settings_of_any_content(tmp_path_factory, content: object) -> None:
    path = tmp_path_factory.mktemp("settings") / "window.json"
    path.write_text(json.dumps(content))
    assert isinstance(read_settings(path), Settings)
    settings = Settings().opened(("a", "b")).opened(("c",)).opened(("a", "b"))
    write_settings(settings, path)
    assert read_settings(path) == settings and settings.recent == (("a", "b"), ("c",))


def test_modules() -> None:
    assert module_of("/layer1/block0/conv/Conv") == "layer1/block0/conv" and module_of("Conv_3") == ""
