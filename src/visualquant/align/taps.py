"""Pairs of activations that hold the same value, as they should be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping

from visualquant.align.families import QUANTIZERS
from visualquant.align.matched import Matched
from visualquant.align.operands import BLOCKED_DOMAIN
from visualquant.align.side import Side
from visualquant.core.alignment import MatchGroup, ValuePair
from visualquant.core.graph import NodeId, ValueId
from visualquant.core.trace import static_shape

_CUTS = frozenset({"Relu", "Clip"})
_CODES = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"})


def value_pairs(
    left: Side, right: Side, matched: Matched, plumbing: Mapping[NodeId, NodeId], groups: tuple[MatchGroup, ...]
) -> tuple[ValuePair, ...]:
    """One pair for each float value that has a counterpart, in dataflow order.

    On the quantized side the value is taken in the float domain, behind Q and DQ, where the graph has it there; codes
    only where nothing else exists. Where several values in a row stand for one (a bias added to integer sums; a Relu
    that lives on in a quantizer's range) the last one counts.
    """
    of_float = {n: g for g in groups for n in g.float_nodes}
    latest: dict[ValueId, ValueId] = {}
    for x, y in matched.values:
        real = x < len(left.graph.values) and y < len(right.graph.values)
        if real and _may_compare(left, right, x, y) and (x not in latest or _later(right, y, latest[x])):
            latest[x] = y
    back: dict[ValueId, ValueId] = {}
    for x, y in latest.items():
        if y not in back or _later(left, x, back[y]):
            back[y] = x
    pairs = [(x, y) for y, x in back.items()]
    for a, b in plumbing.items():
        if left.kinds[a] == "move" and right.kinds[b] == "move":
            pairs += [
                (x, y)
                for x, y in zip(left.outputs(a), right.outputs(b), strict=False)
                if x is not None and y is not None
            ]
    out: dict[tuple[ValueId, ValueId], ValuePair] = {}
    for x, y in pairs:
        node = left.producer(x)
        seen = _seen(right, y, lost=_is_lost(left, right, x, y))
        if node is None or seen is None or not left.live[x]:
            continue
        group = of_float.get(node)
        if group is not None:
            out[x, seen] = ValuePair(x, seen, group.confidence, group.evidence)
    return tuple(sorted(out.values(), key=lambda p: (left.file_rank[left.producer(p.float_value) or 0], p.float_value)))


def _later(side: Side, value: ValueId, than: ValueId) -> bool:
    some, other = side.producer(value), side.producer(than)
    return some is not None and (other is None or side.file_rank[some] > side.file_rank[other])


def _may_compare(left: Side, right: Side, x: ValueId, y: ValueId) -> bool:
    """False where sizes differ, and for padding that the other side has taken into the next layer."""
    p, r = left.producer(x), right.producer(y)
    if p is not None and r is not None and (left.families[p] == "Pad") != (right.families[r] == "Pad"):
        return False
    sizes = [static_shape(side.graph, v) for side, v in ((left, x), (right, y))]
    return sizes[0] is None or sizes[1] is None or math.prod(sizes[0]) == math.prod(sizes[1])


def _is_lost(left: Side, right: Side, x: ValueId, y: ValueId) -> bool:
    """Whether the float value is that of an activation which the quantized side leaves to a quantizer's range."""
    p, r = left.producer(x), right.producer(y)
    return p is not None and left.families[p] in _CUTS and (r is None or right.families[r] not in _CUTS)


def _seen(side: Side, value: ValueId, lost: bool) -> ValueId | None:
    """Where to look at a value: behind Q and DQ, behind the scaling of integer sums, unblocked.

    Where an activation is lost, only what stands behind the quantizer will do, be it codes.
    """
    best, codes = value, None
    todo, seen = [value], {value}
    while todo:
        current = todo.pop(0)
        for user, slot in side.readers[current]:
            node = side.graph.nodes[user]
            if side.kinds[user] != "quiet" or (slot and node.op_type in QUANTIZERS):
                continue
            out = next((o for o in node.outputs if o is not None), None)
            if out is None or out in seen or out in side.scale_only:
                continue
            seen.add(out)
            todo.append(out)
            if node.op_type == "QuantizeLinear" and codes is None:
                codes = out
            if _is_float(side, out) and (node.op_type == "Mul" or best == value or not _is_float(side, best)):
                best = out
    if lost and best == value and codes is not None:
        return codes
    made = side.producer(value)
    blocked = made is not None and side.graph.nodes[made].domain == BLOCKED_DOMAIN
    if blocked and best == value:
        return None
    return best


def _is_float(side: Side, value: ValueId) -> bool:
    """Whether a value is a float tensor, as far as what makes it and its stated type say."""
    made = side.producer(value)
    op = "" if made is None else side.graph.nodes[made].op_type
    if op in _CODES or op.startswith("QLinear"):
        return False
    dtype = side.graph.values[value].dtype
    return dtype is None or dtype.is_float
