"""What operators mean: formulas of composed ones, and the parts of fused ones. Data, no code."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Formula:
    """An operator that exporters may spell out in arithmetic.

    Attributes:
        family: the operator family.
        trigger: the operator to look for first; the formula's result lies behind it.
        text: see `algebra`; x, y, z are data, w and b constant tensors, c any constant scalar.
    """

    family: str
    trigger: str
    text: str


_CENTERED = "(x - ReduceMean(x))"
_NORMED = f"{_CENTERED} * (ReduceMean({_CENTERED} ** 2) + c) ** -0.5"
_SPREAD = "(x - ReduceMean(x)) * (ReduceMean(x ** 2) - ReduceMean(x) ** 2 + c) ** -0.5"
_SQUARED = "(ReduceMean(x ** 2) + c) ** -0.5"

# NOTE: the larger formula stands first where one contains another.
FORMULAS: tuple[Formula, ...] = (
    Formula("Gelu", "Erf", "x * 0.5 * (1 + Erf(x * 0.70710678))"),
    Formula("Gelu", "Tanh", "x * 0.5 * (1 + Tanh(0.79788456 * (x + 0.044715 * x ** 3)))"),
    Formula("Gelu", "Tanh", "x * 0.5 * (1 + Tanh(0.79788456 * x * (1 + 0.044715 * x ** 2)))"),
    Formula("Gelu", "Tanh", "x * 0.5 * (1 + Tanh(x * (0.79788456 + 0.0356774 * x ** 2)))"),
    Formula("Swish", "Sigmoid", "x * Sigmoid(1.702 * x)"),
    Formula("Swish", "Sigmoid", "x * Sigmoid(x)"),
    Formula("Mish", "Softplus", "x * Tanh(Softplus(x))"),
    Formula("HardSwish", "HardSigmoid", "x * HardSigmoid(x)"),
    Formula("HardSwish", "Clip", "x * 0.16666667 * Clip(x + 3)"),
    Formula("HardSwish", "Add", "x * 0.16666667 * (x + 3)"),  # a quantizer's range stands in for the Clip
    Formula("LayerNormalization", "ReduceMean", f"{_NORMED} * w + b"),
    Formula("LayerNormalization", "ReduceMean", f"{_NORMED} * w"),
    Formula("LayerNormalization", "ReduceMean", f"{_NORMED} + b"),
    Formula("LayerNormalization", "ReduceMean", _NORMED),
    Formula("GroupNormalization", "ReduceMean", f"{_SPREAD} * w + b"),
    Formula("GroupNormalization", "ReduceMean", _SPREAD),
    Formula("RMSNormalization", "ReduceMean", f"x * {_SQUARED} * w"),
    Formula("RMSNormalization", "ReduceMean", f"x * {_SQUARED}"),
    Formula("Softmax", "ReduceSum", "Exp(x - ReduceMax(x)) / ReduceSum(Exp(x - ReduceMax(x)))"),
    Formula("Softmax", "ReduceSum", "Exp(x) / ReduceSum(Exp(x))"),
    Formula("Sub", "Neg", "Add(x, Neg(y))"),
    Formula("Sub", "Neg", "Add(Neg(y), x)"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """One step of a fused operator.

    Attributes:
        family: the operator family; "=activation" takes it from the attribute `activation`.
        slots: inputs of the fused node that this step reads, data and constants; -1 is the step before, or input 0
            where there is none.
        output: output of the fused node that holds this step's result, where one does.
        swaps: inputs 0 and 1 of the fused node may change places so that this step follows a layer with weights
            (the bias of a fused residual is the bias of the layer in front, whichever input that is).
    """

    family: str
    slots: tuple[int, ...]
    output: int | None = None
    swaps: bool = False


FUSED: dict[str, tuple[Part, ...]] = {
    "SkipLayerNormalization": (
        Part("Add", (0, 4), swaps=True),
        Part("Add", (-1, 1), 3),
        Part("LayerNormalization", (-1, 2, 3), 0),
    ),
    "SkipSimplifiedLayerNormalization": (
        Part("Add", (0, 3), swaps=True),
        Part("Add", (-1, 1), 3),
        Part("RMSNormalization", (-1, 2), 0),
    ),
    "BiasGelu": (Part("Add", (0, 1)), Part("Gelu", (-1,), 0)),
    "FastGelu": (Part("Add", (0, 1)), Part("Gelu", (-1,), 0)),
    "BiasAdd": (Part("Add", (0, 1)), Part("Add", (-1, 2), 0)),
    "SkipGroupNorm": (Part("Add", (0, 3)), Part("Add", (-1, 4), 1), Part("GroupNormalization", (-1, 1, 2), 0)),
    "FusedConv": (Part("Conv", (0, 1, 2)), Part("Add", (-1, 3)), Part("=activation", (-1,), 0)),
    "FusedGemm": (Part("MatMul", (0, 1, 2)), Part("=activation", (-1,), 0)),
    "FusedMatMulActivation": (Part("MatMul", (0, 1)), Part("=activation", (-1,), 0)),
    "GemmFastGelu": (Part("MatMul", (0, 1, 2)), Part("Gelu", (-1,), 0)),
    "QuickGelu": (Part("Swish", (0,), 0),),
}
"""Steps of fused operators. An Add whose second input is not there is left out, so is an activation that is not set."""

FOLDS_AFTER = frozenset({"BatchNormalization", "Add"})
"""Operators with constants that a toolchain folds into the layer with weights in front of them."""

FOLDS_BEFORE: dict[str, tuple[str, ...]] = {"Pad": ("Conv",)}
"""Operators that a toolchain folds into the layer behind them."""

NAMED_FUSIONS: dict[str, str] = {
    "LayerNormalization": "LayerNormalization",
    "SkipLayerNormalization": "SkipLayerNormalization",
    "EmbedLayerNormalization": "EmbedLayerNormalization",
    "SimplifiedLayerNormalization": "RMSNormalization",
    "RMSNormalization": "RMSNormalization",
    "SkipSimplifiedLayerNormalization": "SkipRMSNormalization",
    "GroupNormalization": "GroupNormalization",
    "InstanceNormalization": "InstanceNormalization",
    "SkipGroupNorm": "SkipGroupNorm",
    "Gelu": "Gelu",
    "BiasGelu": "BiasGelu",
    "FastGelu": "FastGelu",
    "QuickGelu": "QuickGelu",
    "Swish": "Sigmoid+Mul",
    "Mish": "Softplus+Tanh+Mul",
    "HardSwish": "HardSwish",
    "Softmax": "Softmax",
    "Attention": "Attention",
    "QAttention": "Attention",
    "MultiHeadAttention": "MultiHeadAttention",
    "GroupQueryAttention": "GroupQueryAttention",
    "PackedMultiHeadAttention": "MultiHeadAttention",
    "RotaryEmbedding": "RotaryEmbedding",
    "MatMulNBitsMlp": "MatMulNBitsMlp",
    "MatMulNBitsQkv": "MatMulNBitsQkv",
    "QMoE": "MoE",
    "MoE": "MoE",
}
"""Pattern names by the operator (or composed family) that stands for the whole."""
