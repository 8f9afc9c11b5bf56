"""Groups from ties: equal values cut both graphs, and what lies between two cuts belongs to the later one."""

from __future__ import annotations

from collections.abc import Iterable

from visualquant.align.families import ACTIVATIONS, COMMUTATIVE
from visualquant.align.matcher import Matcher
from visualquant.align.side import Side
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


def value_ties(matcher: Matcher) -> list[tuple[ValueId, ValueId]]:
    """Pairs of root values that hold the same value, as tied nodes say: their inputs first, then their outputs."""
    left, right = matcher.left, matcher.right
    found: dict[tuple[ValueId, ValueId], None] = {}
    for a in left.compute:
        b = matcher.ties.get(a)
        if b is None:
            continue
        for x, y in zip(left.outputs(a), right.outputs(b), strict=False):
            if x is not None and y is not None:
                found[x, y] = None
    for a in left.compute:
        b = matcher.ties.get(a)
        if b is not None:
            for x, y in argument_pairs(matcher, a, b):
                if _may_tie(matcher, x, y):
                    found[x, y] = None
    for x, y in zip(left.graph.outputs, right.graph.outputs, strict=False):
        rx, ry = left.root(x), right.root(y)
        if len(left.graph.outputs) == len(right.graph.outputs) and _may_tie(matcher, rx, ry):
            found[rx, ry] = None
    return list(found)


def argument_pairs(matcher: Matcher, a: NodeId, b: NodeId) -> list[tuple[ValueId, ValueId]]:
    """Roots of the data inputs of two tied nodes, paired."""
    xs = [arg.root for arg in matcher.left.args[a]]
    ys = [arg.root for arg in matcher.right.args[b]]
    if len(xs) != len(ys):
        return []
    if matcher.left.families[a] in COMMUTATIVE and len(xs) == 2:
        straight = _tied(matcher, xs[0], ys[0]) + _tied(matcher, xs[1], ys[1])
        crossed = _tied(matcher, xs[0], ys[1]) + _tied(matcher, xs[1], ys[0])
        if straight == crossed:
            return list(zip(xs, ys, strict=True)) if straight else []
        if crossed > straight:
            ys = ys[::-1]
    return list(zip(xs, ys, strict=True))


def _tied(matcher: Matcher, x: ValueId, y: ValueId) -> float:
    return matcher._value(x, y)


def _may_tie(matcher: Matcher, x: ValueId, y: ValueId) -> bool:
    """Whether two values may be one: their producers are not tied to others."""
    p, r = matcher.left.producer(x), matcher.right.producer(y)
    if p is None or r is None:
        return False
    to, of = matcher.ties.get(p), matcher.back.get(r)
    if to is not None and of is not None:
        return to == r
    if to is not None:  # the right side goes on behind the tied node, e.g. a bias added to integer sums
        return leads_to(matcher.right, to, r, matcher.back)
    if of is not None:
        return leads_to(matcher.left, of, p, matcher.ties)
    return True


def leads_to(side: Side, start: NodeId, end: NodeId, tied: dict[NodeId, NodeId], limit: int = 64) -> bool:
    """Whether `start` is an ancestor of `end` with untied nodes only on the way."""
    todo, seen = [end], {end}
    while todo and len(seen) < limit:
        node_id = todo.pop()
        for arg in side.args[node_id]:
            made = side.producer(arg.root)
            if made == start:
                return True
            if made is not None and made not in seen and made not in tied:
                seen.add(made)
                todo.append(made)
    return False


def compute_groups(matcher: Matcher) -> tuple[Groups, list[tuple[ValueId, ValueId]]]:
    """Groups of all compute nodes, and the value ties they come from."""
    groups = Groups()
    pairs = value_ties(matcher)
    owners: tuple[set[NodeId], set[NodeId]] = (set(), set())
    for x, y in pairs:
        p, r = matcher.left.producer(x), matcher.right.producer(y)
        if (
            p is not None
            and r is not None
            and matcher.left.kinds[p] == "compute"
            and matcher.right.kinds[r] == "compute"
        ):
            groups.join((0, p), (1, r))
            owners[0].add(p)
            owners[1].add(r)
    for which, side in ((0, matcher.left), (1, matcher.right)):
        _absorb(groups, which, side, owners[which])
    return groups, pairs


def _absorb(groups: Groups, which: int, side: Side, owners: set[NodeId]) -> None:
    """Give each node without a tied value to the group that it feeds, or that feeds it."""
    placed = set(owners)
    for node_id in reversed(side.compute):
        if node_id in placed:
            continue
        users = [u for out in side.outputs(node_id) if out is not None for u, _ in side.users.get(out, ())]
        host = min((u for u in users if u in placed), key=lambda u: side.rank[u], default=None)
        args = side.args[node_id]
        if side.graph.nodes[node_id].op_type in ACTIVATIONS and len(args) == 1:
            made = side.producer(args[0].root)
            if made is not None and side.kinds[made] == "compute":
                host = made
        if host is not None:
            groups.join((which, node_id), (which, host))
            placed.add(node_id)
    for node_id in side.compute:  # what feeds nothing goes with what feeds it
        if node_id not in placed:
            for arg in side.args[node_id]:
                made = side.producer(arg.root)
                if made is not None and made in placed:
                    groups.join((which, node_id), (which, made))
                    placed.add(node_id)
                    break
