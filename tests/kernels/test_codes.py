"""Codes of activations against numpy, for one scale, a scale along any axis, and blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visualquant.kernels.codes import from_codes, to_codes


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.integers(0, 3),
    st.sampled_from(["one", "axis", "all"]),
    st.sampled_from([(-128, 127), (0, 255), (-8, 7), (0, 65535)]),
    st.sampled_from([np.float32, np.float64, np.float16]),
    st.integers(0, 2**31),
)
def test_codes_and_back(
    shape: list[int], axis: int, kind: str, limits: tuple[int, int], dtype: type, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=shape) * 10).astype(dtype)
    x.reshape(-1)[: x.size // 4] = np.resize([np.nan, np.inf, -np.inf, 0.25, 0.75, -0.5], x.size // 4)
    axis %= len(shape)
    wide = {"one": (), "axis": tuple(n if k == axis else 1 for k, n in enumerate(shape)), "all": tuple(shape)}[kind]
    scale = (rng.random(wide) + 0.1) if kind != "one" else np.float64(0.5)
    zero = rng.integers(limits[0], limits[1] + 1, wide) if kind != "one" else np.int64(3)
    scale, zero = np.asarray(scale, np.float32), np.asarray(zero, np.int32)
    with np.errstate(all="ignore"):
        want = np.clip(np.rint(x.astype(np.float32) / scale) + zero.astype(np.float32), *limits)
        want = np.where(np.isnan(want), 0, want).astype(np.int32)
    codes = to_codes(x, scale, zero, limits)
    np.testing.assert_array_equal(codes, want)
    assert codes.dtype == np.int32 and codes.shape == x.shape
    back = from_codes(codes, scale, zero)
    np.testing.assert_array_equal(back, (codes - zero).astype(np.float32) * scale)
    assert back.dtype == np.float32


@pytest.mark.parametrize("view", ["reversed", "transposed", "read-only"])
def test_views(view: str) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    given_x = {"reversed": x[::-1], "transposed": x.T, "read-only": x}[view]
    if view == "read-only":
        given_x.setflags(write=False)
    codes = to_codes(given_x, np.float32([0.5]), np.int32([1]), (0, 255))
    np.testing.assert_array_equal(codes, np.rint(given_x / 0.5) + 1)
    np.testing.assert_array_equal(from_codes(codes.astype(np.uint8), np.float32([0.5]), np.int32([1])), given_x)
