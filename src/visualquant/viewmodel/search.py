"""The search language: words joined by AND, `key:value`, /regular expressions/, and conditions such as `sqnr<20`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping

import numpy as np

from visualquant.errors import UsageError
from visualquant.viewmodel.colours import F64
from visualquant.viewmodel.sides import Pair, Side

CONDITIONS = {
    "sqnr": "weight_sqnr",
    "weight_sqnr": "weight_sqnr",
    "activation": "activation_sqnr",
    "activation_sqnr": "activation_sqnr",
    "isolated": "isolated_sqnr",
    "clipped": "clipped",
    "latency": "latency",
    "share": "latency_share",
    "bits": "bits",
    "confidence": "confidence",
}
KEYS = ("op", "name", "kind", "tensor", "fusion", "finding", "module")
_CONDITION = re.compile(r"^([a-z_]+)(<=|>=|<|>|=)(-?\d+(?:\.\d+)?)$")
_TOKEN = re.compile(r'/(?:\\.|[^/\\])+/|"[^"]*"|\S+')
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b,
}
Test = Callable[[int], bool]


@dataclasses.dataclass(frozen=True)
class Hits:
    """Places of the nodes of one side that match, in order."""

    nodes: tuple[int, ...]

    def step(self, current: int | None, forward: bool = True) -> int | None:
        """The next match after a node (or the one before), round the end; None without any match."""
        if not self.nodes:
            return None
        if current is None:
            return self.nodes[0 if forward else -1]
        if forward:
            return next((n for n in self.nodes if n > current), self.nodes[0])
        return next((n for n in reversed(self.nodes) if n < current), self.nodes[-1])


def search(pair: Pair, side: Side, query: str, values: Callable[[str], F64]) -> Hits:
    """The nodes of a side that match every part of a query.

    Args:
        pair: both sides.
        side: the one to look in.
        query: e.g. `conv layer3`, `op:Conv sqnr<20`, `/block[0-3]/`; a word is looked for in name, operator,
            module and tensors, in any case.
        values: by the name of a metric, its value of every group.

    Raises:
        UsageError: a regular expression or a condition that can't be read; the message says which.
    """
    tests = [_test(pair, side, token, values) for token in _TOKEN.findall(query)]
    if not tests:
        return Hits(())
    return Hits(tuple(k for k in range(len(side.nodes)) if all(t(k) for t in tests)))


def _test(pair: Pair, side: Side, token: str, values: Callable[[str], F64]) -> Test:
    condition = _CONDITION.match(token)
    if condition is not None:
        key, sign, number = condition.groups()
        if key not in CONDITIONS:
            raise UsageError(f"{key!r} can't be compared; these can: {', '.join(CONDITIONS)}.")
        found, limit, compare = values(CONDITIONS[key]), float(number), _COMPARE[sign]
        return lambda k: (
            side.group[k] >= 0
            and not np.isnan(found[side.group[k]])
            and not side.plumbing[k]
            and compare(float(found[side.group[k]]), limit)
        )
    if len(token) > 2 and token[0] == "/" and token[-1] == "/":
        try:
            pattern = re.compile(token[1:-1], re.IGNORECASE)
        except re.error as error:
            raise UsageError(f"The regular expression {token} can't be read: {error}.") from error
        return lambda k: pattern.search(_text(pair, side, k)) is not None
    key, colon, value = token.partition(":")
    if colon and key in KEYS and value:
        return _keyed(pair, side, key, value.strip('"').lower())
    word = token.strip('"').lower()
    return lambda k: word in _text(pair, side, k).lower()


def _text(pair: Pair, side: Side, k: int) -> str:
    node = side.nodes[k]
    module = pair.modules[side.group[k]] if side.group[k] >= 0 and not side.plumbing[k] else ""
    return " ".join((node.name, node.op_type, module, *node.inputs, *node.outputs))


def _keyed(pair: Pair, side: Side, key: str, value: str) -> Test:
    nodes, group = side.nodes, side.group
    if key == "op":
        return lambda k: nodes[k].op_type.lower() == value
    if key == "name":
        return lambda k: value in nodes[k].name.lower()
    if key == "tensor":
        return lambda k: any(value in v.lower() for v in (*nodes[k].inputs, *nodes[k].outputs))
    if key == "module":
        return lambda k: group[k] >= 0 and value in pair.modules[group[k]].lower()
    if key == "kind":
        return lambda k: group[k] >= 0 and pair.groups[group[k]].kind == value
    if key == "fusion":
        return lambda k: group[k] in pair.fusions and value in pair.fusions[int(group[k])].pattern.lower()
    marked = {
        pair.group_index[g]
        for f in pair.report.findings
        if value in f.code.lower()
        for g in f.groups
        if g in pair.group_index
    }
    return lambda k: int(group[k]) in marked
