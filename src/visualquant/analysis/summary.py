"""The two sentences that a person reads first."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Sequence

from visualquant.core.alignment import Alignment
from visualquant.core.model import Model
from visualquant.core.report import Coverage, Finding, SummaryRow, WeightRow

SOUND_DB = 25.0
_SCHEME_WORDS = {
    "qdq": "static (QDQ)",
    "qoperator": "static (integer operators)",
    "dynamic": "dynamic",
    "matmul_nbits": "weight-only (MatMulNBits)",
    "gather_block_quantized": "weight-only (GatherBlockQuantized)",
    "qonnx": "QONNX",
    "float16": "half precision",
    "bfloat16": "bfloat16",
    "fake_quantize": "OpenVINO FakeQuantize",
}


def sentence(model: Model) -> str:
    """What kind of quantization a model has, in one sentence."""
    weights = [s for s in model.sites if s.role == "weight" and s.params is not None and s.params.is_quantized]
    if not weights:
        halves = [s for s in model.schemes if s in ("float16", "bfloat16")]
        if halves:
            return f"{model.name} is a {halves[0]} model."
        if model.sites:
            return f"{model.name} quantizes activations only."
        if model.unclaimed:
            return f"{model.name} seems to be quantized, in a form that no reader understands."
        return f"{model.name} is not quantized."
    types: collections.Counter[str] = collections.Counter()
    grains: collections.Counter[str] = collections.Counter()
    for site in {(s.value, s.view): s for s in weights}.values():
        if site.params is not None and site.codes is not None:
            types[site.params.code_type.name] += site.codes.size
            grains[_grain(site.params.granularity, site.params.block_size)] += site.codes.size
    acts = collections.Counter(s.params.code_type.name for s in model.activation_sites if s.params is not None)
    total = max(sum(types.values()), 1)
    schemes = " and ".join(_SCHEME_WORDS.get(s, s) for s in model.schemes[:2])
    kind = " and ".join(name for name, size in types.most_common(2) if size > 0.05 * total) or "integer"
    grain = grains.most_common(1)[0][0] if grains else ""
    text = f"{schemes[:1].upper()}{schemes[1:]} quantization: {kind} weights {grain}"
    if acts:
        text += f", {acts.most_common(1)[0][0]} activations"
    if model.quantizer:
        text += f", made by {model.quantizer}"
    return text + "."


def _grain(granularity: str, block_size: int | None) -> str:
    return {"per_tensor": "per tensor", "per_channel": "per channel"}.get(granularity, f"in blocks of {block_size}")


def summarize(
    quant_model: Model,
    alignment: Alignment,
    coverage: Coverage,
    weights: Sequence[WeightRow],
    findings: Sequence[Finding],
) -> SummaryRow:
    """Sentence, verdict, and the worst weight."""
    levels = [
        (float(w.metrics["sqnr_db"]), w)
        for w in weights
        if w.role == "weight" and "sqnr_db" in w.metrics and w.code_type != "float32"
    ]
    worst = min(levels, key=lambda pair: pair[0])[1] if levels else None
    median = statistics.median(level for level, _ in levels) if levels else None
    return SummaryRow(
        sentence=sentence(quant_model),
        verdict=_verdict(alignment, findings, levels),
        coverage=coverage,
        worst=None if worst is None else worst.group,
        sqnr_db_median=median,
        sqnr_db_worst=None if worst is None else worst.metrics["sqnr_db"],
    )


def _verdict(alignment: Alignment, findings: Sequence[Finding], levels: Sequence[tuple[float, WeightRow]]) -> str:
    if not alignment.related:
        return alignment.reason or "The two models share too little to be compared."
    loud = [f for f in findings if f.severity != "info"]
    errors = sum(f.severity == "error" for f in loud)
    if errors:
        counted = f"{errors} findings cost" if errors > 1 else "1 finding costs"
        return f"{counted} accuracy now; the first is {loud[0].code}: {loud[0].what}"
    if loud:
        return f"Nothing is broken; the first thing to look at is {loud[0].code}: {loud[0].what}"
    if levels:
        level, worst = min(levels, key=lambda pair: pair[0])
        if level >= SOUND_DB:
            return f"The weights are sound: worst SQNR {level:.1f} dB over {len(levels)} quantized weights."
        text = f"No fault stands out, but {worst.code_type} leaves only {level:.1f} dB in {worst.value!r}"
        best = max((w for w in worst.what_if if w.bits == 4), key=lambda w: float(w.sqnr_db or 0), default=None)
        if best is not None and worst.code_type in ("int4", "uint4") and float(best.sqnr_db or 0) > level + 1:
            text += f"; {best.scheme} would give {float(best.sqnr_db or 0):.1f} dB"
        return text + "."
    return "The files show nothing to worry about."
