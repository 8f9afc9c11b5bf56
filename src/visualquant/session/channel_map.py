"""How the values of one weight are spread in each channel: a map of channel × bin, read from the models on demand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from visualquant.analysis.weights import paired_arrays
from visualquant.errors import CancelledError, UsageError
from visualquant.session.pipeline import align_models, load_model

BINS = 96
_PART = 1 << 22  # elements binned at once


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ChannelMap:
    """Counts of float values.

    Attributes:
        value: the tensor in the quantized model.
        channels: int64 [R], index of each row's channel.
        counts: int64 [R, BINS]; non-finite values are left out.
        edges: float64 [BINS + 1], shared by all rows.
    """

    value: str
    channels: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    edges: npt.NDArray[np.float64]


def channel_map(
    float_path: Path | str,
    quant_path: Path | str,
    value: str,
    axis: int,
    channels: npt.NDArray[np.int64],
    cancel: Callable[[], bool] | None = None,
) -> ChannelMap:
    """The map of some channels of a stored weight, in the order given.

    Args:
        float_path: the reference.
        quant_path: its counterpart.
        value: the tensor in the quantized model.
        axis: of the stored codes, that counts channels.
        channels: int64 [R], which channels.
        cancel: asked between parts.

    Raises:
        UsageError: no such weight, or it has no float counterpart.
        InputError: a file can't be read.
        CancelledError: `cancel` said so.
    """
    float_model, quant_model = load_model(float_path), load_model(quant_path)
    pairs = paired_arrays(float_model, quant_model, align_models(float_model, quant_model))
    pair = next((p for p in pairs if p.value == value), None)
    if pair is None:
        raise UsageError(f"The models hold no weight {value!r}: they changed since they were compared.")
    x, _, _, problem = pair.arrays()
    if x is None or not -x.ndim <= axis < x.ndim or (channels.size and channels.max() >= x.shape[axis]):
        raise UsageError(f"{value!r} has no float counterpart to look at: {problem or 'its channels differ'}.")
    rows = np.moveaxis(x, axis, 0)
    counts, edges = bin_channels(rows, channels, cancel)
    return ChannelMap(value, channels, counts, edges)


def bin_channels(
    rows: npt.NDArray[np.generic], channels: npt.NDArray[np.int64], cancel: Callable[[], bool] | None = None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Counts [R, BINS] of some channels over edges [BINS + 1] that they share.

    Args:
        rows: [C, ...] values by channel.
        channels: int64 [R].
        cancel: asked between parts.

    Raises:
        CancelledError: `cancel` said so.
    """
    low, high = np.inf, -np.inf
    each = max(int(np.prod(rows.shape[1:])), 1)
    step = max(_PART // each, 1)
    parts = [channels[k : k + step] for k in range(0, channels.size, step)]

    def read(part: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        if cancel is not None and cancel():
            raise CancelledError("The map was cancelled.")
        return np.asarray(rows[part], np.float64).reshape(part.size, each)

    for part in parts:
        finite = read(part)
        finite = finite[np.isfinite(finite)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    if not low <= high:
        low, high = 0.0, 0.0
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts = np.zeros((channels.size, BINS), np.int64)
    at = 0
    for part in parts:
        block = read(part)
        known = np.isfinite(block)
        place = np.clip(((np.where(known, block, low) - low) / (high - low) * BINS).astype(np.int64), 0, BINS - 1)
        place += np.arange(part.size)[:, None] * BINS
        counts[at : at + part.size] = np.bincount(place[known], minlength=part.size * BINS).reshape(part.size, BINS)
        at += part.size
    return counts, np.linspace(low, high, BINS + 1)
