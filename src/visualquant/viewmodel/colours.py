"""Colour by a metric: colour-blind-safe scales with units; what was not measured has no colour."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from visualquant.core.report import ActivationRow, Number
from visualquant.viewmodel.sides import Pair

F64 = npt.NDArray[np.float64]
Rgba = tuple[int, int, int, int]
# ColorBrewer RdYlBu, safe for all common kinds of colour blindness: blue is good, red is bad
SCALE: tuple[tuple[int, int, int], ...] = (
    (69, 117, 180),
    (116, 173, 209),
    (171, 217, 233),
    (255, 255, 191),
    (254, 224, 144),
    (253, 174, 97),
    (244, 109, 67),
    (215, 48, 39),
)
# Okabe and Ito's palette for categories
CATEGORIES: tuple[tuple[int, int, int], ...] = (
    (86, 180, 233),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (0, 114, 178),
    (213, 94, 0),
    (240, 228, 66),
)
MetricName = Literal[
    "weight_sqnr",
    "activation_sqnr",
    "isolated_sqnr",
    "clipped",
    "latency",
    "latency_share",
    "provider",
    "bits",
    "confidence",
]


@dataclasses.dataclass(frozen=True)
class Metric:
    """What a colour can stand for.

    Attributes:
        good, bad: values at the ends of the scale; None takes them from the data.
    """

    name: MetricName
    title: str
    unit: str
    good: float | None
    bad: float | None


METRICS: tuple[Metric, ...] = (
    Metric("weight_sqnr", "Weight SQNR", "dB", 45.0, 10.0),
    Metric("activation_sqnr", "Activation SQNR, cumulative", "dB", 45.0, 10.0),
    Metric("isolated_sqnr", "Activation SQNR, isolated", "dB", 45.0, 10.0),
    Metric("clipped", "Clipped share", "%", 0.0, 5.0),
    Metric("latency", "Latency", "µs", 0.0, None),
    Metric("latency_share", "Latency share", "%", 0.0, None),
    Metric("provider", "Provider", "", None, None),
    Metric("bits", "Bits per weight", "bits", 16.0, 2.0),
    Metric("confidence", "Confidence of the match", "", 1.0, 0.5),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Coloured:
    """A metric over all groups.

    Attributes:
        values: float64 [G] as shown (dB, %, …), NaN where not measured; category numbers for providers.
        badness: float64 [G] in 0..1, NaN where not measured.
        ticks: (badness, text) for the legend.
        categories: names, for providers only.
    """

    metric: Metric
    values: F64
    badness: F64
    ticks: tuple[tuple[float, str], ...]
    categories: tuple[str, ...] = ()

    @property
    def measured(self) -> int:
        """How many groups have a value."""
        return int((~np.isnan(self.values)).sum())


def real(number: Number | None) -> float:
    """A number of the report as a float; NaN for None."""
    return math.nan if number is None else float(number)


def rgb(badness: float) -> tuple[int, int, int]:
    """The colour of one value in 0..1."""
    at = min(max(badness, 0.0), 1.0) * (len(SCALE) - 1)
    k = min(int(at), len(SCALE) - 2)
    part = at - k
    a, b = SCALE[k], SCALE[k + 1]
    return (
        round(a[0] + (b[0] - a[0]) * part),
        round(a[1] + (b[1] - a[1]) * part),
        round(a[2] + (b[2] - a[2]) * part),
    )


def palette(coloured: Coloured, unmeasured: Rgba) -> npt.NDArray[np.uint8]:
    """uint8 [G + 1, 4] by group; the last row, for "no group" (−1), and unmeasured ones have the colour given."""
    count = coloured.values.size
    found = np.empty((count + 1, 4), np.uint8)
    found[:] = unmeasured
    known = np.flatnonzero(~np.isnan(coloured.values))
    if coloured.categories:
        table = np.array(CATEGORIES, np.uint8)
        found[known, :3] = table[coloured.values[known].astype(np.int64) % len(CATEGORIES)]
    else:
        at = np.clip(coloured.badness[known], 0, 1) * (len(SCALE) - 1)
        table = np.array(SCALE, np.float64)
        for channel in range(3):
            found[known, channel] = np.rint(np.interp(at, np.arange(len(SCALE)), table[:, channel]))
    found[known, 3] = 255
    return found


def ink_on(fill: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """Black or white, whichever reads better on a colour (WCAG relative luminance)."""
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in fill]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return (0, 0, 0, 255) if luminance > 0.179 else (255, 255, 255, 255)


def colour_by(pair: Pair, name: MetricName, run: str | None = None) -> Coloured:
    """A metric over the groups of a pair; of the given run, or of all.

    Raises:
        KeyError: no such metric.
    """
    metric = next((m for m in METRICS if m.name == name), None)
    if metric is None:
        raise KeyError(name)
    if name == "provider":
        return _providers(pair, metric)
    values = _values(pair, name, run)
    good, bad = metric.good, metric.bad
    known = values[np.isfinite(values)]
    good = good if good is not None else float(known.min()) if known.size else 0.0
    bad = bad if bad is not None else float(known.max()) if known.size else 1.0
    span = bad - good if bad != good else 1.0
    with np.errstate(invalid="ignore"):
        badness = np.clip((values - good) / span, 0.0, 1.0)
    ticks = tuple((t, _tick(good + span * t, t, metric)) for t in (0.0, 0.25, 0.5, 0.75, 1.0))
    return Coloured(metric, values, badness, ticks)


def _tick(value: float, at: float, metric: Metric) -> str:
    text = f"{value:.3g}"
    if metric.unit == "dB":
        return f"≥ {text}" if at == 0 else f"≤ {text}" if at == 1 else text
    return f"≥ {text}" if at == 1 and metric.name == "clipped" else text


def _values(pair: Pair, name: MetricName, run: str | None) -> F64:
    report, index = pair.report, pair.group_index
    found = np.full(len(pair.groups), np.nan)

    def put(group: str | None, value: float, worst_is: Literal["min", "max"]) -> None:
        k = index.get(group or "")
        if k is not None and not math.isnan(value):
            pick = min if worst_is == "min" else max
            found[k] = value if math.isnan(found[k]) else pick(float(found[k]), value)

    if name == "confidence":
        return np.array([float(g.confidence) for g in pair.groups])
    if name == "weight_sqnr":
        for w in report.weights:
            if w.role == "weight" and w.model in (None, "quant"):
                for group in w.groups or (w.group,):
                    put(group, real(w.metrics.get("sqnr_db")), "min")
    elif name == "bits":
        for w in report.weights:
            if w.role == "weight" and w.model in (None, "quant"):
                for group in w.groups or (w.group,):
                    put(group, real(w.bits_per_weight), "min")
    elif name in ("latency", "latency_share"):
        times = node_times(pair)
        total = sum(times.values()) or 1.0
        for k, micros in times.items():
            found[k] = micros if name == "latency" else 100 * micros / total
    else:
        for row in report.activations:
            if (run is None or row.run == run) and row.model in (None, "quant"):
                value = _activation(row, name)
                put(row.group, value, "max" if name == "clipped" else "min")
    return found


def _activation(row: ActivationRow, name: MetricName) -> float:
    if name == "activation_sqnr":
        return real(row.cumulative.get("sqnr_db"))
    if name == "isolated_sqnr":
        return real(row.isolated.get("sqnr_db"))
    return 100 * real(row.clipped_share)


def node_times(pair: Pair) -> dict[int, float]:
    """Time in µs of the quantized model by group, where the node that ran can be told from its name or outputs."""
    quant = pair.sides["quant"]
    by_name = {n.name: k for k, n in enumerate(quant.nodes) if n.name}
    by_output = {v: k for k, n in enumerate(quant.nodes) for v in n.outputs if v}
    runs = {r.id for r in pair.report.runs if r.model == "quant"}
    found: dict[int, float] = {}
    for latency in pair.report.latency:
        if runs and latency.run not in runs:
            continue
        for row in latency.nodes:
            bare = row.node.removesuffix("_nchwc").removesuffix("_quant")
            place = by_name.get(row.node, by_output.get(row.node, by_output.get(bare, by_name.get(bare))))
            if place is not None and quant.group[place] >= 0:
                group = int(quant.group[place])
                found[group] = found.get(group, 0.0) + row.p50_us
    return found


def _providers(pair: Pair, metric: Metric) -> Coloured:
    quant = pair.sides["quant"]
    by_name = {n.name: k for k, n in enumerate(quant.nodes) if n.name}
    by_output = {v: k for k, n in enumerate(quant.nodes) for v in n.outputs if v}
    values = np.full(len(pair.groups), np.nan)
    names: dict[str, int] = {}
    for latency in pair.report.latency:
        for row in latency.nodes:
            bare = row.node.removesuffix("_nchwc").removesuffix("_quant")
            place = by_name.get(row.node, by_output.get(row.node, by_output.get(bare)))
            if place is not None and quant.group[place] >= 0:
                values[quant.group[place]] = names.setdefault(row.provider, len(names))
    return Coloured(metric, values, np.where(np.isnan(values), np.nan, 0.0), (), tuple(names))
