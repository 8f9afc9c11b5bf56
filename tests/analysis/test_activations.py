"""Streamed sums of activations against plain numpy, whatever the batches, and layouts that are found."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visualquant.analysis.layouts import reconcile
from visualquant.core.activations import PairSums, RangeUse, channel_axis
from visualquant.kernels.pair_sums import add_pair, add_range

Shape = tuple[int, ...]
SHAPES = st.sampled_from([(40,), (6, 5), (6, 4, 3), (6, 3, 4, 2), (6, 2, 3, 2, 2)])
SPECIAL = np.array([np.nan, np.inf, -np.inf])


def _pair(shape: Shape, seed: int, bad: bool, offset: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=shape) + offset).astype(np.float32)
    y = (x + rng.normal(size=shape) * 0.1).astype(np.float32)
    if bad:
        for a in (x, y):
            at = rng.integers(0, a.size, size=3)
            a.reshape(-1)[at] = SPECIAL
    return x, y


def _batches(n: int, cuts: list[int]) -> list[slice]:
    edges = sorted({0, n, *(c % (n + 1) for c in cuts)})
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def _naive(x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    a, b = x.astype(np.float64), y.astype(np.float64)
    good = np.isfinite(a) & np.isfinite(b)
    counts = {
        "non_finite_float": float((~np.isfinite(a)).sum()),
        "non_finite_quant": float((~np.isfinite(b)).sum()),
    }
    axis = channel_axis(x.ndim)
    levels = []
    if axis is not None and x.shape[axis] > 1:
        for k in range(x.shape[axis]):
            here = np.take(good, k, axis)
            u, v = np.take(a, k, axis)[here], np.take(b, k, axis)[here]
            if (u**2).sum() > 0:
                levels.append(10 * np.log10((u**2).sum() / ((u - v) ** 2).sum()))
    a, b = a[good], b[good]
    e = a - b
    found = {
        "sqnr_db": 10 * np.log10((a**2).sum() / (e**2).sum()),
        "sqnr_db_centred": 10 * np.log10(((a - a.mean()) ** 2).sum() / (e**2).sum()),
        "nsr": (e**2).sum() / (a**2).sum(),
        "mse": (e**2).mean(),
        "rmse": np.sqrt((e**2).mean()),
        "mae": np.abs(e).mean(),
        "max_abs_error": np.abs(e).max(),
        "euclidean": np.sqrt((e**2).sum()),
        "bias": e.mean(),
        "cosine": (a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()),
    }
    if levels:
        found["sqnr_db_worst_channel"] = min(levels)
    return {k: float(v) for k, v in (found | counts).items()}


@settings(max_examples=60, deadline=None)
@given(SHAPES, st.integers(0, 2**31), st.booleans(), st.lists(st.integers(0, 100), max_size=5))
def test_sums_against_numpy_whatever_the_batches(shape: Shape, seed: int, bad: bool, cuts: list[int]) -> None:
    x, y = _pair(shape, seed, bad)
    sums = PairSums()
    for part in _batches(shape[0], cuts):
        add_pair(sums, x[part], y[part])
    got, want = sums.metrics(), _naive(x, y)
    assert set(got) == set(want)
    for name, value in want.items():
        assert float(got[name]) == pytest.approx(value, rel=1e-9, abs=1e-12), name
    good = np.isfinite(x) & np.isfinite(y)
    assert (sums.low, sums.high) == (x[good].min(), x[good].max())
    assert (sums.quant_low, sums.quant_high) == (y[good].min(), y[good].max())
    assert sums.n == good.sum() and sums.sqnr_db == got["sqnr_db"]


def test_golden_numbers() -> None:
    sums = PairSums()
    add_pair(sums, np.float64([-0.26, 0, 0.26, 20]), np.float64([-0.3, 0, 0.3, 12.7]))
    assert sums.max_abs_error == pytest.approx(7.3) and sums.metrics()["bias"] == pytest.approx(7.3 / 4)


def test_an_offset_hides_behind_the_plain_figure() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(20, 1, size=(1000, 100))
    sums = PairSums()
    add_pair(sums, x, x + rng.normal(0, 0.3, size=x.shape))
    metrics = sums.metrics()
    assert float(metrics["sqnr_db"]) == pytest.approx(36.5, abs=0.1)
    assert float(metrics["sqnr_db_centred"]) == pytest.approx(10.45, abs=0.1)


def test_undefined_metrics_are_absent() -> None:
    empty = PairSums()
    assert empty.metrics() == {"non_finite_float": 0, "non_finite_quant": 0} and empty.sqnr_db is None
    add_pair(empty, np.full((2, 3), np.nan), np.zeros((2, 3)))
    assert empty.metrics() == {"non_finite_float": 6, "non_finite_quant": 0}
    zero = PairSums()
    add_pair(zero, np.zeros((2, 3)), np.zeros((2, 3)))
    metrics = zero.metrics()
    assert metrics["sqnr_db"] == math.inf and metrics["nsr"] == 0 and "cosine" not in metrics
    lost = PairSums()
    add_pair(lost, np.zeros(3), np.ones(3))
    assert lost.metrics()["sqnr_db"] == -math.inf and lost.metrics()["nsr"] == math.inf
    equal = PairSums()
    add_pair(equal, np.ones(3), np.ones(3))
    assert equal.metrics()["sqnr_db"] == math.inf and equal.metrics()["cosine"] == pytest.approx(1)
    assert not any(isinstance(v, float) and math.isnan(v) for s in (zero, lost, equal) for v in s.metrics().values())


def test_an_empty_batch_changes_nothing() -> None:
    x, y = _pair((4, 3), 1, False)
    one, two = PairSums(), PairSums()
    add_pair(one, x, y)
    add_pair(two, x[:0], y[:0])
    add_pair(two, x, y)
    add_pair(two, x[:0], y[:0])
    assert one.metrics() == two.metrics()


def test_channels_of_changing_length_are_left_out() -> None:
    """The channel axis of sequences is the last; one that varies between batches is no channel."""
    sums, whole = PairSums(), []
    for k, width in enumerate((3, 5, 3)):
        x, y = _pair((2, width), k, False)
        add_pair(sums, x, y)
        whole.append((x, y))
    assert "sqnr_db_worst_channel" not in sums.metrics()
    e = np.concatenate([(x.astype(np.float64) - y).reshape(-1) for x, y in whole])
    assert sums.metrics()["mse"] == pytest.approx((e**2).mean())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.booleans(), st.lists(st.integers(0, 100), max_size=4), st.sampled_from([0.5, 2.0]))
def test_range_use_against_numpy(seed: int, bad: bool, cuts: list[int], reach: float) -> None:
    x, _ = _pair((12, 7), seed, bad)
    x[0, :3] = 0
    low, high, step = -reach, reach * 1.2, 0.05
    use = RangeUse(low, high, step)
    for part in _batches(12, cuts):
        add_range(use, x[part])
    a = x[np.isfinite(x)].astype(np.float64)
    below, above = a < low - step / 2, a > high + step / 2
    assert (use.n, use.below, use.above) == (a.size, below.sum(), above.sum())
    assert use.clipped_share == pytest.approx((below | above).mean(), rel=1e-12)
    outside = a - np.clip(a, low, high)
    assert use.excess == pytest.approx((outside[below | above] ** 2).sum(), rel=1e-9, abs=1e-12)
    assert use.small == ((a != 0) & (np.abs(a) < step / 2)).sum()
    assert (use.seen_low, use.seen_high) == (a.min(), a.max())
    assert use.sum_abs == pytest.approx(np.abs(a).sum(), rel=1e-9)
    assert use.sum_sq == pytest.approx((a**2).sum(), rel=1e-9)
    overlap = min(high, a.max()) - max(low, a.min())
    assert use.range_used == pytest.approx(overlap / (high - low), rel=1e-9)
    assert use.range_covered == pytest.approx(overlap / (a.max() - a.min()), rel=1e-9)
    live = np.abs(a[a != 0])
    for share in (0.5, 0.99):
        bound = use.bulk_abs(share)
        assert math.log2(bound).is_integer()
        assert (live < bound).mean() >= share - 1e-12
        assert (live < bound / 2).mean() < share


def test_range_use_without_values() -> None:
    use = RangeUse(-1, 1, 0.1)
    assert use.clipped_share == 0 and use.range_used is None and use.range_covered is None and use.bulk_abs() == 0
    add_range(use, np.float32([np.nan, np.inf]))
    add_range(use, np.empty((0, 3), np.float32))
    assert use.n == 0 and use.range_used is None
    add_range(use, np.float32([5, 5]))
    assert use.range_used == 0 and use.clipped_share == 1


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(4)), st.integers(0, 2**31), st.sampled_from([(2, 3, 4, 5), (2, 3, 6, 6), (4, 2, 6, 4)]))
def test_permutations_are_found(order: list[int], seed: int, shape: Shape) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape).astype(np.float32)
    if tuple(shape[k] for k in order) == shape and order != [0, 1, 2, 3]:
        return  # equal shapes are taken as they are
    noisy = x + rng.normal(size=x.shape).astype(np.float32) * 0.05
    found = reconcile(x, np.ascontiguousarray(noisy.transpose(order)))
    assert found is not None
    np.testing.assert_array_equal(found[0], noisy)
    assert (found[1] is None) == (order == [0, 1, 2, 3])
    if found[1] is not None:
        assert found[1] == f"transposed {np.argsort(order).tolist()}"


def test_shapes_that_differ_by_ones_and_shapes_that_do_not_fit() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = reconcile(x, x.reshape(2, 1, 3, 1))
    assert found is not None and found[1] is None
    np.testing.assert_array_equal(found[0], x)
    flat = reconcile(x, x.reshape(6))
    assert flat is not None and flat[1] == "reshaped"
    np.testing.assert_array_equal(flat[0], x)
    assert reconcile(x, np.zeros((2, 4))) is None
    assert reconcile(np.zeros((2, 0, 3)), np.zeros((3, 0, 2))) is not None


def test_values_without_a_number_or_spread_do_not_stop_the_search() -> None:
    nothing = np.full((2, 3, 4), np.nan, np.float32)
    assert reconcile(nothing, nothing.transpose(2, 0, 1)) is not None
    same = np.ones((2, 3, 4), np.float32)
    found = reconcile(same, np.ones((4, 2, 3), np.float32))
    assert found is not None and found[0].shape == (2, 3, 4)
