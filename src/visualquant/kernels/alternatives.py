"""What another scheme would make of a float weight, in two reads.

The first read finds the range (and a histogram, to place the clip of one scale for all); the second one measures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.quant import QuantParams
from visualquant.core.stats import Bins, WhatIf, sqnr_db
from visualquant.kernels.grid import Grid
from visualquant.kernels.layout import Layout
from visualquant.kernels.partner import as_float32, declared_range
from visualquant.kernels.schemes import BLOCKS_128, PER_CHANNEL, SCHEMES, measure_schemes
from visualquant.kernels.sources import Box, Source, source_of
from visualquant.kernels.tasks import Control, Meter, box_bytes, boxes, run

F64 = npt.NDArray[np.float64]
F32 = npt.NDArray[np.float32]
# Shares of the range that an MSE-optimal clip is chosen from.
SHARES_8 = np.array([1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2])
SHARES_4 = np.array([1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5, 0.4, 0.3, 0.2])
_TENSOR_SHARES = np.geomspace(1.0, 0.01, 93)
_BINS = 4096
_GRANULARITY = ("per_tensor", "per_channel", "blocked", "blocked")
_BLOCK = (None, None, 32, 128)
_LABEL = ("per tensor", "per channel", "blocks of 32", "blocks of 128")


def what_if(
    x: Any,
    channel_axis: int | None,
    reduction_axis: int | None,
    threads: int,
    cancel: Callable[[], bool] | None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[WhatIf, ...]:
    """See `api.what_if`."""
    layout = _layout(tuple(int(n) for n in x.shape), channel_axis, reduction_axis)
    source = source_of(x, layout)
    bits = source.dtype.itemsize * 8
    meter = None if progress is None else Meter(2 * layout.rows * layout.columns * bits // 8, progress)
    control = Control(threads, cancel, meter)
    control.check()
    parts = boxes(layout, 1 << 16, 1 << 20, True)
    # NOTE: rows that fit a box find their own scales there; longer ones get them from the first read
    is_cut = any(box[3] - box[2] != layout.columns for box in parts)
    grids, exponent = _first_read(source, layout, parts, is_cut and channel_axis is not None, control)
    tensor = _schemes(_Spread.of(list(grids.values())), exponent)
    channel = np.zeros((0, 8, 3))
    if is_cut and channel_axis is not None:
        channel = np.stack([_schemes(grids[row], exponent) for row in range(layout.rows)])
    signal, errors = _second_read(source, layout, parts, tensor, channel, exponent, channel_axis is not None, control)
    if meter is not None:
        meter.finish()
    return _rows(layout, signal, errors, channel_axis is not None)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Spread:
    """Range and histogram of finite values."""

    bins: Bins
    low: float
    high: float

    @staticmethod
    def of(parts: list[_Spread]) -> _Spread:
        """All parts together."""
        bins = Bins.identity(1, _BINS)
        for part in parts:
            bins = bins.merge(part.bins)
        low, high = min((p.low for p in parts), default=math.inf), max((p.high for p in parts), default=-math.inf)
        return _Spread(bins, low, high)


def _layout(shape: tuple[int, ...], channel: int | None, reduction: int | None) -> Layout:
    axes = tuple(range(len(shape)))
    if not shape:
        channel = reduction = None
    if reduction == channel:
        reduction = None
    if channel is None:
        last = reduction if reduction is not None else (len(shape) - 1 if shape else None)
        rows = tuple(k for k in axes if k != last)
        columns: tuple[int, ...] = () if last is None else (last,)
    else:
        rows = (channel,)
        columns = tuple(k for k in axes if k not in (channel, reduction)) + (() if reduction is None else (reduction,))
    length = max(1, math.prod(shape[k] for k in columns))
    return Layout(shape, rows, columns, channel, length, 0, 0, 1, True, ())


def _finite(source: Source, box: Box, exponent: int) -> F32:
    """A box in float32, times 2^-exponent, with 0 for NaN and infinity."""
    part = source.box(box)
    if part.dtype.name in ("float32", "float16", "bfloat16") and exponent == 0:
        out = as_float32(part)
    else:
        with np.errstate(all="ignore"):
            out = np.ldexp(part.astype(np.float64), -exponent).astype(np.float32)
    finite = np.isfinite(out)
    return out if finite.all() else np.where(finite, out, np.float32(0))


def _first_read(
    source: Source, layout: Layout, parts: list[Box], by_row: bool, control: Control
) -> tuple[dict[int, _Spread], int]:
    """Range and histogram (of each row, or of all as row 0), and the power of two that brings extreme values near 1."""
    found: dict[int, list[_Spread]] = {row: [] for row in range(layout.rows if by_row else 1)}

    def spread(values: F64) -> _Spread:
        values = values[np.isfinite(values)]
        grid = Grid(1, _BINS)
        if values.size and grid.reach(float(values.min()), float(values.max())):
            grid.add(0, values)
        return _Spread(grid.bins(), grid.low, grid.high)

    def work(index: int) -> list[_Spread]:
        part = source.box(parts[index]).astype(np.float64)
        return [spread(row) for row in part] if by_row else [spread(part)]

    def commit(index: int, result: list[_Spread]) -> None:
        for k, one in enumerate(result):
            mine = found[parts[index][0] + k if by_row else 0]
            mine[:] = [_Spread.of([*mine, one])]

    run(len(parts), work, commit, control, box_bytes(parts, source.dtype.itemsize * 8))
    merged = {row: _Spread.of(own) for row, own in found.items()}
    whole = _Spread.of(list(merged.values()))
    if not whole.low <= whole.high:
        return merged, 0
    top = math.frexp(max(abs(whole.low), abs(whole.high)))[1]
    return merged, 0 if -80 < top < 60 else top


def _schemes(values: _Spread, exponent: int) -> F64:
    """Scale and code limits of eight schemes of one scale; clips by the least error over the histogram."""
    out = np.zeros((8, 3))
    if not values.low <= values.high:
        return out
    edges = np.ldexp(values.bins.edges, -exponent)
    low, high = math.ldexp(values.low, -exponent), math.ldexp(values.high, -exponent)
    return _fill(out, low, high, (edges[:-1] + edges[1:]) / 2, values.bins.counts[0].astype(np.float64))


def _fill(out: F64, low: float, high: float, centres: F64, weights: F64) -> F64:
    for wide, bits in enumerate((8, 4)):
        for asymmetric in range(2):
            losses = []
            choices = [_scale(low, high, bits, asymmetric, float(share)) for share in _TENSOR_SHARES]
            for scale, a, b in choices:
                if scale == 0:
                    losses.append(math.inf)
                    continue
                error = centres - np.clip(np.rint(centres / scale), a, b) * scale
                losses.append(float((weights * error**2).sum()))
            base = (wide * 2 + asymmetric) * 2
            out[base] = choices[0]
            out[base + 1] = choices[int(np.argmin(losses))]
    return out


def _scale(low: float, high: float, bits: int, asymmetric: int, share: float) -> tuple[float, float, float]:
    """As `schemes.scale_of`, in Python."""
    if not asymmetric:
        top = float((1 << (bits - 1)) - 1)
        return max(abs(low), abs(high)) * share / top, -top, top
    top = float((1 << bits) - 1)
    least, most = min(low, 0.0) * share, max(high, 0.0) * share
    scale = (most - least) / top
    if scale == 0:
        return 0.0, 0.0, 0.0
    zero = min(max(float(np.rint(-least / scale)), 0.0), top)
    return scale, -zero, top - zero


def _second_read(
    source: Source,
    layout: Layout,
    parts: list[Box],
    tensor: F64,
    channel: F64,
    exponent: int,
    channels: bool,
    control: Control,
) -> tuple[F64, F64]:
    """Σx² [rows] and Σe² [rows, SCHEMES], added up in the order of the boxes."""
    signal, errors = np.zeros(layout.rows), np.zeros((layout.rows, SCHEMES))

    def work(index: int) -> tuple[F64, F64]:
        box = parts[index]
        part = _finite(source, box, exponent)
        own_channel = channel[box[0] : box[1]]
        own, of_schemes = np.zeros(part.shape[0]), np.zeros((part.shape[0], SCHEMES))
        measure_schemes(part, tensor, own_channel, SHARES_8, SHARES_4, int(channels), own, of_schemes)
        return own, of_schemes

    def commit(index: int, result: tuple[F64, F64]) -> None:
        rows = slice(parts[index][0], parts[index][1])
        signal[rows] += result[0]
        errors[rows] += result[1]

    run(len(parts), work, commit, control, box_bytes(parts, source.dtype.itemsize * 8))
    return signal, errors


def _rows(layout: Layout, signal: F64, errors: F64, channels: bool) -> tuple[WhatIf, ...]:
    out = []
    for wide, bits in enumerate((8, 4)):
        for asymmetric in range(2):
            for granularity in range(BLOCKS_128 + 1):
                if granularity == PER_CHANNEL and not channels:
                    continue
                for clip, clip_name in enumerate(("range", "mse")):
                    error = errors[:, (wide * 2 + asymmetric) * 8 + granularity * 2 + clip]
                    block = _BLOCK[granularity]
                    size = block or layout.columns
                    extra = 0.0 if granularity == 0 or not size else (16 + (bits if asymmetric else 0)) / size
                    kind = "asymmetric" if asymmetric else "symmetric"
                    name = f"int{bits} {kind}, {_LABEL[granularity]}" + (", mse clip" if clip else "")
                    total = float(sqnr_db(np.asarray(signal.sum()), np.asarray(error.sum()))) if signal.size else None
                    worst = float(sqnr_db(signal, error).min()) if channels and signal.size else None
                    out.append(
                        WhatIf(
                            name,
                            ("uint" if asymmetric else "int") + str(bits),
                            not asymmetric,
                            _GRANULARITY[granularity],
                            block,
                            clip_name,
                            bits,
                            bits + extra,
                            total,
                            worst,
                        )
                    )
    return tuple(out)


def fake_quantize(x: Any, params: QuantParams) -> F64:
    """See `api.fake_quantize`."""
    low, high = declared_range(params)
    values = np.asarray(x).astype(np.float64)
    params.validate(values.shape)
    scale = params.broadcast(params.scale, values.shape)
    zero: Any = 0.0
    if params.zero_point is not None:
        zero = params.broadcast(params.zero_point.astype(np.float64), values.shape)
    with np.errstate(all="ignore"):
        codes = np.clip(np.rint(values / scale) + zero, low, high)
        out: F64 = np.where(np.isfinite(scale) & (scale != 0), (codes - zero) * scale, np.nan)
    return out
