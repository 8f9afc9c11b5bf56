"""Pairs the constant operands of each group: which float tensors a quantized tensor stands for, and how."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from visualquant.align.elements import Floats, Index, behind, finite, spread
from visualquant.align.families import LINEAR, MOVE, is_quiet
from visualquant.align.folds import folded_norms
from visualquant.align.operands import Operand
from visualquant.align.rescaling import with_rescaling
from visualquant.align.reshapings import Way, ways
from visualquant.align.side import Side
from visualquant.core.alignment import FloatOperand, MatchGroup, WeightPair
from visualquant.core.graph import NodeId, NodeView
from visualquant.core.quant import ViewStep

_SAMPLES = 1024
_ALIKE = 0.55
_TINY = 1e-6
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
        left: the float side.
        right: the quantized side.
        groups: all groups.
        ties: nodes tied one to one, left to right.
        taken: pairs that are known already (packed layers); their quantized operands are left alone.
    """
    out = list(taken)
    known = {pair.quant for pair in out}
    back = {b: a for a, b in ties.items()}
    for group in groups:
        if group.float_nodes and group.quant_nodes:
            wanted = [s for s in slots_of(right, group.quant_nodes) if (s.node.id, s.slot) not in known]
            if wanted:
                out += _GroupPairs(left, right, group, back).pairs(wanted)
    return tuple(sorted(with_rescaling(left, right, out), key=lambda p: p.quant))


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
    dtype = side.graph.values[side.graph.inner(operand.value)].dtype
    return dtype is None or dtype.is_float


class _GroupPairs:
    """Pairs of one group."""

    def __init__(self, left: Side, right: Side, group: MatchGroup, back: Mapping[NodeId, NodeId]) -> None:
        self.left, self.right, self.back = left, right, back
        self.floats = slots_of(left, group.float_nodes)
        self.folded = folded_norms(left, group.float_nodes)
        self.unfolded = folded_norms(right, group.quant_nodes)
        self.used: set[tuple[NodeId, int]] = set()

    def pairs(self, wanted: Sequence[Slot]) -> list[WeightPair]:
        """One pair for each operand that has a counterpart, the largest first."""
        out = []
        for slot in wanted:
            best = self._folded_bias(slot) if self.folded and not self.unfolded else None
            best = best or self._best(slot)
            if best is None:
                continue
            self.used.add((best.slot.node.id, best.slot.slot))
            out.append(
                WeightPair(
                    (slot.node.id, slot.slot),
                    (FloatOperand(best.slot.node.id, best.slot.slot, best.way.steps),),
                    factor=best.factor,
                    transform=best.transform,
                    evidence=("weights",) if best.fit >= _ALIKE else ("topology",),
                )
            )
        return out

    def _best(self, wanted: Slot) -> _Candidate | None:
        index = spread(wanted.size, _SAMPLES)
        got = self.right.operands.elements(wanted.operand, index)
        tied = self.back.get(wanted.node.id)
        best: _Candidate | None = None
        for slot in self.floats:
            if slot.size != wanted.size:
                continue
            alike = slot.node.id == tied or (slot.family == wanted.family and slot.slot == wanted.slot)
            for way in ways(slot, wanted):
                have = self.left.operands.elements(slot.operand, behind(way.steps, slot.operand.shape, index))
                for factor, transform in self._factors(slot, wanted, way):
                    fit = _fit(have, got, factor, wanted.operand.shape, index)
                    score = fit + 0.3 * (slot.node.id == tied) + 0.1 * alike + 0.1 * way.expected
                    score -= 0.5 * ((slot.node.id, slot.slot) in self.used)
                    if (fit >= _ALIKE or alike) and (best is None or score > best.score):
                        best = _Candidate(score, fit, slot, way, factor, transform)
        return best

    def _factors(self, slot: Slot, wanted: Slot, way: Way) -> list[tuple[npt.NDArray[np.float64] | None, str | None]]:
        """No factor, and what a BatchNormalization behind one of the two layers multiplies in."""
        out: list[tuple[npt.NDArray[np.float64] | None, str | None]] = [(None, way.transform)]
        shape = wanted.operand.shape
        for norms, node_id, sign in ((self.folded, slot.node.id, 1), (self.unfolded, wanted.node.id, -1)):
            norm = norms.get(node_id)
            axis = way.rows_axis
            if norm is None or axis is None or len(shape) < 2 or shape[axis] != len(norm.factor):
                continue
            if sign < 0 and not np.all(norm.factor):
                continue
            along = (norm.factor if sign > 0 else 1 / norm.factor).reshape(
                [-1 if k == axis else 1 for k in range(len(shape))]
            )
            if way.transform == "re_blocked":
                along = np.broadcast_to(along, shape)
                for step in way.steps:
                    along = step.apply(along)
            out.append((along, "bn_folded" if sign > 0 else "bn_unfolded"))
        return out

    def _folded_bias(self, wanted: Slot) -> _Candidate | None:
        """A bias into which a BatchNormalization went: as the norm's own shift times what makes it so."""
        if wanted.family not in LINEAR or len([n for n in wanted.operand.shape if n > 1]) > 1 or wanted.slot == 1:
            return None
        for norm in self.folded.values():
            shift = next((s for s in self.floats if (s.node.id, s.slot) == (norm.node, 2)), None)
            if shift is None or shift.size != wanted.size or norm.bias is None:
                continue
            own = self.left.operands.elements(shift.operand, np.arange(shift.size, dtype=np.int64))
            if own is None or np.abs(own).min() < _TINY * max(float(np.abs(own).max()), 1e-30):
                return None
            factor = (norm.bias / own).reshape(wanted.operand.shape)
            steps = () if shift.operand.shape == wanted.operand.shape else (ViewStep("reshape", wanted.operand.shape),)
            return _Candidate(1.0, 1.0, shift, Way(steps, None, True, None), factor, "bn_folded")
        return None


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
    a, b = finite(have), finite(got)
    largest = max(float(np.abs(a).max()), float(np.abs(b).max()))
    if largest == 0:
        return 1.0
    a, b = a / largest, b / largest
    size = math.sqrt(float((a * a).sum()) * float((b * b).sum()))
    if size == 0:
        return 0.0
    error = math.sqrt(float(((a - b) ** 2).sum()) / max(float((a * a).sum()), float((b * b).sum())))
    return 0.5 * max(float((a * b).sum()) / size, 0.0) + 0.5 * max(1.0 - error, 0.0)
