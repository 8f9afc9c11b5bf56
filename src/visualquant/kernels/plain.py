"""First version: right, bounded to one tensor in float64, not yet fast."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from visualquant.core.quant import QuantParams
from visualquant.core.stats import (
    Bins,
    BlockRow,
    BlockSummary,
    ClipStats,
    CodeUse,
    ErrorStats,
    Histogram,
    Quantiles,
    RoundingEvidence,
    ScaleSummary,
    TensorStats,
    WeightStats,
    WhatIf,
    sqnr_db,
)
from visualquant.core.stats_shape import bin_exponent, bin_index
from visualquant.core.tensors import TensorRef
from visualquant.errors import CancelledError, InputError
from visualquant.kernels.layout import Layout, plan

if TYPE_CHECKING:
    from visualquant.kernels.api import MeasureOptions

F = npt.NDArray[np.float64]


def load(x: Any) -> npt.NDArray[Any]:
    """The whole tensor."""
    if isinstance(x, TensorRef):
        return x.array()
    if isinstance(x, np.ndarray):
        return x
    return np.asarray(x.read(0, math.prod(x.shape))).reshape(x.shape)


def measure(x: Any, codes: Any, params: QuantParams | None, options: MeasureOptions) -> WeightStats:
    """See `api.measure`."""
    if options.cancel is not None and options.cancel():
        raise CancelledError("stopped")
    a = load(x)
    if codes is not None and tuple(codes.shape) != a.shape:
        raise InputError(f"the float tensor has shape {list(a.shape)}, the codes {list(codes.shape)}")
    if params is not None:
        params.validate(a.shape)
    layout = plan(a.shape, options.channel_axis, params)
    x64 = a.astype(np.float64)
    if codes is None:
        ok = np.isfinite(x64)
        rows = layout.canonical(x64).reshape(layout.rows, layout.columns)
        own = _tensor(rows, np.isfinite(rows))
        channel = _by_channel(own, layout)
        return WeightStats(
            a.shape,
            own.total(),
            channel_axis=layout.channel_axis,
            channel_x=channel if layout.channel_axis is not None else None,
            histogram=_histogram([x64[ok]], None, options),
            quantiles=_quantiles(x64[ok], options),
            **_outliers(layout, rows, np.isfinite(rows), options),
        )
    raw = load(codes)
    hat = params.dequantize(raw) if params is not None else raw.astype(np.float64)
    with np.errstate(all="ignore"):
        e64 = x64 - hat
    ok = np.isfinite(x64) & np.isfinite(hat)
    shape2 = (layout.rows, layout.columns)
    rx, rh, re, rok = (layout.canonical(v).reshape(shape2) for v in (x64, hat, e64, ok))
    own, other = _tensor(rx, rok), _tensor(rh, rok)
    low, high, evidence = _clips(raw, params, e64, x64, ok)
    error = _error(rx, rh, re, rok, layout, params, low, high)
    channels = layout.channel_axis is not None
    integer = params is not None and params.code_type.is_integer and params.table is None
    used, covered = _ranges(x64, params)
    return WeightStats(
        a.shape,
        own.total(),
        other.total(),
        error.total(),
        layout.channel_axis,
        _by_channel(own, layout) if channels else None,
        _by_channel(other, layout) if channels else None,
        _by_channel(error, layout) if channels else None,
        integer,
        ScaleSummary.of(params.scale) if params is not None else None,
        _codes(raw, params, layout) if params is not None and options.code_counts else None,
        evidence,
        used,
        covered,
        histogram=_histogram([x64[ok], hat[ok]], e64[ok], options),
        quantiles=_quantiles(x64[ok], options),
        blocks=_blocks(rx, re, rok, layout, params),
        **_outliers(layout, rx, rok, options),
    )


def _tensor(rows: F, ok: npt.NDArray[np.bool_]) -> TensorStats:
    v = np.where(ok, rows, 0.0)
    return TensorStats(
        ok.sum(1),
        (ok & (rows == 0)).sum(1),
        np.where(ok, rows, np.inf).min(1, initial=np.inf),
        np.where(ok, rows, -np.inf).max(1, initial=-np.inf),
        v.sum(1),
        (v * v).sum(1),
    )


def _by_channel(stats: Any, layout: Layout) -> Any:
    m, c = layout.rows_per_channel, layout.channels
    out = type(stats).identity((c,))
    if stats.count.size == 0:
        return out
    for k in range(m):
        out = out.merge(_pick(stats, slice(k, None, m)))
    return out


def _pick(stats: Any, index: Any) -> Any:
    values = []
    for name in stats.__dataclass_fields__:
        v = getattr(stats, name)
        values.append(_pick(v, index) if isinstance(v, ClipStats) else v[index])
    return type(stats)(*values)


def _error(x: F, h: F, e: F, ok: Any, layout: Layout, params: Any, low: Any, high: Any) -> ErrorStats:
    v = np.where(ok, e, 0.0)
    scaled = np.zeros(x.shape)
    good = np.zeros(x.shape, bool)
    if params is not None:
        s = np.broadcast_to(params.broadcast(params.scale, layout.shape), layout.shape)
        s = layout.canonical(s).reshape(x.shape)
        good = ok & np.isfinite(s) & (s != 0)
        scaled = np.where(good, v / np.where(good, s, 1.0), 0.0)
    clips = []
    for mask in (low, high):
        m = layout.canonical(mask).reshape(x.shape)
        clips.append(ClipStats(np.zeros(x.shape[0], np.int64), m.sum(1), (np.where(m, v, 0.0) ** 2).sum(1)))
    return ErrorStats(
        ok.sum(1),
        v.sum(1),
        np.abs(v).sum(1),
        (v * v).sum(1),
        np.abs(v).max(1, initial=0.0),
        (np.where(ok, x, 0.0) * np.where(ok, h, 0.0)).sum(1),
        good.sum(1),
        (scaled**2).sum(1),
        (~np.isfinite(x)).sum(1),
        (~np.isfinite(h)).sum(1),
        *clips,
    )


def finite_table(params: QuantParams) -> F:
    """Finite values of float or table codes."""
    if params.table is not None:
        v = params.table.astype(np.float64)
    else:
        v = np.arange(1 << params.code_type.bits).astype(np.uint8).view(params.code_type.numpy).astype(np.float64)
    return v[np.isfinite(v)]


def _clips(codes: Any, params: QuantParams | None, e: F, x: F, ok: Any) -> Any:
    low, high = np.zeros(x.shape, bool), np.zeros(x.shape, bool)
    if params is None:
        return low, high, None
    index = np.arange(params.scale.size).reshape(params.scale.shape)
    group = np.broadcast_to(params.broadcast(index, x.shape), x.shape)
    s = params.scale.reshape(-1)[group]
    with np.errstate(all="ignore"):
        if params.table is not None or not params.code_type.is_integer:
            table = finite_table(params)
            a, b = table.min() * s, table.max() * s
            swap = s < 0
            low = ok & np.where(swap, x > a, x < a)
            high = ok & np.where(swap, x < b, x > b)
            return low, high, None
        code = codes.astype(np.int64)
        lo = np.full(params.scale.size, np.iinfo(np.int64).max)
        hi = np.full(params.scale.size, np.iinfo(np.int64).min)
        np.minimum.at(lo, group.reshape(-1), code.reshape(-1))
        np.maximum.at(hi, group.reshape(-1), code.reshape(-1))
        out = np.where(s < 0, -e, e)
        limit = np.abs(s) / 2 * (1 + 1e-3)
        over_low, over_high = ok & (out < -limit), ok & (out > limit)
        low, high = over_low & (code == lo[group]), over_high & (code == hi[group])
        good = ok & (s != 0)
        r = out / np.abs(s)
        z = 0 if params.zero_point is None else params.zero_point.reshape(-1)[group]
        t = (x / s).astype(np.float32).astype(np.float64)
        tie = good & (np.abs(t - np.trunc(t)) == 0.5)
        even, away = np.rint(t) + z, np.trunc(t + np.sign(t) * 0.5) + z
        evidence = RoundingEvidence(
            int(good.sum()),
            int((good & over_low).sum()),
            int((good & over_high).sum()),
            int((good & low).sum()),
            int((good & high).sum()),
            int((good & (np.abs(r) > 2.5)).sum()),
            int((good & (r < -1e-3)).sum()),
            int((tie & (even != away) & (code == even)).sum()),
            int((tie & (even != away) & (code == away)).sum()),
        )
    return low, high, evidence


def declared(params: QuantParams) -> tuple[int, int]:
    """Declared range of integer codes."""
    bits, signed = params.code_type.bits, params.code_type.kind == "int"
    low = params.qmin if params.qmin is not None else (-(1 << (bits - 1)) if signed else 0)
    return low, params.qmax if params.qmax is not None else low + (1 << bits) - 1


def _ranges(x: F, params: QuantParams | None) -> tuple[float | None, float | None]:
    if params is None or params.block_size is not None or params.table is not None or not params.code_type.is_integer:
        return None, None
    low, high = declared(params)
    rows = x.reshape(1, -1) if params.axis is None else np.moveaxis(x, params.axis, 0).reshape(params.scale.size, -1)
    good = np.isfinite(rows)
    overlap = width = seen = 0.0
    zero = np.zeros(params.scale.size) if params.zero_point is None else params.zero_point.reshape(-1).astype(float)
    for row, m, s, z in zip(rows, good, params.scale.reshape(-1), zero, strict=True):
        a, b = sorted((float((low - z) * s), float((high - z) * s)))
        if not m.any() or not (math.isfinite(a) and math.isfinite(b)):
            continue
        u, v = float(row[m].min()), float(row[m].max())
        overlap += max(0.0, min(b, v) - max(a, u))
        width, seen = width + b - a, seen + v - u
    return (overlap / width if width else None), (overlap / seen if seen else None)


def _codes(raw: Any, params: QuantParams, layout: Layout) -> CodeUse:
    integer = params.code_type.is_integer
    pattern = raw.astype(np.int64) if integer else raw.view(np.uint8).astype(np.int64)
    if pattern.size == 0:
        return CodeUse(None, None, None)
    lo, hi = int(pattern.min()), int(pattern.max())
    if params.code_type.bits > 16:
        return CodeUse(lo, hi, None)
    if params.table is not None:
        available = params.table.size
    elif integer:
        available = declared(params)[1] - declared(params)[0] + 1
    else:
        available = finite_table(params).size
    first = -(1 << (params.code_type.bits - 1)) if params.code_type.kind == "int" else 0
    size = 1 << params.code_type.bits
    counts = np.bincount((pattern - first).reshape(-1), minlength=size).astype(np.int64)
    distinct = bits = None
    if layout.channel_axis is not None:
        rows = layout.canonical(pattern - first).reshape(layout.channels, -1)
        per = np.stack([np.bincount(r, minlength=size) for r in rows])
        distinct = np.count_nonzero(per, axis=1).astype(np.int64)
        bits = np.array([CodeUse(0, 0, 1, r).effective_bits for r in per], np.float64)
    return CodeUse(lo, hi, available, counts, first, distinct, bits)


def _histogram(values: list[F], error: F | None, options: MeasureOptions) -> Histogram | None:
    if options.histogram_bins <= 0 or values[0].size == 0:
        return None
    both = _bins(values, options.histogram_bins)
    wants_error = error is not None and options.error_histogram
    return Histogram(both, _bins([error], options.histogram_bins) if wants_error and error is not None else None)


def _bins(values: list[F], limit: int) -> Bins:
    low, high = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    k = bin_exponent(low, high, limit)
    first, last = bin_index(low, k), bin_index(high, k)
    counts = [
        np.bincount((np.floor(np.ldexp(v, -k)) - first).astype(np.int64), minlength=last - first + 1) for v in values
    ]
    return Bins(k, first, np.stack(counts).astype(np.int64), limit)


def _quantiles(v: F, options: MeasureOptions) -> Quantiles | None:
    if not options.quantiles:
        return None
    if v.size == 0:
        return Quantiles({})
    return Quantiles({p: float(q) for p, q in zip(options.quantiles, np.quantile(v, options.quantiles), strict=True)})


def _outliers(layout: Layout, rows: F, ok: Any, options: MeasureOptions) -> dict[str, Any]:
    if not options.outliers:
        return {}
    c = layout.channels
    many, six = np.zeros(c, np.int64), np.full(c, -1, np.int64)
    if rows.size == 0:
        return {"outliers": many, "outliers_6_sigma": six}
    for k, (row, m) in enumerate(zip(rows.reshape(c, -1), ok.reshape(c, -1), strict=True)):
        v = row[m]
        if v.size == 0:
            continue
        q25, median, q75 = np.quantile(v, [0.25, 0.5, 0.75])
        many[k] = (np.abs(v - median) > 10 * (q75 - q25)).sum()
        if v.size >= 64:
            six[k] = (np.abs(v - v.mean()) > 6 * v.std()).sum()
    return {"outliers": many, "outliers_6_sigma": six}


def _blocks(x: F, e: F, ok: Any, layout: Layout, params: QuantParams | None) -> BlockSummary | None:
    if params is None or params.block_size is None or not layout.groups_in_rows:
        return None
    nb, b = layout.blocks, layout.block
    pad = [(0, 0), (0, nb * b - layout.columns)]
    m = np.pad(ok, pad).reshape(layout.rows, nb, b)
    signal = np.where(m, np.pad(x, pad).reshape(m.shape), 0.0)
    noise = np.where(m, np.pad(e, pad).reshape(m.shape), 0.0)
    s, n, t = (signal**2).sum(2), (noise**2).sum(2), np.abs(noise).max(2, initial=0.0)
    live = m.any(2)
    with np.errstate(all="ignore"):
        ratio = np.where(n == 0, 0.0, n / s)
    edges = ratio_edges()
    counts = np.histogram(ratio[live], edges)[0].astype(np.int64)
    order = np.argsort(np.where(live, -ratio, np.inf), axis=None, kind="stable")[: min(256, int(live.sum()))]
    db = sqnr_db(s, n)
    worst = tuple(BlockRow(int(k // nb), int(k % nb), float(db.flat[k]), float(t.flat[k])) for k in order)
    pooled = []
    for v in (s, n):
        r = np.add.reduceat(v, np.unique(np.arange(min(512, v.shape[0])) * v.shape[0] // min(512, v.shape[0])), 0)
        pooled.append(np.add.reduceat(r, np.arange(min(512, nb)) * nb // min(512, nb), 1))
    below = int((live & (db < 20)).sum())
    return BlockSummary(int(live.sum()), layout.rows, nb, layout.row_axes, below, edges, counts, worst, *pooled)


def ratio_edges() -> F:
    """Limits of the distribution of Σe²/Σx²: four a factor of two from 2^-60 to 2^20, with 0 and inf at the ends."""
    steps = np.array([(1 + f / 4) * 2.0**k for k in range(-60, 20) for f in range(4)] + [2.0**20])
    return np.concatenate([[0.0], steps, [np.inf]])


def fake_quantize(x: Any, params: QuantParams) -> F:
    """See `api.fake_quantize`."""
    low, high = declared(params)
    a = np.asarray(x).astype(np.float64)
    params.validate(a.shape)
    s = params.broadcast(params.scale, a.shape)
    z = 0.0 if params.zero_point is None else params.broadcast(params.zero_point.astype(np.float64), a.shape)
    with np.errstate(all="ignore"):
        q = np.clip(np.rint(a / s) + z, low, high)
        out: F = np.where(np.isfinite(s) & (s != 0), (q - z) * s, np.nan)
    return out


def what_if(
    x: Any, channel_axis: int | None, reduction_axis: int | None, threads: int, cancel: Callable[[], bool] | None
) -> tuple[WhatIf, ...]:
    """See `api.what_if`."""
    del threads
    if cancel is not None and cancel():
        raise CancelledError("stopped")
    a = load(x).astype(np.float64)
    if a.ndim == 0:
        a = a.reshape(1)
    if channel_axis is None:
        rows = np.moveaxis(a, reduction_axis if reduction_axis is not None else -1, -1)
        rows = rows.reshape(-1, rows.shape[-1])
    else:
        rows = np.moveaxis(a, channel_axis, 0).reshape(a.shape[channel_axis], -1)
        if reduction_axis is not None:
            rest = np.moveaxis(a, (channel_axis, reduction_axis), (0, -1))
            rows = rest.reshape(a.shape[channel_axis], -1)
    rows = np.where(np.isfinite(rows), rows, 0.0)
    out = []
    for bits in (8, 4):
        for symmetric in (True, False):
            for name, block in (("per_tensor", None), ("per_channel", None), ("blocked", 32), ("blocked", 128)):
                if name == "per_channel" and channel_axis is None:
                    continue
                for clip in ("range", "mse"):
                    out.append(_scheme(rows, bits, symmetric, name, block, clip, channel_axis is not None))
    return tuple(out)


def _scheme(rows: F, bits: int, symmetric: bool, name: str, block: int | None, clip: str, channels: bool) -> WhatIf:
    length = rows.shape[1]
    size = block or max(1, length)
    pad = -(-length // size) * size - length if length else 0
    v = np.pad(rows, [(0, 0), (0, pad)], mode="edge") if pad else rows
    groups = v.reshape(1, -1) if name == "per_tensor" else v.reshape(-1, size) if v.size else v
    best = np.full(groups.shape[0], np.inf)
    hat = np.zeros(groups.shape)
    for share in (1.0,) if clip == "range" else np.linspace(1.0, 0.3, 29):
        q = _quantized(groups, bits, symmetric, float(share))
        loss = ((q - groups) ** 2).sum(1)
        better = loss < best
        best = np.where(better, loss, best)
        hat[better] = q[better]
    e = (hat - groups).reshape(v.shape)[:, :length]
    signal, noise = (rows**2).sum(1), (e**2).sum(1)
    total = float(sqnr_db(np.asarray(signal.sum()), np.asarray(noise.sum()))) if rows.size else None
    worst = float(sqnr_db(signal, noise).min()) if channels and rows.size else None
    extra = 0.0 if name == "per_tensor" else (16 + (0 if symmetric else bits)) / size
    label = {"per_tensor": "per tensor", "per_channel": "per channel", "blocked": f"blocks of {block}"}[name]
    kind = "symmetric" if symmetric else "asymmetric"
    text = f"int{bits} {kind}, {label}" + (", mse clip" if clip == "mse" else "")
    code = ("int" if symmetric else "uint") + str(bits)
    return WhatIf(text, code, symmetric, name, block, clip, bits, bits + extra, total, worst)


def _quantized(groups: F, bits: int, symmetric: bool, share: float) -> F:
    with np.errstate(all="ignore"):
        if symmetric:
            top = 2 ** (bits - 1) - 1
            s = np.abs(groups).max(1, initial=0.0, keepdims=True) * share / top
            s = np.where(s > 0, s, 1.0)
            out: F = np.clip(np.rint(groups / s), -top, top) * s
            return out
        top = 2**bits - 1
        low = np.minimum(groups.min(1, initial=0.0, keepdims=True), 0.0) * share
        high = np.maximum(groups.max(1, initial=0.0, keepdims=True), 0.0) * share
        s = (high - low) / top
        s = np.where(s > 0, s, 1.0)
        z = np.clip(np.rint(-low / s), 0, top)
        out = (np.clip(np.rint(groups / s) + z, 0, top) - z) * s
        return out
