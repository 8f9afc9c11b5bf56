"""Units that compute the same from the same: toolchains merge them, or write them out once a reader."""

from __future__ import annotations

from collections.abc import Hashable

from visualquant.align.families import COMMUTATIVE
from visualquant.align.units import UnitGraph, UnitId
from visualquant.core.graph import NodeId, ValueId

_SMALL = 4096


def twins(units: UnitGraph) -> dict[UnitId, UnitId]:
    """The first unit that does exactly what a later one does, for each later one."""
    side = units.side
    value_class: dict[ValueId, Hashable] = {}
    first: dict[Hashable, UnitId] = {}
    found: dict[UnitId, UnitId] = {}
    for k, unit in enumerate(units.units):
        node = side.graph.nodes[unit.node]
        args = [value_class.get(a, ("value", a)) for a in unit.args]
        if unit.family in COMMUTATIVE:
            args.sort(key=repr)
        attributes = tuple(sorted((name, repr(value)) for name, value in node.attributes.items()))
        constants = tuple(_constant(units, node_id, slot) for node_id, slot in unit.constants)
        key = (unit.family, unit.rank[1], unit.window, attributes, constants, tuple(args))
        twin = first.setdefault(key, k)
        if twin != k:
            found[k] = twin
        for number, out in enumerate(unit.outs):
            if out is not None:
                value_class[out] = ("made", twin, number)
    return found


def _constant(units: UnitGraph, node_id: NodeId, slot: int) -> Hashable:
    """What tells a constant from another: its content where it is small, else which value it is."""
    side = units.side
    value = side.graph.nodes[node_id].input(slot)
    if value is None:
        return slot, None
    small = side.folder.small(value)
    if small is not None and small.size <= _SMALL:
        return slot, small.shape, str(small.dtype), small.tobytes()
    return slot, value
