"""A hand on a real window: xdotool moves the real pointer and types, frames pass in between."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import dearpygui.dearpygui as dpg

from visualquant.core.alignment import SideName
from visualquant.gui.app import App


class Hand:
    def __init__(self, app: App) -> None:
        self.app = app
        app.start()
        self.frames(3)

    def frames(self, count: int = 4) -> None:
        for _ in range(count):
            self.app.frame()

    def until(self, done: Callable[[], bool], seconds: float = 120.0, what: str = "") -> int:
        limit, frames = time.monotonic() + seconds, 0
        while not done():
            self.app.frame()
            frames += 1
            assert time.monotonic() < limit, f"waited in vain for {what or done}: {self.app.workspace.message}"
        self.frames(3)
        return frames

    def settle(self) -> int:
        """Until all background work is done; the number of frames that passed meanwhile."""
        return self.until(lambda: not self.app.workspace.requests.busy(), what="background work")

    def _do(self, *arguments: str) -> None:
        subprocess.run(["xdotool", *arguments], check=True, timeout=20)
        self.frames(3)

    def move(self, x: float, y: float) -> None:
        self._do("mousemove", str(round(x)), str(round(y)))

    def click(self, x: float, y: float, times: int = 1) -> None:
        self.move(x, y)
        for _ in range(times):
            self._do("mousedown", "1")
            self._do("mouseup", "1")
        self.frames(3)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.move(*start)
        self._do("mousedown", "1")
        for part in (0.3, 0.7, 1.0):
            self.move(start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part)
        self._do("mouseup", "1")
        self.frames(3)

    def wheel(self, up: bool) -> None:
        self._do("click", "4" if up else "5")
        self.frames(3)

    def key(self, name: str) -> None:
        # NOTE: not held while frames pass, which on a busy machine would make the X server repeat it
        self._do("key", name)
        self.frames(3)

    def type(self, text: str) -> None:
        for character in text:
            self._do("type", "--delay", "40", character)
        self.frames(4)

    def place(self, side: SideName, label: str, which: int = 0) -> tuple[float, float]:
        """Where a box is on the screen."""
        pane = self.app.workspace.panes[side]
        assert pane.picture is not None
        boxes = [k for k, x in enumerate(pane.picture.boxes.labels) if x == label]
        x, y = pane.screen_of(boxes[which])
        left, top = dpg.get_item_rect_min(self.app.canvases[side].drawlist)
        return left + x, top + y

    def marked(self, side: SideName) -> list[str]:
        picture = self.app.workspace.panes[side].picture
        assert picture is not None
        return [picture.boxes.labels[b] for b in self.app.workspace.marked(side)]

    def marked_in_view(self, side: SideName) -> bool:
        pane = self.app.workspace.panes[side]
        return all(pane.in_view(int(b)) for b in self.app.workspace.marked(side))

    def picture(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self.app.picture(path)
        self.until(lambda: path.exists() and path.stat().st_size > 0, 20, "a picture")
        self.frames(2)
