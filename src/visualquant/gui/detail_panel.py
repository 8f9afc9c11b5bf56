"""The panel on the right: what is known of the selection, as words and charts."""

from __future__ import annotations

import math
from typing import Any

import dearpygui.dearpygui as dpg
import numpy as np

from visualquant.gui.look import Look
from visualquant.viewmodel import details
from visualquant.viewmodel.opening import Extras, HeatMap, SamplePicture, Walked
from visualquant.viewmodel.sides import Pair

MOST_CHARTS = 4
MOST_ROWS = 64
MOST_SECTIONS = 40
_BLUE, _ORANGE = (86, 180, 233, 255), (230, 159, 0, 255)


class DetailPanel:
    """Built anew for every selection."""

    def __init__(self, parent: Any, scale: float) -> None:
        self.parent, self.scale = parent, scale
        self._shown: tuple[Any, ...] = ()
        self._themes: dict[Any, Any] = {}
        self._texture: Any = None

    def show(self, pair: Pair | None, group: int | None, look: Look, width: float, extras: Extras) -> None:
        """The details of a group; a summary of the report without one."""
        state = (pair, group, look.name, round(width / 20), extras)
        if state == self._shown:
            return
        self._shown = state
        dpg.delete_item(self.parent, children_only=True)
        wrap = int(width - 24 * self.scale)
        if pair is None:
            return
        if group is None:
            if extras.sample is not None:
                self._sample(extras.sample, wrap)
            self._summary(pair, look, wrap)
            return
        sections = details.describe(pair, group)
        self._section(sections[0], look, wrap)
        if extras.walked is not None and extras.walked.group == group:
            self._walk(extras.walked, look, wrap)
        if extras.heat_map is not None and extras.heat_map.group == group:
            self._map(extras.heat_map, wrap)
        for weight, detail in details.weights_of(pair, group)[:MOST_CHARTS]:
            histogram, channels = details.histogram(weight, detail), details.channels(weight, detail)
            if histogram is not None:
                self._histogram(histogram, wrap)
            if channels is not None:
                self._channels(channels, wrap)
        for section in sections[1:MOST_SECTIONS]:
            self._section(section, look, wrap)
        if len(sections) > MOST_SECTIONS:
            dpg.add_text(f"… and {len(sections) - MOST_SECTIONS} more nodes", parent=self.parent, color=look.faint)

    def _section(self, section: details.Section, look: Look, wrap: int) -> None:
        colour = look.alarm if section.heading.startswith(("ERROR", "WARNING")) else look.text
        dpg.add_spacer(height=int(4 * self.scale), parent=self.parent)
        dpg.add_text(section.heading, parent=self.parent, color=colour, wrap=wrap)
        dpg.add_separator(parent=self.parent)
        for name, value in section.lines:
            if len(name) + len(value) < 34:
                with dpg.group(horizontal=True, parent=self.parent):
                    dpg.add_text(name, color=look.faint)
                    dpg.add_text(value)
            else:
                if name:
                    dpg.add_text(name, parent=self.parent, color=look.faint)
                dpg.add_text(value, parent=self.parent, wrap=wrap, indent=int(10 * self.scale))

    def _walk(self, walked: Walked, look: Look, wrap: int) -> None:
        dpg.add_spacer(height=int(4 * self.scale), parent=self.parent)
        dpg.add_text(walked.title, parent=self.parent, wrap=wrap)
        with dpg.table(parent=self.parent, header_row=False, policy=dpg.mvTable_SizingFixedFit, row_background=True):
            for _ in range(2):
                dpg.add_table_column()
            for name, number, words in walked.stations:
                with dpg.table_row():
                    # NOTE: the font has no combining circumflex
                    dpg.add_text(name.replace("x\u0302", "dequantized"), color=look.faint)
                    with dpg.group():
                        dpg.add_text(number)
                        if words:
                            dpg.add_text(words, color=look.faint, wrap=int(wrap * 0.62))

    def _sample(self, sample: SamplePicture, wrap: int) -> None:
        height, width, _ = sample.pixels.shape
        texture = np.concatenate([sample.pixels, np.ones((height, width, 1), np.float32)], axis=2)
        with dpg.texture_registry():
            made = dpg.add_static_texture(width, height, texture.ravel().tolist())
        if self._texture is not None:
            dpg.delete_item(self._texture)
        self._texture = made
        shown = min(wrap, int(240 * self.scale))
        dpg.add_text(f"Sample {sample.sample}", parent=self.parent)
        dpg.add_image(made, width=shown, height=max(int(shown * height / width), 1), parent=self.parent)

    def _summary(self, pair: Pair, look: Look, wrap: int) -> None:
        report = pair.report
        lines = [("", report.summary.sentence), ("", report.summary.verdict)]
        for text in (x for _, x in lines if x):
            dpg.add_text(text, parent=self.parent, wrap=wrap)
        counts: dict[str, int] = {}
        for g in pair.groups:
            counts[g.kind] = counts.get(g.kind, 0) + 1
        rows = [(k, f"{v:,}") for k, v in counts.items()]
        self._section(details.Section("Matches", tuple(rows)), look, wrap)
        for run in report.runs:
            words = f"{run.samples} samples, {run.provider}, optimisation {run.optimisation}"
            self._section(details.Section(f"Run {run.id}, {run.model}", (("", words),)), look, wrap)
        for task in report.task:
            words = f"float {100 * task.float:.2f} %, quantized {100 * task.quant:.2f} % of {task.n}"
            self._section(details.Section(task.metric, (("", words),)), look, wrap)
        for out in report.outputs:
            value = out.metrics.get("sqnr_db")
            if value is not None:
                heading = f"Output {out.quant_value}"
                self._section(details.Section(heading, (("SQNR", f"{float(value):.2f} dB"),)), look, wrap)
        for f in report.findings[:8]:
            self._section(details.Section(f"{f.severity.upper()} {f.code}", (("", f.what), ("fix", f.fix))), look, wrap)

    def _plot(
        self, title: str, wrap: int, height: float, x_label: str, y_label: str, log: bool
    ) -> tuple[Any, Any, Any]:
        dpg.add_spacer(height=int(4 * self.scale), parent=self.parent)
        dpg.add_text(title, parent=self.parent, wrap=wrap)
        plot = dpg.add_plot(
            width=wrap, height=int(height * self.scale), parent=self.parent, no_menus=True, no_title=True
        )
        dpg.add_plot_legend(parent=plot, location=dpg.mvPlot_Location_NorthEast)
        x = dpg.add_plot_axis(dpg.mvXAxis, label=x_label, parent=plot)
        y = dpg.add_plot_axis(
            dpg.mvYAxis, label=y_label, parent=plot, scale=dpg.mvPlotScale_Log10 if log else dpg.mvPlotScale_Linear
        )
        return plot, x, y

    def _histogram(self, chart: details.HistogramChart, wrap: int) -> None:
        plot, x, y = self._plot(f"Values of {chart.value}", wrap, 210, "value", "count (log)", log=True)
        for name, counts, colour in (
            ("float", chart.counts_float, _BLUE),
            ("dequantized", chart.counts_quant, _ORANGE),
        ):
            heights = np.where(counts > 0, counts, np.nan)
            line = dpg.add_stair_series(
                chart.centres.tolist(), np.nan_to_num(heights, nan=0.5).tolist(), label=name, parent=y
            )
            dpg.bind_item_theme(line, self._line_theme(colour))
        for name, at in chart.quantiles:
            self._mark(plot, at, name, (150, 150, 150, 200))
        for at in chart.clip or ():
            if math.isfinite(at):
                self._mark(plot, at, "range", (213, 94, 0, 220))
        top = float(max(chart.counts_float.max(), chart.counts_quant.max(), 1.0))
        dpg.set_axis_limits(y, 0.5, top * 3)
        dpg.fit_axis_data(x)

    def _map(self, found: HeatMap, wrap: int) -> None:
        counts, edges = found.map.counts, found.map.edges
        title = f"Float values of {found.map.channels.size} channels, the worst on top"
        plot, x, y = self._plot(title, wrap, 220, "value", "channels", log=False)
        dpg.bind_colormap(plot, dpg.mvPlotColormap_Viridis)
        heat = np.log1p(counts.astype(np.float64))
        rows, columns = heat.shape
        dpg.add_heat_series(
            heat.ravel().tolist(),
            rows=rows,
            cols=columns,
            scale_min=0.0,
            scale_max=float(heat.max()) or 1.0,
            bounds_min=(float(edges[0]), 0.0),
            bounds_max=(float(edges[-1]), float(rows)),
            format="",
            parent=y,
        )
        dpg.configure_item(y, no_tick_labels=True)
        dpg.fit_axis_data(x)
        dpg.fit_axis_data(y)

    def _mark(self, plot: Any, at: float, name: str, colour: tuple[int, int, int, int]) -> None:
        del name
        dpg.add_drag_line(default_value=at, color=colour, parent=plot, thickness=1.0, no_inputs=True, no_cursor=True)

    def _channels(self, chart: details.ChannelChart, wrap: int) -> None:
        title = f"SQNR of {chart.channel.size} channels, worst first (channel {int(chart.channel[0])})"
        _, x, y = self._plot(title, wrap, 160, "rank", "dB", log=False)
        values = np.nan_to_num(chart.sqnr_db, nan=0.0, posinf=0.0, neginf=0.0)
        series = dpg.add_bar_series(list(range(values.size)), values.tolist(), weight=0.9, parent=y)
        dpg.bind_item_theme(series, self._line_theme(_BLUE))
        dpg.fit_axis_data(x)
        dpg.fit_axis_data(y)
        rows = min(MOST_ROWS, chart.channel.size)
        with dpg.table(parent=self.parent, header_row=True, policy=dpg.mvTable_SizingStretchProp, row_background=True):
            for name in ("channel", "SQNR dB", "max |error|", "max |x|"):
                dpg.add_table_column(label=name)
            for k in range(min(rows, 8)):
                with dpg.table_row():
                    dpg.add_text(f"#{int(chart.channel[k])}")
                    for value in (chart.sqnr_db[k], chart.max_abs_error[k], chart.max_abs[k]):
                        dpg.add_text("–" if np.isnan(value) else f"{value:.4g}")

    def _line_theme(self, colour: tuple[int, int, int, int]) -> Any:
        if colour not in self._themes:
            with dpg.theme() as theme, dpg.theme_component(dpg.mvAll):
                dpg.add_theme_color(dpg.mvPlotCol_Line, colour, category=dpg.mvThemeCat_Plots)
                dpg.add_theme_color(dpg.mvPlotCol_Fill, colour, category=dpg.mvThemeCat_Plots)
                dpg.add_theme_style(dpg.mvPlotStyleVar_LineWeight, 1.6 * self.scale, category=dpg.mvThemeCat_Plots)
            self._themes[colour] = theme
        return self._themes[colour]
