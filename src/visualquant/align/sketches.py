"""Fingerprints of weights that survive quantization, transposition, per-channel scaling and folding."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from visualquant.align.folding import Folder, Operand
from visualquant.align.side import Side
from visualquant.core.graph import NodeId, NodeView

SKETCH_ROWS = 32
SKETCH_COLUMNS = 64
MIN_ELEMENTS = 8
_FLAT = 1e-6

Floats32 = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """What is remembered of one constant operand.

    Attributes:
        node, slot: the reader.
        rows, columns: the canonical matrix, output channels times the rest.
        unit: sampled rows, each scaled to length 1, then the whole to length 1; float32 [k]. Zeros where flat.
        has_identity: False where every value is alike (all ones, all zeros): such a weight says nothing.
    """

    node: NodeId
    slot: int
    rows: int
    columns: int
    unit: Floats32
    has_identity: bool

    @property
    def shape_class(self) -> tuple[int, int]:
        """Sketches are compared within this class only."""
        return self.rows, self.columns


def canonical_index(node: NodeView, op_family: str, slot: int, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """(order of axes, number of leading ones that count output channels) of an operand's canonical matrix."""
    rank = len(shape)
    axes = tuple(range(rank))
    if rank < 2:
        return axes, 0
    if op_family == "MatMul":
        if node.op_type == "MatMulNBits":
            return axes, 1
        if node.op_type in ("Gemm", "FusedGemm", "QGemm"):
            transposed = node.int_attribute("transB" if slot != 0 else "transA", 0) == 1
            out_first = transposed if slot != 0 else not transposed
            return (axes, 1) if out_first else ((1, 0), 1)
        if slot == 0:
            return (rank - 2, *axes[: rank - 2], rank - 1), 1
        if node.int_attribute("transB", 0) == 1:
            return (rank - 2, *axes[: rank - 2], rank - 1), 1
        return (rank - 1, *axes[: rank - 1]), 1
    if op_family == "ConvTranspose":
        return (1, 0, *axes[2:]), 1
    if op_family in ("LSTM", "GRU", "RNN"):
        return axes, 2
    return axes, 1


def sketch_of(folder: Folder, node: NodeView, op_family: str, slot: int, operand: Operand) -> Sketch | None:
    """The sketch of one operand; None for operands that are too small to say anything."""
    shape = operand.shape
    if math.prod(shape) < MIN_ELEMENTS:
        return None
    order, lead = canonical_index(node, op_family, slot, shape)
    rows = math.prod(shape[k] for k in order[:lead])
    columns = math.prod(shape[k] for k in order[lead:])
    r = np.unique(np.linspace(0, rows - 1, min(rows, SKETCH_ROWS)).astype(np.int64))
    c = np.unique(
        np.linspace(0, columns - 1, min(columns, SKETCH_COLUMNS if lead else SKETCH_ROWS * SKETCH_COLUMNS)).astype(
            np.int64
        )
    )
    index = flat_index(shape, order, columns, r, c)
    got = folder.elements(operand, index.reshape(-1))
    if got is None:
        return None
    return _sketch(node.id, slot, rows, columns, got.reshape(index.shape), per_row=columns > 1)


def flat_index(
    shape: tuple[int, ...], order: tuple[int, ...], columns: int, r: npt.NDArray[np.int64], c: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Flat positions in an operand of (row, column) pairs of its canonical matrix, [rows, columns]."""
    canonical = (r[:, None] * columns + c[None, :]).reshape(-1)
    coords = np.unravel_index(canonical, tuple(shape[k] for k in order)) if shape else ()
    back = [np.zeros(0, np.int64)] * len(order)
    for k, axis in enumerate(order):
        back[axis] = np.asarray(coords[k], np.int64)
    flat = np.zeros(canonical.shape, np.int64)
    for coordinate, size in zip(back, shape, strict=True):
        flat = flat * size + coordinate
    return flat.reshape(len(r), len(c))


def _sketch(node: NodeId, slot: int, rows: int, columns: int, sample: npt.NDArray[np.float64], per_row: bool) -> Sketch:
    sample = np.nan_to_num(sample, nan=0.0, posinf=0.0, neginf=0.0)
    spread = float(sample.max() - sample.min())
    has_identity = spread > _FLAT * max(float(np.abs(sample).max()), 1e-30)
    if per_row and columns > 1:
        norm = np.sqrt((sample * sample).sum(axis=1, keepdims=True))
        sample = np.divide(sample, norm, out=np.zeros_like(sample), where=norm > 0)
    flat = sample.reshape(-1)
    if not per_row or rows == 1:
        flat = flat - flat.mean()
    length = float(np.sqrt((flat * flat).sum()))
    unit = (flat / length if length > 0 else flat).astype(np.float32)
    return Sketch(node, slot, rows, columns, unit, has_identity and length > 0)


def side_sketches(side: Side) -> dict[NodeId, list[Sketch]]:
    """The sketches of every compute node's constant operands, in slot order."""
    found: dict[NodeId, list[Sketch]] = {}
    for node_id in side.compute:
        node = side.graph.nodes[node_id]
        data = {arg.slot for arg in side.args[node_id]}
        mine = []
        for slot in range(len(node.inputs)):
            if slot in data:
                continue
            operand = side.folder.operand(node, slot)
            if operand is None:
                continue
            sketch = sketch_of(side.folder, node, side.families[node_id], slot, operand)
            if sketch is not None:
                mine.append(sketch)
        if mine:
            found[node_id] = mine
    return found


def similarity(a: Sketch, b: Sketch) -> float | None:
    """Cosine of two sketches of one shape class, None where they can't be compared or say nothing."""
    if a.shape_class != b.shape_class or a.unit.shape != b.unit.shape:
        return None
    if not (a.has_identity and b.has_identity):
        return None
    return float(a.unit @ b.unit)


def main_sketch(sketches: list[Sketch]) -> Sketch:
    """The largest operand of a node, the first of equals."""
    return max(sketches, key=lambda s: (s.rows * s.columns, -s.slot))


def seed_pairs(
    left: dict[NodeId, list[Sketch]], right: dict[NodeId, list[Sketch]], left_side: Side, right_side: Side
) -> list[tuple[float, NodeId, NodeId]]:
    """Pairs of nodes whose main weights are each other's best, with a clear margin, as (similarity, left, right)."""
    classes: dict[tuple[str, int, int], tuple[list[Sketch], list[Sketch]]] = {}
    for which, (side, sketches) in enumerate(((left_side, left), (right_side, right))):
        for node_id, mine in sketches.items():
            main = main_sketch(mine)
            if main.has_identity and main.columns > 1 and main.rows > 1:
                key = (_class_family(side.families[node_id]), main.rows, main.columns)
                classes.setdefault(key, ([], []))[which].append(main)
    out: list[tuple[float, NodeId, NodeId]] = []
    for _, (some, others) in sorted(classes.items()):
        if some and others:
            out += _mutual_best(some, others)
    return out


def _class_family(name: str) -> str:
    return "MatMul" if name == "Conv" else name  # NOTE: a Conv of 1×1 and a MatMul have the same canonical matrix


def _mutual_best(
    some: list[Sketch], others: list[Sketch], at_least: float = 0.5, margin: float = 0.1
) -> list[tuple[float, NodeId, NodeId]]:
    a = np.stack([s.unit for s in some])
    b = np.stack([s.unit for s in others])
    best_ab, second_ab = np.full(len(some), -2.0), np.full(len(some), -2.0)
    arg_ab = np.zeros(len(some), np.int64)
    best_ba, second_ba = np.full(len(others), -2.0), np.full(len(others), -2.0)
    arg_ba = np.zeros(len(others), np.int64)
    for start in range(0, len(some), 512):
        block = a[start : start + 512] @ b.T
        rows = slice(start, start + len(block))
        arg_ab[rows] = block.argmax(axis=1)
        top = (
            np.partition(block, -2, axis=1)[:, -2:]
            if block.shape[1] > 1
            else np.c_[np.full(len(block), -2.0), block[:, 0]]
        )
        second_ab[rows], best_ab[rows] = top[:, 0], top[:, 1]
        column_best = block.argmax(axis=0)
        column_top = block[column_best, np.arange(block.shape[1])]
        column_second = np.full(block.shape[1], -2.0)
        if len(block) > 1:
            column_second = np.partition(block, -2, axis=0)[-2]
        better = column_top > best_ba
        second_ba = np.where(better, np.maximum(best_ba, column_second), np.maximum(second_ba, column_top))
        arg_ba = np.where(better, start + column_best, arg_ba)
        best_ba = np.where(better, column_top, best_ba)
    out = []
    for i, j in enumerate(arg_ab):
        sure = best_ab[i] >= at_least and best_ab[i] - max(second_ab[i], second_ba[j]) >= margin
        if arg_ba[j] == i and sure:
            out.append((float(best_ab[i]), some[i].node, others[int(j)].node))
    return out
