"""Tiles of any layout as contiguous rows: strided, transposed and packed data, and narrow floats widened."""

from __future__ import annotations

from typing import Any

import numpy as np

from visualquant.kernels._jit import i64, kernel, read, strict_inline, u8, u16, u32, u64, write
from visualquant.kernels._simd import HAS_TILES, transpose_16

_EDGE = 32  # rows and columns of one step, so that both sides stay in the cache


def _signature(kind: Any) -> Any:
    return (read(kind), read(i64), read(i64), write(kind, 2))


@kernel(_signature(u8), _signature(u16), _signature(u32), _signature(u64), strict=True)
def gather(source: Any, row_offsets: Any, column_offsets: Any, out: Any) -> None:
    """out[r, c] = source[row_offsets[r] + column_offsets[c]], for elements of 1, 2, 4 or 8 bytes.

    Args:
        source: [any], the memory that holds the tensor.
        row_offsets: int64 [rows], in elements.
        column_offsets: int64 [columns], in elements.
        out: [rows, columns].
    """
    rows, columns = out.shape
    for r0 in range(0, rows, _EDGE):
        for c0 in range(0, columns, _EDGE):
            for r in range(r0, min(rows, r0 + _EDGE)):
                base = row_offsets[r]
                for c in range(c0, min(columns, c0 + _EDGE)):
                    out[r, c] = source[base + column_offsets[c]]


_RUN = 64  # rows of one step of a transposition: whole cache lines on the source's side
_LANES = 16


@strict_inline
def _turn(source: Any, first: int, distance: int, rows: int, columns: int, out: Any, row: int, column: int) -> None:
    """out[row + r, column + c] = source[first + c·distance + r] for r < rows, c < columns (both at most 64)."""
    done = 0
    if HAS_TILES and columns == _LANES:
        done = rows // _LANES * _LANES
        for r in range(0, done, _LANES):
            transpose_16(source, first + r, distance, out, row + r, column)
    for r in range(done, rows):
        for c in range(columns):
            out[row + r, column + c] = source[first + c * distance + r]


def _turned(kind: Any) -> Any:
    return (read(kind), i64, i64, write(kind, 2))


@kernel(_turned(u8), _turned(u16), _turned(u32), _turned(u64), strict=True)
def transpose(source: Any, first: int, distance: int, out: Any) -> None:
    """out[r, c] = source[first + c·distance + r]: rows that lie side by side in memory, 16 × 16 at a time.

    Args:
        source: [any], the memory that holds the tensor.
        first: place of out[0, 0].
        distance: from a column to the next, in elements.
        out: [rows, columns].
    """
    rows, columns = out.shape
    for r in range(0, rows, _RUN):
        for c in range(0, columns, _LANES):
            _turn(source, first + c * distance + r, distance, min(_RUN, rows - r), min(_LANES, columns - c), out, r, c)


@kernel((read(u8), i64, i64, i64, u8, write(u8, 2)), strict=True)
def transpose_packed(source: Any, first: int, distance: int, bits: int, flip: Any, out: Any) -> None:
    """The same for codes of 4 or 2 bits, which come out one a byte, sign-extended.

    Args:
        source: uint8, packed codes.
        first: code of out[0, 0].
        distance: from a column to the next, in codes.
        bits: 4 or 2.
        flip: the sign bit of signed codes, else 0.
        out: uint8 [rows, columns].
    """
    rows, columns = out.shape
    unpacked = np.empty(_LANES * _RUN, np.uint8)
    for r in range(0, rows, _RUN):
        height = min(_RUN, rows - r)
        for c in range(0, columns, _LANES):
            width = min(_LANES, columns - c)
            for k in range(width):
                _unpack(
                    source, first + (c + k) * distance + r, height, bits, flip, unpacked[k * _RUN : k * _RUN + height]
                )
            _turn(unpacked, 0, _RUN, height, width, out, r, c)


@strict_inline
def _unpack(source: Any, first: int, count: int, bits: int, flip: Any, out: Any) -> None:
    """Codes [first, first + count), one a byte, sign-extended."""
    start = 0
    if bits == 4:
        if first & 1 and count > 0:
            out[0] = np.uint8(((source[first >> 1] >> 4) ^ flip) - flip)
            start = 1
        part = source[(first + start) >> 1 : (first + count + 1) >> 1]
        pairs = (count - start) >> 1
        target = out[start : start + 2 * pairs]
        for i in range(pairs):
            target[2 * i] = np.uint8(((part[i] & 15) ^ flip) - flip)
            target[2 * i + 1] = np.uint8(((part[i] >> 4) ^ flip) - flip)
        start += 2 * pairs
    for i in range(start, count):
        at = first + i
        if bits == 4:
            code = np.uint8(source[at >> 1] >> ((at & 1) * 4)) & np.uint8(15)
        else:
            code = np.uint8(source[at >> 2] >> ((at & 3) * 2)) & np.uint8(3)
        out[i] = np.uint8((code ^ flip) - flip)


@kernel((read(u8), read(i64), read(i64), i64, u8, write(u8, 2)), strict=True)
def gather_packed(source: Any, row_offsets: Any, column_offsets: Any, bits: int, flip: Any, out: Any) -> None:
    """Codes of 4 or 2 bits, one a byte, sign-extended; offsets count elements (low bits first).

    Args:
        source: uint8, packed codes.
        row_offsets: int64 [rows], in elements.
        column_offsets: int64 [columns], in elements.
        bits: 4 or 2.
        flip: the sign bit of signed codes, else 0.
        out: uint8 [rows, columns]; signed codes as the bytes of int8.
    """
    rows, columns = out.shape
    step = 1 if bits == 4 else 2
    mask = np.uint8(15) if bits == 4 else np.uint8(3)
    for r0 in range(0, rows, _EDGE):
        for c0 in range(0, columns, _EDGE):
            for r in range(r0, min(rows, r0 + _EDGE)):
                base = row_offsets[r]
                for c in range(c0, min(columns, c0 + _EDGE)):
                    at = base + column_offsets[c]
                    if bits == 4:
                        shift = (at & 1) * 4
                    else:
                        shift = (at & 3) * 2
                    code = np.uint8(source[at >> step] >> shift) & mask
                    out[r, c] = np.uint8((code ^ flip) - flip)


@kernel((read(u16), write(u32)), strict=True)
def widen_bfloat16(source: Any, out: Any) -> None:
    """bfloat16 bit patterns as float32 bit patterns (a shift by 16)."""
    for i in range(source.size):
        out[i] = np.uint32(source[i]) << np.uint32(16)


@kernel((read(u16), write(u32)), strict=True)
def widen_float16(source: Any, out: Any) -> None:
    """float16 bit patterns as float32 bit patterns, exact; denormal numbers, infinities and NaN included."""
    values = out.view(np.float32)
    for i in range(source.size):
        h = np.uint32(source[i])
        # NOTE: exponent and mantissa shifted into place, then times 2^112, which also normalises denormal numbers
        out[i] = (h & np.uint32(0x7FFF)) << np.uint32(13)
        values[i] = values[i] * np.float32(2.0**112)
        special = np.uint32(0x7F800000) if h & np.uint32(0x7C00) == np.uint32(0x7C00) else np.uint32(0)
        out[i] = out[i] | special | (h & np.uint32(0x8000)) << np.uint32(16)


@kernel((read(u8), i64, i64, u8, write(u8)), strict=True)
def unpack(source: Any, first: int, bits: int, flip: Any, out: Any) -> None:
    """Codes [first, first + out.size) of 4 or 2 bits, one a byte, sign-extended as in `gather_packed`."""
    _unpack(source, first, out.size, bits, flip, out)
