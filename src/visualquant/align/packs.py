"""Several layers on one side that are one layer with concatenated weights on the other: QKV, gate and up."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from visualquant.align.elements import finite, spread
from visualquant.align.families import LINEAR
from visualquant.align.operands import Operand
from visualquant.align.sketches import canonical_index, flat_index
from visualquant.align.units import UnitGraph, UnitId
from visualquant.core.graph import NodeId, ValueId

_ROWS = 4
_COLUMNS = 64
_ALIKE = 0.7
_MOST = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Matrix:
    """The weight of one unit as rows (output channels) times columns.

    Attributes:
        unit: the unit.
        node, slot: the reader of the weight.
        rows, columns: of the canonical matrix.
    """

    unit: UnitId
    node: NodeId
    slot: int
    rows: int
    columns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Pack:
    """One packed layer and the layers that it holds.

    Attributes:
        parts: the weights of the single layers in the order of their rows in the packed one.
        whole: the packed weight.
        pieces: units that cut the packed result into the results of `parts`, in that order; empty where nothing does.
        split: (value of the part, value of the piece) where `pieces` are known.
    """

    parts: tuple[Matrix, ...]
    whole: Matrix
    pieces: tuple[UnitId, ...] = ()
    split: tuple[tuple[ValueId, ValueId], ...] = ()


def find_packs(
    single: UnitGraph, packed: UnitGraph, free_single: Iterable[UnitId], free_packed: Iterable[UnitId]
) -> list[Pack]:
    """Packs among units whose weights match no weight as a whole."""
    siblings = _siblings(single, free_single)
    wholes = [m for k in free_packed if (m := _matrix(packed, k)) is not None]
    found: list[Pack] = []
    used: set[UnitId] = set()
    for group in siblings:
        rows, columns = sum(m.rows for m in group), group[0].columns
        fits = [w for w in wholes if (w.rows, w.columns) == (rows, columns) and w.unit not in used]
        scored = [
            (score, w, order)
            for w in fits
            if (best := _fit(single, packed, group, w)) is not None
            for score, order in [best]
        ]
        if not scored:
            continue
        _, whole, order = max(scored, key=lambda s: s[0])
        used.add(whole.unit)
        found.append(_with_pieces(single, packed, Pack(order, whole)))
    return found


def _siblings(units: UnitGraph, free: Iterable[UnitId]) -> list[list[Matrix]]:
    """Layers that read the same value, as many of them as might be packed together."""
    by_input: dict[tuple[ValueId, int], list[Matrix]] = {}
    for k in free:
        matrix = _matrix(units, k)
        if matrix is not None:
            by_input.setdefault((units.units[k].args[0], matrix.columns), []).append(matrix)
    out: list[list[Matrix]] = []
    for group in by_input.values():
        if 2 <= len(group) <= _MOST:
            out.append(group)
            if len(group) > 2:
                out += [list(pair) for pair in itertools.combinations(group, 2)]
    return out


def _matrix(units: UnitGraph, k: UnitId) -> Matrix | None:
    unit = units.units[k]
    if unit.family not in LINEAR or len(unit.args) != 1:
        return None
    side = units.side
    best: Matrix | None = None
    for node_id, slot in unit.constants:
        if side.families[node_id] not in LINEAR:
            continue
        node = side.graph.nodes[node_id]
        operand = side.operands.get(node, slot)
        if operand is None or len(operand.shape) < 2:
            continue
        order, lead = canonical_index(node, side.families[node_id], slot, operand.shape)
        rows = math.prod(operand.shape[a] for a in order[:lead])
        columns = math.prod(operand.shape[a] for a in order[lead:])
        if min(rows, columns) > 1 and (best is None or rows * columns > best.rows * best.columns):
            best = Matrix(k, node_id, slot, rows, columns)
    return best


def _fit(
    single: UnitGraph, packed: UnitGraph, group: Sequence[Matrix], whole: Matrix
) -> tuple[float, tuple[Matrix, ...]] | None:
    """The best order of the single weights within the packed one, with the cosine of the worst of them."""
    samples = {m.unit: _sample(single, m, spread(m.rows, _ROWS)) for m in group}
    best: tuple[float, tuple[Matrix, ...]] | None = None
    for order in itertools.permutations(group):
        start, worst = 0, 1.0
        for matrix in order:
            have, want = samples[matrix.unit], _sample(packed, whole, start + spread(matrix.rows, _ROWS))
            if have is None or want is None:
                return None
            worst = min(worst, _cosine(have, want))
            start += matrix.rows
            if worst < _ALIKE:
                break
        if worst >= _ALIKE and (best is None or worst > best[0]):
            best = (worst, order)
    return best


def _sample(units: UnitGraph, matrix: Matrix, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64] | None:
    side = units.side
    node = side.graph.nodes[matrix.node]
    operand: Operand | None = side.operands.get(node, matrix.slot)
    assert operand is not None
    order, _ = canonical_index(node, side.families[matrix.node], matrix.slot, operand.shape)
    columns = spread(matrix.columns, _COLUMNS)
    index = flat_index(operand.shape, order, matrix.columns, rows, columns)
    got = side.operands.elements(operand, index.reshape(-1))
    return None if got is None else finite(got).reshape(index.shape)


def _cosine(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Mean cosine of the rows."""
    dots = (a * b).sum(axis=1)
    sizes = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return float(np.mean(np.divide(dots, sizes, out=np.zeros_like(dots), where=sizes > 0)))


def _with_pieces(single: UnitGraph, packed: UnitGraph, pack: Pack) -> Pack:
    """Adds the units that cut the packed result, where they are just as many and start in the same order."""
    out = packed.units[pack.whole.unit].outs[0]
    users = [] if out is None else [u for u, _ in packed.users.get(out, [])]
    if len(users) != len(pack.parts) or any(packed.units[u].family != "Slice" for u in users):
        return pack
    starts = {u: packed.units[u].window[1] for u in users if packed.units[u].window is not None}  # type: ignore[index]
    if len(starts) != len(users) or any(s is None for s in starts.values()):
        return pack
    pieces = tuple(sorted(users, key=lambda u: starts[u] or 0))
    split = []
    for matrix, piece in zip(pack.parts, pieces, strict=True):
        x, y = single.units[matrix.unit].outs[0], packed.units[piece].outs[0]
        if x is not None and y is not None:
            split.append((x, y))
    return dataclasses.replace(pack, pieces=pieces, split=tuple(split))
