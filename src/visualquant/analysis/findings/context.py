"""What every rule of the findings engine looks at, and how it states what it saw."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from visualquant.analysis.tap_plan import sites_by_value
from visualquant.analysis.weights import MeasuredWeight
from visualquant.core.alignment import Alignment
from visualquant.core.catalogue import CATALOGUE
from visualquant.core.graph import GraphView, NodeId, NodeView, ValueId
from visualquant.core.model import Model, node_key
from visualquant.core.quant import QuantParams, QuantSite, code_limits
from visualquant.core.report import Finding, Number, Severity

_RANK = {"error": 0, "warning": 1, "info": 2}


@dataclasses.dataclass(frozen=True, slots=True)
class Draft:
    """A finding before it has an id and its place in the order.

    Attributes:
        effect: how much it hurts among findings of the same severity, higher is worse (0..100, dB lost or per cent).
    """

    code: str
    severity: Severity
    what: str
    effect: float = 0.0
    node: NodeId | None = None
    value: str | None = None
    float_value: str | None = None
    groups: tuple[str, ...] = ()
    where: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    numbers: Mapping[str, Number] = dataclasses.field(default_factory=dict)
    fix: str | None = None
    settings: str | None = None


@dataclasses.dataclass(frozen=True)
class Context:
    """Two aligned models, and what was measured on their weights."""

    float_model: Model
    quant_model: Model
    alignment: Alignment
    weights: Sequence[MeasuredWeight] = ()

    @property
    def graph(self) -> GraphView:
        """The quantized graph."""
        return self.quant_model.graph

    @cached_property
    def activation_at(self) -> dict[ValueId, QuantSite]:
        """The activation site by each value that it makes: codes and dequantized tensors."""
        return sites_by_value(self.quant_model)

    @cached_property
    def plumbing(self) -> frozenset[NodeId]:
        """Nodes of the quantized graph that only carry codes to values and back."""
        return frozenset(n for s in self.quant_model.sites for n in s.nodes)

    def groups_of(self, node: NodeId | None) -> tuple[str, ...]:
        """The id of the group of a quant node, as a tuple for `Draft.groups`."""
        group = None if node is None else self.alignment.group_of_quant.get(node)
        return () if group is None else (group.id,)

    def groups_at(self, draft: Draft) -> tuple[str, ...]:
        """The groups that a draft names, else the one of its node."""
        return draft.groups or self.groups_of(draft.node)

    def float_nodes(self, node: NodeId) -> tuple[NodeView, ...]:
        """The float members of the group of a quant node."""
        group = self.alignment.group_of_quant.get(node)
        return () if group is None else tuple(self.float_model.graph.nodes[n] for n in group.float_nodes)

    def readers(self, value: ValueId) -> list[NodeView]:
        """The quant nodes that read a value."""
        return [n for n, _ in self.graph.readers_of(value)]


def label(node: NodeView) -> str:
    """How a message names a node."""
    return f"{node.op_type} {node.name!r}" if node.name else f"the unnamed {node.op_type} {node_key(node.id)}"


def value_range(params: QuantParams | None) -> tuple[float, float] | None:
    """The widest range of values that the codes reach; None for float codes and run-time parameters."""
    if params is None or (limits := code_limits(params)) is None or params.scale.size == 0:
        return None
    zero = 0 if params.zero_point is None else params.zero_point.astype(float)
    ends = [(limit - zero) * params.scale for limit in limits]
    return float(min(ends[0].min(), ends[1].min())), float(max(ends[0].max(), ends[1].max()))


def finish(drafts: Sequence[Draft], context: Context) -> tuple[Finding, ...]:
    """Findings in order of importance: severity, then effect, then place."""
    found: dict[str, tuple[tuple[Any, ...], Finding]] = {}
    for position, draft in enumerate(drafts):
        entry = CATALOGUE[draft.code]
        place = f"{draft.code}|{draft.node}|{draft.value}|{sorted(map(str, draft.where.items()))}"
        identity = hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        groups = context.groups_at(draft)
        finding = Finding(
            id=identity,
            code=draft.code,
            severity=draft.severity,
            what=draft.what,
            why=entry.why,
            fix=draft.fix or entry.fix,
            groups=groups,
            node=None if draft.node is None else node_key(draft.node),
            value=draft.value,
            float_value=draft.float_value,
            where=draft.where,
            settings=draft.settings,
            numbers=draft.numbers,
        )
        rank = (_RANK[draft.severity], -draft.effect, position)
        if identity not in found or rank < found[identity][0]:  # of two drafts on one place the louder one counts
            found[identity] = rank, finding
    return tuple(finding for _, finding in sorted(found.values(), key=lambda pair: pair[0]))
