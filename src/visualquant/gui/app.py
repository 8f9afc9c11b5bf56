"""The window: one frame drains background results, takes input, and draws what changed."""

from __future__ import annotations

import dataclasses
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dearpygui.dearpygui as dpg

from visualquant.core.alignment import SideName
from visualquant.core.report import Report
from visualquant.gui.actions import Actions
from visualquant.gui.canvas import Canvas
from visualquant.gui.detail_panel import DetailPanel
from visualquant.gui.dialogs import Dialogs
from visualquant.gui.display import current_renderer, is_software, ui_scale
from visualquant.gui.drift_plot import DriftPlot
from visualquant.gui.grid import Grid
from visualquant.gui.keys import Key, table
from visualquant.gui.legend import Legend
from visualquant.gui.look import LOOKS, Look, load_fonts, make_theme
from visualquant.gui.pointer import Pointer
from visualquant.viewmodel.camera import fitted
from visualquant.viewmodel.colours import METRICS
from visualquant.viewmodel.opening import Job
from visualquant.viewmodel.settings import read_settings, settings_path, write_settings
from visualquant.viewmodel.workspace import Workspace

if TYPE_CHECKING:
    from visualquant.session.devices import DeviceOptions
    from visualquant.session.with_data import DataOptions

TABLES = ("layers", "findings", "fusions", "flipped", "alignment", "devices")
ALL_RUNS = "worst run"
IDLE_S = 1 / 60
BUSY_S = 1 / 40
BUSY_SHARE = 2.5
WATCH_S = 1.0


class App:
    """Everything that is on the screen. `run` for people; `start`, `frame`, `stop` for tests."""

    def __init__(
        self,
        files: tuple[Path, ...] = (),
        *,
        data: DataOptions | str | None = None,
        devices: DeviceOptions | None = None,
        watch: bool = False,
        scale: float | None = None,
        screen_height: int = 0,
        data_root: Path | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        self.files, self.data, self.watch, self.data_root = files, data, watch, data_root
        self.devices = devices
        self.scale = scale or ui_scale(screen_height)
        self.size = size or (int(1280 * self.scale), int(800 * self.scale))
        self.workspace = Workspace()
        self._settings_path = settings_path()
        self.settings = read_settings(self._settings_path)
        if any(m.name == self.settings.metric for m in METRICS):
            self.workspace.metric = next(m.name for m in METRICS if m.name == self.settings.metric)
        self._version = -1
        self._stamps: tuple[float, ...] = ()
        self._next_watch = 0.0
        self._last_shape: tuple[object, ...] = ()
        self._running = True

    # life

    def run(self) -> int:
        """Opens the window and stays until it is closed."""
        self.start()
        try:
            while self._running and dpg.is_dearpygui_running():
                self.paced_frame()
        finally:
            self.stop()
        return 0

    def paced_frame(self) -> None:
        """One frame, then a rest where nothing changed: background work needs the processor more."""
        before = time.perf_counter()
        try:
            changed = self.frame()
        except Exception as error:
            if os.environ.get("VISUALQUANT_DEBUG"):
                raise
            fault = f"{type(error).__name__}: {error}"
            self.workspace.say(f"This is a fault of visualquant itself: {fault}. Please report it.", error=True)
            dpg.render_dearpygui_frame()
            changed = False
        took = time.perf_counter() - before
        if not changed:
            # NOTE: Dear PyGui holds the interpreter's lock while it renders, which a software renderer does for long
            busy = bool(self.workspace.requests.busy())
            time.sleep(min(max(BUSY_SHARE * took, BUSY_S), 0.25) if busy else max(IDLE_S - took, 0.0))

    def start(self) -> None:
        """Makes the window and begins to open what was asked for."""
        dpg.create_context()
        dpg.configure_app(manual_callback_management=True)
        dpg.create_viewport(title="visualquant", width=self.size[0], height=self.size[1], x_pos=0, y_pos=0)
        dpg.setup_dearpygui()
        self._themes = {name: make_theme(look, self.scale) for name, look in LOOKS.items()}
        self._fonts = load_fonts(self.scale)
        self._build()
        self.bind_theme()
        dpg.show_viewport()
        if self.files:
            self.open(self.files, self.data)

    def stop(self) -> None:
        """Ends background work, keeps the settings, closes the window."""
        self.workspace.requests.close(0.5)
        write_settings(dataclasses.replace(self.settings, metric=self.workspace.metric), self._settings_path)
        dpg.destroy_context()

    def quit(self) -> None:
        """Leaves after this frame."""
        self._running = False

    def frame(self) -> bool:
        """One frame; False where nothing changed."""
        jobs = dpg.get_callback_queue()
        dpg.run_callbacks(jobs)
        self.workspace.drain()
        self._poll_watch()
        self._arrange()
        self.pointer.poll()
        changed = bool(jobs) or self._version != self.workspace.version
        self._draw()
        dpg.render_dearpygui_frame()
        return changed

    # opening and keeping

    def open(self, paths: tuple[Path, ...], data: DataOptions | str | None = None) -> None:
        """Opens a .vqz or a pair; the window stays alive meanwhile."""
        missing = next((p for p in paths if not p.is_file()), None)
        if missing is not None or not 1 <= len(paths) <= 2:
            words = (
                f"{str(missing)!r} does not exist."
                if missing
                else "Name a .vqz file, or a float and a quantized model."
            )
            self.workspace.say(words, error=True)
            return
        self.files, self.data = paths, data
        self._stamps = self._stamp()
        self.settings = self.settings.opened(tuple(str(p.absolute()) for p in paths))
        self.workspace.open(self._job(paths, data), " | ".join(p.name for p in paths))

    def _job(self, paths: tuple[Path, ...], data: DataOptions | str | None) -> Job:
        data_root, devices = self.data_root, self.devices if data is not None else None

        def job(say: Callable[[str, int, int], None], cancelled: Callable[[], bool]) -> Report:
            if len(paths) == 1:
                from visualquant.session.archive import load

                say(f"reading {paths[0].name}", 0, 0)
                # NOTE: a full collection over the rows of a large report stops the window for a quarter of a second
                gc.disable()
                try:
                    return load(paths[0])
                finally:
                    gc.freeze()
                    gc.enable()
            from visualquant.session.compare import compare

            command = f"gui {paths[0].name} {paths[1].name}"
            return compare(
                *paths,
                progress=say,
                cancel=cancelled,
                data=data,
                devices=devices,
                data_root=data_root,
                command=command,
            )

        return job

    def _stamp(self) -> tuple[float, ...]:
        return tuple(p.stat().st_mtime if p.exists() else 0.0 for p in self.files)

    def _poll_watch(self) -> None:
        now = time.monotonic()
        if not self.watch or now < self._next_watch or not self.files:
            return
        self._next_watch = now + WATCH_S
        stamps = self._stamp()
        if stamps != self._stamps and all(stamps):
            self.open(self.files, self.data)

    # building

    def _build(self) -> None:
        s = self.scale
        with dpg.window(tag="main", no_scrollbar=True, no_scroll_with_mouse=True, no_title_bar=True):
            with dpg.menu_bar():
                self._menus()
            with dpg.group(horizontal=True):
                dpg.add_text("Colour by")
                self.metric_box = dpg.add_combo(
                    [m.title for m in METRICS], width=int(225 * s), callback=self._metric_picked
                )
                self.run_box = dpg.add_combo([], width=int(110 * s), callback=self._run_picked, show=False)
                self.legend = Legend(dpg.last_container() or "main", s)
                self.search_box = dpg.add_input_text(
                    hint="search:  conv  op:Conv  sqnr<20  /re/", width=int(250 * s), callback=self._searched
                )
                self.search_side = dpg.add_button(label="in quantized", callback=self._swap_search_side)
            with dpg.group(horizontal=True, horizontal_spacing=int(4 * s)):
                pane = {
                    "no_scrollbar": True,
                    "no_scroll_with_mouse": True,
                    "border": False,
                    "width": 100,
                    "height": 100,
                }
                self.pane_windows = [dpg.add_child_window(**pane) for _ in range(2)]
                self.details_window = dpg.add_child_window(width=100, height=100, border=False)
            self.tables_window = dpg.add_child_window(
                height=100, border=False, no_scrollbar=True, no_scroll_with_mouse=True
            )
            with dpg.group(horizontal=True):
                self.cancel_button = dpg.add_button(label="Cancel", show=False, callback=self.workspace.cancel)
                self.status = dpg.add_text("")
                self.renderer_text = dpg.add_text("")
        self._build_tables(s)
        self.canvases: dict[SideName, Canvas] = {}
        for side, window in zip(self.workspace.order, self.pane_windows, strict=True):
            self.canvases[side] = Canvas(self.workspace, side, window, s, self._fonts[1])
        self.detail_panel = DetailPanel(self.details_window, s)
        self.dialogs = Dialogs(s, self.open, self.workspace.save, lambda: self.settings.recent)
        self.pointer = Pointer(self)
        self.actions = Actions(self)
        with dpg.theme() as self._flat, dpg.theme_component(dpg.mvChildWindow):
            dpg.add_theme_style(dpg.mvStyleVar_WindowPadding, 0, 0)
        for window in self.pane_windows:
            dpg.bind_item_theme(window, self._flat)
        with dpg.handler_registry():
            dpg.add_mouse_wheel_handler(callback=lambda _s, steps: self.pointer.wheel(float(steps)))
            dpg.add_mouse_double_click_handler(
                button=dpg.mvMouseButton_Left, callback=lambda: self.pointer.double_click()
            )
            dpg.add_key_press_handler(callback=lambda _s, key: self.actions.pressed(int(key)))
            dpg.add_key_release_handler(callback=lambda _s, key: self.actions.held.discard(int(key)))
        self.tip = dpg.add_window(
            show=False,
            no_title_bar=True,
            no_resize=True,
            no_move=True,
            autosize=True,
            no_focus_on_appearing=True,
            no_bring_to_front_on_focus=False,
            no_saved_settings=True,
            min_size=(20, 20),
        )
        self.tip_text = dpg.add_text("", parent=self.tip)
        dpg.set_primary_window("main", True)

    def _menus(self) -> None:
        groups = {
            "File": ("ask_open", "ask_save", "picture", "quit"),
            "Select": ("undo", "redo", "go_to_selection", "other_side", "walk_through", "escape"),
            "View": (
                "fit",
                "zoom_in",
                "zoom_out",
                "toggle_plumbing",
                "toggle_all_fusions",
                "toggle_all_modules",
                "leave",
                "toggle_linked",
                "toggle_dim",
                "swap",
                "toggle_tables",
                "toggle_details",
                "toggle_theme",
            ),
            "Help": ("toggle_help",),
        }
        keys = {k.action: k for k in reversed(table())}
        for name, actions in groups.items():
            with dpg.menu(label=name):
                for action in actions:
                    key = keys[action]
                    label = key.what[0].upper() + key.what[1:]
                    dpg.add_menu_item(label=label, shortcut=key.shown, callback=self._menu_picked, user_data=key)

    def _menu_picked(self, _sender: Any, _data: Any, key: Key) -> None:
        self.actions.do(key.action, key.argument)

    def _build_tables(self, s: float) -> None:
        with dpg.tab_bar(parent=self.tables_window, callback=lambda: self._fill_tables()) as self.tabs:
            self.grids: dict[str, Grid] = {}
            self.tab_items: dict[str, Any] = {}
            for name in TABLES:
                with dpg.tab(label=name.capitalize()) as tab:
                    self.tab_items[name] = tab
                    self.grids[name] = Grid(dpg.add_group(), s, self._row_picked)
            with dpg.tab(label="Drift") as tab:
                self.tab_items["drift"] = tab
                self.drift = DriftPlot(dpg.add_group(), self.workspace.select_group)

    def _row_picked(self, group: int, row: int) -> None:
        if group >= 0:
            self.workspace.select_group(group)
        elif self.active_grid() is self.grids["flipped"]:
            self.workspace.show_sample(row, self.data)

    def bind_theme(self) -> None:
        """Colours and fonts of the present theme."""
        dpg.bind_theme(self._themes[self.settings.theme])
        dpg.bind_font(self._fonts[0])
        for window in self.pane_windows:
            dpg.bind_item_font(window, self._fonts[1])
        dpg.set_viewport_clear_color([c / 255 for c in self.look.panel])

    @property
    def look(self) -> Look:
        """Colours of the present theme."""
        return LOOKS[self.settings.theme]

    # arranging

    def _arrange(self) -> None:
        width, height = dpg.get_viewport_client_width(), dpg.get_viewport_client_height()
        s = self.scale
        shape = (width, height, self.settings.details, self.settings.tables, self.settings.split, self.workspace.order)
        if shape == self._last_shape:
            return
        self._last_shape = shape
        dpg.configure_item("main", width=width, height=height)
        gap = 4 * s
        details = round(self.settings.details * width)
        tables = round(self.settings.tables * height)
        high = height - 68 * s - 26 * s - tables - 8 * s - (gap if tables else 0)
        wide = width - 12 * s - details - gap * (3 if details else 2)
        left = round(wide * self.settings.split)
        for window, side, size in zip(self.pane_windows, self.workspace.order, (left, wide - left), strict=True):
            dpg.configure_item(window, width=int(size), height=int(high))
            canvas = self.canvases[side]
            if dpg.get_item_parent(canvas.drawlist) != window:
                dpg.move_item(canvas.drawlist, parent=window)
            canvas.resize(int(size), int(high))
        dpg.configure_item(self.details_window, width=max(details, 1), height=int(high), show=details > 0)
        dpg.configure_item(self.tables_window, height=max(tables, 1), show=tables > 0)
        for grid in self.grids.values():
            grid.resize(tables - 66 * s)
        self.drift.resize(tables - 40 * s)
        self._borders = (6 * s + left, 6 * s + wide + gap, high)
        self.workspace.changed()

    def border_at(self, x: float, y: float, reach: float) -> str | None:
        """The border between panels under a place of the window."""
        left, top = dpg.get_item_rect_min(self.canvases[self.workspace.order[0]].drawlist)
        middle, right, high = self._borders
        del left
        if top <= y <= top + high:
            if abs(x - middle - 2 * self.scale) <= reach:
                return "split"
            if self.settings.details and abs(x - right - 2 * self.scale) <= reach:
                return "details"
        if self.settings.tables and abs(y - top - high - 2 * self.scale) <= reach:
            return "tables"
        return None

    def move_border(self, name: str, x: float, y: float) -> None:
        """Drags a border to a place of the window."""
        width, height = dpg.get_viewport_client_width(), dpg.get_viewport_client_height()
        if name == "split":
            share = min(max((x - 6 * self.scale) / max(self._borders[1], 1), 0.15), 0.85)
            self.settings = dataclasses.replace(self.settings, split=share)
        elif name == "details":
            share = min(max((width - x) / width, 0.12), 0.6)
            self.settings = dataclasses.replace(self.settings, details=share)
        else:
            share = min(max((height - 30 * self.scale - y) / height, 0.12), 0.7)
            self.settings = dataclasses.replace(self.settings, tables=share)

    def tables_top(self) -> float:
        """Where the panel of tables begins."""
        if not self.settings.tables:
            return float("inf")
        top = dpg.get_item_rect_min(self.canvases[self.workspace.order[0]].drawlist)[1]
        return float(top) + float(self._borders[2]) + 4 * self.scale

    # drawing

    def _draw(self) -> None:
        workspace = self.workspace
        progress = next(iter(workspace.requests.progress.values()), None)
        busy = bool(workspace.requests.busy())
        self._status(progress, busy)
        if self._version == workspace.version:
            return
        self._version = workspace.version
        look = self.look
        for canvas in self.canvases.values():
            canvas.draw(look)
        selection = workspace.selection
        coloured = workspace.colours(workspace.metric) if workspace.pair is not None else None
        self.legend.show(coloured, look)
        dpg.set_value(self.metric_box, next(m.title for m in METRICS if m.name == workspace.metric))
        runs = workspace.runs()
        dpg.configure_item(self.run_box, items=[ALL_RUNS, *runs], show=len(runs) > 1)
        dpg.set_value(self.run_box, workspace.run or ALL_RUNS)
        dpg.configure_item(self.search_side, label="in float" if workspace.search_side == "float" else "in quantized")
        if self.settings.details:
            width = self.settings.details * dpg.get_viewport_client_width()
            self.detail_panel.show(workspace.pair, selection.group, look, width, workspace.extras)
        self._fill_tables()
        self._tip()

    def _fill_tables(self) -> None:
        if self.workspace.pair is None or not self.settings.tables:
            return
        active = dpg.get_value(self.tabs)
        active = dpg.get_alias_id(active) if isinstance(active, str) else active
        group = self.workspace.selection.group
        if active == self.tab_items["drift"]:
            self.drift.show(self.workspace.pair)
            self.drift.select_group(group)
            return
        for name, grid in self.grids.items():
            if active == self.tab_items[name] or (not active and name == "layers"):
                grid.set_table(self.workspace.table(name))
                grid.select_group(group)

    def active_grid(self) -> Grid | None:
        """The table that is on top."""
        active = dpg.get_value(self.tabs)
        return next((g for n, g in self.grids.items() if self.tab_items[n] == active), None)

    def show_tab(self, name: str) -> None:
        """Brings a table to the top."""
        dpg.set_value(self.tabs, self.tab_items[name])
        self.workspace.changed()

    def scroll_table(self, rows: int) -> None:
        """Moves the table that is on top."""
        grid = self.active_grid()
        if grid is not None:
            grid.scroll(rows)

    def _status(self, progress: Any, busy: bool) -> None:
        message = self.workspace.message
        text = message.text
        if progress is not None:
            part = f" {100 * progress.done / progress.total:.0f} %" if progress.total else ""
            text = f"{progress.text}{part}"
        renderer = current_renderer() if not dpg.get_item_user_data(self.renderer_text) else None
        if renderer is not None and dpg.get_frame_count() > 1:
            dpg.configure_item(self.renderer_text, user_data=renderer or "unknown renderer")
            short = renderer.split("(")[0].strip()
            dpg.set_value(self.renderer_text, f"{short}: software renderer, slow" if is_software(renderer) else short)
        most = int((dpg.get_viewport_client_width() - 330 * self.scale) / (7.2 * self.scale))
        text = text.replace("\n", " ")
        dpg.set_value(self.status, text if len(text) <= most else text[: max(most - 1, 1)] + "…")
        dpg.configure_item(self.status, color=self.look.alarm if message.error and progress is None else self.look.text)
        dpg.configure_item(self.renderer_text, color=self.look.faint)
        dpg.configure_item(self.cancel_button, show=busy)
        if dpg.get_item_state(self.renderer_text).get("rect_size"):
            width = dpg.get_item_rect_size(self.renderer_text)[0]
            top = dpg.get_viewport_client_height() - 27 * self.scale
            dpg.set_item_pos(self.renderer_text, [dpg.get_viewport_client_width() - width - 12 * self.scale, top])

    def _tip(self) -> None:
        text = self.workspace.hover_text()
        if not text or self.dialogs.busy:
            dpg.hide_item(self.tip)
            return
        dpg.set_value(self.tip_text, text)
        x, y = dpg.get_mouse_pos(local=False)
        longest = max(len(line) for line in text.splitlines()) * 8.5 * self.scale + 20
        high = (text.count("\n") + 1) * 22 * self.scale + 16
        left = min(x + 18, dpg.get_viewport_client_width() - longest - 4)
        top = y + 20 if y + 20 + high < dpg.get_viewport_client_height() else y - high - 12
        dpg.set_item_pos(self.tip, [int(max(left, 0)), int(max(top, 0))])
        dpg.show_item(self.tip)

    # moves of the pointer

    def picture(self, path: Path) -> None:
        """Writes the window as PNG after this frame."""
        dpg.output_frame_buffer(str(path))

    def zoom_to(self, side: SideName, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Zooms to a rectangle of a pane."""
        pane = self.workspace.panes[side]
        a, b = pane.camera.to_world(*start), pane.camera.to_world(*end)
        bounds = (min(a[0], b[0]), min(a[1], b[1]), max(a[0], b[0]), max(a[1], b[1]))
        goal = fitted(bounds, pane.width, pane.height, margin=4)
        self.workspace.zoom(side, goal.scale / pane.camera.scale, pane.width / 2, pane.height / 2)
        moved = pane.camera.centred((bounds[0] + bounds[2]) / 2, (bounds[1] + bounds[3]) / 2, pane.width, pane.height)
        self.workspace.pan(side, moved.dx - pane.camera.dx, moved.dy - pane.camera.dy)

    def minimap_click(self, side: SideName, x: float, y: float) -> bool:
        """Goes to a place of the minimap; False where the pixel is elsewhere."""
        left, top, right, bottom = self.canvases[side].minimap_box()
        pane = self.workspace.panes[side]
        if not (left <= x <= right and top <= y <= bottom) or pane.picture is None:
            return False
        _, low, _, high = pane.picture.drawing.bounds
        world = low + (y - top) / max(bottom - top, 1) * (high - low)
        goal = pane.height / 2 - world * pane.camera.scale
        self.workspace.pan(side, 0, goal - pane.camera.dy)
        return True

    def _searched(self, _sender: Any, query: str) -> None:
        self.workspace.search(query)

    def _swap_search_side(self) -> None:
        self.workspace.search_side = "float" if self.workspace.search_side == "quant" else "quant"
        self.workspace.search(self.workspace.query)

    def _run_picked(self, _sender: Any, run: str) -> None:
        self.workspace.set_run(None if run == ALL_RUNS else run)

    def _metric_picked(self, _sender: Any, title: str) -> None:
        self.workspace.set_metric(next(m.name for m in METRICS if m.title == title))
