"""Distributions that merge: histograms on power-of-two grids, quantiles, code use, blocks.

Why powers of two: a bin of width 2^k that starts at a multiple of 2^k splits into two bins of width 2^(k-1).
A histogram can so begin fine and become coarser when the range grows, in one pass, and the result depends on
the data alone, never on the order or the size of the pieces.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from visualquant.core.stats_sums import FloatArray, IntArray

# Bins never get finer than 2^-23 of the largest magnitude: the step of float32. Indices so fit in int32.
FINEST = 23


def bin_exponent(low: float, high: float, bins: int) -> int:
    """The smallest k such that at most `bins` bins of width 2^k, at multiples of 2^k, cover [low, high].

    Never finer than 2^-23 of the largest magnitude. `low` and `high` are finite.
    """
    largest = max(abs(low), abs(high))
    k = math.frexp(largest)[1] - FINEST if largest > 0 else -1074
    k = max(k, -1074)
    width = high - low
    if math.isfinite(width):
        share = width / bins  # NOTE: 0 for a denormal width: then the finest grid serves
        k = max(k, math.frexp(share)[1] - 2) if share > 0 else k
    else:
        k = max(k, 1024 - bins.bit_length() - 1)
    while bin_index(high, k) - bin_index(low, k) >= bins:
        k += 1
    return k


def bin_index(value: float, exponent: int) -> int:
    """Index of the bin of width 2^exponent that holds a finite value: floor(value / 2^exponent), exact."""
    mantissa, own = math.frexp(value)
    shift = own - 53 - exponent
    whole = int(mantissa * 2.0**53)
    return whole << shift if shift >= 0 else whole >> -shift


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """Counts of one or more variables over the same power-of-two grid.

    Attributes:
        exponent: bins are 2^exponent wide.
        first: index of the first bin; bin i holds [(first + i)·2^exponent, (first + i + 1)·2^exponent).
        counts: int64 [variables, bins].
        limit: most bins; merging coarsens until they suffice.
    """

    exponent: int
    first: int
    counts: IntArray
    limit: int

    @staticmethod
    def identity(variables: int, limit: int) -> Bins:
        """A histogram of nothing."""
        return Bins(-1074, 0, np.zeros((variables, 0), np.int64), limit)

    @property
    def edges(self) -> FloatArray:
        """Edges of the bins, float64 [bins + 1]."""
        steps = np.arange(self.first, self.first + self.counts.shape[1] + 1, dtype=np.float64)
        out: FloatArray = np.ldexp(steps, self.exponent)
        return out

    def coarsen(self, exponent: int) -> Bins:
        """The same counts in bins of 2^exponent; no finer than they are now."""
        shift = exponent - self.exponent
        if shift <= 0 or self.counts.shape[1] == 0:
            return self if shift <= 0 else dataclasses.replace(self, exponent=exponent)
        first = self.first >> shift
        last = (self.first + self.counts.shape[1] - 1) >> shift
        target = (np.arange(self.first, self.first + self.counts.shape[1]) >> shift) - first
        counts = np.zeros((self.counts.shape[0], last - first + 1), np.int64)
        for row, out in zip(self.counts, counts, strict=True):
            np.add.at(out, target, row)
        return Bins(exponent, first, counts, self.limit)

    def trimmed(self) -> Bins:
        """Without empty bins at both ends."""
        used = np.flatnonzero(self.counts.any(axis=0))
        if used.size == 0:
            return Bins.identity(self.counts.shape[0], self.limit)
        low, high = int(used[0]), int(used[-1]) + 1
        return Bins(self.exponent, self.first + low, self.counts[:, low:high], self.limit)

    def merge(self, other: Bins) -> Bins:
        """Both parts together, on the finest grid that holds them within `limit` bins."""
        limit = min(self.limit, other.limit)
        a, b = self.trimmed(), other.trimmed()
        if a.counts.shape[1] == 0 or b.counts.shape[1] == 0:
            return dataclasses.replace(b if a.counts.shape[1] == 0 else a, limit=limit)
        exponent = max(a.exponent, b.exponent)
        while True:
            a, b = a.coarsen(exponent), b.coarsen(exponent)
            first = min(a.first, b.first)
            last = max(a.first + a.counts.shape[1], b.first + b.counts.shape[1])
            if last - first <= limit:
                break
            exponent += 1
        counts = np.zeros((a.counts.shape[0], last - first), np.int64)
        for part in (a, b):
            start = part.first - first
            counts[:, start : start + part.counts.shape[1]] += part.counts
        return Bins(exponent, first, counts, limit)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Shared-edge histograms of x and x̂, and one of the error on a grid of its own.

    Attributes:
        values: counts of x (row 0) and, where there are codes, of x̂ (row 1).
        error: counts of e = x − x̂ (one row), or None where not wanted.
    """

    values: Bins
    error: Bins | None = None

    @property
    def edges(self) -> FloatArray:
        """Edges of the bins of x and x̂, float64 [bins + 1]."""
        return self.values.edges

    @property
    def x(self) -> IntArray:
        """Counts of the float values, int64 [bins]."""
        counts: IntArray = self.values.counts[0]
        return counts

    @property
    def x_hat(self) -> IntArray | None:
        """Counts of the dequantized values, int64 [bins]; None where there are no codes."""
        return self.values.counts[1] if self.values.counts.shape[0] > 1 else None

    def merge(self, other: Histogram) -> Histogram:
        """Both parts together."""
        error = None
        if self.error is not None and other.error is not None:
            error = self.error.merge(other.error)
        return Histogram(self.values.merge(other.values), error)

    def _shares(self, least_width: float) -> tuple[FloatArray, FloatArray, float] | None:
        bins = self.values.trimmed()
        if least_width > 0 and math.isfinite(least_width):
            mantissa, exponent = math.frexp(least_width)
            bins = bins.coarsen(exponent - 1 if mantissa == 0.5 else exponent)
        if bins.counts.shape[0] < 2 or not bins.counts[0].any() or not bins.counts[1].any():
            return None
        p, q = (row / row.sum() for row in bins.counts.astype(np.float64))
        return p, q, math.ldexp(1.0, bins.exponent)

    def js_divergence(self, least_width: float = 0.0) -> float | None:
        """Jensen-Shannon divergence of x and x̂ in bits, in [0, 1]; lower is better.

        Args:
            least_width: bins are merged until they are at least so wide (two code steps hide the comb of the
                grid).
        """
        shares = self._shares(least_width)
        if shares is None:
            return None
        p, q, _ = shares
        return min(1.0, max(0.0, _entropy_bits((p + q) / 2) - (_entropy_bits(p) + _entropy_bits(q)) / 2))

    def wasserstein(self, least_width: float = 0.0) -> float | None:
        """First Wasserstein distance of x and x̂ in the units of x: Σ|P − Q|·width over their cumulated shares."""
        shares = self._shares(least_width)
        if shares is None:
            return None
        p, q, width = shares
        return float(np.abs(np.cumsum(p - q)).sum() * width)


def _entropy_bits(p: FloatArray) -> float:
    p = p[p > 0]
    return float(-(p * np.log2(p)).sum())


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ChannelHistograms:
    """One histogram a channel, all on one grid.

    Attributes:
        exponent, first: as in `Bins`.
        x, x_hat: uint32 [channels, bins]; x_hat is None where there are no codes.
    """

    exponent: int
    first: int
    x: npt.NDArray[np.uint32]
    x_hat: npt.NDArray[np.uint32] | None

    @property
    def edges(self) -> FloatArray:
        """Edges of the bins, float64 [bins + 1]."""
        steps = np.arange(self.first, self.first + self.x.shape[1] + 1, dtype=np.float64)
        out: FloatArray = np.ldexp(steps, self.exponent)
        return out


@dataclasses.dataclass(frozen=True, slots=True)
class Quantiles:
    """Exact quantiles of the finite values, linear between order statistics (numpy's default).

    Attributes:
        values: value by probability; empty where there was no finite value.
    """

    values: dict[float, float]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CodeUse:
    """Which codes occur, and how often.

    Attributes:
        lowest, highest: the effective range: extreme codes that occur (bit patterns for float and table codes);
            None in an empty tensor.
        available: codes that the declared range (or the finite float patterns) offers; None where codes have
            more than 16 bits.
        counts: int64 [2**bits], by code − first_code; None where codes have more than 16 bits or were not counted.
        first_code: code of counts[0].
        channel_distinct: int64 [C], distinct codes a channel, or None.
        channel_bits: float64 [C], entropy of the codes of a channel in bits, or None.
    """

    lowest: int | None
    highest: int | None
    available: int | None
    counts: IntArray | None = None
    first_code: int = 0
    channel_distinct: IntArray | None = None
    channel_bits: FloatArray | None = None

    @property
    def distinct(self) -> int | None:
        """Distinct codes used."""
        return None if self.counts is None else int(np.count_nonzero(self.counts))

    @property
    def utilisation(self) -> float | None:
        """Distinct codes used over codes available, in [0, 1]; higher is better."""
        if self.distinct is None or not self.available or self.distinct == 0:
            return None
        return min(1.0, self.distinct / self.available)

    @property
    def effective_bits(self) -> float | None:
        """Entropy of the codes in bits; at most the bits of the type."""
        if self.counts is None or not self.counts.any():
            return None
        return max(0.0, _entropy_bits(self.counts / self.counts.sum()))

    @property
    def median_channel_utilisation(self) -> float | None:
        """Median over channels of distinct codes over codes available."""
        if self.channel_distinct is None or not self.channel_distinct.size or not self.available:
            return None
        return min(1.0, float(np.median(self.channel_distinct)) / self.available)

    @property
    def median_channel_bits(self) -> float | None:
        """Median over channels of the entropy of their codes, in bits."""
        if self.channel_bits is None or not self.channel_bits.size:
            return None
        return float(np.median(self.channel_bits))


@dataclasses.dataclass(frozen=True, slots=True)
class BlockRow:
    """One block among the worst.

    Attributes:
        row, block: position in the grid of scales: row counts all axes but the blocked one (in the order of
            `BlockSummary.row_axes`), block counts along it.
        sqnr_db: of the block alone.
    """

    row: int
    block: int
    sqnr_db: float


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class BlockSummary:
    """Blocks that share a scale: how they are spread, the worst, and a picture of all.

    Attributes:
        blocks: number of blocks with at least one finite pair.
        rows, blocks_per_row: the grid of scales.
        row_axes: axes of the codes that count rows, in order.
        below_20_db: blocks whose SQNR is below 20 dB.
        ratio_edges: float64 [bins + 1], Σe²/Σx² at the limits of the distribution, ascending; 0 and inf at the ends.
        ratio_counts: int64 [bins], blocks by Σe²/Σx².
        worst: at most 256 blocks, worst first.
        pooled_signal, pooled_noise: float64 [≤512, ≤512], Σx² and Σe² of neighbouring blocks.
    """

    blocks: int
    rows: int
    blocks_per_row: int
    row_axes: tuple[int, ...]
    below_20_db: int
    ratio_edges: FloatArray
    ratio_counts: IntArray
    worst: tuple[BlockRow, ...]
    pooled_signal: FloatArray
    pooled_noise: FloatArray

    @property
    def pooled_sqnr_db(self) -> FloatArray:
        """SQNR of the pooled grid in decibels; NaN where both sums are 0."""
        with np.errstate(all="ignore"):
            out: FloatArray = 10 * np.log10(self.pooled_signal / self.pooled_noise)
        return out

    def quantile_db(self, p: float) -> float | None:
        """SQNR in dB that a share p of the blocks stays below, to the resolution of the distribution (¾ dB)."""
        total = int(self.ratio_counts.sum())
        if total == 0:
            return None
        worst_first = np.cumsum(self.ratio_counts[::-1])
        k = self.ratio_counts.size - 1 - int(np.searchsorted(worst_first, max(1, math.ceil(p * total))))
        low, high = self.ratio_edges[k], self.ratio_edges[k + 1]
        if low == 0:
            return math.inf if high == 0 else float(-10 * np.log10(high))
        ratio = low if math.isinf(high) else math.sqrt(low * high)
        return float(-10 * np.log10(ratio))
