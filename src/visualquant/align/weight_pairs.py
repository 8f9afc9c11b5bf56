"""Pairs the constant operands of each group: which float tensors a quantized tensor stands for, and how."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from visualquant.align.elements import Floats, Index, behind
from visualquant.align.families import MOVE, is_quiet
from visualquant.align.folds import Folded, batch_norm_factors, row_scales
from visualquant.align.operands import Operand
from visualquant.align.reshapings import Way, ways
from visualquant.align.side import Side
from visualquant.core.alignment import FloatOperand, MatchGroup, WeightPair
from visualquant.core.graph import NodeId, NodeView

_SAMPLES = 2048
_ALIKE = 0.55
_PARAMETERS = frozenset(
    {"Clip", "Pad", "Resize", "QuantizeLinear", "DequantizeLinear", "TopK", "OneHot", "Range", "Dropout"}
)
_CODED = (
    "QLinear",
    "QGemm",
    "QAttention",
    "MatMulNBits",
    "MatMulInteger",
    "DynamicQuantize",
    "ConvInteger",
    "GatherBlock",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Slot:
    """A constant operand of a node in a group."""

    node: NodeView
    family: str
    slot: int
    operand: Operand

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.operand.shape)


@dataclasses.dataclass(frozen=True, slots=True)
class _Candidate:
    score: float
    fit: float
    slot: Slot
    way: Way
    factor: npt.NDArray[np.float64] | None
    transform: str | None


def weight_pairs(
    left: Side,
    right: Side,
    groups: Iterable[MatchGroup],
    ties: Mapping[NodeId, NodeId],
    taken: Iterable[WeightPair] = (),
) -> tuple[WeightPair, ...]:
    """One pair for each constant operand of the quantized side that has a float counterpart in its group.

    Args:
        left, right: the two sides.
        groups: all groups.
        ties: nodes tied one to one, left to right.
        taken: pairs that are known already (packed layers); their quantized operands are left alone.
    """
    out = list(taken)
    known = {pair.quant for pair in out}
    back = {b: a for a, b in ties.items()}
    for group in groups:
        if group.float_nodes and group.quant_nodes:
            floats = slots_of(left, group.float_nodes)
            folded = batch_norm_factors(left, group.float_nodes)
            used: set[tuple[NodeId, int]] = set()
            for wanted in slots_of(right, group.quant_nodes):
                if (wanted.node.id, wanted.slot) in known:
                    continue
                pair = _best(left, right, wanted, floats, folded, used, back.get(wanted.node.id))
                if pair is not None:
                    used.add((pair.floats[0].node, pair.floats[0].slot))
                    out.append(pair)
    return tuple(sorted(out, key=lambda p: p.quant))


def slots_of(side: Side, nodes: Sequence[NodeId]) -> list[Slot]:
    """Constant float operands of layers and of constant look-ups, the largest first."""
    found = []
    for node_id in nodes:
        node = side.graph.nodes[node_id]
        kind = side.kinds[node_id]
        if kind not in ("compute", "static") or (kind == "static" and (node.op_type in MOVE or is_quiet(node.op_type))):
            continue
        data = {arg.slot for arg in side.args[node_id]}
        for slot in range(len(node.inputs)):
            operand = side.operands.get(node, slot) if slot not in data else None
            if operand is not None and _is_weight(side, node, operand):
                found.append(Slot(node, side.families[node_id], slot, operand))
    return sorted(found, key=lambda s: (-s.size, s.node.id, s.slot))


def _is_weight(side: Side, node: NodeView, operand: Operand) -> bool:
    """Float numbers of the model, not parameters of operators, nor scales and zero points."""
    if operand.site is not None:
        return True
    if node.op_type in _PARAMETERS or node.op_type.startswith(_CODED) or operand.value is None:
        return False
    dtype = side.graph.values[side.inner(operand.value)].dtype
    return dtype is None or dtype.is_float


def _best(
    left: Side,
    right: Side,
    wanted: Slot,
    floats: list[Slot],
    folded: Folded,
    used: set[tuple[NodeId, int]],
    tied: NodeId | None,
) -> WeightPair | None:
    index = sample_index(wanted.size)
    got = right.operands.elements(wanted.operand, index)
    best: _Candidate | None = None
    for slot in floats:
        if slot.size != wanted.size:
            continue
        for way in ways(slot, wanted):
            have = left.operands.elements(slot.operand, behind(way.steps, slot.operand.shape, index))
            for factor, transform in _factors(folded, slot, wanted, way):
                fit = _fit(have, got, factor, wanted.operand.shape, index)
                alike = slot.node.id == tied or (slot.family == wanted.family and slot.slot == wanted.slot)
                score = fit + 0.3 * (slot.node.id == tied) + 0.1 * alike + 0.1 * way.expected
                score -= 0.5 * ((slot.node.id, slot.slot) in used)
                if fit < _ALIKE and not alike:
                    continue
                if best is None or score > best.score:
                    best = _Candidate(score, fit, slot, way, factor, transform)
    if best is None:
        return None
    if best.fit < _ALIKE and best.factor is None and got is not None:
        have = left.operands.elements(best.slot.operand, behind(best.way.steps, best.slot.operand.shape, index))
        scales = row_scales(left, right, best.slot, wanted, best.way) if have is not None else None
        if scales is not None:
            best = dataclasses.replace(best, factor=scales, transform="rescaled", fit=1.0)
    return WeightPair(
        (wanted.node.id, wanted.slot),
        (FloatOperand(best.slot.node.id, best.slot.slot, best.way.steps),),
        factor=best.factor,
        transform=best.transform,
        evidence=("weights",) if best.fit >= _ALIKE else ("topology",),
    )


def _factors(
    folded: Folded, slot: Slot, wanted: Slot, way: Way
) -> list[tuple[npt.NDArray[np.float64] | None, str | None]]:
    """No factor, and what a BatchNormalization behind the float layer multiplies in."""
    out: list[tuple[npt.NDArray[np.float64] | None, str | None]] = [(None, way.transform)]
    factor = folded.get(slot.node.id)
    axis = way.rows_axis
    if factor is not None and axis is not None and wanted.operand.shape[axis] == len(factor):
        shape = [len(factor) if k == axis else 1 for k in range(len(wanted.operand.shape))]
        out.append((factor.reshape(shape), "bn_folded"))
    return out


def sample_index(size: int) -> Index:
    """Evenly spread flat positions."""
    return np.unique(np.linspace(0, max(size - 1, 0), min(size, _SAMPLES)).astype(np.int64))


def _fit(
    have: Floats | None,
    got: Floats | None,
    factor: npt.NDArray[np.float64] | None,
    shape: tuple[int, ...],
    index: Index,
) -> float:
    """How well sampled float values explain sampled quantized ones, 0..1: direction and size count alike."""
    if have is None or got is None or not len(index):
        return 0.0
    if factor is not None:
        have = have * np.broadcast_to(factor, shape)[np.unravel_index(index, shape)]
    a, b = np.nan_to_num(have), np.nan_to_num(got)
    largest = max(float(np.abs(a).max()), float(np.abs(b).max()))
    if largest == 0:
        return 1.0
    a, b = a / largest, b / largest
    size = math.sqrt(float((a * a).sum()) * float((b * b).sum()))
    if size == 0:
        return 0.0
    error = math.sqrt(float(((a - b) ** 2).sum()) / max(float((a * a).sum()), float((b * b).sum())))
    return 0.5 * max(float((a * b).sum()) / size, 0.0) + 0.5 * max(1.0 - error, 0.0)
