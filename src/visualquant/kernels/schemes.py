"""The error of rows under many quantization schemes at once, while they are in the cache.

q = saturate(round_half_even(x/scale) + zero point), as in ONNX QuantizeLinear, except that x is multiplied by the
float32 inverse of the scale: codes differ only within a float32 rounding of a tie, where both errors are half a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from visualquant.kernels._jit import f32, f64, fma, i64, inline, kernel, larger, read, smaller, write

# Column of `errors`: ((8 bits 0, 4 bits 1)·2 + asymmetric)·8 + granularity·2 + clip
PER_TENSOR, PER_CHANNEL, BLOCKS_32, BLOCKS_128 = 0, 1, 2, 3
SCHEMES = 32
_BLOCK = (0, 0, 32, 128)
_0 = np.float32(0)


@inline
def _ends(x: Any, start: int, stop: int) -> Any:
    low = np.float32(np.inf)
    high = np.float32(-np.inf)
    part = x[start:stop]
    for i in range(part.size):
        low = smaller(low, part[i])
        high = larger(high, part[i])
    return np.float64(low), np.float64(high)


@inline
def _piece_error(x: Any, start: int, inverse: Any, scale: Any, low: Any, high: Any) -> Any:
    """Σe² of 32 elements from `start`."""
    total = _0
    for i in range(32):
        v = x[start + i]
        t = np.rint(v * inverse)
        t = smaller(larger(t, low), high)
        e = fma(-t, scale, v)
        total += e * e
    return total


@inline
def _error(x: Any, start: int, stop: int, scale: float, low: float, high: float) -> float:
    """Σe² of x[start:stop] with codes (less the zero point) in [low, high]."""
    s = np.float32(scale)
    inverse = np.float32(1.0 / scale)
    a = np.float32(low)
    b = np.float32(high)
    total = 0.0
    full = (stop - start) >> 5
    for p in range(full):
        total += np.float64(_piece_error(x, start + p * 32, inverse, s, a, b))
    rest = _0
    for i in range(start + full * 32, stop):
        v = x[i]
        t = min(max(np.rint(v * inverse), a), b)
        e = fma(-t, s, v)
        rest += e * e
    return total + np.float64(rest)


@inline
def scale_of(low: float, high: float, bits: int, asymmetric: int, share: float) -> Any:
    """Scale, and lowest and highest code less the zero point, for a range shrunk to `share`; scale 0: all zero."""
    if asymmetric == 0:
        top = np.float64((1 << (bits - 1)) - 1)
        return max(abs(low), abs(high)) * share / top, -top, top
    top = np.float64((1 << bits) - 1)
    least = min(low, 0.0) * share
    most = max(high, 0.0) * share
    scale = (most - least) / top
    if scale == 0.0:
        return 0.0, 0.0, 0.0
    zero = min(max(np.rint(-least / scale), 0.0), top)
    return scale, -zero, top - zero


@inline
def _best(x: Any, start: int, stop: int, bits: int, asymmetric: int, shares: Any, out: Any) -> None:
    """Adds Σe² with the whole range to out[0], and with the best of the shares to out[1]."""
    low, high = _ends(x, start, stop)
    least = np.inf
    worse = 0
    for k in range(shares.size):
        scale, a, b = scale_of(low, high, bits, asymmetric, shares[k])
        if scale < 1e-37:
            # NOTE: zeros (or what float32 cannot divide): every code is 0 and x itself is the error
            found = 0.0
            for i in range(start, stop):
                found += np.float64(x[i]) * np.float64(x[i])
        else:
            found = _error(x, start, stop, scale, a, b)
        if k == 0:
            out[0] += found
        worse = 0 if found < least else worse + 1
        least = min(least, found)
        # NOTE: the error over the share has one valley; two steps up its far side are enough
        if worse == 2:
            break
    out[1] += least


@inline
def _under(row: Any, given: Any, signal: float) -> float:
    """Σe² of a row under (scale, lowest, highest code)."""
    return signal if given[0] < 1e-37 else _error(row, 0, row.size, given[0], given[1], given[2])


@kernel((read(f32, 2), read(f64, 2), read(f64, 3), read(f64), read(f64), i64, write(f64), write(f64, 2)))
def measure_schemes(
    x: Any, tensor: Any, channel: Any, shares8: Any, shares4: Any, with_channels: int, signal: Any, errors: Any
) -> None:
    """Σx² and Σe² of each row under each scheme.

    Args:
        x: float32 [rows, columns], finite.
        tensor: float64 [8, 3], scale, lowest and highest code (less the zero point) of the per-tensor schemes, by
            (bits, asymmetric, clip).
        channel: float64 [rows, 8, 3], the same of the per-channel schemes; [0, 8, 3] to find them here.
        shares8: float64, shares of the range that clipping may keep for 8 bits, descending from 1.
        shares4: the same for 4 bits.
        with_channels: 1 to try one scale a row too.
        signal: out, float64 [rows].
        errors: out, float64 [rows, SCHEMES].
    """
    columns = x.shape[1]
    pair = np.zeros(2)
    for r in range(x.shape[0]):
        row = x[r]
        total = 0.0
        for i in range(columns):
            total += np.float64(row[i]) * np.float64(row[i])
        signal[r] = total
        for wide in range(2):
            bits = 8 if wide == 0 else 4
            shares = shares8 if wide == 0 else shares4
            for asymmetric in range(2):
                base = (wide * 2 + asymmetric) * 8
                for clip in range(2):
                    which = (wide * 2 + asymmetric) * 2 + clip
                    errors[r, base + clip] = _under(row, tensor[which], total)
                    if channel.shape[0] > 0:
                        errors[r, base + 2 * PER_CHANNEL + clip] = _under(row, channel[r, which], total)
                for granularity in range(2 if channel.shape[0] > 0 else 1, 4):
                    pair[:] = 0.0
                    if granularity == PER_CHANNEL:
                        if with_channels == 1:
                            _best(row, 0, columns, bits, asymmetric, shares, pair)
                    else:
                        block = _BLOCK[granularity]
                        for start in range(0, columns, block):
                            _best(row, start, min(columns, start + block), bits, asymmetric, shares, pair)
                    errors[r, base + granularity * 2] = pair[0]
                    errors[r, base + granularity * 2 + 1] = pair[1]
