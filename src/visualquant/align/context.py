"""Hashes of what surrounds a unit: equal surroundings on both sides speak for a tie before any neighbour is tied."""

from __future__ import annotations

from visualquant.align.families import COMMUTATIVE
from visualquant.align.units import UnitGraph

RADIUS = 3


def surroundings(units: UnitGraph) -> list[tuple[int, ...]]:
    """For each unit the hashes of its ancestors and descendants up to 1, 2 and 3 steps away: (back 1, ahead 1, ...).

    Only operator families and argument positions count, so names, order and constants do not.
    """
    back = [hash(("unit", u.family)) for u in units.units]
    ahead = list(back)
    out: list[list[int]] = [[] for _ in units.units]
    for _ in range(RADIUS):
        back = [_behind(units, k, back) for k in range(len(back))]
        ahead = [_ahead(units, k, ahead) for k in range(len(ahead))]
        for k, found in enumerate(out):
            found += (back[k], ahead[k])
    return [tuple(found) for found in out]


def _behind(units: UnitGraph, k: int, labels: list[int]) -> int:
    unit = units.units[k]
    made = [units.producer.get(arg) for arg in unit.args]
    parts = [0 if p is None else labels[p] for p in made]
    return hash((labels[k], tuple(sorted(parts) if unit.family in COMMUTATIVE else parts)))


def _ahead(units: UnitGraph, k: int, labels: list[int]) -> int:
    parts = []
    for number, value in enumerate(units.units[k].outs):
        if value is None:
            continue
        for user, position in units.users.get(value, ()):
            place = 0 if units.units[user].family in COMMUTATIVE else position
            parts.append((number, place, labels[user]))
        if value in units.ends:
            parts.append((number, -1, 0))
    return hash((labels[k], tuple(sorted(parts))))
