"""Every metric against the slow reference, over schemes, types, axes, layouts and odd values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.kernels.samples import make_case
from tests.reference import naive
from visualquant.core.quant import QuantParams
from visualquant.core.stats import WeightStats
from visualquant.core.tensors import ELEMENT_TYPES, TensorRef
from visualquant.kernels import MeasureOptions
from visualquant.kernels.measuring import measure as measure_from

FAST, SLOW = 0, 1 << 60


def measure(x, codes, params, options: MeasureOptions) -> WeightStats:
    """By the fast kernels wherever they can, after a check that float64 throughout says the same."""
    fast = measure_from(x, codes, params, options, FAST)
    slow = measure_from(x, codes, params, options, SLOW)
    agree(fast.metrics(), slow.metrics(), cosine=3e-8)
    assert fast.rounding == slow.rounding
    for a, b in ((fast.x, slow.x), (fast.x_hat, slow.x_hat)):
        if a is not None and b is not None:
            assert (int(a.count), int(a.zeros)) == (int(b.count), int(b.zeros))
            assert (float(a.minimum), float(a.maximum)) == pytest.approx((float(b.minimum), float(b.maximum)), rel=1e-6)
    return slow


SQNR = ("sqnr_db", "sqnr_db_worst_channel", "sqnr_db_median_channel", "sqnr_db_unclipped")


def agree(got: dict[str, float], want: dict[str, float], cosine: float = 1e-9) -> None:
    """`got` has all metrics of `want`, SQNR within 1e-4 dB, cosine within 1e-9, others relative 1e-6."""
    assert not want.keys() - got.keys()
    for name, value in want.items():
        tolerance = 1e-4 if name in SQNR else cosine if name == "cosine" else 1e-6 * abs(value)
        if name.startswith("effective_bits"):
            tolerance += 1e-12
        if name == "bias":
            tolerance = 1e-6 * want["mae"]
        if isinstance(value, int) or math.isinf(value) or math.isinf(got[name]):
            assert got[name] == value, name
        else:
            assert abs(got[name] - value) <= tolerance, (name, got[name], value)


INTEGERS = ("int8", "uint8", "int4", "uint4", "int2", "uint2", "int16", "uint16", "int32")
FLOATS = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float6e2m3", "float6e3m2", "float4e2m1")


@pytest.mark.parametrize("code_type", INTEGERS + FLOATS + ("nf4",))
@pytest.mark.parametrize("granularity", ["per_tensor", "per_channel", "blocked"])
def test_all_types(code_type: str, granularity: str) -> None:
    x, codes, params = make_case((6, 37), code_type, granularity, axis=1 if granularity == "blocked" else 0, block=8)
    stats = measure(x, TensorRef.of(codes, params.code_type), params, MeasureOptions(channel_axis=0))
    want = naive.weight_metrics(x, codes, params, 0)
    agree(stats.metrics(), want)
    np.testing.assert_allclose(stats.channel_sqnr_db, naive.channel_sqnr_db(x, codes, params, 0), rtol=0, atol=1e-4)
    used, covered = naive.ranges(x, params, 0)
    assert (stats.range_used is None) == (used is None)
    if used is not None:
        assert stats.range_used == pytest.approx(used, rel=1e-6)
        assert stats.range_covered == pytest.approx(covered, rel=1e-6)


@pytest.mark.parametrize("shape", [(5, 7), (4, 3, 2), (2, 3, 4, 5), (1, 9, 1), (17,)])
@pytest.mark.parametrize("granularity", ["per_tensor", "per_channel", "blocked"])
def test_every_axis(shape: tuple[int, ...], granularity: str) -> None:
    axes = range(len(shape)) if granularity != "per_tensor" else (0,)
    for axis in axes:
        x, codes, params = make_case(shape, "int8", granularity, axis=axis, block=2)
        for channel in (None, *range(len(shape))):
            stats = measure(x, codes, params, MeasureOptions(channel_axis=channel))
            agree(stats.metrics(), naive.weight_metrics(x, codes, params, channel))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_sources(dtype: str) -> None:
    x, codes, params = make_case((6, 37), "int8", "per_channel", axis=0)
    x = x.astype(ELEMENT_TYPES[dtype].numpy)
    want = naive.weight_metrics(x, codes, params, 0)
    for source in (x, TensorRef.of(x)):
        agree(measure(source, codes, params, MeasureOptions(channel_axis=0)).metrics(), want)


@pytest.mark.parametrize("zero", [0, 1, 128, 255])
def test_zero_points_at_the_ends(zero: int) -> None:
    _, codes, params = make_case((4, 200), "uint8", "per_channel", axis=0)
    moved = QuantParams(params.code_type, params.scale, np.full(4, zero), 0, None, 0, 255)
    stats = measure(moved.dequantize(codes).astype(np.float32), codes, moved, MeasureOptions(channel_axis=0))
    assert stats.x_hat is not None
    assert int(stats.x_hat.zeros) == (codes == zero).sum()


@pytest.mark.parametrize("scale", [0.0, -0.1, 1e-40, math.nan, math.inf, 1e30])
def test_odd_scales(scale: float) -> None:
    x, codes, params = make_case((4, 16), "int8", "per_channel", axis=0)
    scales = params.scale.copy()
    scales[1] = scale
    odd = QuantParams(params.code_type, scales, params.zero_point, 0, None, params.qmin, params.qmax)
    want = naive.weight_metrics(x, codes, odd, 0)
    agree(measure(x, codes, odd, MeasureOptions(channel_axis=0)).metrics(), want)


def test_odd_values() -> None:
    x, codes, params = make_case((4, 16), "int8", "per_tensor")
    x[0, 0], x[1, 1], x[2, 2], x[3] = np.nan, np.inf, -np.inf, 0.0
    want = naive.weight_metrics(x, codes, params, 0)
    stats = measure(x, codes, params, MeasureOptions(channel_axis=0))
    agree(stats.metrics(), want)
    assert stats.metrics()["non_finite_float"] == 3
    assert stats.zero_channels.tolist() == [3]
    bad = np.full((3, 4), np.nan, np.float32)
    metrics = measure(bad, np.ones((3, 4), np.int8), params, MeasureOptions(channel_axis=0)).metrics()
    assert metrics["non_finite_float"] == 12
    assert not {"sqnr_db", "mse", "cosine", "crest"} & metrics.keys()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3), (1, 1)])
def test_small_shapes(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 0.3, np.float32)
    codes = np.full(shape, 3, np.int8)
    params = QuantParams(ELEMENT_TYPES["int8"], np.array(0.1), qmin=-128, qmax=127)
    stats = measure(x, codes, params, MeasureOptions(channel_axis=0 if shape else None, histogram_bins=16))
    agree(stats.metrics(), naive.weight_metrics(x, codes, params, 0 if shape else None))
    assert (stats.sqnr_db is None) == (x.size == 0)


def test_golden() -> None:
    """The golden numbers of metrics.md."""
    x = np.array([-0.26, 0, 0.26, 20], np.float64)
    codes = np.array([-3, 0, 3, 127], np.int8)
    params = QuantParams(ELEMENT_TYPES["int8"], np.array(0.1), qmin=-128, qmax=127)
    stats = measure(x, codes, params, MeasureOptions(channel_axis=None))
    assert stats.clipped_high == 1
    assert stats.clipped_low == 0
    assert stats.metrics()["max_abs_error"] == pytest.approx(7.3)


def test_equal_tensors() -> None:
    x = np.linspace(-1, 1, 50, dtype=np.float32).reshape(5, 10)
    stats = measure(x, TensorRef.of(x), None, MeasureOptions(channel_axis=0))
    assert stats.sqnr_db == math.inf
    assert stats.metrics()["nsr"] == 0
    assert stats.cosine == pytest.approx(1, abs=1e-12)
    assert stats.clipped_low is None


def test_two_float_tensors() -> None:
    x = np.random.default_rng(1).normal(size=(5, 10)).astype(np.float32)
    half = x.astype(np.float16)
    stats = measure(x, TensorRef.of(half), None, MeasureOptions(channel_axis=1))
    agree(stats.metrics(), naive.weight_metrics(x, half, None, 1))


def test_one_tensor() -> None:
    x = np.random.default_rng(1).normal(size=(5, 100)).astype(np.float32)
    stats = measure(x, None, None, MeasureOptions(channel_axis=0, quantiles=(0.0, 0.01, 0.5, 1.0)))
    agree(stats.metrics(), naive.weight_metrics(x, None, None, 0))
    assert stats.quantiles is not None
    for p, value in stats.quantiles.values.items():
        assert value == pytest.approx(np.quantile(x.astype(np.float64), p), abs=1e-12)
    assert stats.sqnr_db is None


@pytest.mark.parametrize("bins", [16, 256, 4096])
def test_histograms(bins: int) -> None:
    x, codes, params = make_case((6, 137), "int8", "per_channel", axis=0)
    stats = measure(x, codes, params, MeasureOptions(channel_axis=0, histogram_bins=bins))
    hist = stats.histogram
    assert hist is not None and hist.x_hat is not None and hist.error is not None
    assert hist.x.size <= bins
    hat = params.dequantize(codes)
    np.testing.assert_array_equal(hist.x, naive.histogram(x, hist.edges))
    np.testing.assert_array_equal(hist.x_hat, naive.histogram(hat, hist.edges))
    np.testing.assert_array_equal(hist.error.counts[0], naive.histogram(x - hat, hist.error.edges))
    assert 0 <= stats.metrics()["js_divergence"] < 0.2
    assert stats.metrics()["wasserstein"] < 1


def test_blocks() -> None:
    x, codes, params = make_case((6, 37), "int4", "blocked", axis=1, block=8)
    blocks = measure(x, codes, params, MeasureOptions(channel_axis=0)).blocks
    assert blocks is not None
    want = np.array(naive.blocks_sqnr(x, codes, params))
    assert blocks.blocks == 30 == blocks.ratio_counts.sum()
    assert blocks.below_20_db == (want < 20).sum()
    assert [b.sqnr_db for b in blocks.worst] == pytest.approx(sorted(want), abs=1e-4)
    first = blocks.worst[0]
    assert first.sqnr_db == pytest.approx(want.reshape(6, 5)[first.row, first.block], abs=1e-4)
    assert blocks.pooled_sqnr_db == pytest.approx(want.reshape(6, 5), abs=1e-4)


@pytest.mark.parametrize(
    ("rule", "name"), [("even", "half_even"), ("away", "half_away"), ("floor", "floor"), ("learned", "learned")]
)
def test_rounding_rules(rule: str, name: str) -> None:
    rng = np.random.default_rng(3)
    x = (rng.integers(-400, 400, (8, 64)) / 4).astype(np.float32) + rng.choice([0, 0.125], (8, 64)).astype(np.float32)
    t = x / 1.0
    codes = (
        {
            "even": np.rint(t),
            "away": np.trunc(t + np.sign(t) * 0.5),
            "floor": np.floor(t),
            "learned": np.floor(t) + rng.integers(0, 2, t.shape),
        }[rule]
        .clip(-128, 127)
        .astype(np.int8)
    )
    params = QuantParams(ELEMENT_TYPES["int8"], np.array(1.0), qmin=-128, qmax=127)
    assert measure(x, codes, params, MeasureOptions(channel_axis=0)).rounding == name
