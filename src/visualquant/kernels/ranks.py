"""Order statistics: exact quantiles of any number of elements by streaming, and outliers of rows.

Keys: the bit pattern of a float as an integer of the same order (negative numbers inverted), so that the k-th
smallest value is found by counting keys, top 16 bits first, then the next 16 within the few prefixes that hold the
wanted ranks. float32 needs two passes, float64 four.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from visualquant.kernels._jit import f32, i64, inline, kernel, larger, read, smaller, strict_inline, u8, u32, u64, write
from visualquant.kernels._simd import HAS_TILES, count_shorts
from visualquant.kernels.brackets import far_by_counts

_BINS = 4096
_TOP = 12  # bits of the first key of a row: sign, exponent, 3 bits of the mantissa
_TILE = 1024
_EXPONENT64 = np.uint64(0x7FF0000000000000)


@strict_inline
def _top_keys(patterns: Any, keys: Any) -> None:
    """The upper 16 bits of the order keys of float32 bit patterns."""
    for i in range(patterns.size):
        p = patterns[i]
        sign = np.uint32(0xFFFFFFFF) if p >= np.uint32(0x80000000) else np.uint32(0x80000000)
        keys[i] = np.uint16((p ^ sign) >> np.uint32(16))


@kernel((read(u32), write(u32)), strict=True)
def count_top32(patterns: Any, counts: Any) -> None:
    """Counts the upper 16 bits of the order keys of float32 values; NaN and infinities have keys of their own.

    Args:
        patterns: uint32, bit patterns of float32 values, fewer than 2^32.
        counts: uint32 [65536], in and out.
    """
    keys = np.empty(_TILE, np.uint16)
    for t in range(0, patterns.size, _TILE):
        part = patterns[t : t + _TILE]
        _top_keys(part, keys)
        words = part.size >> 2 if HAS_TILES else 0
        if words > 0:
            count_shorts(keys, 0, words, counts)
        for i in range(4 * words, part.size):
            counts[keys[i]] += np.uint32(1)


@kernel((read(u32), read(u8), write(i64, 2)), strict=True)
def count_low32(patterns: Any, slots: Any, counts: Any) -> None:
    """Counts the lower 16 bits of the order keys of float32 values whose upper 16 bits are wanted.

    Args:
        patterns: uint32, bit patterns of float32 values.
        slots: uint8 [65536], 1 + row of `counts` for a wanted upper half, 0 for others.
        counts: int64 [wanted, 65536], in and out.
    """
    keys = np.empty(_TILE, np.uint16)
    for t in range(0, patterns.size, _TILE):
        part = patterns[t : t + _TILE]
        _top_keys(part, keys)
        for i in range(part.size):
            slot = slots[keys[i]]
            if slot != 0:
                p = part[i]
                low = ~p if p >= np.uint32(0x80000000) else p
                counts[slot - 1, low & np.uint32(0xFFFF)] += 1


@kernel((read(u64), i64, read(u64), write(i64, 2)), strict=True)
def count_keys64(patterns: Any, shift: int, prefixes: Any, counts: Any) -> None:
    """Counts (key >> shift) & 65535 of finite float64 values whose key >> (shift + 16) is a wanted prefix.

    Args:
        patterns: uint64, bit patterns of float64 values.
        shift: 48, 32, 16, then 0.
        prefixes: uint64 [wanted], sorted; for shift 48 the single prefix 0.
        counts: int64 [wanted, 65536], in and out.
    """
    for i in range(patterns.size):
        p = patterns[i]
        if p & _EXPONENT64 == _EXPONENT64:
            continue
        key = p ^ np.uint64(0xFFFFFFFFFFFFFFFF) if p >> np.uint64(63) else p | np.uint64(0x8000000000000000)
        here = (key >> np.uint64(shift)) & np.uint64(0xFFFF)
        if shift == 48:
            counts[0, here] += 1
        else:
            prefix = key >> np.uint64(shift + 16)
            for k in range(prefixes.size):
                if prefixes[k] == prefix:
                    counts[k, here] += 1
                    break


@inline
def _moments(x: Any) -> Any:
    """Mean, population σ, smallest and largest of finite values, and whether all are finite."""
    total = 0.0
    low = np.float32(np.inf)
    high = np.float32(-np.inf)
    for i in range(x.size):
        total += np.float64(x[i])
        low = smaller(low, x[i])
        high = larger(high, x[i])
    mean = total / x.size
    square = 0.0
    for i in range(x.size):
        delta = np.float64(x[i]) - mean
        square += delta * delta
    return mean, np.sqrt(square / x.size), np.float64(low), np.float64(high), np.isfinite(square)


@inline
def _beside(x: Any, low: Any, high: Any, near_low: Any, near_high: Any) -> Any:
    """The smaller of how many values lie below `low` and above `high`; and the same for the nearer pair."""
    one = np.float32(1)
    zero = np.float32(0)
    counts = np.zeros(4)
    for t in range(0, x.size, 65536):
        part = x[t : t + 65536]
        a = zero
        b = zero
        c = zero
        d = zero
        for i in range(part.size):
            v = part[i]
            a += one if v < low else zero
            b += one if v > high else zero
            c += one if v < near_low else zero
            d += one if v > near_high else zero
        counts[0] += np.float64(a)
        counts[1] += np.float64(b)
        counts[2] += np.float64(c)
        counts[3] += np.float64(d)
    return min(counts[0], counts[1]), min(counts[2], counts[3])


@inline
def _beyond(x: Any, centre: float, limit: float) -> float:
    """How many values lie further than `limit` from the centre."""
    total = 0.0
    for i in range(x.size):
        total += 1.0 if abs(np.float64(x[i]) - centre) > limit else 0.0
    return total


@strict_inline
def _select(values: Any, count: int, rank: int) -> Any:
    """The value of this rank among values[:count], which are reordered (Hoare's selection)."""
    low = 0
    high = count - 1
    while low < high:
        pivot = values[(low + high) >> 1]
        i = low
        j = high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                kept = values[i]
                values[i] = values[j]
                values[j] = kept
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            break
    return values[rank]


@strict_inline
def _key(pattern: Any) -> Any:
    """Top 12 bits of the order key of a float32 bit pattern: its place among 4,096 bins of growing width."""
    sign = np.uint32(0xFFFFFFFF) if pattern >= np.uint32(0x80000000) else np.uint32(0x80000000)
    return (pattern ^ sign) >> np.uint32(32 - _TOP)


@strict_inline
def _rank(k: int, size: int) -> int:
    """Rank of the lower (even k) or upper (odd k) order statistic of quartile k // 2."""
    return min(int((size - 1) * (0.25 * (k // 2 + 1))) + (k & 1), size - 1)


@strict_inline
def _quartile_bins(x: Any, keys: Any, bins: Any, places: Any) -> None:
    """Counts x by key, and finds the bin of each of the six order statistics around the quartiles.

    Args:
        x: float32, finite.
        keys: scratch, uint16 [1024].
        bins: out, uint32 [4096].
        places: out, int64 [2, 6]: bin, and elements before it.
    """
    patterns = x.view(np.uint32)
    bins[:] = np.uint32(0)
    for t in range(0, x.size, _TILE):
        part = patterns[t : t + _TILE]
        for i in range(part.size):
            keys[i] = np.uint16(_key(part[i]))
        words = part.size >> 2 if HAS_TILES else 0
        if words > 0:
            count_shorts(keys, 0, words, bins)
        for i in range(4 * words, part.size):
            bins[keys[i]] += np.uint32(1)
    b = 0
    before = 0
    for k in range(6):
        rank = _rank(k, x.size)
        if rank < before:  # NOTE: with few elements the ranks of two quartiles overlap
            b = 0
            before = 0
        while True:
            # NOTE: 64 bins at a time while all of them lie before the rank
            group: Any = np.int64(0)
            if b & 63 == 0:
                for i in range(b, min(b + 64, _BINS)):
                    group += np.int64(bins[i])
            if b & 63 == 0 and before + group <= rank:
                before += group
                b += 64
            elif before + int(bins[b]) <= rank:
                before += int(bins[b])
                b += 1
            else:
                break
        places[0, k] = b
        places[1, k] = before


@strict_inline
def _quartiles(x: Any, places: Any, scratch: Any, ordered: Any) -> None:
    """The six order statistics around the quartiles of x, into ordered [6]; reorders scratch."""
    patterns = x.view(np.uint32)
    done = -1
    taken = 0
    for k in range(6):
        b = places[0, k]
        if b != done:
            taken = 0
            for i in range(x.size):
                if _key(patterns[i]) == b:
                    scratch[taken] = x[i]
                    taken += 1
            done = b
        ordered[k] = np.float64(_select(scratch, taken, _rank(k, x.size) - places[1, k]))


@strict_inline
def _edge(b: int, pattern: Any) -> float:
    """The smallest float32 of bin b; `pattern` is uint32 [1] to work in."""
    key = np.uint32(b << (32 - _TOP))
    sign = np.uint32(0x80000000) if key >= np.uint32(0x80000000) else np.uint32(0xFFFFFFFF)
    pattern[0] = key ^ sign
    return np.float64(pattern.view(np.float32)[0])


@strict_inline
def _between(low: float, high: float, t: float) -> float:
    """Numpy's linear interpolation between two order statistics."""
    return high - (high - low) * (1.0 - t) if t >= 0.5 else low + (high - low) * t


@kernel((read(f32, 2), write(f32, 2), write(i64), write(i64)))
def outliers(x: Any, scratch: Any, far: Any, six: Any) -> None:
    """Outliers of rows: beyond median ± 10·IQR, and beyond 6 population σ of the mean.

    A row of which no element can be far is settled by two counts: where at least a quarter lies below mean − σ/2
    and a quarter above mean + σ/2, the IQR is at least σ. Most others are settled by bounds of the quartiles (see
    brackets.py); what is left gets exact quartiles.

    Args:
        x: float32 [rows, columns]; NaN and infinities are left out.
        scratch: float32 [2, columns].
        far: out, int64 [rows].
        six: out, int64 [rows]; −1 where a row has fewer than 64 finite elements.
    """
    bins = np.empty(_BINS, np.uint32)
    keys = np.empty(_TILE, np.uint16)
    ordered = np.empty(6)
    state = np.empty((6, 3))
    places = np.empty((2, 6), np.int64)
    pattern = np.empty(1, np.uint32)
    for r in range(x.shape[0]):
        far[r] = 0
        six[r] = -1
        row = x[r]
        if row.size == 0:
            continue
        mean, sigma, low, high, finite = _moments(row)
        if not finite:
            size = 0
            for i in range(row.size):
                if np.isfinite(row[i]):
                    scratch[1, size] = row[i]
                    size += 1
            row = scratch[1, :size]
            if size == 0:
                continue
            mean, sigma, low, high, finite = _moments(row)
        n = row.size
        if n >= 64:
            six[r] = 0
            if max(high - mean, mean - low) > 6.0 * sigma:
                six[r] = int(_beyond(row, mean, 6.0 * sigma))
        reach = max(high - mean, mean - low) + sigma
        wide, near = _beside(
            row,
            np.float32(mean - 0.5 * sigma),
            np.float32(mean + 0.5 * sigma),
            np.float32(mean - 0.38 * sigma),
            np.float32(mean + 0.38 * sigma),
        )
        # NOTE: 0.99 covers the rounding of the limits to float32
        quarter = 0.25 * n + 1.0
        least = sigma if wide >= quarter else 0.76 * sigma if near >= quarter else 0.0
        if reach < 10.0 * 0.99 * least and sigma > 1e-5 * abs(mean):
            continue
        count = far_by_counts(row, mean, sigma, low, high, state) if n >= 8 else -1
        if count >= 0:
            far[r] = count
            continue
        _quartile_bins(row, keys, bins, places)
        # NOTE: each quartile lies within its bins; where even the narrowest IQR reaches every element, none is far
        least_high = _edge(places[0, 4], pattern)
        most_low = _edge(places[0, 1] + 1, pattern)
        middle_low = _edge(places[0, 2], pattern)
        middle_high = _edge(places[0, 3] + 1, pattern)
        furthest = max(high - middle_low, middle_high - low)
        if np.isfinite(furthest) and furthest < 9.99 * (least_high - most_low):
            continue
        _quartiles(row, places, scratch[0], ordered)
        q25 = _between(ordered[0], ordered[1], (n - 1) * 0.25 - int((n - 1) * 0.25))
        median = _between(ordered[2], ordered[3], (n - 1) * 0.5 - int((n - 1) * 0.5))
        q75 = _between(ordered[4], ordered[5], (n - 1) * 0.75 - int((n - 1) * 0.75))
        limit = 10.0 * (q75 - q25)
        if max(high - median, median - low) > limit:
            far[r] = int(_beyond(row, median, limit))
