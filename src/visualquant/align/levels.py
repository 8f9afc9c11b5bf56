"""Two passes: formulas put together first, then what is inside them, and what no formula explained."""

from __future__ import annotations

import dataclasses

from visualquant.align.cuts import Groups, join_units, value_ties
from visualquant.align.ends import input_pairs, output_pairs
from visualquant.align.matcher import Matcher, UnitPair
from visualquant.align.side import Side
from visualquant.align.sketches import unique_pairs
from visualquant.align.units import UnitGraph, UnitId
from visualquant.core.graph import NodeId, ValueId


@dataclasses.dataclass
class Matched:
    """What both passes found.

    Attributes:
        groups: of compute nodes.
        values: pairs of values that are the same.
        nodes: compute nodes tied one to one.
        score: of each tied left node.
        forced: left nodes tied by order alone.
    """

    groups: Groups
    values: list[tuple[ValueId, ValueId]]
    nodes: dict[NodeId, NodeId]
    score: dict[NodeId, float]
    forced: set[NodeId]


def match(left: Side, right: Side, named: dict[tuple[NodeId, NodeId], float]) -> Matched:
    """Ties of all compute nodes and the groups that follow from them."""
    ends = [(left.root(x), right.root(y)) for x, y in output_pairs(left, right)]
    start = dict(input_pairs(left, right))
    coarse = Matcher(
        whole_left := UnitGraph(left, compose=True),
        whole_right := UnitGraph(right, compose=True),
        named=_named_units(whole_left, whole_right, named),
        values=start,
    )
    _seed(coarse, ends)
    coarse.grow()
    fine = _refined(coarse, named, ends)
    groups = Groups()
    for a, b in coarse.ties.items():
        some, others = whole_left.units[a].members, whole_right.units[b].members
        if len(some) > 1 and len(others) > 1:
            continue
        for node in (*some, *others[:0]):
            groups.join((0, node), (1, whole_right.units[b].node))
        for node in others:
            groups.join((1, node), (0, whole_left.units[a].node))
    pairs = value_ties(fine, ends)
    join_units(groups, fine, pairs)
    nodes = {fine.left.units[a].node: fine.right.units[b].node for a, b in fine.ties.items()}
    score = {fine.left.units[a].node: s for a, s in fine.score.items()}
    forced = {fine.left.units[a].node for a in fine.forced}
    return Matched(groups, pairs, nodes, score, forced)


def _seed(matcher: Matcher, ends: list[tuple[ValueId, ValueId]]) -> None:
    sketches = [
        [(f.family, k, f.sketches[0]) for k, f in enumerate(features) if f.sketches] for features in matcher.features
    ]
    matcher.seed((1.0 + score, a, b) for score, a, b in unique_pairs(sketches[0], sketches[1]))
    matcher.seed((0.5, a, b) for a, b in matcher.named)
    matcher.seed_values()
    for x, y in ends:
        p, r = matcher.left.producer.get(x), matcher.right.producer.get(y)
        if p is not None and r is not None:
            matcher.seed([(0.5, p, r)])


def _named_units(left: UnitGraph, right: UnitGraph, named: dict[tuple[NodeId, NodeId], float]) -> dict[UnitPair, float]:
    """Names tie the unit that makes a node's first output (the last step of a fused node)."""
    last_left = {u.node: k for k, u in enumerate(left.units)}
    last_right = {u.node: k for k, u in enumerate(right.units)}
    out: dict[UnitPair, float] = {}
    for (a, b), weight in named.items():
        if a in last_left and b in last_right:
            out[last_left[a], last_right[b]] = weight
    return out


def _refined(
    coarse: Matcher, named: dict[tuple[NodeId, NodeId], float], ends: list[tuple[ValueId, ValueId]]
) -> Matcher:
    """The second pass, on single nodes, with all that the first one knows."""
    left, right = UnitGraph(coarse.left.side, compose=False), UnitGraph(coarse.right.side, compose=False)
    by_result_left, by_result_right = _by_result(left), _by_result(right)
    regions: tuple[dict[UnitId, int], dict[UnitId, int]] = ({}, {})
    sure: list[tuple[UnitId, UnitId, float, bool]] = []
    for number, (a, b) in enumerate(sorted(coarse.ties.items())):
        some, others = coarse.left.units[a], coarse.right.units[b]
        if len(some.members) == 1 and len(others.members) == 1:
            sure.append(
                (by_result_left[_key(some)], by_result_right[_key(others)], coarse.score[a], a in coarse.forced)
            )
            continue
        for which, units, members in ((0, left, some.members), (1, right, others.members)):
            alone = len(some.members) == 1 or len(others.members) == 1
            for k, unit in enumerate(units.units):
                if unit.node in members:
                    regions[which][k] = -2 - which if alone else number
    fine = Matcher(left, right, named=_named_units(left, right, named), values=dict(coarse.values), regions=regions)
    for p, r, score, forced in sure:
        fine.tie(p, r, score)
        if forced:
            fine.forced.add(p)
    _seed(fine, ends)
    fine.grow()
    return fine


def _by_result(units: UnitGraph) -> dict[tuple[NodeId, str, int], UnitId]:
    return {_key(u): k for k, u in enumerate(units.units)}


def _key(unit: object) -> tuple[NodeId, str, int]:
    from visualquant.align.units import Unit

    assert isinstance(unit, Unit)
    return unit.node, unit.family, unit.rank[1]
