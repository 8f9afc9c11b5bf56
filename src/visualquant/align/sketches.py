"""Fingerprints of weights that survive quantization, transposition, per-channel scaling and folding."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from visualquant.align.elements import finite, spread
from visualquant.align.operands import Operand, Operands
from visualquant.core.graph import NodeId, NodeView

SKETCH_ROWS = 32
SKETCH_COLUMNS = 64
MIN_ELEMENTS = 8
_MANY = 1 << 16
_NEARLY_SAME, _DOUBLE = 0.95, 0.8
_FLAT = 1e-6
_MIN_ROW = 4  # shorter rows say too little once their mean and length are gone

Floats32 = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """What is remembered of one constant operand.

    Attributes:
        node, slot: the reader.
        rows, columns: the canonical matrix, output channels times the rest.
        unit: sampled rows, each with mean 0 and length 1, then the whole of length 1; float32 [k]. Zeros where flat.
        has_identity: False where every value is alike (all ones, all zeros): such a weight says nothing.
    """

    node: NodeId
    slot: int
    rows: int
    columns: int
    unit: Floats32
    has_identity: bool

    @property
    def size(self) -> int:
        """Number of elements of the operand."""
        return self.rows * self.columns

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
        if node.op_type in ("Gemm", "FusedGemm", "QGemm") and rank == 2:
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


def sketch_of(operands: Operands, node: NodeView, op_family: str, slot: int, operand: Operand) -> Sketch | None:
    """The sketch of one operand; None for operands that are too small to say anything."""
    shape = operand.shape
    if math.prod(shape) < MIN_ELEMENTS:
        return None
    order, lead = canonical_index(node, op_family, slot, shape)
    rows = math.prod(shape[k] for k in order[:lead])
    columns = math.prod(shape[k] for k in order[lead:])
    r = spread(rows, SKETCH_ROWS)
    c = spread(columns, SKETCH_COLUMNS if lead else SKETCH_ROWS * SKETCH_COLUMNS)
    index = flat_index(shape, order, columns, r, c)
    got = operands.elements(operand, index.reshape(-1))
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
    sample = finite(sample)
    spread = float(sample.max() - sample.min())
    has_identity = spread > _FLAT * max(float(np.abs(sample).max()), 1e-30)
    if per_row and columns >= _MIN_ROW:
        sample = sample - sample.mean(axis=1, keepdims=True)
        norm = np.sqrt((sample * sample).sum(axis=1, keepdims=True))
        flat = np.divide(sample, norm, out=np.zeros_like(sample), where=norm > 0).reshape(-1)
    else:
        flat = (sample - sample.mean()).reshape(-1)
    length = float(np.sqrt((flat * flat).sum()))
    unit = (flat / length if length > 0 else flat).astype(np.float32)
    return Sketch(node, slot, rows, columns, unit, has_identity and length > 0)


def similarity(a: Sketch, b: Sketch) -> float | None:
    """Cosine of two sketches of one shape class, None where they can't be compared or say nothing."""
    if a.shape_class != b.shape_class or a.unit.shape != b.unit.shape:
        return None
    if not (a.has_identity and b.has_identity):
        return None
    return float(a.unit @ b.unit)


def unique_pairs(
    some: Sequence[tuple[str, int, Sketch]], others: Sequence[tuple[str, int, Sketch]]
) -> list[tuple[float, int, int]]:
    """Pairs whose weights are each other's best with a clear margin, as (similarity, id, other id).

    Args:
        some: (operator family, id, sketch) of one side.
        others: the same of the other side.
    """
    classes: dict[tuple[str, int, int], tuple[list[tuple[int, Sketch]], list[tuple[int, Sketch]]]] = {}
    for which, sketches in enumerate((some, others)):
        for name, key, sketch in sketches:
            if sketch.has_identity and sketch.columns > 1 and sketch.rows > 1:
                group = classes.setdefault((_class_family(name), sketch.rows, sketch.columns), ([], []))
                group[which].append((key, sketch))
    out: list[tuple[float, int, int]] = []
    for _, (left, right) in sorted(classes.items()):
        if len(left) * len(right) > _MANY:
            found = _same_peaks(left, right)
            out += found
            done = {a for _, a, _ in found}, {b for _, _, b in found}
            left = [entry for entry in left if entry[0] not in done[0]]
            right = [entry for entry in right if entry[0] not in done[1]]
        if left and right:
            out += _mutual_best(left, right)
    return out


def _same_peaks(left: list[tuple[int, Sketch]], right: list[tuple[int, Sketch]]) -> list[tuple[float, int, int]]:
    """Pairs of nearly equal sketches among many, without comparing all with all.

    Only sketches whose largest (or smallest) sample stands at the same place are compared. What differs more, or has
    a double, is left for `_mutual_best`.
    """
    a, b = (np.stack([s.unit for _, s in side]) for side in (left, right))
    half = a.shape[1] // 2
    places = (
        (slice(None), np.argmax),
        (slice(None), np.argmin),
        (slice(None, half), np.argmax),
        (slice(half, None), np.argmax),
    )
    out: list[tuple[float, int, int]] = []
    open_left, open_right = set(range(len(left))), set(range(len(right)))
    for where, peak in places:
        buckets: dict[int, tuple[list[int], list[int]]] = {}
        for side, matrix, still in ((0, a, open_left), (1, b, open_right)):
            rows = sorted(still)
            for k, place in zip(rows, peak(matrix[rows][:, where], axis=1) if rows else (), strict=True):
                buckets.setdefault(int(place), ([], []))[side].append(k)
        for some, others in buckets.values():
            if not some or not others:
                continue
            table = a[some] @ b[others].T
            for i, j in zip(*np.nonzero(table >= _NEARLY_SAME), strict=True):
                if (table[i] >= _DOUBLE).sum() == 1 and (table[:, j] >= _DOUBLE).sum() == 1:
                    out.append((float(table[i, j]), left[some[i]][0], right[others[j]][0]))
                    open_left.discard(some[i])
                    open_right.discard(others[j])
    return out


def _class_family(name: str) -> str:
    return "MatMul" if name == "Conv" else name  # NOTE: a Conv of 1×1 and a MatMul have the same canonical matrix


def _mutual_best(
    some: list[tuple[int, Sketch]], others: list[tuple[int, Sketch]], at_least: float = 0.5, margin: float = 0.1
) -> list[tuple[float, int, int]]:
    a = np.stack([s.unit for _, s in some])
    b = np.stack([s.unit for _, s in others])
    best, second, partner = _top_two(a, b)
    _, second_back, partner_back = _top_two(b, a)
    out = []
    for i, j in enumerate(partner):
        rival = max(second[i], second_back[j])
        if partner_back[j] == i and best[i] >= at_least and best[i] - rival >= margin:
            out.append((float(best[i]), some[i][0], others[int(j)][0]))
    return out


def _top_two(a: Floats32, b: Floats32) -> tuple[Floats32, Floats32, npt.NDArray[np.int64]]:
    """For each row of `a`: the best and second best cosine among the rows of `b`, and which is the best."""
    best, second = np.empty(len(a), np.float32), np.full(len(a), -2.0, np.float32)
    partner = np.empty(len(a), np.int64)
    for start in range(0, len(a), 512):
        block = a[start : start + 512] @ b.T
        rows = np.arange(len(block))
        top = block.argmax(axis=1)
        partner[start : start + len(block)] = top
        best[start : start + len(block)] = block[rows, top]
        block[rows, top] = -2.0
        second[start : start + len(block)] = block.max(axis=1)
    return best, second, partner
