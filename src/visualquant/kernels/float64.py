"""The general kernel: every scheme in float64, one element at a time.

Right for NaN, infinities, any scale (0, negative, denormal, not a float32), any zero point, any block size. Small
tensors are measured by it throughout; of large ones only the leaves that the float32 kernel hands back.

Accuracy: x̂ = (code − zero point)·scale and e = x − x̂ in float64, sums in float64 over a leaf of 65,536 elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from visualquant.kernels._jit import f64, i64, kernel, read, strict_inline, write
from visualquant.kernels.lanes import clear
from visualquant.kernels.records import (
    BAD_X,
    BAD_Y,
    CODE_MAX,
    CODE_MIN,
    COUNT,
    DOT,
    E_ABS,
    E_MAX,
    E_SQ,
    E_SUM,
    FAR,
    HIGH_CODE,
    HIGH_COUNT,
    HIGH_SQ,
    LOW_CODE,
    LOW_COUNT,
    LOW_SQ,
    NEGATIVE,
    OVER_HIGH,
    OVER_LOW,
    REST_SQ,
    SCALED_COUNT,
    SCALED_SQ,
    STEPPED,
    TIES_AWAY,
    TIES_EVEN,
    X_MAX,
    X_MIN,
    X_SQ,
    X_SUM,
    Y_MAX,
    Y_MIN,
    Y_SQ,
    Y_ZEROS,
    ZEROS,
)

# How codes end: a float partner never does, integers at a code, float and table codes at a value.
FLOATS, STEPS, TABLE = 0, 1, 2


@strict_inline
def _step(rec: Any, v: float, e: float, back: float, s: float, code: float, ends: Any) -> None:
    """Clipping and rounding evidence of one element of integer codes; `back` is code − zero point."""
    out = -e if s < 0.0 else e
    half = abs(s) * 0.5
    over_low = out < -half * 1.001
    over_high = out > half * 1.001
    if over_low and code == ends[0]:
        rec[LOW_COUNT] += 1.0
        rec[LOW_SQ] += e * e
    elif over_high and code == ends[1]:
        rec[HIGH_COUNT] += 1.0
        rec[HIGH_SQ] += e * e
    else:
        rec[REST_SQ] += e * e
    if s == 0.0:
        return
    rec[OVER_LOW] += 1.0 if over_low else 0.0
    rec[OVER_HIGH] += 1.0 if over_high else 0.0
    rec[FAR] += 1.0 if abs(out) > 5.0 * half else 0.0
    rec[NEGATIVE] += 1.0 if out < -2e-3 * half else 0.0
    t = np.float64(np.float32(v / s))
    whole = np.floor(t)
    if t - whole == 0.5:
        even = whole if np.floor(whole * 0.5) * 2.0 == whole else whole + 1.0
        away = whole + 1.0 if t > 0.0 else whole
        if even != away:
            rec[TIES_EVEN] += 1.0 if back == even else 0.0
            rec[TIES_AWAY] += 1.0 if back == away else 0.0


@strict_inline
def _scaled(x: Any, d: Any, s: float, z: float) -> float:
    """Σ(e/s)² where s² would leave float64."""
    total = 0.0
    for i in range(x.size):
        e = x[i] - (d[i] - z) * s
        if np.isfinite(e):
            total += (e / s) * (e / s)
    return total


@strict_inline
def _piece(x: Any, d: Any, s: float, z: float, mode: int, ends: Any, rec: Any, block: Any) -> None:
    """Adds the elements of x and d, which share scale and zero point, to a record; block = (Σx², Σe², pairs)."""
    bad_x = 0
    bad_y = 0
    zeros = 0
    y_zeros = 0
    x_min = np.inf
    x_max = -np.inf
    y_min = np.inf
    y_max = -np.inf
    x_sum = 0.0
    x_sq = 0.0
    y_sq = 0.0
    dot = 0.0
    e_sum = 0.0
    e_abs = 0.0
    e_sq = 0.0
    e_max = 0.0
    rest_sq = 0.0
    near = abs(s) * 0.499
    below = min(ends[0] * s, ends[1] * s)
    above = max(ends[0] * s, ends[1] * s)
    for i in range(x.size):
        v = x[i]
        back = d[i] - z
        y = back * s
        e = v - y
        if not np.isfinite(e):
            # NOTE: a difference of finite values that overflows counts as an infinite x̂
            bad_x += 0 if np.isfinite(v) else 1
            bad_y += 1 if not np.isfinite(y) or np.isfinite(v) else 0
            continue
        size = abs(e)
        zeros += 1 if v == 0.0 else 0
        y_zeros += 1 if y == 0.0 else 0
        x_min = min(x_min, v)
        x_max = max(x_max, v)
        y_min = min(y_min, y)
        y_max = max(y_max, y)
        x_sum += v
        x_sq += v * v
        y_sq += y * y
        dot += v * y
        e_sum += e
        e_abs += size
        e_sq += e * e
        e_max = max(e_max, size)
        if mode == STEPS:
            if size >= near or s == 0.0:
                _step(rec, v, e, back, s, d[i], ends)
            else:
                rest_sq += e * e
        elif mode == TABLE and (v < below or v > above):
            k = LOW_COUNT if (v < below) == (s >= 0.0) else HIGH_COUNT
            rec[k] += 1.0
            rec[k + 1] += e * e
        else:
            rest_sq += e * e
    count = x.size - bad_x - bad_y
    if bad_x > 0 or bad_y > 0:
        count = 0
        for i in range(x.size):
            count += 1 if np.isfinite(x[i] - (d[i] - z) * s) else 0
    rec[BAD_X] += bad_x
    rec[BAD_Y] += bad_y
    rec[COUNT] += count
    rec[ZEROS] += zeros
    rec[Y_ZEROS] += y_zeros
    rec[X_MIN] = min(rec[X_MIN], x_min)
    rec[X_MAX] = max(rec[X_MAX], x_max)
    rec[Y_MIN] = min(rec[Y_MIN], y_min)
    rec[Y_MAX] = max(rec[Y_MAX], y_max)
    rec[X_SUM] += x_sum
    rec[X_SQ] += x_sq
    rec[Y_SQ] += y_sq
    rec[DOT] += dot
    rec[E_SUM] += e_sum
    rec[E_ABS] += e_abs
    rec[E_SQ] += e_sq
    rec[REST_SQ] += rest_sq
    rec[E_MAX] = max(rec[E_MAX], e_max)
    if s != 0.0:
        rec[SCALED_COUNT] += count
        rec[SCALED_SQ] += e_sq / (s * s) if abs(s) > 1e-150 else _scaled(x, d, s, z)
        rec[STEPPED] += count if mode == STEPS else 0
    block[0] = x_sq
    block[1] = e_sq
    block[2] = count


@kernel(
    (
        read(f64, 2),
        read(f64, 2),
        read(f64, 2),
        read(f64, 2),
        read(f64, 3),
        i64,
        i64,
        i64,
        read(f64),
        i64,
        write(f64, 3),
        write(f64, 3),
    ),
    strict=True,
)
def measure64(
    x: Any,
    d: Any,
    scale: Any,
    zero: Any,
    forced: Any,
    block: int,
    leaf: int,
    mode: int,
    table_ends: Any,
    later: int,
    records: Any,
    blocks: Any,
) -> None:
    """Records and block sums of whole rows.

    Args:
        x: float64 [rows, columns].
        d: float64 [rows, columns]: integer codes, or values for float partners and tables.
        scale: float64 [rows, blocks of a row].
        zero: the same, zero points.
        forced: float64 [2, rows, blocks]: lowest and highest code of each scale group where groups cross rows;
            [0, 0, 0] where they do not.
        block: columns that share a scale.
        leaf: columns of a record, a multiple of `block` unless one block is the whole row.
        mode: FLOATS, STEPS or TABLE.
        table_ends: float64 [2], smallest and largest finite value of the table (mode TABLE).
        later: 1 where a scale group is more than a row or leaf, so that clip counts settle on merging.
        records: out, float64 [rows, leaves, FIELDS].
        blocks: out, float64 [2, rows, blocks] (Σx², Σe²; NaN without a pair); [0, 0, 0] if not wanted.
    """
    rows, columns = x.shape
    ends = np.zeros(2)
    sums = np.zeros(3)
    for r in range(rows):
        for k in range(records.shape[1]):
            rec = records[r, k]
            clear(rec)
            stop = min(columns, (k + 1) * leaf)
            start = k * leaf
            while start < stop:
                b = start // block
                end = min(stop, (b + 1) * block)
                xs = x[r, start:end]
                ds = d[r, start:end]
                if mode == STEPS:
                    rec[CODE_MIN] = min(rec[CODE_MIN], ds.min())
                    rec[CODE_MAX] = max(rec[CODE_MAX], ds.max())
                    if forced.shape[1] > 0:
                        ends[0] = forced[0, r, b]
                        ends[1] = forced[1, r, b]
                    else:
                        ends[0] = ds.min()
                        ends[1] = ds.max()
                        if later == 1:
                            rec[LOW_CODE] = ends[0]
                            rec[HIGH_CODE] = ends[1]
                else:
                    ends[0] = table_ends[0]
                    ends[1] = table_ends[1]
                sums[:] = 0.0
                _piece(xs, ds, scale[r, b], zero[r, b], mode, ends, rec, sums)
                if blocks.shape[1] > 0:
                    for j in range(2):
                        blocks[j, r, b] = sums[j] if sums[2] > 0.0 else np.nan
                start = end
