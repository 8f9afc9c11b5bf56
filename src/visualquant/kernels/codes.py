"""Codes of activations and back, as the runtime computes them: one pass, float32 throughout."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.kernels._jit import f32, f64, i32, kernel, read, write

Array = npt.NDArray[Any]


def to_codes(x: Array, scale: Array, zero_point: Array, limits: tuple[int, int]) -> npt.NDArray[np.int32]:
    """saturate(round_half_even(x / scale) + zero_point) in float32; NaN becomes code 0.

    Args:
        x: float values, any shape.
        scale: broadcast to x: of one element, or as many as one axis has, all other axes of length 1.
        zero_point: the same shape.
        limits: lowest and highest code.
    """
    if not x.size:
        return np.empty(x.shape, np.int32)
    scale, zero_point = _spread(scale, x), _spread(zero_point, x)
    shape = _runs(x, scale)
    values = np.ascontiguousarray(x, np.float64 if x.dtype == np.float64 else np.float32).reshape(shape)
    out = np.empty(shape, np.int32)
    _quantize(values, _flat(scale, np.float32), _flat(zero_point, np.float32), np.array(limits, np.float64), out)
    return out.reshape(x.shape)


def from_codes(codes: Array, scale: Array, zero_point: Array) -> npt.NDArray[np.float32]:
    """(code − zero_point)·scale in float32, the subtraction in int32.

    Args:
        codes: integers, any shape.
        scale: as in `to_codes`.
        zero_point: the same shape, int32.
    """
    if not codes.size:
        return np.empty(codes.shape, np.float32)
    scale, zero_point = _spread(scale, codes), _spread(zero_point, codes)
    shape = _runs(codes, scale)
    out = np.empty(shape, np.float32)
    values = np.ascontiguousarray(codes, np.int32).reshape(shape)
    _dequantize(values, _flat(scale, np.float32), _flat(zero_point, np.int32), out)
    return out.reshape(codes.shape)


def _flat(parameter: Array, dtype: npt.DTypeLike) -> Array:
    return np.ascontiguousarray(parameter, dtype).reshape(-1)


def _runs(x: Array, scale: Array) -> tuple[int, int, int]:
    """(outer, channels, inner): x seen along the one axis on which the scale varies, element by element if several."""
    if scale.size <= 1:
        return 1, 1, x.size
    if scale.size == x.size:
        return 1, x.size, 1
    axis = x.ndim - scale.ndim + int(np.argmax(scale.shape))
    inner = int(np.prod(x.shape[axis + 1 :], dtype=np.int64))
    return x.size // max(scale.size * inner, 1), scale.size, inner


def _spread(parameter: Array, x: Array) -> Array:
    """A parameter that varies along several axes (blocks) for every element; others as they are."""
    several = parameter.size > 1 and parameter.size != max(parameter.shape)
    return np.broadcast_to(parameter, x.shape) if several else parameter


@kernel(*((read(t, 3), read(f32), read(f32), read(f64), write(i32, 3)) for t in (f32, f64)), strict=True)
def _quantize(x: Any, scale: Any, zero_point: Any, limits: Any, out: Any) -> None:
    low, high = f32(limits[0]), f32(limits[1])
    for o in range(x.shape[0]):
        for c in range(x.shape[1]):
            step, zero = scale[c], zero_point[c]
            for i in range(x.shape[2]):
                code = np.rint(f32(x[o, c, i]) / step) + zero
                code = low if code < low else high if code > high else code
                out[o, c, i] = i32(code) if code == code else i32(0)


@kernel((read(i32, 3), read(f32), read(i32), write(f32, 3)), strict=True)
def _dequantize(codes: Any, scale: Any, zero_point: Any, out: Any) -> None:
    for o in range(codes.shape[0]):
        for c in range(codes.shape[1]):
            step, zero = scale[c], zero_point[c]
            for i in range(codes.shape[2]):
                out[o, c, i] = f32(codes[o, c, i] - zero) * step
