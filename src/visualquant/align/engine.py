"""Aligns two graphs: evidence, ties, cuts, plumbing, groups."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterator, Sequence

from visualquant.align.ends import output_pairs
from visualquant.align.fusions import fusions_of
from visualquant.align.hosts import hosts
from visualquant.align.levels import Given, match
from visualquant.align.names import named_pairs
from visualquant.align.packed_pairs import packed_pairs
from visualquant.align.pinning import separated
from visualquant.align.plumbing import Plumbing
from visualquant.align.relation import unrelated_reason, without_ties
from visualquant.align.result import match_groups
from visualquant.align.side import Side
from visualquant.align.taps import value_pairs
from visualquant.align.weight_pairs import weight_pairs
from visualquant.core.alignment import Alignment
from visualquant.core.evidence import ActivationEvidence
from visualquant.core.graph import GraphView
from visualquant.core.pins import Pins
from visualquant.core.quant import QuantSite


def align(
    float_graph: GraphView,
    quant_graph: GraphView,
    *,
    float_sites: Sequence[QuantSite] = (),
    quant_sites: Sequence[QuantSite] = (),
    pins: Pins | None = None,
    activations: ActivationEvidence | None = None,
    tick: Callable[[float], None] = lambda _: None,
) -> Alignment:
    """The partition of both graphs' nodes into groups that do the same thing, with what was seen on the way.

    Args:
        float_graph: the float model.
        quant_graph: the quantized (or optimised) model.
        float_sites: what the scheme readers found in the float model.
        quant_sites: the same of the quantized model; sketches of its weights come from them.
        pins: a user's word; it wins over all evidence.
        activations: which values were measured to be the same.
        tick: told the part of the work that is done, 0..1, now and then; may raise to stop it.
    """
    given = Given({}, pins or Pins(), activations or ActivationEvidence(), tick)
    with _no_collection():
        return _aligned(Side(float_graph, float_sites), Side(quant_graph, quant_sites), given)


def _aligned(left: Side, right: Side, given: Given) -> Alignment:
    given = dataclasses.replace(given, named=named_pairs(left, right))
    matched = match(left, right, given)
    reason = "" if given.pins else unrelated_reason(left, right, matched)
    if reason:
        return without_ties(left, right, reason)
    ends = output_pairs(left, right)
    plumbing = Plumbing(left, right, matched, ends, given.pins)
    plumbing.tie_all()
    for a, b in plumbing.ties.items():
        matched.groups.join((0, a), (1, b))
    for which, side, tied in ((0, left, plumbing.ties), (1, right, plumbing.back)):
        for node_id, host in hosts(side, tied, plumbing.pinned[which]).items():
            matched.groups.join((which, node_id), (which, host))
    given.tick(0.9)
    groups = separated(match_groups(left, right, matched, plumbing.ties), given.pins)
    groups, fusions = fusions_of(left, right, matched, groups)
    packed = packed_pairs(left, right, matched.bindings, matched.coarse)
    weights = weight_pairs(left, right, groups, {**matched.nodes, **plumbing.ties}, packed)
    values = value_pairs(left, right, matched, plumbing.ties, groups)
    given.tick(1.0)
    return Alignment(groups, fusions, values, weights)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keeps the cyclic garbage collector from walking millions of young objects that are all still in use."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
