"""Puts units together that another toolchain writes as one: formulas, and layers with what folds into them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container

from visualquant.align.algebra import Call, Recognizer, Sum, parse
from visualquant.align.families import LINEAR
from visualquant.align.rules import FOLDS_AFTER, FOLDS_BEFORE, FORMULAS, Formula
from visualquant.align.side import Side
from visualquant.align.units import Unit, UnitGraph, UnitId
from visualquant.core.graph import NodeId
from visualquant.core.operators import is_bias_slot

_CLIMB = 8
_SUMS = frozenset({"Add", "Sub"})
_ARITHMETIC = frozenset({"Mul", "Add", "Div", "Sub", "Sqrt", "Reciprocal", "Pow", "Tanh"})


def composed_units(simple: UnitGraph, keep: Container[NodeId] = ()) -> UnitGraph:
    """The unit graph with composed units in place of their parts; units of the nodes in `keep` stay simple."""
    composed: list[Unit] = []
    taken: set[UnitId] = {k for k, u in enumerate(simple.units) if u.node in keep}
    kept = set(taken)
    for unit in (*_formulas(simple, taken), *_layers(simple, taken)):
        composed.append(unit)
    composed += [dataclasses.replace(u, parts=(k,)) for k, u in enumerate(simple.units) if k not in taken or k in kept]
    return UnitGraph(simple.side, composed)


# -- formulas


def _formulas(simple: UnitGraph, taken: set[UnitId]) -> list[Unit]:
    """Formulas put together: each hides what is inside, which nothing else reads."""
    side = simple.side
    recognizer = Recognizer(side)
    of_node = {u.node: k for k, u in enumerate(simple.units)}
    rules: dict[str, list[Formula]] = {}
    for rule in FORMULAS:
        rules.setdefault(rule.trigger, []).append(rule)
    found: list[Unit] = []
    for k, unit in enumerate(simple.units):
        if unit.family not in rules or k in taken or unit.family != side.families[unit.node]:
            continue
        if unit.family == "Add" and len(unit.args) != 1:  # NOTE: sums are many; only x + constant starts a formula
            continue
        candidates = _behind(side, unit.node)
        for rule in rules[unit.family]:
            made = next((m for r in candidates if (m := _try(side, recognizer, rule, r, unit.node)) is not None), None)
            if made is None:
                continue
            result, members = made
            parts = tuple(sorted(of_node[m] for m in members))
            if not taken & set(parts):
                found.append(dataclasses.replace(result, parts=parts))
                taken.update(parts)
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
                    if user not in out and side.families[user] in _ARITHMETIC:
                        out.append(user)
                        following.append(user)
        front = following[:4]
    return out


def _try(
    side: Side, recognizer: Recognizer, rule: Formula, root: NodeId, trigger: NodeId
) -> tuple[Unit, frozenset[NodeId]] | None:
    result = side.outputs(root)[0]
    pattern = parse(rule.text)
    if result is None or (not isinstance(pattern, Call) and (side.families[root] in _SUMS) != isinstance(pattern, Sum)):
        return None
    match = recognizer.find(rule.text, result)
    if match is None or trigger not in match.nodes:
        return None
    for node_id in match.nodes:
        for out in side.outputs(node_id) if node_id != root else ():
            readers = side.users.get(out, ()) if out is not None else ()
            if any(user not in match.nodes for user, _ in readers) or out in side.graph.outputs:
                return None
    data = tuple(side.root(match.bound[name]) for name in ("x", "y", "z") if name in match.bound)
    constants = tuple(sorted(match.constants))
    return Unit(rule.family, root, (), data, (result,), constants, (side.rank[root], 0)), match.nodes


# -- layers


def _layers(simple: UnitGraph, taken: set[UnitId]) -> list[Unit]:
    """Layers with weights, with the padding in front and the bias and BatchNormalization behind."""
    found: list[Unit] = []
    twins = {k: alike for alike in simple.twins for k in alike}
    for k, head in enumerate(simple.units):
        if head.family not in LINEAR or k in taken or not any(_is_matrix(simple, c) for c in head.constants):
            continue
        parts = [k]
        args = head.args
        before = simple.producer.get(args[0]) if args else None
        if before is not None and before not in taken and _folds_before(simple, before, k):
            parts.insert(0, before)
            args = (*simple.units[before].args[:1], *args[1:])
        last, outs = k, head.outs
        # NOTE: a layer that has its bias already stands for a layer and the Add behind it, not for one more Add
        node = simple.side.graph.nodes[head.node]
        biased = any(is_bias_slot(node, slot) and node.input(slot) is not None for _, slot in head.constants)
        while len(copies := _only_reader(simple, twins, last)) > 0 and not (taken.union(parts) & set(copies)):
            unit = simple.units[copies[0]]
            if unit.family not in FOLDS_AFTER or len(unit.args) != 1 or not unit.constants:
                break
            if not all(_is_vector(simple, c) for c in unit.constants):
                break
            if any(simple.units[p].family == unit.family for p in parts) or (unit.family == "Add" and biased):
                break
            parts += copies
            last = copies[0]
            outs = tuple(o for p in copies for o in simple.units[p].outs)
            if len(copies) > 1:
                break
        if len(parts) > 1:
            end = simple.units[last]
            constants = tuple(c for p in parts for c in simple.units[p].constants)
            found.append(Unit(head.family, end.node, tuple(parts), args, outs, constants, end.rank))
            taken.update(parts)
    return found


def _only_reader(simple: UnitGraph, twins: dict[UnitId, tuple[UnitId, ...]], unit: UnitId) -> tuple[UnitId, ...]:
    """The one operation that reads a unit's result, in all its copies; empty where there are more, or none.

    Toolchains write an operation out once for each reader: copies of the reader count as one, and so do readers of
    copies of the unit.
    """
    if any(v in simple.ends for v in simple.units[unit].outs if v is not None):
        return ()
    readers = {k for k, _ in simple.users_of(unit)}
    every = {k for m in twins.get(unit, (unit,)) for k, _ in simple.users_of(m)}
    one = len({twins.get(k, (k,))[0] for k in every}) == 1
    return tuple(sorted(readers)) if one and readers else ()


def _folds_before(simple: UnitGraph, before: UnitId, head: UnitId) -> bool:
    family = simple.units[before].family
    folds = simple.units[head].family in FOLDS_BEFORE.get(family, ())
    return folds and len(simple.units[before].args) == 1 and simple.only_user(before) == head


def _is_matrix(simple: UnitGraph, constant: tuple[NodeId, int]) -> bool:
    shape = _shape(simple, constant)
    return shape is not None and len(shape) >= 2 and math.prod(shape) > 1


def _is_vector(simple: UnitGraph, constant: tuple[NodeId, int]) -> bool:
    """Whether a constant has one value a channel at most; such an operand can be folded into the layer in front."""
    shape = _shape(simple, constant)
    return shape is not None and sum(n > 1 for n in shape) <= 1


def _shape(simple: UnitGraph, constant: tuple[NodeId, int]) -> tuple[int, ...] | None:
    node_id, slot = constant
    operand = simple.side.operands.get(simple.side.graph.nodes[node_id], slot)
    return None if operand is None else operand.shape
