"""From a tensor to its `WeightStats`: which passes are needed, and what follows from them."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from visualquant.core.quant import QuantParams
from visualquant.core.stats import (
    Bins,
    ChannelHistograms,
    CodeUse,
    ErrorStats,
    Histogram,
    Quantiles,
    ScaleSummary,
    TensorStats,
    WeightStats,
)
from visualquant.core.stats_shape import bin_exponent
from visualquant.errors import InputError
from visualquant.kernels.channel_bins import channel_histograms
from visualquant.kernels.engine import Pass, Wants
from visualquant.kernels.layout import Layout, plan
from visualquant.kernels.long_channels import outliers_of_long_channels
from visualquant.kernels.partner import STEPS, declared_range, finite_values, partner_of, values_of
from visualquant.kernels.piece import Subject
from visualquant.kernels.quantile import quantiles
from visualquant.kernels.records import (
    CODE_MAX,
    CODE_MIN,
    E_MAX,
    LEAF,
    X_MAX,
    X_MIN,
    Records,
    error_stats,
    rounding_evidence,
    x_stats,
    y_stats,
)
from visualquant.kernels.scale_groups import code_ends
from visualquant.kernels.sources import Strided, source_of, type_of
from visualquant.kernels.statistics import FAST_FROM
from visualquant.kernels.tasks import Control, Meter, boxes, file_region

if TYPE_CHECKING:
    from visualquant.kernels.api import MeasureOptions

F64 = npt.NDArray[np.float64]
_TRANSPOSED_LEAF = 2048
_MOST_BINS = 4096
_LEAST_TASK = 1 << 18


def measure(
    x: Any, codes: Any, params: QuantParams | None, options: MeasureOptions, fast_from: int = FAST_FROM
) -> WeightStats:
    """See `api.measure`; `fast_from` is the size from which the float32 kernels are used."""
    shape = _check(x, codes, params, options.channel_axis)
    Control(options.threads, options.cancel).check()
    layout = plan(shape, options.channel_axis, params)
    first_axis = options.channel_axis
    if not layout.groups_in_rows and params is not None:
        first_axis = params.axis if params.block_size is None else None
        layout = plan(shape, first_axis, params)
    subject = _subject(x, codes, params, layout)
    by_channel = layout.channel_axis is not None and layout.channel_axis == options.channel_axis
    is_alone = codes is None
    wants = Wants(
        bins=min(options.histogram_bins, _MOST_BINS),
        partner=not is_alone,
        errors=options.error_histogram and not is_alone,
        codes=options.code_counts and params is not None,
        outliers=options.outliers and (by_channel or options.channel_axis is None),
        blocks=subject.blocked,
        by_row=params is not None and params.axis is not None and not subject.blocked,
        chunk_elements=_task_elements(subject, options),
        fast_from=fast_from,
    )
    needs_second = first_axis != options.channel_axis
    control = _control(subject, options, needs_second)
    done = Pass(subject, wants)
    done.run(control)
    channels = done
    if needs_second:
        channels = _second_pass(x, codes, params, subject, options, wants, control)
    stats = _assemble(params, options, done, channels, control)
    done.reader.drop_all()
    if control.meter is not None:
        control.meter.finish()
    return stats


def _task_elements(subject: Subject, options: MeasureOptions) -> int:
    """Elements of a task: a chunk, or less where a few threads would otherwise share one or two tasks."""
    total = subject.layout.rows * subject.layout.columns
    share = max(_LEAST_TASK, total // (4 * max(1, options.threads))) if options.threads > 1 else total
    most = options.chunk_bytes // 4
    source = subject.x
    if isinstance(source, Strided) and source.is_contiguous and not (options.histogram_bins or subject.blocked):
        # NOTE: nothing is copied and nothing is read twice, so tasks need be small for files and `cancel` alone
        most *= 1 if file_region(source.memory) is not None else 4
    return max(subject.leaf, min(most, share))


def _control(subject: Subject, options: MeasureOptions, needs_second: bool) -> Control:
    """Threads, cancel, and a meter for all passes that the options ask for."""
    if options.progress is None:
        return Control(options.threads, options.cancel)
    passes = 1 + needs_second + (options.channel_histograms and options.channel_axis is not None)
    elements = subject.layout.rows * subject.layout.columns
    own = subject.x.dtype.itemsize * 8
    reads = (2 if subject.x_fits_float32 else 4) if options.quantiles else 0
    total = elements * (subject.bits * passes + own * reads) // 8
    return Control(options.threads, options.cancel, Meter(total, options.progress))


def _check(x: Any, codes: Any, params: QuantParams | None, channel_axis: int | None) -> tuple[int, ...]:
    shape = tuple(int(n) for n in x.shape)
    kind = type_of(x)
    if kind is not None and not kind.is_float:
        raise InputError(f"the float tensor holds {kind} elements")
    if codes is not None and tuple(int(n) for n in codes.shape) != shape:
        raise InputError(f"the float tensor has shape {list(shape)}, the codes {list(codes.shape)}")
    if params is not None:
        if codes is None:
            raise InputError("there are scales, but no codes")
        params.validate(shape)
    if channel_axis is not None and not 0 <= channel_axis < max(1, len(shape)):
        raise InputError(f"channel axis {channel_axis} does not exist in a tensor of shape {list(shape)}")
    return shape


def leaf_of(layout: Layout, blocked: bool) -> int:
    """Columns of a leaf: fixed by the layout alone."""
    inner_is_row = bool(layout.row_axes) and (not layout.column_axes or layout.row_axes[-1] > layout.column_axes[-1])
    leaf = _TRANSPOSED_LEAF if inner_is_row else LEAF
    return max(layout.block, leaf // layout.block * layout.block) if blocked else leaf


def _subject(x: Any, codes: Any, params: QuantParams | None, layout: Layout) -> Subject:
    source = source_of(x, layout)
    fits = source.dtype.name in ("float32", "float16", "bfloat16")
    partner = values_of(source, layout) if codes is None else partner_of(codes, params, layout)
    scale, zero, blocked = np.ones(1), None, False
    if params is not None:
        scale = layout.flat_scale(params.scale.astype(np.float64, copy=False))
        if params.zero_point is not None and np.any(params.zero_point):
            zero = layout.flat_scale(np.asarray(params.zero_point).astype(np.float64))
        blocked = params.block_size is not None and len(layout.shape) > 0
    return Subject(layout, source, fits, partner, scale, zero, blocked, None, leaf_of(layout, blocked))


def _second_pass(
    x: Any,
    codes: Any,
    params: QuantParams | None,
    first: Subject,
    options: MeasureOptions,
    wants: Wants,
    control: Control,
) -> Pass:
    """Channels of an axis that scale groups cross: in float64, with the extreme codes of each group known."""
    assert params is not None
    ends = code_ends(first, params, control) if first.partner.mode == STEPS else None
    layout = plan(first.layout.shape, options.channel_axis, params)
    subject = _subject(x, codes, params, layout)
    if ends is not None:
        forced = np.stack([layout.flat_scale(end) for end in ends])
        subject = dataclasses.replace(subject, forced=forced, leaf=leaf_of(layout, subject.blocked))
    else:
        subject = dataclasses.replace(subject, forced=np.zeros((2, subject.scale.size)))
    again = dataclasses.replace(wants, bins=0, blocks=False, by_row=False, outliers=options.outliers)
    done = Pass(subject, again)
    done.run(control)
    return done


def _assemble(
    params: QuantParams | None, options: MeasureOptions, done: Pass, channels: Pass, control: Control
) -> WeightStats:
    subject, records = done.subject, done.records
    lay = subject.layout
    alone = subject.partner.source is subject.x
    integer = subject.partner.mode == STEPS
    errors = error_stats(records)
    evidence = None
    if not alone:
        if integer and not subject.blocked and (params is None or params.axis is None):
            low, high = done.extreme_codes()
            errors = errors.settle(*(int(v) if math.isfinite(v) else 0 for v in (low, high)))
        total = errors.total()
        clipped = int(total.clipped_low.count), int(total.clipped_high.count)
        evidence = rounding_evidence(records, *clipped) if integer else None
    by_axis = channels.subject.layout.channel_axis == options.channel_axis and options.channel_axis is not None
    by_axis = by_axis and len(lay.shape) > 0
    channel_x = x_stats(channels.records) if by_axis else None
    channel_y = y_stats(channels.records) if by_axis and not alone else None
    channel_error: ErrorStats | None = None
    if by_axis and not alone:
        channel_error = errors if channels is done else error_stats(channels.records)
    used, covered = _ranges(params, records) if params is not None else (None, None)
    own, other = x_stats(records).total(), y_stats(records).total()
    far, six = _outliers(channels, options, control) if options.outliers else (None, None)
    histogram = _histogram(done, options, own, other, alone)
    return WeightStats(
        lay.shape,
        own,
        None if alone else other,
        None if alone else errors.total(),
        options.channel_axis if by_axis else None,
        channel_x,
        channel_y,
        channel_error,
        integer,
        ScaleSummary.of(params.scale) if params is not None else None,
        _code_use(done, channels, params, options) if params is not None else None,
        evidence,
        used,
        covered,
        far,
        six,
        histogram,
        _channel_histograms(channels, options, own, other, alone, control),
        _quantiles(done, options, control),
        done.blocks.build() if done.blocks is not None and done.blocks.layout.rows else None,
    )


def _margins(own: TensorStats, other: TensorStats, alone: bool) -> tuple[float, float]:
    low, high = float(own.minimum), float(own.maximum)
    if not alone and low <= high:
        y_low, y_high = float(other.minimum), float(other.maximum)
        low = min(low, y_low - abs(y_low) * 2.0**-22)
        high = max(high, y_high + abs(y_high) * 2.0**-22)
    return low, high


def _histogram(
    done: Pass, options: MeasureOptions, own: TensorStats, other: TensorStats, alone: bool
) -> Histogram | None:
    if done.values is None or done.values.counts.shape[1] == 0:
        return None
    # NOTE: the exponent follows from the limits of the whole tensor, so that it does not depend on the pieces
    low, high = _margins(own, other, alone)
    values = done.values.coarsen(bin_exponent(low, high, done.wants.bins))
    errors: Bins | None = done.errors
    if errors is not None:
        worst = float(done.records[:, E_MAX].max(initial=0.0)) * (1 + 2.0**-22)
        errors = errors.coarsen(bin_exponent(-worst, worst, done.wants.bins))
    del options
    return Histogram(values, errors)


def _channel_histograms(
    channels: Pass, options: MeasureOptions, own: TensorStats, other: TensorStats, alone: bool, control: Control
) -> ChannelHistograms | None:
    if not (options.channel_histograms and options.histogram_bins) or options.channel_axis is None:
        return None
    low, high = _margins(own, other, alone)
    limit = min(options.histogram_bins, _MOST_BINS)
    return channel_histograms(channels.subject, low, high, limit, not alone, channels.fast, control)


def _quantiles(done: Pass, options: MeasureOptions, control: Control) -> Quantiles | None:
    if not options.quantiles:
        return None
    subject = done.subject
    source, parts = subject.x, done.boxes
    flat = source.flat if isinstance(source, Strided) else None
    if flat is not None:
        # NOTE: order does not matter here, so memory is read as it lies
        source, parts = flat, boxes(flat.layout, LEAF, done.wants.chunk_elements, False)
    return Quantiles(quantiles(source, subject.x_fits_float32, parts, options.quantiles, control))


def _outliers(channels: Pass, options: MeasureOptions, control: Control) -> tuple[npt.NDArray[np.int64], ...]:
    cut = channels.outliers < 0
    if not channels.boxes:
        return np.zeros(channels.outliers.shape, np.int64), channels.six
    if cut.any():
        outliers_of_long_channels(channels, cut, control)
    del options
    return channels.outliers, channels.six


def _ranges(params: QuantParams, records: Records) -> tuple[float | None, float | None]:
    """Overlap of the quantized and the observed range over either, summed over scales; None for blocks."""
    if params.block_size is not None or params.table is not None or not params.code_type.is_integer:
        return None, None
    low, high = declared_range(params)
    scale = params.scale.reshape(-1)
    zero = np.zeros(scale.shape) if params.zero_point is None else params.zero_point.reshape(-1).astype(np.float64)
    x_low, x_high = records[:, X_MIN], records[:, X_MAX]
    if params.axis is None:
        x_low, x_high = np.array([x_low.min(initial=np.inf)]), np.array([x_high.max(initial=-np.inf)])
    with np.errstate(all="ignore"):
        a, b = (low - zero) * scale, (high - zero) * scale
        a, b = np.minimum(a, b), np.maximum(a, b)
        good = np.isfinite(a) & np.isfinite(b) & (x_low <= x_high)
        overlap = np.maximum(0.0, np.minimum(b, x_high) - np.maximum(a, x_low))[good].sum()
        width, seen = (b - a)[good].sum(), (x_high - x_low)[good].sum()
    return (float(overlap / width) if width > 0 else None), (float(overlap / seen) if seen > 0 else None)


def _code_use(done: Pass, channels: Pass, params: QuantParams, options: MeasureOptions) -> CodeUse:
    partner, records = done.subject.partner, done.records
    bits, integer = partner.kind.bits, partner.mode == STEPS
    low, high = float(records[:, CODE_MIN].min(initial=math.inf)), float(records[:, CODE_MAX].max(initial=-math.inf))
    lowest, highest = (int(low), int(high)) if integer and low <= high else (None, None)
    if bits > 16 or not done.boxes:
        return CodeUse(lowest, highest, None)
    if params.table is not None:
        available = int(params.table.size)
    elif integer:
        available = declared_range(params)[1] - declared_range(params)[0] + 1
    else:
        available = int(finite_values(params).size)
    if done.code_total is None:
        return CodeUse(lowest, highest, available)
    counts, first = _in_order(done.code_total, bits, integer, partner.is_signed)
    if not integer:
        used = np.flatnonzero(counts)
        lowest, highest = int(used[0]), int(used[-1])
    by_axis = options.channel_axis is not None and len(done.subject.layout.shape) > 0
    distinct, entropy = (channels.distinct, channels.entropy) if by_axis else (None, None)
    return CodeUse(lowest, highest, available, counts, first, distinct, entropy)


def _in_order(
    total: npt.NDArray[np.int64], bits: int, integer: bool, signed: bool
) -> tuple[npt.NDArray[np.int64], int]:
    """Counts by code − first code, from counts by decoded code + 128 (or by 16-bit pattern)."""
    if bits == 16:
        if integer and signed:
            return np.roll(total, 32_768), -32_768
        return total, 0
    half = 1 << (bits - 1)
    if integer and signed:
        return total[128 - half : 128 + half], -half
    if integer and bits == 8:
        return total, 0
    return total[np.arange(1 << bits) ^ 128], 0
