"""What is known of one group: text by section, histograms, channels, drift, and one number walked through."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from visualquant.core.report import NodeRow, WeightDetail, WeightRow
from visualquant.viewmodel.colours import F64, node_times, real
from visualquant.viewmodel.sides import SIDES, Pair
from visualquant.viewmodel.tables import show, title

LEAST_ELEMENTS = 2
Lines = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading with lines of (name, value)."""

    heading: str
    lines: Lines


@dataclasses.dataclass(frozen=True, eq=False)
class HistogramChart:
    """Two histograms over shared edges.

    Attributes:
        centres: float64 [bins].
        counts_float, counts_quant: float64 [bins].
        width: of a bin (the median one).
        quantiles: (name, x) marks.
        clip: limits of what the codes can hold, where known.
    """

    value: str
    centres: F64
    counts_float: F64
    counts_quant: F64
    width: float
    quantiles: tuple[tuple[str, float], ...]
    clip: tuple[float, float] | None


@dataclasses.dataclass(frozen=True, eq=False)
class ChannelChart:
    """Error by channel, the worst first.

    Attributes:
        channel: int64 [C], in order of rising SQNR.
        sqnr_db, max_abs_error, max_abs: float64 [C] in that order.
    """

    value: str
    channel: npt.NDArray[np.int64]
    sqnr_db: F64
    max_abs_error: F64
    max_abs: F64


@dataclasses.dataclass(frozen=True, eq=False)
class Drift:
    """Error along the depth of the network.

    Attributes:
        depth, sqnr_db, isolated_db: float64 [n]; NaN where not measured.
        groups: int64 [n].
    """

    depth: F64
    sqnr_db: F64
    isolated_db: F64
    groups: npt.NDArray[np.int64]

    def nearest(self, depth: float, sqnr_db: float, per_depth: float = 1.0, per_db: float = 1.0) -> int | None:
        """The group of the point closest to a place of the plot."""
        if not self.depth.size:
            return None
        distance = ((self.depth - depth) * per_depth) ** 2 + ((self.sqnr_db - sqnr_db) * per_db) ** 2
        if np.isnan(distance).all():
            return None
        return int(self.groups[int(np.nanargmin(distance))])


def weights_of(pair: Pair, group: int) -> list[tuple[WeightRow, WeightDetail | None]]:
    """The stored tensors of a group with their tables."""
    name = pair.groups[group].group
    details = pair.report.details
    return [
        (w, details[k] if k < len(details) else None)
        for k, w in enumerate(pair.report.weights)
        if name == w.group or name in (w.groups or ())
    ]


def quantized_weight(pair: Pair, group: int) -> tuple[WeightRow, WeightDetail | None] | None:
    """The stored weight of a group; None where it has none."""
    return next((found for found in weights_of(pair, group) if found[0].role == "weight"), None)


def describe(pair: Pair, group: int) -> tuple[Section, ...]:
    """Everything in words, in the order in which it is asked for."""
    row = pair.groups[group]
    found = [_match(pair, group)]
    found += [
        Section(f.severity.upper() + " " + f.code, _finding_lines(f.what, f.why, f.fix, f.settings))
        for f in pair.report.findings
        if row.group in f.groups
    ]
    for weight, _ in weights_of(pair, group):
        found.append(_weight(weight))
    for act in pair.report.activations:
        if act.group == row.group:
            lines = [("on both sides", f"{act.float_value}  |  {act.quant_value}")]
            lines += [(f"cumulative {k}", show(real(v))) for k, v in act.cumulative.items() if k in _ACTIVATION]
            lines += [(f"isolated {k}", show(real(v))) for k, v in act.isolated.items() if k in _ACTIVATION]
            if act.range_float:
                lines.append(("range, float", _range(act.range_float)))
            if act.range_quant:
                lines.append(("range of the codes", _range(act.range_quant)))
            if act.clipped_share is not None:
                lines.append(("clipped", f"{100 * act.clipped_share:.3g} %"))
            if act.reason:
                lines.append(("not observable", act.reason))
            found.append(Section(f"Activation, {act.samples} samples ({act.run})", tuple(lines)))
    micros = node_times(pair).get(group)
    if micros is not None:
        found.append(Section("Time", (("median", f"{micros:.1f} µs"),)))
    for side in SIDES:
        for m in pair.members[side][group].tolist():
            found.append(_node(pair.sides[side].nodes[m], side))
    return tuple(found)


_ACTIVATION = ("sqnr_db", "sqnr_db_worst_channel", "max_abs_error", "cosine", "bias")
_WEIGHT = (
    ("sqnr_db", "SQNR, dB"),
    ("sqnr_db_worst_channel", "SQNR of the worst channel, dB"),
    ("sqnr_db_unclipped", "SQNR without what is clipped, dB"),
    ("max_abs_error", "max |error|"),
    ("rmse", "RMSE"),
    ("bias", "bias (mean error)"),
    ("clipped_low", "clipped at the low end"),
    ("clipped_high", "clipped at the high end"),
    ("range_used", "range used"),
    ("code_utilisation", "codes used"),
    ("effective_bits", "effective bits"),
)


def _match(pair: Pair, group: int) -> Section:
    row = pair.groups[group]
    lines = [("kind", row.kind), ("confidence", f"{float(row.confidence):.2f}"), ("evidence", ", ".join(row.evidence))]
    reason = pair.why_alone(group)
    if reason:
        lines.append(("no counterpart", reason))
    fusion = pair.fusions.get(group)
    if fusion is not None:
        lines.append(("fusion", fusion.pattern + (" (blocked by a Q/DQ pair inside)" if fusion.blocked else "")))
    if pair.modules[group]:
        lines.append(("module", pair.modules[group]))
    return Section(title(pair, group), tuple(lines))


def _finding_lines(what: str, why: str, fix: str, settings: str | None) -> Lines:
    lines = [("what", what), ("why", why), ("fix", fix)]
    return (*lines, ("set", settings)) if settings else tuple(lines)


def _weight(w: WeightRow) -> Section:
    lines = [("scheme", f"{w.scheme}, {w.code_type}"), ("elements", f"{w.elements:,}")]
    if w.granularity:
        axis = "" if w.axis is None else f", axis {w.axis}"
        block = "" if w.block_size is None else f", blocks of {w.block_size}"
        lines.append(("granularity", w.granularity.replace("_", " ") + axis + block))
    if w.bits_per_weight is not None:
        lines.append(("bits per weight", f"{w.bits_per_weight:.2f}"))
    if w.range:
        lines.append(("range, float", _range(w.range)))
    if w.effective_range:
        lines.append(("codes that occur", f"{w.effective_range[0]} to {w.effective_range[1]}"))
    if w.rounding:
        lines.append(("rounding", w.rounding.replace("_", " ")))
    lines += [(words, show(real(w.metrics[k]))) for k, words in _WEIGHT if k in w.metrics]
    if w.problem:
        lines.append(("no number", w.problem))
    return Section(f"{w.role.capitalize()} {w.value}", tuple(lines))


def _node(node: NodeRow, side: str) -> Section:
    domain = f" ({node.domain})" if node.domain else ""
    lines = [("operator", node.op_type + domain), ("name", node.name or "(unnamed)")]
    lines += [("input", v) for v in node.inputs if v]
    lines += [("output", v) for v in node.outputs if v]
    lines += [(k, str(v)) for k, v in node.attributes.items()]
    return Section(f"Node {node.id}, {side if side == 'float' else 'quantized'} side", tuple(lines))


def _range(pair: tuple[object, object]) -> str:
    return f"{float(pair[0]):.5g} to {float(pair[1]):.5g}"  # type: ignore[arg-type]


def histogram(weight: WeightRow, detail: WeightDetail | None) -> HistogramChart | None:
    """Float and dequantized values over one set of edges; None where there are no counts."""
    if detail is None or detail.edges is None or detail.counts_float is None or detail.counts_quant is None:
        return None
    edges = detail.edges
    if weight.elements < LEAST_ELEMENTS:
        return None
    if not np.isfinite(edges).all():
        inside = np.isfinite(edges[:-1]) & np.isfinite(edges[1:])
    else:
        inside = np.ones(edges.size - 1, bool)
    if not inside.any():
        return None
    centres = ((edges[:-1] + edges[1:]) / 2)[inside]
    width = float(np.median(np.diff(edges)[inside]))
    marks = [(f"{100 * float(q):g} %", real(v)) for q, v in weight.quantiles.items() if q in ("0.01", "0.5", "0.99")]
    return HistogramChart(
        value=weight.value,
        centres=centres,
        counts_float=detail.counts_float[inside].astype(np.float64),
        counts_quant=detail.counts_quant[inside].astype(np.float64),
        width=width,
        quantiles=tuple((name, x) for name, x in marks if math.isfinite(x)),
        clip=None if weight.range is None else (real(weight.range[0]), real(weight.range[1])),
    )


def channels(weight: WeightRow, detail: WeightDetail | None) -> ChannelChart | None:
    """Error by channel, worst first; None where there are no channels."""
    if detail is None or detail.channel_sqnr_db is None or detail.channel_sqnr_db.size < 2:
        return None
    sqnr = detail.channel_sqnr_db
    order = np.argsort(np.where(np.isnan(sqnr), np.inf, sqnr), kind="stable")
    absent = np.full(sqnr.size, np.nan)
    error = detail.channel_max_abs_error if detail.channel_max_abs_error is not None else absent
    largest = detail.channel_max_abs if detail.channel_max_abs is not None else absent
    return ChannelChart(weight.value, order.astype(np.int64), sqnr[order], error[order], largest[order])


def drift(pair: Pair, run: str | None = None) -> Drift:
    """SQNR of every observed activation along depth, of one run or of the first."""
    rows = [a for a in pair.report.activations if a.observable and a.model in (None, "quant")]
    if run is None and rows:
        run = rows[0].run
    rows = [a for a in rows if a.run == run and "sqnr_db" in a.cumulative]
    rows.sort(key=lambda a: a.depth)
    return Drift(
        depth=np.array([a.depth for a in rows], np.float64),
        sqnr_db=np.array([real(a.cumulative.get("sqnr_db")) for a in rows], np.float64),
        isolated_db=np.array([real(a.isolated.get("sqnr_db")) for a in rows], np.float64),
        groups=np.array([pair.group_index.get(a.group or "", -1) for a in rows], np.int64),
    )
