"""What was measured on one weight: sums, distributions, and every metric that follows from them.

Definitions: metrics.md. `WeightStats` keeps sums and counts; a metric is derived from them when asked. A metric
that is undefined (an empty or all non-finite tensor, no codes, no integer codes) is None, never 0 and never NaN.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from visualquant.core.stats_shape import (
    Bins,
    BlockRow,
    BlockSummary,
    ChannelHistograms,
    CodeUse,
    Histogram,
    Quantiles,
)
from visualquant.core.stats_sums import ClipStats, ErrorStats, FloatArray, IntArray, RoundingEvidence, TensorStats

__all__ = [
    "Bins",
    "BlockRow",
    "BlockSummary",
    "ChannelHistograms",
    "ClipStats",
    "CodeUse",
    "ErrorStats",
    "FloatArray",
    "Histogram",
    "IntArray",
    "Quantiles",
    "RoundingEvidence",
    "ScaleSummary",
    "TensorStats",
    "WeightStats",
    "WhatIf",
    "sqnr_db",
]


def sqnr_db(signal_sq: FloatArray, noise_sq: FloatArray) -> FloatArray:
    """10·log10(Σx²/Σe²) in decibels: +inf where Σe² is 0, −inf where only Σx² is 0. Higher is better."""
    signal, noise = np.asarray(signal_sq, np.float64), np.asarray(noise_sq, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        # NOTE: a difference of logarithms, because the quotient of two tiny or huge sums may leave float64
        out: FloatArray = np.where(noise == 0, np.inf, 10 * (np.log10(signal) - np.log10(noise)))
    return out


@dataclasses.dataclass(frozen=True, slots=True)
class ScaleSummary:
    """The scales of one tensor.

    Attributes:
        groups: number of scales.
        mean_abs, max_abs: of |scale| over finite scales; 0 where there is none.
        non_finite, zero, negative, denormal: how many are NaN or infinite, 0, below 0, below float32's smallest
            normal number.
    """

    groups: int
    mean_abs: float
    max_abs: float
    non_finite: int
    zero: int
    negative: int
    denormal: int

    @staticmethod
    def of(scale: FloatArray) -> ScaleSummary:
        """Summary of an array of scales of any shape."""
        flat = scale.reshape(-1)
        # NOTE: millions of blocks have millions of scales: pieces that stay in the cache, and a closer look at odd ones
        pieces = [_piece_of_scales(flat[k : k + _SCALES]) for k in range(0, flat.size, _SCALES)]
        count, total, largest, *odd = (list(column) for column in zip(*pieces, strict=True)) if pieces else ([0],) * 6
        finite = sum(count)
        mean = math.fsum(total) / finite if finite else 0.0
        return ScaleSummary(flat.size, mean, max(largest), flat.size - finite, *(sum(column) for column in odd))


_SCALES = 65_536


def _piece_of_scales(flat: FloatArray) -> tuple[int, float, float, int, int, int]:
    """Finite ones, Σ|s|, max|s|, zeros, negative and denormal ones."""
    size = np.abs(flat)
    total = float(size.sum())
    good = size if math.isfinite(total) else size[np.isfinite(size)]
    tiny, least = float(np.finfo(np.float32).tiny), float(good.min(initial=np.inf))
    return (
        good.size,
        float(good.sum()) if good.size < size.size else total,
        float(good.max(initial=0.0)),
        int((good == 0).sum()) if least == 0 else 0,
        int((flat < 0).sum()) if good.size < size.size or flat.min(initial=0.0) < 0 else 0,
        int(((good > 0) & (good < tiny)).sum()) if least < tiny else 0,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class WhatIf:
    """The error that a float weight would have under another scheme.

    Attributes:
        scheme: for example "int4 symmetric, blocks of 32"; clip "mse" ends in ", mse clip".
        code_type: "int8" or "int4" (asymmetric ones use uint8 and uint4).
        symmetric: zero point 0, range −127…127 or −7…7 (−8 is not used).
        granularity: per_tensor, per_channel or blocked.
        block_size: elements that share a scale; None unless blocked.
        clip: "range" (smallest and largest value) or "mse" (the clip with the least Σe²).
        bits: bits a code.
        bits_per_weight: with float16 scales and, asymmetric, zero points of `bits`.
        sqnr_db: over the whole tensor; +inf where the error is 0; None where undefined.
        sqnr_db_worst_channel: of the worst channel; None without channels.
    """

    scheme: str
    code_type: str
    symmetric: bool
    granularity: str
    block_size: int | None
    clip: str
    bits: int
    bits_per_weight: float
    sqnr_db: float | None
    sqnr_db_worst_channel: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WeightStats:
    """All that was measured on one weight, x against x̂, or x alone.

    Attributes:
        shape: of the stored codes.
        x, x_hat: statistics of both sides over finite pairs, shape (); x_hat is None without a partner.
        error: of e = x − x̂, shape (), clip counts settled; None without a partner.
        channel_axis: axis of `shape` that counts channels, or None.
        channel_x, channel_x_hat, channel_error: the same a channel, arrays [C].
        integer_codes: x̂ comes from integer codes (affine), so steps and clipping at codes have a meaning.
        scales: summary of the scales, None for a float partner.
        codes: which codes occur.
        rounding_evidence: see `RoundingEvidence`.
        range_used, range_covered: overlap of the quantized and the observed range over the quantized (over the
            observed) range; sums over channels where scales are per channel; None for blocks and float codes.
        outliers, outliers_6_sigma: int64 [C] ([1] without channels): elements beyond median ± 10·IQR, and beyond
            6 population σ (−1 in channels of fewer than 64 elements, where that rule says nothing).
        histogram, channel_histograms, quantiles, blocks: where they were asked for and make sense.
    """

    shape: tuple[int, ...]
    x: TensorStats
    x_hat: TensorStats | None = None
    error: ErrorStats | None = None
    channel_axis: int | None = None
    channel_x: TensorStats | None = None
    channel_x_hat: TensorStats | None = None
    channel_error: ErrorStats | None = None
    integer_codes: bool = False
    scales: ScaleSummary | None = None
    codes: CodeUse | None = None
    rounding_evidence: RoundingEvidence | None = None
    range_used: float | None = None
    range_covered: float | None = None
    outliers: IntArray | None = None
    outliers_6_sigma: IntArray | None = None
    histogram: Histogram | None = None
    channel_histograms: ChannelHistograms | None = None
    quantiles: Quantiles | None = None
    blocks: BlockSummary | None = None

    @property
    def elements(self) -> int:
        """Elements of the tensor, non-finite ones included."""
        return math.prod(self.shape)

    @property
    def pairs(self) -> int:
        """Elements that were compared: both sides finite (without a partner: finite)."""
        return int(self.x.count)

    def _error(self) -> ErrorStats | None:
        return self.error if self.error is not None and int(self.error.count) > 0 else None

    @property
    def sqnr_db(self) -> float | None:
        """10·log10(Σx²/Σe²); +inf where Σe² = 0. Higher is better."""
        error = self._error()
        return None if error is None else float(sqnr_db(self.x.sum_sq, error.sum_sq))

    @property
    def channel_sqnr_db(self) -> FloatArray | None:
        """SQNR of each channel [C] in decibels; NaN in channels without a finite pair."""
        if self.channel_x is None or self.channel_error is None:
            return None
        values = sqnr_db(self.channel_x.sum_sq, self.channel_error.sum_sq)
        out: FloatArray = np.where(self.channel_error.count > 0, values, np.nan)
        return out

    def _measured_channels(self) -> FloatArray:
        values = self.channel_sqnr_db
        return np.empty(0) if values is None else values[~np.isnan(values)]

    @property
    def sqnr_db_worst_channel(self) -> float | None:
        """SQNR of the worst channel."""
        values = self._measured_channels()
        return float(values.min()) if values.size else None

    @property
    def sqnr_db_median_channel(self) -> float | None:
        """Median over channels; between two channels of which one is −inf and one +inf the lower one."""
        values = np.sort(self._measured_channels())
        if values.size == 0:
            return None
        low, high = float(values[(values.size - 1) // 2]), float(values[values.size // 2])
        return low if low == high or math.isinf(low) else (low + high) / 2

    @property
    def share_of_channels_below_20_db(self) -> float | None:
        """Share in [0, 1] of the channels with SQNR below 20 dB; lower is better."""
        values = self._measured_channels()
        return float((values < 20).mean()) if values.size else None

    def worst_channels(self, count: int = 10) -> tuple[tuple[int, float], ...]:
        """(index, SQNR in dB) of the worst channels, worst first; equal ones by index."""
        values = self.channel_sqnr_db
        if values is None:
            return ()
        order = np.argsort(values, kind="stable")
        return tuple((int(k), float(values[k])) for k in order[:count] if not math.isnan(values[k]))

    @property
    def zero_channels(self) -> IntArray:
        """Indices of dead channels: finite elements, all of them 0 in the float tensor."""
        if self.channel_x is None:
            return np.empty(0, np.int64)
        dead = (self.channel_x.count > 0) & (self.channel_x.zeros == self.channel_x.count)
        return np.flatnonzero(dead).astype(np.int64)

    @property
    def zeroed_channels(self) -> IntArray:
        """Indices of channels that live in float and are all 0 after quantization."""
        if self.channel_x is None or self.channel_x_hat is None:
            return np.empty(0, np.int64)
        dead = (self.channel_x_hat.count > 0) & (self.channel_x_hat.zeros == self.channel_x_hat.count)
        return np.flatnonzero(dead & (self.channel_x.zeros < self.channel_x.count)).astype(np.int64)

    @property
    def cosine(self) -> float | None:
        """Σx·x̂/√(Σx²·Σx̂²); None where either norm is 0. Higher is better."""
        error = self._error()
        if error is None or self.x_hat is None:
            return None
        norms = math.sqrt(float(self.x.sum_sq)) * math.sqrt(float(self.x_hat.sum_sq))
        if norms == 0 or not math.isfinite(norms):
            return None
        return max(-1.0, min(1.0, float(error.dot) / norms))

    @property
    def rmse_over_scale(self) -> float | None:
        """√(Σ(e/s)²/n), each element over its own scale; None for float codes. 0.289 is rounding alone."""
        error = self._error()
        if error is None or not self.integer_codes or int(error.scaled_count) == 0:
            return None
        return math.sqrt(float(error.scaled_sq) / int(error.scaled_count))

    @property
    def clipped_low(self) -> int | None:
        """Elements clipped at the lowest code; None without codes."""
        return None if self.error is None or self.scales is None else int(self.error.clipped_low.count)

    @property
    def clipped_high(self) -> int | None:
        """Elements clipped at the highest code; None without codes."""
        return None if self.error is None or self.scales is None else int(self.error.clipped_high.count)

    @property
    def clip_noise_share(self) -> float | None:
        """Σe² over clipped elements / Σe², in [0, 1]; None where Σe² is 0."""
        error = self._error()
        if error is None or self.scales is None or float(error.sum_sq) == 0:
            return None
        return min(1.0, self._clip_noise(error) / float(error.sum_sq))

    @staticmethod
    def _clip_noise(error: ErrorStats) -> float:
        return float(error.clipped_low.sum_sq) + float(error.clipped_high.sum_sq)

    @property
    def sqnr_db_unclipped(self) -> float | None:
        """10·log10(Σx²/Σe² over elements that are not clipped): what rounding alone would give."""
        error = self._error()
        if error is None or self.scales is None:
            return None
        return float(sqnr_db(self.x.sum_sq, error.unclipped_sq))

    @property
    def crest(self) -> float | None:
        """max|x|/rms of the whole tensor; None where rms is 0."""
        rms = float(self.x.rms())
        return float(self.x.max_abs()) / rms if rms > 0 and math.isfinite(rms) else None

    @property
    def channel_crest(self) -> FloatArray | None:
        """max|x|/rms of each channel [C]; NaN where rms is 0."""
        if self.channel_x is None:
            return None
        rms = self.channel_x.rms()
        out: FloatArray = np.where(rms > 0, self.channel_x.max_abs() / np.where(rms > 0, rms, 1.0), np.nan)
        return out

    @property
    def rounding(self) -> str:
        """half_even, half_away, floor, learned, or unknown; see `RoundingEvidence.rule`."""
        if not self.integer_codes or self.rounding_evidence is None:
            return "unknown"
        return self.rounding_evidence.rule()

    @property
    def range_x(self) -> tuple[float, float] | None:
        """Smallest and largest finite float value (of elements whose partner is finite too)."""
        return (float(self.x.minimum), float(self.x.maximum)) if self.pairs else None

    @property
    def range_x_hat(self) -> tuple[float, float] | None:
        """Smallest and largest finite dequantized value."""
        if self.x_hat is None or not int(self.x_hat.count):
            return None
        return float(self.x_hat.minimum), float(self.x_hat.maximum)

    @property
    def effective_range(self) -> tuple[int, int] | None:
        """Lowest and highest code that occur; None for float codes."""
        codes = self.codes
        if codes is None or not self.integer_codes or codes.lowest is None or codes.highest is None:
            return None
        return codes.lowest, codes.highest

    def metrics(self) -> dict[str, float | int]:
        """Metrics by their names in metrics.md; undefined ones are left out; infinities are floats."""
        found: dict[str, float | int | None] = {
            "sqnr_db": self.sqnr_db,
            "sqnr_db_worst_channel": self.sqnr_db_worst_channel,
            "sqnr_db_median_channel": self.sqnr_db_median_channel,
            "share_of_channels_below_20_db": self.share_of_channels_below_20_db,
            **self._error_metrics(),
            "cosine": self.cosine,
            "rmse_over_scale": self.rmse_over_scale,
            "clipped_low": self.clipped_low,
            "clipped_high": self.clipped_high,
            "clip_noise_share": self.clip_noise_share,
            "sqnr_db_unclipped": self.sqnr_db_unclipped,
            "range_used": self.range_used,
            "range_covered": self.range_covered,
            "crest": self.crest,
            "crest_worst_channel": _largest(self.channel_crest),
            "outliers": None if self.outliers is None else int(self.outliers.sum()),
            "outliers_6_sigma": self._six_sigma(),
            "zeros": int(self.x.zeros) if self.pairs else None,
            **self._code_metrics(),
            **self._distribution_metrics(),
        }
        if self.error is not None:
            found["non_finite_float"] = int(self.error.non_finite_float)
            found["non_finite_quant"] = int(self.error.non_finite_quant)
        else:
            found["non_finite_float"] = self.elements - self.pairs
        return {name: value for name, value in found.items() if value is not None and not math.isnan(value)}

    def _error_metrics(self) -> dict[str, float | int | None]:
        error = self._error()
        if error is None:
            return {}
        n, sum_sq, signal = int(error.count), float(error.sum_sq), float(self.x.sum_sq)
        nsr = sum_sq / signal if signal > 0 else (math.inf if sum_sq > 0 else 0.0)
        return {
            "nsr": nsr,
            "mse": sum_sq / n,
            "rmse": math.sqrt(sum_sq / n),
            "mae": float(error.sum_abs) / n,
            "max_abs_error": float(error.max_abs),
            "euclidean": math.sqrt(sum_sq),
            "bias": float(error.sum) / n,
        }

    def _code_metrics(self) -> dict[str, float | int | None]:
        if self.codes is None:
            return {}
        return {
            "code_utilisation": self.codes.utilisation,
            "code_utilisation_median_channel": self.codes.median_channel_utilisation,
            "effective_bits": self.codes.effective_bits,
            "effective_bits_median_channel": self.codes.median_channel_bits,
        }

    def _distribution_metrics(self) -> dict[str, float | int | None]:
        if self.histogram is None or self.histogram.x_hat is None:
            return {}
        step = self.scales.max_abs if self.scales is not None else 0.0
        unit = self.scales.mean_abs if self.scales is not None else 0.0
        distance = self.histogram.wasserstein(2 * step) if unit > 0 else None
        return {
            "js_divergence": self.histogram.js_divergence(2 * step),
            "wasserstein": None if distance is None else distance / unit,
        }

    def _six_sigma(self) -> int | None:
        if self.outliers_6_sigma is None or not (self.outliers_6_sigma >= 0).any():
            return None
        return int(self.outliers_6_sigma[self.outliers_6_sigma >= 0].sum())


def _largest(values: FloatArray | None) -> float | None:
    if values is None:
        return None
    values = values[~np.isnan(values)]
    return float(values.max()) if values.size else None
