"""Ties units of two graphs, best first: from sure pairs to their neighbours, through what has no counterpart."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from visualquant.align.context import surroundings
from visualquant.align.families import COMMUTATIVE
from visualquant.align.features import Features, parameters_agree, scalars_agree, unit_features, weight_agreement
from visualquant.align.units import UnitGraph, UnitId
from visualquant.core.graph import NodeId, ValueId

_REACH = 3
_FAN_OUT = 64
_WINDOW = 32
_FEW = 6
_ACCEPT = 1.25
_MARGIN = 0.12
_SAME_WEIGHT = 0.8
_SURROUNDINGS = 0.06
_COPY = 0.9

UnitPair = tuple[UnitId, UnitId]
Copies = Mapping[ValueId, tuple[ValueId, ...]]


class Matcher:
    """Grows one-to-one ties between units.

    Attributes:
        left, right: the two unit graphs.
        ties, back: tied units, left to right and right to left.
        score: score of each tie when it was made, by left unit.
        forced: left units whose tie was one of several equally good ones.
        bound: units of both sides that are spoken for by something else than a tie.
        values, values_back: values known to be the same, left to right and right to left.
    """

    def __init__(
        self,
        left: UnitGraph,
        right: UnitGraph,
        *,
        named: Mapping[UnitPair, float],
        values: Mapping[ValueId, ValueId],
        ends: Iterable[tuple[ValueId, ValueId]] = (),
        regions: tuple[Mapping[UnitId, int], Mapping[UnitId, int]] = ({}, {}),
        copies: tuple[Copies, Copies] = ({}, {}),
        different: frozenset[tuple[ValueId, ValueId]] = frozenset(),
        apart: frozenset[tuple[NodeId, NodeId]] = frozenset(),
    ) -> None:
        self.left, self.right = left, right
        self.named = named
        self.regions = regions
        self.ends = dict(ends)
        self.copies = copies
        self.different = different
        self.apart = apart
        self.features: tuple[list[Features], list[Features]] = (unit_features(left), unit_features(right))
        self.ties: dict[UnitId, UnitId] = {}
        self.back: dict[UnitId, UnitId] = {}
        self.score: dict[UnitId, float] = {}
        self.forced: set[UnitId] = set()
        self.bound: tuple[set[UnitId], set[UnitId]] = (set(), set())
        self.values: dict[ValueId, ValueId] = {}
        self.values_back: dict[ValueId, ValueId] = {}
        for x, y in values.items():
            self._know(x, y)
        self._surroundings = (surroundings(left), surroundings(right))
        self._heap: list[tuple[float, int, int, UnitId, UnitId]] = []
        self._deferred: list[tuple[float, int, int, UnitId, UnitId]] = []
        self._queued: tuple[dict[UnitId, dict[UnitId, float]], dict[UnitId, dict[UnitId, float]]] = ({}, {})
        self._local: dict[UnitPair, float | None] = {}
        self._deepest = (max(left.depth, default=1), max(right.depth, default=1))

    # -- growing

    def seed(self, pairs: Iterable[tuple[float, UnitId, UnitId]]) -> None:
        """Pairs to try, with a bonus each."""
        for bonus, a, b in pairs:
            self._push(a, b, bonus)

    def seed_values(self) -> None:
        """Pairs of units that read, or make, values known to be the same."""
        for x, y in list(self.values.items()):
            self._around(x, y)

    def grow(self) -> None:
        """Ties until no candidate is good enough; equally good ones wait until nothing else is left."""
        while self._heap or self._deferred:
            forced = not self._heap
            negative, _, _, a, b = heapq.heappop(self._deferred if forced else self._heap)
            if a in self.ties or b in self.back or self._queued[0].get(a, {}).get(b) != -negative:
                continue
            now = self.rate(a, b)
            if now is None or now < _ACCEPT:
                self._unqueue(a, b)
                continue
            if now < -negative - 1e-9:
                self._unqueue(a, b)
                self._push(a, b, 0.0)
                continue
            rival = self._rival(a, b)
            if rival > now - _MARGIN and not forced:
                heapq.heappush(self._deferred, (negative, *self._place(a, b), a, b))
                continue
            if rival > now - _MARGIN:
                self.forced.add(a)
            self.tie(a, b, now)

    def tie(self, a: UnitId, b: UnitId, score: float) -> None:
        """Tie two units, learn which values are the same, and try the neighbours."""
        self.ties[a], self.back[b] = b, a
        self.score[a] = score
        freed = [(p, q) for q in self._queued[0].get(a, {}) for p in self._queued[1].get(q, {}) if q != b and p != a]
        freed += [(p, q) for p in self._queued[1].get(b, {}) for q in self._queued[0].get(p, {}) if p != a and q != b]
        for x, y in zip(self.left.units[a].outs, self.right.units[b].outs, strict=False):
            if x is not None and y is not None:
                self._know(x, y)
                self._around(x, y)
        xs, ys = self.left.units[a].args, self.right.units[b].args
        pairs = self.argument_pairs(a, b)
        for x, y in pairs or [(x, y) for x in xs for y in ys if len(xs) * len(ys) <= _FEW]:
            self._around(x, y)
        for p, q in freed:
            if p not in self.ties and q not in self.back:
                heapq.heappush(self._heap, (-self._queued[0][p][q], *self._place(p, q), p, q))

    def adopt(self, ties: Iterable[tuple[UnitId, UnitId, float]]) -> None:
        """Ties that are known from elsewhere, all at once; then their neighbours."""
        known = list(ties)
        for a, b, score in known:
            self.ties[a], self.back[b] = b, a
            self.score[a] = score
            for x, y in zip(self.left.units[a].outs, self.right.units[b].outs, strict=False):
                if x is not None and y is not None:
                    self._know(x, y)
        for a, b, _ in known:
            for x, y in zip(self.left.units[a].outs, self.right.units[b].outs, strict=False):
                if x is not None and y is not None:
                    self._around(x, y)
            for x, y in self.argument_pairs(a, b):
                self._around(x, y)

    def bind(self, lefts: Iterable[UnitId], rights: Iterable[UnitId], same: Iterable[tuple[ValueId, ValueId]]) -> None:
        """Take units out of the search, and try the neighbours of values that they make the same."""
        self.bound[0].update(lefts)
        self.bound[1].update(rights)
        for x, y in same:
            self._know(x, y)
            self._around(x, y)

    def _know(self, x: ValueId, y: ValueId) -> None:
        self.values.setdefault(x, y)
        self.values_back.setdefault(y, x)

    def _place(self, a: UnitId, b: UnitId) -> tuple[int, int]:
        """Order among equal scores: dataflow order, the same whichever side is called left."""
        return self.left.depth[a] + self.right.depth[b], a + b

    def _push(self, a: UnitId, b: UnitId, bonus: float) -> None:
        if a in self.ties or b in self.back or a in self.bound[0] or b in self.bound[1]:
            return
        score = self.rate(a, b)
        if score is None or (score := score + bonus) < _ACCEPT - 0.3:
            return
        mine = self._queued[0].setdefault(a, {})
        if mine.get(b, -9.0) >= score:
            return
        mine[b] = score
        self._queued[1].setdefault(b, {})[a] = score
        heapq.heappush(self._heap, (-score, *self._place(a, b), a, b))

    def _unqueue(self, a: UnitId, b: UnitId) -> None:
        self._queued[0].get(a, {}).pop(b, None)
        self._queued[1].get(b, {}).pop(a, None)

    def _rival(self, a: UnitId, b: UnitId) -> float:
        """The best score that either unit has with another partner that is still free."""
        best = -9.0
        for other, score in self._queued[0].get(a, {}).items():
            if other != b and score > best and other not in self.back:
                best = score
        for other, score in self._queued[1].get(b, {}).items():
            if other != a and score > best and other not in self.ties:
                best = score
        return best

    # -- evidence

    def local(self, a: UnitId, b: UnitId) -> float | None:
        """What two units say without their neighbours; None where they can't be the same."""
        key = (a, b)
        if key not in self._local:
            self._local[key] = self._rate_local(a, b)
        return self._local[key]

    def _rate_local(self, a: UnitId, b: UnitId) -> float | None:
        fa, fb = self.features[0][a], self.features[1][b]
        if fa.place != fb.place or self.regions[0].get(a) != self.regions[1].get(b):
            return None
        if self.apart and self._is_apart(a, b):
            return None
        agreement = weight_agreement(fa, fb)
        if fa.family != fb.family and not (
            {fa.family, fb.family} == {"Conv", "MatMul"} and agreement is not None and agreement > _SAME_WEIGHT
        ):
            return None
        score = 0.8
        if agreement is not None:
            score += 1.5 * agreement if agreement > 0.5 else -1.6 * (0.5 - agreement)
        elif bool(fa.sketches) != bool(fb.sketches):
            score -= 0.3
        elif fa.sketches and fa.sketches[0].size != fb.sketches[0].size:
            score -= 0.6
        score += 0.3 * parameters_agree(fa, fb) + 0.3 * scalars_agree(fa, fb)
        if fa.arity != fb.arity:
            score -= 0.3
        around = zip(self._surroundings[0][a], self._surroundings[1][b], strict=True)
        score += _SURROUNDINGS * sum(x == y for x, y in around)
        return score - 0.5 * abs(self.left.depth[a] / self._deepest[0] - self.right.depth[b] / self._deepest[1])

    def _is_apart(self, a: UnitId, b: UnitId) -> bool:
        """Whether a user forbids the tie."""
        return (self.left.units[a].node, self.right.units[b].node) in self.apart

    def rate(self, a: UnitId, b: UnitId) -> float | None:
        """Local evidence plus what tied neighbours and names say."""
        local = self.local(a, b)
        if local is None:
            return None
        inputs, outputs, name = self.inputs_agree(a, b), self.outputs_agree(a, b), self.named.get((a, b), 0.0)
        if inputs <= 0 and outputs <= 0 and not name and not self._own_evidence(a, b):
            return None
        return local + inputs + outputs + name

    def _own_evidence(self, a: UnitId, b: UnitId) -> bool:
        """Whether the weights alone speak for two units."""
        agreement = weight_agreement(self.features[0][a], self.features[1][b])
        return agreement is not None and agreement > _SAME_WEIGHT

    def inputs_agree(self, a: UnitId, b: UnitId) -> float:
        """How far the arguments of two units are known to be the same: 1 all, negative where they differ."""
        xs, ys = self.left.units[a].args, self.right.units[b].args
        if not xs or not ys:
            return 0.0
        if self.left.units[a].family in COMMUTATIVE and len(xs) == len(ys) == 2:
            straight = self.same_value(xs[0], ys[0]) + self.same_value(xs[1], ys[1])
            crossed = self.same_value(xs[0], ys[1]) + self.same_value(xs[1], ys[0])
            return max(straight, crossed) / 2
        return sum(self.same_value(x, y) for x, y in zip(xs, ys, strict=False)) / max(len(xs), len(ys))

    def same_value(self, x: ValueId, y: ValueId) -> float:
        """1 where two values are known to be the same, less for a copy, negative for another value, 0 where unknown."""
        to, of = self.values.get(x), self.values_back.get(y)
        if to == y or of == x:
            return 1.0
        if (x, y) in self.different:
            return -1.5
        if to is not None and of is not None:
            return -0.8
        if to is not None:
            return _COPY if y in self.copies[1].get(to, ()) else -0.3
        if of is not None:
            return _COPY if x in self.copies[0].get(of, ()) else -0.3
        return 0.0

    def kin(self, x: ValueId, y: ValueId) -> float:
        """How alike the known values are from which two values come, 0..1: what lies between is not tied yet."""
        some = {self.values[v] for v in self._sources(self.left, x, self.values)}
        others = self._sources(self.right, y, self.values_back)
        both = len(some | others)
        return len(some & others) / both if both else 0.0

    def _sources(self, units: UnitGraph, value: ValueId, known: Mapping[ValueId, ValueId]) -> set[ValueId]:
        """The nearest known values at or behind a value."""
        found: set[ValueId] = set()
        todo, seen = [value], {value}
        while todo and len(seen) < _WINDOW:
            current = todo.pop()
            if current in known:
                found.add(current)
                continue
            made = units.producer.get(current)
            for arg in units.units[made].args if made is not None else ():
                if arg not in seen:
                    seen.add(arg)
                    todo.append(arg)
        return found

    def outputs_agree(self, a: UnitId, b: UnitId) -> float:
        """How far the tied readers of two units agree: 1 all, −0.5 none, 0 where none is tied."""
        good = bad = 0
        for x, y in zip(self.left.units[a].outs, self.right.units[b].outs, strict=False):
            if x is None or y is None:
                continue
            known = self.same_value(x, y)
            good += known > 0
            bad += known < -0.5
            if x in self.ends:
                good += self.ends[x] == y
                bad += self.ends[x] != y
            users_a, users_b = self.left.users.get(x, []), self.right.users.get(y, [])
            if not users_a or not users_b or len(users_a) > _FAN_OUT or len(users_b) > _FAN_OUT:
                continue
            positions = set(users_b)
            for user, position in users_a:
                tied = self.ties.get(user)
                if tied is None:
                    continue
                commutes = self.left.units[user].family in COMMUTATIVE
                if (tied, position) in positions or (commutes and (tied, 1 - position) in positions):
                    good += 1
                else:
                    bad += 1
        return (good - 0.5 * bad) / (good + bad) if good or bad else 0.0

    # -- neighbours

    def argument_pairs(self, a: UnitId, b: UnitId) -> list[tuple[ValueId, ValueId]]:
        """Arguments of two tied units that stand for each other; empty where that can't be said."""
        xs, ys = self.left.units[a].args, self.right.units[b].args
        if len(xs) != len(ys):
            return []
        if self.left.units[a].family in COMMUTATIVE and len(xs) == 2:
            straight = self.same_value(xs[0], ys[0]) + self.same_value(xs[1], ys[1])
            crossed = self.same_value(xs[0], ys[1]) + self.same_value(xs[1], ys[0])
            if straight == crossed:
                straight = self.kin(xs[0], ys[0]) + self.kin(xs[1], ys[1])
                crossed = self.kin(xs[0], ys[1]) + self.kin(xs[1], ys[0])
                if straight == crossed:
                    return []
            if crossed > straight:
                ys = ys[::-1]
        return list(zip(xs, ys, strict=True))

    def _around(self, x: ValueId, y: ValueId) -> None:
        """Try the makers and the readers of two values that are (probably) the same.

        What stands further off is tried only where the nearest ones are no match.
        """
        p, r = self.left.producer.get(x), self.right.producer.get(y)
        if p is not None and r is not None:
            done = p in self.ties or r in self.back
            if not done and self.local(p, r) is not None:
                self._push(p, r, 0.0)
            elif self.ties.get(p) != r:
                self._push_all(self._behind(self.left, p, self.ties), self._behind(self.right, r, self.back))
        users_a = [u for v in self.copies[0].get(x, (x,)) for u, _ in self.left.users.get(v, ()) if u not in self.ties]
        users_b = [u for v in self.copies[1].get(y, (y,)) for u, _ in self.right.users.get(v, ()) if u not in self.back]
        if (users_a or users_b) and len(users_a) * len(users_b) <= _FAN_OUT * _FAN_OUT:
            families_a = {self._family_key(0, u) for u in users_a}
            families_b = {self._family_key(1, u) for u in users_b}
            if families_a != families_b:
                users_a = self._ahead(self.left, x, users_a, self.ties)
                users_b = self._ahead(self.right, y, users_b, self.back)
            self._push_all(users_a, users_b)

    def _family_key(self, which: int, unit: UnitId) -> str:
        """Families that may be tied have equal keys: a Conv of 1×1 may be a MatMul."""
        family = self.features[which][unit].family
        return "MatMul" if family == "Conv" else family

    def _push_all(self, some: Iterable[UnitId], others: Iterable[UnitId]) -> None:
        by_family: dict[str, list[UnitId]] = {}
        for b in others:
            if b not in self.back:
                by_family.setdefault(self._family_key(1, b), []).append(b)
        for a in some:
            if a not in self.ties:
                for b in by_family.get(self._family_key(0, a), ()):
                    self._push(a, b, 0.0)

    def _ahead(
        self, units: UnitGraph, value: ValueId, users: list[UnitId], tied: Mapping[UnitId, UnitId]
    ) -> list[UnitId]:
        """Readers, and readers of untied readers, up to `_REACH` steps away."""
        out = list(dict.fromkeys([*users, *(u for u, _ in units.users.get(value, ()))]))
        front = [u for u in out if u not in tied]
        for _ in range(1, _REACH):
            following = []
            for unit in front:
                for user, _ in units.users_of(unit):
                    if user not in out:
                        out.append(user)
                        if user not in tied:
                            following.append(user)
            front = following[:8]
            if len(out) > 24:
                break
        return out

    def _behind(self, units: UnitGraph, first: UnitId, tied: Mapping[UnitId, UnitId]) -> list[UnitId]:
        """A unit, and makers behind untied makers."""
        out, front = [first], [first]
        for _ in range(1, _REACH):
            following = []
            for unit in front:
                if unit in tied:
                    continue
                for arg in units.units[unit].args:
                    made = units.producer.get(arg)
                    if made is not None and made not in out:
                        out.append(made)
                        following.append(made)
            front = following
            if len(out) > 8:
                break
        return out
