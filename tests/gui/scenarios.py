"""What is done with a real window, each in a process of its own: python -m tests.gui.scenarios NAME ARGUMENTS."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import dearpygui.dearpygui as dpg

from tests.gui.hand import Hand
from tests.viewmodel.conftest import small_report
from visualquant.gui.app import App
from visualquant.session.archive import save

SCREENS = Path(__file__).parents[2] / "build" / "screens"


def app(files: tuple[Path, ...], size: str, **options: object) -> App:
    width, height = (int(x) for x in size.split("x"))
    return App(files, size=(width, height), screen_height=height, **options)  # type: ignore[arg-type]


def pair(size: str, left: str, right: str, folder: str) -> None:
    """A corpus pair from files: select, search, colour, fusion, table, save."""
    hand = Hand(app((Path(left), Path(right)), size))
    frames = hand.settle()
    assert frames > 3, "the window stood still while the pair was compared"
    workspace = hand.app.workspace
    assert workspace.pair is not None and not workspace.message.error, workspace.message.text
    hand.picture(SCREENS / f"open-{size}.png")

    hand.click(*hand.place("quant", "Conv", 2))
    assert workspace.selection.side == "quant" and workspace.selection.group is not None
    assert hand.marked("quant") == ["Conv"] and "Conv" in hand.marked("float")
    assert hand.marked_in_view("float")
    hand.picture(SCREENS / f"select-{size}.png")

    group = workspace.selection.group
    hand.key("w")
    hand.settle()
    assert workspace.extras.walked is not None and workspace.extras.walked.stations[1][0] == "scale"
    assert workspace.extras.heat_map is not None and workspace.extras.heat_map.map.counts.sum() > 0
    dpg.set_y_scroll(hand.app.details_window, 420 * hand.app.scale)
    hand.frames(4)
    hand.picture(SCREENS / f"walk-{size}.png")
    hand.click(*hand.place("float", "Relu", 0))
    assert workspace.selection.side == "float" and workspace.selection.group != group
    assert hand.marked("float") == ["Conv", "Relu"] and hand.marked_in_view("quant")
    hand.key("ctrl+z")
    assert workspace.selection.group == group

    hand.key("slash")
    hand.type("op:gemm")
    assert [workspace.pair.sides["quant"].nodes[k].op_type for k in workspace.hits.nodes] == ["Gemm"]
    assert hand.marked("float") == ["Gemm"] and hand.marked_in_view("float") and hand.marked_in_view("quant")
    hand.key("Escape")

    pictures = [p.picture for p in workspace.panes.values()]
    before = workspace.metric
    hand.key("c")
    assert workspace.metric != before
    assert [p.picture for p in workspace.panes.values()] == pictures, "switching colour laid out again"

    hand.key("space")
    hand.click(*hand.place("float", "Relu", 0))
    hand.key("x")
    hand.settle()
    assert hand.marked("float") == ["Conv+Relu"]
    hand.picture(SCREENS / f"fusion-{size}.png")
    hand.key("x")
    hand.settle()
    assert hand.marked("float") == ["Conv", "Relu"]

    hand.key("p")
    hand.settle()
    assert "DequantizeLinear" in hand.marked("quant")
    hand.picture(SCREENS / f"plumbing-{size}.png")
    hand.key("p")
    hand.settle()

    grid = hand.app.grids["layers"]
    column = dpg.get_item_children(grid.grid, 0)[4]
    top, scale = hand.app.tables_top(), hand.app.scale
    hand.click(_column_left(grid.grid, 4) + 20, top + 62 * scale)
    shown = [float(grid.row_text(k, 4)) for k in range(3)]
    assert shown == sorted(shown), f"clicking {column} sorted {shown}"
    hand.click(80 * scale, top + 85 * scale)
    assert workspace.selection.group is not None and hand.marked_in_view("quant")
    hand.app.show_tab("fusions")
    hand.frames(4)
    hand.picture(SCREENS / f"fusions-{size}.png")

    hand.key("Escape")
    hand.key("space")
    hand.key("F1")
    hand.picture(SCREENS / f"keys-{size}.png")
    hand.key("F1")
    hand.key("t")
    hand.picture(SCREENS / f"light-{size}.png")
    path = Path(folder) / "kept.vqz"
    workspace.save(path)
    hand.settle()
    assert path.stat().st_size > 1000 and "saved" in workspace.message.text
    hand.app.stop()


def _column_left(table: int, column: int) -> float:
    first_row = dpg.get_item_children(table, 1)[0]
    return float(dpg.get_item_rect_min(dpg.get_item_children(first_row, 1)[column])[0])


def hands(size: str, archive: str) -> None:
    """Pan, zoom, linked and not, panels, views, tabs: an archive with samples."""
    hand = Hand(app((Path(archive),), size))
    hand.settle()
    workspace = hand.app.workspace
    x, y = hand.place("float", "Conv", 0)
    cameras = {s: p.camera for s, p in workspace.panes.items()}
    hand.drag((x + 130, y + 40), (x + 80, y - 60))
    moved = {s: (p.camera.dx - cameras[s].dx, p.camera.dy - cameras[s].dy) for s, p in workspace.panes.items()}
    assert moved == {"float": (-50, -100), "quant": (-50, -100)}
    assert not workspace.selection, "a drag is no click"
    hand.key("l")
    scale = workspace.panes["quant"].camera.scale
    hand.move(x, y)
    hand.wheel(up=True)
    assert workspace.panes["float"].camera.scale > cameras["float"].scale
    assert workspace.panes["quant"].camera.scale == scale
    hand.key("ctrl+1")
    hand.key("space")
    hand.key("1")
    assert workspace.panes["float"].camera.scale > cameras["float"].scale

    hand.app.show_tab("drift")
    hand.frames(6)
    hand.picture(SCREENS / f"drift-{size}.png")
    left, top = dpg.get_item_rect_min(hand.app.drift.plot)
    wide, high = dpg.get_item_rect_size(hand.app.drift.plot)
    hand.click(left + wide * 0.5, top + high * 0.4)
    assert workspace.selection.group is not None
    tables = hand.app.tables_top()
    hand.drag((300, tables - 2), (300, tables - 80))
    assert hand.app.tables_top() < tables - 40
    hand.key("b")
    hand.key("i")
    hand.picture(SCREENS / f"graphs-{size}.png")
    hand.key("shift+m")
    hand.settle()
    assert "module" in workspace.panes["float"].picture.boxes.kinds  # type: ignore[union-attr]
    hand.key("s")
    assert workspace.order == ("quant", "float")
    hand.picture(SCREENS / f"modules-{size}.png")
    hand.app.stop()


def names(size: str, folder: str) -> None:
    """Names in other scripts, and errors in the window."""
    report = small_report()
    scripts = {0: "/スタム/畳み込み/Conv", 2: "/модуль/Активация", 3: "/层一/卷积/Conv", 6: "/ω/Σύνολο"}
    left = tuple(dataclasses.replace(n, name=scripts.get(k, n.name)) for k, n in enumerate(report.nodes["float"]))
    values = {
        side: {f"{v} 值" if v == "f" else v: row for v, row in rows.items()} for side, rows in report.values.items()
    }
    fixed = {
        side: tuple(
            dataclasses.replace(
                n,
                inputs=tuple("f 值" if v == "f" else v for v in n.inputs),
                outputs=tuple("f 值" if v == "f" else v for v in n.outputs),
            )
            for n in nodes
        )
        for side, nodes in {"float": left, "quant": report.nodes["quant"]}.items()
    }
    path = Path(folder) / "名前.vqz"
    save(dataclasses.replace(report, nodes=fixed, values=values), path)
    hand = Hand(app((path,), size))
    hand.settle()
    hand.app.show_tab("alignment")
    hand.app.workspace.select_group(1)
    hand.frames(6)
    hand.picture(SCREENS / f"names-{size}.png")

    broken = Path(folder) / "broken.vqz"
    broken.write_bytes(b"PK no archive")
    hand.app.open((broken,))
    hand.settle()
    assert hand.app.workspace.message.error and "broken.vqz" in hand.app.workspace.message.text
    assert hand.app.workspace.pair is not None, "what was open stays"
    hand.picture(SCREENS / f"error-{size}.png")
    hand.app.open((Path(folder) / "gone.vqz",))
    hand.frames(3)
    assert "does not exist" in hand.app.workspace.message.text
    hand.app.stop()


def flipped(size: str, left: str, right: str, data: str) -> None:
    """A row of the table of flipped samples shows the sample."""
    hand = Hand(app((Path(left), Path(right)), size, data=data))
    hand.settle()
    workspace = hand.app.workspace
    assert workspace.pair is not None and workspace.table("flipped").rows, workspace.message.text
    hand.app.show_tab("flipped")
    hand.frames(6)
    hand.click(80 * hand.app.scale, hand.app.tables_top() + 85 * hand.app.scale)
    hand.settle()
    assert workspace.extras.sample is not None and workspace.extras.sample.pixels.shape[2] == 3
    hand.picture(SCREENS / f"flipped-{size}.png")
    hand.app.show_tab("drift")
    hand.frames(6)
    hand.app.stop()


def watch(size: str, archive: str, other: str) -> None:
    """A changed file is read again and the selection stays."""
    path = Path(archive)
    hand = Hand(app((path,), size, watch=True))
    hand.settle()
    hand.click(*hand.place("quant", "Conv", 1))
    chosen = hand.marked("quant")
    hand.click(80 * hand.app.scale, hand.app.tables_top() + 85 * hand.app.scale)
    hand.click(*hand.place("quant", "Conv", 1))
    first = hand.app.workspace.pair
    path.write_bytes(Path(other).read_bytes())
    hand.until(lambda: hand.app.workspace.pair is not first, 30, "the reload")
    hand.settle()
    assert hand.marked("quant") == chosen
    hand.key("i")
    hand.app.stop()


def again(size: str, archive: str) -> None:
    """The panels are as the start before left them, and its file is among the recent ones."""
    hand = Hand(app((), size))
    assert hand.app.settings.details == 0 and hand.app.settings.recent[0] == (archive,)
    hand.key("ctrl+o")
    hand.picture(SCREENS / f"ask-{size}.png")
    assert hand.app.dialogs.busy
    hand.key("Escape")
    assert not hand.app.dialogs.busy
    hand.app.stop()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
