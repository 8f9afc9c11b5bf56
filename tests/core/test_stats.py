"""Statistics that merge, and the metrics that follow."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visualquant.core.stats import (
    Bins,
    ClipStats,
    CodeUse,
    ErrorStats,
    Histogram,
    RoundingEvidence,
    ScaleSummary,
    TensorStats,
    WeightStats,
    sqnr_db,
)
from visualquant.core.stats_shape import FINEST, bin_exponent, bin_index

floats = st.floats(-1e30, 1e30, allow_subnormal=True)


def tensor(values: np.ndarray) -> TensorStats:
    one = np.asarray
    return TensorStats(
        one(values.size), one((values == 0).sum()), one(values.min()), one(values.max()), one(values.sum()),
        one((values**2).sum()),
    )  # fmt: skip


def close(a: object, b: object) -> None:
    for field in dataclasses.fields(a):  # type: ignore[arg-type]
        left, right = getattr(a, field.name), getattr(b, field.name)
        if dataclasses.is_dataclass(left):
            close(left, right)
        else:
            np.testing.assert_allclose(left, right, rtol=1e-12)


@given(st.lists(st.lists(st.integers(-1000, 1000), min_size=1), min_size=3, max_size=3))
def test_tensor_stats_merge(parts: list[list[int]]) -> None:
    a, b, c = (tensor(np.array(part, np.float64)) for part in parts)
    close(a.merge(b).merge(c), a.merge(b.merge(c)))
    close(a.merge(b).merge(c), tensor(np.concatenate([np.array(p, np.float64) for p in parts])))
    close(TensorStats.identity().merge(a), a)
    close(a.merge(TensorStats.identity()), a)


def clip(code: int, count: int, low: bool) -> ErrorStats:
    one = np.asarray
    side = ClipStats(one(np.int64(code)), one(np.int64(count)), one(float(count)))
    other = ClipStats.identity(low=not low)
    rest = dataclasses.replace(
        ErrorStats.identity(), count=one(10), sum_sq=one(float(count) + 1), unclipped_sq=one(1.0)
    )
    name = "clipped_low" if low else "clipped_high"
    return dataclasses.replace(rest, **{name: side, ("clipped_high" if low else "clipped_low"): other})


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 5)), min_size=3, max_size=3), st.booleans())
def test_clips_merge_like_a_whole(parts: list[tuple[int, int]], low: bool) -> None:
    """Only the most extreme code counts, whatever the order; what is demoted counts as rounding."""
    a, b, c = (clip(code, count, low) for code, count in parts)
    whole = a.merge(b).merge(c)
    close(whole, a.merge(b.merge(c)))
    close(whole, c.merge(a).merge(b))
    extreme = (min if low else max)(code for code, _ in parts)
    side = whole.clipped_low if low else whole.clipped_high
    assert int(side.count) == sum(count for code, count in parts if code == extreme)
    assert float(whole.unclipped_sq) + float(side.sum_sq) == float(whole.sum_sq)
    settled = a.settle(extreme, extreme)
    assert float(settled.unclipped_sq) == (1.0 if parts[0][0] == extreme else 1.0 + parts[0][1])


@settings(max_examples=200)
@given(st.lists(floats, min_size=1, max_size=30), st.integers(2, 300))
def test_bins_are_as_fine_as_they_can_be(values: list[float], limit: int) -> None:
    low, high = min(values), max(values)
    k = bin_exponent(low, high, limit)
    assert bin_index(high, k) - bin_index(low, k) < limit
    for value in values:
        index = bin_index(value, k)
        assert math.ldexp(index, k) <= value < math.ldexp(index + 1, k)
    largest = max(abs(low), abs(high))
    finer_fits = bin_index(high, k - 1) - bin_index(low, k - 1) < limit
    assert not finer_fits or largest == 0 or k <= math.frexp(largest)[1] - FINEST or k <= -1074


@settings(max_examples=100)
@given(st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=20), min_size=3, max_size=3), st.integers(2, 64))
def test_bins_merge(parts: list[list[float]], limit: int) -> None:
    def bins(values: list[float]) -> Bins:
        k = bin_exponent(min(values), max(values), limit)
        index = [bin_index(v, k) for v in values]
        counts = np.bincount(np.array(index) - min(index))[None].astype(np.int64)
        return Bins(k, min(index), counts, limit)

    a, b, c = (bins(part) for part in parts)
    whole, left, right = bins([v for part in parts for v in part]), a.merge(b).merge(c), a.merge(b.merge(c))
    for other in (left, right, Bins.identity(1, limit).merge(whole), whole.merge(Bins.identity(1, limit))):
        assert (other.exponent, other.first) == (whole.exponent, whole.first)
        np.testing.assert_array_equal(other.counts, whole.counts)


def test_divergences() -> None:
    same = Histogram(Bins(0, 0, np.array([[1, 2, 3], [2, 4, 6]]), 8))
    assert same.js_divergence() == pytest.approx(0)
    assert same.wasserstein() == pytest.approx(0)
    apart = Histogram(Bins(-1, 0, np.array([[5, 0, 0, 0], [0, 0, 0, 5]]), 8))
    assert apart.js_divergence() == pytest.approx(1)
    assert apart.wasserstein() == pytest.approx(1.5)
    assert apart.js_divergence(least_width=2.0) == pytest.approx(0)
    assert Histogram(Bins(0, 0, np.array([[1, 2]]), 8)).js_divergence() is None


@pytest.mark.parametrize(
    ("evidence", "rule"),
    [
        (RoundingEvidence(elements=100), "half_even"),
        (RoundingEvidence(elements=100, ties_away=3), "half_away"),
        (RoundingEvidence(elements=100, ties_even=3), "half_even"),
        (RoundingEvidence(elements=100, over_high=40), "floor"),
        (RoundingEvidence(elements=100, over_high=40, negative=3, clipped_low=0), "unknown"),
        (RoundingEvidence(elements=100, over_high=20, over_low=20, negative=50), "learned"),
        (RoundingEvidence(elements=100, over_high=20, over_low=20, far=20), "unknown"),
        (RoundingEvidence(elements=100, over_high=5, clipped_high=5, far=5), "half_even"),
        (RoundingEvidence(elements=5, over_high=5, clipped_high=5), "unknown"),
        (RoundingEvidence(), "unknown"),
    ],
)
def test_rounding_rule(evidence: RoundingEvidence, rule: str) -> None:
    assert evidence.rule() == rule
    assert RoundingEvidence().merge(evidence) == evidence


def test_sqnr_limits() -> None:
    assert sqnr_db(np.array(1.0), np.array(0.0)) == math.inf
    assert sqnr_db(np.array(0.0), np.array(0.0)) == math.inf
    assert sqnr_db(np.array(0.0), np.array(1.0)) == -math.inf
    assert sqnr_db(np.array(1e-320), np.array(1e-322)) == pytest.approx(20, abs=0.1)
    assert sqnr_db(np.array(1e300), np.array(1e-300)) == pytest.approx(6000)


def test_nothing_measured_is_absent() -> None:
    stats = WeightStats((0,), TensorStats.identity(), TensorStats.identity(), ErrorStats.identity())
    assert stats.metrics() == {"non_finite_float": 0, "non_finite_quant": 0}
    assert stats.sqnr_db is None and stats.cosine is None and stats.range_x is None
    assert stats.worst_channels() == () and stats.zero_channels.size == 0
    assert stats.rounding == "unknown"


def test_median_channel_is_never_nan() -> None:
    def with_channels(noise: list[float], signal: list[float]) -> WeightStats:
        n = len(noise)
        x = dataclasses.replace(TensorStats.identity((n,)), count=np.ones(n, np.int64), sum_sq=np.array(signal))
        error = dataclasses.replace(ErrorStats.identity((n,)), count=np.ones(n, np.int64), sum_sq=np.array(noise))
        return WeightStats((n,), x.total(), None, None, 0, x, None, error)

    assert with_channels([0.0, 1.0], [1.0, 0.0]).sqnr_db_median_channel == -math.inf
    assert with_channels([0.0, 0.0], [1.0, 1.0]).sqnr_db_median_channel == math.inf
    assert with_channels([1.0, 0.01], [1.0, 1.0]).sqnr_db_median_channel == pytest.approx(10)
    stats = with_channels([1.0, 0.1, 1.0], [1.0, 1.0, 1.0])
    assert stats.worst_channels(2) == ((0, 0.0), (2, 0.0))
    assert stats.share_of_channels_below_20_db == 1.0


def test_scales() -> None:
    scale = np.array([0.5, -0.25, 0.0, np.nan, np.inf, 1e-40])
    summary = ScaleSummary.of(scale)
    assert summary == ScaleSummary(6, pytest.approx((0.75 + 1e-40) / 4), 0.5, 2, 1, 1, 1)
    assert ScaleSummary.of(np.empty(0)) == ScaleSummary(0, 0.0, 0.0, 0, 0, 0, 0)
    assert ScaleSummary.of(np.array([2.0, 4.0])) == ScaleSummary(2, 3.0, 4.0, 0, 0, 0, 0)


def test_code_use() -> None:
    use = CodeUse(-2, 1, 4, np.array([1, 1, 1, 1]), -2)
    assert use.utilisation == 1 and use.effective_bits == pytest.approx(2)
    assert CodeUse(None, None, None).utilisation is None
    assert CodeUse(0, 0, 256, np.array([7]), 0).effective_bits == 0
