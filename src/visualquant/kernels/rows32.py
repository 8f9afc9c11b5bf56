"""The fast kernel for rows of one scale each (per tensor, per channel, and float against float)."""

from __future__ import annotations

from typing import Any

import numpy as np

from visualquant.kernels._jit import f32, f64, i64, kernel, read, u8, write
from visualquant.kernels.lanes import (
    INF,
    NEAR,
    STEPS,
    TABLE,
    TILE,
    VALUES,
    add_tile,
    beyond,
    clear,
    decode,
    finish,
    look_up,
    range8,
    range32,
    steps,
    tile,
    usable,
)
from visualquant.kernels.records import (
    CODE_MAX,
    CODE_MIN,
    E_SQ,
    HIGH_CODE,
    LOW_CODE,
    REDO,
    REST_SQ,
    SCALED_COUNT,
    SCALED_SQ,
    STEPPED,
    Y_MAX,
    Y_MIN,
    Y_ZEROS,
)


@kernel(
    (
        read(f32, 2),
        read(u8),
        read(f32, 2),
        i64,
        i64,
        u8,
        i64,
        read(f32),
        read(f64),
        read(f64),
        read(f64),
        i64,
        write(f64, 3),
    ),
)
def measure_rows(
    x: Any,
    codes: Any,
    values: Any,
    first: int,
    bits: int,
    flip: Any,
    mode: int,
    table: Any,
    table_ends: Any,
    scale: Any,
    zero: Any,
    leaf: int,
    records: Any,
) -> None:
    """Records of rows that have one scale each.

    Args:
        x: float32 [rows, columns].
        codes: uint8, the packed codes of the rows and perhaps more (bits 8, 4, 2), else empty.
        values: float32 [rows, columns], the partner's values or codes (bits VALUES), else [0, 0].
        first: index in `codes` of the code of x[0, 0].
        bits: see `lanes.decode`; VALUES for `values`.
        flip: see `lanes.decode`.
        mode: FLOATS, STEPS or TABLE (of float64.py).
        table: float32 [256], value of each code, or empty where codes are integers.
        table_ends: float64 [2], smallest and largest finite value of the table (mode TABLE).
        scale: float64 [rows].
        zero: float64 [rows], shifted by `flip` for uint8.
        leaf: columns of a record.
        records: out, float64 [rows, leaves, FIELDS]; REDO is 1 where float64.py has to do it.
    """
    rows, columns = x.shape
    q = np.empty(TILE + 8, np.int8)
    looked = np.empty(TILE, np.float32)
    marked = np.empty(leaf // TILE + 1, np.int64)
    for r in range(rows):
        s64 = scale[r]
        good = usable(s64, zero[r])
        s = np.float32(s64)
        z = np.float32(zero[r])
        z8 = np.int8(z) if abs(z) <= np.float32(127) and np.float32(np.int8(z)) == z else np.int8(0)
        has_zero = np.float32(z8) == z
        near = np.float32(abs(s64) * NEAR)
        below = min(table_ends[0] * s64, table_ends[1] * s64) if mode == TABLE else 0.0
        above = max(table_ends[0] * s64, table_ends[1] * s64) if mode == TABLE else 0.0
        for k in range(records.shape[1]):
            rec = records[r, k]
            clear(rec)
            if not good:
                rec[REDO] = 1.0
                continue
            start = k * leaf
            stop = min(columns, start + leaf)
            low = INF
            high = -INF
            d_sq = 0.0
            y_zeros = 0.0
            count = 0
            for t in range(start, stop, TILE):
                xt = x[r, t : min(stop, t + TILE)]
                n = xt.size
                if bits == VALUES:
                    dt = values[r, t : t + n]
                    low_here, high_here, equal = range32(dt, z)
                    sums = tile(xt, dt, s, z)
                else:
                    at = decode(codes, first + r * columns + t, n, bits, flip, q)
                    qt = q[at : at + n]
                    if table.size > 0:
                        dt = looked[:n]
                        look_up(qt, table, dt)
                        low_here, high_here, equal = range32(dt, z)
                        sums = tile(xt, dt, s, z)
                    else:
                        low_here, high_here, equal = range8(qt, z8)
                        equal = equal if has_zero else 0.0
                        sums = tile(xt, qt, s, z)
                add_tile(rec, sums)
                d_sq += sums[5]
                low = min(low, low_here)
                high = max(high, high_here)
                y_zeros += equal
                if mode == STEPS:
                    mark = sums[8] > near
                elif mode == TABLE:
                    mark = np.float64(sums[6]) < below or np.float64(sums[7]) > above
                else:
                    mark = False
                if mark:
                    marked[count] = t
                    count += 1
                else:
                    rec[REST_SQ] += sums[4]
            for m in range(count):
                t = marked[m]
                xt = x[r, t : min(stop, t + TILE)]
                n = xt.size
                if bits == VALUES:
                    dt = values[r, t : t + n]
                    if mode == STEPS:
                        steps(xt, dt, s, z, low, high, rec)
                    else:
                        beyond(xt, dt, s64, zero[r], table_ends, rec)
                else:
                    at = decode(codes, first + r * columns + t, n, bits, flip, q)
                    qt = q[at : at + n]
                    if table.size > 0:
                        dt = looked[:n]
                        look_up(qt, table, dt)
                        beyond(xt, dt, s64, zero[r], table_ends, rec)
                    else:
                        steps(xt, qt, s, z, low, high, rec)
            ends_low = (np.float64(low) - zero[r]) * s64
            ends_high = (np.float64(high) - zero[r]) * s64
            rec[Y_MIN] = min(ends_low, ends_high)
            rec[Y_MAX] = max(ends_low, ends_high)
            rec[Y_ZEROS] = y_zeros
            if mode == STEPS:
                rec[LOW_CODE] = low
                rec[HIGH_CODE] = high
                rec[CODE_MIN] = low
                rec[CODE_MAX] = high
                rec[STEPPED] = stop - start
            rec[SCALED_COUNT] = stop - start
            rec[SCALED_SQ] = rec[E_SQ] / (s64 * s64)
            finish(rec, stop - start, s64 * s64, d_sq, low == z and high == z)
