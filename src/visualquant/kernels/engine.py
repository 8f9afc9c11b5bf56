"""One pass over a tensor: boxes, threads, read-ahead, and everything that one read can give."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.stats import Bins
from visualquant.kernels import counting, merge, outlier_rows, statistics
from visualquant.kernels.block_summary import BlockSummaryBuilder
from visualquant.kernels.grid import Histogrammer
from visualquant.kernels.partner import STEPS
from visualquant.kernels.piece import Subject
from visualquant.kernels.records import BAD_Y, HIGH_CODE, LOW_CODE, Records, identity
from visualquant.kernels.sources import Box, Source, Strided
from visualquant.kernels.tasks import Advisor, Control, Region, box_bytes, boxes, file_region, run

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
# Elements of one pass of statistics and histograms together, so that the second finds the first's data in the cache.
_STEP = 1 << 20
_PENDING_BYTES = 64 << 20
# A tensor up to this size stays mapped while it is measured; mapping it again for each pass costs time.
_KEPT_BYTES = 256 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Wants:
    """What one pass is to give.

    Attributes:
        bins: most bins of the histograms, 0 for none.
        partner, errors: histograms of x̂ and of e too.
        codes: count codes.
        outliers: count outliers of channels that fit a box.
        blocks: summarise blocks.
        by_row: keep a record for each row instead of each channel.
        chunk_elements: about how many elements a task takes.
        fast_from: elements from which the float32 kernels are used.
    """

    bins: int = 0
    partner: bool = True
    errors: bool = False
    codes: bool = False
    outliers: bool = False
    blocks: bool = False
    by_row: bool = False
    chunk_elements: int = 4 << 20
    fast_from: int = statistics.FAST_FROM


@dataclasses.dataclass(slots=True, eq=False)
class _Outcome:
    """What a task hands over."""

    records: Records
    blocks: npt.NDArray[Any] | None
    values: Bins | None
    errors: Bins | None
    counts: counting.Counts | None
    outliers: tuple[I64, I64] | None


class Reader:
    """Boxes of a tensor with read-ahead and drop-behind, where the data lies in file maps."""

    _AHEAD = 2

    def __init__(
        self, layout_boxes: list[Box], sources: list[tuple[Source | None, npt.NDArray[Any] | None, int]]
    ) -> None:
        """Takes (source, packed bytes, bits an element) of each tensor that the boxes read."""
        self.boxes = layout_boxes
        self._advisor = Advisor()
        self._parts: list[tuple[Strided, Region, int]] = []
        for source, packed, bits in sources:
            view = source if isinstance(source, Strided) else None
            memory = packed if packed is not None else (view.memory if view is not None else None)
            region = file_region(memory) if memory is not None else None
            if view is not None and region is not None:
                self._parts.append((view, region, bits))

    def before(self, index: int) -> None:
        """Asks for the data of later boxes."""
        first = index + self._AHEAD if index else 0
        for k in range(first, min(index + self._AHEAD + 1, len(self.boxes))):
            for view, region, bits in self._parts:
                start, stop = view.span(self.boxes[k])
                self._advisor.will_need(region, start * bits // 8, (stop * bits + 7) // 8)

    def drop_all(self) -> None:
        """Lets go of everything."""
        for _, region, _ in self._parts:
            self._advisor.drop(region, 0, region.length)

    def after(self, index: int) -> None:
        """Lets go of the data of a box, where the whole is large: small tensors stay until `drop_all`."""
        for view, region, bits in self._parts:
            if region.length <= _KEPT_BYTES:
                continue
            start, stop = view.span(self.boxes[index])
            self._advisor.drop(region, start * bits // 8, (stop * bits + 7) // 8)


def reader_of(subject: Subject, parts: list[Box]) -> Reader:
    """A reader of x and codes."""
    partner = subject.partner
    sources: list[tuple[Source | None, npt.NDArray[Any] | None, int]] = [
        (subject.x, None, subject.x.dtype.itemsize * 8)
    ]
    if partner.packed is not None:
        sources.append((partner.packed_view(), partner.packed, partner.kind.bits))
    elif partner.source is not subject.x and partner.source is not None:
        sources.append((partner.source, None, partner.source.dtype.itemsize * 8))
    return Reader(parts, sources)


class Pass:
    """Reads a tensor once.

    Attributes:
        subject: the tensor and its partner.
        boxes: tasks.
        records: float64 [channels (or rows), FIELDS], merged in index order.
        values, errors: histograms so far.
        code_total: codes of the whole tensor, or None.
        distinct, entropy: of each channel, or None.
        outliers, six: of each channel; −1 in `outliers` where a channel is longer than a box.
        blocks: builder of the block summary, or None.
    """

    def __init__(self, subject: Subject, wants: Wants) -> None:
        lay = subject.layout
        self.subject = subject
        self.wants = wants
        whole = wants.outliers or (wants.codes and lay.channel_axis is not None)
        self.boxes = boxes(lay, subject.leaf, wants.chunk_elements, whole)
        self.fast = statistics.is_fast(subject, wants.fast_from)
        self.per_record = 1 if wants.by_row else lay.rows_per_channel
        self.records = identity(lay.rows if wants.by_row else lay.channels)
        self.values: Bins | None = None
        self.errors: Bins | None = None
        self.code_total: I64 | None = None
        self.distinct: I64 | None = None
        self.entropy: F64 | None = None
        self.pending: I64 | None = None
        self.outliers = np.full(lay.channels, -1, np.int64)
        self.six = np.full(lay.channels, -1, np.int64)
        self.blocks = BlockSummaryBuilder(lay) if wants.blocks else None
        self.counts_codes = wants.codes and counting.can_count(subject)
        if self.counts_codes:
            self.code_total = np.zeros(65_536 if subject.partner.kind.bits == 16 else 256, np.int64)
            self.distinct, self.entropy = np.zeros(lay.channels, np.int64), np.zeros(lay.channels)
        self.reader = reader_of(subject, self.boxes)

    def run(self, control: Control) -> None:
        """Does all tasks."""
        run(len(self.boxes), self._work, self._commit, control, box_bytes(self.boxes, self.subject.bits))
        if self.pending is not None and self.distinct is not None and self.entropy is not None:
            from visualquant.kernels.bins import code_entropy

            code_entropy(self.pending, self.distinct, self.entropy)

    def whole_channels(self, box: Box) -> bool:
        """Whether a box consists of whole channels."""
        lay, per = self.subject.layout, self.subject.layout.rows_per_channel
        complete = box[2] == 0 and box[3] == lay.columns
        return complete and box[0] % per == 0 and (box[1] % per == 0 or box[1] == lay.rows)

    def _work(self, index: int) -> _Outcome:
        self.reader.before(index)
        box, wants = self.boxes[index], self.wants
        piece = self.subject.piece(box, self.fast)
        whole = self.whole_channels(box)
        pen = Histogrammer(wants.bins, wants.partner, wants.errors) if wants.bins else None
        per = self.subject.layout.rows_per_channel
        in_steps = pen is not None and per == 1
        records, blocks, counts = [], [], []
        for _, part in piece.steps(_STEP) if in_steps else ((0, piece),):
            rec, sums = statistics.measure(part)
            records.append(rec)
            if sums is not None:
                blocks.append(sums)
            if self.counts_codes or (pen is not None and self._bins_need_counts()):
                counts.append(counting.count(part, whole, self.counts_codes))
            if pen is not None:
                pen.add(part, rec, counts[-1].rows if counts else None)
        all_records = _joined(records, 0)
        assert all_records is not None
        found = None
        if wants.outliers and whole:
            found = outlier_rows.outliers(piece, all_records[:, :, BAD_Y].sum(axis=1) > 0)
        self.reader.after(index)
        return _Outcome(
            all_records,
            _joined(blocks, 1),
            pen.values.bins() if pen is not None else None,
            pen.errors.bins() if pen is not None and pen.errors is not None else None,
            counting.joined(counts) if self.counts_codes else None,
            found,
        )

    def _bins_need_counts(self) -> bool:
        partner = self.subject.partner
        plain = partner.mode == STEPS and partner.is_narrow and not self.subject.blocked
        return plain and self.wants.partner and self.fast

    def _commit(self, index: int, out: _Outcome) -> None:
        box, lay = self.boxes[index], self.subject.layout
        merge.fold(self.records, out.records, box[0], self.per_record)
        if out.values is not None:
            self.values = out.values if self.values is None else self.values.merge(out.values)
        if out.errors is not None:
            self.errors = out.errors if self.errors is None else self.errors.merge(out.errors)
        if self.blocks is not None and out.blocks is not None:
            self.blocks.add(box, out.blocks)
        first = box[0] // lay.rows_per_channel
        if out.counts is not None:
            self._commit_counts(box, first, out.counts)
        if out.outliers is not None:
            many, six = out.outliers
            self.outliers[first : first + many.size] = many
            self.six[first : first + six.size] = six

    def _commit_counts(self, box: Box, first: int, counts: counting.Counts) -> None:
        lay = self.subject.layout
        assert self.code_total is not None
        self.code_total += counts.total
        if self.distinct is None or self.entropy is None:
            return
        if counts.distinct is not None and counts.entropy is not None:
            self.distinct[first : first + counts.distinct.size] = counts.distinct
            self.entropy[first : first + counts.entropy.size] = counts.entropy
        elif counts.rows is not None and lay.channels * 2048 <= _PENDING_BYTES:
            if self.pending is None:
                self.pending = np.zeros((lay.channels, 256), np.int64)
            channel = np.arange(box[0], box[1]) // lay.rows_per_channel
            np.add.at(self.pending, channel, counts.rows)
        else:
            self.distinct = self.entropy = None

    def extreme_codes(self) -> tuple[float, float]:
        """Lowest and highest code at which elements may clip, over all records."""
        return float(self.records[:, LOW_CODE].min(initial=math.inf)), float(
            self.records[:, HIGH_CODE].max(initial=-math.inf)
        )


def _joined(parts: list[npt.NDArray[Any]], axis: int) -> npt.NDArray[Any] | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis)
