"""The fast kernel for blocks of a multiple of 32 elements along the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from visualquant.kernels import _simd
from visualquant.kernels._jit import f32, f64, fma, i64, inline, kernel, larger, read, smaller, u8, write
from visualquant.kernels._simd import GROUP, HAS_TILES, PIECE, block_tile
from visualquant.kernels.lanes import (
    INF,
    STEPS,
    TABLE,
    VALUES,
    beyond,
    clear,
    decode,
    finish,
    look_up,
    range8,
    range32,
    steps,
)
from visualquant.kernels.records import (
    CODE_MAX,
    CODE_MIN,
    DOT,
    E_ABS,
    E_MAX,
    E_SQ,
    E_SUM,
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

TILE = 2048
PIECES = TILE // PIECE
_0, _1 = np.float32(0), np.float32(1)
_T_X_SUM, _T_E_SUM, _T_E_ABS, _T_CROSS = _simd.X_SUM, _simd.E_SUM, _simd.E_ABS, _simd.CROSS
_T_X_MIN, _T_X_MAX, _T_Y_MIN, _T_Y_MAX = _simd.X_MIN, _simd.X_MAX, _simd.Y_MIN, _simd.Y_MAX
_T_X_ZEROS, _T_Y_ZEROS, _T_D_MIN, _T_D_MAX = _simd.X_ZEROS, _simd.Y_ZEROS, _simd.D_MIN, _simd.D_MAX
_T_X_SQ, _T_E_SQ, _T_SCALED, _T_E_MAX, _T_EXCESS = _simd.X_SQ, _simd.E_SQ, _simd.SCALED, _simd.E_MAX, _simd.EXCESS


@inline
def _rest(x: Any, d: Any, start: int, s: Any, z: Any, limits: Any, out: Any, first: int, totals: Any) -> None:
    """What `block_tile` does, for the pieces from element `start` on, the last one perhaps shorter than 32."""
    for p in range(start // PIECE, (x.size + PIECE - 1) // PIECE):
        part = x[p * PIECE : (p + 1) * PIECE]
        codes = d[p * PIECE : p * PIECE + part.size]
        x_sq = _0
        e_sq = _0
        worst = _0
        x_sum = _0
        e_sum = _0
        e_abs = _0
        cross = _0
        zeros = _0
        y_zeros = _0
        low = INF
        high = -INF
        y_low = INF
        y_high = -INF
        d_low = INF
        d_high = -INF
        for i in range(part.size):
            v = part[i]
            code = np.float32(codes[i])
            back = code - z[p]
            e = fma(-back, s[p], v)
            y = back * s[p]
            size = abs(e)
            x_sq += v * v
            e_sq += e * e
            worst = larger(worst, size)
            x_sum += v
            e_sum += e
            e_abs += size
            cross += v * e
            zeros += _1 if v == _0 else _0
            y_zeros += _1 if y == _0 else _0
            low = smaller(low, v)
            high = larger(high, v)
            y_low = smaller(y_low, y)
            y_high = larger(y_high, y)
            d_low = smaller(d_low, code)
            d_high = larger(d_high, code)
        out[0, first + p] = x_sq
        out[1, first + p] = e_sq
        totals[_T_X_SQ] += x_sq
        totals[_T_E_SQ] += e_sq
        totals[_T_SCALED] += e_sq / (s[p] * s[p])
        totals[_T_E_MAX] = max(totals[_T_E_MAX], worst)
        totals[_T_EXCESS] = max(totals[_T_EXCESS], worst - limits[p])
        totals[_T_X_SUM] += x_sum
        totals[_T_E_SUM] += e_sum
        totals[_T_E_ABS] += e_abs
        totals[_T_CROSS] += cross
        totals[_T_X_ZEROS] += zeros
        totals[_T_Y_ZEROS] += y_zeros
        totals[_T_X_MIN] = min(totals[_T_X_MIN], low)
        totals[_T_X_MAX] = max(totals[_T_X_MAX], high)
        totals[_T_Y_MIN] = min(totals[_T_Y_MIN], y_low)
        totals[_T_Y_MAX] = max(totals[_T_Y_MAX], y_high)
        totals[_T_D_MIN] = min(totals[_T_D_MIN], d_low)
        totals[_T_D_MAX] = max(totals[_T_D_MAX], d_high)


@inline
def _tile_sums(x: Any, d: Any, at: int, s: Any, z: Any, limits: Any, out: Any, first: int, totals: Any) -> None:
    """Sums of each piece into out [2, first + piece] (Σx², Σe²) and of the tile; codes from d[at]."""
    groups = x.size // (PIECE * GROUP) if HAS_TILES else 0
    if groups > 0:
        block_tile(x, 0, d, at, s, z, limits, groups, out, first, totals)
    else:
        for k in range(totals.size):
            totals[k] = _0
        totals[_T_X_MIN] = totals[_T_Y_MIN] = totals[_T_D_MIN] = INF
        totals[_T_X_MAX] = totals[_T_Y_MAX] = totals[_T_D_MAX] = totals[_T_EXCESS] = -INF
    if groups * PIECE * GROUP < x.size:
        _rest(x, d[at : at + x.size], groups * PIECE * GROUP, s, z, limits, out, first, totals)


@inline
def _leaf_usable(scale: Any, zero: Any, has_zero: bool) -> bool:
    """Whether all blocks suit float32 (see `lanes.usable`)."""
    smallest = np.inf
    largest = 0.0
    bad = 0.0
    for b in range(scale.size):
        size = abs(scale[b])
        smallest = smaller(smallest, size)
        largest = larger(largest, size)
        # NOTE: a NaN fails its comparison with itself and so counts as bad
        bad += 0.0 if np.float64(np.float32(size)) == size else 1.0
    far = 0.0
    if has_zero:
        for b in range(zero.size):
            far = larger(far, abs(zero[b]))
            bad += 0.0 if np.floor(zero[b] * 256.0) == zero[b] * 256.0 else 1.0
    return bad == 0.0 and smallest >= 1e-30 and largest <= 1e30 and far <= 32768.0


@inline
def _fetch(
    codes: Any, row: Any, first: int, t: int, n: int, bits: int, flip: Any, table: Any, q: Any, out: Any
) -> None:
    """N float32 partners from column t of a row: stored values, or looked up in a table."""
    if bits == VALUES:
        for i in range(n):
            out[i] = row[t + i]
    else:
        at = decode(codes, first + t, n, bits, flip, q)
        look_up(q[at : at + n], table, out[:n])


@inline
def _spread(values: Any, first: int, per_block: int, out: Any) -> None:
    """Value of the block of each piece, float32; `first` counts pieces from the start of `values`."""
    if per_block == 1:
        part = values[first : first + out.size]
        for p in range(out.size):
            out[p] = np.float32(part[p])
    else:
        b = first // per_block
        used = first - b * per_block
        for p in range(out.size):
            out[p] = np.float32(values[b])
            used += 1
            if used == per_block:
                used = 0
                b += 1


@inline
def _collect(pieces: Any, count: int, first: int, per_block: int, blocks: Any) -> None:
    """Adds the sums of pieces to those of their blocks, which are longer than one piece."""
    b = first // per_block
    used = first - b * per_block
    for p in range(count):
        if used == 0:
            blocks[0, b] = _0
            blocks[1, b] = _0
        blocks[0, b] += pieces[0, p]
        blocks[1, b] += pieces[1, p]
        used += 1
        if used == per_block:
            used = 0
            b += 1


@inline
def _add_totals(totals: Any, rec: Any) -> None:
    rec[X_SQ] += totals[_T_X_SQ]
    rec[E_SQ] += totals[_T_E_SQ]
    rec[SCALED_SQ] += totals[_T_SCALED]
    rec[E_MAX] = max(rec[E_MAX], np.float64(totals[_T_E_MAX]))
    rec[X_SUM] += totals[_T_X_SUM]
    rec[E_SUM] += totals[_T_E_SUM]
    rec[E_ABS] += totals[_T_E_ABS]
    rec[DOT] -= totals[_T_CROSS]
    rec[ZEROS] += totals[_T_X_ZEROS]
    rec[Y_ZEROS] += totals[_T_Y_ZEROS]
    rec[X_MIN] = min(rec[X_MIN], np.float64(totals[_T_X_MIN]))
    rec[X_MAX] = max(rec[X_MAX], np.float64(totals[_T_X_MAX]))
    rec[Y_MIN] = min(rec[Y_MIN], np.float64(totals[_T_Y_MIN]))
    rec[Y_MAX] = max(rec[Y_MAX], np.float64(totals[_T_Y_MAX]))
    rec[CODE_MIN] = min(rec[CODE_MIN], np.float64(totals[_T_D_MIN]))
    rec[CODE_MAX] = max(rec[CODE_MAX], np.float64(totals[_T_D_MAX]))


@inline
def _over(x: Any, d: Any, at: int, p: int, s: Any, z: Any, limit: Any) -> bool:
    """Whether piece p holds an error above the limit."""
    part = x[p * PIECE : (p + 1) * PIECE]
    codes = d[at + p * PIECE : at + p * PIECE + part.size]
    worst = _0
    for i in range(part.size):
        worst = larger(worst, abs(fma(z - np.float32(codes[i]), s, part[i])))
    return bool(worst > limit)


@inline
def _outside(x: Any, p: int, s: Any, table_ends: Any) -> bool:
    """Whether piece p holds an element that may lie beyond the ends of the table."""
    a = min(table_ends[0] * s, table_ends[1] * s)
    b = max(table_ends[0] * s, table_ends[1] * s)
    found = False
    for i in range(p * PIECE, min(x.size, (p + 1) * PIECE)):
        v = np.float64(x[i])
        found = found | (v < a) | (v > b)
    return found


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
        read(f64, 2),
        read(f64, 2),
        i64,
        i64,
        write(f64, 3),
        write(f32, 3),
    ),
)
def measure_blocks(
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
    block: int,
    leaf: int,
    records: Any,
    blocks: Any,
) -> None:
    """Records and block sums of rows whose blocks of `block` columns have a scale each.

    Args:
        x: as in `rows32.measure_rows`, and so are the next eight.
        codes: packed codes.
        values: values or wide codes.
        first: index of the first code.
        bits: of a code.
        flip: sign bit.
        mode: how codes end.
        table: values of codes.
        table_ends: ends of the table, and the closer look.
        scale: float64 [rows, blocks of a row].
        zero: float64 [rows, blocks of a row], shifted by `flip` for uint8; [rows, 0] where all are 0.
        block: a multiple of 32.
        leaf: a multiple of `block`.
        records: out, float64 [rows, leaves, FIELDS]; REDO is 1 where float64.py has to do it.
        blocks: out, float32 [2, rows, blocks]: Σx², Σe².
    """
    rows, columns = x.shape
    q = np.empty(TILE + 8, np.int8)
    looked = np.empty(TILE, np.float32)
    marked = np.empty(leaf // PIECE + 1, np.int64)
    s = np.empty(PIECES, np.float32)
    z = np.zeros(PIECES, np.float32)
    limits = np.empty(PIECES, np.float32)
    pieces = np.empty((2, 1, PIECES), np.float32)
    totals = np.empty(_simd.TOTALS, np.float32)
    per_block = block // PIECE
    has_zero = zero.shape[1] > 0
    near = np.float32(table_ends[2])
    floats = bits == VALUES or table.size > 0
    for r in range(rows):
        row_codes = first + r * columns
        row_values = values[r] if bits == VALUES else looked
        for k in range(records.shape[1]):
            rec = records[r, k]
            clear(rec)
            start = k * leaf
            stop = min(columns, start + leaf)
            first_block = start // block
            last_block = (stop + block - 1) // block
            if not _leaf_usable(scale[r, first_block:last_block], zero[r, first_block:last_block], has_zero):
                rec[REDO] = 1.0
                continue
            count = 0
            for t in range(start, stop, TILE):
                xt = x[r, t : min(stop, t + TILE)]
                n = xt.size
                m = (n + PIECE - 1) // PIECE
                piece = t // PIECE
                _spread(scale[r], piece, per_block, s[:m])
                for p in range(m):
                    limits[p] = abs(s[p]) * near
                if has_zero:
                    _spread(zero[r], piece, per_block, z[:m])
                out = blocks[:, r] if per_block == 1 else pieces[:, 0]
                base = piece if per_block == 1 else 0
                if floats:
                    _fetch(codes, row_values, row_codes, t, n, bits, flip, table, q, looked)
                    _tile_sums(xt, looked, 0, s, z, limits, out, base, totals)
                else:
                    at = decode(codes, row_codes + t, n, bits, flip, q)
                    _tile_sums(xt, q, at, s, z, limits, out, base, totals)
                _add_totals(totals, rec)
                if per_block > 1:
                    _collect(out, m, piece, per_block, blocks[:, r])
                if mode == TABLE or (mode == STEPS and totals[_T_EXCESS] > _0):
                    for p in range(m):
                        if mode == TABLE:
                            mark = _outside(xt, p, s[p], table_ends)
                        elif floats:
                            mark = _over(xt, looked, 0, p, s[p], z[p], limits[p])
                        else:
                            mark = _over(xt, q, at, p, s[p], z[p], limits[p])
                        b = (piece + p) // per_block
                        if mark and (count == 0 or marked[count - 1] != b):
                            marked[count] = b
                            count += 1
            if count == 0:
                rec[REST_SQ] = rec[E_SQ]
            else:
                j = 0
                for b in range(first_block, last_block):
                    if j < count and marked[j] == b:
                        j += 1
                    else:
                        rec[REST_SQ] += np.float64(blocks[1, r, b])
            for j in range(count):
                b = marked[j]
                begin = b * block
                end = min(stop, begin + block)
                low = INF
                high = -INF
                sb = np.float32(scale[r, b])
                zb = np.float32(zero[r, b]) if has_zero else _0
                for phase in range(2 if mode == STEPS else 1):
                    for t in range(begin, end, TILE):
                        n = min(end, t + TILE) - t
                        xt = x[r, t : t + n]
                        if floats:
                            _fetch(codes, row_values, row_codes, t, n, bits, flip, table, q, looked)
                            dt = looked[:n]
                            if mode == TABLE:
                                beyond(xt, dt, scale[r, b], np.float64(zb), table_ends, rec)
                            elif phase == 0:
                                c_low, c_high, _ = range32(dt, _0)
                                low = min(low, c_low)
                                high = max(high, c_high)
                            else:
                                steps(xt, dt, sb, zb, low, high, rec)
                        else:
                            at = decode(codes, row_codes + t, n, bits, flip, q)
                            qt = q[at : at + n]
                            if phase == 0:
                                c_low, c_high, _ = range8(qt, np.int8(0))
                                low = min(low, c_low)
                                high = max(high, c_high)
                            else:
                                steps(xt, qt, sb, zb, low, high, rec)
            if mode == STEPS:
                rec[STEPPED] = stop - start
            else:
                rec[CODE_MIN] = np.inf
                rec[CODE_MAX] = -np.inf
            rec[SCALED_COUNT] = stop - start
            # NOTE: DOT holds −Σx·e so far; Σx·x̂ = Σx² − Σx·e and Σx̂² = Σx² − 2Σx·e + Σe²
            cross = -rec[DOT]
            y_sq = max(rec[X_SQ] - 2.0 * cross + rec[E_SQ], 0.0)
            finish(rec, stop - start, 1.0, y_sq, rec[Y_MIN] == 0.0 and rec[Y_MAX] == 0.0)
            rec[DOT] = rec[X_SQ] - cross
