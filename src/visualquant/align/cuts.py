"""Groups from ties: equal values cut both graphs, and what lies between two cuts belongs to the later one."""

from __future__ import annotations

from collections.abc import Iterable

from visualquant.align.matcher import Matcher
from visualquant.align.side import Side
from visualquant.align.units import UnitGraph, UnitId
from visualquant.core.graph import NodeId, ValueId

Key = tuple[int, NodeId]  # side (0 left, 1 right) and node


class Groups:
    """Disjoint sets of nodes of both sides."""

    def __init__(self) -> None:
        self._parent: dict[Key, Key] = {}

    def find(self, key: Key) -> Key:
        """The representative of a node's group."""
        parent = self._parent.setdefault(key, key)
        while parent != key:
            above = self._parent[parent]
            self._parent[key] = above
            key, parent = parent, above
        return key

    def join(self, a: Key, b: Key) -> None:
        """Put two groups into one; the smaller key stays representative."""
        a, b = self.find(a), self.find(b)
        if a != b:
            low, high = min(a, b), max(a, b)
            self._parent[high] = low

    def members(self, keys: Iterable[Key]) -> dict[Key, list[Key]]:
        """All groups of the given nodes, by representative."""
        found: dict[Key, list[Key]] = {}
        for key in keys:
            found.setdefault(self.find(key), []).append(key)
        return found


def value_ties(matcher: Matcher, ends: Iterable[tuple[ValueId, ValueId]]) -> list[tuple[ValueId, ValueId]]:
    """Pairs of values that are the same: known ones, arguments of tied units, and graph outputs (`ends`)."""
    found: dict[tuple[ValueId, ValueId], None] = dict.fromkeys(matcher.values.items())
    for a, b in sorted(matcher.ties.items()):
        for x, y in zip(matcher.left.units[a].outs, matcher.right.units[b].outs, strict=False):
            if x is not None and y is not None:
                found[x, y] = None
        for x, y in matcher.argument_pairs(a, b):
            if _may_tie(matcher, x, y):
                found[x, y] = None
    for x, y in ends:
        if _may_tie(matcher, x, y):
            found[x, y] = None
    return list(found)


def _may_tie(matcher: Matcher, x: ValueId, y: ValueId) -> bool:
    """Whether two values may be one: what makes them is not tied elsewhere, or lies straight behind what is."""
    p, r = matcher.left.producer.get(x), matcher.right.producer.get(y)
    if p is None or r is None:
        return False
    to, of = matcher.ties.get(p), matcher.back.get(r)
    if to is not None and of is not None:
        return to == r
    if to is not None:  # the right side goes on behind the tied unit, e.g. a bias added to integer sums
        return leads_to(matcher.right, to, r, matcher.back)
    if of is not None:
        return leads_to(matcher.left, of, p, matcher.ties)
    return True


def leads_to(units: UnitGraph, start: UnitId, end: UnitId, tied: dict[UnitId, UnitId], limit: int = 64) -> bool:
    """Whether `start` comes before `end` with untied units only on the way."""
    todo, seen = [end], {end}
    while todo and len(seen) < limit:
        for arg in units.units[todo.pop()].args:
            made = units.producer.get(arg)
            if made == start:
                return True
            if made is not None and made not in seen and made not in tied:
                seen.add(made)
                todo.append(made)
    return False


def join_units(groups: Groups, matcher: Matcher, pairs: Iterable[tuple[ValueId, ValueId]]) -> set[Key]:
    """Join what makes equal values, then give every other unit to the group that it feeds; which those were."""
    owners: tuple[set[UnitId], set[UnitId]] = (set(), set())
    for x, y in pairs:
        p, r = matcher.left.producer.get(x), matcher.right.producer.get(y)
        if p is not None and r is not None:
            groups.join((0, matcher.left.units[p].node), (1, matcher.right.units[r].node))
            owners[0].add(p)
            owners[1].add(r)
    absorbed: set[Key] = set()
    for which, units, regions in ((0, matcher.left, matcher.regions[0]), (1, matcher.right, matcher.regions[1])):
        confined = {k for k, region in regions.items() if region < 0}
        for alike in units.twins:
            hosts = [k for k in alike if k in owners[which]]
            for k in alike if hosts else ():
                if k not in owners[which] and k not in confined:
                    host = hosts[0] if len(hosts) == 1 else max(hosts, key=lambda h: _shared(matcher, which, k, h))
                    groups.join((which, units.units[k].node), (which, units.units[host].node))
                    owners[which].add(k)
        absorbed |= _absorb(groups, which, units, owners[which] | confined)
    return absorbed


def _shared(matcher: Matcher, which: int, copy: UnitId, host: UnitId) -> int:
    """How many readers of a copy have a counterpart that reads the counterpart of the host."""
    units, other = (matcher.left, matcher.right)[:: -1 if which else 1]
    ties = matcher.back if which else matcher.ties
    if host not in ties:
        return 0
    wanted = {out for out in other.units[ties[host]].outs if out is not None}
    found = (ties.get(user) for user, _ in units.users_of(copy))
    return sum(u is not None and not wanted.isdisjoint(other.units[u].args) for u in found)


def _absorb(groups: Groups, which: int, units: UnitGraph, owners: set[UnitId]) -> set[Key]:
    placed = set(owners)
    absorbed: set[Key] = set()

    def place(k: UnitId, host: UnitId) -> None:
        groups.join((which, units.units[k].node), (which, units.units[host].node))
        placed.add(k)
        absorbed.add((which, units.units[k].node))

    for k in range(len(units.units) - 1, -1, -1):
        if k not in placed:
            host = min((u for u, _ in units.users_of(k) if u in placed), default=None)
            if host is not None:
                place(k, host)
    leaving = _leaving(units, placed)
    for k, unit in enumerate(units.units):  # what feeds nothing goes with what feeds it
        if k not in placed and k not in leaving:
            host = next((p for arg in unit.args if (p := units.producer.get(arg)) in placed), None)
            if host is not None:
                place(k, host)
    for k in sorted(leaving):  # a part with a result of its own that the other model does not have stays together
        for user, _ in units.users_of(k):
            if user in leaving:
                groups.join((which, units.units[k].node), (which, units.units[user].node))
    return absorbed


def _leaving(units: UnitGraph, placed: set[UnitId]) -> set[UnitId]:
    """Units without a place that lead to a graph output."""
    todo = [p for v in units.ends if (p := units.producer.get(v)) is not None and p not in placed]
    found = set(todo)
    while todo:
        for arg in units.units[todo.pop()].args:
            made = units.producer.get(arg)
            if made is not None and made not in placed and made not in found:
                found.add(made)
                todo.append(made)
    return found


def all_keys(left: Side, right: Side) -> list[Key]:
    """Every node of both sides."""
    return [(0, n.id) for n in left.graph.nodes] + [(1, n.id) for n in right.graph.nodes]
