"""Every weight metric of metrics.md, slow and obvious, in float64 numpy on whole arrays."""

from __future__ import annotations

import math

import numpy as np

from visualquant.core.quant import QuantParams


def groups_of(params: QuantParams | None, shape: tuple[int, ...]) -> np.ndarray:
    """Scale group of each element."""
    if params is None or params.axis is None:
        return np.zeros(shape, np.int64)
    index = np.arange(params.scale.size).reshape(params.scale.shape)
    return np.broadcast_to(params.broadcast(index, shape), shape)


def sqnr_db(x: np.ndarray, e: np.ndarray) -> float | None:
    if x.size == 0:
        return None
    noise = math.fsum(float(v) ** 2 for v in e.ravel()) if x.size < 2000 else float((e**2).sum())
    signal = float((x**2).sum())
    if noise == 0:
        return math.inf
    return -math.inf if signal == 0 else 10 * math.log10(signal / noise)


def clipped(x, codes, params: QuantParams, e, ok) -> tuple[np.ndarray, np.ndarray]:
    """Masks of elements clipped low and high."""
    low, high = np.zeros(x.shape, bool), np.zeros(x.shape, bool)
    group = groups_of(params, x.shape)
    scale = params.scale.reshape(-1)
    for g in np.unique(group):
        here = (group == g) & ok
        s = float(scale[g])
        if not here.any():
            continue
        if params.table is not None or not params.code_type.is_integer:
            values = finite_values(params)
            a, b = sorted((values.min() * s, values.max() * s))
            lo_end, hi_end = here & (x < a), here & (x > b)
            low |= lo_end if s >= 0 else hi_end
            high |= hi_end if s >= 0 else lo_end
            continue
        mine = codes[group == g].astype(np.int64)
        outward = e if s >= 0 else -e
        limit = abs(s) / 2 * (1 + 1e-3)
        code = codes.astype(np.int64)
        low |= here & (code == mine.min()) & (outward < -limit)
        high |= here & (code == mine.max()) & (outward > limit)
    return low, high


def finite_values(params: QuantParams) -> np.ndarray:
    if params.table is not None:
        values = params.table.astype(np.float64)
    else:
        patterns = np.arange(1 << params.code_type.bits).astype(np.uint8)
        values = patterns.view(params.code_type.numpy).astype(np.float64)
    return values[np.isfinite(values)]


def weight_metrics(x, codes, params: QuantParams | None, channel_axis: int | None) -> dict[str, float]:
    """All metrics that need no histogram; undefined ones are left out."""
    x = np.asarray(x).astype(np.float64)
    if codes is None:
        ok = np.isfinite(x)
        return {**_own(x, ok, channel_axis), "non_finite_float": int((~ok).sum())}
    x_hat = params.dequantize(codes) if params is not None else np.asarray(codes).astype(np.float64)
    ok = np.isfinite(x) & np.isfinite(x_hat)
    out: dict[str, float] = {
        "non_finite_float": int((~np.isfinite(x)).sum()),
        "non_finite_quant": int((~np.isfinite(x_hat)).sum()),
    }
    with np.errstate(all="ignore"):
        e = np.where(ok, x - x_hat, 0.0)
    a, b, d = x[ok], x_hat[ok], e[ok]
    n = a.size
    if params is not None:
        low, high = clipped(x, codes, params, e, ok)
        out["clipped_low"], out["clipped_high"] = int(low.sum()), int(high.sum())
        _codes(out, codes, params, channel_axis)
    if n == 0:
        return out
    out |= _own(x, ok, channel_axis)
    noise, signal = float((d**2).sum()), float((a**2).sum())
    out["sqnr_db"] = sqnr_db(a, d)
    out["nsr"] = noise / signal if signal else (math.inf if noise else 0.0)
    out["mse"], out["rmse"], out["mae"] = noise / n, math.sqrt(noise / n), float(np.abs(d).mean())
    out["max_abs_error"], out["euclidean"], out["bias"] = float(np.abs(d).max()), math.sqrt(noise), float(d.sum() / n)
    norms = math.sqrt(signal) * math.sqrt(float((b**2).sum()))
    if norms:
        out["cosine"] = float((a * b).sum()) / norms
    if params is not None:
        _with_scale(out, params, e, ok, low | high, noise, signal)
    if channel_axis is not None:
        rows = [sqnr_db(p[m], q[m]) for p, q, m in zip(*(_rows(v, channel_axis) for v in (x, e, ok)), strict=True)]
        rows = sorted(v for v in rows if v is not None)
        out["sqnr_db_worst_channel"] = rows[0]
        lo, hi = rows[(len(rows) - 1) // 2], rows[len(rows) // 2]
        out["sqnr_db_median_channel"] = lo if lo == hi or math.isinf(lo) else (lo + hi) / 2
        out["share_of_channels_below_20_db"] = sum(v < 20 for v in rows) / len(rows)
    return out


def channel_sqnr_db(x, codes, params, channel_axis) -> list[float]:
    x = np.asarray(x).astype(np.float64)
    x_hat = params.dequantize(codes) if params is not None else np.asarray(codes).astype(np.float64)
    ok = np.isfinite(x) & np.isfinite(x_hat)
    with np.errstate(all="ignore"):
        e = x - x_hat
    rows = zip(*(_rows(v, channel_axis) for v in (x, e, ok)), strict=True)
    return [math.nan if not m.any() else sqnr_db(p[m], q[m]) for p, q, m in rows]


def _rows(x: np.ndarray, channel_axis: int | None) -> list[np.ndarray]:
    if channel_axis is None:
        return [x.reshape(-1)]
    return [row.reshape(-1) for row in np.moveaxis(x, channel_axis, 0)]


def _own(x, ok, channel_axis) -> dict[str, float]:
    out: dict[str, float] = {}
    a = x[ok]
    if a.size == 0:
        return out
    out["zeros"] = int((a == 0).sum())
    rms = math.sqrt(float((a**2).mean()))
    if rms:
        out["crest"] = float(np.abs(a).max()) / rms
    outliers, six, any_six, crests = 0, 0, False, []
    for row, m in zip(_rows(x, channel_axis), _rows(ok, channel_axis), strict=True):
        v = row[m]
        if v.size == 0:
            continue
        q25, median, q75 = np.quantile(v, [0.25, 0.5, 0.75])
        outliers += int((np.abs(v - median) > 10 * (q75 - q25)).sum())
        if v.size >= 64:
            any_six = True
            six += int((np.abs(v - v.mean()) > 6 * v.std()).sum())
        r = math.sqrt(float((v**2).mean()))
        if r:
            crests.append(float(np.abs(v).max()) / r)
    out["outliers"] = outliers
    if any_six:
        out["outliers_6_sigma"] = six
    if channel_axis is not None and crests:
        out["crest_worst_channel"] = max(crests)
    return out


def available_codes(params: QuantParams) -> int | None:
    if params.table is not None:
        return int(params.table.size)
    if params.code_type.is_integer:
        if params.code_type.bits > 16:
            return None
        bits, signed = params.code_type.bits, params.code_type.kind == "int"
        low = params.qmin if params.qmin is not None else (-(1 << (bits - 1)) if signed else 0)
        high = params.qmax if params.qmax is not None else low + (1 << bits) - 1
        return high - low + 1
    return int(finite_values(params).size)


def _patterns(codes: np.ndarray, params: QuantParams) -> np.ndarray:
    return codes.astype(np.int64) if params.code_type.is_integer else codes.view(np.uint8).astype(np.int64)


def _codes(out, codes, params, channel_axis) -> None:
    available = available_codes(params)
    if codes.size == 0 or available is None:
        return

    def bits(v):
        p = np.unique(v, return_counts=True)[1] / v.size
        return max(0.0, float(-(p * np.log2(p)).sum()))

    patterns = _patterns(codes, params)
    out["code_utilisation"] = min(1.0, np.unique(patterns).size / available)
    out["effective_bits"] = bits(patterns.ravel())
    if channel_axis is not None:
        rows = _rows(patterns, channel_axis)
        out["code_utilisation_median_channel"] = min(
            1.0, float(np.median([np.unique(r).size for r in rows])) / available
        )
        out["effective_bits_median_channel"] = float(np.median([bits(r) for r in rows]))


def _with_scale(out, params, e, ok, clip, noise, signal) -> None:
    if noise:
        out["clip_noise_share"] = min(1.0, float((e[clip] ** 2).sum()) / noise)
    rest = float((e[ok & ~clip] ** 2).sum())
    out["sqnr_db_unclipped"] = math.inf if rest == 0 else (10 * math.log10(signal / rest) if signal else -math.inf)
    if params.code_type.is_integer and params.table is None:
        s = np.broadcast_to(params.broadcast(params.scale, e.shape), e.shape)
        good = ok & np.isfinite(s) & (s != 0)
        if good.any():
            out["rmse_over_scale"] = math.sqrt(float(((e[good] / s[good]) ** 2).mean()))


def histogram(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Counts of finite values by [edge, next edge)."""
    values = values[np.isfinite(values)]
    return np.bincount(np.searchsorted(edges, values, side="right") - 1, minlength=edges.size - 1)


def ranges(x, params: QuantParams, channel_axis) -> tuple[float | None, float | None]:
    """range_used and range_covered, per tensor or per channel of scales."""
    if params.block_size is not None or params.table is not None or not params.code_type.is_integer:
        return None, None
    signed, bits = params.code_type.kind == "int", params.code_type.bits
    lo = params.qmin if params.qmin is not None else (-(1 << (bits - 1)) if signed else 0)
    hi = params.qmax if params.qmax is not None else lo + (1 << bits) - 1
    group, overlap, width, seen = groups_of(params, x.shape), 0.0, 0.0, 0.0
    for g, s in enumerate(params.scale.reshape(-1)):
        v = x[group == g].astype(np.float64)
        v = v[np.isfinite(v)]
        z = 0 if params.zero_point is None else float(params.zero_point.reshape(-1)[g])
        ends = sorted(((lo - z) * s, (hi - z) * s))
        if v.size == 0 or not np.isfinite(ends).all():
            continue
        overlap += max(0.0, min(ends[1], v.max()) - max(ends[0], v.min()))
        width, seen = width + ends[1] - ends[0], seen + v.max() - v.min()
    return (overlap / width if width else None), (overlap / seen if seen else None)


def blocks_sqnr(x, codes, params) -> list[float]:
    """SQNR of each scale group in order of the flat scale array."""
    x = np.asarray(x).astype(np.float64)
    e = x - params.dequantize(codes)
    group = groups_of(params, x.shape)
    out = []
    for g in range(params.scale.size):
        m = (group == g) & np.isfinite(e)
        out.append(math.nan if not m.any() else sqnr_db(x[m], e[m]))
    return out


def quantize(x: np.ndarray, scale: float, zero: int, low: int, high: int) -> np.ndarray:
    """ONNX QuantizeLinear in float64."""
    return np.clip(np.round(x / scale) + zero, low, high).astype(np.int64)
