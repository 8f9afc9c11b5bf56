"""Which tensors of two models hold the same value, from one run over the same samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Unit = npt.NDArray[np.float32]
POSITIONS = 4096
AT_LEAST = 0.95
# The second best must be this much further from perfect than the best: neighbours in a residual stream look alike.
MARGIN = 4.0
MOST_AT_ONCE = 4000


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Print:
    """What is kept of one tensor.

    Attributes:
        key: of the value.
        shape: of the tensor.
        unit: elements at fixed positions, mean 0 and length 1.
    """

    key: Hashable
    shape: tuple[int, ...]
    unit: Unit


def print_of(key: Hashable, array: Array) -> Print | None:
    """The print of a tensor; None where it says nothing: small, constant, or with values that are no numbers."""
    if array.size < 8 or array.dtype.kind not in "fiu":
        return None
    flat = array.reshape(-1)
    if flat.size > POSITIONS:  # NOTE: not a stride, which may see one channel only
        flat = flat[np.random.default_rng(flat.size).integers(0, flat.size, POSITIONS)]
    values = flat.astype(np.float64)
    with np.errstate(all="ignore"):
        values = values - values.mean()
        length = float(np.sqrt(values @ values))
    if not np.isfinite(length) or length == 0:
        return None
    return Print(key, array.shape, (values / length).astype(np.float32))


def alike(ours: Iterable[Print], theirs: Iterable[Print]) -> list[tuple[Hashable, Hashable, float]]:
    """(our key, their key, correlation) of tensors that are each other's clear best, best first.

    Tensors of one shape are compared. A value that stands in a graph twice (behind a Relu that cuts nothing, say) has
    no clear best and is left out.
    """
    by_shape: dict[tuple[int, ...], tuple[list[Print], list[Print]]] = {}
    for side, prints in enumerate((ours, theirs)):
        for one in prints:
            by_shape.setdefault(one.shape, ([], []))[side].append(one)
    found: list[tuple[Hashable, Hashable, float]] = []
    for left, right in by_shape.values():
        if left and right and len(left) * len(right) <= MOST_AT_ONCE**2:
            found += _best(left, right)
    return sorted(found, key=lambda pair: -pair[2])


def _best(left: Sequence[Print], right: Sequence[Print]) -> list[tuple[Hashable, Hashable, float]]:
    likeness = np.stack([p.unit for p in left]) @ np.stack([p.unit for p in right]).T
    rows, columns = likeness.argmax(axis=1), likeness.argmax(axis=0)
    found = []
    for i, j in enumerate(rows):
        best = float(likeness[i, j])
        if columns[j] != i or best < AT_LEAST:
            continue
        others = max(_second(likeness[i], int(j)), _second(likeness[:, j], i))
        if 1 - others > MARGIN * (1 - best) + 1e-6:
            found.append((left[i].key, right[int(j)].key, min(best, 1.0)))
    return found


def _second(values: npt.NDArray[np.float32], best: int) -> float:
    rest = np.delete(values, best)
    return float(rest.max()) if rest.size else -1.0
