"""Keeps what a user forbids apart."""

from __future__ import annotations

import dataclasses

from visualquant.core.alignment import MatchGroup
from visualquant.core.pins import Pins


def separated(groups: tuple[MatchGroup, ...], pins: Pins) -> tuple[MatchGroup, ...]:
    """The groups, with the quantized node of a forbidden tie taken out of a group that still holds both."""
    if not pins.apart:
        return groups
    out: list[MatchGroup] = []
    for group in groups:
        banned = {b for a, b in pins.apart if a in group.float_nodes and b in group.quant_nodes}
        if not banned:
            out.append(group)
            continue
        kept = tuple(k for k in group.quant_nodes if k not in banned)
        reason = "" if kept else "The user's pins forbid its counterpart."
        out.append(dataclasses.replace(group, quant_nodes=kept, reason=reason))
        why = "The user's pins keep it apart from the group that it would belong to."
        out.append(MatchGroup("", (), tuple(sorted(banned)), 1.0, ("user",), why))
    return tuple(dataclasses.replace(g, id=f"g{k}") for k, g in enumerate(out))
