"""Tables of the report: rows that sort and filter, each tied to a group."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from visualquant.viewmodel.colours import F64, MetricName, node_times, real
from visualquant.viewmodel.sides import Pair

Cell = str | float
_OF_ACTIVATIONS: tuple[MetricName, ...] = ("activation_sqnr", "isolated_sqnr", "clipped")


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Columns and rows.

    Attributes:
        name: "layers", "findings", "fusions", "flipped" or "alignment".
        numeric: columns of numbers (NaN: not measured).
        groups: the group of each row, −1 for none.
    """

    name: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[Cell, ...], ...]
    groups: tuple[int, ...]

    def order(self, column: int | None, descending: bool, text: str = "") -> list[int]:
        """Places of the rows that contain every word of `text`, sorted by a column; unmeasured ones last."""
        words = text.lower().split()
        kept = range(len(self.rows))
        if words:
            joined = [" ".join(show(c) for c in row).lower() for row in self.rows]
            kept = [k for k in kept if all(w in joined[k] for w in words)]  # type: ignore[assignment]
        if column is None:
            return list(kept)
        known = [k for k in kept if not _absent(self.rows[k][column])]
        absent = [k for k in kept if _absent(self.rows[k][column])]
        if self.numeric[column]:
            known.sort(key=lambda k: float(self.rows[k][column]), reverse=descending)
        else:
            known.sort(key=lambda k: str(self.rows[k][column]).lower(), reverse=descending)
        return known + absent

    def row_of(self, group: int) -> int | None:
        """The first row of a group."""
        return next((k for k, g in enumerate(self.groups) if g == group), None)


def _absent(cell: Cell) -> bool:
    return isinstance(cell, float) and math.isnan(cell)


def show(cell: Cell) -> str:
    """A cell as text; what was not measured is a dash."""
    if isinstance(cell, str):
        return cell
    if math.isnan(cell):
        return "–"
    if math.isinf(cell):
        return "∞" if cell > 0 else "-∞"
    if cell == int(cell) and abs(cell) < 1e9:
        return f"{int(cell)}"
    return f"{cell:.4g}" if abs(cell) < 1 else f"{cell:.2f}"


def layers(pair: Pair, values: Mapping[MetricName, F64]) -> Table:
    """One row a weight, then groups that only have activations or times."""
    columns = ("layer", "operator", "weight", "stored as", "SQNR dB", "activation dB", "isolated dB", "clipped %", "µs")
    numeric = (False, False, False, False, True, True, True, True, True)
    times = node_times(pair)
    rows: list[tuple[Cell, ...]] = []
    groups: list[int] = []
    seen: set[int] = set()

    def rest(k: int) -> tuple[Cell, ...]:
        own = [float(values[m][k]) if k >= 0 else math.nan for m in _OF_ACTIVATIONS]
        return (*own, times.get(k, math.nan))

    for w in pair.report.weights:
        if w.role != "weight" or w.model not in (None, "quant"):
            continue
        k = pair.group_index.get(w.group or "", -1)
        seen.add(k)
        stored = " ".join(x for x in (w.code_type, (w.granularity or "").replace("_", " ")) if x)
        rows.append((title(pair, k), operator(pair, k), w.value, stored, real(w.metrics.get("sqnr_db")), *rest(k)))
        groups.append(k)
    for k in range(len(pair.groups)):
        if k not in seen and any(not math.isnan(float(values[m][k])) for m in _OF_ACTIVATIONS[:2]):
            rows.append((title(pair, k), operator(pair, k), "", "", math.nan, *rest(k)))
            groups.append(k)
    return Table("layers", columns, numeric, tuple(rows), tuple(groups))


def findings(pair: Pair) -> Table:
    """Every finding, most important first."""
    rows: list[tuple[Cell, ...]] = []
    groups = []
    for f in pair.report.findings:
        rows.append((f.severity, f.code, f.what, f.fix))
        groups.append(next((pair.group_index[g] for g in f.groups if g in pair.group_index), -1))
    return Table("findings", ("severity", "code", "what", "fix"), (False,) * 4, tuple(rows), tuple(groups))


def fusions(pair: Pair) -> Table:
    """Every fusion: before, after, and what is quantized in it."""
    rows: list[tuple[Cell, ...]] = []
    groups = []
    for f in pair.report.fusions:
        sides = [_operators(pair, "float", f.float), _operators(pair, "quant", f.quant)]
        state = "blocked" if f.blocked else "fused"
        rows.append((f.pattern, *sides, state, float(len(f.quant_points)), real(f.changed_value)))
        groups.append(pair.group_index.get(f.group, -1))
    columns = ("pattern", "before", "after", "state", "quantization points", "changed value")
    return Table("fusions", columns, (False, False, False, False, True, True), tuple(rows), tuple(groups))


def _operators(pair: Pair, side: str, ids: Sequence[str]) -> str:
    found = pair.sides["float" if side == "float" else "quant"]
    return " + ".join(found.nodes[found.index[i]].op_type for i in ids if i in found.index)


def flipped(pair: Pair) -> Table:
    """Samples that are right in float and wrong quantized."""
    columns = ("sample", "label", "float says", "quantized says", "margin float", "margin quantized")
    rows: list[tuple[Cell, ...]] = [
        (float(f.sample), float(f.label), float(f.float), float(f.quant), real(f.float_margin), real(f.quant_margin))
        for task in pair.report.task
        for f in task.flipped
    ]
    return Table("flipped", columns, (True,) * 6, tuple(rows), (-1,) * len(rows))


def devices(pair: Pair) -> Table:
    """Every device that ran the quantized model, against this host on the same inputs."""
    by_value = {v: k for k, n in enumerate(pair.sides["quant"].nodes) for v in n.outputs if v}
    rows: list[tuple[Cell, ...]] = []
    groups = []
    for d in pair.report.devices:
        differing = math.nan if d.differing is None else 100 * d.differing
        most = math.nan if d.max_difference is None else float(d.max_difference)
        machine = f"{d.machine} {d.processor}".strip()
        rows.append((d.name, d.run, machine, d.runtime, float(d.codes), differing, most, d.first or ""))
        place = by_value.get(d.first or "")
        groups.append(-1 if place is None else int(pair.sides["quant"].group[place]))
    columns = ("device", "run", "machine", "runtime", "codes", "differing %", "largest difference", "first to differ")
    numeric = (False, False, False, False, True, True, True, False)
    return Table("devices", columns, numeric, tuple(rows), tuple(groups))


def alignment(pair: Pair) -> Table:
    """Every group with its kind and evidence."""
    rows: list[tuple[Cell, ...]] = [
        (title(pair, k), g.kind, float(g.confidence), ", ".join(g.evidence), pair.why_alone(k))
        for k, g in enumerate(pair.groups)
    ]
    columns = ("group", "kind", "confidence", "evidence", "why alone")
    return Table("alignment", columns, (False, False, True, False, False), tuple(rows), tuple(range(len(rows))))


def title(pair: Pair, group: int) -> str:
    """The name of a group for people: that of its first node that does the work."""
    if group < 0:
        return ""
    for name in ("float", "quant"):
        side = pair.sides["float" if name == "float" else "quant"]
        for m in pair.members[side.name][group].tolist():
            if not side.plumbing[m] and side.nodes[m].name:
                return str(side.nodes[m].name)
    return operator(pair, group) + f" ({pair.groups[group].group})"


def operator(pair: Pair, group: int) -> str:
    """The operators of a group, plumbing left out where there is more."""
    if group < 0:
        return ""
    for side in (pair.sides["float"], pair.sides["quant"]):
        members = pair.members[side.name][group].tolist()
        own = [side.nodes[m].op_type for m in members if not side.plumbing[m]]
        if own:
            return "+".join(own[:4]) + ("…" if len(own) > 4 else "")
    own = [s.nodes[m].op_type for s in pair.sides.values() for m in pair.members[s.name][group].tolist()]
    return "+".join(own[:4])


MAKERS: Mapping[str, Callable[[Pair], Table]] = {
    "findings": findings,
    "fusions": fusions,
    "flipped": flipped,
    "alignment": alignment,
    "devices": devices,
}
