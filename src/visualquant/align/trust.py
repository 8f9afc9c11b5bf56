"""Whether names that two graphs share mean the same thing, or are counters that happen to agree."""

from __future__ import annotations

from collections.abc import Mapping

from visualquant.align.features import unit_features, weight_agreement
from visualquant.align.sketches import unique_pairs
from visualquant.align.units import UnitGraph
from visualquant.core.graph import NodeId

_SAME_OPERATOR = 0.6
_SAME_WEIGHT = 0.8
_ENOUGH = 3
_CONTRADICTED = 0.5


def trusted_names(
    named: Mapping[tuple[NodeId, NodeId], float], left: UnitGraph, right: UnitGraph
) -> Mapping[tuple[NodeId, NodeId], float]:
    """The named pairs, or none of them where operators or weights contradict most.

    Weights contradict only where they match elsewhere: another checkpoint of one network keeps its names.
    """
    if not named:
        return named
    families = [{u.node: u.family for u in units.units} for units in (left, right)]
    same = sum(families[0].get(a) == families[1].get(b) for a, b in named)
    if same < _SAME_OPERATOR * len(named):
        return {}
    features = [unit_features(units) for units in (left, right)]
    by_node = [
        {u.node: f for u, f in zip(units.units, found, strict=True) if f.sketches}
        for units, found in zip((left, right), features, strict=True)
    ]
    good = bad = 0
    for a, b in named:
        fa, fb = by_node[0].get(a), by_node[1].get(b)
        if fa is None or fb is None:
            continue
        agreement = weight_agreement(fa, fb)
        good += agreement is not None and agreement > _SAME_WEIGHT
        bad += fa.sketches[0].size != fb.sketches[0].size or (agreement is not None and agreement <= _SAME_WEIGHT)
    if bad < _ENOUGH or bad <= _CONTRADICTED * (good + bad):
        return named
    sketches = [[(f.family, k, f.sketches[0]) for k, f in found.items()] for found in by_node]
    elsewhere = [(a, b) for _, a, b in unique_pairs(sketches[0], sketches[1]) if (a, b) not in named]
    return {} if len(elsewhere) >= _ENOUGH else named
