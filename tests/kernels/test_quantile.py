"""Exact order statistics."""

from __future__ import annotations

import numpy as np
import pytest

from visualquant.kernels import MeasureOptions, measure, ranks

P = (0.0, 0.001, 0.25, 0.5, 0.7512, 0.999, 1.0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kind", ["normal", "equal", "few", "odd", "tiny"])
def test_equals_a_sort(dtype, kind: str) -> None:
    rng = np.random.default_rng(1)
    x = {
        "normal": rng.normal(size=100_000),
        "equal": np.full(20_000, -3.25),
        "few": rng.integers(-2, 3, 30_000).astype(float),
        "odd": np.concatenate([rng.normal(size=19_999), [np.nan, np.inf, -np.inf, 0.0, -0.0]]),
        "tiny": rng.normal(size=70_000) * 1e-7,
    }[kind].astype(dtype)
    stats = measure(x, None, None, MeasureOptions(quantiles=P, chunk_bytes=50_000, threads=2))
    finite = np.sort(x[np.isfinite(x)].astype(np.float64))
    assert stats.quantiles is not None
    for p, value in stats.quantiles.values.items():
        assert value == np.quantile(finite, p), p


def test_few_elements() -> None:
    x = np.random.default_rng(2).normal(size=1001).astype(np.float32)
    stats = measure(x, None, None, MeasureOptions(quantiles=P))
    assert stats.quantiles is not None
    assert stats.quantiles.values == {p: np.quantile(x.astype(np.float64), p) for p in P}


def test_nothing_finite() -> None:
    for x in (np.empty(0, np.float32), np.full(10, np.nan, np.float32)):
        stats = measure(x, None, None, MeasureOptions(quantiles=P))
        assert stats.quantiles is not None and stats.quantiles.values == {}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", [(30, 2500), (3, 90_000), (2500, 30)])
def test_outliers(seed: int, shape: tuple[int, int]) -> None:
    """Rows that are settled by counting, rows that need quartiles, and rows longer than a task."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    x[0] = rng.standard_t(1.5, shape[1])
    x[1] = np.where(rng.random(shape[1]) < 0.7, 0, x[1])
    x[2, ::97] += 20
    x[2] += 1000 * (seed % 2)
    x = x.astype(np.float32)
    axis = int(shape[0] > shape[1])
    for chunk in (20_000, 16 << 20):
        stats = measure(x, None, None, MeasureOptions(channel_axis=axis, chunk_bytes=chunk))
        for k in range(shape[axis]):
            row = np.take(x, k, axis).astype(np.float64)
            q25, median, q75 = np.quantile(row, [0.25, 0.5, 0.75])
            assert stats.outliers[k] == (np.abs(row - median) > 10 * (q75 - q25)).sum(), (k, chunk)
            six = (np.abs(row - row.mean()) > 6 * row.std()).sum() if row.size >= 64 else -1
            assert stats.outliers_6_sigma[k] == six, (k, chunk)


@pytest.mark.parametrize("kind", ["t4", "outlier channels", "lognormal", "at the limit", "offset", "few"])
def test_outliers_by_counts_are_exact(kind: str) -> None:
    """Rows whose far elements are counted between bounds of the quartiles, or exactly where these do not settle it."""
    rng = np.random.default_rng(7)
    shape = (60, 8) if kind == "few" else (60, 1500)
    x = rng.standard_t(4, shape)
    if kind == "outlier channels":
        x *= np.where(rng.random(shape[1]) < 1 / 200, 15, 1)
    elif kind == "lognormal":
        x = rng.lognormal(0, 2, shape)
    elif kind == "at the limit":  # quartiles −1, 0 and 1: 20 is not beyond ten times their distance, 21 is
        x = np.resize([-1.0, 0.0, 1.0, 0.0, 1.0, -1.0, 1.0, -1.0], shape)
        x[:, ::100] = rng.choice([20.0, -20.0, 21.0, -21.0, np.nextafter(np.float32(20), np.float32(21))], (60, 15))
    elif kind == "offset":
        x = 1 + 1e-3 * x
    x = x.astype(np.float32)
    far, six = np.empty(len(x), np.int64), np.empty(len(x), np.int64)
    ranks.outliers(x, np.empty((2, shape[1]), np.float32), far, six)
    q25, median, q75 = np.quantile(x.astype(np.float64), [0.25, 0.5, 0.75], axis=1)
    np.testing.assert_array_equal(far, (np.abs(x - median[:, None]) > 10 * (q75 - q25)[:, None]).sum(axis=1))
