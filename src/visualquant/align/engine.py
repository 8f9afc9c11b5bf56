"""Aligns two graphs: evidence, ties, cuts, plumbing, groups."""

from __future__ import annotations

from collections.abc import Sequence

from visualquant.align.cuts import all_keys
from visualquant.align.ends import output_pairs
from visualquant.align.hosts import hosts
from visualquant.align.levels import Matched, match
from visualquant.align.names import named_pairs
from visualquant.align.packed_pairs import packed_pairs
from visualquant.align.plumbing import Plumbing
from visualquant.align.side import Side
from visualquant.align.weight_pairs import weight_pairs
from visualquant.core.alignment import Alignment, MatchGroup, ValuePair
from visualquant.core.graph import GraphView
from visualquant.core.quant import QuantSite


def align(
    float_graph: GraphView,
    quant_graph: GraphView,
    *,
    float_sites: Sequence[QuantSite] = (),
    quant_sites: Sequence[QuantSite] = (),
) -> Alignment:
    """The partition of both graphs' nodes into groups that do the same thing, with what was seen on the way."""
    left, right = Side(float_graph, float_sites), Side(quant_graph, quant_sites)
    named = named_pairs(left, right)
    matched = match(left, right, named)
    plumbing = Plumbing(left, right, matched, output_pairs(left, right))
    plumbing.tie_all()
    for a, b in plumbing.ties.items():
        matched.groups.join((0, a), (1, b))
    for which, side, tied in ((0, left, plumbing.ties), (1, right, plumbing.back)):
        for node_id, host in hosts(side, tied).items():
            matched.groups.join((which, node_id), (which, host))
    groups = _finished(left, right, matched)
    packed = packed_pairs(left, right, matched.bindings, matched.coarse)
    weights = weight_pairs(left, right, groups, {**matched.nodes, **plumbing.ties}, packed)
    values = tuple(
        ValuePair(x, y, 0.9, ("topology",))
        for x, y in matched.values
        if x < len(float_graph.values) and y < len(quant_graph.values)
    )
    return Alignment(groups=groups, values=values, weights=weights)


def _finished(left: Side, right: Side, matched: Matched) -> tuple[MatchGroup, ...]:
    out = []
    for members in matched.groups.members(all_keys(left, right)).values():
        fs = tuple(sorted(k for side, k in members if side == 0))
        qs = tuple(sorted(k for side, k in members if side == 1))
        place = min([left.rank[k] for k in fs], default=len(left.rank) + min([right.rank[k] for k in qs], default=0))
        reason = ""
        if not fs:
            reason = "the float model has no counterpart"
        elif not qs:
            reason = "the quantized model has no counterpart"
        score = max([matched.score.get(k, 0.0) for k in fs], default=0.0)
        out.append((place, fs, qs, min(score / 3, 1.0), reason))
    out.sort(key=lambda row: row[:3])
    return tuple(
        MatchGroup(f"g{k}", fs, qs, conf, ("topology",), reason) for k, (_, fs, qs, conf, reason) in enumerate(out)
    )
