"""The graph that alignment works on: units with data arguments, fused operators taken apart, formulas put together."""

from __future__ import annotations

import dataclasses

from visualquant.align.algebra import Recognizer
from visualquant.align.rules import FORMULAS, FUSED, Formula
from visualquant.align.side import Side
from visualquant.core.graph import NodeId, ValueId

UnitId = int
_CLIMB = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """One operation on data.

    Attributes:
        family: operator family.
        node: the node that makes its result (shared by the steps of a fused node).
        members: all nodes; several where a formula was put together.
        args: root values that it reads.
        outs: values that it makes; ids beyond the graph's own are results inside a fused node.
        constants: (node, slot) of its constant operands.
        rank: position in dataflow order.
    """

    family: str
    node: NodeId
    members: tuple[NodeId, ...]
    args: tuple[ValueId, ...]
    outs: tuple[ValueId | None, ...]
    constants: tuple[tuple[NodeId, int], ...]
    rank: tuple[int, int]


class UnitGraph:
    """Units of one side.

    Attributes:
        side: the graph.
        units: in dataflow order.
        producer: the unit that makes a value.
        users: (unit, position of the argument) that read a value.
    """

    def __init__(self, side: Side, *, compose: bool) -> None:
        self.side = side
        self._virtual = len(side.graph.values)
        made: list[Unit] = []
        taken: set[NodeId] = set()
        if compose:
            for unit in compositions(side):
                made.append(unit)
                taken.update(unit.members)
        for node_id in side.compute:
            if node_id not in taken:
                made += self._of_node(node_id)
        self.units = tuple(sorted(made, key=lambda u: u.rank))
        self.producer: dict[ValueId, UnitId] = {}
        self.users: dict[ValueId, list[tuple[UnitId, int]]] = {}
        for k, unit in enumerate(self.units):
            for out in unit.outs:
                if out is not None:
                    self.producer[out] = k
            for position, arg in enumerate(unit.args):
                self.users.setdefault(arg, []).append((k, position))
        self.depth = self._depths()

    def users_of(self, unit: UnitId) -> list[tuple[UnitId, int]]:
        """(unit, position) of all readers of a unit's results."""
        out: list[tuple[UnitId, int]] = []
        for value in self.units[unit].outs:
            if value is not None:
                out += self.users.get(value, ())
        return out

    def _depths(self) -> list[int]:
        depth = [0] * len(self.units)
        for k, unit in enumerate(self.units):
            depth[k] = 1 + max(
                (depth[p] for a in unit.args if (p := self.producer.get(a)) is not None and p < k), default=0
            )
        return depth

    def _of_node(self, node_id: NodeId) -> list[Unit]:
        side = self.side
        node = side.graph.nodes[node_id]
        steps = FUSED.get(node.op_type)
        rank = side.rank[node_id]
        args = {arg.slot: arg.root for arg in side.args[node_id]}
        if steps is None:
            constants = tuple((node_id, k) for k in range(len(node.inputs)) if k not in args)
            return [
                Unit(
                    side.families[node_id],
                    node_id,
                    (node_id,),
                    tuple(args.values()),
                    node.outputs,
                    constants,
                    (rank, 0),
                )
            ]
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
            out = (
                None
                if step.output is None
                else (node.outputs[step.output] if step.output < len(node.outputs) else None)
            )
            if out is None:
                out, self._virtual = self._virtual, self._virtual + 1
            constants = tuple(
                (node_id, s) for s in step.slots if s >= 0 and s not in args and node.input(s) is not None
            )
            units.append(
                Unit(
                    family,
                    node_id,
                    (node_id,),
                    tuple(a for a in reads if a is not None),
                    (out,),
                    constants,
                    (rank, len(units)),
                )
            )
            last = out
        if units and units[-1].outs != node.outputs[:1]:  # the last step that is there makes the first output
            final = units[-1]
            units[-1] = dataclasses.replace(final, outs=(node.outputs[0],))
        return units


def compositions(side: Side) -> list[Unit]:
    """Formulas put together: each composed unit hides what is inside, which nothing else reads."""
    recognizer = Recognizer(side)
    rules: dict[str, list[Formula]] = {}
    for rule in FORMULAS:
        rules.setdefault(rule.trigger, []).append(rule)
    taken: set[NodeId] = set()
    found: list[Unit] = []
    for node_id in side.compute:
        family = side.families[node_id]
        if family not in rules or node_id in taken:
            continue
        candidates = _behind(side, node_id)
        for rule in rules[family]:
            unit = next(
                (u for root in candidates if (u := _try(side, recognizer, rule, root, node_id, taken)) is not None),
                None,
            )
            if unit is not None:
                found.append(unit)
                taken.update(unit.members)
                break
    return found


def _behind(side: Side, node_id: NodeId) -> list[NodeId]:
    """Arithmetic nodes that follow a trigger, the nearest first."""
    out: list[NodeId] = []
    front = [node_id]
    for _ in range(_CLIMB):
        following: list[NodeId] = []
        for current in front:
            for value in side.outputs(current):
                for user, _ in side.users.get(value, ()) if value is not None else ():
                    if user not in out and side.families[user] in (
                        "Mul",
                        "Add",
                        "Div",
                        "Sub",
                        "Sqrt",
                        "Reciprocal",
                        "Pow",
                        "Tanh",
                    ):
                        out.append(user)
                        following.append(user)
        front = following[:4]
    return out


def _try(
    side: Side, recognizer: Recognizer, rule: Formula, root: NodeId, trigger: NodeId, taken: set[NodeId]
) -> Unit | None:
    result = side.outputs(root)[0]
    if result is None:
        return None
    match = recognizer.find(rule.text, result)
    if match is None or trigger not in match.nodes or match.nodes & taken:
        return None
    for node_id in match.nodes:
        if node_id == root:
            continue
        for out in side.outputs(node_id):
            readers = side.users.get(out, ()) if out is not None else ()
            if any(user not in match.nodes for user, _ in readers) or out in side.graph.outputs:
                return None
    data = [side.root(match.bound[name]) for name in ("x", "y", "z") if name in match.bound]
    members = tuple(sorted(match.nodes))
    return Unit(
        rule.family, root, members, tuple(data), (result,), tuple(sorted(match.constants)), (side.rank[root], 0)
    )
