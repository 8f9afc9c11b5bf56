"""Whether two models have enough in common to be compared at all."""

from __future__ import annotations

from visualquant.align.cuts import all_keys
from visualquant.align.matched import Matched
from visualquant.align.side import Side
from visualquant.align.units import UnitGraph
from visualquant.core.alignment import Alignment, MatchGroup
from visualquant.core.graph import NodeId

_COVERED = 0.45
_COVERED_WITH_SHAPES = 0.3
_SHAPED = 0.6
_NEARLY_ALL = 0.9
_SAME_WEIGHT = 0.8


def unrelated_reason(left: Side, right: Side, matched: Matched) -> str:
    """A sentence where two models share too little; empty where they may be compared.

    Weights in common, or most operators in common, are enough: another checkpoint of one network is still related.
    """
    counts = [max(len(side.compute), 1) for side in (left, right)]
    weighty = sum(tie.weights is not None and tie.weights > _SAME_WEIGHT for tie in matched.ties)
    weighty += sum(c.weights is not None and c.weights > _SAME_WEIGHT for c in matched.compositions)
    if weighty >= 2 or not left.compute or not right.compute:
        return ""
    lefts = {t.left for t in matched.ties} | {n for c in matched.compositions for n in c.left}
    rights = {t.right for t in matched.ties} | {n for c in matched.compositions for n in c.right}
    covered = min(len(lefts) / counts[0], len(rights) / counts[1])
    matrices = [_matrices(units) for units in matched.simple]
    shaped = sum(t.left in matrices[0] and t.right in matrices[1] and t.weights is not None for t in matched.ties)
    shaped += sum(c.weights is not None for c in matched.compositions)
    if min(len(m) for m in matrices) >= 2:
        enough = covered >= _COVERED_WITH_SHAPES and shaped / max(len(m) for m in matrices) >= _SHAPED
        related = enough or covered >= _NEARLY_ALL
    else:
        related = covered >= _COVERED
    if related:
        return ""
    return (
        f"The two models seem unrelated: no weights in common, and only {len(matched.ties)} of {counts[0]} float and "
        f"{counts[1]} quantized operators correspond. Check that both files come from one network."
    )


def _matrices(units: UnitGraph) -> set[NodeId]:
    """Nodes with a weight of two axes or more."""
    sketches = units.side.sketches
    return {node for (node, _), found in sketches.items() if any(s.rows > 1 and s.columns > 1 for s in found)}


def without_ties(left: Side, right: Side, reason: str) -> Alignment:
    """Every node alone, for models that are not related."""
    rows = []
    for which, node_id in all_keys(left, right):
        ids = ((node_id,), ()) if which == 0 else ((), (node_id,))
        rows.append((*ids, 1.0, (), "The two models seem unrelated."))
    groups = tuple(MatchGroup(f"g{k}", *row) for k, row in enumerate(rows))
    return Alignment(groups, related=False, reason=reason)
