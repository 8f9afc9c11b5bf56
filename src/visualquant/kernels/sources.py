"""Where tiles come from: arrays of any strides, tensor references, packed codes, and sources that only read runs.

A source hands out boxes of the layout (rows r0…r1, columns c0…c1), as views where memory already has that shape and
as copies where it has not.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.tensors import ElementType, TensorRef, element_type_of, unpack_bits
from visualquant.errors import InputError
from visualquant.kernels.layout import IndexArray, Layout, layout_of, offsets

Array = npt.NDArray[Any]
Box = tuple[int, int, int, int]


def merged_stride(shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """The one stride with which a C-ordered walk over these axes moves; None where there is no single one."""
    live = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    if not live:
        return 0
    for (_, outer), (n, inner) in itertools.pairwise(live):
        if outer != n * inner:
            return None
    return live[-1][1]


@dataclasses.dataclass(frozen=True, eq=False)
class Strided:
    """A tensor in memory (or in a file map) whose elements lie at regular distances.

    Attributes:
        memory: the elements as a one-dimensional array; positions below count in its elements.
        strides: of the axes of the tensor, in elements; negative for axes that run backwards.
        layout: rows and columns wanted.
    """

    memory: Array
    strides: tuple[int, ...]
    layout: Layout

    @staticmethod
    def of(array: Array, layout: Layout) -> Strided:
        """A view of an array of the shape of the layout.

        Raises:
            ValueError: strides that are no whole elements, or memory that is not aligned.
        """
        array = array.reshape(layout.shape)
        size = array.itemsize
        if any(s % size for s in array.strides) or not array.flags.aligned:
            raise ValueError("strides are no whole elements")
        flipped = array[tuple(slice(None, None, -1) if s < 0 and n > 1 else slice(None) for n, s in _axes(array))]
        distances = tuple(abs(s) // size for s in array.strides)
        reach = sum((n - 1) * s for n, s in zip(array.shape, distances, strict=True)) + 1 if array.size else 0
        memory = np.lib.stride_tricks.as_strided(flipped, (reach,), (size,), writeable=False)
        signs = tuple(-s if whole < 0 and n > 1 else s for (n, whole), s in zip(_axes(array), distances, strict=True))
        return Strided(memory, signs, layout)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return self.memory.dtype

    def _offsets(self, axes: tuple[int, ...], start: int, stop: int) -> IndexArray:
        shape = tuple(self.layout.shape[k] for k in axes)
        strides = tuple(self.strides[k] for k in axes)
        base = sum((n - 1) * -s for n, s in zip(shape, strides, strict=True) if s < 0)
        return offsets(shape, strides, start, stop) + base

    def row_offsets(self, start: int, stop: int) -> IndexArray:
        """Position of the first element of each row."""
        return self._offsets(self.layout.row_axes, start, stop)

    def column_offsets(self, start: int, stop: int) -> IndexArray:
        """Distance of each column from the first one."""
        return self._offsets(self.layout.column_axes, start, stop)

    @functools.cached_property
    def _steps(self) -> tuple[int | None, int | None]:
        """Distance of neighbouring rows, and of neighbouring columns; None where it is not one number."""
        lay = self.layout
        row, column = (
            merged_stride(tuple(lay.shape[k] for k in axes), tuple(self.strides[k] for k in axes))
            for axes in (lay.row_axes, lay.column_axes)
        )
        return row, column

    @property
    def is_contiguous(self) -> bool:
        """Whether rows lie one after another, each without gaps."""
        row, column = self._steps
        return (column == 1 or self.layout.columns == 1) and (self.layout.rows == 1 or row == self.layout.columns)

    @property
    def turn(self) -> int | None:
        """Distance of neighbouring columns where neighbouring rows lie side by side in memory; else None."""
        row, column = self._steps
        return column if row == 1 and column is not None and column > 0 else None

    @property
    def flat(self) -> Strided | None:
        """The same elements in the order of memory, as one row; None where memory has gaps or repeats elements."""
        count = math.prod(self.layout.shape)
        live = sorted((abs(s), n) for n, s in zip(self.layout.shape, self.strides, strict=True) if n != 1)
        step = 1
        for stride, size in live:
            if stride != step:
                return None
            step *= size
        if count == 0 or self.memory.size != count:
            return None
        return Strided(self.memory, (1,), layout_of((count,), (), None, None, (0, 0, 1), True, ()))

    def place(self, row: int, column: int) -> int:
        """Position of one element."""
        return int(self.row_offsets(row, row + 1)[0] + self.column_offsets(column, column + 1)[0])

    def span(self, box: Box) -> tuple[int, int]:
        """First and last + 1 position that a box touches."""
        r0, r1, c0, c1 = box
        if r0 >= r1 or c0 >= c1 or self.memory.size == 0:
            return 0, 0
        lay = self.layout
        if self.is_contiguous:
            return r0 * lay.columns + c0, (r1 - 1) * lay.columns + c1
        rows, columns = self.row_offsets(r0, r1), self.column_offsets(c0, c1)
        return int(rows.min() + columns.min()), int(rows.max() + columns.max()) + 1

    def box(self, box: Box) -> Array:
        """The elements of a box, C-contiguous [rows, columns]: a view where memory has that shape."""
        r0, r1, c0, c1 = box
        if self.is_contiguous and (r1 - r0 == 1 or c1 - c0 == self.layout.columns):
            start = r0 * self.layout.columns + c0
            return self.memory[start : start + (r1 - r0) * (c1 - c0)].reshape(r1 - r0, c1 - c0)
        row, column = self._steps
        if column == 1 and row is not None and row > 0:
            base, size = self.memory[self.place(r0, c0) :], self.memory.itemsize
            return np.lib.stride_tricks.as_strided(base, (r1 - r0, c1 - c0), (row * size, size)).copy()
        from visualquant.kernels.gather import gather, transpose

        words = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[self.memory.itemsize]
        out = np.empty((r1 - r0, c1 - c0), words)
        if out.size and self.turn is not None:
            transpose(self.memory.view(words), self.place(r0, c0), self.turn, out)
        elif out.size:
            gather(self.memory.view(words), self.row_offsets(r0, r1), self.column_offsets(c0, c1), out)
        return out.view(self.memory.dtype)


def _axes(array: Array) -> list[tuple[int, int]]:
    return list(zip(array.shape, array.strides, strict=True))


def c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a C-ordered tensor."""
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """A tensor that can only be read as runs of its C order (a `BlockSource`, 6-bit codes, unaligned data).

    Attributes:
        read: elements [start, stop) of the flattened tensor.
        dtype: of what `read` returns.
        layout: rows and columns wanted.
    """

    read: Any
    dtype: np.dtype[Any]
    layout: Layout

    def span(self, box: Box) -> tuple[int, int]:
        """Nothing to say about memory."""
        del box
        return 0, 0

    @property
    def is_contiguous(self) -> bool:
        """Whether rows are runs, one after another."""
        return self.layout.row_axes + self.layout.column_axes == tuple(range(len(self.layout.shape)))

    def box(self, box: Box) -> Array:
        """The elements of a box, C-contiguous [rows, columns]."""
        r0, r1, c0, c1 = box
        lay = self.layout
        if r0 >= r1 or c0 >= c1:
            return np.empty((r1 - r0, c1 - c0), self.dtype)
        if self.is_contiguous and (r1 - r0 == 1 or c1 - c0 == lay.columns):
            start = r0 * lay.columns + c0
            return self._run(start, start + (r1 - r0) * (c1 - c0)).reshape(r1 - r0, c1 - c0)
        strides = c_strides(lay.shape)
        row_shape, column_shape = ((tuple(lay.shape[k] for k in axes)) for axes in (lay.row_axes, lay.column_axes))
        rows = offsets(row_shape, tuple(strides[k] for k in lay.row_axes), r0, r1)
        columns = offsets(column_shape, tuple(strides[k] for k in lay.column_axes), c0, c1)
        out = np.empty((r1 - r0, c1 - c0), self.dtype)
        along_columns = not lay.row_axes or (bool(lay.column_axes) and lay.column_axes[-1] > lay.row_axes[-1])
        inner, outer = (columns, rows) if along_columns else (rows, columns)
        target = out if along_columns else out.T
        cuts = np.concatenate([[0], np.flatnonzero(np.diff(inner) != 1) + 1, [inner.size]])
        for k, base in enumerate(outer):
            for a, b in itertools.pairwise(cuts):
                target[k, a:b] = self._run(int(base + inner[a]), int(base + inner[b - 1]) + 1)
        return out

    def _run(self, start: int, stop: int) -> Array:
        values = np.ascontiguousarray(self.read(start, stop)).reshape(-1)
        if values.size != stop - start:
            raise InputError(f"a tensor source returned {values.size} elements where {stop - start} were asked for")
        return values.astype(self.dtype, copy=False)


Source = Strided | Runs


def source_of(x: Any, layout: Layout) -> Source:
    """A source of unpacked elements for an array, a tensor reference or a `BlockSource`."""
    if isinstance(x, TensorRef):
        return _of_reference(x, layout)
    if isinstance(x, np.ndarray):
        try:
            return Strided.of(x, layout)
        except ValueError:
            return Strided.of(np.ascontiguousarray(x).copy(), layout)
    probe = np.asarray(x.read(0, min(1, math.prod(layout.shape))))
    return Runs(x.read, np.dtype(np.float32) if probe.dtype == np.float32 else np.dtype(np.float64), layout)


def _of_reference(x: TensorRef, layout: Layout) -> Source:
    raw = x.raw()
    kind = x.dtype
    if kind.is_packed and kind.bits == 6:
        return Runs(lambda a, b: _six_bits(raw, a, b), np.dtype(np.uint8), layout)
    if kind.is_packed:
        raise InputError(f"{kind} tensors are codes, not values")
    if raw.ctypes.data % kind.numpy.itemsize == 0:
        return Strided(raw.view(kind.numpy), c_strides(layout.shape), layout)
    size = kind.numpy.itemsize
    return Runs(lambda a, b: raw[a * size : b * size].copy().view(kind.numpy), kind.numpy, layout)


def _six_bits(raw: npt.NDArray[np.uint8], start: int, stop: int) -> npt.NDArray[np.uint8]:
    first = start // 4 * 4  # NOTE: four elements fill three bytes
    return unpack_bits(raw[first * 6 // 8 : (stop * 6 + 7) // 8], 6, stop - first)[start - first :]


def type_of(x: Any) -> ElementType | None:
    """Element type of an array or reference; None for a `BlockSource`."""
    if isinstance(x, TensorRef):
        return x.dtype
    if isinstance(x, np.ndarray):
        try:
            return element_type_of(x.dtype)
        except KeyError:
            raise InputError(f"arrays of {x.dtype} hold no weights") from None
    return None
