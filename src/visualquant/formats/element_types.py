"""Element types that ONNX does not have: integers of any width, and 4-bit table types."""

from __future__ import annotations

from typing import Literal

import ml_dtypes
import numpy as np

from visualquant.core.tensors import ELEMENT_TYPES, ElementType

NF4 = ElementType("nf4", 4, "float", np.dtype(ml_dtypes.uint4))
FP4_BNB = ElementType("fp4", 4, "float", np.dtype(ml_dtypes.uint4))
"""Table types of bitsandbytes: their codes are read as uint4, their values stand in `QuantParams.table`."""

# Source: QLoRA, appendix E; bitsandbytes, csrc/kernels.cu.
NF4_TABLE = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)
_FP4_HALF = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
FP4_BNB_TABLE = np.array([*_FP4_HALF, *(-x for x in _FP4_HALF)], np.float32)


def integer_type(bits: int, *, signed: bool) -> ElementType:
    """The integer type of any width: ONNX's where there is one, else one like "int3" (see `held_in`)."""
    kind: Literal["int", "uint"] = "int" if signed else "uint"
    if f"{kind}{bits}" in ELEMENT_TYPES:
        return ELEMENT_TYPES[f"{kind}{bits}"]
    return ElementType(f"{kind}{bits}", bits, kind, _wider(kind, bits).numpy)


def held_in(code_type: ElementType) -> ElementType:
    """The type in which codes lie in memory: their own where it is ONNX's, else the next wider integer."""
    if code_type.name in ELEMENT_TYPES:
        return ELEMENT_TYPES[code_type.name]
    return _wider("uint" if code_type.kind == "uint" else "int", code_type.bits)


def _wider(kind: str, bits: int) -> ElementType:
    return ELEMENT_TYPES[f"{kind}{next(w for w in (8, 16, 32, 64) if w >= bits)}"]
