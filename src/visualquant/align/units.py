"""The graph that alignment works on: units with data arguments, fused operators taken apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from functools import cached_property

from visualquant.align.families import COMMUTATIVE, LINEAR
from visualquant.align.operands import BLOCKED_DOMAIN
from visualquant.align.rules import FUSED
from visualquant.align.side import Side
from visualquant.align.windows import Window, windows
from visualquant.core.graph import NodeId, ValueId

UnitId = int
_SMALL = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """One operation on data.

    Attributes:
        family: operator family.
        node: the node that makes its result (shared by the steps of a fused node).
        parts: the simple units that a composed one consists of; empty for a simple one.
        args: root values that it reads.
        outs: values that it makes; ids beyond the graph's own are results inside a fused node.
        constants: (node, slot) of its constant operands.
        rank: position in dataflow order, then within a fused node.
        window: (axis, start, end) of what a Slice, or one result of a Split, takes; None where not known. A start or
            end that is not known is None; an end at the last element is `TO_END`.
    """

    family: str
    node: NodeId
    parts: tuple[UnitId, ...]
    args: tuple[ValueId, ...]
    outs: tuple[ValueId | None, ...]
    constants: tuple[tuple[NodeId, int], ...]
    rank: tuple[int, int]
    window: Window | None = None


class UnitGraph:
    """Units of one side.

    Attributes:
        side: the graph.
        units: in dataflow order.
        producer: the unit that makes a value.
        users: (unit, position of the argument) that read a value.
        depth: number of units on the longest way from an input.
    """

    def __init__(self, side: Side, units: Sequence[Unit]) -> None:
        self.side = side
        self.units = tuple(sorted(units, key=lambda u: u.rank))
        self.producer: dict[ValueId, UnitId] = {}
        self.users: dict[ValueId, list[tuple[UnitId, int]]] = {}
        for k, unit in enumerate(self.units):
            for out in unit.outs:
                if out is not None:
                    self.producer[out] = k
            for position, arg in enumerate(unit.args):
                self.users.setdefault(arg, []).append((k, position))
        self.ends = frozenset(side.root(v) for v in side.graph.outputs)
        self.depth = self._depths()

    def users_of(self, unit: UnitId) -> list[tuple[UnitId, int]]:
        """(unit, position) of all readers of a unit's results."""
        out: list[tuple[UnitId, int]] = []
        for value in self.units[unit].outs:
            if value is not None:
                out += self.users.get(value, ())
        return out

    def only_user(self, unit: UnitId) -> UnitId | None:
        """The one reader of a unit's one result; None where there are more, or where it leaves the graph."""
        users = self.users_of(unit)
        if len(users) != 1 or any(v in self.ends for v in self.units[unit].outs if v is not None):
            return None
        return users[0][0]

    @cached_property
    def twins(self) -> tuple[tuple[UnitId, ...], ...]:
        """Units that compute the same from the same, two and more together, in dataflow order.

        Toolchains merge such units, or write one out once for each reader.
        """
        value_class: dict[ValueId, Hashable] = {}
        found: dict[Hashable, list[UnitId]] = {}
        for k, unit in enumerate(self.units):
            args = [value_class.get(a, ("value", a)) for a in unit.args]
            constants = [_constant(self.side, node_id, slot) for node_id, slot in unit.constants]
            if unit.family in COMMUTATIVE:
                args.sort(key=repr)
                constants = [(0, *constant[1:]) for constant in constants]
            attributes = self.side.graph.nodes[unit.node].attributes
            told = tuple(sorted((name, repr(value)) for name, value in attributes.items()))
            alike = found.setdefault((unit.family, unit.rank[1], unit.window, told, tuple(constants), tuple(args)), [])
            alike.append(k)
            for number, out in enumerate(unit.outs):
                if out is not None:
                    value_class[out] = ("made", alike[0], number)
        return tuple(tuple(alike) for alike in found.values() if len(alike) > 1)

    @cached_property
    def copies(self) -> dict[ValueId, tuple[ValueId, ...]]:
        """For each result of twins the same result of all of them, itself included."""
        found: dict[ValueId, tuple[ValueId, ...]] = {}
        for alike in self.twins:
            for outs in zip(*(self.units[k].outs for k in alike), strict=False):
                same = tuple(out for out in outs if out is not None)
                found.update((out, same) for out in same)
        return found

    def _depths(self) -> list[int]:
        depth = [0] * len(self.units)
        for k, unit in enumerate(self.units):
            before = [depth[p] for a in unit.args if (p := self.producer.get(a)) is not None and p < k]
            depth[k] = 1 + max(before, default=0)
        return depth


def _constant(side: Side, node_id: NodeId, slot: int) -> tuple[Hashable, ...]:
    """What tells a constant from another: its slot, and its content where it is small, else which value it is."""
    value = side.graph.nodes[node_id].input(slot)
    small = None if value is None else side.folder.small(value)
    if small is not None and small.size <= _SMALL:
        return slot, small.shape, str(small.dtype), small.tobytes()
    return slot, value


def simple_units(side: Side) -> UnitGraph:
    """One unit for each compute node, or one for each step of a fused node."""
    virtual = len(side.graph.values)
    units: list[Unit] = []
    for node_id in side.compute:
        made = _of_node(side, node_id, virtual)
        virtual += len(made)
        units += made
    return UnitGraph(side, units)


def _of_node(side: Side, node_id: NodeId, virtual: int) -> list[Unit]:
    node = side.graph.nodes[node_id]
    steps = FUSED.get("FusedConv" if node.domain == BLOCKED_DOMAIN and node.op_type == "Conv" else node.op_type)
    rank = side.rank[node_id]
    args = {arg.slot: arg.root for arg in side.args[node_id]}
    if steps is not None and steps[0].swaps and node.input(steps[0].slots[1]) is not None:
        made = [side.producer(args[k]) if k in args else None for k in (0, 1)]
        first, second = (m is not None and side.families[m] in LINEAR for m in made)
        if second and not first:
            args[0], args[1] = args[1], args[0]
    cut = windows(side, node) if len(args) == 1 else None
    if cut is not None:
        data = tuple(args.values())
        outs = [(k, o) for k, o in enumerate(node.outputs) if o is not None]
        return [Unit("Slice", node_id, (), data, (o,), (), (rank, k), cut[k]) for k, o in outs]
    if steps is None:
        constants = tuple((node_id, k) for k in range(len(node.inputs)) if k not in args)
        return [Unit(side.families[node_id], node_id, (), tuple(args.values()), node.outputs, constants, (rank, 0))]
    units: list[Unit] = []
    last: ValueId | None = args.get(0)
    activation = node.attributes.get("activation")
    for step in steps:
        family = step.family
        if family == "=activation":
            if not isinstance(activation, str) or not activation:
                continue
            family = activation
        elif family == "Add" and node.input(step.slots[1]) is None:
            continue
        reads = [last if s == -1 else args.get(s) for s in step.slots]
        stated = step.output is not None and step.output < len(node.outputs)
        out = node.outputs[step.output] if step.output is not None and stated else None
        if out is None:
            out, virtual = virtual, virtual + 1
        constants = tuple((node_id, s) for s in step.slots if s >= 0 and s not in args and node.input(s) is not None)
        data = tuple(a for a in reads if a is not None)
        units.append(Unit(family, node_id, (), data, (out,), constants, (rank, len(units))))
        last = out
    if (
        units and node.outputs and units[-1].outs != node.outputs[:1]
    ):  # the last step that is there makes the first output
        units[-1] = dataclasses.replace(units[-1], outs=(node.outputs[0],))
    return units
