"""Which operators are known: all others stay opaque nodes, and a finding says so."""

from __future__ import annotations

from functools import cache

from visualquant.core.graph import GraphView, NodeView


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


MICROSOFT = _names(
    "Attention AttnLSTM BeamSearch BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu BifurcationDetector "
    "BitmaskBiasDropout BitmaskDropout BranchwiseRMSNorm CDist CausalConvWithState ComplexMul ComplexMulConj "
    "ConvStateReplay ConvTransposeWithDynamicPads CropAndResize DecoderAttention DecoderMaskedMultiHeadAttention "
    "DecoderMaskedSelfAttention DequantizeBFP DequantizeLinear DequantizeWithOrder DynamicQuantizeLSTM "
    "DynamicQuantizeMatMul DynamicSparseAttention DynamicTimeWarping EPContext EmbedLayerNormalization EngramGate "
    "ExpandDims FastGelu FusedConv FusedGemm FusedMatMul FusedMatMulActivation GatedAdd GatedDeltaNet "
    "GatedDeltaNetStateReplay GatedRMSNorm GatedRelativePositionBias GatherBlockQuantized GatherND GatherPacked "
    "Gelu GemmFastGelu GemmFloat8 GemmaRotaryEmbedding GreedySearch GridSample GroupNorm GroupQueryAttention "
    "HyperConnectionLowRankMix HyperConnectionPostMix HyperConnectionPreMix Inverse Irfft IsAllFinite "
    "LinearAttention LinearAttentionGate LongformerAttention MRotaryEmbedding Mamba2Verify "
    "MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight MatMulBnb4 MatMulFpQ4 MatMulInteger16 "
    "MatMulIntegerToFloat MatMulNBits MatMulNBitsMlp MatMulNBitsQLoRA MatMulNBitsQkv MatMulPacked MaxpoolWithMask "
    "MoE MoEGroupRouter MoEPacked MulInteger MultiHeadAttention MurmurHash3 NGramHashMapping NGramRepeatBlock "
    "NhwcConv NhwcFusedConv NhwcMaxPool PackedAttention PackedMultiHeadAttention PackedSparseAttentionIndexer "
    "PackedSparseAttentionIndexerMerge Pad PagedAttention QAttention QEmbedLayerNormalization QGemm QLinearAdd "
    "QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul "
    "QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere QMoE QOrderedAttention QOrderedGelu "
    "QOrderedLayerNormalization QOrderedLongformerAttention QOrderedMatMul QuantizeBFP QuantizeLinear "
    "QuantizeWithOrder QuickGelu RMSNormRotary Range ReduceSumInteger RelativePositionBias RemovePadding "
    "RestorePadding Rfft RotaryEmbedding RouterGateUpProj SampleOp Sampling ScaledSiLU SkipGroupNorm "
    "SkipLayerNormalization SkipSimplifiedLayerNormalization Snpe SparseAttention SparseAttentionIndexer "
    "SparsePagedAttention SparseToDenseMatMul SpeculativePrefixCommit SwiGLU Tokenizer TorchEmbedding "
    "TransposeMatMul Trilu UnfoldTensor Unique VarlenCausalConvWithState VarlenNGramHashMapping WhisperBeamSearch "
    "WordConvEmbedding"
)
"""Operators of com.microsoft in ONNX Runtime 1.32."""

STANDARD_EXTRAS = _names(
    "Affine Crop DisentangledAttention_TRT EfficientNMS_TRT GRUUnit GivenTensorFill ImageScaler MemcpyFromHost "
    "MemcpyToHost MultilevelCropAndResize_TRT ParametricSoftplus PyramidROIAlign_TRT Scale ScaledTanh "
    "SimplifiedLayerNormalization"
)
"""Operators that ONNX Runtime keeps in the ONNX domain, though ONNX does not define them."""

_VENDOR: dict[str, frozenset[str]] = {
    "com.microsoft": MICROSOFT,
    "com.microsoft.nchwc": _names(
        "AveragePool Conv GlobalAveragePool GlobalMaxPool MaxPool ReorderInput ReorderOutput Upsample"
    ),
    "qonnx.custom_op.general": _names(
        "Quant BipolarQuant Trunc FloatQuant IntQuant MultiThreshold QuantAvgPool2d Im2Col XnorPopcountMatMul"
    ),
    "org.openvinotoolkit": _names("FakeQuantize FakeConvert GroupNorm Normalize PriorBox DetectionOutput Swish"),
    "trt": _names(
        "TRT_INT8QuantizeLinear TRT_INT8DequantizeLinear TRT_FP8QuantizeLinear TRT_FP8DequantizeLinear "
        "TRT_INT4QuantizeLinear TRT_INT4DequantizeLinear TRT_FP4DynamicQuantize TRT_FP4QDQ TRT_MXFP8QuantizeLinear "
        "TRT_MXFP8DequantizeLinear TRT_MXFP8DynamicQuantize TRT_BlockDequantize"
    ),
    "com.amd.quark": _names(
        "ExtendedQuantizeLinear ExtendedDequantizeLinear ExtendedInstanceNormalization ExtendedLSTM "
        "BFPQuantizeDequantize MXQuantizeDequantize"
    ),
    "com.vai.quantize": _names(
        "VitisQuantizeLinear VitisDequantizeLinear BFPFixNeuron MXFixNeuron VitisInstanceNormalization VitisLSTM"
    ),
}
_VENDOR["onnx.brevitas"] = _VENDOR["finn.custom_op.general"] = _VENDOR["qonnx.custom_op.general"]
_VENDOR["com.ms.internal.nhwc"] = _VENDOR["com.microsoft.nchwc"] | _names(
    "BatchNormalization ConvTranspose DepthToSpace GridSample InstanceNormalization LRN QLinearAveragePool "
    "QLinearConv QLinearConvTranspose Resize SpaceToDepth"
)


_QUANTIZED = _names(
    "DequantizeBFP DequantizeLinear DequantizeWithOrder DynamicQuantizeLSTM DynamicQuantizeLinear "
    "DynamicQuantizeMatMul GatherBlockQuantized GemmFloat8 ConvInteger MatMulBlockQuantizedFp4Weight "
    "MatMulBlockQuantizedFp8Weight MatMulBnb4 MatMulFpQ4 MatMulInteger MatMulInteger16 MatMulIntegerToFloat "
    "MatMulNBits MatMulNBitsMlp MatMulNBitsQLoRA MatMulNBitsQkv QAttention QEmbedLayerNormalization QGemm QMoE "
    "QuantizeBFP QuantizeLinear QuantizeWithOrder"
)


def is_quantized_operator(node: NodeView) -> bool:
    """True where an operator takes codes, scales or zero points, or makes codes: its constants are no float weights."""
    if node.op_type in _QUANTIZED or node.op_type.startswith(("QLinear", "QOrdered")):
        return True
    vendor = node.domain in ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general", "trt")
    return vendor or node.domain in ("com.amd.quark", "com.vai.quantize")


def is_known_operator(graph: GraphView, node: NodeView) -> bool:
    """True for operators of ONNX, of ONNX Runtime and of the quantizers' domains, and for any of another container."""
    if graph.container != "onnx":
        return True
    named = _VENDOR.get(node.domain)
    if named is not None:
        return node.op_type in named
    return (node.domain, node.op_type) in _standard() or (node.domain == "" and node.op_type in STANDARD_EXTRAS)


@cache
def _standard() -> frozenset[tuple[str, str]]:
    import onnx

    return frozenset((s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history())
