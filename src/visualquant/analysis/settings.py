"""Cures in the words of the quantizer that made the file."""

from __future__ import annotations

from visualquant.core.model import Model


def per_channel_setting(model: Model) -> str | None:
    """How to ask for scales per channel; None where the toolchain is unknown."""
    return {
        "ONNX Runtime": "quantize_static(..., per_channel=True)",
        "ONNX Runtime (dynamic)": "quantize_dynamic(..., per_channel=True)",
        "AMD Quark": "QConfig(global_config=QLayerConfig(weight=Int8Spec(quant_granularity='channel')))",
        "NNCF": "nncf.quantize(..., advanced_parameters=AdvancedQuantizationParameters(weights_quantization_params="
        "QuantizationParameters(per_channel=True)))",
        "Brevitas": "weight_quant=Int8WeightPerChannelFloat",
    }.get(model.quantizer or "")


def exclude_setting(model: Model, nodes: list[str]) -> str | None:
    """How to leave nodes in float; None where the toolchain is unknown or no node has a name."""
    named = [n for n in nodes if n]
    if not named:
        return None
    listed = ", ".join(repr(n) for n in named[:8])
    if (model.quantizer or "").startswith("ONNX Runtime"):
        return f"nodes_to_exclude=[{listed}]"
    if model.quantizer == "NNCF":
        return f"ignored_scope=nncf.IgnoredScope(names=[{listed}])"
    if model.quantizer == "ModelOpt":
        return f"nodes_to_exclude=[{listed}]"
    if model.quantizer == "AMD Quark":
        return f"exclude=[{listed}]"
    return None
