"""Thirteen numbers a tensor, for slow links: counts, extrema, moments, norms, a quantile."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Sequence

import numpy as np

BLOCK = 1 << 18
QUANTILE_SAMPLE = 1 << 16


def summarize(array: Any, edges: Optional[Sequence[float]] = None) -> Dict[str, Any]:
    """Numbers of a tensor as the fields of `TapSummary`, in float64 and in blocks.

    Args:
        array: any shape; integers are taken as they are (codes).
        edges: of a histogram; values beyond the outer edges count into the outer bins.

    Returns:
        min, max, mean and std over finite values (0 where there is none); l1, l2 over finite values; p99 of |x| over
        every k-th finite value, so that at most 65,536 are sorted.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    total = flat.size
    nan = inf = zero = good = 0
    low, high = math.inf, -math.inf
    sums = squares = absolute = 0.0
    bins = None if edges is None else np.zeros(len(edges) - 1, np.int64)
    for start in range(0, total, BLOCK):
        block = flat[start : start + BLOCK]
        if block.dtype.kind == "f":
            finite = np.isfinite(block)
            bad = block.size - int(np.count_nonzero(finite))
            if bad:
                missing = int(np.count_nonzero(np.isnan(block)))
                nan, inf = nan + missing, inf + bad - missing
                block = block[finite]
        zero += block.size - int(np.count_nonzero(block))
        good += block.size
        if not block.size:
            continue
        low, high = min(low, float(block.min())), max(high, float(block.max()))
        x = block.astype(np.float64)
        sums += float(x.sum())
        squares += float(x @ x)
        absolute += float(np.abs(x).sum()) if low < 0 else float(x.sum())
        if bins is not None and edges is not None:
            inner = np.searchsorted(np.asarray(edges, np.float64)[1:-1], x, side="right")
            bins += np.bincount(inner, minlength=bins.size)
    mean = sums / good if good else 0.0
    sample = np.abs(flat[:: max(1, -(-total // QUANTILE_SAMPLE))].astype(np.float64))
    sample = sample[np.isfinite(sample)]
    at = min(sample.size - 1, math.ceil(0.99 * sample.size) - 1) if sample.size else 0
    return {
        "count": total,
        "min": low if good else 0.0,
        "max": high if good else 0.0,
        "mean": mean,
        "std": math.sqrt(max(squares / good - mean * mean, 0.0)) if good else 0.0,
        "l1": absolute,
        "l2": math.sqrt(squares),
        "nan_count": nan,
        "inf_count": inf,
        "zero_count": zero,
        "p99": float(np.partition(sample, at)[at]) if sample.size else 0.0,
        "shape": list(np.shape(array)),
        "dtype": flat.dtype.name,
        "histogram": [] if bins is None else bins.tolist(),
    }
