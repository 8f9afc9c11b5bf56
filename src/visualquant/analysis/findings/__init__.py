"""The findings engine: every rule over one context, in order of importance."""

from __future__ import annotations

from visualquant.analysis.findings import causes, data, graph, pairs, ranking, weights, wiring
from visualquant.analysis.findings.context import Context, finish
from visualquant.core.alignment import Alignment
from visualquant.core.model import Model
from visualquant.core.report import Finding

RULES = (*weights.RULES, *graph.RULES, *pairs.RULES, *wiring.RULES)


# Rules that need no float model.
ALONE = (
    graph.scale_shape,
    graph.not_encoded,
    graph.pad_zero_point,
    graph.blocks_fusion,
    graph.opset_too_old,
    graph.unclaimed,
    graph.unknown_operators,
    graph.duplicate_names,
    graph.redundant,
    graph.float_islands,
    pairs.joins,
    pairs.int8_compute,
    pairs.may_saturate,
)


def find_alone(model: Model) -> tuple[Finding, ...]:
    """What one file shows without its float model."""
    context = Context(model, model, Alignment(()))
    return finish([draft for rule in ALONE for draft in rule(context)], context)


def find_with_data(whole: data.DataContext) -> tuple[Finding, ...]:
    """What files and a run over samples show together, most important first."""
    drafts = [draft for rule in RULES for draft in rule(whole.files)]
    drafts += [draft for rule in data.RULES for draft in rule(whole)]
    return finish(causes.explained(ranking.weigh(drafts, whole), whole), whole.files)


def find(context: Context) -> tuple[Finding, ...]:
    """What the files alone show, most important first."""
    return finish([draft for rule in RULES for draft in rule(context)], context)
