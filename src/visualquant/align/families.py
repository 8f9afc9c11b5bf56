"""What kind of operator a node is, whatever dialect it is written in."""

from __future__ import annotations

from functools import cache

QUANTIZERS = frozenset(
    {
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "Quant",
        "BipolarQuant",
        "IntQuant",
        "FloatQuant",
        "Trunc",
        "FakeQuantize",
        "ExtendedQuantizeLinear",
        "ExtendedDequantizeLinear",
        "BFPQuantizeDequantize",
        "MXQuantizeDequantize",
        "TRT_FP8QuantizeLinear",
        "TRT_FP8DequantizeLinear",
        "TRT_INT4QuantizeLinear",
        "TRT_INT4DequantizeLinear",
    }
)
"""Operators that turn values into codes, codes into values, or both."""

QUIET = frozenset({"Identity", "Cast", "CastLike", "Dropout", "ReorderInput", "ReorderOutput"})
"""Operators that leave every element what and (for a reader of values) where it was."""

MOVE = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"})
"""Operators that only move elements; they are matched with each other, never with arithmetic."""

ACTIVATIONS = frozenset(
    {
        "Relu",
        "Clip",
        "LeakyRelu",
        "PRelu",
        "Elu",
        "Selu",
        "Celu",
        "ThresholdedRelu",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Mish",
        "Softplus",
        "Softsign",
        "Tanh",
        "Gelu",
        "FastGelu",
        "QuickGelu",
        "BiasGelu",
        "BatchNormalization",
        "Pad",
    }
)
"""Unary operators that toolchains fold into the operator in front of them."""

COMMUTATIVE = frozenset({"Add", "Mul", "Sum", "Max", "Min", "Mean", "And", "Or", "Xor", "Equal"})

LINEAR = frozenset({"Conv", "ConvTranspose", "MatMul"})

_FAMILY = {
    "ConvInteger": "Conv",
    "NhwcConv": "Conv",
    "NhwcFusedConv": "Conv",
    "Gemm": "MatMul",
    "MatMulInteger": "MatMul",
    "MatMulInteger16": "MatMul",
    "MatMulIntegerToFloat": "MatMul",
    "MatMulNBits": "MatMul",
    "MatMulBnb4": "MatMul",
    "MatMulFpQ4": "MatMul",
    "DynamicQuantizeMatMul": "MatMul",
    "TransposeMatMul": "MatMul",
    "FusedMatMul": "MatMul",
    "FusedMatMulActivation": "MatMul",
    "GemmFastGelu": "MatMul",
    "QGemm": "MatMul",
    "SparseToDenseMatMul": "MatMul",
    "DynamicQuantizeLSTM": "LSTM",
    "QAttention": "Attention",
    "QOrderedAttention": "Attention",
    "GatherBlockQuantized": "Gather",
    "QEmbedLayerNormalization": "EmbedLayerNormalization",
    "SimplifiedLayerNormalization": "RMSNormalization",
    "SkipSimplifiedLayerNormalization": "SkipRMSNormalization",
    "FastGelu": "Gelu",
    "QuickGelu": "Swish",
    "Silu": "Swish",
    "BitmaskDropout": "Dropout",
}


@cache
def family(op_type: str) -> str:
    """The operator that a dialect's name stands for: QLinearConv, FusedConv and ConvInteger are all Conv."""
    name = _FAMILY.get(op_type, op_type)
    for prefix in ("QLinear", "Fused"):
        if name.startswith(prefix) and len(name) > len(prefix):
            name = name[len(prefix) :]
    return _FAMILY.get(name, name)


def is_quiet(op_type: str) -> bool:
    """True for Q/DQ, casts and the like: a reader of values may look through them."""
    return op_type in QUANTIZERS or op_type in QUIET
