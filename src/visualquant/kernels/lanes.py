"""Parts of the fast kernels: float32 x against codes (or float32 values), one pass over memory.

They skip work and are never another algorithm: wherever float32 lanes cannot hold what float64 would give (NaN and
infinity, scales that are no float32 or near its limits, sums that leave it), the leaf is marked REDO and measured
by float64.py.

Accuracy: e = x − (code − zero point)·scale comes from one fused multiply-add, so it has the relative error of one
float32 rounding, not that of x̂. Sums run in float32 lanes over at most 1,024 elements (32 terms a lane with 512-bit
vectors) and then go to float64; measured on random tensors Σx² and Σe² agree with float64 within 2e-8 relative, the
SQNR within 1e-7 dB. Σx·x̂ = (Σx² + Σx̂² − Σe²)/2 in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from visualquant.kernels._jit import count16, fma, inline, larger, smaller
from visualquant.kernels.records import (
    CODE_MAX,
    CODE_MIN,
    COUNT,
    DOT,
    E_MAX,
    E_SQ,
    FAR,
    FIELDS,
    HIGH_COUNT,
    HIGH_SQ,
    LOW_COUNT,
    LOW_SQ,
    NEGATIVE,
    OVER_HIGH,
    OVER_LOW,
    REDO,
    REST_SQ,
    TIES_AWAY,
    TIES_EVEN,
    X_MAX,
    X_MIN,
    X_SQ,
    Y_MAX,
    Y_MIN,
    Y_SQ,
)

STEPS, TABLE = 1, 2  # as in float64.py
# How the partner is stored: bits of a code, or 32 for float32 values.
VALUES = 32
TILE = 1024  # elements of one run of float32 lanes
PIECE = 32  # elements of one straight run within a block

_0, _1, _HALF, _2 = np.float32(0), np.float32(1), np.float32(0.5), np.float32(2)
INF = np.float32(np.inf)


@inline
def decode(codes: Any, first: int, count: int, bits: int, flip: Any, out: Any) -> int:
    """Codes [first, first + count) as int8 into `out`; returns where in `out` the first one stands.

    Packed codes are low nibble first (ONNX, MatMulNBits). `flip` is the sign bit of packed signed codes, and of
    uint8, which become int8 by subtracting 128 (callers shift the zero point alike); else 0.
    """
    if bits == 8:
        part = codes[first : first + count]
        for i in range(part.size):
            out[i] = np.int8(part[i] ^ flip)
        return 0
    if bits == 4:
        start = first >> 1
        part = codes[start : (first + count + 1) >> 1]
        for i in range(part.size):
            b = part[i]
            out[2 * i] = np.int8(((b & 15) ^ flip) - flip)
            out[2 * i + 1] = np.int8(((b >> 4) ^ flip) - flip)
        return first & 1
    start = first >> 2
    part = codes[start : (first + count + 3) >> 2]
    for i in range(part.size):
        b = part[i]
        out[4 * i] = np.int8(((b & 3) ^ flip) - flip)
        out[4 * i + 1] = np.int8((((b >> 2) & 3) ^ flip) - flip)
        out[4 * i + 2] = np.int8((((b >> 4) & 3) ^ flip) - flip)
        out[4 * i + 3] = np.int8(((b >> 6) ^ flip) - flip)
    return first & 3


@inline
def look_up(codes: Any, table: Any, out: Any) -> None:
    """The value of each code."""
    for i in range(codes.size):
        out[i] = table[np.uint8(codes[i])]


@inline
def range8(d: Any, zero: Any) -> Any:
    """Lowest and highest code, and how many equal the zero point (an int8, or outside the codes: none)."""
    low = np.int8(127)
    high = np.int8(-128)
    equal = np.int16(0)
    for i in range(d.size):
        low = min(low, d[i])
        high = max(high, d[i])
        equal = count16(equal, d[i] == zero)
    return np.float32(low), np.float32(high), np.float64(equal)


@inline
def range32(d: Any, zero: Any) -> Any:
    """The same for float32 values."""
    low = INF
    high = -INF
    equal = _0
    for i in range(d.size):
        v = np.float32(d[i])
        low = smaller(low, v)
        high = larger(high, v)
        equal += _1 if v == zero else _0
    return low, high, np.float64(equal)


@inline
def tile(x: Any, d: Any, s: Any, z: Any) -> Any:
    """The sums of a few elements under one scale: what `row_tile` of _simd.py leaves over."""
    x_sum = _0
    x_sq = _0
    e_sum = _0
    e_abs = _0
    e_sq = _0
    d_sq = _0
    zeros = _0
    low = INF
    high = -INF
    worst = _0
    for i in range(x.size):
        v = x[i]
        back = np.float32(d[i]) - z
        e = fma(-back, s, v)
        size = abs(e)
        x_sum += v
        x_sq += v * v
        e_sum += e
        e_abs += size
        e_sq += e * e
        d_sq += back * back
        low = smaller(low, v)
        high = larger(high, v)
        worst = larger(worst, size)
        zeros += _1 if v == _0 else _0
    return x_sum, x_sq, e_sum, e_abs, e_sq, d_sq, low, high, worst, zeros


@inline
def steps(x: Any, d: Any, s: Any, z: Any, low_code: Any, high_code: Any, rec: Any) -> None:
    """Clipping and rounding evidence of elements under one scale; codes as floats, as they stand in `d`."""
    over_low = _0
    over_high = _0
    low = _0
    high = _0
    low_sq = _0
    high_sq = _0
    rest_sq = _0
    far = _0
    negative = _0
    even = _0
    away = _0
    sign = _1 if s >= _0 else -_1
    limit = np.float32(abs(np.float64(s)) * 0.5 * 1.001)
    small = np.float32(abs(np.float64(s)) * -1e-3)
    five = np.float32(abs(np.float64(s)) * 2.5)
    for i in range(x.size):
        code = np.float32(d[i])
        e = fma(z - code, s, x[i]) * sign
        square = e * e
        below = e < -limit
        above = e > limit
        at_low = below & (code == low_code)
        at_high = above & (code == high_code)
        over_low += _1 if below else _0
        over_high += _1 if above else _0
        low += _1 if at_low else _0
        high += _1 if at_high else _0
        low_sq += square if at_low else _0
        high_sq += square if at_high else _0
        rest_sq += square * (_1 - (_1 if at_low else _0) - (_1 if at_high else _0))
        far += _1 if abs(e) > five else _0
        negative += _1 if e < small else _0
    for i in range(x.size):
        t = x[i] / s
        whole = np.floor(t)
        to_even = whole + (whole - _2 * np.floor(whole * _HALF))
        from_zero = whole + (_1 if t > _0 else _0)
        tie = (t - whole == _HALF) & (to_even != from_zero)
        back = np.float32(d[i]) - z
        even += _1 if tie & (back == to_even) else _0
        away += _1 if tie & (back == from_zero) else _0
    rec[OVER_LOW] += over_low
    rec[OVER_HIGH] += over_high
    rec[LOW_COUNT] += low
    rec[HIGH_COUNT] += high
    rec[LOW_SQ] += low_sq
    rec[HIGH_SQ] += high_sq
    rec[REST_SQ] += rest_sq
    rec[FAR] += far
    rec[NEGATIVE] += negative
    rec[TIES_EVEN] += even
    rec[TIES_AWAY] += away


@inline
def beyond(x: Any, d: Any, s: Any, z: Any, ends: Any, rec: Any) -> None:
    """Elements beyond the ends of a table, in float64 comparisons."""
    a = min(ends[0] * s, ends[1] * s)
    b = max(ends[0] * s, ends[1] * s)
    low, high = (LOW_COUNT, HIGH_COUNT) if s >= 0.0 else (HIGH_COUNT, LOW_COUNT)
    for i in range(x.size):
        v = np.float64(x[i])
        e = v - (np.float64(d[i]) - z) * s
        if v < a or v > b:
            k = low if v < a else high
            rec[k] += 1.0
            rec[k + 1] += e * e
        else:
            rec[REST_SQ] += e * e


@inline
def in_range(total: float, count: int, nothing: Any) -> bool:
    """Whether a sum of squares stayed where float32 lanes are exact enough (or all of its terms are 0)."""
    return np.isfinite(total) and (total >= count * 1e-36 or nothing)


@inline
def usable(s: float, z: float) -> bool:
    """Whether float32 arithmetic with this scale and zero point is exact enough."""
    if not (abs(s) >= 1e-30 and abs(s) <= 1e30 and np.float64(np.float32(s)) == s):
        return False
    return abs(z) <= 32768.0 and np.floor(z * 256.0) == z * 256.0


@inline
def finish(rec: Any, count: int, s_sq: float, d_sq: float, d_none: Any) -> None:
    """Checks the sums of a record (Y_SQ = s_sq·d_sq) and derives the rest."""
    good = in_range(rec[X_SQ], count, rec[X_MIN] == 0.0 and rec[X_MAX] == 0.0)
    good = good and in_range(rec[E_SQ], count, rec[E_MAX] == 0.0)
    good = good and in_range(d_sq, count, d_none)
    rec[COUNT] = count
    rec[Y_SQ] = s_sq * d_sq
    # NOTE: with norms that differ much, Σx·x̂ would be a small difference of large sums
    good = good and (rec[Y_SQ] == 0.0 or (rec[Y_SQ] >= 0.25 * rec[X_SQ] and rec[Y_SQ] <= 4.0 * rec[X_SQ]))
    rec[REDO] = 0.0 if good else 1.0
    rec[DOT] = (rec[X_SQ] + rec[Y_SQ] - rec[E_SQ]) * 0.5


@inline
def clear(rec: Any) -> None:
    """Makes a record of nothing."""
    for k in range(FIELDS):
        rec[k] = 0.0
    rec[X_MIN] = np.inf
    rec[X_MAX] = -np.inf
    rec[Y_MIN] = np.inf
    rec[Y_MAX] = -np.inf
    rec[CODE_MIN] = np.inf
    rec[CODE_MAX] = -np.inf
