"""Facts about ONNX operators that several layers need."""

from __future__ import annotations

from visualquant.core.graph import NodeView

# Where a node's weight stands, by operator: slots of float forms and of their integer forms.
WEIGHT_SLOTS: dict[str, tuple[int, ...]] = {
    "Conv": (1,),
    "ConvTranspose": (1,),
    "FusedConv": (1,),
    "NhwcConv": (1,),
    "NhwcFusedConv": (1,),
    "ConvInteger": (1,),
    "QLinearConv": (3,),
    "QLinearConvTranspose": (3,),
    "MatMul": (0, 1),
    "FusedMatMul": (0, 1),
    "FusedMatMulActivation": (0, 1),
    "TransposeMatMul": (0, 1),
    "MatMulInteger": (0, 1),
    "MatMulInteger16": (0, 1),
    "MatMulIntegerToFloat": (0, 1),
    "DynamicQuantizeMatMul": (0, 1),
    "QLinearMatMul": (0, 3),
    "MatMulNBits": (1,),
    "MatMulBnb4": (1,),
    "Gemm": (0, 1),
    "FusedGemm": (0, 1),
    "GemmFloat8": (0, 1),
    "QGemm": (3,),
    "Gather": (0,),
    "GatherBlockQuantized": (0,),
    "LSTM": (1, 2),
    "GRU": (1, 2),
    "RNN": (1, 2),
    "DynamicQuantizeLSTM": (1, 2),
    "Attention": (1,),
    "QAttention": (1,),
    "EmbedLayerNormalization": (2, 3, 4),
    "QEmbedLayerNormalization": (2, 3, 4),
    "Einsum": (0, 1, 2),
}

BIAS_SLOTS: dict[str, int] = {
    "Conv": 2,
    "ConvTranspose": 2,
    "FusedConv": 2,
    "NhwcConv": 2,
    "NhwcFusedConv": 2,
    "QLinearConv": 8,
    "Gemm": 2,
    "FusedGemm": 2,
    "QGemm": 6,
    "LSTM": 3,
    "GRU": 3,
    "RNN": 3,
    "DynamicQuantizeLSTM": 3,
    "Attention": 2,
    "QAttention": 2,
    "MatMulIntegerToFloat": 6,
    "DynamicQuantizeMatMul": 4,
    "MatMulNBits": 5,
}

QUANTIZE_OPS = frozenset(
    {
        "QuantizeLinear",
        "DynamicQuantizeLinear",
        "Quant",
        "BipolarQuant",
        "Trunc",
        "FakeQuantize",
        "ExtendedQuantizeLinear",
    }
    | {"BFPQuantizeDequantize", "MXQuantizeDequantize", "TRT_FP8QuantizeLinear", "TRT_INT4QuantizeLinear"}
)
DEQUANTIZE_OPS = frozenset(
    {"DequantizeLinear", "ExtendedDequantizeLinear", "TRT_FP8DequantizeLinear", "TRT_INT4DequantizeLinear"}
    | {"TRT_MXFP8DequantizeLinear", "TRT_FP4DynamicQuantize"}
)


def weight_channel_axis(node: NodeView, slot: int, rank: int) -> int | None:
    """The axis of a weight operand along which output channels run; None where there is no such axis.

    Source: the ONNX operator definitions: Conv [M, C/g, ...], ConvTranspose [C, M/g, ...], Gemm with transB,
    MatMul [K, N], Gather rows, recurrent [directions, gates·hidden, input].
    """
    op = node.op_type
    if rank == 0:
        return None
    if op in ("ConvTranspose", "QLinearConvTranspose"):
        return 1 if rank > 1 else 0
    if "Conv" in op:
        return 0
    if op in ("Gemm", "FusedGemm", "GemmFloat8", "QGemm"):
        flipped = node.int_attribute("transB" if slot else "transA", 0) == 1
        return (0 if flipped else 1) if slot else (1 if flipped else 0)
    if op in ("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation") and rank > 1:
        flipped = node.int_attribute("transB" if slot else "transA", 0) == 1
        return rank - 2 if flipped == bool(slot) else rank - 1
    if op in ("LSTM", "GRU", "RNN"):
        return 1 if rank > 1 else 0
    if op == "DynamicQuantizeLSTM":  # [directions, input, gates·hidden]
        return rank - 1
    if "Gather" in op or "Embed" in op:
        return 0
    if "MatMul" in op or "Attention" in op:
        if slot == 0 and rank > 1:
            return rank - 2
        return rank - 1
    return 0


def is_weight_slot(node: NodeView, slot: int) -> bool:
    """True where a constant at this slot is a layer's weight."""
    return slot in WEIGHT_SLOTS.get(node.op_type, ())


def is_bias_slot(node: NodeView, slot: int) -> bool:
    """True where a constant at this slot is a layer's bias."""
    return BIAS_SLOTS.get(node.op_type) == slot
