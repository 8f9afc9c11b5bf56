"""A report as two sides of columns, which views, search and colours read."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np
import numpy.typing as npt

from visualquant.core.alignment import SideName
from visualquant.core.report import FusionRow, GroupRow, NodeRow, Report

I64 = npt.NDArray[np.int64]
SIDES: tuple[SideName, SideName] = ("float", "quant")
PLUMBING = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "FakeQuantize", "Quant", "Cast"})
_ALWAYS = PLUMBING - {"Cast"}


def other(side: SideName) -> SideName:
    """The side across."""
    return "quant" if side == "float" else "float"


@dataclasses.dataclass(frozen=True, eq=False)
class Side:
    """The nodes of one graph.

    Attributes:
        name: "float" or "quant".
        nodes: rows of the report.
        group: int64 [N], index into the groups of the report, −1 for none.
        plumbing: bool [N], nodes that only change the representation.
        sources, targets, tensors: int64 [E]; edges from node to node; tensors index `tensor_names`.
    """

    name: SideName
    nodes: tuple[NodeRow, ...]
    group: I64
    plumbing: npt.NDArray[np.bool_]
    sources: I64
    targets: I64
    tensors: I64
    tensor_names: tuple[str, ...]

    @cached_property
    def index(self) -> dict[str, int]:
        """Place of each node by its id."""
        return {n.id: k for k, n in enumerate(self.nodes)}

    @cached_property
    def scopes(self) -> tuple[str, ...]:
        """Paths of sub-graphs and functions, the main graph ("") first."""
        return tuple(sorted({n.scope for n in self.nodes} | {""}))


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """Both sides and the groups that tie them.

    Attributes:
        members: for each group and side, the places of its nodes.
        fusions: by group.
        modules: for each group, its path of modules ("layer1/block0"), "" for none.
    """

    report: Report
    sides: dict[SideName, Side]
    groups: tuple[GroupRow, ...]
    members: dict[SideName, tuple[I64, ...]]
    fusions: dict[int, FusionRow]
    modules: tuple[str, ...]

    @cached_property
    def group_index(self) -> dict[str, int]:
        """Place of each group by its id."""
        return {g.group: k for k, g in enumerate(self.groups)}

    def why_alone(self, group: int) -> str:
        """Why a group has no counterpart, in a sentence; "" where it has one."""
        row = self.groups[group]
        if row.kind not in ("inserted", "removed"):
            return ""
        side = "float" if row.kind == "inserted" else "quantized"
        return row.reason or f"No counterpart in the {side} model: the node was {row.kind} by the toolchain."


def read_pair(report: Report) -> Pair:
    """The sides of a report; groups of further models of a joined report are left out."""
    groups = tuple(g for g in report.alignment if g.model in (None, "quant"))
    sides: dict[SideName, Side] = {}
    members: dict[SideName, tuple[I64, ...]] = {}
    for name in SIDES:
        nodes = report.nodes.get(name, ())
        index = {n.id: k for k, n in enumerate(nodes)}
        group = np.full(len(nodes), -1, np.int64)
        places = []
        for k, row in enumerate(groups):
            own = [index[i] for i in getattr(row, name) if i in index]
            group[own] = k
            places.append(np.array(own, np.int64))
        members[name] = tuple(places)
        sides[name] = _side(name, nodes, group)
    by_id = {g.group: k for k, g in enumerate(groups)}
    fusions = {by_id[f.group]: f for f in reversed(report.fusions) if f.group in by_id and f.model in (None, "quant")}
    return Pair(report, sides, groups, members, fusions, _modules(groups, sides, members))


def _side(name: SideName, nodes: tuple[NodeRow, ...], group: I64) -> Side:
    makers = {v: k for k, n in enumerate(nodes) for v in n.outputs if v}
    numbers: dict[str, int] = {}
    edges = [
        (makers[v], k, numbers.setdefault(v, len(numbers)))
        for k, n in enumerate(nodes)
        for v in n.inputs
        if v in makers and nodes[makers[v]].scope == n.scope
    ]
    sources, targets, tensors = np.array(edges, np.int64).reshape(-1, 3).T.copy()
    plumbing = np.array([n.op_type in _ALWAYS for n in nodes], bool)
    return Side(name, nodes, group, plumbing, sources, targets, tensors, tuple(numbers))


def _modules(
    groups: tuple[GroupRow, ...], sides: dict[SideName, Side], members: dict[SideName, tuple[I64, ...]]
) -> tuple[str, ...]:
    found = []
    for k in range(len(groups)):
        names = [sides[s].nodes[m].name for s in SIDES for m in members[s][k].tolist() if not sides[s].plumbing[m]]
        found.append(next((module_of(n) for n in names if module_of(n)), ""))
    return tuple(found)


def module_of(name: str) -> str:
    """The module path in a node's name: "/layer1/block0/conv/Conv" gives "layer1/block0/conv"."""
    return name.strip("/").rpartition("/")[0]
