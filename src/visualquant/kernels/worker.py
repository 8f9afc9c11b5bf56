"""What is measured on one box: records, block sums, histograms, codes, outliers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.stats import Bins
from visualquant.kernels import bins as bin_kernels
from visualquant.kernels import blocks32, float64, ranks, rows32
from visualquant.kernels._jit import HAS_FMA
from visualquant.kernels.grid import Grid
from visualquant.kernels.layout import Layout
from visualquant.kernels.partner import STEPS, VALUES, Partner, Tile, as_float32
from visualquant.kernels.records import (
    BAD_X,
    BAD_Y,
    CODE_MAX,
    CODE_MIN,
    E_MAX,
    E_SQ,
    FIELDS,
    HIGH_CODE,
    LOW_CODE,
    REDO,
    X_MAX,
    X_MIN,
    X_SQ,
    Y_MAX,
    Y_MIN,
    Records,
)
from visualquant.kernels.sources import Box, Source

# Tensors below this many elements are measured in float64 throughout: speed does not matter there.
FAST_FROM = 65_536
# Rows of one pass of statistics and histograms together, so that the second finds the first's data in the cache.
STEP_ELEMENTS = 262_144
COUNTED_ROWS = 4096

Array = npt.NDArray[Any]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_NO_FORCED = np.zeros((2, 0, 0))
_NO_BLOCKS = np.zeros((2, 0, 0))


@dataclasses.dataclass(slots=True, eq=False)
class Outcome:
    """What a task returns: `fold` and its siblings merge it."""

    records: Records
    blocks: F64 | None = None
    values: Bins | None = None
    errors: Bins | None = None
    counts: I64 | None = None
    row_counts: I64 | None = None
    distinct: I64 | None = None
    entropy: F64 | None = None
    far: I64 | None = None
    six: I64 | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Worker:
    """Measures boxes of one tensor; safe to call from several threads.

    Attributes:
        layout, x, partner: the tensor and what it is held against; `partner` is x itself where there is none.
        scale, zero: flat, in the order of `layout.flat_scale`.
        blocked: scales are per block, so block sums are wanted and clip counts settle within a block.
        forced: lowest and highest code by scale, flat [2, scales], where scale groups cross rows; else None.
        leaf: columns of a record.
        bins: most bins of histograms; 0 for none.
        with_partner: histogram x̂ too.
        with_errors: histogram the error too.
        with_codes, with_outliers: count codes; count outliers (in boxes of whole channels).
        fast_from: elements from which the float32 kernels are used.
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
    bins: int = 0
    with_partner: bool = True
    with_errors: bool = False
    with_codes: bool = False
    with_outliers: bool = False
    fast_from: int = FAST_FROM

    @property
    def is_fast(self) -> bool:
        """Whether the float32 kernels do this tensor."""
        lay = self.layout
        if not (HAS_FMA and self.x_fits_float32 and self.partner.fits_float32 and self.forced is None):
            return False
        if lay.rows * lay.columns < self.fast_from:
            return False
        return not self.blocked or lay.block % blocks32.PIECE == 0 or self._one_block
    
    @property
    def _one_block(self) -> bool:
        return self.blocked and self.layout.blocks == 1 and self.layout.columns <= self.leaf

    def box_scales(self, box: Box, flat: F64) -> F64:
        """Scales (or zero points) of the blocks of a box, float64 [rows, blocks]."""
        r0, r1, c0, c1 = box
        lay = self.layout
        first, last = c0 // lay.block, -(-c1 // lay.block)
        if lay.row_group == 1 and lay.scale_block_step == 1 and lay.scale_row_step == lay.blocks:
            return np.ascontiguousarray(flat.reshape(lay.rows, lay.blocks)[r0:r1, first:last])
        rows = np.arange(r0, r1) // lay.row_group * lay.scale_row_step
        columns = np.arange(first, last) * lay.scale_block_step
        return np.ascontiguousarray(flat[rows[:, None] + columns[None, :]])

    def __call__(self, box: Box) -> Outcome:
        """All that is wanted of one box."""
        part = self.x.box(box)
        rows, columns = part.shape
        leaves = -(-columns // self.leaf)
        records = np.zeros((rows, leaves, FIELDS))
        out = Outcome(records)
        scale = self.box_scales(box, self.scale)
        zero = np.zeros(scale.shape) if self.zero is None else self.box_scales(box, self.zero)
        if self.blocked and self.forced is None:
            out.blocks = np.zeros((2, *scale.shape))
        fast = self.is_fast
        x32 = as_float32(part) if fast else None
        tile = self.partner.tile(box) if fast else None
        if x32 is not None and tile is not None:
            step = rows if not self.bins else max(1, STEP_ELEMENTS // max(columns, 1))
            grids = (Grid(2 if self.with_partner else 1, self.bins), Grid(1, self.bins)) if self.bins else None
            counted = self._counts_for(out, rows) if self.with_codes or (self.bins and self._bins_from_counts) else None
            for r in range(0, rows, step):
                stop = min(rows, r + step)
                here = _rows_of(tile, r, stop, columns)
                self._fast(box, part, x32, here, scale, zero, r, stop, out)
                if counted is not None:
                    self._count(here, r, stop, columns, counted)
                if grids is not None:
                    self._bin(box, part, x32, here, scale, zero, r, stop, records, grids, counted)
        else:
            self._general(part.astype(np.float64), self.partner.wide(box), scale, zero, box, out)
            grids = None
            if self.bins:
                grids = (Grid(2 if self.with_partner else 1, self.bins), Grid(1, self.bins))
                self._bin_wide(part.astype(np.float64), self.partner.wide(box), scale, zero, box, grids)
            counted = self._counts_for(out, rows) if self.with_codes else None
            if counted is not None and self.partner.is_narrow:
                narrow = self.partner.tile(box)
                for r in range(0, rows, COUNTED_ROWS):
                    stop = min(rows, r + COUNTED_ROWS)
                    self._count(_rows_of(narrow, r, stop, columns), r, stop, columns, counted)
        if self.with_codes:
            self._finish_counts(box, out, counted)
        if grids is not None:
            out.values = grids[0].bins()
            out.errors = grids[1].bins() if self.with_errors else None
        if self.with_outliers and columns == self.layout.columns:
            self._outliers(part, x32, out)
        return out
'''
