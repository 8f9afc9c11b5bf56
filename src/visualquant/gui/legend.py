"""The scale of the colours in the toolbar, with units and what "not measured" looks like."""

from __future__ import annotations

from typing import Any

import dearpygui.dearpygui as dpg

from visualquant.gui.look import Look
from visualquant.viewmodel.colours import CATEGORIES, Coloured, rgb

STEPS = 24


class Legend:
    """A drawlist that is drawn anew when the metric or the theme changes."""

    def __init__(self, parent: Any, scale: float) -> None:
        self.scale = scale
        self.drawlist = dpg.add_drawlist(int(470 * scale), int(36 * scale), parent=parent)
        self._shown: tuple[Any, ...] = ()

    def show(self, coloured: Coloured | None, look: Look) -> None:
        """The legend of a metric."""
        if self._shown == (coloured, look.name):
            return
        self._shown = (coloured, look.name)
        dpg.delete_item(self.drawlist, children_only=True)
        if coloured is None:
            return
        s = self.scale
        left, width, size = 8 * s, 270 * s, 13 * s
        if coloured.categories:
            at = left
            for k, name in enumerate(coloured.categories[:4]):
                colour = (*CATEGORIES[k % len(CATEGORIES)], 255)
                short = name.removesuffix("ExecutionProvider")
                self._box(at, 10 * s, colour, look)
                dpg.draw_text((at + 18 * s, 9 * s), short, color=look.text, size=size, parent=self.drawlist)
                at += (30 + 8 * len(short)) * s
        else:
            for k in range(STEPS):
                a, b = left + width * k / STEPS, left + width * (k + 1) / STEPS
                colour = (*rgb((k + 0.5) / STEPS), 255)
                dpg.draw_rectangle((a, 3 * s), (b, 15 * s), fill=colour, color=colour, parent=self.drawlist)
            for at, text in coloured.ticks:
                x = left + width * at
                dpg.draw_line((x, 15 * s), (x, 18 * s), color=look.text, parent=self.drawlist)
                shown = f"{text} {coloured.metric.unit}" if at == 1.0 else text
                shift = 0.0 if at == 0 else 3.7 * s * len(text)
                dpg.draw_text((x - shift, 19 * s), shown, color=look.text, size=size, parent=self.drawlist)
        at = left + width + 62 * s
        self._box(at, 4 * s, look.unmeasured, look)
        dpg.draw_text((at + 18 * s, 3 * s), "not measured", color=look.text, size=size, parent=self.drawlist)

    def _box(self, x: float, y: float, fill: Any, look: Look) -> None:
        s = self.scale
        dpg.draw_rectangle((x, y), (x + 13 * s, y + 12 * s), fill=fill, color=look.outline, parent=self.drawlist)
