"""Rules that look at measured weights and biases."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from visualquant.analysis.findings.context import Context, Draft, label
from visualquant.analysis.settings import per_channel_setting
from visualquant.analysis.weights import MeasuredWeight
from visualquant.core.operators import WEIGHT_SLOTS
from visualquant.core.quant import QuantSite
from visualquant.core.stats import WeightStats
from visualquant.kernels.api import release

COARSE_DB = 20.0
LOST_DB = 12.0
FLOAT16_LARGEST = 65504.0
SPENT_SHARE = 0.02
INT32_MAX = (1 << 31) - 1


def _named(item: MeasuredWeight) -> str:
    return f"{item.row.value!r}" + ("" if item.reader is None else f" of {label(item.reader)}")


def _draft(item: MeasuredWeight, code: str, severity: str, what: str, effect: float = 0.0, **more: object) -> Draft:
    floats = item.row.float_value
    return Draft(
        code,
        severity,  # type: ignore[arg-type]
        what,
        effect=effect,
        node=None if item.reader is None else item.reader.id,
        value=item.row.value,
        float_value=floats if isinstance(floats, str) else None,
        **more,  # type: ignore[arg-type]
    )


def non_finite(context: Context) -> Iterator[Draft]:
    """WEIGHT_NON_FINITE on either side."""
    for item in context.weights:
        error = None if item.stats is None else item.stats.error
        if item.stats is None or error is None:
            continue
        ours, theirs = int(error.non_finite_float), int(error.non_finite_quant)
        if theirs and not ours and _is_half(item):
            continue  # FP16_OVERFLOW says it better
        if ours or theirs:
            yield _draft(
                item,
                "WEIGHT_NON_FINITE",
                "error",
                f"{_named(item)} holds NaN or infinity: {ours} elements of the float tensor, {theirs} after "
                "dequantizing.",
                effect=90,
                numbers={"non_finite_float": ours, "non_finite_quant": theirs},
            )


def half_range(context: Context) -> Iterator[Draft]:
    """FP16_OVERFLOW and FP16_UNDERFLOW of stored constants."""
    for item in context.weights:
        if item.stats is None or not _is_half(item) or item.stats.x_hat is None or item.stats.error is None:
            continue
        lost = int(item.stats.error.non_finite_quant) - int(item.stats.error.non_finite_float)
        peak = float(item.stats.x.max_abs())
        cut = item.row.code_type == "float16" and peak > FLOAT16_LARGEST * 1.001
        if lost > 0 or cut:
            how = f"{lost} elements are infinite" if lost > 0 else f"they were cut to {FLOAT16_LARGEST:.0f}"
            yield _draft(
                item,
                "FP16_OVERFLOW",
                "error",
                f"{_named(item)} reaches {peak:.4g} in float, beyond {item.row.code_type}: {how}.",
                effect=80,
                numbers={"elements": lost, "max_abs": peak},
            )
        zeros = int(item.stats.x_hat.zeros) - int(item.stats.x.zeros)
        if zeros > 0:
            severity = "warning" if zeros > 0.01 * item.row.elements else "info"
            yield _draft(
                item,
                "FP16_UNDERFLOW",
                severity,
                f"{zeros} non-zero elements of {_named(item)} are 0 in {item.row.code_type}.",
                effect=100 * zeros / max(item.row.elements, 1),
                numbers={"elements": zeros},
            )


def _is_half(item: MeasuredWeight) -> bool:
    return item.row.code_type in ("float16", "bfloat16") and item.row.granularity is None


def mismatch(context: Context) -> Iterator[Draft]:
    """WEIGHT_MISMATCH, or FUSION_CHANGED_VALUE where a fold stands between."""
    for item in context.weights:
        stats = item.stats
        if stats is None or stats.error is None or item.row.role != "weight" or item.row.transform == "rescaled":
            continue
        level, cosine = stats.sqnr_db, stats.cosine
        if level is None or math.isinf(level) or stats.pairs < 8:
            continue
        steps = _unclipped_rmse_in_steps(stats)
        unrelated = cosine is not None and cosine < 0.7 and level < 6
        beyond_rounding = steps is not None and steps > 1.5 and level < 40
        float_side = (
            not stats.integer_codes and item.row.granularity is None and item.row.code_type in ("float32", "float64")
        )
        if float_side and item.row.transform == "bn_folded" and level < 80:
            yield _folded(item, level)
        elif unrelated or beyond_rounding:
            if item.row.transform == "bn_folded":
                yield _folded(item, level)
                continue
            why = (
                f"they correlate with {cosine:.2f} only"
                if unrelated
                else f"their error is {steps:.1f} steps (rounding gives 0.29)"
            )
            yield _draft(
                item,
                "WEIGHT_MISMATCH",
                "error",
                f"{_named(item)} does not hold the float model's weights: {why} ({level:.1f} dB).",
                effect=85,
                numbers={"sqnr_db": level} | ({} if cosine is None else {"cosine": cosine}),
            )


def _folded(item: MeasuredWeight, level: float) -> Draft:
    return _draft(
        item,
        "FUSION_CHANGED_VALUE",
        "error" if level < 20 else "warning",
        f"{_named(item)} is not what folding its BatchNormalization gives: {level:.1f} dB against the float members.",
        effect=70,
        numbers={"sqnr_db": level},
    )


def _unclipped_rmse_in_steps(stats: WeightStats) -> float | None:
    """Root mean square of the error in steps, over elements that are not clipped."""
    error, whole = stats.error, stats.rmse_over_scale
    if error is None or whole is None:
        return None
    share = 1 - (stats.clip_noise_share or 0.0)
    return whole * math.sqrt(max(share, 0.0))


def clipped(context: Context) -> Iterator[Draft]:
    """WEIGHT_CLIPPED where clipping is a large part of the error."""
    for item in context.weights:
        stats = item.stats
        if stats is None or stats.error is None or item.row.role != "weight" or not stats.integer_codes:
            continue
        count = (stats.clipped_low or 0) + (stats.clipped_high or 0)
        level, without, noise = stats.sqnr_db, stats.sqnr_db_unclipped, stats.clip_noise_share
        if not count or level is None or without is None or noise is None or math.isinf(level):
            continue
        gain = without - level
        if noise < 0.1 and gain < 0.5:
            continue
        shown = "almost all of it" if math.isinf(without) else f"{gain:.1f} dB"
        yield _draft(
            item,
            "WEIGHT_CLIPPED",
            "warning" if gain >= 3 else "info",
            f"{count} elements of {_named(item)} are cut at the end of the range; without them the error would fall by "
            f"{shown} ({noise:.0%} of the noise is clipping).",
            effect=min(gain, 60.0),
            numbers={"clipped": count, "clip_noise_share": noise, "sqnr_db": level, "sqnr_db_unclipped": without},
        )


def dead_channels(context: Context) -> Iterator[Draft]:
    """WEIGHT_DEAD_CHANNEL: zero in float, or of a scale far below every other."""
    for item in context.weights:
        stats = item.stats
        if stats is None or item.row.role != "weight" or stats.channel_x is None:
            continue
        channels = int(stats.channel_x.count.size)
        dead = stats.zero_channels
        if dead.size and dead.size < channels and "Gather" not in (item.reader.op_type if item.reader else ""):
            yield _draft(
                item,
                "WEIGHT_DEAD_CHANNEL",
                "info",
                f"{dead.size} of {channels} channels of {_named(item)} are all zero, the first #{int(dead[0])}.",
                effect=100 * dead.size / channels,
                where={"channel": int(dead[0]), "axis": stats.channel_axis},
                numbers={"channels": int(dead.size)},
            )


def one_scale(context: Context) -> Iterator[Draft]:
    """WEIGHT_ONE_SCALE: channels far below what their own scale would give."""
    for item in context.weights:
        stats = item.stats
        if (
            stats is None
            or item.row.role != "weight"
            or item.row.granularity != "per_tensor"
            or not stats.integer_codes
        ):
            continue
        gain = _own_scale_gain(item, stats)
        levels = stats.channel_sqnr_db
        if gain is None or levels is None or stats.elements < 4 * levels.size:
            continue  # a channel of few elements (a bias, a norm's scale) has no SQNR worth the name
        bad = (levels < COARSE_DB) & (gain > LOST_DB)
        if not bad.any():
            continue
        share = float(bad.mean())
        worst = int(np.nanargmin(np.where(bad, levels, np.nan)))
        lost = int(((levels < 3) & bad).sum())
        yield _draft(
            item,
            "WEIGHT_ONE_SCALE",
            "warning" if share >= 0.02 else "info",
            f"One scale serves all {levels.size} channels of {_named(item)}: {int(bad.sum())} fall below "
            f"{COARSE_DB:.0f} dB (#{worst}: {levels[worst]:.1f} dB; {lost} are lost), where scales of their own would "
            f"give {float(np.nanmedian((levels + gain)[bad])):.0f} dB.",
            effect=20 + 40 * share,
            where={"channel": worst, "axis": stats.channel_axis},
            numbers={"channels": int(bad.sum()), "share": share, "gain_db": float(np.nanmedian(gain[bad]))},
            settings=per_channel_setting(context.quant_model),
        )


def _own_scale_gain(
    item: MeasuredWeight, stats: WeightStats
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None:
    """DB that each channel would gain with a symmetric scale of its own: rounding noise of s²/12 an element.

    Source: the uniform rounding model; s = max|x| / qmax of the channel.
    """
    site, x, error = item.site, stats.channel_x, stats.channel_error
    if site is None or site.params is None or x is None or error is None:
        return None
    levels = (1 << (site.params.code_type.bits - 1)) - 1
    own = (x.max_abs() / max(levels, 1)) ** 2 / 12 * x.count
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = 10 * np.log10(error.sum_sq / own)
    return np.where((x.count > 0) & (own > 0) & (error.sum_sq > 0), gain, 0.0)


def wrong_axis(context: Context) -> Iterator[Draft]:
    """WEIGHT_WRONG_AXIS: scales along another axis than the output channels."""
    for item in context.weights:
        stats, site = item.stats, item.site
        if stats is None or site is None or site.params is None or item.row.granularity != "per_channel":
            continue
        right, axis = stats.channel_axis, site.params.axis
        if item.row.role != "weight" or right is None or axis == right or site.codes is None:
            continue
        if item.reader is None or item.reader.op_type.startswith("Gather") or site.codes.shape[right] < 2:
            continue
        gain, levels = _own_scale_gain(item, stats), stats.channel_sqnr_db
        worst_gain = 0.0 if gain is None else float(np.max(gain))
        worst = None if levels is None or not levels.size else int(np.nanargmin(levels))
        yield _draft(
            item,
            "WEIGHT_WRONG_AXIS",
            "warning" if worst_gain > 3 else "info",
            f"The scales of {_named(item)} run along axis {axis}, its output channels along axis {right}"
            + (f"; channel #{worst} would gain {worst_gain:.1f} dB." if worst is not None and worst_gain > 1 else "."),
            effect=15 + min(max(worst_gain, 0.0), 40.0),
            where={"axis": axis, "output_axis": right},
            numbers={"gain_db_worst_channel": worst_gain},
            settings=f"axis = {right}",
        )


def outlier_in_block(context: Context) -> Iterator[Draft]:
    """WEIGHT_OUTLIER_IN_BLOCK: blocks in which all but the largest value fall on a few codes."""
    for item in context.weights:
        stats, site = item.stats, item.site
        if stats is None or item.row.role != "weight" or item.row.granularity != "blocked" or site is None:
            continue
        share, places = _spent_blocks(site)
        if share <= SPENT_SHARE:
            continue
        level = stats.sqnr_db
        yield _draft(
            item,
            "WEIGHT_OUTLIER_IN_BLOCK",
            "warning",
            f"In {share:.1%} of the blocks of {_named(item)} one value spends the range: the others fall within about "
            f"one step of zero ({0.0 if level is None else level:.1f} dB over the tensor).",
            effect=20 + 100 * share,
            where={"block": places},
            numbers={"share": share} | ({} if level is None else {"sqnr_db": level}),
        )


def _spent_blocks(site: QuantSite) -> tuple[float, int]:
    """(share of the blocks whose codes, the largest left out, have an rms below 1.1 steps; the first such block).

    Source: normal weights in symmetric int4 leave an rms of about 2.8 steps. Looks at no more than 4 million codes.
    """
    params, codes = site.params, site.codes
    if params is None or codes is None or params.block_size is None or params.axis is None or params.block_size < 8:
        return 0.0, 0
    if (
        not params.code_type.is_integer
        or params.code_type.bits > 4
        or params.code_type.bits < 3
        or codes.size > 1 << 26
    ):
        return 0.0, 0
    moved = np.moveaxis(codes.array(), params.axis, -1)
    whole = moved.shape[-1] // params.block_size * params.block_size
    # NOTE: no more is converted than is looked at: float32 copies of large codes would take gigabytes
    few = -(-(1 << 22) // max(math.prod(moved.shape[1:]), 1))
    values = moved[:few, ..., :whole].astype(np.float32, order="C")
    release(codes)
    if params.zero_point is not None:
        zero = np.moveaxis(params.zero_point.astype(np.float32), params.axis, -1)[:few]
        values -= np.repeat(zero, params.block_size, axis=-1)[..., :whole]
    blocks = values.reshape(-1, params.block_size)
    blocks = blocks[: (1 << 22) // params.block_size]
    if not blocks.size:
        return 0.0, 0
    squares = np.square(blocks)  # NOTE: of whole numbers, so the sums are exact
    largest = squares.max(axis=1)
    rest = np.sqrt((squares.sum(axis=1) - largest) / np.float32(params.block_size - 1))
    spent = (rest < 1.1) & (largest >= 16)
    return float(spent.mean()), int(np.flatnonzero(spent)[0]) if spent.any() else 0


def at_run_time(context: Context) -> Iterator[Draft]:
    """WEIGHT_AT_RUN_TIME, one finding for the file."""
    items = [
        w for w in context.weights if w.site is not None and w.site.quantized_at_run_time and w.row.role == "weight"
    ]
    items = [w for w in items if w.site is not None and w.site.scheme == "qdq"]
    if items:
        yield _draft(
            items[0],
            "WEIGHT_AT_RUN_TIME",
            "warning",
            f"{len(items)} weights are stored in float and quantized when the model runs, the first "
            f"{_named(items[0])}: the file does not shrink.",
            effect=10,
            numbers={"weights": len(items)},
        )


def stored_float(context: Context) -> Iterator[Draft]:
    """WEIGHT_STORED_FLOAT: float weights that carry a quantization error, behind quantized activations."""
    found = []
    for item in context.weights:
        level = None if item.stats is None else item.stats.sqnr_db
        if item.row.scheme != "stored_float" or item.row.role != "weight" or item.row.transform:
            continue
        if level is not None and math.isfinite(level):
            found.append((level, item))
    if found:
        level, item = min(found, key=lambda pair: pair[0])
        yield _draft(
            item,
            "WEIGHT_STORED_FLOAT",
            "warning",
            f"{len(found)} weights are float in the file and already carry the error of quantization, the worst "
            f"{_named(item)} with {level:.1f} dB, while their inputs pass Quantize and Dequantize.",
            effect=25,
            numbers={"weights": len(found), "sqnr_db": level},
        )


def float_copy(context: Context) -> Iterator[Draft]:
    """WEIGHT_FLOAT_COPY: the float twin of a quantized weight, read by another layer or by none."""
    quantized = {
        item.row.float_value: item
        for item in context.weights
        if item.site is not None
        and item.row.granularity is not None
        and item.row.role == "weight"
        and not item.site.quantized_at_run_time
        and isinstance(item.row.float_value, str)
    }
    for item in context.weights:
        twin = quantized.get(item.row.float_value) if isinstance(item.row.float_value, str) else None
        is_float = item.row.granularity is None
        if twin is not None and is_float and item.stats is not None and item.stats.sqnr_db == math.inf:
            yield _copy(item.row.value, twin, f"{_named(item)} still reads it", item)
    graph = context.graph
    by_key = context.float_model.graph.by_key
    for value in graph.values:
        const = value.const
        if const is None or not const.dtype.is_float or const.size < 256 or graph.consumers[value.id]:
            continue
        twin = quantized.get(value.name)
        if twin is not None and value.name in by_key:
            yield _copy(value.key, twin, "nothing reads it", None)


def _copy(value: str, twin: MeasuredWeight, reading: str, reader: MeasuredWeight | None) -> Draft:
    return Draft(
        "WEIGHT_FLOAT_COPY",
        "warning",
        f"The float tensor {value!r} is in the file beside its quantized form {twin.row.value!r}: {reading}.",
        effect=12,
        node=None if reader is None or reader.reader is None else reader.reader.id,
        value=value,
        where={"quantized": twin.row.value},
    )


def bias(context: Context) -> Iterator[Draft]:
    """BIAS_OVERFLOW and BIAS_SCALE."""
    for item in context.weights:
        stats, site = item.stats, item.site
        if item.row.role != "bias" or site is None or site.params is None or item.row.code_type != "int32":
            continue
        if stats is not None and stats.codes is not None:
            lowest, highest = stats.codes.lowest or 0, stats.codes.highest or 0
            count = ((stats.clipped_low or 0) if lowest <= -INT32_MAX else 0) + (
                (stats.clipped_high or 0) if highest >= INT32_MAX else 0
            )
            if count:
                channel = _first_clipped(stats)
                yield _draft(
                    item,
                    "BIAS_OVERFLOW",
                    "error",
                    f"{count} elements of the bias {_named(item)} need more than 32 bits and are cut"
                    + ("" if channel is None else f", the first in channel #{channel}")
                    + ": input scale times weight scale is too small there.",
                    effect=75,
                    where={"value": item.row.value} | ({} if channel is None else {"channel": channel}),
                    numbers={"clipped": count},
                )
        yield from _bias_scale(context, item)


def _first_clipped(stats: WeightStats) -> int | None:
    error = stats.channel_error
    if error is None:
        return None
    hit = np.flatnonzero(error.clipped_low.count + error.clipped_high.count)
    return int(hit[0]) if hit.size else None


def _bias_scale(context: Context, item: MeasuredWeight) -> Iterator[Draft]:
    reader, site = item.reader, item.site
    if reader is None or site is None or site.params is None or site.scheme != "qdq":
        return
    first = reader.input(0)
    data = None if first is None else context.activation_at.get(first)
    slots = WEIGHT_SLOTS.get(reader.op_type, ())
    weight = context.quant_model.site_at.get((reader.id, slots[-1])) if slots else None
    if data is None or data.params is None or weight is None or weight.params is None:
        return
    if weight.params.granularity == "blocked" or data.params.scale.size != 1:
        return
    if weight.params.axis is not None and weight.params.scale.size != site.params.scale.size:
        return
    product = data.params.scale.reshape(-1)[0] * weight.params.scale.reshape(-1)
    with np.errstate(all="ignore"):
        own = site.params.scale.reshape(-1)
        off = np.abs(own / product - 1)
    if off.size and float(np.nanmax(off)) > 1e-3:
        channel = int(np.nanargmax(off))
        yield _draft(
            item,
            "BIAS_SCALE",
            "warning",
            f"The scale of the bias {_named(item)} is {own[channel % own.size]:.4g}, input times weight scale is "
            f"{product[channel % product.size]:.4g} (channel #{channel}).",
            effect=30,
            where={"channel": channel},
            numbers={"relative_error": float(off[channel])},
        )


RULES = (
    non_finite,
    half_range,
    mismatch,
    bias,
    clipped,
    one_scale,
    wrong_axis,
    outlier_in_block,
    stored_float,
    at_run_time,
    float_copy,
    dead_channels,
)
