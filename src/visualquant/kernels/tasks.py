"""Boxes of a tensor, worked on by threads, committed in order.

Each task reads its own box and returns a small result; results are committed in the order of the tasks by the
calling thread, so the outcome does not depend on who was faster. Compiled kernels run without the interpreter lock.
"""

from __future__ import annotations

import ctypes
import dataclasses
import mmap
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from visualquant.errors import CancelledError
from visualquant.kernels.layout import Layout
from visualquant.kernels.sources import Box

Result = TypeVar("Result")
MOST_ROWS = 16_384  # of a task, so that its records stay below 5 MB
_AHEAD = 2  # tasks that are read ahead


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A stretch of a read-only file map."""

    address: int
    length: int


def file_region(memory: npt.NDArray[Any]) -> Region | None:
    """Where an array lies in a file map; None unless it is a map that nobody may write to.

    NOTE: dropping pages of private or writable memory would lose data, so both ends of the chain of bases are
    checked: the owner is an mmap object, and the array made from it is not writable.
    """
    if memory.size == 0 or memory.flags.writeable:
        return None
    node: Any = memory
    while not isinstance(node, memoryview | mmap.mmap) and getattr(node, "base", None) is not None:
        if isinstance(node, np.ndarray) and node.flags.writeable:
            return None
        node = node.base
    if isinstance(node, memoryview):
        node = node.obj
    if not isinstance(node, mmap.mmap):
        return None
    return Region(memory.ctypes.data, memory.nbytes)


class Advisor:
    """Tells the system which parts of a file map are wanted next, and which no longer."""

    def __init__(self) -> None:
        self._call: Any = None
        if hasattr(mmap, "MADV_WILLNEED"):
            try:
                # NOTE: through ctypes, because mmap.madvise keeps the interpreter lock while the disk works
                self._call = ctypes.CDLL(None).madvise
                self._call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
            except (OSError, AttributeError):
                self._call = None

    def will_need(self, region: Region | None, start: int, stop: int) -> None:
        """Bytes [start, stop) of the region are wanted soon."""
        self._advise(region, start, stop, getattr(mmap, "MADV_WILLNEED", 0), inwards=False)

    def drop(self, region: Region | None, start: int, stop: int) -> None:
        """Bytes [start, stop) may leave this process; whole pages only."""
        self._advise(region, start, stop, getattr(mmap, "MADV_DONTNEED", 0), inwards=True)

    def _advise(self, region: Region | None, start: int, stop: int, advice: int, inwards: bool) -> None:
        if region is None or self._call is None or stop <= start:
            return
        page = mmap.PAGESIZE
        first = region.address + start
        last = min(region.address + stop, region.address + region.length)
        first = -(-first // page) * page if inwards else first // page * page
        last = last // page * page if inwards else last
        if last > first:
            self._call(first, last - first, advice)


class Meter:
    """Bytes done of all passes together, told to a listener."""

    def __init__(self, total: int, listener: Callable[[int, int], None]) -> None:
        self.total = total
        self.done = 0
        self._listener = listener

    def add(self, count: int) -> None:
        """So many bytes more."""
        self.done = min(self.done + count, self.total)
        self._listener(self.done, self.total)

    def finish(self) -> None:
        """Everything is done, also passes that were not needed."""
        if self.done < self.total:
            self.add(self.total - self.done)


@dataclasses.dataclass(frozen=True, slots=True)
class Control:
    """How to run tasks.

    Attributes:
        threads: worker threads.
        cancel: asked before each task.
        meter: where bytes done are counted, or None.
    """

    threads: int = 1
    cancel: Callable[[], bool] | None = None
    meter: Meter | None = None

    def check(self) -> None:
        """Raises CancelledError where the user stopped the work."""
        if self.cancel is not None and self.cancel():
            raise CancelledError("The work was stopped.")

    @property
    def silent(self) -> Control:
        """The same without progress."""
        return Control(self.threads, self.cancel)


def boxes(layout: Layout, leaf: int, elements: int, whole_rows: bool) -> list[Box]:
    """The boxes of a tensor, in index order: all of one row (or group of rows) before the next.

    Args:
        layout: rows and columns.
        leaf: columns of a leaf; no box cuts one.
        elements: about how many elements a box may have.
        whole_rows: prefer complete rows (and channels) even where a few rows together exceed `elements`.
    """
    rows, columns = layout.rows, layout.columns
    if rows == 0 or columns == 0:
        return []
    inner_is_row = bool(layout.row_axes) and (not layout.column_axes or layout.row_axes[-1] > layout.column_axes[-1])
    least_rows = min(rows, 16) if inner_is_row else 1
    if columns * least_rows <= elements or (whole_rows and columns * least_rows <= 2 * elements):
        count = max(least_rows, min(MOST_ROWS, elements // columns))
        per_channel = layout.rows_per_channel
        if 1 < per_channel <= count:
            count = count // per_channel * per_channel
        return [(r, min(rows, r + count), 0, columns) for r in range(0, rows, count)]
    count = min(rows, 1024) if inner_is_row else 1
    width = max(leaf, elements // count // leaf * leaf)
    return [
        (r, min(rows, r + count), c, min(columns, c + width))
        for r in range(0, rows, count)
        for c in range(0, columns, width)
    ]


def box_bytes(parts: list[Box], bits: int) -> list[int]:
    """Bytes that each box reads, at so many bits an element."""
    return [(b[1] - b[0]) * (b[3] - b[2]) * bits // 8 for b in parts]


def run(
    count: int,
    work: Callable[[int], Result],
    commit: Callable[[int, Result], None],
    control: Control,
    sizes: list[int] | None = None,
) -> None:
    """Does tasks 0…count − 1 and commits their results in order, in the calling thread.

    Args:
        count: number of tasks.
        work: makes the result of a task; called in any thread.
        commit: takes results in order.
        control: threads, cancel, progress.
        sizes: bytes of each task, for progress; None for none.

    Raises:
        CancelledError: `control.cancel` said so; tasks under way are finished first.
    """

    def finish(index: int, result: Result) -> None:
        commit(index, result)
        if control.meter is not None and sizes is not None:
            control.meter.add(sizes[index])

    if control.threads <= 1 or count <= 1:
        for index in range(count):
            control.check()
            finish(index, work(index))
        return
    with ThreadPoolExecutor(control.threads, thread_name_prefix="visualquant") as pool:
        waiting: deque[tuple[int, Future[Result]]] = deque()
        try:
            for index in range(count):
                control.check()
                waiting.append((index, pool.submit(work, index)))
                if len(waiting) > control.threads:
                    first, future = waiting.popleft()
                    finish(first, future.result())
            while waiting:
                control.check()
                first, future = waiting.popleft()
                finish(first, future.result())
        finally:
            for _, future in waiting:
                future.cancel()
