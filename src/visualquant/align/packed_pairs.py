"""Weight pairs of packed layers: several float tensors in one quantized one, or pieces of one float tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from visualquant.align.matched import Binding
from visualquant.align.packs import Matrix
from visualquant.align.reshapings import output_axis, ways
from visualquant.align.side import Side
from visualquant.align.units import UnitGraph, UnitId
from visualquant.align.weight_pairs import Slot
from visualquant.core.alignment import FloatOperand, WeightPair
from visualquant.core.graph import NodeId
from visualquant.core.quant import ViewStep

_EVIDENCE = ("weights",)


def packed_pairs(
    left: Side, right: Side, bindings: Iterable[Binding], coarse: tuple[UnitGraph, UnitGraph]
) -> list[WeightPair]:
    """Pairs for the weights of all packed layers, and for their biases where each part has just one."""
    out: list[WeightPair] = []
    for binding in bindings:
        if not binding.floats or not binding.quants:
            continue
        floats = [_matrix_slot(left, m) for m in binding.floats]
        quants = [_matrix_slot(right, m) for m in binding.quants]
        out += _pairs(floats, quants)
        vectors = (
            [_vector(left, coarse[0], m) for m in binding.floats],
            [_vector(right, coarse[1], m) for m in binding.quants],
        )
        some, others = [v for v in vectors[0] if v is not None], [v for v in vectors[1] if v is not None]
        if len(some) == len(floats) and len(others) == len(quants):
            out += _pairs(some, others)
    return out


def _pairs(floats: Sequence[Slot], quants: Sequence[Slot]) -> list[WeightPair]:
    if len(quants) == 1:
        return _concatenated(floats, quants[0])
    return _sliced(floats[0], quants) if len(floats) == 1 else []


def _concatenated(floats: Sequence[Slot], whole: Slot) -> list[WeightPair]:
    axis = output_axis(whole)
    if axis is None:
        return []
    parts = []
    for slot in floats:
        piece = _piece(whole, axis, slot)
        way = next((w for w in ways(slot, piece) if w.expected), None)
        if way is None:
            return []
        parts.append(FloatOperand(slot.node.id, slot.slot, way.steps))
    return [WeightPair((whole.node.id, whole.slot), tuple(parts), axis, None, "concatenated", _EVIDENCE)]


def _sliced(whole: Slot, quants: Sequence[Slot]) -> list[WeightPair]:
    axis = output_axis(whole)
    if axis is None:
        return []
    out, start = [], 0
    for slot in quants:
        piece = _piece(whole, axis, slot)
        way = next((w for w in ways(piece, slot) if w.expected), None)
        if way is None:
            return []
        end = start + piece.operand.shape[axis]
        cut = ViewStep("slice", (axis, start, end))
        operand = FloatOperand(whole.node.id, whole.slot, (cut, *way.steps))
        out.append(WeightPair((slot.node.id, slot.slot), (operand,), None, None, "sliced", _EVIDENCE))
        start = end
    return out


def _piece(whole: Slot, axis: int, part: Slot) -> Slot:
    """A stand-in for what `part` is of `whole`, cut along the output axis; only its shape counts."""
    own = output_axis(part)
    size = part.operand.shape[own] if own is not None else part.size
    shape = tuple(size if k == axis else n for k, n in enumerate(whole.operand.shape))
    return Slot(whole.node, whole.family, whole.slot, dataclasses.replace(whole.operand, shape=shape))


def _matrix_slot(side: Side, matrix: Matrix) -> Slot:
    return _slot(side, matrix.node, matrix.slot)


def _slot(side: Side, node_id: NodeId, slot: int) -> Slot:
    node = side.graph.nodes[node_id]
    operand = side.operands.get(node, slot)
    assert operand is not None
    return Slot(node, side.families[node_id], slot, operand)


def _vector(side: Side, units: UnitGraph, matrix: Matrix) -> Slot | None:
    """The one bias of a layer, None where there is none or several."""
    unit: UnitId = matrix.unit
    found = []
    for node_id, slot in units.units[unit].constants:
        if (node_id, slot) == (matrix.node, matrix.slot):
            continue
        operand = side.operands.get(side.graph.nodes[node_id], slot)
        if (
            operand is not None
            and max(operand.shape, default=0) == matrix.rows
            and _slot(side, node_id, slot).size == matrix.rows
        ):
            found.append(_slot(side, node_id, slot))
    return found[0] if len(found) == 1 else None
