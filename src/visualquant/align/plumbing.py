"""Ties what is not arithmetic with its very counterpart: moves, casts, Q/DQ, and constant sub-graphs."""

from __future__ import annotations

from collections.abc import Iterable

from visualquant.align.families import MOVE
from visualquant.align.folding import small_ints
from visualquant.align.matched import Matched
from visualquant.align.side import Side
from visualquant.core.graph import Dim, NodeId, NodeView, ValueId
from visualquant.core.pins import Pins

_SAME_SPELLING = 3.0
_SAME_NAME = 3.0
_SAME_READER = 2.0
_SAME_OPERATOR = 1.0
_SAME_SHAPE = 0.5
_SAME_TARGET = 1.0
_RESHAPES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})

Spelling = tuple[object, ...]


class Plumbing:
    """One-to-one ties of plumbing and constant nodes.

    Attributes:
        ties, back: tied nodes, left to right and right to left.
        pinned: nodes of both sides that a user placed.
    """

    def __init__(
        self, left: Side, right: Side, matched: Matched, ends: Iterable[tuple[ValueId, ValueId]], pins: Pins
    ) -> None:
        self.left, self.right = left, right
        self.ties: dict[NodeId, NodeId] = {}
        self.back: dict[NodeId, NodeId] = {}
        self.pinned: tuple[set[NodeId], set[NodeId]] = (set(), set())
        self._apart = frozenset(pins.apart)
        for some, others in pins.together:
            keys = [(0, k) for k in some] + [(1, k) for k in others]
            for key in keys[1:]:
                matched.groups.join(keys[0], key)
            self.pinned[0].update(some)
            self.pinned[1].update(others)
        self._compute = matched.nodes
        self._same = set(matched.values)
        self._ends = list(ends)
        self._spelled: tuple[dict[NodeId, Spelling], dict[NodeId, Spelling]] = ({}, {})

    def tie_all(self) -> None:
        """Moves and quantizers between tied values first, then the constants that tied nodes read."""
        self._tie_chains()
        self._tie_constants()
        self._tie_readers()
        self._tie_constants()

    # -- between two values

    def _tie_chains(self) -> None:
        """Best first among all plumbing that stands between the same values."""
        scores: dict[tuple[NodeId, NodeId], float] = {}
        order: dict[tuple[NodeId, NodeId], int] = {}
        for x, y in self._edges():
            some, others = self._chain(self.left, x), self._chain(self.right, y)
            for i, a in enumerate(some):
                for j, b in enumerate(others):
                    score = self._score(a, b, last=i == j == 0)
                    if score is None:
                        continue
                    scores[a, b] = max(scores.get((a, b), 0.0), score)
                    order.setdefault((a, b), len(order))
        for a, b in sorted(scores, key=lambda pair: (-scores[pair], order[pair])):
            if a not in self.ties and b not in self.back and self._in_order(a, b):
                self.ties[a], self.back[b] = b, a

    def _edges(self) -> Iterable[tuple[ValueId, ValueId]]:
        """Pairs of values that tied nodes read, or that leave the graph."""
        for a in self.left.compute:
            b = self._compute.get(a)
            if b is None:
                continue
            xs, ys = self.left.args[a], self.right.args[b]
            if (
                len(xs) == len(ys) == 2
                and (xs[0].root, ys[1].root) in self._same
                and (xs[0].root, ys[0].root) not in self._same
            ):
                ys = ys[::-1]
            for x, y in zip(xs, ys, strict=False):
                if len(xs) == len(ys) or (x.root, y.root) in self._same:
                    yield x.value, y.value
        yield from self._ends

    def _chain(self, side: Side, value: ValueId) -> list[NodeId]:
        """Plumbing behind a value, the nearest first, up to what is computed."""
        out: list[NodeId] = []
        while True:
            made = side.producer(value)
            if made is None or side.kinds[made] not in ("move", "quiet") or made in out:
                return out
            out.append(made)
            behind = side.carried(side.graph.nodes[made])
            if behind is None:
                return out
            value = behind

    def _score(self, a: NodeId, b: NodeId, last: bool) -> float | None:
        some, other = self.left.graph.nodes[a], self.right.graph.nodes[b]
        if a in self.pinned[0] or b in self.pinned[1] or (a, b) in self._apart:
            return None
        same_operator = some.op_type == other.op_type
        moves = some.op_type in MOVE and other.op_type in MOVE
        if not same_operator and not (moves and last):
            return None
        x, y = _result(some), _result(other)
        score = _SAME_OPERATOR * same_operator + _SAME_READER * last
        shapes = self._shape(self.left, a), self._shape(self.right, b)
        if shapes[0] is not None and shapes[1] is not None:
            known = [
                m == n for m, n in zip(shapes[0], shapes[1], strict=False) if isinstance(m, int) and isinstance(n, int)
            ]
            if len(shapes[0]) != len(shapes[1]) or not all(known):
                return None
            score += _SAME_SHAPE * (len(known) == len(shapes[0]))
        targets = self._target(self.left, a), self._target(self.right, b)
        if targets[0] is not None and targets[0] == targets[1]:
            score += _SAME_TARGET
        if x is not None and y is not None and self.left.graph.values[x].name == self.right.graph.values[y].name:
            score += _SAME_NAME
        if self._spelling(0, self.left, a) == self._spelling(1, self.right, b):
            score += _SAME_SPELLING
        return score if score > _SAME_OPERATOR or same_operator else None

    def _shape(self, side: Side, node_id: NodeId) -> tuple[Dim, ...] | None:
        """The shape that a node makes: as inferred, or as a Reshape says it."""
        node = side.graph.nodes[node_id]
        out = _result(node)
        stated = None if out is None else side.graph.values[out].shape
        if stated is None and node.op_type == "Reshape":
            target = self._target(side, node_id)
            return tuple(n if n > 0 else None for n in target) if target is not None else None
        return stated

    def _target(self, side: Side, node_id: NodeId) -> tuple[int, ...] | None:
        """The constant shape, axes or permutation that a move is given."""
        node = side.graph.nodes[node_id]
        if node.op_type == "Transpose":
            return node.ints_attribute("perm")
        return small_ints(side.folder, node.input(1)) if len(node.inputs) > 1 else node.ints_attribute("axes")

    def _same_target(self, a: NodeId, b: NodeId) -> bool:
        some, other = self._target(self.left, a), self._target(self.right, b)
        return some is None or other is None or some == other

    def _spelling(self, which: int, side: Side, node_id: NodeId) -> Spelling:
        """Operators and permutations on the way from the computed value to this node."""
        memo = self._spelled[which]
        if node_id not in memo:
            node = side.graph.nodes[node_id]
            behind = side.carried(node)
            made = None if behind is None else side.producer(behind)
            before: Spelling = ()
            if made is not None and side.kinds[made] in ("move", "quiet"):
                before = self._spelling(which, side, made)
            if node.op_type in _RESHAPES and before and before[-1] == "reshape":
                memo[node_id] = before  # two in a row are one
            else:
                step = "reshape" if node.op_type in _RESHAPES else (node.op_type, node.ints_attribute("perm"))
                memo[node_id] = (*before, step)
        return memo[node_id]

    def _in_order(self, a: NodeId, b: NodeId) -> bool:
        """Whether no tie of the same chain would be crossed."""
        before = self._nearest(self.left, a, self.ties)
        after = self._nearest(self.right, b, self.back)
        if before is not None and after is not None:
            return self.ties[before] == after or self._stands_behind(self.right, self.ties[before], b)
        if before is not None:
            return self._stands_behind(self.right, self.ties[before], b)
        if after is not None:
            return self._stands_behind(self.left, self.back[after], a)
        return True

    def _nearest(self, side: Side, node_id: NodeId, tied: dict[NodeId, NodeId]) -> NodeId | None:
        for current in self._before(side, node_id):
            if current in tied:
                return current
        return None

    def _before(self, side: Side, node_id: NodeId) -> list[NodeId]:
        behind = side.carried(side.graph.nodes[node_id])
        return [] if behind is None else self._chain(side, behind)

    def _stands_behind(self, side: Side, first: NodeId, second: NodeId) -> bool:
        return first in self._before(side, second)

    # -- constants

    def _tie_constants(self) -> None:
        """Constant nodes that tied nodes read at the same slot, and so on backwards."""
        todo = [*self._compute.items(), *self.ties.items()]
        while todo:
            a, b = todo.pop()
            for x, y in self._constant_inputs(a, b):
                p, r = self.left.producer(x), self.right.producer(y)
                if p is None or r is None or p in self.ties or r in self.back:
                    continue
                if p in self.pinned[0] or r in self.pinned[1] or (p, r) in self._apart:
                    continue
                if self.left.kinds[p] != "static" or self.right.kinds[r] != "static":
                    continue
                if self.left.graph.nodes[p].op_type == self.right.graph.nodes[r].op_type:
                    self.ties[p], self.back[r] = r, p
                    todo.append((p, r))

    def _tie_readers(self) -> None:
        """What is left and reads the same value at the same slot, in dataflow order: dead ends, shapes."""
        todo = [*self._same]
        todo += [(x, y) for a, b in self.ties.items() for x, y in self._results(a, b)]
        while todo:
            x, y = todo.pop()
            some, others = self._free_readers(self.left, x, self.ties), self._free_readers(self.right, y, self.back)
            for key in sorted(some.keys() & others.keys()):
                for a, b in zip(some[key], others[key], strict=False):
                    taken = a in self.ties or b in self.back or a in self.pinned[0] or b in self.pinned[1]
                    if not taken and self._score(a, b, last=False) is not None and self._same_target(a, b):
                        self.ties[a], self.back[b] = b, a
                        todo += self._results(a, b)

    def _results(self, a: NodeId, b: NodeId) -> list[tuple[ValueId, ValueId]]:
        pairs = zip(self.left.outputs(a), self.right.outputs(b), strict=False)
        return [(x, y) for x, y in pairs if x is not None and y is not None]

    def _free_readers(
        self, side: Side, value: ValueId, tied: dict[NodeId, NodeId]
    ) -> dict[tuple[str, int], list[NodeId]]:
        """Untied plumbing and constant nodes that read a value, by operator and slot, in dataflow order."""
        found: dict[tuple[str, int], list[NodeId]] = {}
        if value < len(side.graph.values):
            for user, slot in side.readers[value]:
                if side.kinds[user] in ("move", "quiet", "static") and user not in tied:
                    found.setdefault((side.graph.nodes[user].op_type, slot), []).append(user)
        for users in found.values():
            users.sort(key=lambda k: side.rank[k])
        return found

    def _constant_inputs(self, a: NodeId, b: NodeId) -> list[tuple[ValueId, ValueId]]:
        found = []
        for side, node_id in ((self.left, a), (self.right, b)):
            data = {arg.slot for arg in side.args[node_id]}
            reads = side.reads[node_id]
            found.append(
                [v for k, v in enumerate(reads) if k not in data and v is not None and side.producer(v) is not None]
            )
        return list(zip(*found, strict=True)) if len(found[0]) == len(found[1]) else []


def _result(node: NodeView) -> ValueId | None:
    return node.outputs[0] if node.outputs else None
