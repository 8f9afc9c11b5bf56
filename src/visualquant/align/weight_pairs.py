"""Pairs the constant operands of each group: which float tensors a quantized tensor stands for, and how."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from visualquant.align.operands import Operand
from visualquant.align.side import Side
from visualquant.core.alignment import FloatOperand, MatchGroup, WeightPair
from visualquant.core.graph import NodeId, NodeView
from visualquant.core.quant import ViewStep

_SAMPLES = 2048
_ALIKE = 0.6


@dataclasses.dataclass(frozen=True, slots=True)
class _Slot:
    node: NodeView
    family: str
    slot: int
    operand: Operand

    @property
    def size(self) -> int:
        return math.prod(self.operand.shape)


def weight_pairs(
    left: Side, right: Side, groups: tuple[MatchGroup, ...], ties: dict[NodeId, NodeId]
) -> tuple[WeightPair, ...]:
    """One pair for each constant operand of the quantized side that has a float counterpart in its group."""
    out: list[WeightPair] = []
    back = {b: a for a, b in ties.items()}
    for group in groups:
        if not group.float_nodes or not group.quant_nodes:
            continue
        floats = _slots(left, group.float_nodes)
        used: set[tuple[NodeId, int]] = set()
        for wanted in _slots(right, group.quant_nodes):
            tied = back.get(wanted.node.id)
            pair = _best(left, right, wanted, floats, used, tied)
            if pair is not None:
                used.add((pair.floats[0].node, pair.floats[0].slot))
                out.append(pair)
    return tuple(sorted(out, key=lambda p: p.quant))


def _slots(side: Side, nodes: tuple[NodeId, ...]) -> list[_Slot]:
    """Constant float operands of compute nodes, largest first."""
    found = []
    for node_id in nodes:
        if side.kinds[node_id] != "compute":
            continue
        node = side.graph.nodes[node_id]
        data = {arg.slot for arg in side.args[node_id]}
        for slot in range(len(node.inputs)):
            if slot in data:
                continue
            operand = side.operands.get(node, slot)
            if operand is not None and _is_float(side, operand) and not _is_parameter(node, slot, operand):
                found.append(_Slot(node, side.families[node_id], slot, operand))
    return sorted(found, key=lambda s: (-s.size, s.node.id, s.slot))


def _is_float(side: Side, operand: Operand) -> bool:
    if operand.site is not None:
        return True
    assert operand.value is not None
    dtype = side.graph.values[operand.value].dtype
    return dtype is None or dtype.is_float


def _is_parameter(node: NodeView, slot: int, operand: Operand) -> bool:
    """Scales and zero points of integer operators are no weights of the model."""
    if operand.site is not None:
        return False
    return node.op_type.startswith(("QLinear", "QGemm", "QAttention")) or node.op_type in (
        "MatMulNBits",
        "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul",
        "ConvInteger",
        "MatMulInteger",
        "Clip",
        "Pad",
        "Resize",
    )


def _best(
    left: Side, right: Side, wanted: _Slot, floats: list[_Slot], used: set[tuple[NodeId, int]], tied: NodeId | None
) -> WeightPair | None:
    best: tuple[float, WeightPair] | None = None
    index = _sample_index(wanted.size)
    got = right.operands.elements(wanted.operand, index)
    for candidate in floats:
        if candidate.size != wanted.size or wanted.size == 0:
            continue
        for steps, transform in _ways(candidate.operand.shape, wanted.operand.shape):
            fit = _fit(left, candidate, steps, wanted, index, got)
            score = fit
            score += 0.3 * (candidate.node.id == tied) + 0.05 * (transform is None)
            score -= 0.5 * ((candidate.node.id, candidate.slot) in used)
            if fit < _ALIKE and candidate.node.id != tied and transform is not None:
                continue
            evidence = ("weights",) if fit >= _ALIKE else ("topology",)
            pair = WeightPair(
                (wanted.node.id, wanted.slot),
                (FloatOperand(candidate.node.id, candidate.slot, steps),),
                transform=transform,
                evidence=evidence,
            )
            if best is None or score > best[0]:
                best = (score, pair)
    return None if best is None else best[1]


def _sample_index(size: int) -> npt.NDArray[np.int64]:
    return np.unique(np.linspace(0, max(size - 1, 0), min(size, _SAMPLES)).astype(np.int64))


def _ways(source: tuple[int, ...], target: tuple[int, ...]) -> list[tuple[tuple[ViewStep, ...], str | None]]:
    """The ways in which a float operand of one shape can become one of another."""
    ways: list[tuple[tuple[ViewStep, ...], str | None]] = []
    if source == target:
        ways.append(((), None))
    else:
        ways.append(((ViewStep("reshape", target),), "reshaped"))
    if len(source) == 2 and source[0] > 1 and source[1] > 1:
        turned = (source[1], source[0])
        step = ViewStep("transpose", (1, 0))
        if turned == target:
            ways.append(((step,), "transposed"))
        elif turned != source:
            ways.append(((step, ViewStep("reshape", target)), "transposed"))
    return ways


def _fit(
    left: Side,
    candidate: _Slot,
    steps: tuple[ViewStep, ...],
    wanted: _Slot,
    index: npt.NDArray[np.int64],
    got: npt.NDArray[np.float64] | None,
) -> float:
    """Cosine between the sampled float operand after its steps and the quantized one."""
    if got is None or not len(index):
        return 0.0
    back = index
    shape = wanted.operand.shape
    for step in reversed(steps):
        if step.kind == "transpose":
            before = tuple(shape[step.args.index(k)] for k in range(len(shape)))
            coords = np.unravel_index(back, shape)
            back = np.ravel_multi_index(tuple(coords[step.args.index(k)] for k in range(len(shape))), before).astype(
                np.int64
            )
            shape = before
        elif step.kind == "reshape" and step is not steps[0]:
            shape = (candidate.operand.shape[1], candidate.operand.shape[0])
        else:
            shape = candidate.operand.shape
    have = left.operands.elements(candidate.operand, back)
    if have is None:
        return 0.0
    a, b = np.nan_to_num(have), np.nan_to_num(got)
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    if size == 0:
        return 1.0 if not a.any() and not b.any() else 0.0
    return float((a * b).sum() / size)
