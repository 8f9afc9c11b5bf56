"""Codes of weights that the file keeps in float and quantizes when it runs, by the formula of the standard."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from visualquant.core.quant import QuantParams
from visualquant.core.tensors import ComputedSource, ElementType, TensorRef, pack_bits

Array = npt.NDArray[Any]


def computed(dtype: ElementType, shape: tuple[int, ...], make: Callable[[], Array]) -> TensorRef:
    """A reference to codes that `make` computes (in the numpy dtype of `dtype`) whenever they are read."""

    def packed() -> npt.NDArray[np.uint8]:
        flat = np.ascontiguousarray(make(), dtype.numpy).reshape(-1).view(np.uint8)
        return pack_bits(flat, dtype.bits) if dtype.is_packed else flat

    return TensorRef(dtype, shape, ComputedSource(packed))


def quantize_linear(x: Array, params: QuantParams, precision: ElementType, *, saturate: bool = True) -> Array:
    """Codes of QuantizeLinear: saturate(round_half_even(x / scale) + zero_point).

    The division is done in the type `precision`; NaN becomes 0.
    Source: ONNX QuantizeLinear-24; float codes by rounding to nearest, overflow to the largest finite code or,
    with saturate = 0, to NaN or infinity.
    """
    work = np.float64 if precision.name == "float64" else np.float32
    scale = params.broadcast(params.scale.astype(work), x.shape)
    with np.errstate(all="ignore"):
        ratio = x.astype(work) / scale
        if precision.bits == 16:
            ratio = ratio.astype(precision.numpy).astype(work)
        if params.code_type.is_float:
            return to_float_codes(ratio, params.code_type, saturate=saturate)
        zero = 0 if params.zero_point is None else params.broadcast(params.zero_point.astype(np.int64), x.shape)
        whole = np.nan_to_num(np.rint(ratio.astype(np.float64)), nan=0.0, posinf=2.0**40, neginf=-(2.0**40)) + zero
    codes: Array = np.clip(whole, params.qmin, params.qmax).astype(params.code_type.numpy)
    return codes


def to_float_codes(x: Array, code_type: ElementType, *, saturate: bool = True) -> Array:
    """Float codes nearest to `x` (ties to even)."""
    if code_type.bits >= 16 and code_type.name != "bfloat16":
        return x.astype(code_type.numpy)
    if saturate:
        top = largest_finite(code_type)
        x = np.where(np.isnan(x), x, np.clip(x, -top, top))
    out: Array = x.astype(code_type.numpy)
    return out


@cache
def largest_finite(code_type: ElementType) -> float:
    """The largest finite value of a float type."""
    return float(ml_dtypes.finfo(code_type.numpy).max)  # type: ignore[no-untyped-call]
