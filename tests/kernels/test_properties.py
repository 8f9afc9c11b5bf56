"""Random schemes, axes, blocks, types, layouts and odd values against the slow reference."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.test_measure import agree
from tests.reference import naive
from visualquant.core.quant import QuantParams
from visualquant.core.tensors import ELEMENT_TYPES, TensorRef
from visualquant.kernels import MeasureOptions
from visualquant.kernels.measuring import measure

SETTINGS = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
CODES = ("int8", "uint8", "int4", "uint4", "int2", "uint2", "int16", "uint16", "int32", "float8e4m3fn", "float4e2m1")
ODD = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, 1e-39, 3e38, -3e38, 1.0)


@st.composite
def cases(draw):
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=4)))
    if draw(st.booleans()):
        shape = (*shape, draw(st.sampled_from([1, 31, 33, 64, 97])))
    kind = ELEMENT_TYPES[draw(st.sampled_from(CODES))]
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    granularity = draw(st.sampled_from(["per_tensor", "per_channel", "blocked"]))
    axis = None if granularity == "per_tensor" else draw(st.integers(0, len(shape) - 1))
    block = draw(st.integers(1, 40)) if granularity == "blocked" else None
    want: tuple[int, ...] = ()
    if axis is not None:
        want = (shape[axis],) if block is None else (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
    scale = rng.uniform(0.01, 0.2, want)
    if draw(st.booleans()):
        scale = scale.astype(np.float32).astype(np.float64)
    for _ in range(draw(st.integers(0, 2))):
        if scale.size:
            odd_scale = draw(st.sampled_from([0.0, -0.05, 1e-40, math.nan, math.inf, 1e30, 1e-30]))
            np.atleast_1d(scale.reshape(-1))[rng.integers(scale.size)] = odd_scale
    zero = None
    if kind.is_integer:
        low = -(1 << (kind.bits - 1)) if kind.kind == "int" else 0
        high = low + (1 << kind.bits) - 1
        codes = rng.integers(low, high, shape, endpoint=True)
        if draw(st.booleans()):
            codes = np.clip(codes, -3, 5).clip(low, high)
        codes = codes.astype(kind.numpy)
        if draw(st.booleans()):
            zero = rng.integers(max(low, -128), min(high, 255), want, endpoint=True)
            if draw(st.booleans()):
                zero = zero + draw(st.sampled_from([0.5, 0.25, 1 / 3]))
    else:
        low = high = None
        codes = rng.integers(0, 1 << kind.bits, shape).astype(np.uint8).view(kind.numpy)
    params = QuantParams(kind, np.asarray(scale), None if zero is None else np.asarray(zero), axis, block, low, high)
    with np.errstate(all="ignore"):
        x = params.dequantize(codes) + rng.normal(scale=0.04, size=shape)
    x = np.where(np.isfinite(x) & (np.abs(x) < 1e30), x, 1.0)
    dtype = ELEMENT_TYPES[draw(st.sampled_from(["float32", "float64", "float16", "bfloat16"]))].numpy
    with np.errstate(all="ignore"):
        x = np.clip(x, -6e4, 6e4).astype(dtype)
    for _ in range(draw(st.integers(0, 3))):
        if x.size:
            with np.errstate(all="ignore"):
                x.reshape(-1)[rng.integers(x.size)] = draw(st.sampled_from(ODD))
    if draw(st.booleans()):
        x = np.asfortranarray(x)
    if draw(st.booleans()):
        x = x[::-1][::-1]
    x.flags.writeable = False
    channel = draw(st.sampled_from([None, *range(len(shape))]))
    return x, codes, params, channel


@SETTINGS
@given(cases())
def test_metrics(case) -> None:
    x, codes, params, channel = case
    with np.errstate(all="ignore"):
        want = naive.weight_metrics(x, codes, params, channel)
        want_channels = None if channel is None else naive.channel_sqnr_db(x, codes, params, channel)
    for fast_from, cosine in ((1 << 60, 1e-9), (0, 1e-7)):
        stats = measure(
            x, TensorRef.of(codes, params.code_type), params, MeasureOptions(channel_axis=channel), fast_from
        )
        agree(stats.metrics(), want, cosine)
        if want_channels is not None:
            np.testing.assert_allclose(stats.channel_sqnr_db, want_channels, rtol=1e-6, atol=1e-4)


@SETTINGS
@given(cases(), st.sampled_from([8, 100, 1024]))
def test_histograms(case, bins: int) -> None:
    x, codes, params, channel = case
    options = MeasureOptions(channel_axis=channel, histogram_bins=bins, channel_histograms=channel is not None)
    with np.errstate(all="ignore"):
        y = params.dequantize(codes)
        x64 = x.astype(np.float64)
        ok = np.isfinite(x64) & np.isfinite(y)
        e = x64 - y
    for fast_from in (1 << 60, 0):
        stats = measure(x, codes, params, options, fast_from)
        if not ok.any():
            assert stats.histogram is None
            continue
        hist = stats.histogram
        assert hist is not None and hist.x_hat is not None and hist.error is not None
        assert 0 < hist.x.size <= bins
        np.testing.assert_array_equal(hist.x, naive.histogram(x64[ok], hist.edges))
        np.testing.assert_array_equal(hist.x_hat, naive.histogram(y[ok], hist.edges))
        np.testing.assert_array_equal(hist.error.counts[0], naive.histogram(e[ok], hist.error.edges))
        if channel is None:
            continue
        channels = stats.channel_histograms
        assert channels is not None and channels.x_hat is not None
        for k in range(x.shape[channel]):
            mine = np.take(ok, k, channel)
            np.testing.assert_array_equal(
                channels.x[k], naive.histogram(np.take(x64, k, channel)[mine], channels.edges)
            )
            np.testing.assert_array_equal(
                channels.x_hat[k], naive.histogram(np.take(y, k, channel)[mine], channels.edges)
            )


@SETTINGS
@given(cases())
def test_block_summary(case) -> None:
    x, codes, params, channel = case
    if params.block_size is None or channel == params.axis:
        return
    with np.errstate(all="ignore"):
        want = np.array(naive.blocks_sqnr(x, codes, params))
    want = want[~np.isnan(want)]
    for fast_from in (1 << 60, 0):
        blocks = measure(x, codes, params, MeasureOptions(channel_axis=channel), fast_from).blocks
        if want.size == 0:
            assert blocks is None or blocks.blocks == 0
            continue
        assert blocks is not None
        assert blocks.blocks == want.size == blocks.ratio_counts.sum()
        worst = np.sort(want)[:256]
        np.testing.assert_allclose([b.sqnr_db for b in blocks.worst], worst, rtol=1e-6, atol=1e-4)


@SETTINGS
@given(st.integers(0, 1 << 32), st.integers(1, 7), st.integers(1, 300))
def test_packed_codes_of_any_count(seed: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    for name in ("int4", "uint4", "int2", "uint2"):
        kind = ELEMENT_TYPES[name]
        low = -(1 << (kind.bits - 1)) if kind.kind == "int" else 0
        codes = rng.integers(low, low + (1 << kind.bits) - 1, (rows, columns), endpoint=True).astype(kind.numpy)
        params = QuantParams(kind, rng.uniform(0.1, 0.2, rows).astype(np.float32).astype(np.float64), None, 0)
        x = params.dequantize(codes).astype(np.float32)
        stats = measure(x, TensorRef.of(codes), params, MeasureOptions(channel_axis=0), 0)
        assert stats.sqnr_db is not None and stats.sqnr_db > 120
        assert stats.codes is not None and stats.codes.counts is not None
        np.testing.assert_array_equal(
            stats.codes.counts, np.bincount(codes.astype(int).ravel() - low, minlength=1 << kind.bits)
        )
