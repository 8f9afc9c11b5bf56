"""One box of a tensor with everything that kernels want to know about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.kernels.layout import Layout
from visualquant.kernels.partner import VALUES, Partner, Tile, as_float32
from visualquant.kernels.sources import Box, Source

F64 = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A tensor and what it is held against.

    Attributes:
        layout: rows and columns.
        x: the float tensor.
        x_fits_float32: whether its values are float32 or narrower.
        partner: codes or values; x itself where there is nothing else.
        scale: flat, in the order of `layout.flat_scale`.
        zero: the same, or None where every zero point is 0.
        blocked: there is a scale for each block of a row, so clip counts settle within a block.
        forced: lowest and highest code by scale, flat [2, scales], where scale groups cross rows; else None.
        leaf: columns of a record.
    """

    layout: Layout
    x: Source
    x_fits_float32: bool
    partner: Partner
    scale: F64
    zero: F64 | None
    blocked: bool
    forced: F64 | None
    leaf: int

    @property
    def bits(self) -> int:
        """Bits read for each element."""
        own = self.x.dtype.itemsize * 8
        return own if self.partner.source is self.x else own + self.partner.kind.bits

    def by_block(self, box: Box, flat: F64) -> F64:
        """Values of the blocks of a box, float64 [rows, blocks], from the flat order of scales."""
        r0, r1, c0, c1 = box
        lay = self.layout
        first, last = c0 // lay.block, -(-c1 // lay.block)
        if lay.row_group == 1 and lay.scale_block_step == 1 and lay.scale_row_step == lay.blocks:
            return np.ascontiguousarray(flat.reshape(lay.rows, lay.blocks)[r0:r1, first:last])
        rows = np.arange(r0, r1) // lay.row_group * lay.scale_row_step
        columns = np.arange(first, last) * lay.scale_block_step
        return np.ascontiguousarray(flat[rows[:, None] + columns[None, :]])

    def piece(self, box: Box, fast: bool) -> Piece:
        """A box, read."""
        part = self.x.box(box)
        scale = self.by_block(box, self.scale)
        zero = None if self.zero is None else self.by_block(box, self.zero)
        x32 = as_float32(part) if fast else None
        return Piece(self, box, part, x32, self.partner.tile(box) if fast else None, scale, zero)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Rows of a box.

    Attributes:
        subject: the tensor.
        box: which part of it.
        x: as stored, C-contiguous [rows, columns].
        x32: the same in float32, where the fast kernels are used.
        tile: the partner for the fast kernels.
        scale: float64 [rows, blocks of the box].
        zero: the same, or None where every zero point is 0.
    """

    subject: Subject
    box: Box
    x: npt.NDArray[Any]
    x32: npt.NDArray[np.float32] | None
    tile: Tile | None
    scale: F64
    zero: F64 | None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.x.shape[0], self.x.shape[1]

    @property
    def zeros(self) -> F64:
        """Zero points, float64 [rows, blocks of the box]."""
        return np.zeros(self.scale.shape) if self.zero is None else self.zero

    @property
    def shifted_zeros(self) -> F64:
        """Zero points as they belong to the codes of `tile`."""
        return self.zeros - self.subject.partner.code_shift

    def x64(self) -> F64:
        """X in float64."""
        return self.x.astype(np.float64)

    def partner64(self) -> F64:
        """Integer codes or values in float64."""
        return self.subject.partner.wide(self.box)

    def rows(self, start: int, stop: int) -> Piece:
        """Some of the rows."""
        r0, _, c0, c1 = self.box
        tile = self.tile
        if tile is not None and tile.bits == VALUES:
            tile = dataclasses.replace(tile, values=tile.values[start:stop])
        elif tile is not None:
            tile = dataclasses.replace(tile, first=tile.first + start * (c1 - c0))
        return Piece(
            self.subject,
            (r0 + start, r0 + stop, c0, c1),
            self.x[start:stop],
            None if self.x32 is None else self.x32[start:stop],
            tile,
            self.scale[start:stop],
            None if self.zero is None else self.zero[start:stop],
        )

    def steps(self, elements: int) -> Iterator[tuple[int, Piece]]:
        """(first row, rows) of about this many elements each."""
        count, columns = self.shape
        step = max(1, elements // max(1, columns))
        if step >= count:
            yield 0, self
            return
        for start in range(0, count, step):
            yield start, self.rows(start, min(count, start + step))


def stretches(indices: npt.NDArray[np.int64], most: int) -> list[tuple[int, int]]:
    """Runs of neighbouring indices, none longer than `most`."""
    out = []
    for run in np.split(indices, np.flatnonzero(np.diff(indices) != 1) + 1):
        for start in range(int(run[0]), int(run[-1]) + 1, most):
            out.append((start, min(int(run[-1]) + 1, start + most)))
    return out
