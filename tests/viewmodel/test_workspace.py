"""Selection links both sides for every kind of group; options, views, search and errors."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest

from tests.viewmodel.conftest import opened, settle, small_report
from visualquant.core.alignment import SideName
from visualquant.errors import UsageError
from visualquant.viewmodel.pane import values_of_boxes
from visualquant.viewmodel.requests import Requests
from visualquant.viewmodel.workspace import Workspace


def labels(workspace: Workspace, side: SideName) -> list[str]:
    picture = workspace.panes[side].picture
    assert picture is not None
    return list(picture.boxes.labels)


def marked(workspace: Workspace, side: SideName) -> list[str]:
    return [labels(workspace, side)[b] for b in workspace.marked(side)]


def box(workspace: Workspace, side: SideName, label: str) -> int:
    return labels(workspace, side).index(label)


@pytest.mark.parametrize(
    ("side", "label", "own", "across"),
    [
        ("float", "BatchNormalization", ["Conv", "BatchNormalization", "Relu"], ["Conv"]),
        ("quant", "Conv", ["Conv"], ["Conv", "BatchNormalization", "Relu"]),
        ("quant", "QLinearConv", ["QLinearConv"], ["Conv"]),
        ("float", "Gelu", ["Gelu"], ["Erf", "Mul"]),
        ("quant", "Mul", ["Erf", "Mul"], ["Gelu"]),
        ("float", "Dropout", ["Dropout"], []),
        ("quant", "Cast", ["Cast"], []),
    ],
)
def test_selection_marks_both_sides(
    workspace: Workspace, side: SideName, label: str, own: list[str], across: list[str]
) -> None:
    far: SideName = "quant" if side == "float" else "float"
    workspace.select_box(side, box(workspace, side, label))
    assert marked(workspace, side) == own
    assert marked(workspace, far) == across
    if across:
        assert all(workspace.panes[far].in_view(int(b)) for b in workspace.marked(far)[:1])
    else:
        assert workspace.pair is not None
        assert workspace.pair.why_alone(workspace.selection.group or 0) in workspace.message.text


def test_the_counterpart_stands_at_the_same_height(workspace: Workspace) -> None:
    for pane in workspace.panes.values():
        pane.camera = dataclasses.replace(pane.camera, scale=1.0)
    workspace.select_box("float", box(workspace, "float", "Add"))
    workspace.select_box("float", box(workspace, "float", "Add"))
    heights = [workspace.panes[s].screen_of(int(workspace.marked(s)[0]))[1] for s in ("float", "quant")]
    assert abs(heights[0] - heights[1]) < 60


def test_plumbing_is_hidden_until_asked_for(workspace: Workspace) -> None:
    assert "QuantizeLinear" not in labels(workspace, "quant")
    workspace.toggle_plumbing()
    settle(workspace)
    assert labels(workspace, "quant").count("DequantizeLinear") == 2
    workspace.select_box("quant", box(workspace, "quant", "QuantizeLinear"))
    assert marked(workspace, "quant") == ["QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "Conv"]
    assert marked(workspace, "float") == ["Conv", "BatchNormalization", "Relu"]


def test_a_fusion_is_a_frame_that_closes_to_a_box(workspace: Workspace) -> None:
    picture = workspace.panes["float"].picture
    assert picture is not None and [g for g, _ in picture.frames] == [0]
    workspace.select_box("float", box(workspace, "float", "Relu"))
    workspace.toggle_fusion()
    settle(workspace)
    assert "Conv+BatchNormalization+Relu" in labels(workspace, "float")
    assert marked(workspace, "float") == ["Conv+BatchNormalization+Relu"]
    workspace.toggle_fusion()
    settle(workspace)
    assert marked(workspace, "float") == ["Conv", "BatchNormalization", "Relu"]


def test_a_module_is_a_box_with_the_worst_value(workspace: Workspace) -> None:
    workspace.toggle_module("block1")
    settle(workspace)
    module = next(k for k, x in enumerate(labels(workspace, "float")) if x.startswith("block1"))
    picture, badness = workspace.panes["float"].picture, workspace.colours("weight_sqnr").badness
    assert picture is not None and workspace.pair is not None
    assert values_of_boxes(workspace.pair, "float", picture, badness)[module] == badness[1]
    assert any(x.startswith("block1") for x in labels(workspace, "quant"))
    workspace.toggle_all_modules()
    settle(workspace)
    assert "Dropout" in labels(workspace, "float")


def test_sub_graphs_can_be_entered_and_left(workspace: Workspace) -> None:
    picture = workspace.panes["float"].picture
    assert picture is not None
    workspace.enter("float", 7)
    settle(workspace)
    assert labels(workspace, "float") == ["Neg"] and labels(workspace, "quant") == ["Neg"]
    workspace.leave()
    settle(workspace)
    assert "If" in labels(workspace, "float")


def test_history_and_views(workspace: Workspace) -> None:
    workspace.select_group(1)
    workspace.save_view(1)
    workspace.select_group(4)
    workspace.undo()
    assert workspace.selection.group == 1
    workspace.redo()
    assert workspace.selection.group == 4
    camera = workspace.panes["float"].camera
    workspace.pan("float", 300, 300)
    workspace.undo()
    workspace.redo()
    assert workspace.panes["float"].camera == camera.panned(300, 300), "undo and redo keep the view too"
    workspace.recall_view(1)
    assert workspace.selection.group == 1
    workspace.recall_view(7)
    assert "No view 7" in workspace.message.text
    workspace.clear()
    assert not workspace.selection


def test_linked_pan_and_zoom(workspace: Workspace) -> None:
    before = {s: workspace.panes[s].camera for s in workspace.order}
    workspace.pan("float", 10, 20)
    assert all(workspace.panes[s].camera.dx == before[s].dx + 10 for s in workspace.order)
    workspace.toggle_linked()
    workspace.zoom("float", 2.0, 100, 100)
    assert workspace.panes["quant"].camera.scale == before["quant"].scale
    x, y = workspace.panes["float"].camera.to_world(100, 100)
    assert before["float"].panned(10, 20).to_world(100, 100) == pytest.approx((x, y))


def test_colour_never_lays_out_again(workspace: Workspace) -> None:
    pictures = {s: workspace.panes[s].picture for s in workspace.order}
    for name in ("activation_sqnr", "bits", "confidence", "provider", "latency"):
        workspace.set_metric(name)
        assert not workspace.requests.busy()
    assert {s: workspace.panes[s].picture for s in workspace.order} == pictures
    assert "not in this report" in workspace.message.text


def test_runs_of_devices_can_be_told_apart(workspace: Workspace) -> None:
    assert workspace.runs() == ("r1", "board")
    assert workspace.colours("activation_sqnr").values[1] == 9.0, "the worst of all runs"
    workspace.set_run("r1")
    assert workspace.colours("activation_sqnr").values[1] == 22.0
    table = workspace.table("devices")
    assert table.rows[0][:3] == ("pi:50051", "board", "Raspberry Pi 5") and table.rows[0][5] == 25.0
    assert table.groups == (1,)


def test_walking_a_number_needs_the_models(workspace: Workspace) -> None:
    workspace.walk_through(())
    assert "Select a layer" in workspace.message.text
    workspace.select_group(1)
    workspace.walk_through(())
    assert "open the two models" in workspace.message.text


def test_walking_along_edges(workspace: Workspace) -> None:
    workspace.select_box("quant", box(workspace, "quant", "QLinearConv"))
    workspace.walk("down")
    assert workspace.selection.group == 3
    workspace.walk("down")
    assert workspace.selection.group == 4
    workspace.walk("up")
    assert workspace.selection.group in (0, 3)


def test_relatives_stay_while_the_rest_dims(workspace: Workspace) -> None:
    pane = workspace.panes["float"]
    kept = pane.related(np.array([box(workspace, "float", "Dropout")]))
    assert kept is not None
    assert kept[box(workspace, "float", "Relu")] and kept[box(workspace, "float", "If")]


def test_hover_names_metric_and_counterpart(workspace: Workspace) -> None:
    pane = workspace.panes["float"]
    pane.fit()
    x, y = pane.screen_of(box(workspace, "float", "Dropout"))
    workspace.hover("float", x, y)
    assert "Dropout does nothing" in workspace.hover_text() and "not measured" in workspace.hover_text()
    x, y = pane.screen_of(box(workspace, "float", "Gelu"))
    workspace.hover("float", x, y)
    assert [labels(workspace, "quant")[b] for b in workspace.hovered_on("quant")] == ["Erf", "Mul"]
    workspace.unhover()
    assert workspace.hover_text() == ""


def test_reload_keeps_the_selection(workspace: Workspace) -> None:
    workspace.select_group(4)
    camera = workspace.panes["float"].camera
    workspace.open(lambda _say, _cancelled: small_report(), "test")
    settle(workspace)
    assert workspace.selection.group == 4
    assert workspace.panes["float"].camera.scale == camera.scale


def test_errors_are_said_in_the_window(workspace: Workspace) -> None:
    def broken(_say: object, _cancelled: object) -> object:
        raise UsageError("The file is broken. Save it again.")

    workspace.open(broken, "other")  # type: ignore[arg-type]
    settle(workspace)
    assert workspace.message.error and "Save it again" in workspace.message.text
    assert workspace.pair is not None
    workspace.open(lambda _s, _c: 1 // 0, "other")  # type: ignore[arg-type,return-value]
    settle(workspace)
    assert workspace.message.error and "fault of visualquant" in workspace.message.text
    workspace.search("/(/")
    assert workspace.message.error


def test_work_can_be_cancelled() -> None:
    workspace, started = Workspace(), threading.Event()
    released = threading.Event()

    def slow(say: object, cancelled: object) -> object:
        started.set()
        while not cancelled():  # type: ignore[operator]
            released.wait(0.01)
        return small_report()

    workspace.open(slow, "slow")  # type: ignore[arg-type]
    started.wait(10)
    workspace.cancel()
    workspace.requests.close()
    workspace.drain()
    assert workspace.pair is None and workspace.message.text == "Cancelled."


def test_stale_results_are_dropped() -> None:
    requests, gate = Requests(), threading.Event()
    requests.submit("layout", lambda _task: gate.wait(10) and "old")
    requests.submit("layout", lambda _task: "new")
    seen = []
    while not seen:
        seen = requests.drain()
    gate.set()
    requests.close()
    assert [d.value for d in seen] == ["new"] and requests.drain() == []


def test_save_and_swap(workspace: Workspace, tmp_path) -> None:
    for name in ("a.vqz", "a.json"):
        workspace.save(tmp_path / name)
        settle(workspace)
        assert (tmp_path / name).stat().st_size > 500
    workspace.save(tmp_path / "missing" / "a.vqz")
    settle(workspace)
    assert workspace.message.error
    workspace.swap()
    assert workspace.order == ("quant", "float")


def test_a_report_without_a_counterpart_model() -> None:
    report = dataclasses.replace(small_report(), nodes={"float": small_report().nodes["float"]}, weights=())
    workspace = opened(report)
    assert workspace.panes["quant"].picture is None
    workspace.select_group(1)
    assert marked(workspace, "float") == ["Conv"]
