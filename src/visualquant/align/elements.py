"""Single elements of stored tensors and of views of them, without reading the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.quant import QuantParams, ViewStep
from visualquant.core.tensors import FileSource, InlineSource, TensorRef
from visualquant.kernels.api import release

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
Shape = tuple[int, ...]
_LARGE_BYTES = 1 << 20


def take(ref: TensorRef, index: Index) -> npt.NDArray[Any]:
    """The elements of a stored tensor at flat positions; 2 and 4 bits are picked out of their bytes."""
    picked = _picked(ref, index)
    if ref.nbytes >= _LARGE_BYTES:
        # NOTE: each element brings its page and the pages around it; over a large model that is nearly the whole file
        release(ref)
    return picked


def is_plain(ref: TensorRef) -> bool:
    """Whether the elements of a tensor are a small array as stored, which costs nothing to keep."""
    return isinstance(ref.source, FileSource | InlineSource) and ref.dtype.bits >= 8 and ref.nbytes < _LARGE_BYTES


def _picked(ref: TensorRef, index: Index) -> npt.NDArray[Any]:
    dtype = ref.dtype
    if dtype.bits not in (2, 4) or not dtype.is_integer:
        return ref.array().reshape(-1)[index]
    per_byte = 8 // dtype.bits
    mask = (1 << dtype.bits) - 1
    codes = (ref.raw()[index // per_byte].astype(np.int16) >> ((index % per_byte) * dtype.bits).astype(np.int16)) & mask
    if dtype.kind == "int":
        sign = 1 << (dtype.bits - 1)
        codes = (codes ^ sign) - sign
    return codes


def shapes_along(steps: Sequence[ViewStep], source: Shape) -> list[Shape]:
    """The shape before the first step, and after each."""
    shapes = [source]
    for step in steps:
        shape = shapes[-1]
        if step.kind == "transpose":
            shapes.append(tuple(shape[k] for k in step.args))
        elif step.kind == "reshape":
            shapes.append(step.args)
        else:
            axis, start, stop = step.args
            size = len(range(*slice(start, stop).indices(shape[axis])))
            shapes.append((*shape[:axis], size, *shape[axis + 1 :]))
    return shapes


def behind(steps: Sequence[ViewStep], source: Shape, index: Index) -> Index:
    """Flat positions in the source of flat positions in what stands behind the steps."""
    shapes = shapes_along(steps, source)
    for step, before, after in zip(reversed(steps), reversed(shapes[:-1]), reversed(shapes[1:]), strict=True):
        if step.kind == "reshape":
            continue
        coordinates = list(np.unravel_index(index, after))
        if step.kind == "transpose":
            back: list[Any] = [None] * len(before)
            for k, axis in enumerate(step.args):
                back[axis] = coordinates[k]
            coordinates = back
        else:
            axis, start, stop = step.args
            coordinates[axis] = coordinates[axis] + slice(start, stop).indices(before[axis])[0]
        index = ravel(coordinates, before, index)
    return index


def dequantized(params: QuantParams, codes: TensorRef, index: Index) -> Floats:
    """x̂ of stored codes at flat positions (see `QuantParams.dequantize`)."""
    code = take(codes, index)
    if params.table is not None:
        value = params.table.astype(np.float64)[code.astype(np.int64) % params.table.size]
    else:
        value = code.astype(np.float64)
    where: tuple[Any, ...] = ()
    if params.axis is not None:
        coordinates = np.unravel_index(index, codes.shape)
        if params.block_size is None:
            where = (coordinates[params.axis],)
        else:
            where = tuple(c // params.block_size if k == params.axis else c for k, c in enumerate(coordinates))
    with np.errstate(all="ignore"):
        if params.zero_point is not None:
            value = value - params.zero_point[where].astype(np.float64)
        out: Floats = value * params.scale[where]
    return out


def ravel(coordinates: Sequence[Any], shape: Shape, like: Index) -> Index:
    """Flat positions of coordinates; zeros of the form of `like` for a scalar."""
    flat = np.zeros(like.shape, np.int64)
    for coordinate, size in zip(coordinates, shape, strict=True):
        flat = flat * size + coordinate
    return flat


def broadcast_back(index: Index, shape: Shape, source: Shape) -> Index:
    """Flat positions in `source` of flat positions in the shape that it is broadcast to."""
    if source == shape:
        return index
    if math.prod(source) == 1:
        return np.zeros(index.shape, np.int64)
    coordinates = np.unravel_index(index, shape)[len(shape) - len(source) :]
    return ravel([c if n > 1 else np.zeros_like(c) for c, n in zip(coordinates, source, strict=True)], source, index)


def finite(values: Floats) -> Floats:
    """The values, with 0 in place of NaN and infinity."""
    return values if np.isfinite(values).all() else np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


@lru_cache(maxsize=4096)
def spread(size: int, count: int) -> Index:
    """At most `count` evenly spread positions of `size`, the first and the last among them; read-only."""
    index = np.unique(np.linspace(0, max(size - 1, 0), min(size, count)).astype(np.int64))
    index.flags.writeable = False
    return index
