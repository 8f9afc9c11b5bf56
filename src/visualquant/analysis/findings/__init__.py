"""The findings engine: every rule over one context, in order of importance."""

from __future__ import annotations

from visualquant.analysis.findings import graph, pairs, weights
from visualquant.analysis.findings.context import Context, finish
from visualquant.core.report import Finding

RULES = (*weights.RULES, *graph.RULES, *pairs.RULES)


def find(context: Context) -> tuple[Finding, ...]:
    """What the files alone show, most important first."""
    return finish([draft for rule in RULES for draft in rule(context)], context)
