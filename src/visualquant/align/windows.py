"""What part of their input Slice, Split and Gather of one index take: three spellings of one thing."""

from __future__ import annotations

import math

from visualquant.align.folding import small_ints
from visualquant.align.side import Side
from visualquant.core.graph import NodeView
from visualquant.core.trace import static_shape

Window = tuple[int | None, int | None, int | None]
TO_END = 2**62


def windows(side: Side, node: NodeView) -> list[Window] | None:
    """(axis, start, end) of each output of a node that takes one piece along one axis; None for other nodes."""
    if node.op_type == "Split":
        return _split(side, node)
    if node.op_type == "Slice":
        one = _slice(side, node)
        return None if one is None else [one]
    if node.op_type == "Gather":
        return _gather(side, node)
    return None


def _rank_and_sizes(side: Side, node: NodeView) -> tuple[int | None, tuple[object, ...]]:
    value = node.input(0)
    shape = None if value is None else side.graph.values[side.graph.inner(value)].shape
    return (None, ()) if shape is None else (len(shape), shape)


def _axis(side: Side, node: NodeView, axis: int) -> tuple[int, int | None]:
    """The axis counted from the end (−1 is the last) where the rank is known, and its size."""
    rank, sizes = _rank_and_sizes(side, node)
    if rank is None:
        return axis, None
    axis = axis % rank if rank else 0
    size = sizes[axis]
    return axis - rank, size if isinstance(size, int) else None


def _end(end: int, size: int | None) -> int:
    if end >= 2**31 - 1 or (size is not None and end >= size):
        return TO_END
    return end


def _slice(side: Side, node: NodeView) -> Window | None:
    if len(node.inputs) > 1:
        starts, ends = (small_ints(side.folder, node.input(k)) for k in (1, 2))
        axes = small_ints(side.folder, node.input(3)) if node.input(3) is not None else None
        steps = small_ints(side.folder, node.input(4)) if node.input(4) is not None else (1,)
    else:
        starts, ends, axes, steps = (
            node.ints_attribute("starts"),
            node.ints_attribute("ends"),
            node.ints_attribute("axes"),
            (1,),
        )
    if node.input(3) is not None and axes is None:
        return None, None, None
    if steps != (1,) or (starts is not None and len(starts) != 1) or (ends is not None and len(ends) != 1):
        return None
    axis, size = _axis(side, node, axes[0] if axes else 0)
    start = None if starts is None else starts[0]
    end = None if ends is None else _end(ends[0], size)
    if start is not None and start < 0 and size is not None:
        start += size
    if end is not None and end < 0 and size is not None:
        end += size
    return axis, start, end


def _split(side: Side, node: NodeView) -> list[Window] | None:
    axis, size = _axis(side, node, node.int_attribute("axis", 0))
    count = len(node.outputs)
    lengths = small_ints(side.folder, node.input(1)) or node.ints_attribute("split")
    if lengths is None and size is not None:
        each = math.ceil(size / count)
        lengths = tuple(min(each, size - k * each) for k in range(count))
    if lengths is None or len(lengths) != count:
        return [(axis, 0 if k == 0 else None, TO_END if k == count - 1 else None) for k in range(count)]
    out: list[Window] = []
    start = 0
    for k, length in enumerate(lengths):
        out.append((axis, start, TO_END if k == count - 1 else start + length))
        start += length
    return out


def _gather(side: Side, node: NodeView) -> list[Window] | None:
    index = small_ints(side.folder, node.input(1))
    shape = None if node.input(1) is None else side.folder.shape(node.inputs[1])  # type: ignore[arg-type]
    if index is None or len(index) != 1 or shape is None or static_shape(side.graph, node.inputs[0]) == ():  # type: ignore[arg-type]
        return None
    axis, size = _axis(side, node, node.int_attribute("axis", 0))
    start = index[0] + size if index[0] < 0 and size is not None else index[0]
    if start < 0:
        return [(axis, None, TO_END if start == -1 else None)]
    return [(axis, start, _end(start + 1, size))]
