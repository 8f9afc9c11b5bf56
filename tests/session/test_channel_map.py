"""The map of channels against numpy's histogram."""

from __future__ import annotations

import numpy as np
import pytest

from visualquant.errors import CancelledError, UsageError
from visualquant.session import channel_map as module
from visualquant.session.channel_map import bin_channels, channel_map


def test_counts_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PART", 500)
    rows = np.random.default_rng(0).normal(size=(20, 7, 30)).astype(np.float32)
    rows[3, 0, :3] = (np.nan, np.inf, -np.inf)
    order = np.array([7, 3, 19], np.int64)
    counts, edges = bin_channels(rows, order)
    for k, channel in enumerate(order):
        values = rows[channel].astype(np.float64)
        values = values[np.isfinite(values)]
        assert counts[k].sum() == values.size
        assert np.abs(counts[k] - np.histogram(values, edges)[0]).sum() <= 4  # values on an edge


def test_constant_and_empty_channels() -> None:
    counts, edges = bin_channels(np.full((2, 5), 3.0), np.array([1]))
    assert counts.sum() == 5 and edges[0] < 3 < edges[-1]
    counts, _ = bin_channels(np.full((2, 5), np.nan), np.array([0, 1]))
    assert counts.sum() == 0
    with pytest.raises(CancelledError):
        bin_channels(np.ones((2, 5)), np.array([0]), cancel=lambda: True)


def test_a_real_weight(corpus) -> None:
    folder = corpus / "digits_resnet"
    pair = folder / "fp32.onnx", folder / "ort_qdq_s8s8_pt.onnx"
    found = channel_map(*pair, "onnx::Conv_92_quantized", 0, np.array([14, 0]))
    assert found.counts.shape == (2, module.BINS) and found.counts.sum(axis=1).tolist() == [144, 144]
    with pytest.raises(UsageError, match="no weight"):
        channel_map(*pair, "gone", 0, np.array([0]))
    with pytest.raises(UsageError, match="channels differ"):
        channel_map(*pair, "onnx::Conv_92_quantized", 0, np.array([99]))
