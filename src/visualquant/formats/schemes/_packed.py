"""Codes packed into bytes by a vendor's operator, seen as tensors of their real element type."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.graph import GraphView, ValueId
from visualquant.core.tensors import ELEMENT_TYPES, TensorRef
from visualquant.formats.schemes._quantize import computed
from visualquant.formats.schemes._sites import origin_of

Array = npt.NDArray[Any]


def stored_bytes(graph: GraphView, value: ValueId | None) -> tuple[ValueId, TensorRef] | None:
    """The stored tensor whose bytes an input reads, in the shape that the input has.

    Reshape and the like in between do not move bytes: an embedding and a head may share one blob.
    """
    origin = origin_of(graph, value)
    if origin is None or any(step.kind != "reshape" for step in origin.steps):
        return None
    return origin.value, dataclasses.replace(origin.stored, shape=origin.shape)


def packed_codes(stored: TensorRef, bits: int, shape: tuple[int, ...]) -> TensorRef | None:
    """Unsigned codes of `bits` bits in `shape`, first element in the lowest bits; None where the bytes do not suffice.

    2, 4 and 8 bits are the same bytes under another type; other widths are one bit stream, unpacked when read.
    """
    if bits * math.prod(shape) > stored.nbytes * 8:
        return None
    if bits in (2, 4, 8):
        return dataclasses.replace(stored, dtype=ELEMENT_TYPES[f"uint{bits}"], shape=shape)
    count = math.prod(shape)
    return computed(ELEMENT_TYPES["uint8"], shape, lambda: unpack_stream(stored.raw(), bits, count))


def unpack_stream(data: npt.NDArray[np.uint8], bits: int, count: int) -> npt.NDArray[np.uint8]:
    """`count` codes from a little-endian bit stream along the last axis, uint8 [..., count]."""
    stream = np.unpackbits(data, axis=-1, bitorder="little")[..., : count * bits]
    grouped = stream.reshape(*data.shape[:-1], count, bits)
    weights = (1 << np.arange(bits)).astype(np.uint8)
    out: npt.NDArray[np.uint8] = (grouped * weights).sum(axis=-1, dtype=np.uint8)
    return out


def unpack_rows(data: npt.NDArray[np.uint8], bits: int, rows: tuple[int, ...], count: int) -> Array | None:
    """Zero points packed row by row, each padded to whole bytes: uint8 [*rows, count]; None where they do not fit."""
    width = -(-count * bits // 8)
    if data.size != math.prod(rows) * width:
        return None
    return unpack_stream(np.ascontiguousarray(data).reshape(*rows, width), bits, count)
