"""Two passes: composed units first, then what is inside them, and what no composition explained."""

from __future__ import annotations

import dataclasses

from visualquant.align.compose import composed_units
from visualquant.align.cuts import Groups, Key, join_units, value_ties
from visualquant.align.ends import input_pairs, output_pairs
from visualquant.align.matcher import Matcher, UnitPair
from visualquant.align.packs import Matrix, find_packs
from visualquant.align.side import Side
from visualquant.align.sketches import unique_pairs
from visualquant.align.units import UnitGraph, UnitId, simple_units
from visualquant.core.graph import NodeId, ValueId

_LAYOUTS = 4

Ends = list[tuple[ValueId, ValueId]]
Named = dict[tuple[NodeId, NodeId], float]


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """Units of both sides that belong together without being tied one to one.

    Attributes:
        lefts, rights: composed units.
        reads: pairs of values that they read.
        floats, quants: their weights, in the order in which they are concatenated.
    """

    lefts: tuple[UnitId, ...]
    rights: tuple[UnitId, ...]
    reads: tuple[tuple[ValueId, ValueId], ...]
    floats: tuple[Matrix, ...]
    quants: tuple[Matrix, ...]


@dataclasses.dataclass
class Matched:
    """What both passes found.

    Attributes:
        groups: of compute nodes.
        values: pairs of values that are the same.
        nodes: compute nodes tied one to one.
        score: of each tied left node.
        forced: left nodes tied by order alone.
        bindings: packed layers.
        coarse: the composed unit graphs of the first pass.
    """

    groups: Groups
    values: list[tuple[ValueId, ValueId]]
    nodes: dict[NodeId, NodeId]
    score: dict[NodeId, float]
    forced: set[NodeId]
    bindings: list[Binding]
    coarse: tuple[UnitGraph, UnitGraph]


def match(left: Side, right: Side, named: Named) -> Matched:
    """Ties of all compute nodes and the groups that follow from them."""
    ends = [(left.root(x), right.root(y)) for x, y in output_pairs(left, right)]
    simple_left, simple_right = simple_units(left), simple_units(right)
    coarse, bindings = _grown(
        composed_units(simple_left), composed_units(simple_right), named, dict(input_pairs(left, right)), ends
    )
    groups = Groups()
    fine, more = _refined(coarse, simple_left, simple_right, named, ends, groups, bindings)
    pairs = value_ties(fine, more + ends)
    join_units(groups, fine, pairs)
    nodes = {simple_left.units[a].node: simple_right.units[b].node for a, b in fine.ties.items()}
    score = {simple_left.units[a].node: s for a, s in fine.score.items()}
    forced = {simple_left.units[a].node for a in fine.forced}
    return Matched(groups, pairs, nodes, score, forced, bindings, (coarse.left, coarse.right))


def _grown(
    left: UnitGraph, right: UnitGraph, named: Named, start: dict[ValueId, ValueId], ends: Ends
) -> tuple[Matcher, list[Binding]]:
    matcher = Matcher(left, right, named=_named_units(left, right, named), values=start, ends=ends)
    pairs = _unique(matcher)
    bindings = _bound_packs(matcher, {a for _, a, _ in pairs}, {b for _, _, b in pairs})
    _seed(matcher, ends, pairs)
    matcher.grow()
    return matcher, bindings


def _bound_packs(matcher: Matcher, known_left: set[UnitId], known_right: set[UnitId]) -> list[Binding]:
    """Packs of both directions, their units taken out of the search."""
    free_left = [k for k in range(len(matcher.left.units)) if k not in known_left]
    free_right = [k for k in range(len(matcher.right.units)) if k not in known_right]
    out: list[Binding] = []
    for pack in find_packs(matcher.left, matcher.right, free_left, free_right):
        lefts, rights = tuple(m.unit for m in pack.parts), (pack.whole.unit, *pack.pieces)
        reads = (matcher.left.units[lefts[0]].args[0], matcher.right.units[rights[0]].args[0])
        out.append(Binding(lefts, rights, (reads,), pack.parts, (pack.whole,)))
        matcher.bind(lefts, rights, pack.split)
    for pack in find_packs(matcher.right, matcher.left, free_right, free_left):
        lefts, rights = (pack.whole.unit, *pack.pieces), tuple(m.unit for m in pack.parts)
        reads = (matcher.left.units[lefts[0]].args[0], matcher.right.units[rights[0]].args[0])
        out.append(Binding(lefts, rights, (reads,), (pack.whole,), pack.parts))
        matcher.bind(lefts, rights, [(y, x) for x, y in pack.split])
    return out


def _unique(matcher: Matcher) -> list[tuple[float, UnitId, UnitId]]:
    sketches = [
        [
            (f.family, k, s)
            for k, f in enumerate(features)
            for s in f.sketches[:_LAYOUTS]
            if s.size == f.sketches[0].size
        ]
        for features in matcher.features
    ]
    return unique_pairs(sketches[0], sketches[1])


def _seed(matcher: Matcher, ends: Ends, pairs: list[tuple[float, UnitId, UnitId]]) -> None:
    matcher.seed((1.0 + score, a, b) for score, a, b in pairs)
    matcher.seed((0.5, a, b) for a, b in matcher.named)
    matcher.seed_values()
    for x, y in ends:
        p, r = matcher.left.producer.get(x), matcher.right.producer.get(y)
        if p is not None and r is not None:
            matcher.seed([(0.5, p, r)])


def _named_units(left: UnitGraph, right: UnitGraph, named: Named) -> dict[UnitPair, float]:
    """Names tie the unit that makes a node's first output (the last step of a fused node)."""
    last_left = {u.node: k for k, u in enumerate(left.units)}
    last_right = {u.node: k for k, u in enumerate(right.units)}
    out: dict[UnitPair, float] = {}
    for (a, b), weight in named.items():
        if a in last_left and b in last_right:
            out[last_left[a], last_right[b]] = weight
    return out


def _refined(
    coarse: Matcher,
    left: UnitGraph,
    right: UnitGraph,
    named: Named,
    ends: Ends,
    groups: Groups,
    bindings: list[Binding],
) -> tuple[Matcher, Ends]:
    """The second pass, on simple units, with all that the first one knows, and pairs of values it can't see itself.

    Parts of a composed unit only match parts of its partner. Where the partner is a single unit, all parts are its
    counterpart at once.
    """
    regions: tuple[dict[UnitId, int], dict[UnitId, int]] = ({}, {})
    sure: list[tuple[UnitId, UnitId, UnitId]] = []
    more: Ends = []
    for number, (a, b) in enumerate(sorted(coarse.ties.items())):
        some, others = coarse.left.units[a].parts, coarse.right.units[b].parts
        if len(some) == 1 and len(others) == 1:
            sure.append((a, some[0], others[0]))
            continue
        alone = len(some) == 1 or len(others) == 1
        for which, parts in ((0, some), (1, others)):
            regions[which].update((p, -2 - which if alone else number) for p in parts)
        more += coarse.argument_pairs(a, b)
        if alone:
            keys = [(0, left.units[p].node) for p in some] + [(1, right.units[p].node) for p in others]
            for key in keys[1:]:
                groups.join(keys[0], key)
    for binding in bindings:
        more += binding.reads
        bound: list[Key] = []
        sides = ((0, left, coarse.left, binding.lefts), (1, right, coarse.right, binding.rights))
        for which, units, whole, found in sides:
            inner = [p for k in found for p in whole.units[k].parts]
            regions[which].update((p, -2 - which) for p in inner)
            bound += [(which, units.units[p].node) for p in inner]
        for key in bound[1:]:
            groups.join(bound[0], key)
    fine = Matcher(
        left, right, named=_named_units(left, right, named), values=dict(coarse.values), ends=ends, regions=regions
    )
    for a, p, r in sure:
        fine.tie(p, r, coarse.score[a])
        if a in coarse.forced:
            fine.forced.add(p)
    _seed(fine, ends, _unique(fine))
    fine.grow()
    return fine, more
