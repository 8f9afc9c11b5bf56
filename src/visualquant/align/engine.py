"""Aligns two graphs: evidence, ties, cuts, plumbing, groups."""

from __future__ import annotations

from collections.abc import Sequence

from visualquant.align.cuts import Groups, compute_groups
from visualquant.align.matcher import Matcher
from visualquant.align.names import named_pairs
from visualquant.align.operands import weight_pairs
from visualquant.align.plumbing import Plumbing, all_keys
from visualquant.align.side import Side
from visualquant.align.sketches import seed_pairs
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
    matcher = Matcher(left, right, named)
    sketches = [{k: list(f.sketches) for k, f in features.items() if f.sketches} for features in matcher.features]
    matcher.seed((1.0 + score, a, b) for score, a, b in seed_pairs(sketches[0], sketches[1], left, right))
    matcher.seed((0.5, a, b) for (a, b) in named)
    matcher.grow()
    groups, pairs = compute_groups(matcher)
    Plumbing(matcher, groups).place()
    finished = _finished(left, right, groups, matcher)
    values = tuple(ValuePair(x, y, 0.9, ("topology",)) for x, y in pairs)
    return Alignment(groups=finished, values=values, weights=weight_pairs(left, right, finished, matcher.ties))


def _finished(left: Side, right: Side, groups: Groups, matcher: Matcher) -> tuple[MatchGroup, ...]:
    out = []
    for members in groups.members(all_keys(left, right)).values():
        fs = tuple(sorted(k for side, k in members if side == 0))
        qs = tuple(sorted(k for side, k in members if side == 1))
        place = min([left.rank[k] for k in fs], default=len(left.rank) + min([right.rank[k] for k in qs], default=0))
        reason = ""
        if not fs:
            reason = "the float model has no counterpart"
        elif not qs:
            reason = "the quantized model has no counterpart"
        score = max([matcher.score.get(k, 0.0) for k in fs], default=0.0)
        out.append((place, fs, qs, min(score / 3, 1.0), reason))
    out.sort(key=lambda row: row[:3])
    return tuple(
        MatchGroup(f"g{k}", fs, qs, conf, ("topology",), reason) for k, (_, fs, qs, conf, reason) in enumerate(out)
    )
