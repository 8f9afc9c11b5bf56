"""Error along the depth of the network; a click goes to the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dearpygui.dearpygui as dpg
import numpy as np

from visualquant.viewmodel.details import Drift, drift
from visualquant.viewmodel.sides import Pair

MOST_RUNS = 6


class DriftPlot:
    """SQNR of each observed activation, cumulative and isolated."""

    def __init__(self, parent: Any, on_pick: Callable[[int], None]) -> None:
        self._on_pick = on_pick
        self._pair: Pair | None = None
        self._drift: Drift | None = None
        self.empty = dpg.add_text("No samples in this report: compare with --data to see drift.", parent=parent)
        self.plot = dpg.add_plot(width=-1, height=100, parent=parent, no_menus=True, no_title=True, show=False)
        dpg.add_plot_legend(parent=self.plot, location=dpg.mvPlot_Location_NorthEast)
        self._x = dpg.add_plot_axis(dpg.mvXAxis, label="depth (place in dataflow order)", parent=self.plot)
        self._y = dpg.add_plot_axis(dpg.mvYAxis, label="SQNR, dB", parent=self.plot)
        self._series: list[Any] = []
        self._here = dpg.add_inf_line_series([], parent=self._x, label="selection")

    def show(self, pair: Pair | None) -> None:
        """The drift of a report."""
        if pair is self._pair or pair is None:
            return
        self._pair = pair
        self._drift = drift(pair)
        known = bool(self._drift.depth.size)
        dpg.configure_item(self.empty, show=not known)
        dpg.configure_item(self.plot, show=known)
        if known:
            for series in self._series:
                dpg.delete_item(series)
            self._series = []
            runs = tuple(dict.fromkeys(a.run for a in pair.report.activations))
            for run in runs[:MOST_RUNS]:
                name = "cumulative" if len(runs) == 1 else f"cumulative, {run}"
                self._add(drift(pair, run), name)
            usable = np.isfinite(self._drift.isolated_db)
            points = self._drift.depth[usable].tolist(), self._drift.isolated_db[usable].tolist()
            self._series.append(dpg.add_scatter_series(*points, label="isolated", parent=self._y))
            dpg.fit_axis_data(self._x)
            dpg.fit_axis_data(self._y)

    def _add(self, found: Drift, name: str) -> None:
        usable = np.isfinite(found.sqnr_db)
        line = found.depth[usable].tolist(), found.sqnr_db[usable].tolist()
        self._series.append(dpg.add_line_series(*line, label=name, parent=self._y))

    def resize(self, height: float) -> None:
        """The pixels that the plot may take."""
        dpg.configure_item(self.plot, height=max(int(height), 60))

    def select_group(self, group: int | None) -> None:
        """Marks the depth of a group."""
        if self._drift is None:
            return
        at = np.flatnonzero(self._drift.groups == group) if group is not None else np.zeros(0, np.int64)
        dpg.set_value(self._here, [[float(self._drift.depth[k]) for k in at[:1]]])

    def click(self) -> bool:
        """Picks the point next to the pointer; False where the pointer is elsewhere."""
        if self._drift is None or not dpg.is_item_hovered(self.plot):
            return False
        x, y = dpg.get_plot_mouse_pos()
        (x0, x1), (y0, y1) = dpg.get_axis_limits(self._x), dpg.get_axis_limits(self._y)
        width, height = dpg.get_item_rect_size(self.plot)
        group = self._drift.nearest(x, y, width / max(x1 - x0, 1e-9), height / max(y1 - y0, 1e-9))
        if group is not None and group >= 0:
            self._on_pick(group)
        return True
