"""Channel factors that equalisation or smoothing moved from one layer to the next.

A factor that stands alone is an error of the quantizer and must stay visible; one that another layer takes back
(rows of one weight times s, columns of the next times 1/s, or the gain of a norm) changed nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from visualquant.align.elements import Floats, behind, finite, spread
from visualquant.align.operands import Operand
from visualquant.align.side import Side
from visualquant.align.sketches import flat_index
from visualquant.core.alignment import WeightPair
from visualquant.core.graph import NodeId

_COLUMNS = 64
_UNEQUAL = 0.1
_EXPLAINED = 0.3
_TAKEN_BACK = 0.05
_POOR = 0.15
_OPPOSITE = 0.9
_FEW = 4


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Scales:
    """Factors along one axis that explain a pair better than none."""

    pair: int
    axis: int
    values: npt.NDArray[np.float64]


def with_rescaling(left: Side, right: Side, pairs: Sequence[WeightPair]) -> list[WeightPair]:
    """The pairs, with `factor` and transform "rescaled" where moved channel factors explain a difference."""
    found: list[_Scales] = []
    vectors: dict[int, Floats] = {}
    for k, pair in enumerate(pairs):
        if len(pair.floats) != 1 or pair.factor is not None or pair.transform == "re_blocked":
            continue
        shape = _operand(right, *pair.quant).shape
        if sum(n > 1 for n in shape) == 1:
            ratio = _ratio(left, right, pair)
            if ratio is not None:
                vectors[k] = ratio
        elif len(shape) >= 2:
            found += _explaining(left, right, k, pair)
    out = list(pairs)
    rows: dict[NodeId, npt.NDArray[np.float64]] = {}
    for scales in found:
        others = [s.values for s in found if s.pair != scales.pair] + list(vectors.values())
        if any(_take_back(scales.values, o) for o in others) and out[scales.pair].factor is None:
            shape = _operand(right, *pairs[scales.pair].quant).shape
            factor = scales.values.reshape([-1 if k == scales.axis else 1 for k in range(len(shape))])
            out[scales.pair] = dataclasses.replace(pairs[scales.pair], factor=factor, transform="rescaled")
            rows[pairs[scales.pair].quant[0]] = scales.values
    accepted = list(rows.values())
    for k, ratio in vectors.items():
        node = pairs[k].quant[0]
        along = rows.get(node)
        if along is None or not _same(along, ratio):
            along = next((1 / v for v in accepted if _take_back(v, ratio)), None)
        if along is not None:
            shape = _operand(right, *pairs[k].quant).shape
            out[k] = dataclasses.replace(pairs[k], factor=along.reshape(shape), transform="rescaled")
    return out


def _operand(side: Side, node_id: NodeId, slot: int) -> Operand:
    operand = side.operands.get(side.graph.nodes[node_id], slot)
    assert operand is not None
    return operand


def _take_back(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> bool:
    """Whether one set of factors is the inverse of the other, and more than the noise of coarse codes."""
    if len(a) != len(b) or len(a) < _FEW or np.any(a <= 0) or np.any(b <= 0):
        return False
    x, y = np.log(a), np.log(b)
    size = float(x.std() * y.std())
    if x.std() < _UNEQUAL or size == 0:
        return False
    opposite = np.mean((x - x.mean()) * (y - y.mean())) / size < -_OPPOSITE
    return bool(opposite and np.median(np.abs(a * b - 1)) < _TAKEN_BACK)


def _same(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> bool:
    return len(a) == len(b) and bool(np.median(np.abs(a - b)) < _TAKEN_BACK)


def _values(left: Side, right: Side, pair: WeightPair, index: npt.NDArray[np.int64]) -> tuple[Floats, Floats] | None:
    floats = pair.floats[0]
    source, target = _operand(left, floats.node, floats.slot), _operand(right, *pair.quant)
    have = left.operands.elements(source, behind(floats.steps, source.shape, index))
    got = right.operands.elements(target, index)
    return None if have is None or got is None else (finite(have), finite(got))


def _ratio(left: Side, right: Side, pair: WeightPair) -> npt.NDArray[np.float64] | None:
    """Quantized over float for a vector (a gain, a bias), 1 where the float value is 0; None where all are 1."""
    size = int(np.prod(_operand(right, *pair.quant).shape))
    values = _values(left, right, pair, np.arange(size, dtype=np.int64))
    if values is None:
        return None
    a, b = values
    ratio = np.divide(b, a, out=np.ones_like(a), where=np.abs(a) > 1e-12)
    return ratio if np.abs(ratio - 1).max() > _UNEQUAL else None


def _explaining(left: Side, right: Side, number: int, pair: WeightPair) -> list[_Scales]:
    shape = _operand(right, *pair.quant).shape
    size = int(np.prod(shape))
    values = _values(left, right, pair, spread(size, 512))
    if values is None or np.sqrt(((values[0] - values[1]) ** 2).sum()) <= _POOR * np.sqrt((values[1] ** 2).sum()):
        return []
    found = []
    for axis in range(len(shape)):
        if shape[axis] < 2:
            continue
        rest = size // shape[axis]
        picked = spread(rest, _COLUMNS)
        order = (axis, *(k for k in range(len(shape)) if k != axis))
        index = flat_index(shape, order, rest, np.arange(shape[axis], dtype=np.int64), picked).reshape(-1)
        values = _values(left, right, pair, index)
        if values is None:
            return []
        a, b = (x.reshape(shape[axis], len(picked)) for x in values)
        power = (a * a).sum(axis=1)
        scale = np.divide((a * b).sum(axis=1), power, out=np.ones(len(a)), where=power > 0)
        total = max(float((b * b).sum()), 1e-300)
        before, after = (float(np.sqrt(((a * f - b) ** 2).sum() / total)) for f in (1.0, scale[:, None]))
        if after < _EXPLAINED and after < before / 2 and np.abs(scale - 1).max() > _UNEQUAL:
            found.append(_Scales(number, axis, scale))
    return found
