"""Histograms and code counts of rows that are in cache already.

Bins lie on a power-of-two grid (core/stats_shape.py): index = floor(value · 2^-k), exact because a product with a
power of two is. x is binned in float32, x̂ and e in float64 and strictly (x̂ is rounded before it is subtracted), so
every value falls where float64 puts it.
Counting costs one store an element, and a core stores once a cycle: that is the limit here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from visualquant.kernels._jit import f32, f64, i64, kernel, read, strict_inline, u8, u16, u32, write
from visualquant.kernels._simd import HAS_TILES, count_bytes, count_shorts
from visualquant.kernels.lanes import TILE, VALUES, decode, look_up

_ONE = np.uint32(1)


@strict_inline
def _scatter(index: Any, count: int, table: Any) -> None:
    words = count >> 2 if HAS_TILES else 0
    if words > 0:
        count_shorts(index, 0, words, table)
    for i in range(4 * words, count):
        table[index[i]] += _ONE


@strict_inline
def _scatter_codes(codes: Any, first: int, count: int, table: Any) -> None:
    """Counts int8 codes by bit pattern."""
    words = count >> 3 if HAS_TILES else 0
    if words > 0:
        count_bytes(codes, first, words, table)
    for i in range(first + 8 * words, first + count):
        table[np.uint8(codes[i])] += _ONE


@strict_inline
def _flush(table: Any, counts: Any) -> None:
    for k in range(counts.size):
        counts[k] += np.int64(table[k])
        table[k] = np.uint32(0)


@kernel((read(f32, 2), read(u8), f32, i64, read(i64), write(i64, 2)), strict=True)
def bin_values(x: Any, skip: Any, scale: Any, first: int, target: Any, counts: Any) -> None:
    """Adds float32 rows to histograms.

    Args:
        x: float32 [rows, columns], finite in rows that are not skipped.
        skip: uint8 [rows], 1 for rows to leave out.
        scale: 2^-k.
        first: index of counts[·, 0]; all indices fall within counts.
        target: int64 [rows], row of `counts` to add to.
        counts: int64 [histograms, bins], in and out.
    """
    index = np.empty(TILE, np.uint16)
    table = np.zeros(counts.shape[1], np.uint32)
    start = np.float32(first)
    for r in range(x.shape[0]):
        if skip[r] == 0:
            for t in range(0, x.shape[1], TILE):
                xt = x[r, t : t + TILE]
                for i in range(xt.size):
                    index[i] = np.uint16(np.int32(np.floor(xt[i] * scale) - start))
                _scatter(index, xt.size, table)
        if r + 1 == x.shape[0] or target[r + 1] != target[r]:
            _flush(table, counts[target[r]])


@strict_inline
def _partner_tile(x: Any, d: Any, s: Any, z: Any, scale: float, first: Any, error: bool, index: Any) -> None:
    """Bin of x̂ = (d − z)·s, or of x − x̂, of each element; float64. Scales and zero points by element."""
    if error:
        for i in range(x.size):
            y = (np.float64(d[i]) - z[i]) * s[i]
            index[i] = np.uint16(np.int32(np.floor((np.float64(x[i]) - y) * scale) - first))
    else:
        for i in range(x.size):
            y = (np.float64(d[i]) - z[i]) * s[i]
            index[i] = np.uint16(np.int32(np.floor(y * scale) - first))


@strict_inline
def _spread(values: Any, block: int, column: int, out: Any) -> None:
    """Value of the block of each element of a tile that begins at `column`."""
    begin = 0
    while begin < out.size:
        b = min((column + begin) // block, values.size - 1)
        end = out.size if b == values.size - 1 else min(out.size, (b + 1) * block - column)
        value = values[b]
        part = out[begin:end]
        for i in range(part.size):
            part[i] = value
        begin = end


@kernel(
    (
        read(f32, 2),
        read(u8),
        read(u8),
        read(f32, 2),
        i64,
        i64,
        u8,
        read(f32),
        read(f64, 2),
        read(f64, 2),
        i64,
        i64,
        f64,
        i64,
        i64,
        read(i64),
        write(i64, 2),
    ),
    strict=True,
)
def bin_partner(
    x: Any,
    skip: Any,
    codes: Any,
    values: Any,
    first_code: int,
    bits: int,
    flip: Any,
    table: Any,
    scale: Any,
    zero: Any,
    block: int,
    column: int,
    width: float,
    first: int,
    error: int,
    target: Any,
    counts: Any,
) -> None:
    """Adds x̂, or e = x − x̂, of rows to histograms.

    Args:
        x: float32 [rows, columns].
        skip: uint8 [rows], 1 for rows to leave out.
        codes: as in `rows32.measure_rows`.
        values: as there.
        first_code: index in `codes` of the code of x[0, 0].
        bits: as there.
        flip: as there.
        table: as there.
        scale: float64 [rows, blocks of a row].
        zero: the same, zero points.
        block: columns that share a scale.
        column: column of the tensor where x[·, 0] stands.
        width: 2^-k.
        first: index of counts[·, 0].
        error: 1 for the error, 0 for x̂.
        target: int64 [rows], row of `counts` to add to.
        counts: int64 [histograms, bins], in and out.
    """
    rows, columns = x.shape
    index = np.empty(TILE, np.uint16)
    q = np.empty(TILE + 8, np.int8)
    looked = np.empty(TILE, np.float32)
    spread_s = np.empty(TILE)
    spread_z = np.zeros(TILE)
    has_zero = zero.size > 0 and (zero.min() != 0.0 or zero.max() != 0.0)
    table_of_bins = np.zeros(counts.shape[1], np.uint32)
    start = np.float64(first)
    for r in range(rows):
        known = -1
        for t in range(0, columns, TILE):
            if skip[r] != 0:
                break
            n = min(TILE, columns - t)
            # NOTE: within one long block the spread of the tile before is still right
            b = (column + t) // block
            if b != known or (column + t + n - 1) // block != b:
                _spread(scale[r], block, column + t, spread_s)
                if has_zero:
                    _spread(zero[r], block, column + t, spread_z)
                known = b if (column + t + TILE - 1) // block == b else -1
            xt = x[r, t : t + n]
            if bits == VALUES:
                dt = values[r, t : t + n]
                _partner_tile(xt, dt, spread_s, spread_z, width, start, error == 1, index)
            else:
                at = decode(codes, first_code + r * columns + t, n, bits, flip, q)
                if table.size > 0:
                    look_up(q[at : at + n], table, looked[:n])
                    _partner_tile(xt, looked, spread_s, spread_z, width, start, error == 1, index)
                else:
                    _partner_tile(xt, q[at : at + n], spread_s, spread_z, width, start, error == 1, index)
            _scatter(index, n, table_of_bins)
        if r + 1 == rows or target[r + 1] != target[r]:
            _flush(table_of_bins, counts[target[r]])


@kernel((read(u8), i64, i64, i64, i64, u8, write(i64, 2)))
def count_codes(codes: Any, first: int, rows: int, columns: int, bits: int, flip: Any, counts: Any) -> None:
    """Counts codes of rows by code − lowest code of the type.

    Args:
        codes: uint8, packed codes (see `lanes.decode`).
        first: index of the first code.
        rows: number of rows that follow.
        columns: of each row.
        bits: 8, 4 or 2.
        flip: as in `lanes.decode`, so that decoded codes are int8.
        counts: int64 [rows or 1, 256], in and out, by decoded code + 128; one row of counts takes all rows.
    """
    q = np.empty(TILE + 8, np.int8)
    table = np.zeros(256, np.uint32)
    pairs = np.zeros(256, np.uint32)
    shared = counts.shape[0] == 1
    for r in range(rows):
        for t in range(0, columns, TILE):
            n = min(TILE, columns - t)
            begin = first + r * columns + t
            if bits == 8:
                _scatter_codes(codes, begin, n, table)
            elif bits == 4 and begin & 1 == 0:
                # NOTE: a byte holds two codes, so bytes are counted and taken apart at the end
                _scatter_codes(codes, begin >> 1, n >> 1, pairs)
                if n & 1:
                    table[np.uint8(((codes[(begin + n) >> 1] & 15) ^ flip) - flip)] += _ONE
            else:
                at = decode(codes, begin, n, bits, flip, q)
                _scatter_codes(q, at, n, table)
        if not shared or r + 1 == rows:
            if bits == 4:
                for k in range(256):
                    both = pairs[k]
                    pairs[k] = np.uint32(0)
                    table[np.uint8(((np.uint8(k) & np.uint8(15)) ^ flip) - flip)] += both
                    table[np.uint8(((np.uint8(k) >> np.uint8(4)) ^ flip) - flip)] += both
            out = counts[0 if shared else r]
            # NOTE: tables are by bit pattern; stored bytes have not been through `flip`
            turn = np.uint8(128) if bits < 8 else np.uint8(128) ^ flip
            for k in range(256):
                out[np.uint8(k) ^ turn] += np.int64(table[k])
                table[k] = np.uint32(0)


@kernel((read(i64, 2), write(i64), write(f64)))
def code_entropy(counts: Any, distinct: Any, entropy: Any) -> None:
    """Distinct codes, and the entropy in bits, of each row of counts [rows, codes]."""
    small = np.zeros(8192)
    for k in range(2, small.size):
        small[k] = k * math.log2(k)
    for r in range(counts.shape[0]):
        total = 0
        used = 0
        weighted = 0.0
        for k in range(counts.shape[1]):
            c = counts[r, k]
            if c > 0:
                used += 1
                total += c
                weighted += small[c] if c < small.size else c * math.log2(c)
        distinct[r] = used
        entropy[r] = max(0.0, math.log2(total) - weighted / total) if used > 1 else 0.0


@kernel((read(u16, 2), write(u32), write(i64), write(i64), write(f64)))
def count_codes16(codes: Any, scratch: Any, counts: Any, distinct: Any, entropy: Any) -> None:
    """Counts 16-bit codes, and distinct codes and entropy of each row.

    Args:
        codes: uint16 [rows, columns], bit patterns.
        scratch: uint32 [65536], zeros; zeros again afterwards.
        counts: int64 [65536], in and out, by bit pattern.
        distinct: out, int64 [rows].
        entropy: out, float64 [rows], bits.
    """
    for r in range(codes.shape[0]):
        row = codes[r]
        for i in range(row.size):
            scratch[row[i]] += _ONE
        used = 0
        weighted = 0.0
        for i in range(row.size):
            c = scratch[row[i]]
            if c > 0:
                used += 1
                weighted += np.float64(c) * math.log2(np.float64(c))
                counts[row[i]] += np.int64(c)
                scratch[row[i]] = np.uint32(0)
        distinct[r] = used
        entropy[r] = max(0.0, math.log2(row.size) - weighted / row.size) if used > 1 else 0.0


@kernel((read(i64, 2), read(u8), i64, read(f64), read(f64), f64, i64, write(i64)))
def bin_counts(
    codes: Any, skip: Any, lowest: int, scale: Any, zero: Any, width: float, first: int, counts: Any
) -> None:
    """Adds x̂ of rows of one scale each to a histogram, from the counts of their codes.

    Args:
        codes: int64 [rows, 256], counts by code.
        skip: uint8 [rows], 1 for rows to leave out.
        lowest: code of codes[·, 0].
        scale: float64 [rows].
        zero: float64 [rows].
        width: 2^-k.
        first: index of counts[0].
        counts: int64 [bins], in and out.
    """
    for r in range(codes.shape[0]):
        if skip[r] != 0:
            continue
        for k in range(codes.shape[1]):
            c = codes[r, k]
            if c > 0:
                y = (np.float64(lowest + k) - zero[r]) * scale[r]
                counts[np.int64(np.floor(y * width)) - first] += c
