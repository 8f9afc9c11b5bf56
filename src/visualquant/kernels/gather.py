"""Tiles of any layout as contiguous rows: strided, transposed and packed data, and narrow floats widened."""

from __future__ import annotations

from typing import Any

import numpy as np

from visualquant.kernels._jit import i64, kernel, read, u8, u16, u32, u64, write

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
    for i in range(out.size):
        at = first + i
        if bits == 4:
            code = np.uint8(source[at >> 1] >> ((at & 1) * 4)) & np.uint8(15)
        else:
            code = np.uint8(source[at >> 2] >> ((at & 3) * 2)) & np.uint8(3)
        out[i] = np.uint8((code ^ flip) - flip)
