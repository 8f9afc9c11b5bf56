"""Thirteen numbers a tensor, for slow links: counts, extrema, moments, norms, a quantile."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Sequence

import numpy as np

BLOCK = 1 << 16
QUANTILE_SAMPLE = 1 << 10
_WIDE = frozenset({"float64", "int32", "int64", "uint32", "uint64"})


class _Sums:
    """Numbers over blocks. Within a block of float32 sums are float32 (pairwise), across blocks float64."""

    def __init__(self) -> None:
        self.nan = self.inf = self.zero = self.good = 0
        self.low, self.high = math.inf, -math.inf
        self.sum = self.square = self.absolute = 0.0

    def add(self, block: Any) -> None:
        """A block of float32 or float64."""
        square = float(np.dot(block, block))
        if not math.isfinite(square):
            self._add_strange(block)
            return
        self._add_finite(block, square)

    def add_codes(self, codes: Any, block: Any) -> None:
        """A block of bytes, and the same as float32: bytes are quicker to look through."""
        low, total = float(codes.min()), float(block.sum())
        self.low, self.high = min(self.low, low), max(self.high, float(codes.max()))
        self.good += codes.size
        self.zero += codes.size - int(np.count_nonzero(codes != 0))
        self.sum += total
        self.square += float(np.dot(block, block))
        self.absolute += float(np.abs(block).sum()) if low < 0 else total

    def _add_finite(self, block: Any, square: float) -> None:
        low, total = float(block.min()), float(block.sum())
        self.low, self.high = min(self.low, low), max(self.high, float(block.max()))
        self.good += block.size
        self.zero += int(np.count_nonzero(block == 0))
        self.sum += total
        self.square += square
        self.absolute += float(np.abs(block).sum()) if low < 0 else total

    def _add_strange(self, block: Any) -> None:
        """NaN, infinities, or values whose squares overflow float32."""
        finite = np.isfinite(block)
        missing = int(np.count_nonzero(np.isnan(block)))
        self.nan += missing
        self.inf += block.size - int(np.count_nonzero(finite)) - missing
        kept = block[finite].astype(np.float64)
        if kept.size:
            with np.errstate(over="ignore"):
                self._add_finite(kept, float(np.dot(kept, kept)))


def summarize(array: Any, edges: Optional[Sequence[float]] = None) -> Dict[str, Any]:
    """Numbers of a tensor as the fields of `TapSummary`.

    Args:
        array: any shape; integers are taken as they are (codes).
        edges: of a histogram; values beyond the outer edges count into the outer bins, NaN into none.

    Returns:
        min, max, mean, std, l1 and l2 over finite values (0 where there is none); p99 of |x| over every k-th value, so
        that at most 1,024 are sorted.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    kind = np.float64 if flat.dtype.name in _WIDE else np.float32
    small = flat.dtype.itemsize == 1
    sums = _Sums()
    bins = None if edges is None else np.zeros(len(edges) - 1, np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, flat.size, BLOCK):
            block = flat[start : start + BLOCK].astype(kind, copy=False)
            if small:
                sums.add_codes(flat[start : start + BLOCK], block)
            else:
                sums.add(block)
            if bins is not None and edges is not None:
                known = block[~np.isnan(block)]
                inner = np.searchsorted(np.asarray(edges, np.float64)[1:-1], known, side="right")
                bins += np.bincount(inner, minlength=bins.size)
    mean = sums.sum / sums.good if sums.good else 0.0
    spread = max(sums.square / sums.good - mean * mean, 0.0) if sums.good else 0.0
    return {
        "count": flat.size,
        "min": sums.low if sums.good else 0.0,
        "max": sums.high if sums.good else 0.0,
        "mean": mean,
        "std": math.sqrt(spread) if math.isfinite(spread) else math.inf,
        "l1": sums.absolute,
        "l2": math.sqrt(sums.square),
        "nan_count": sums.nan,
        "inf_count": sums.inf,
        "zero_count": sums.zero,
        "p99": _quantile(flat),
        "shape": list(np.shape(array)),
        "dtype": flat.dtype.name,
        "histogram": [] if bins is None else bins.tolist(),
    }


def _quantile(flat: Any) -> float:
    sample = np.abs(flat[:: max(1, -(-flat.size // QUANTILE_SAMPLE))].astype(np.float64))
    sample = sample[np.isfinite(sample)]
    if not sample.size:
        return 0.0
    at = max(math.ceil(0.99 * sample.size) - 1, 0)
    return float(np.partition(sample, at)[at])
