"""Exact quantiles of any number of elements in two streaming passes (four for float64)."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from visualquant.kernels import ranks
from visualquant.kernels.engine import Reader
from visualquant.kernels.partner import as_float32
from visualquant.kernels.sources import Box, Source
from visualquant.kernels.tasks import Control, box_bytes, run

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
_SORTED = 16_384  # elements up to which sorting takes less than counting


def quantiles(
    x: Source, is_float32: bool, boxes: Sequence[Box], probabilities: Sequence[float], control: Control
) -> dict[float, float]:
    """Quantiles of the finite values within boxes, linear between order statistics (numpy's default).

    Args:
        x: the tensor.
        is_float32: values are float32 or narrower; else float64.
        boxes: what to look at.
        probabilities: each in [0, 1].
        control: threads, progress and cancel.

    Returns:
        Value by probability; empty where there is no finite value.
    """
    if sum((b[1] - b[0]) * (b[3] - b[2]) for b in boxes) <= _SORTED:
        return _sorted(x, boxes, probabilities)
    width = 32 if is_float32 else 64
    shift = width - 16
    counts = _count(x, boxes, width, shift, np.zeros(1, np.uint64), control)
    total = int(counts.sum())
    if total == 0:
        return {}
    ranks_wanted = sorted({rank for p in probabilities for rank in _ranks(p, total)})
    state = {rank: (0, rank) for rank in ranks_wanted}  # rank: (prefix, rank within it)
    state = {rank: _descend(counts[0], 0, rest) for rank, (_, rest) in state.items()}
    while shift > 0:
        shift -= 16
        prefixes = np.array(sorted({prefix for prefix, _ in state.values()}), np.uint64)
        counts = _count(x, boxes, width, shift, prefixes, control)
        place = {int(prefix): k for k, prefix in enumerate(prefixes)}
        state = {rank: _descend(counts[place[prefix]], prefix, rest) for rank, (prefix, rest) in state.items()}
    value = {rank: _value(key, width) for rank, (key, _) in state.items()}
    out = {}
    for p in probabilities:
        low, high = (value[rank] for rank in _ranks(p, total))
        t = p * (total - 1) - int(p * (total - 1))
        out[p] = high - (high - low) * (1.0 - t) if t >= 0.5 else low + (high - low) * t
    return out


def _sorted(x: Source, boxes: Sequence[Box], probabilities: Sequence[float]) -> dict[float, float]:
    """The same for a few elements, in memory."""
    values = np.concatenate([np.empty(0), *(x.box(box).astype(np.float64).reshape(-1) for box in boxes)])
    values = values[np.isfinite(values)]
    if values.size == 0:
        return {}
    return {p: float(q) for p, q in zip(probabilities, np.quantile(values, probabilities), strict=True)}


def _ranks(p: float, total: int) -> tuple[int, int]:
    position = int(p * (total - 1))
    return position, min(position + 1, total - 1)


def _descend(counts: I64, prefix: int, rank: int) -> tuple[int, int]:
    """The longer prefix that holds a rank, and the rank within it."""
    ends = np.cumsum(counts)
    k = int(np.searchsorted(ends, rank, side="right"))
    return (prefix << 16) | k, rank - int(ends[k] - counts[k])


def _value(key: int, width: int) -> float:
    top = 1 << (width - 1)
    pattern = key ^ top if key & top else key ^ ((1 << width) - 1)
    if width == 32:
        return float(np.array(pattern, np.uint32).view(np.float32))
    return float(np.array(pattern, np.uint64).view(np.float64))


def _count(x: Source, boxes: Sequence[Box], width: int, shift: int, prefixes: U64, control: Control) -> I64:
    """Counts of the next 16 bits of the order keys, by wanted prefix: int64 [prefixes, 65536]."""
    slots = np.zeros(65_536, np.uint8)
    if width == 32 and shift == 0:
        slots[prefixes] = np.arange(1, prefixes.size + 1)
    reader = Reader(list(boxes), [(x, None, x.dtype.itemsize * 8)])
    # NOTE: counts are whole numbers, so each thread may add up its own; adding up tables for each box would cost more
    # than filling them
    own: dict[int, I64] = {}

    def work(index: int) -> None:
        reader.before(index)
        part = x.box(boxes[index])
        me = threading.get_ident()
        if me not in own:
            own[me] = np.zeros((prefixes.size, 65_536), np.int64)
        counts = own[me]
        if width == 32 and shift > 0:
            few = np.zeros(65_536, np.uint32)
            ranks.count_top32(as_float32(part).view(np.uint32).reshape(-1), few)
            counts[0] += few
        elif width == 32:
            ranks.count_low32(as_float32(part).view(np.uint32).reshape(-1), slots, counts)
        else:
            ranks.count_keys64(part.astype(np.float64).view(np.uint64).reshape(-1), shift, prefixes, counts)
        reader.after(index)

    run(len(boxes), work, lambda *_: None, control, box_bytes(list(boxes), x.dtype.itemsize * 8))
    parts = list(own.values()) or [np.zeros((prefixes.size, 65_536), np.int64)]
    total = parts[0]
    for part in parts[1:]:
        total += part
    if width == 32 and shift > 0:
        total[0, :0x80] = total[0, 0xFF80:] = 0  # NOTE: a full exponent is NaN or infinity
    return total
