"""One real number on its way through a quantizer: x, x / scale, rounded, clipped, code, x̂, error."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.quant import QuantParams, code_limits
from visualquant.core.walk import Role, Walk

Array = npt.NDArray[Any]


def worst_index(x: Array, dequantized: Array) -> tuple[int, ...]:
    """Where the finite error is largest; the first element where none is finite."""
    with np.errstate(all="ignore"):
        error = np.abs(x.astype(np.float64) - dequantized)
    return tuple(int(k) for k in np.unravel_index(int(np.argmax(np.nan_to_num(error, posinf=0.0))), x.shape))


def walk(
    x: Array,
    params: QuantParams,
    codes: Array | None,
    index: tuple[int, ...] | None,
    *,
    value: str,
    float_value: str,
    role: Role,
) -> Walk:
    """The walk of one element; of the one with the largest error where no index is given.

    Args:
        x: float values in the layout of the codes.
        params: how values become codes.
        codes: stored codes; None for activations.
        index: of the element.
        value: name in the quantized model.
        float_value: name in the float model.
        role: what the tensor is.

    Raises:
        IndexError: the index lies outside.
    """
    scales = np.broadcast_to(params.broadcast(params.scale, x.shape), x.shape)
    given = np.zeros(()) if params.zero_point is None else params.zero_point.astype(np.float64)
    zeros = np.broadcast_to(params.broadcast(given, x.shape), x.shape)
    limits = code_limits(params)
    expected = None
    with np.errstate(all="ignore"):
        if limits is not None and params.table is None:
            expected = np.clip(np.rint(x.astype(np.float64) / scales) + zeros, *limits)
    stored = expected if codes is None else codes
    if stored is None:
        raise ValueError("codes of a table can't be made from values here")
    hat = params.dequantize(np.nan_to_num(stored).astype(np.int64) if codes is None else codes)
    at = worst_index(x, hat) if index is None else index
    if len(at) != x.ndim or any(not -n <= k < n for k, n in zip(at, x.shape, strict=True)):
        raise IndexError(f"index {list(at)} lies outside shape {list(x.shape)}")
    at = tuple(k % n for k, n in zip(at, x.shape, strict=True))
    number, scale, zero = float(x[at]), float(scales[at]), float(zeros[at])
    with np.errstate(all="ignore"):
        divided = float(np.float64(number) / np.float64(scale))
    return Walk(
        value=value,
        float_value=float_value,
        role=role,
        index=at,
        shape=x.shape,
        code_type=params.code_type.name,
        granularity=params.granularity,
        scale=scale,
        zero_point=zero,
        channel=None if params.axis is None else at[params.axis],
        x=number,
        divided=divided,
        rounded=None if expected is None else float(np.rint(divided)),
        shifted=None if expected is None else float(np.rint(divided)) + zero,
        limits=limits,
        expected=None if expected is None else float(expected[at]),
        code=None if codes is None else float(codes[at]),
        dequantized=float(hat[at]),
        error=number - float(hat[at]),
    )
