"""What another scheme would give, against quantizing with numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from visualquant.kernels import what_if


def sqnr(x: np.ndarray, hat: np.ndarray) -> float:
    e = x - hat
    return 10 * math.log10(float((x**2).sum() / (e**2).sum()))


@pytest.mark.parametrize("axis", [0, 1])
def test_symmetric_and_asymmetric(axis: int) -> None:
    x = np.random.default_rng(2).standard_t(4, (24, 256)).astype(np.float32)
    x = x if axis == 0 else np.ascontiguousarray(x.T)
    rows = {row.scheme: row for row in what_if(x, channel_axis=axis)}
    v = (x if axis == 0 else x.T).astype(np.float64)
    s = np.abs(v).max() / 127
    assert rows["int8 symmetric, per tensor"].sqnr_db == pytest.approx(sqnr(v, np.rint(v / s) * s), abs=1e-3)
    s = np.abs(v).max(1, keepdims=True) / 7
    assert rows["int4 symmetric, per channel"].sqnr_db == pytest.approx(sqnr(v, np.rint(v / s) * s), abs=1e-3)
    b = v.reshape(24, 8, 32)
    low, high = np.minimum(b.min(2, keepdims=True), 0), np.maximum(b.max(2, keepdims=True), 0)
    s = (high - low) / 15
    z = np.clip(np.rint(-low / s), 0, 15)
    hat = ((np.clip(np.rint(b / s) + z, 0, 15) - z) * s).reshape(v.shape)
    assert rows["int4 asymmetric, blocks of 32"].sqnr_db == pytest.approx(sqnr(v, hat), abs=1e-3)


def test_order_and_clip() -> None:
    x = np.random.default_rng(2).standard_t(3, (16, 128)).astype(np.float32)
    rows = {row.scheme: row for row in what_if(x, channel_axis=0)}
    assert len(rows) == 32
    for name, row in rows.items():
        assert row.sqnr_db is not None and math.isfinite(row.sqnr_db)
        if name.endswith(", mse clip"):
            assert row.sqnr_db >= rows[name.removesuffix(", mse clip")].sqnr_db - 1e-9
    assert rows["int4 symmetric, blocks of 32"].sqnr_db > rows["int4 symmetric, per tensor"].sqnr_db
