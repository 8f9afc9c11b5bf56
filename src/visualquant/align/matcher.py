"""Ties nodes of two graphs, best first: from sure pairs to their neighbours, through what has no counterpart."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from visualquant.align.families import COMMUTATIVE
from visualquant.align.features import Features, parameters_agree, scalars_agree, side_features, weight_agreement
from visualquant.align.side import Side
from visualquant.core.graph import NodeId, ValueId

_REACH = 3
_FAN_OUT = 64
_ACCEPT = 1.25


class Matcher:
    """Grows one-to-one ties between compute nodes.

    Attributes:
        ties, back: the tied nodes, left to right and right to left.
        earned: evidence words of each tie, by left node.
        score: score of each tie when it was made, by left node.
    """

    def __init__(self, left: Side, right: Side, named: dict[tuple[NodeId, NodeId], float]) -> None:
        self.left, self.right = left, right
        self.named = named
        self.features: tuple[dict[NodeId, Features], dict[NodeId, Features]] = (
            side_features(left),
            side_features(right),
        )
        self.ties: dict[NodeId, NodeId] = {}
        self.back: dict[NodeId, NodeId] = {}
        self.earned: dict[NodeId, list[str]] = {}
        self.score: dict[NodeId, float] = {}
        self._heap: list[tuple[float, int, int, NodeId, NodeId]] = []
        self._queued: dict[tuple[NodeId, NodeId], float] = {}
        self._local: dict[tuple[NodeId, NodeId], float | None] = {}
        self._max_depth = (max(left.depth, default=1) or 1, max(right.depth, default=1) or 1)
        self._input_pairs = _input_pairs(left, right)

    def seed(self, pairs: Iterable[tuple[float, NodeId, NodeId]]) -> None:
        """Pairs to try with a bonus each."""
        for bonus, a, b in pairs:
            self._push(a, b, bonus)

    def grow(self) -> None:
        """Ties until no candidate is good enough."""
        while self._heap:
            negative, _, _, a, b = heapq.heappop(self._heap)
            if a in self.ties or b in self.back:
                continue
            if self._queued.get((a, b)) != -negative:
                continue
            now = self.rate(a, b)
            if now is None or now < _ACCEPT:
                self._queued.pop((a, b), None)
                continue
            if now < -negative - 1e-9:
                self._queued.pop((a, b), None)
                self._push(a, b, 0.0)
                continue
            self.tie(a, b, now)

    def tie(self, a: NodeId, b: NodeId, score: float) -> None:
        """Tie two nodes and try their neighbours."""
        self.ties[a], self.back[b] = b, a
        self.score[a] = score
        for x, y in self._neighbours(a, b):
            if x not in self.ties and y not in self.back:
                self._push(x, y, 0.0)

    def _push(self, a: NodeId, b: NodeId, bonus: float) -> None:
        score = self.rate(a, b)
        if score is None:
            return
        score += bonus
        if score < _ACCEPT - 0.3 or self._queued.get((a, b), -9.0) >= score:
            return
        self._queued[a, b] = score
        heapq.heappush(self._heap, (-score, self.left.depth[a], self.left.rank[a] + self.right.rank[b], a, b))

    # -- evidence

    def local(self, a: NodeId, b: NodeId) -> float | None:
        """What two nodes say without their neighbours; None where they can't be the same."""
        key = (a, b)
        if key not in self._local:
            self._local[key] = self._rate_local(a, b)
        return self._local[key]

    def _rate_local(self, a: NodeId, b: NodeId) -> float | None:
        fa, fb = self.features[0][a], self.features[1][b]
        agreement = weight_agreement(fa, fb)
        score = 0.8
        if fa.family != fb.family:
            if not ({fa.family, fb.family} == {"Conv", "MatMul"} and agreement is not None and agreement > 0.8):
                return None
        if not _same_place(self.left, a, self.right, b):
            return None
        if agreement is not None:
            score += 1.5 * agreement if agreement > 0.5 else -0.8 * (0.5 - agreement) * 2
        elif bool(fa.sketches) != bool(fb.sketches):
            score -= 0.3
        score += 0.3 * parameters_agree(fa, fb) + 0.3 * scalars_agree(fa, fb)
        if fa.arity != fb.arity:
            score -= 0.3
        da, db = self.left.depth[a] / self._max_depth[0], self.right.depth[b] / self._max_depth[1]
        return score - 0.5 * abs(da - db)

    def rate(self, a: NodeId, b: NodeId) -> float | None:
        """Local evidence plus what tied neighbours and names say."""
        local = self.local(a, b)
        if local is None:
            return None
        return local + self._inputs(a, b) + self._outputs(a, b) + self.named.get((a, b), 0.0)

    def _inputs(self, a: NodeId, b: NodeId) -> float:
        xs, ys = self.left.args[a], self.right.args[b]
        if not xs or not ys:
            return 0.0
        if len(xs) == len(ys) and self.left.families[a] in COMMUTATIVE and len(xs) == 2:
            straight = self._value(xs[0].root, ys[0].root) + self._value(xs[1].root, ys[1].root)
            crossed = self._value(xs[0].root, ys[1].root) + self._value(xs[1].root, ys[0].root)
            return max(straight, crossed) / 2
        return sum(self._value(x.root, y.root) for x, y in zip(xs, ys, strict=False)) / max(len(xs), len(ys))

    def _value(self, x: ValueId, y: ValueId) -> float:
        """1 where two values come from tied nodes, −0.8 where one of them comes from a node tied elsewhere."""
        p, r = self.left.producer(x), self.right.producer(y)
        if p is None or r is None:
            if p is None and r is None:
                return 1.0 if self._input_pairs.get(x) == y else -0.8
            return -0.3
        tied = self.ties.get(p)
        if tied == r:
            same = self.left.graph.nodes[p].outputs.index(x) == self.right.graph.nodes[r].outputs.index(y)
            return (
                1.0 if same or len(self.left.graph.nodes[p].outputs) != len(self.right.graph.nodes[r].outputs) else -0.5
            )
        return -0.8 if tied is not None and r in self.back else (-0.3 if tied is not None or r in self.back else 0.0)

    def _outputs(self, a: NodeId, b: NodeId) -> float:
        users_a, users_b = self._users(self.left, a), self._users(self.right, b)
        if not users_a or not users_b:
            return 0.3 if not users_a and not users_b else 0.0
        if len(users_a) > _FAN_OUT or len(users_b) > _FAN_OUT:
            return 0.0
        wanted = {u for u, _ in users_b}
        good = bad = 0
        for user, _ in users_a:
            tied = self.ties.get(user)
            if tied is not None:
                if tied in wanted:
                    good += 1
                else:
                    bad += 1
        if not good and not bad:
            return 0.0
        return (good - 0.5 * bad) / (good + bad)

    # -- neighbours

    def _users(self, side: Side, node_id: NodeId) -> list[tuple[NodeId, int]]:
        out: list[tuple[NodeId, int]] = []
        for value in side.graph.nodes[node_id].outputs:
            if value is not None:
                out += side.users.get(value, ())
        return out

    def _neighbours(self, a: NodeId, b: NodeId) -> Iterable[tuple[NodeId, NodeId]]:
        xs, ys = self.left.args[a], self.right.args[b]
        commutes = self.left.families[a] in COMMUTATIVE
        for i, x in enumerate(xs):
            for j, y in enumerate(ys):
                if i == j or commutes or len(xs) != len(ys):
                    yield from self._sources(x.root, y.root)
        users_a, users_b = self._users(self.left, a), self._users(self.right, b)
        if len(users_a) * len(users_b) <= _FAN_OUT * _FAN_OUT:
            near_a = [(u, 0) for u, _ in users_a] + self._beyond(self.left, users_a, self.ties)
            near_b = [(u, 0) for u, _ in users_b] + self._beyond(self.right, users_b, self.back)
            for u, _ in near_a:
                for v, _ in near_b:
                    yield u, v

    def _beyond(
        self, side: Side, users: list[tuple[NodeId, int]], tied: dict[NodeId, NodeId]
    ) -> list[tuple[NodeId, int]]:
        """Users of untied users, up to `_REACH` steps away."""
        out: list[tuple[NodeId, int]] = []
        seen = {u for u, _ in users}
        front = [u for u, _ in users if u not in tied]
        for step in range(1, _REACH):
            following = []
            for node_id in front:
                for user, _ in self._users(side, node_id):
                    if user not in seen:
                        seen.add(user)
                        out.append((user, step))
                        if user not in tied:
                            following.append(user)
            front = following[:8]
            if len(out) > 16:
                break
        return out

    def _sources(self, x: ValueId, y: ValueId) -> Iterable[tuple[NodeId, NodeId]]:
        for p in self._behind(self.left, x, self.ties):
            for r in self._behind(self.right, y, self.back):
                yield p, r

    def _behind(self, side: Side, value: ValueId, tied: dict[NodeId, NodeId]) -> list[NodeId]:
        first = side.producer(value)
        if first is None:
            return []
        out, front = [first], [first]
        for _ in range(1, _REACH):
            following = []
            for node_id in front:
                if node_id in tied:
                    continue
                for arg in side.args[node_id]:
                    made = side.producer(arg.root)
                    if made is not None and made not in out:
                        out.append(made)
                        following.append(made)
            front = following
            if len(out) > 8:
                break
        return out


def _same_place(left: Side, a: NodeId, right: Side, b: NodeId) -> bool:
    """Whether both nodes are in the main graph (or a function), or both in bodies of the same name."""
    return _body_path(left, a) == _body_path(right, b)


def _body_path(side: Side, node_id: NodeId) -> tuple[str, ...]:
    path = []
    node = side.graph.nodes[node_id]
    while node.parent is not None:
        parent = side.graph.nodes[node.parent]
        if not parent.is_call:
            path.append(next(b.name for b in parent.bodies if node.id in b.nodes))
        node = parent
    return tuple(path)


def _input_pairs(left: Side, right: Side) -> dict[ValueId, ValueId]:
    """Graph inputs that stand for each other: by name, else by order among those left over."""
    by_name = {right.graph.values[v].name: v for v in right.graph.inputs}
    found: dict[ValueId, ValueId] = {}
    for v in left.graph.inputs:
        name = left.graph.values[v].name
        if name in by_name:
            found[v] = by_name.pop(name)
    rest_left = [v for v in left.graph.inputs if v not in found]
    rest_right = [v for v in right.graph.inputs if v in by_name.values()]
    if len(rest_left) == len(rest_right):
        found.update(zip(rest_left, rest_right, strict=True))
    return found
