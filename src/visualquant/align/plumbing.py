"""Places what is not arithmetic: casts, Q/DQ, moves, constant sub-graphs, calls."""

from __future__ import annotations

from visualquant.align.cuts import Key
from visualquant.align.ends import output_pairs
from visualquant.align.levels import Matched
from visualquant.align.side import Side
from visualquant.core.graph import NodeId, ValueId


class Plumbing:
    """Ties plumbing with its very counterpart, and gives the rest to the node whose value it carries."""

    def __init__(self, left: Side, right: Side, matched: Matched) -> None:
        self.left, self.right = left, right
        self.matched = matched
        self.groups = matched.groups
        self._same = set(matched.values)
        self.ties: dict[NodeId, NodeId] = {}
        self.back: dict[NodeId, NodeId] = {}

    def place(self) -> None:
        """Tie what has a counterpart, then place what has none."""
        for a in self.left.order:
            b = self.matched.nodes.get(a)
            if b is not None:
                self._walk(a, b)
        for x, y in output_pairs(self.left, self.right):
            self._chain(x, y)
        for which, side, tied in ((0, self.left, self.ties), (1, self.right, self.back)):
            self._host(which, side, tied)
        for a, b in self.ties.items():
            self.groups.join((0, a), (1, b))

    def _walk(self, a: NodeId, b: NodeId) -> None:
        """Chains in front of the inputs of two tied nodes."""
        todo = [(a, b)]
        while todo:
            a, b = todo.pop()
            for x, y in self._inputs(a, b):
                todo += self._chain(x, y)

    def _inputs(self, a: NodeId, b: NodeId) -> list[tuple[ValueId, ValueId]]:
        xs = [arg.value for arg in self.left.args[a]]
        ys = [arg.value for arg in self.right.args[b]]
        pairs: list[tuple[ValueId, ValueId]] = []
        if len(xs) == len(ys) == 2 and (self.left.root(xs[0]), self.right.root(ys[1])) in self._same:
            ys.reverse()
        if len(xs) == len(ys):
            pairs += zip(xs, ys, strict=True)
        static = []
        for side, node_id in ((self.left, a), (self.right, b)):
            data = {arg.slot for arg in side.args[node_id]}
            static.append(
                [
                    v
                    for k, v in enumerate(side.reads[node_id])
                    if k not in data and v is not None and side.producer(v) is not None
                ]
            )
        if len(static[0]) == len(static[1]):
            pairs += zip(*static, strict=True)
        return pairs

    def _chain(self, x: ValueId, y: ValueId) -> list[tuple[NodeId, NodeId]]:
        """Ties the plumbing behind two values in order; returns constant nodes tied, to go on from."""
        some, others = self._links(self.left, x), self._links(self.right, y)
        some = [k for k in some if k not in self.ties]
        others = [k for k in others if k not in self.back]
        found = []
        for a, b in _common(self.left, self.right, some, others):
            self.ties[a], self.back[b] = b, a
            found.append((a, b))
        return found

    def _links(self, side: Side, value: ValueId) -> list[NodeId]:
        """Plumbing and constant nodes behind a value, the nearest first."""
        out: list[NodeId] = []
        while True:
            made = side.producer(value)
            if made is None or side.kinds[made] == "compute" or made in out:
                return out
            out.append(made)
            behind = side.carried(side.graph.nodes[made])
            if behind is None:
                return out
            value = behind

    def _host(self, which: int, side: Side, tied: dict[NodeId, NodeId]) -> None:
        """Give untied plumbing to the compute node whose output or weight it carries."""
        hosts: dict[NodeId, NodeId] = {}
        for node_id in reversed(side.order):
            kind = side.kinds[node_id]
            if kind == "compute":
                hosts[node_id] = node_id
                continue
            host = self._producer_host(side, node_id) if kind != "static" else None
            if host is None:  # NOTE: readers come first here, and scales follow the integer product they scale
                host = next(
                    (
                        hosts[u]
                        for o in side.outputs(node_id)
                        if o is not None
                        for u, _ in side.readers[o]
                        if u in hosts
                    ),
                    None,
                )
            if host is None:
                host = self._producer_host(side, node_id)
            if host is not None:
                hosts[node_id] = host
        for node_id, host in hosts.items():
            if host != node_id and node_id not in tied:
                self.groups.join((which, node_id), (which, host))

    def _producer_host(self, side: Side, node_id: NodeId) -> NodeId | None:
        for out in side.outputs(node_id):
            if out is None:
                continue
            made = side.producer(side.root(out))
            if made is not None and side.kinds[made] == "compute":
                return made
        for value in side.reads[node_id]:
            if (
                value is not None
                and (made := side.producer(side.root(value))) is not None
                and side.kinds[made] == "compute"
            ):
                return made
        return None


def _common(left: Side, right: Side, some: list[NodeId], others: list[NodeId]) -> list[tuple[NodeId, NodeId]]:
    """The longest common subsequence of two chains, by operator."""
    ops_a = [left.graph.nodes[k].op_type for k in some]
    ops_b = [right.graph.nodes[k].op_type for k in others]
    rows, columns = len(ops_a), len(ops_b)
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            best[i][j] = best[i + 1][j + 1] + 1 if ops_a[i] == ops_b[j] else max(best[i + 1][j], best[i][j + 1])
    out, i, j = [], 0, 0
    while i < rows and j < columns:
        if ops_a[i] == ops_b[j]:
            out.append((some[i], others[j]))
            i, j = i + 1, j + 1
        elif best[i + 1][j] >= best[i][j + 1]:
            i += 1
        else:
            j += 1
    return out


def all_keys(left: Side, right: Side) -> list[Key]:
    """Every node of both sides."""
    return [(0, n.id) for n in left.graph.nodes] + [(1, n.id) for n in right.graph.nodes]
