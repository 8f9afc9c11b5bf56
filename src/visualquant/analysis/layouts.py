"""Finds how two tensors of one value lie to each other before they are called different."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FEW_ROWS = 4


def reconcile(x: Array, y: Array, known: str | None = None) -> tuple[Array, str | None] | None:
    """Y in the layout of x, and what was done ("transposed [0, 3, 1, 2]", "reshaped"); None where no way leads there.

    Among axis orders that fit the shape the one with the largest correlation is taken.

    Args:
        x: wanted.
        y: given.
        known: what was done to an earlier batch of the same value; done again where it fits.
    """
    if x.shape == y.shape:
        return y, None
    if x.size != y.size:
        return None
    if [n for n in x.shape if n != 1] == [n for n in y.shape if n != 1]:
        return y.reshape(x.shape), None
    if x.ndim == y.ndim and x.ndim <= 5:
        orders = [p for p in itertools.permutations(range(y.ndim)) if tuple(y.shape[k] for k in p) == x.shape]
        again = [p for p in orders if known == f"transposed {list(p)}"]
        if orders:
            # NOTE: the first few rows tell as much as all of them
            few = x[:FEW_ROWS]
            best = (again or orders)[0]
            if len(orders) > 1 and not again:
                best = max(orders, key=lambda p: _correlation(few, y.transpose(p)[:FEW_ROWS]))
            return y.transpose(best), f"transposed {list(best)}"
    return y.reshape(x.shape), "reshaped"


def _correlation(x: Array, y: Array) -> float:
    a, b = x.astype(np.float64).reshape(-1), y.astype(np.float64).reshape(-1)
    good = np.isfinite(a) & np.isfinite(b)
    if not good.any():
        return 0.0
    a, b = a[good] - a[good].mean(), b[good] - b[good].mean()
    norm = np.sqrt((a @ a) * (b @ b))
    return float((a @ b) / norm) if norm > 0 else 0.0
