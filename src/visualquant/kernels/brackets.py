"""Outliers of a row from counts alone: quartiles are only narrowed until the count no longer depends on them.

A count below a threshold is a vector loop of well under a cycle an element, while sorting values into bins costs
several. Each pass counts below three thresholds, one for each quartile, and moves the bounds of all three.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from visualquant.kernels._jit import inline, strict_inline

_TURNS = 10
_CHUNK = 65_536  # counted in float32, which is exact up to 2^24
_NEAR = 1e-6  # limits are rounded to float32: by so much they are moved to the safe side


@inline
def _below(x: Any, limits: Any, counts: Any) -> None:
    """How many values lie below each of three limits, into `counts`, both float64 [3]."""
    one = np.float32(1)
    zero = np.float32(0)
    first, second, third = np.float32(limits[0]), np.float32(limits[1]), np.float32(limits[2])
    counts[0] = counts[1] = counts[2] = 0.0
    for t in range(0, x.size, _CHUNK):
        part = x[t : t + _CHUNK]
        a = zero
        b = zero
        c = zero
        for i in range(part.size):
            v = part[i]
            a += one if v < first else zero
            b += one if v < second else zero
            c += one if v < third else zero
        counts[0] += np.float64(a)
        counts[1] += np.float64(b)
        counts[2] += np.float64(c)


@inline
def _outside(x: Any, least_low: Any, least_high: Any, most_low: Any, most_high: Any) -> Any:
    """How many values lie outside the nearer pair of limits, and how many outside the further one."""
    one = np.float32(1)
    zero = np.float32(0)
    near = 0.0
    far = 0.0
    for t in range(0, x.size, _CHUNK):
        part = x[t : t + _CHUNK]
        a = zero
        b = zero
        c = zero
        d = zero
        for i in range(part.size):
            v = part[i]
            a += one if v < least_low else zero
            b += one if v > least_high else zero
            c += one if v < most_low else zero
            d += one if v > most_high else zero
        near += np.float64(a) + np.float64(b)
        far += np.float64(c) + np.float64(d)
    return near, far


@strict_inline
def _rank(k: int, size: int) -> int:
    """Rank of the order statistic at or below quartile k (0, 1, 2); the next one stands at or above it."""
    return int((size - 1) * (0.25 * (k + 1)))


@strict_inline
def far_by_counts(x: Any, mean: float, sigma: float, low: float, high: float, state: Any) -> int:
    """Values beyond median ± 10·IQR, or −1 where the bounds of the quartiles do not settle it.

    Args:
        x: float32 [n], finite; n at least 8.
        mean: of x.
        sigma: population σ of x.
        low: smallest of x.
        high: largest of x.
        state: float64 [6, 3] to work in.
    """
    n = x.size
    least, most, before, after, limits, counts = state[0], state[1], state[2], state[3], state[4], state[5]
    if not (sigma > 1e-30 and sigma > 1e-5 * abs(mean)):
        return -1
    for k in range(3):
        least[k], most[k], before[k], after[k] = low, high, 0.0, float(n)
        limits[k] = mean + (k - 1) * 0.45 * sigma
    for turn in range(_TURNS):
        _below(x, limits, counts)
        for j in range(3):
            limit = np.float64(np.float32(limits[j]))
            for k in range(3):
                rank = _rank(k, n)
                if counts[j] <= rank and limit > least[k]:
                    least[k], before[k] = limit, counts[j]
                elif counts[j] >= rank + 2 and limit < most[k]:
                    most[k], after[k] = limit, counts[j]
        near, far = 10.0 * (least[2] - most[0]), 10.0 * (most[2] - least[0])
        if near > 0.0:
            inner_low, inner_high = most[1] - near, least[1] + near
            outer_low, outer_high = least[1] - far, most[1] + far
            inner_low += _NEAR * abs(inner_low)
            inner_high -= _NEAR * abs(inner_high)
            outer_low -= _NEAR * abs(outer_low)
            outer_high += _NEAR * abs(outer_high)
            if low >= inner_low and high <= inner_high:
                return 0
            possible, certain = _outside(
                x, np.float32(inner_low), np.float32(inner_high), np.float32(outer_low), np.float32(outer_high)
            )
            if possible == certain:
                return int(certain)
        # NOTE: aimed a little beside the rank, on either side in turn, so that both bounds move
        aside = max(1.5, n * 0.125 * 0.5**turn)
        for k in range(3):
            aim = _rank(k, n) + 1.0 + (aside if turn & 1 else -aside)
            share = (aim - before[k]) / max(after[k] - before[k], 1.0)
            limits[k] = least[k] + (most[k] - least[k]) * min(max(share, 0.05), 0.95)
    return -1
