"""Float weights against dequantized ones, layer by layer."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.analysis.operands import JoinedSource, apply_steps, axis_before, inverse_steps, shape_after
from visualquant.core.alignment import Alignment, WeightPair
from visualquant.core.graph import GraphView, NodeView
from visualquant.core.model import Model, node_key
from visualquant.core.operators import is_bias_slot, is_weight_slot, weight_channel_axis
from visualquant.core.quant import QuantParams, QuantSite, ViewStep
from visualquant.core.report import ChannelRow, WeightDetail, WeightRow, WhatIfRow
from visualquant.core.stats import WeightStats
from visualquant.core.tensors import TensorRef
from visualquant.core.trace import trace_operand
from visualquant.errors import CancelledError

Progress = Callable[[int, int], None]
WORST_CHANNELS = 8
RESCALED = "rescaled"
QUANTILES = (0.0, 0.001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999, 1.0)


@dataclasses.dataclass(frozen=True, slots=True)
class WeightOptions:
    """What to measure on each weight.

    Attributes:
        what_if: also what other schemes would give.
        histogram_bins: shared-edge histograms of x, x̂ and the error; 0 for none.
        threads: of the kernels.
        progress: called with bytes done and bytes in all.
        cancel: asked often; True stops the work with `CancelledError`.
    """

    what_if: bool = False
    histogram_bins: int = 256
    threads: int = 1
    progress: Progress | None = None
    cancel: Callable[[], bool] | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MeasuredWeight:
    """One weight row with everything behind it.

    Attributes:
        row: what the report shows.
        detail: full tables for the archive.
        stats: None where there is no number (`row.problem` says why).
        reader: the quant node that reads it.
        slot: its input slot.
        site: where codes become values; None for weights that are float in the file.
        pair: the float operands that it was held against; None where none is known.
    """

    row: WeightRow
    detail: WeightDetail
    stats: WeightStats | None
    reader: NodeView | None
    slot: int
    site: QuantSite | None
    pair: WeightPair | None


def measure_weights(
    float_model: Model, quant_model: Model, alignment: Alignment, options: WeightOptions
) -> tuple[MeasuredWeight, ...]:
    """Every stored weight and bias of the quantized model, as each layer reads it, against the float model.

    A tensor that several layers read is measured once for each different counterpart.

    Raises:
        CancelledError: `options.cancel` said so.
        InputError: tensor data can't be read.
    """
    pairs = {p.quant: p for p in alignment.weights}
    jobs = list(_jobs(quant_model, pairs))
    total = sum(job.nbytes for job in jobs)
    done = 0
    cache: dict[tuple[Any, ...], tuple[WeightStats | None, tuple[WhatIfRow, ...], str | None]] = {}
    found: list[MeasuredWeight] = []
    for job in jobs:
        if options.cancel is not None and options.cancel():
            raise CancelledError("Stopped before all weights were measured.")
        source = _float_source(float_model.graph, job)
        key = job.identity(source)
        if key not in cache:
            cache[key] = _measure(job, source, _shifted(options, done, total))
        done += job.nbytes
        if options.progress is not None:
            options.progress(done, total)
        found.append(_measured(quant_model, alignment, job, source, *cache[key]))
    return _with_shared_groups(found)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PairedWeight:
    """A stored tensor of the quantized model and its float counterpart, before anything is read.

    Attributes:
        value: name in the quantized model.
        float_values: names in the float model.
        role: "weight" or "bias".
        arrays: reads them: float values in the layout of the codes, codes, parameters, or what is in the way.
    """

    value: str
    float_values: tuple[str, ...]
    role: str
    arrays: Callable[[], tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None, QuantParams | None, str | None]]


def paired_arrays(float_model: Model, quant_model: Model, alignment: Alignment) -> list[PairedWeight]:
    """Every stored weight and bias with what it is held against."""
    found = []
    for job in _jobs(quant_model, {p.quant: p for p in alignment.weights}):
        source = _float_source(float_model.graph, job)
        read = functools.partial(_read, job, source)
        found.append(PairedWeight(quant_model.graph.values[job.value].key, source.names, job.role, read))
    return found


def _read(
    job: _Job, source: _Source
) -> tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None, QuantParams | None, str | None]:
    if job.codes is None or job.problem is not None or not source.arrays:
        return None, None, None, job.problem or source.problem
    codes, view, params = _without_slices(job)
    try:
        x = _in_code_layout(job, source, view, codes.shape)
    except ValueError as error:
        return None, None, None, f"shapes do not fit: {error}"
    whole = x if isinstance(x, np.ndarray) else x.read(0, math.prod(x.shape)).reshape(x.shape)
    return whole, codes.array() if isinstance(codes, TensorRef) else codes, params, None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """One operand of the quantized graph to measure.

    Attributes:
        codes: stored codes, or the stored float tensor; None where there is none.
        view: steps from `codes` to the operand.
    """

    graph: GraphView
    value: int
    reader: NodeView | None
    slot: int
    site: QuantSite | None
    pair: WeightPair | None
    codes: TensorRef | None
    params: QuantParams | None
    view: tuple[ViewStep, ...]
    problem: str | None
    role: str

    @property
    def nbytes(self) -> int:
        return 0 if self.codes is None else self.codes.size * 5

    def identity(self, source: _Source) -> tuple[Any, ...]:
        """Equal for jobs that measure the same numbers."""
        floats = () if self.pair is None else tuple((f.node, f.slot) for f in self.pair.floats)
        behind = source.values if source.values else floats
        factor = None if self.pair is None or self.pair.factor is None else self.pair.factor.tobytes()
        axis = None if self.reader is None else self.channel_axis
        return self.value, behind, factor, self.view, id(self.params), axis, source.steps

    @property
    def channel_axis(self) -> int | None:
        """The axis of the stored codes along which output channels run."""
        if self.codes is None or not self.codes.shape:
            return None
        if self.role == "bias":
            return len(self.codes.shape) - 1 if len(self.codes.shape) == 1 else None
        if self.reader is None:
            return None if self.params is None or self.params.block_size else self.params.axis
        shapes = shape_after(self.view, self.codes.shape)
        axis = weight_channel_axis(self.reader, self.slot, len(shapes[-1]))
        return None if axis is None else axis_before(self.view, self.codes.shape, axis)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """The float side of a job.

    Attributes:
        names: keys of the stored float tensors.
        arrays: in the orientation of the quant operand; empty where there is no counterpart.
        values: value ids behind, for caching.
        problem: why there is none.
    """

    names: tuple[str, ...] = ()
    arrays: tuple[npt.NDArray[Any], ...] = ()
    values: tuple[int, ...] = ()
    steps: tuple[tuple[ViewStep, ...], ...] = ()
    problem: str | None = None


def _jobs(model: Model, pairs: dict[tuple[int, int], WeightPair]) -> list[_Job]:
    graph = model.graph
    jobs: list[_Job] = []
    seen: set[tuple[int, int]] = set()
    for site in model.sites:
        if site.role == "activation":
            continue
        reader = None if site.reader is None else graph.nodes[site.reader]
        if site.reader is not None:
            seen.add((site.reader, site.slot))
        pair = None if site.reader is None else pairs.get((site.reader, site.slot))
        problem = site.problem if site.params is None and not _is_float(site.codes) else None
        codes, params = _wide_float(site.codes, site.params)
        jobs.append(
            _Job(graph, site.value, reader, site.slot, site, pair, codes, params, site.view, problem, site.role)
        )
    for (node_id, slot), pair in pairs.items():
        node = graph.nodes[node_id]
        value = node.input(slot)
        if (node_id, slot) in seen or value is None or not (is_weight_slot(node, slot) or is_bias_slot(node, slot)):
            continue
        trace = trace_operand(graph, value)
        const = graph.const(trace.source)
        if const is None or not const.dtype.is_float or not trace.exact:
            continue
        role = "bias" if is_bias_slot(node, slot) else "weight"
        jobs.append(_Job(graph, trace.source, node, slot, None, pair, const, None, trace.steps, None, role))
    return sorted(jobs, key=lambda j: (len(graph.nodes) if j.reader is None else j.reader.id, j.slot, j.value))


def _wide_float(codes: TensorRef | None, params: QuantParams | None) -> tuple[TensorRef | None, QuantParams | None]:
    """Half precision and wider: the stored value is the value; a scale other than 1 is put into it."""
    if codes is None or params is None or not params.code_type.is_float or params.code_type.bits < 16:
        return codes, params
    if params.zero_point is None and bool(np.all(params.scale == 1)):
        return codes, None
    return TensorRef.of(params.dequantize(codes.array())), None


def _is_float(codes: TensorRef | None) -> bool:
    return codes is not None and codes.dtype.is_float and codes.dtype.bits >= 16


def _float_source(graph: GraphView, job: _Job) -> _Source:
    if job.pair is None or not job.pair.floats:
        return _Source(problem="no float counterpart is known")
    names, arrays, values = [], [], []
    for operand in job.pair.floats:
        value = graph.nodes[operand.node].input(operand.slot)
        trace = None if value is None else trace_operand(graph, value)
        const = None if trace is None else graph.const(trace.source)
        if trace is None or const is None or not const.dtype.is_float or not trace.exact:
            return _Source(problem="the float model computes this operand when it runs")
        names.append(graph.values[trace.source].key)
        values.append(trace.source)
        try:
            arrays.append(apply_steps(apply_steps(const.array(), trace.steps), operand.steps))
        except ValueError as error:
            return _Source(tuple(names), problem=f"shapes do not fit: {error}")
    return _Source(tuple(names), tuple(arrays), tuple(values), tuple(o.steps for o in job.pair.floats))


def _measure(
    job: _Job, source: _Source, options: WeightOptions
) -> tuple[WeightStats | None, tuple[WhatIfRow, ...], str | None]:
    if job.codes is None or job.problem is not None or not source.arrays:
        return None, (), job.problem or source.problem
    from visualquant.kernels.api import MeasureOptions, measure

    codes, view, params = _without_slices(job)
    channel_axis = job.channel_axis
    try:
        x = _in_code_layout(job, source, view, codes.shape)
    except ValueError as error:
        return None, (), f"shapes do not fit: {error}"
    if x.shape != codes.shape:
        return None, (), f"the float tensor has shape {list(x.shape)} where the codes have {list(codes.shape)}"
    measure_options = MeasureOptions(
        channel_axis=channel_axis,
        histogram_bins=options.histogram_bins,
        quantiles=QUANTILES,
        threads=options.threads,
        progress=options.progress,
        cancel=options.cancel,
    )
    stats, rescaled = measure(x, codes, params, measure_options), False
    factor = rescaling(x, codes, params, stats)
    if factor is not None:
        whole = JoinedSource((x,) if isinstance(x, np.ndarray) else x.parts, 0, factor)
        if whole.shape == codes.shape:
            stats, rescaled = measure(whole, codes, params, measure_options), True
    rows: tuple[WhatIfRow, ...] = ()
    if options.what_if and job.role == "weight":
        rows = what_if_rows(x, channel_axis, options)
    return stats, rows, RESCALED if rescaled else None


def rescaling(
    x: npt.NDArray[Any] | JoinedSource, codes: Any, params: QuantParams | None, stats: WeightStats
) -> npt.NDArray[np.float64] | None:
    """Factors along one axis or two that equalisation or smoothing put into the weight, or None.

    Tried only where the plain error is not rounding (correlation below 0.9, or well above a step) and the tensor has at
    most 16 million elements: factors of least squares, believed where they take at least 10 dB off the error.
    """
    cosine = stats.cosine
    if params is None or cosine is None or stats.elements > 1 << 24 or not isinstance(x, np.ndarray):
        return None
    if cosine >= 0.9 and (stats.rmse_over_scale or 0.0) < 1.2:
        return None
    y = params.dequantize(codes.array() if isinstance(codes, TensorRef) else codes)
    a = x.astype(np.float64)
    if not (np.isfinite(a).all() and np.isfinite(y).all()):
        return None
    axes = [k for k in range(a.ndim) if a.shape[k] > 1 and a.size >= 8 * a.shape[k]]
    for tried in ([(k,) for k in axes], list(itertools.combinations(axes[:3], 2))):
        for which in tried:
            factor = _fitted_factor(a, y, which)
            if ((a * factor - y) ** 2).sum() < 0.1 * min((y * y).sum(), ((a - y) ** 2).sum()):
                return np.broadcast_to(factor, a.shape)
    return None


def _fitted_factor(a: npt.NDArray[np.float64], y: npt.NDArray[np.float64], axes: tuple[int, ...]) -> npt.NDArray[Any]:
    """Factors of least squares along one axis, or along two by turns (a layer equalised on both sides)."""
    factor = np.ones((1,) * a.ndim)
    for _ in range(1 if len(axes) == 1 else 6):
        for axis in axes:
            others = tuple(k for k in range(a.ndim) if k != axis)
            scaled = a * factor
            power = (scaled * scaled).sum(axis=others, keepdims=True)
            ratio = (scaled * y).sum(axis=others, keepdims=True) / np.where(power > 0, power, 1)
            factor = factor * np.where((power > 0) & (ratio != 0), ratio, 1.0)
    return factor


def what_if_rows(x: Any, channel_axis: int | None, options: WeightOptions) -> tuple[WhatIfRow, ...]:
    """What other schemes would give for a float weight."""
    from visualquant.kernels.api import what_if

    found = what_if(x, channel_axis=channel_axis, threads=options.threads, cancel=options.cancel)
    return tuple(WhatIfRow(w.scheme, w.bits, w.sqnr_db, w.sqnr_db_worst_channel, w.bits_per_weight) for w in found)


def _without_slices(job: _Job) -> tuple[TensorRef | npt.NDArray[Any], tuple[ViewStep, ...], QuantParams | None]:
    """Codes without the padding that leading slices cut off; they are unpacked only where one really cuts."""
    assert job.codes is not None
    codes: TensorRef | npt.NDArray[Any] = job.codes
    steps = list(job.view)
    while steps and steps[0].kind == "slice":
        axis, start, stop = steps[0].args
        if (start, stop) != (0, codes.shape[axis]):
            array = codes.array() if isinstance(codes, TensorRef) else codes
            codes = steps[0].apply(array)
        del steps[0]
    params = job.params
    if params is not None and codes.shape != job.codes.shape and params.axis is not None:
        params = _cut_params(params, job.codes.shape, codes.shape)
    stored = codes.dtype if isinstance(codes, TensorRef) else None
    if params is not None and stored is not None and params.code_type.is_integer and stored is not params.code_type:
        params = dataclasses.replace(params, code_type=stored)  # NOTE: 5-bit codes lie in bytes; qmin and qmax stay
    return codes, tuple(steps), params


def _cut_params(params: QuantParams, before: tuple[int, ...], after: tuple[int, ...]) -> QuantParams:
    scale, zero = params.scale, params.zero_point
    for axis, (old, new) in enumerate(zip(before, after, strict=True)):
        if old == new:
            continue
        if params.block_size is None:
            if axis != params.axis:
                continue
            keep: tuple[slice, ...] = (slice(new),)
        else:
            count = -(-new // params.block_size) if axis == params.axis else new
            keep = (slice(None),) * axis + (slice(count),)
        scale = scale[keep]
        zero = None if zero is None else zero[keep]
    return dataclasses.replace(params, scale=scale, zero_point=zero)


def _in_code_layout(
    job: _Job, source: _Source, view: tuple[ViewStep, ...], shape: tuple[int, ...]
) -> npt.NDArray[Any] | JoinedSource:
    assert job.pair is not None
    site = job.site
    joined_axis = job.pair.concat_axis or 0
    back = inverse_steps(view, shape)
    plain = len(source.arrays) == 1 and job.pair.factor is None
    permutation = None if site is None else site.permutation
    pre_scale = None if site is None else site.pre_scale
    if plain and permutation is None and pre_scale is None:
        return apply_steps(source.arrays[0], back)
    if len(source.arrays) > 1:
        code_axis = axis_before(view, shape, joined_axis)
        if code_axis is None or any(s.kind == "reshape" for s in view):
            whole = np.concatenate(source.arrays, axis=joined_axis)
            parts: tuple[npt.NDArray[Any], ...] = (apply_steps(whole, back),)
            code_axis = 0
        else:
            parts = tuple(apply_steps(a, back) for a in source.arrays)
    else:
        parts, code_axis = (apply_steps(source.arrays[0], back),), 0
    factor: npt.NDArray[np.float64] | None = None
    for given in (job.pair.factor, pre_scale):  # both are in the orientation of the operand
        if given is not None:
            factor = given if factor is None else factor * given
    if factor is not None:
        factor = apply_steps(np.broadcast_to(factor, shape_after(view, shape)[-1]), back)
    order = None
    if permutation is not None:
        axis = site.params.axis if site is not None and site.params is not None and site.params.axis is not None else 0
        order = (axis, permutation)
        factor = None if factor is None else np.take(factor, permutation, axis=axis)
    return JoinedSource(parts, code_axis, factor, order)


def _shifted(options: WeightOptions, done: int, total: int) -> WeightOptions:
    """The same options, with progress counted from what earlier weights took."""
    if options.progress is None:
        return options
    progress = options.progress

    def report(part: int, _whole: int) -> None:
        progress(min(done + part, total), total)

    return dataclasses.replace(options, progress=report)


def _measured(
    quant_model: Model,
    alignment: Alignment,
    job: _Job,
    source: _Source,
    stats: WeightStats | None,
    what_if: tuple[WhatIfRow, ...],
    problem: str | None,
) -> MeasuredWeight:
    group = None if job.reader is None else alignment.group_of_quant.get(job.reader.id)
    params, codes = job.params, job.codes
    code_type = params.code_type if params is not None else codes.dtype if codes is not None else None
    transform = None if job.pair is None else job.pair.transform
    if problem == RESCALED:
        transform, problem = RESCALED, None
    named = source.names[0] if len(source.names) == 1 else source.names or None
    row = WeightRow(
        group=None if group is None else group.id,
        node=None if job.reader is None else node_key(job.reader.id),
        value=quant_model.key(job.value),
        role="bias" if job.role == "bias" else "weight",
        scheme=job.site.scheme if job.site is not None else "float",
        code_type="unknown" if code_type is None else code_type.name,
        elements=0 if codes is None else codes.size,
        float_value=named,
        granularity=None if params is None else params.granularity,
        axis=None if params is None else params.axis,
        block_size=None if params is None else params.block_size,
        bits_per_weight=None if code_type is None else float(code_type.bits),
        transform=transform,
        what_if=what_if,
        problem=problem,
        channel_axis=None if stats is None else stats.channel_axis,
    )
    if stats is None:
        return MeasuredWeight(row, WeightDetail(), None, job.reader, job.slot, job.site, job.pair)
    row = dataclasses.replace(
        row,
        range=stats.range_x,
        effective_range=stats.effective_range,
        rounding=stats.rounding if stats.integer_codes else None,
        metrics=stats.metrics(),
        zero_channels=tuple(int(k) for k in stats.zero_channels[:1000]),
        worst_channels=_worst_channels(stats),
        quantiles={} if stats.quantiles is None else {f"{p:g}": v for p, v in stats.quantiles.values.items()},
    )
    return MeasuredWeight(row, _detail(stats), stats, job.reader, job.slot, job.site, job.pair)


def _worst_channels(stats: WeightStats) -> tuple[ChannelRow, ...]:
    if stats.channel_error is None or stats.channel_x is None:
        return ()
    error, x = stats.channel_error, stats.channel_x
    return tuple(
        ChannelRow(
            index=k,
            sqnr_db=level,
            max_abs_error=float(error.max_abs[k]),
            range=(float(x.minimum[k]), float(x.maximum[k])),
        )
        for k, level in stats.worst_channels(WORST_CHANNELS)
    )


def _detail(stats: WeightStats) -> WeightDetail:
    channels: dict[str, Any] = {}
    if stats.channel_x is not None and stats.channel_error is not None:
        error = stats.channel_error
        channels = {
            "channel_sqnr_db": stats.channel_sqnr_db,
            "channel_max_abs_error": error.max_abs,
            "channel_max_abs": stats.channel_x.max_abs(),
            "channel_clipped": error.clipped_low.count + error.clipped_high.count,
        }
    histogram = stats.histogram
    if histogram is not None:
        channels |= {"edges": histogram.edges, "counts_float": histogram.x, "counts_quant": histogram.x_hat}
        if histogram.error is not None:
            channels |= {"error_edges": histogram.error.edges, "counts_error": histogram.error.counts[0]}
    return WeightDetail(**channels)


def _with_shared_groups(found: Sequence[MeasuredWeight]) -> tuple[MeasuredWeight, ...]:
    """Rows of a tensor that several layers read name all their groups."""
    groups: dict[str, list[str]] = {}
    for item in found:
        if item.row.group is not None and item.row.group not in groups.setdefault(item.row.value, []):
            groups[item.row.value].append(item.row.group)
    return tuple(
        dataclasses.replace(item, row=dataclasses.replace(item.row, groups=tuple(groups[item.row.value])))
        if len(groups.get(item.row.value, ())) > 1
        else item
        for item in found
    )


def weights_alone(model: Model, options: WeightOptions) -> tuple[WeightRow, ...]:
    """What-if rows of every float weight of one model, without a counterpart."""
    rows = []
    seen: set[int] = set()
    jobs = []
    for node in model.graph.nodes:
        for slot, value in enumerate(node.inputs):
            if value is None or not is_weight_slot(node, slot) or (node.id, slot) in model.site_at:
                continue
            trace = trace_operand(model.graph, value)
            const = model.graph.const(trace.source)
            if const is None or not const.dtype.is_float or len(const.shape) < 2 or trace.source in seen:
                continue
            seen.add(trace.source)
            view = trace.steps
            jobs.append(_Job(model.graph, trace.source, node, slot, None, None, const, None, view, None, "weight"))
    total, done = sum(j.nbytes for j in jobs), 0
    for job in jobs:
        if options.cancel is not None and options.cancel():
            raise CancelledError("Stopped before all weights were measured.")
        assert job.codes is not None and job.reader is not None
        found = what_if_rows(job.codes, job.channel_axis, options)
        rows.append(
            WeightRow(
                group=None,
                node=node_key(job.reader.id),
                value=model.key(job.value),
                role="weight",
                scheme="float",
                code_type=job.codes.dtype.name,
                elements=job.codes.size,
                bits_per_weight=float(job.codes.dtype.bits),
                what_if=found,
                channel_axis=job.channel_axis,
            )
        )
        done += job.nbytes
        if options.progress is not None:
            options.progress(done, total)
    return tuple(rows)
