"""Which toolchain probably wrote a file, from what it leaves behind."""

from __future__ import annotations

from collections.abc import Sequence

from visualquant.core.graph import GraphView
from visualquant.core.quant import QuantSite


def guess_quantizer(graph: GraphView, sites: Sequence[QuantSite]) -> str | None:
    """The quantizer's name, or None where nothing is quantized or nothing tells.

    Looks at the producer, the metadata, operator domains and the endings that tools append to names.
    """
    domains = {n.domain for n in graph.nodes}
    producer = graph.producer.lower()
    if producer.startswith("quark") or "com.amd.quark" in domains:
        return "AMD Quark"
    if graph.container == "openvino":
        return "NNCF" if sites else None
    if any(d.startswith(("qonnx", "onnx.brevitas")) for d in domains) or _any_name(graph, "export_handler"):
        return "Brevitas"
    if "trt" in domains:
        return "ModelOpt"
    if not any(s.role == "weight" for s in sites):
        return None
    if producer.startswith("onnxruntime-genai"):
        return "ONNX Runtime GenAI model builder"
    schemes = {s.scheme for s in sites}
    if graph.metadata.get("onnx.infer") == "onnxruntime.quant":
        return (
            "ONNX Runtime (dynamic)" if "dynamic" in schemes and not {"qdq", "qoperator"} & schemes else "ONNX Runtime"
        )
    if _any_name(graph, "q_output_") or _any_name(graph, "nncf"):
        return "NNCF"
    if "matmul_nbits" in schemes:
        return "ONNX Runtime (weight-only)"
    if producer.startswith("onnx.quantize"):
        return "Neural Compressor" if _any_name(graph, "_QuantizeInput") else "ModelOpt"
    return None


def _any_name(graph: GraphView, part: str) -> bool:
    return any(part in v.name for v in graph.values)
