"""Two passes: composed units first, then what is inside them, and what no composition explained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from visualquant.align.compose import composed_units
from visualquant.align.cuts import Groups, join_units, value_ties
from visualquant.align.ends import input_pairs, output_pairs
from visualquant.align.features import weight_agreement
from visualquant.align.matched import Binding, Composition, Matched, Tie
from visualquant.align.matcher import Matcher, UnitPair
from visualquant.align.packs import find_packs
from visualquant.align.side import Side
from visualquant.align.sketches import unique_pairs
from visualquant.align.trust import trusted_names
from visualquant.align.units import UnitGraph, UnitId, simple_units
from visualquant.core.evidence import ActivationEvidence
from visualquant.core.graph import NodeId, ValueId
from visualquant.core.pins import Pins

_LAYOUTS = 4

Named = Mapping[tuple[NodeId, NodeId], float]
Tick = Callable[[float], None]


@dataclasses.dataclass(frozen=True)
class Given:
    """What is known before matching starts.

    Attributes:
        named: node pairs by names.
        pins: a user's word.
        activations: measured likeness.
        tick: told the part done, 0..1; may raise to stop the work.
    """

    named: Named
    pins: Pins = dataclasses.field(default_factory=Pins)
    activations: ActivationEvidence = dataclasses.field(default_factory=ActivationEvidence)
    tick: Tick = lambda _: None


def match(left: Side, right: Side, given: Given) -> Matched:
    """Ties of all compute nodes and the groups that follow from them."""
    return _TwoPass(left, right, given).run()


class _TwoPass:
    """The state that both passes share."""

    def __init__(self, left: Side, right: Side, given: Given) -> None:
        self.given = given
        self.ends = [(left.root(x), right.root(y)) for x, y in output_pairs(left, right)]
        self.start = dict(input_pairs(left, right))
        for x, y, _ in given.activations.same:
            self.start.setdefault(left.root(x), right.root(y))
        self.different = frozenset((left.root(x), right.root(y)) for x, y in given.activations.different)
        self.simple = simple_units(left), simple_units(right)
        self.named = trusted_names(given.named, *self.simple)
        self.groups = Groups()
        self.more: list[tuple[ValueId, ValueId]] = []
        self.bindings: list[Binding] = []
        self.compositions: list[Composition] = []
        self.regions: tuple[dict[UnitId, int], dict[UnitId, int]] = ({}, {})

    def run(self) -> Matched:
        """Both passes."""
        coarse = self._coarse()
        self.given.tick(0.5)
        sure = self._regions(coarse)
        fine = self._fine(coarse, sure)
        self.given.tick(0.8)
        pairs = value_ties(fine, self.more + self.ends)
        absorbed = join_units(self.groups, fine, pairs)
        ties = [self._tie(fine, a, b) for a, b in sorted(fine.ties.items())]
        whole = coarse.left, coarse.right
        return Matched(self.groups, pairs, ties, self.compositions, absorbed, self.bindings, whole, self.simple)

    # -- first pass

    def _coarse(self) -> Matcher:
        pinned: tuple[set[NodeId], set[NodeId]] = (set(), set())
        for some, others in self.given.pins.together:
            pinned[0].update(some)
            pinned[1].update(others)
        left, right = (composed_units(units, keep) for units, keep in zip(self.simple, pinned, strict=True))
        matcher = self._matcher(left, right, self.start)
        self._bind_pins(matcher)
        pairs = _unique(matcher)
        self._bind_packs(matcher, {a for _, a, _ in pairs}, {b for _, _, b in pairs})
        self._grow(matcher, pairs)
        return matcher

    def _matcher(self, left: UnitGraph, right: UnitGraph, values: Mapping[ValueId, ValueId]) -> Matcher:
        return Matcher(
            left,
            right,
            named=_named_units(left, right, self.named),
            values=values,
            ends=self.ends,
            regions=self.regions if left is self.simple[0] else ({}, {}),
            copies=(self.simple[0].copies, self.simple[1].copies),
            different=self.different,
            apart=frozenset(self.given.pins.apart),
        )

    def _grow(self, matcher: Matcher, pairs: list[tuple[float, UnitId, UnitId]]) -> None:
        matcher.seed((1.0 + score, a, b) for score, a, b in pairs)
        matcher.seed((0.5, a, b) for a, b in matcher.named)
        matcher.seed_values()
        for x, y in self.ends:
            p, r = matcher.left.producer.get(x), matcher.right.producer.get(y)
            if p is not None and r is not None:
                matcher.seed([(0.5, p, r)])
        matcher.grow()

    def _bind_pins(self, matcher: Matcher) -> None:
        """The user's groups: out of the search, with their results known to be the same where each has one."""
        for some, others in self.given.pins.together:
            lefts = tuple(k for k, u in enumerate(matcher.left.units) if u.node in some)
            rights = tuple(k for k, u in enumerate(matcher.right.units) if u.node in others)
            xs, ys = _boundary(matcher.left, lefts), _boundary(matcher.right, rights)
            same = list(zip(xs[1], ys[1], strict=True)) if len(xs[1]) == len(ys[1]) == 1 else []
            reads = tuple(zip(xs[0], ys[0], strict=True)) if len(xs[0]) == len(ys[0]) == 1 else ()
            matcher.bind(lefts, rights, same)
            self.bindings.append(Binding(lefts, rights, reads, by_user=True))

    def _bind_packs(self, matcher: Matcher, known_left: set[UnitId], known_right: set[UnitId]) -> None:
        """Packs of both directions, their units taken out of the search."""
        left, right = matcher.left, matcher.right
        taken = known_left | matcher.bound[0], known_right | matcher.bound[1]
        free_left = [k for k in range(len(left.units)) if k not in taken[0]]
        free_right = [k for k in range(len(right.units)) if k not in taken[1]]
        for pack in find_packs(left, right, free_left, free_right):
            lefts, rights = tuple(m.unit for m in pack.parts), (pack.whole.unit, *pack.pieces)
            reads = ((left.units[lefts[0]].args[0], right.units[rights[0]].args[0]),)
            self.bindings.append(Binding(lefts, rights, reads, pack.parts, (pack.whole,)))
            matcher.bind(lefts, rights, pack.split)
        for pack in find_packs(right, left, free_right, free_left):
            lefts, rights = (pack.whole.unit, *pack.pieces), tuple(m.unit for m in pack.parts)
            reads = ((left.units[lefts[0]].args[0], right.units[rights[0]].args[0]),)
            self.bindings.append(Binding(lefts, rights, reads, (pack.whole,), pack.parts))
            matcher.bind(lefts, rights, [(y, x) for x, y in pack.split])

    # -- second pass

    def _regions(self, coarse: Matcher) -> list[tuple[UnitId, UnitId, UnitId]]:
        """Confines the parts of composed units; gives (coarse unit, simple unit, simple unit) that are tied already.

        Parts of a composed unit only match parts of its partner. Where the partner is a single unit, all parts are
        its counterpart at once.
        """
        sure: list[tuple[UnitId, UnitId, UnitId]] = []
        for number, (a, b) in enumerate(sorted(coarse.ties.items())):
            some, others = coarse.left.units[a].parts, coarse.right.units[b].parts
            if len(some) == 1 and len(others) == 1:
                sure.append((a, some[0], others[0]))
                continue
            alone = len(some) == 1 or len(others) == 1
            for which, parts in ((0, some), (1, others)):
                self.regions[which].update((p, -2 - which if alone else number) for p in parts)
            self.more += coarse.argument_pairs(a, b)
            if alone:
                weights = weight_agreement(coarse.features[0][a], coarse.features[1][b])
                bounds = (max(coarse.inputs_agree(a, b), 0.0) + max(coarse.outputs_agree(a, b), 0.0)) / 2
                self._join(coarse.left.units[a].family, some, others, weights, bounds)
        for binding in self.bindings:
            self.more += binding.reads
            inner = [
                tuple(p for k in found for p in units.units[k].parts)
                for units, found in ((coarse.left, binding.lefts), (coarse.right, binding.rights))
            ]
            for which in (0, 1):
                self.regions[which].update((p, -2 - which) for p in inner[which])
            if binding.by_user or binding.floats:
                family = "" if binding.by_user else coarse.left.units[binding.lefts[0]].family
                self._join(family, inner[0], inner[1], None if binding.by_user else 1.0, 1.0, binding.by_user)
        return sure

    def _join(
        self,
        family: str,
        some: tuple[UnitId, ...],
        others: tuple[UnitId, ...],
        weights: float | None,
        bounds: float,
        by_user: bool = False,
    ) -> None:
        lefts = tuple(dict.fromkeys(self.simple[0].units[p].node for p in some))
        rights = tuple(dict.fromkeys(self.simple[1].units[p].node for p in others))
        keys = [(0, n) for n in lefts] + [(1, n) for n in rights]
        for key in keys[1:]:
            self.groups.join(keys[0], key)
        self.compositions.append(Composition(family, lefts, rights, weights, bounds, by_user))

    def _fine(self, coarse: Matcher, sure: list[tuple[UnitId, UnitId, UnitId]]) -> Matcher:
        fine = self._matcher(*self.simple, dict(coarse.values))
        fine.forced.update(p for a, p, _ in sure if a in coarse.forced)
        fine.adopt((p, r, coarse.score[a]) for a, p, r in sure)
        self._grow(fine, _unique(fine))
        return fine

    def _tie(self, fine: Matcher, a: UnitId, b: UnitId) -> Tie:
        return Tie(
            fine.left.units[a].node,
            fine.right.units[b].node,
            fine.inputs_agree(a, b),
            fine.outputs_agree(a, b),
            weight_agreement(fine.features[0][a], fine.features[1][b]),
            fine.named.get((a, b), 0.0),
            a in fine.forced,
        )


def _boundary(units: UnitGraph, inside: tuple[UnitId, ...]) -> tuple[list[ValueId], list[ValueId]]:
    """Values that a set of units reads from outside, and values that leave it."""
    made = {o for k in inside for o in units.units[k].outs if o is not None}
    reads = list(dict.fromkeys(a for k in inside for a in units.units[k].args if a not in made))
    leaves = [v for v in sorted(made) if v in units.ends or any(u not in inside for u, _ in units.users.get(v, []))]
    return reads, leaves


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


def _named_units(left: UnitGraph, right: UnitGraph, named: Named) -> dict[UnitPair, float]:
    """Names tie the unit that makes a node's first output (the last step of a fused node)."""
    last_left = {u.node: k for k, u in enumerate(left.units)}
    last_right = {u.node: k for k, u in enumerate(right.units)}
    out: dict[UnitPair, float] = {}
    for (a, b), weight in named.items():
        if a in last_left and b in last_right:
            out[last_left[a], last_right[b]] = weight
    return out
