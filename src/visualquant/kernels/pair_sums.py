"""Sums over pairs of activations and over what meets a range: one pass, whatever the shape.

Accuracy: every product and sum in float64, differences of float32 values exact in it. Pairs with a value that is no
number are left out and counted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.activations import PairSums, RangeUse, channel_axis
from visualquant.kernels._jit import f32, f64, i64, kernel, larger, read, smaller, u32, u64, write

Array = npt.NDArray[Any]
EXPONENTS = 64
"""Bins of `RangeUse.bulk`: binary exponents from −32 on."""
_TILE, _TABLES = 4096, 4
_N, _X, _XX, _Y, _YY, _XY, _E, _EE, _AE, _PEAK, _LOW, _HIGH, _QUANT_LOW, _QUANT_HIGH, _BAD_X, _BAD_Y = range(16)
_UNDER, _OVER, _EXCESS, _SMALL, _ABS, _SQ = range(6)


def add_pair(sums: PairSums, x: Array, y: Array) -> None:
    """Adds one batch to the sums.

    Args:
        sums: changed in place.
        x: float values, any shape; non-finite ones are counted and left out.
        y: the same of the quantized model, of one shape with x.
    """
    if not x.size:
        return
    a, b = _plain(x), _plain(y)
    if a.dtype != b.dtype:
        a, b = a.astype(np.float64), b.astype(np.float64)
    axis = channel_axis(x.ndim)
    channels = 1 if axis is None else x.shape[axis]
    inner = math.prod(x.shape[axis + 1 :]) if axis is not None else x.size
    totals = np.zeros(16)
    totals[[_LOW, _QUANT_LOW]], totals[[_HIGH, _QUANT_HIGH]] = math.inf, -math.inf
    by_channel = np.zeros((3, channels))
    if inner > 1:
        _runs(a.reshape(-1, channels, inner), b.reshape(-1, channels, inner), totals, by_channel)
    else:  # channels lie next to each other: totals as one run, channels row by row
        _runs(a.reshape(1, 1, -1), b.reshape(1, 1, -1), totals, np.zeros((3, 1)))
        _columns(a.reshape(-1, channels), b.reshape(-1, channels), by_channel)
    t = totals.tolist()
    batch = PairSums(int(t[_N]), t[_X], t[_XX], t[_Y], t[_YY], t[_XY], t[_E], t[_EE], t[_AE], t[_PEAK])
    batch.low, batch.high, batch.quant_low, batch.quant_high = t[_LOW], t[_HIGH], t[_QUANT_LOW], t[_QUANT_HIGH]
    batch.non_finite_float, batch.non_finite_quant = int(t[_BAD_X]), int(t[_BAD_Y])
    if axis is not None and batch.n:
        batch.channel_xx, batch.channel_ee, batch.channel_max = by_channel
    sums.merge(batch)


def add_range(use: RangeUse, x: Array) -> None:
    """Adds one batch of float values to what is known of a quantizer's range.

    Args:
        use: changed in place.
        x: any shape; values that are no numbers are left out.
    """
    if not x.size:
        return
    sums, extrema = np.zeros(6), np.array([math.inf, -math.inf])
    bulk = np.zeros((_TABLES, EXPONENTS), np.int64)
    values = _plain(x).reshape(-1)
    count = _range(values, np.array([use.low, use.high, use.step / 2]), sums, extrema)
    (_exponents32 if values.dtype == np.float32 else _exponents64)(values.view(f"u{values.itemsize}"), bulk)
    use.n += count
    use.below += int(sums[_UNDER])
    use.above += int(sums[_OVER])
    use.excess += float(sums[_EXCESS])
    zeros = values.size - int(bulk.sum())  # what is no number counts as 0 in `_range`, and has no exponent here
    use.small += int(sums[_SMALL]) - zeros
    use.sum_abs += float(sums[_ABS])
    use.sum_sq += float(sums[_SQ])
    use.seen_low, use.seen_high = min(use.seen_low, float(extrema[0])), max(use.seen_high, float(extrema[1]))
    use.bulk += bulk.sum(axis=0)


def finite_extrema(x: Array) -> tuple[float, float]:
    """Smallest and largest finite value; (inf, −inf) without one."""
    found = np.array([math.inf, -math.inf])
    _extrema(_plain(x).reshape(-1), found)
    return float(found[0]), float(found[1])


def _plain(x: Array) -> Array:
    """Contiguous float32, or float64 for what float32 can't hold exactly."""
    kept = np.float32 if x.dtype in (np.float32, np.float16) else np.float64
    return np.ascontiguousarray(x, dtype=kept)


@kernel(*((read(t, 3), read(t, 3), write(f64), write(f64, 2)) for t in (f32, f64)))
def _runs(x: Any, y: Any, totals: Any, by_channel: Any) -> None:
    """Channels whose elements lie side by side, [outer, C, inner]."""
    for o in range(x.shape[0]):
        for c in range(x.shape[1]):
            n = 0.0
            sx = sxx = sy = syy = sxy = se = see = sae = 0.0
            peak = top = 0.0
            low, high, quant_low, quant_high = math.inf, -math.inf, math.inf, -math.inf
            bad_x = bad_y = 0.0
            for i in range(x.shape[2]):
                a, b = f64(x[o, c, i]), f64(y[o, c, i])
                good_a, good_b = abs(a) < math.inf, abs(b) < math.inf
                bad_x += 0.0 if good_a else 1.0
                bad_y += 0.0 if good_b else 1.0
                good = good_a and good_b
                low, high = smaller(low, a if good else math.inf), larger(high, a if good else -math.inf)
                quant_low = smaller(quant_low, b if good else math.inf)
                quant_high = larger(quant_high, b if good else -math.inf)
                a, b = a if good else 0.0, b if good else 0.0
                n += 1.0 if good else 0.0
                e = a - b
                sx += a
                sxx += a * a
                sy += b
                syy += b * b
                sxy += a * b
                se += e
                see += e * e
                size = abs(e)
                sae += size
                peak = larger(peak, size)
                top = larger(top, abs(a))
            totals[_N] += n
            totals[_X] += sx
            totals[_XX] += sxx
            totals[_Y] += sy
            totals[_YY] += syy
            totals[_XY] += sxy
            totals[_E] += se
            totals[_EE] += see
            totals[_AE] += sae
            totals[_PEAK] = max(totals[_PEAK], peak)
            totals[_LOW] = min(totals[_LOW], low)
            totals[_HIGH] = max(totals[_HIGH], high)
            totals[_QUANT_LOW] = min(totals[_QUANT_LOW], quant_low)
            totals[_QUANT_HIGH] = max(totals[_QUANT_HIGH], quant_high)
            totals[_BAD_X] += bad_x
            totals[_BAD_Y] += bad_y
            by_channel[0, c] += sxx
            by_channel[1, c] += see
            by_channel[2, c] = max(by_channel[2, c], top)


@kernel(*((read(t, 2), read(t, 2), write(f64, 2)) for t in (f32, f64)))
def _columns(x: Any, y: Any, by_channel: Any) -> None:
    """Per channel only, of channels that lie next to each other, [outer, C]."""
    squares, errors, peaks = by_channel[0], by_channel[1], by_channel[2]
    for o in range(x.shape[0]):
        for c in range(x.shape[1]):
            a, b = f64(x[o, c]), f64(y[o, c])
            good = abs(a) < math.inf and abs(b) < math.inf
            a, e = a if good else 0.0, a - b if good else 0.0
            squares[c] += a * a
            errors[c] += e * e
            peaks[c] = larger(peaks[c], abs(a))


@kernel(*((read(t), read(f64), write(f64), write(f64)) for t in (f32, f64)))
def _range(x: Any, limits: Any, sums: Any, extrema: Any) -> int:
    low, high, half = limits[0], limits[1], limits[2]
    count = 0
    for start in range(0, x.size, _TILE):
        n = under = over = small = 0.0
        excess = total = square = 0.0
        first, last = math.inf, -math.inf
        for i in range(start, min(start + _TILE, x.size)):
            a = f64(x[i])
            good = abs(a) < math.inf
            first, last = smaller(first, a if good else math.inf), larger(last, a if good else -math.inf)
            a = a if good else 0.0
            n += 1.0 if good else 0.0
            below, above = low - a if good else 0.0, a - high if good else 0.0
            under += 1.0 if below > half else 0.0
            over += 1.0 if above > half else 0.0
            out = below if below > half else above if above > half else 0.0
            excess += out * out
            size = abs(a)
            small += 1.0 if size < half else 0.0
            total += size
            square += a * a
        count += int(n)
        sums[_UNDER] += under
        sums[_OVER] += over
        sums[_EXCESS] += excess
        sums[_SMALL] += small
        sums[_ABS] += total
        sums[_SQ] += square
        extrema[0], extrema[1] = smaller(extrema[0], first), larger(extrema[1], last)
    return count


@kernel((read(u32), write(i64, 2)))
def _exponents32(bits: Any, bulk: Any) -> None:
    """Counts by exponent what is neither 0 nor infinite; tables in turn, so that no store waits for the last one."""
    for i in range(bits.size):
        size = bits[i] & u32(0x7FFFFFFF)
        if size != 0 and size < u32(0x7F800000):
            place = (i64(size) >> 23) - 126 + 32
            bulk[i & (_TABLES - 1), min(max(place, 0), EXPONENTS - 1)] += 1


@kernel((read(u64), write(i64, 2)))
def _exponents64(bits: Any, bulk: Any) -> None:
    """The same of float64."""
    for i in range(bits.size):
        size = i64(bits[i] & u64(0x7FFFFFFFFFFFFFFF))
        if size != 0 and size < 0x7FF0000000000000:
            place = (size >> 52) - 1022 + 32
            bulk[i & (_TABLES - 1), min(max(place, 0), EXPONENTS - 1)] += 1


@kernel(*((read(t), write(f64)) for t in (f32, f64)))
def _extrema(x: Any, found: Any) -> None:
    low, high = math.inf, -math.inf
    for i in range(x.size):
        a = f64(x[i])
        good = abs(a) < math.inf
        low, high = smaller(low, a if good else math.inf), larger(high, a if good else -math.inf)
    found[0], found[1] = low, high
