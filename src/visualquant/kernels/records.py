"""What a kernel writes for each row and leaf, and how such records merge.

A leaf is a fixed run of columns: partial sums are made within it and addressed by its index. Chunks and threads only
decide who makes which records; `fold` merges them in index order, so any chunking and any number of threads give
the same bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from visualquant.core.stats import ClipStats, ErrorStats, RoundingEvidence, TensorStats
from visualquant.core.stats_sums import HIGHEST_CODE, LOWEST_CODE

LEAF = 65_536  # elements

# Columns of a record, float64 (counts stay exact up to 2^53).
COUNT, ZEROS, X_MIN, X_MAX, X_SUM, X_SQ = 0, 1, 2, 3, 4, 5
E_SUM, E_ABS, E_SQ, E_MAX, DOT = 6, 7, 8, 9, 10
Y_ZEROS, Y_MIN, Y_MAX, Y_SQ = 11, 12, 13, 14
BAD_X, BAD_Y = 15, 16
LOW_CODE, LOW_COUNT, LOW_SQ = 17, 18, 19
HIGH_CODE, HIGH_COUNT, HIGH_SQ = 20, 21, 22
SCALED_COUNT, SCALED_SQ = 23, 24
STEPPED, OVER_LOW, OVER_HIGH, FAR, NEGATIVE, TIES_EVEN, TIES_AWAY = 25, 26, 27, 28, 29, 30, 31
# This leaf is outside what the float32 kernel can do (NaN, infinity, sums that leave float32): do it in float64.
REDO = 32
CODE_MIN, CODE_MAX = 33, 34
REST_SQ = 35  # Σe² over elements that are not clipped
FIELDS = 36

Records = npt.NDArray[np.float64]


def identity(count: int) -> Records:
    """Records of nothing, float64 [count, FIELDS]."""
    out = np.zeros((count, FIELDS))
    out[:, [X_MIN, Y_MIN, LOW_CODE, CODE_MIN]] = np.inf
    out[:, [X_MAX, Y_MAX, HIGH_CODE, CODE_MAX]] = -np.inf
    return out


def x_stats(rec: Records) -> TensorStats:
    """Statistics of x a record."""
    return TensorStats(
        _ints(rec[:, COUNT]), _ints(rec[:, ZEROS]), rec[:, X_MIN], rec[:, X_MAX], rec[:, X_SUM], rec[:, X_SQ]
    )


def y_stats(rec: Records) -> TensorStats:
    """Statistics of x̂ a record; Σx̂ = Σx − Σe."""
    return TensorStats(
        _ints(rec[:, COUNT]),
        _ints(rec[:, Y_ZEROS]),
        rec[:, Y_MIN],
        rec[:, Y_MAX],
        rec[:, X_SUM] - rec[:, E_SUM],
        rec[:, Y_SQ],
    )


def error_stats(rec: Records) -> ErrorStats:
    """Statistics of the error a record."""
    low = ClipStats(_codes(rec[:, LOW_CODE], HIGHEST_CODE), _ints(rec[:, LOW_COUNT]), rec[:, LOW_SQ])
    high = ClipStats(_codes(rec[:, HIGH_CODE], LOWEST_CODE), _ints(rec[:, HIGH_COUNT]), rec[:, HIGH_SQ])
    return ErrorStats(
        _ints(rec[:, COUNT]),
        rec[:, E_SUM],
        rec[:, E_ABS],
        rec[:, E_SQ],
        rec[:, E_MAX],
        rec[:, DOT],
        _ints(rec[:, SCALED_COUNT]),
        rec[:, SCALED_SQ],
        _ints(rec[:, BAD_X]),
        _ints(rec[:, BAD_Y]),
        low,
        high,
        rec[:, REST_SQ],
    )


def rounding_evidence(rec: Records, clipped_low: int, clipped_high: int) -> RoundingEvidence:
    """Evidence of all records, with the settled clip counts."""
    total = [int(v) for v in rec[:, STEPPED : TIES_AWAY + 1].sum(axis=0)]
    return RoundingEvidence(total[0], total[1], total[2], clipped_low, clipped_high, *total[3:])


def _ints(values: Records) -> npt.NDArray[np.int64]:
    return values.astype(np.int64)


def _codes(values: Records, empty: int) -> npt.NDArray[np.int64]:
    finite = np.isfinite(values)
    return np.where(finite, np.where(finite, values, 0).astype(np.int64), empty)
