"""The fast kernel for rows of one scale each (per tensor, per channel, and float against float)."""

from __future__ import annotations

from typing import Any

import numpy as np

from visualquant.kernels import _simd
from visualquant.kernels._jit import f32, f64, i64, inline, kernel, read, u8, write
from visualquant.kernels._simd import HAS_TILES, PIECE, row_tile
from visualquant.kernels.lanes import (
    INF,
    STEPS,
    TABLE,
    TILE,
    VALUES,
    beyond,
    clear,
    decode,
    finish,
    look_up,
    range32,
    steps,
    tile,
    usable,
)
from visualquant.kernels.records import (
    CODE_MAX,
    CODE_MIN,
    E_ABS,
    E_MAX,
    E_SQ,
    E_SUM,
    HIGH_CODE,
    LOW_CODE,
    REDO,
    REST_SQ,
    SCALED_COUNT,
    SCALED_SQ,
    STEPPED,
    X_MAX,
    X_MIN,
    X_SQ,
    X_SUM,
    Y_MAX,
    Y_MIN,
    Y_ZEROS,
    ZEROS,
)

_0 = np.float32(0)
_X_SUM, _E_SUM, _E_ABS, _X_SQ, _E_SQ, _D_SQ = (
    _simd.X_SUM, _simd.E_SUM, _simd.E_ABS, _simd.X_SQ, _simd.E_SQ, _simd.D_SQ,
)  # fmt: skip
_X_MIN, _X_MAX, _E_MAX, _D_MIN, _D_MAX = _simd.X_MIN, _simd.X_MAX, _simd.E_MAX, _simd.D_MIN, _simd.D_MAX
_X_ZEROS, _Y_ZEROS, _TOTALS = _simd.X_ZEROS, _simd.Y_ZEROS, _simd.TOTALS


@inline
def _nothing(totals: Any) -> None:
    for k in range(totals.size):
        totals[k] = _0
    totals[_X_MIN] = totals[_D_MIN] = INF
    totals[_X_MAX] = totals[_D_MAX] = -INF


@inline
def _rest(x: Any, d: Any, s: Any, z: Any, totals: Any) -> None:
    """Adds the few elements that fill no whole piece."""
    sums = tile(x, d, s, z)
    low, high, equal = range32(d, z)
    totals[_X_SUM] += sums[0]
    totals[_X_SQ] += sums[1]
    totals[_E_SUM] += sums[2]
    totals[_E_ABS] += sums[3]
    totals[_E_SQ] += sums[4]
    totals[_D_SQ] += sums[5]
    totals[_X_MIN] = min(totals[_X_MIN], sums[6])
    totals[_X_MAX] = max(totals[_X_MAX], sums[7])
    totals[_E_MAX] = max(totals[_E_MAX], sums[8])
    totals[_X_ZEROS] += sums[9]
    totals[_Y_ZEROS] += np.float32(equal)
    totals[_D_MIN] = min(totals[_D_MIN], low)
    totals[_D_MAX] = max(totals[_D_MAX], high)


@inline
def _tile_figures(x: Any, d: Any, at: int, s: Any, z: Any, wide: bool, totals: Any) -> None:
    """The figures of at most TILE elements under one scale; codes (or, if `wide`, float32 values) from d[at]."""
    pieces = x.size // PIECE if HAS_TILES else 0
    if pieces > 0:
        whole = z >= np.float32(-128) and z <= np.float32(127) and np.float32(np.int8(z)) == z
        row_tile(x, d, at, s, z, np.int8(z) if whole else np.int8(0), pieces, totals)
        if not whole:
            # NOTE: a zero point that is no int8 equals no code (of wider codes the vectors compare it themselves)
            totals[_Y_ZEROS] = totals[_Y_ZEROS] if wide else _0
    else:
        _nothing(totals)
    done = pieces * PIECE
    if done < x.size:
        _rest(x[done:], d[at + done : at + x.size], s, z, totals)


@inline
def _add(rec: Any, totals: Any) -> None:
    rec[X_SUM] += totals[_X_SUM]
    rec[X_SQ] += totals[_X_SQ]
    rec[E_SUM] += totals[_E_SUM]
    rec[E_ABS] += totals[_E_ABS]
    rec[E_SQ] += totals[_E_SQ]
    rec[X_MIN] = min(rec[X_MIN], np.float64(totals[_X_MIN]))
    rec[X_MAX] = max(rec[X_MAX], np.float64(totals[_X_MAX]))
    rec[E_MAX] = max(rec[E_MAX], np.float64(totals[_E_MAX]))
    rec[ZEROS] += totals[_X_ZEROS]
    rec[Y_ZEROS] += totals[_Y_ZEROS]


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
        table_ends: float64 [3], smallest and largest finite value of the table (mode TABLE), and |e|/scale from which
            an element is looked at closely (mode STEPS).
        scale: float64 [rows].
        zero: float64 [rows], shifted by `flip` for uint8.
        leaf: columns of a record.
        records: out, float64 [rows, leaves, FIELDS]; REDO is 1 where float64.py has to do it.
    """
    rows, columns = x.shape
    q = np.empty(TILE + 8, np.int8)
    looked = np.empty(TILE, np.float32)
    marked = np.empty(leaf // TILE + 1, np.int64)
    totals = np.empty(_TOTALS, np.float32)
    for r in range(rows):
        s64 = scale[r]
        good = usable(s64, zero[r])
        s = np.float32(s64)
        z = np.float32(zero[r])
        near = np.float32(abs(s64) * table_ends[2])
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
            count = 0
            for t in range(start, stop, TILE):
                xt = x[r, t : min(stop, t + TILE)]
                n = xt.size
                if bits == VALUES:
                    _tile_figures(xt, values[r, t : t + n], 0, s, z, True, totals)
                elif table.size > 0:
                    at = decode(codes, first + r * columns + t, n, bits, flip, q)
                    look_up(q[at : at + n], table, looked[:n])
                    _tile_figures(xt, looked, 0, s, z, True, totals)
                else:
                    at = decode(codes, first + r * columns + t, n, bits, flip, q)
                    _tile_figures(xt, q, at, s, z, False, totals)
                _add(rec, totals)
                d_sq += totals[_D_SQ]
                low = min(low, totals[_D_MIN])
                high = max(high, totals[_D_MAX])
                if mode == STEPS:
                    mark = totals[_E_MAX] > near
                elif mode == TABLE:
                    mark = np.float64(totals[_X_MIN]) < below or np.float64(totals[_X_MAX]) > above
                else:
                    mark = False
                if mark:
                    marked[count] = t
                    count += 1
                else:
                    rec[REST_SQ] += totals[_E_SQ]
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
            if mode == STEPS:
                rec[LOW_CODE] = low
                rec[HIGH_CODE] = high
                rec[CODE_MIN] = low
                rec[CODE_MAX] = high
                rec[STEPPED] = stop - start
            rec[SCALED_COUNT] = stop - start
            rec[SCALED_SQ] = rec[E_SQ] / (s64 * s64)
            finish(rec, stop - start, s64 * s64, d_sq, low == z and high == z)
