"""Severity and order by what was measured, not by the code alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from visualquant.analysis.findings.context import Draft
from visualquant.analysis.findings.data import DataContext

# Causes that say more than their symptom at the same place.
_CAUSES = frozenset(
    {
        "WEIGHT_ONE_SCALE",
        "WEIGHT_WRONG_AXIS",
        "WEIGHT_OUTLIER_IN_BLOCK",
        "WEIGHT_CLIPPED",
        "BIAS_OVERFLOW",
        "BIAS_SCALE",
    }
    | {"ACT_LOST", "ACT_PAD_ZERO_POINT", "QDQ_BLOCKS_FUSION", "JOIN_MIXED_RANGES", "ATTRIBUTES_DIFFER"}
    | {"WEIGHT_MISMATCH", "FUSION_CHANGED_VALUE", "WIRED_DIFFERENTLY", "OPERATOR_REPLACED"}
)
BROKEN_DB = 15.0
SOUND_OUTPUT_DB = 30.0


def weigh(drafts: Sequence[Draft], context: DataContext) -> list[Draft]:
    """Drafts with severity and effect that follow the isolated error of the groups that they name.

    A cause whose group is broken (isolated SQNR below 15 dB) while the outputs suffer is an error; a warning where the
    outputs are as good as float becomes information about cost, never more than a warning.
    """
    isolated: dict[str, float] = {}
    for item in context.run.activations:
        if item.isolated is not None and item.isolated.sqnr_db is not None and item.pair.group is not None:
            level = min(item.isolated.sqnr_db, isolated.get(item.pair.group, 200.0))
            isolated[item.pair.group] = level
    worst_output = min(
        (s.sqnr_db for s in context.run.outputs.values() if s.sqnr_db is not None), default=SOUND_OUTPUT_DB
    )
    ranked = []
    for draft in drafts:
        groups = context.files.groups_at(draft)
        levels = [isolated[g] for g in groups if g in isolated]
        if draft.code == "ACT_LOST" and float(draft.numbers["range_high"]) <= float(draft.numbers["cut"]):
            # NOTE: nothing above the cut survives either: the range stands at the wrong side, which clipping shows
            draft = dataclasses.replace(draft, effect=min(draft.effect, 10.0), severity="warning")
        elif draft.code in _CAUSES and levels and draft.severity != "info":
            own = min(levels)
            effect = draft.effect + max(0.0, 40 - own)
            severity = draft.severity
            if own < BROKEN_DB and worst_output < SOUND_OUTPUT_DB - 10:
                severity = "error"
            draft = dataclasses.replace(draft, effect=effect, severity=severity)
        ranked.append(draft)
    return ranked
