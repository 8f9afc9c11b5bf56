"""How any tensor becomes rows whose elements share a channel, cut into blocks that share a scale.

Every kernel sees one shape: rows of columns, one scale a block of columns. Here the axes of the stored codes are
reordered (never copied) so that this holds: axes that count rows first, then axes that run along a row.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.quant import QuantParams

IndexArray = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Rows and columns of one tensor.

    Attributes:
        shape: of the stored codes.
        row_axes, column_axes: axes that count rows, and axes that run along a row, outermost first.
        channel_axis: the axis that counts channels: the first row axis, or None.
        block: columns that share a scale; `columns` where a whole row does.
        scale_row_step, scale_block_step: the scale of (row, block) is
            flat_scale[row // row_group · scale_row_step + block · scale_block_step].
        row_group: rows that share their scales.
        scale_order: order of the axes of the scale array in `flat_scale`.
        rows: number of rows.
        columns: elements of a row.
        rows_per_channel: consecutive rows that belong to one channel.
        blocks: blocks of a row, the last one perhaps ragged.
        groups_in_rows: each scale group lies within one row, or is one whole tensor or channel, so that clip
            counts of rows merge; otherwise extreme codes of each group have to be known beforehand.
    """

    shape: tuple[int, ...]
    row_axes: tuple[int, ...]
    column_axes: tuple[int, ...]
    channel_axis: int | None
    block: int
    scale_row_step: int
    scale_block_step: int
    row_group: int
    groups_in_rows: bool
    scale_order: tuple[int, ...]
    rows: int
    columns: int
    rows_per_channel: int
    blocks: int

    @property
    def channels(self) -> int:
        """Number of channels; 1 without a channel axis."""
        return 1 if self.channel_axis is None else self.shape[self.channel_axis]

    def flat_scale(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Scales (or zero points) as a flat array in the order that `scale_row_step` speaks of."""
        return np.ascontiguousarray(values.transpose(self.scale_order)).reshape(-1)

    def canonical(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A view of an array of `shape` with its axes in the order of rows and columns."""
        return array.reshape(self.shape).transpose(self.row_axes + self.column_axes)


def plan(shape: tuple[int, ...], channel_axis: int | None, params: QuantParams | None) -> Layout:
    """The layout for codes of `shape`.

    Args:
        shape: of the stored codes; `()` counts as one element.
        channel_axis: axis that counts the channels of the result, or None.
        params: validated against `shape`; None where there are no scales.
    """
    rank = len(shape)
    axes = tuple(range(rank))
    axis = None if params is None or rank == 0 else params.axis
    block = None if params is None or axis is None else params.block_size
    channel = None if rank == 0 else channel_axis
    if axis is None:
        rows = () if channel is None else (channel,)
        return layout_of(shape, rows, channel, None, (0, 0, 1), True, _all(params))
    if block is None:
        if channel is None or channel == axis:
            return layout_of(shape, (axis,), channel, None, (1, 0, 1), True, (0,))
        columns = (axis, *(k for k in axes if k not in (channel, axis)))
        inner = math.prod(shape[k] for k in columns[1:])
        return layout_of(shape, (channel,), channel, inner, (0, 1, 1), False, (0,), columns)
    others = tuple(k for k in axes if k != axis)
    if channel == axis:
        columns = others
        count = math.prod(shape[k] for k in others)
        return layout_of(shape, (axis,), channel, 1, (count, 1, block), False, (axis, *others), columns)
    if channel is not None:
        others = (channel, *(k for k in others if k != channel))
    blocks = -(-shape[axis] // block)
    return layout_of(shape, others, channel, min(block, max(1, shape[axis])), (blocks, 1, 1), True, (*others, axis))


def _all(params: QuantParams | None) -> tuple[int, ...]:
    return () if params is None else tuple(range(params.scale.ndim))


def layout_of(
    shape: tuple[int, ...],
    rows: tuple[int, ...],
    channel: int | None,
    block: int | None,
    steps: tuple[int, int, int],
    groups_in_rows: bool,
    scale_order: tuple[int, ...],
    columns: tuple[int, ...] | None = None,
) -> Layout:
    """A layout of these row axes; columns are the other axes unless given; one block a row unless given."""
    if columns is None:
        columns = tuple(k for k in range(len(shape)) if k not in rows)
    count, length = (math.prod(shape[k] for k in axes) for axes in (rows, columns))
    block = max(1, length if block is None else block)
    return Layout(
        shape=shape,
        row_axes=rows,
        column_axes=columns,
        channel_axis=channel,
        block=block,
        scale_row_step=steps[0],
        scale_block_step=steps[1],
        row_group=steps[2],
        groups_in_rows=groups_in_rows,
        scale_order=scale_order,
        rows=count,
        columns=length,
        rows_per_channel=max(1, count) if channel is None else math.prod(shape[k] for k in rows[1:]),
        blocks=-(-length // block),
    )


def offsets(shape: tuple[int, ...], strides: tuple[int, ...], start: int, stop: int) -> IndexArray:
    """Element offsets of positions [start, stop) of a C-ordered walk over axes with these strides, int64."""
    index = np.arange(start, stop, dtype=np.int64)
    out = np.zeros(index.shape, np.int64)
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 0:
            out += (index % size) * stride
            index = index // size
    return out
