"""The blocks of a tensor as a distribution, the worst 256, and a pooled picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.stats import BlockRow, BlockSummary, sqnr_db
from visualquant.kernels import merge
from visualquant.kernels.layout import Layout
from visualquant.kernels.sources import Box

F64 = npt.NDArray[np.float64]
WORST = 256
POOLED = 512
BINS = 322


def ratio_edges() -> F64:
    """Limits of the distribution of Σe²/Σx²: four a factor of two from 2^-60 to 2^20, with 0 and inf at the ends."""
    steps = [(1 + quarter / 4) * 2.0**k for k in range(-60, 20) for quarter in range(4)]
    return np.array([0.0, *steps, 2.0**20, np.inf])


class BlockSummaryBuilder:
    """Takes block sums in index order; of no more than a fixed size however many blocks there are."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.counts = np.zeros(BINS, np.int64)
        self.totals = np.zeros(2, np.int64)
        self.pooled = np.zeros((2, min(POOLED, max(1, layout.rows)), min(POOLED, max(1, layout.blocks))))
        self.places = np.empty(0, np.int64)
        self.sums = np.empty((0, 2))
        self.threshold = 0.0

    def add(self, box: Box, blocks: npt.NDArray[Any]) -> None:
        """Adds the blocks of a box."""
        lay = self.layout
        places, sums = np.empty(blocks[0].size, np.int64), np.empty((blocks[0].size, 2))
        found = merge.add_blocks(
            blocks,
            box[0],
            box[2] // lay.block,
            lay.rows,
            lay.blocks,
            self.threshold,
            self.counts,
            self.totals,
            self.pooled,
            places,
            sums,
        )
        self.places = np.concatenate([self.places, places[:found]])
        self.sums = np.concatenate([self.sums, sums[:found]])
        if self.places.size > WORST:
            self._keep_worst()

    def _ratios(self) -> F64:
        with np.errstate(all="ignore"):
            out: F64 = np.where(self.sums[:, 1] == 0, 0.0, self.sums[:, 1] / self.sums[:, 0])
        return out

    def _keep_worst(self) -> None:
        ratios = self._ratios()
        if ratios.size > WORST:
            least = np.partition(ratios, ratios.size - WORST)[ratios.size - WORST]
            near = np.flatnonzero(ratios >= least)
            self.places, self.sums, ratios = self.places[near], self.sums[near], ratios[near]
        order = np.lexsort((self.places, -ratios))[:WORST]
        self.places, self.sums = self.places[order], self.sums[order]
        if order.size == WORST:
            self.threshold = float(ratios[order[-1]])

    def build(self) -> BlockSummary:
        """The summary of all blocks so far."""
        self._keep_worst()
        lay = self.layout
        per_row = max(1, lay.blocks)
        decibels = sqnr_db(self.sums[:, 0], self.sums[:, 1])
        worst = tuple(
            BlockRow(int(place // per_row), int(place % per_row), float(db))
            for place, db in zip(self.places, decibels, strict=True)
        )
        return BlockSummary(
            int(self.totals[0]),
            lay.rows,
            lay.blocks,
            lay.row_axes,
            int(self.totals[1]),
            ratio_edges(),
            self.counts,
            worst,
            self.pooled[0],
            self.pooled[1],
        )
