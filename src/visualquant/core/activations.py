"""Streamed statistics of one activation, float against quantized."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]


@dataclasses.dataclass(slots=True, eq=False)
class PairSums:
    """Sums over pairs in which both values are finite; `merge` is addition, so no figure depends on batches.

    Source: metrics.md. Sums in float64.

    Attributes:
        n: finite pairs.
        x, xx, y, yy, xy: sums of x, x², y, y², x·y.
        e, ee, ae: sums of e = x − y, e², |e|.
        max_abs_error, low, high, quant_low, quant_high: extrema over finite pairs.
        non_finite_float, non_finite_quant: counts.
        channel_xx, channel_ee, channel_max: per channel of the last or second axis; None where their number varies.
        channels_vary: batches have different numbers of channels.
    """

    n: int = 0
    x: float = 0.0
    xx: float = 0.0
    y: float = 0.0
    yy: float = 0.0
    xy: float = 0.0
    e: float = 0.0
    ee: float = 0.0
    ae: float = 0.0
    max_abs_error: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    quant_low: float = math.inf
    quant_high: float = -math.inf
    non_finite_float: int = 0
    non_finite_quant: int = 0
    channel_xx: FloatArray | None = None
    channel_ee: FloatArray | None = None
    channel_max: FloatArray | None = None
    channels_vary: bool = False

    def _add_channels(self, found: tuple[FloatArray, FloatArray, FloatArray]) -> None:
        if self.channels_vary:
            self.channel_xx = self.channel_ee = self.channel_max = None
        elif self.channel_xx is None or self.channel_ee is None or self.channel_max is None:
            self.channel_xx, self.channel_ee, self.channel_max = found
        elif self.channel_xx.shape == found[0].shape:
            self.channel_xx = self.channel_xx + found[0]
            self.channel_ee = self.channel_ee + found[1]
            self.channel_max = np.maximum(self.channel_max, found[2])
        else:
            self.channel_xx = self.channel_ee = self.channel_max = None
            self.channels_vary = True

    def merge(self, other: PairSums) -> None:
        """Adds the sums of further pairs."""
        for name in ("n", "x", "xx", "y", "yy", "xy", "e", "ee", "ae", "non_finite_float", "non_finite_quant"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.max_abs_error = max(self.max_abs_error, other.max_abs_error)
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.quant_low = min(self.quant_low, other.quant_low)
        self.quant_high = max(self.quant_high, other.quant_high)
        self.channels_vary = self.channels_vary or other.channels_vary
        if other.channel_xx is not None and other.channel_ee is not None and other.channel_max is not None:
            self._add_channels((other.channel_xx, other.channel_ee, other.channel_max))

    @property
    def sqnr_db(self) -> float | None:
        """10·log10(Σx²/Σe²); +inf where Σe² is 0; None without a finite pair."""
        return _ratio_db(self.xx, self.ee) if self.n else None

    def metrics(self) -> dict[str, float | int]:
        """By their names in metrics.md; undefined ones are left out."""
        if not self.n:
            return {"non_finite_float": self.non_finite_float, "non_finite_quant": self.non_finite_quant}
        centred = self.xx - self.x * self.x / self.n
        found: dict[str, float | int | None] = {
            "sqnr_db": _ratio_db(self.xx, self.ee),
            "sqnr_db_centred": _ratio_db(max(centred, 0.0), self.ee) if centred > 1e-12 * self.xx else None,
            "nsr": self.ee / self.xx if self.xx > 0 else (math.inf if self.ee > 0 else 0.0),
            "mse": self.ee / self.n,
            "rmse": math.sqrt(self.ee / self.n),
            "mae": self.ae / self.n,
            "max_abs_error": self.max_abs_error,
            "euclidean": math.sqrt(self.ee),
            "bias": self.e / self.n,
            "cosine": self.xy / math.sqrt(self.xx * self.yy) if self.xx > 0 and self.yy > 0 else None,
            "non_finite_float": self.non_finite_float,
            "non_finite_quant": self.non_finite_quant,
        }
        if self.channel_xx is not None and self.channel_ee is not None and self.channel_xx.size > 1:
            live = self.channel_xx > 0
            if live.any():
                levels = np.array(
                    [_ratio_db(s, n) for s, n in zip(self.channel_xx[live], self.channel_ee[live], strict=True)]
                )
                found["sqnr_db_worst_channel"] = float(levels.min())
        return {name: value for name, value in found.items() if value is not None}


@dataclasses.dataclass(slots=True, eq=False)
class StepSums:
    """Sums by the step of a sequence, in at most `limit` equal ranges of steps; a longer sequence widens them.

    Attributes:
        limit: ranges kept, an even number.
        width: steps in a range.
        ranges: sums of each.
    """

    limit: int = 64
    width: int = 1
    ranges: list[PairSums] = dataclasses.field(default_factory=list)

    def at(self, step: int) -> PairSums:
        """The sums that a step belongs to; what is added to them is added to the step's range."""
        while step // self.width >= self.limit:
            self.width *= 2
            for k in range(0, len(self.ranges) - 1, 2):
                self.ranges[k].merge(self.ranges[k + 1])
            self.ranges = self.ranges[::2]
        place = step // self.width
        self.ranges += [PairSums() for _ in range(len(self.ranges), place + 1)]
        return self.ranges[place]

    def levels(self) -> tuple[tuple[int, float], ...]:
        """(first step, SQNR in dB) of each range with a finite pair."""
        return tuple((k * self.width, level) for k, s in enumerate(self.ranges) if (level := s.sqnr_db) is not None)


def channel_axis(rank: int) -> int | None:
    """Axis 1 for pictures (rank 4 and 5), the last one for sequences and vectors; None below rank 2."""
    return None if rank < 2 else 1 if rank >= 4 else rank - 1


def _ratio_db(signal: float, noise: float) -> float:
    if noise == 0:
        return math.inf
    return -math.inf if signal == 0 else 10 * (math.log10(signal) - math.log10(noise))


@dataclasses.dataclass(slots=True, eq=False)
class RangeUse:
    """What a quantizer's range meets: observed values against [low, high] of its codes.

    Attributes:
        low, high: the range; step: of the codes.
        n, below, above: values seen, and outside by more than half a step.
        excess: Σ of squared distance outside.
        small: values that are not 0 and less than half a step from it.
        seen_low, seen_high: extrema seen; quantile-like: sums for the bulk.
        sum_abs, sum_sq: of the values.
        codes: counts by code − lowest code, where codes are at most 16 bits.
    """

    low: float
    high: float
    step: float
    n: int = 0
    below: int = 0
    above: int = 0
    excess: float = 0.0
    small: int = 0
    seen_low: float = math.inf
    seen_high: float = -math.inf
    sum_abs: float = 0.0
    sum_sq: float = 0.0
    bulk: FloatArray = dataclasses.field(default_factory=lambda: np.zeros(64))

    @property
    def clipped_share(self) -> float:
        """Share of values outside the range by more than half a step."""
        return (self.below + self.above) / self.n if self.n else 0.0

    @property
    def range_used(self) -> float | None:
        """Overlap of the observed and the quantized range over the quantized range, in [0, 1]."""
        width = self.high - self.low
        return None if not self.n or width <= 0 else max(0.0, self._overlap()) / width

    @property
    def range_covered(self) -> float | None:
        """Overlap over the observed range, in [0, 1]."""
        width = self.seen_high - self.seen_low
        return None if not self.n or width <= 0 else max(0.0, self._overlap()) / width

    def _overlap(self) -> float:
        return min(self.high, self.seen_high) - max(self.low, self.seen_low)

    def bulk_abs(self, share: float = 0.99) -> float:
        """A power of two below which `share` of the non-zero values lie."""
        total = self.bulk.sum()
        if total == 0:
            return 0.0
        return float(2.0 ** (int(np.searchsorted(np.cumsum(self.bulk), share * total)) - 32))
