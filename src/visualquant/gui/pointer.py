"""The mouse: clicks, pans, zooms and the borders between panels, told apart frame by frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dearpygui.dearpygui as dpg

from visualquant.core.alignment import SideName

if TYPE_CHECKING:
    from visualquant.gui.app import App

STEP = 1.18
_STILL = 4.0
_REACH = 5.0


class Pointer:
    """Polled once a frame; wheel and double clicks come from handlers."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._down = False
        self._start = (0.0, 0.0)
        self._last = (0.0, 0.0)
        self._moved = False
        self._grip: SideName | str | None = None

    def pane_at(self, x: float, y: float) -> tuple[SideName, float, float] | None:
        """The pane under a place of the window, and the place within it."""
        if self._app.dialogs.busy:
            return None
        for side, canvas in self._app.canvases.items():
            left, top = dpg.get_item_rect_min(canvas.drawlist)
            pane = self._app.workspace.panes[side]
            if left <= x < left + pane.width and top <= y < top + pane.height:
                return side, x - left, y - top
        return None

    def poll(self) -> None:
        """One frame."""
        x, y = (float(v) for v in dpg.get_mouse_pos(local=False))
        down = dpg.is_mouse_button_down(dpg.mvMouseButton_Left)
        if down and not self._down:
            self._press(x, y)
        elif down and self._grip is not None:
            self._drag(x, y)
        elif self._down and not down:
            self._release(x, y)
        elif not down:
            self._hover(x, y)
        self._down = down
        self._last = (x, y)

    def _press(self, x: float, y: float) -> None:
        self._start, self._moved = (x, y), False
        self._grip = self._app.border_at(x, y, _REACH * self._app.scale)
        if self._grip is None:
            found = self.pane_at(x, y)
            self._grip = None if found is None else found[0]

    def _drag(self, x: float, y: float) -> None:
        dx, dy = x - self._last[0], y - self._last[1]
        if abs(x - self._start[0]) + abs(y - self._start[1]) > _STILL:
            self._moved = True
        if not self._moved or (dx == 0 and dy == 0):
            return
        if self._grip in ("float", "quant"):
            if not self._rubber():
                self._app.workspace.pan("float" if self._grip == "float" else "quant", dx, dy)
        else:
            self._app.move_border(str(self._grip), x, y)

    def _rubber(self) -> bool:
        return bool(dpg.is_key_down(dpg.mvKey_LControl) or dpg.is_key_down(dpg.mvKey_RControl))

    def _release(self, x: float, y: float) -> None:
        grip, self._grip = self._grip, None
        if grip in ("float", "quant"):
            found = self.pane_at(*self._start)
            if found is None:
                return
            side, px, py = found
            if self._moved and self._rubber():
                self._app.zoom_to(side, (px, py), (px + x - self._start[0], py + y - self._start[1]))
            elif not self._moved and not self._app.minimap_click(side, px, py):
                self._app.workspace.click(side, px, py)
        elif grip is None and not self._moved and not self._app.dialogs.busy:
            self._app.drift.click()

    def _hover(self, x: float, y: float) -> None:
        found = self.pane_at(x, y)
        if found is None:
            self._app.workspace.unhover()
        else:
            self._app.workspace.hover(*found)

    def wheel(self, steps: float) -> None:
        """Zooms the pane under the pointer, or scrolls the table."""
        x, y = (float(v) for v in dpg.get_mouse_pos(local=False))
        found = self.pane_at(x, y)
        if found is not None:
            side, px, py = found
            self._app.workspace.zoom(side, STEP**steps, px, py)
        elif y > self._app.tables_top():
            self._app.scroll_table(-round(3 * steps))

    def double_click(self) -> None:
        """Opens or closes what is under the pointer."""
        x, y = (float(v) for v in dpg.get_mouse_pos(local=False))
        found = self.pane_at(x, y)
        if found is not None:
            self._app.workspace.double_click(*found)
