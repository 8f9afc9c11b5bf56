"""Histograms of pieces: power-of-two bins that start fine and are coarsened in place when they run out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from visualquant.core.stats import Bins
from visualquant.core.stats_shape import bin_exponent, bin_index
from visualquant.kernels import bins as kernels
from visualquant.kernels.partner import STEPS
from visualquant.kernels.piece import Piece, stretches
from visualquant.kernels.records import BAD_X, BAD_Y, E_MAX, X_MAX, X_MIN, Y_MAX, Y_MIN, Records

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
# float32 holds 2^k and its inverse exactly within these exponents; beyond, values go through float64.
_FLOAT32_EXPONENTS = 120
_SLOW_ELEMENTS = 1 << 19


class Grid:
    """Counts of `variables` variables over one grid of at most `limit` bins.

    The exponent depends only on the range of all data seen, so that merged grids agree for any order and chunking.
    """

    def __init__(self, variables: int, limit: int) -> None:
        self.limit = limit
        self.counts = np.zeros((variables, limit), np.int64)
        self.exponent = -1074
        self.first = 0
        self.low = np.inf
        self.high = -np.inf

    def reach(self, low: float, high: float) -> bool:
        """Makes room for values in [low, high]; False where there is no finite range."""
        if not (low <= high):
            return False
        if low >= self.low and high <= self.high:
            return True
        before = self.bins()
        self.low, self.high = min(low, self.low), max(high, self.high)
        self.exponent = max(self.exponent, bin_exponent(self.low, self.high, self.limit))
        self.first = bin_index(self.low, self.exponent)
        self.counts[:] = 0
        if before.counts.shape[1]:
            old = before.coarsen(self.exponent)
            start = old.first - self.first
            self.counts[:, start : start + old.counts.shape[1]] = old.counts
        return True

    @property
    def suits_float32(self) -> bool:
        """Whether float32 values can be scaled by 2^-exponent exactly."""
        return abs(self.exponent) <= _FLOAT32_EXPONENTS

    def add(self, variable: int, values: F64) -> None:
        """Adds finite float64 values within the range that was reached; the slow way for odd data."""
        index = np.floor(np.ldexp(values, -self.exponent)) - self.first
        self.counts[variable] += np.bincount(index.astype(np.int64), minlength=self.limit)

    def bins(self) -> Bins:
        """The counts so far, without empty ends."""
        if not np.isfinite(self.low):
            return Bins.identity(self.counts.shape[0], self.limit)
        return Bins(self.exponent, self.first, self.counts.copy(), self.limit).trimmed()


class Histogrammer:
    """Histograms of x, x̂ and e of pieces, for one task.

    Attributes:
        values: grid of x (0) and x̂ (1).
        errors: grid of e, or None where not wanted.
    """

    def __init__(self, limit: int, with_partner: bool, with_errors: bool) -> None:
        self.values = Grid(2 if with_partner else 1, limit)
        self.errors = Grid(1, limit) if with_errors and with_partner else None

    def add(self, piece: Piece, records: Records, by_row: I64 | None) -> None:
        """Adds a piece.

        Args:
            piece: rows of a box.
            records: of its rows.
            by_row: counts of its codes a row, where they are at hand.
        """
        with_partner = self.values.counts.shape[0] > 1
        low, high = float(records[:, :, X_MIN].min(initial=np.inf)), float(records[:, :, X_MAX].max(initial=-np.inf))
        if with_partner:
            low = min(low, _below(float(records[:, :, Y_MIN].min(initial=np.inf))))
            high = max(high, _above(float(records[:, :, Y_MAX].max(initial=-np.inf))))
        if not self.values.reach(low, high):
            return
        if self.errors is not None:
            worst = _above(float(records[:, :, E_MAX].max(initial=0.0)))
            self.errors.reach(-worst, worst)
        odd = (records[:, :, BAD_X] + records[:, :, BAD_Y]).sum(axis=1) > 0
        fits = self.values.suits_float32 and (self.errors is None or self.errors.suits_float32)
        if piece.x32 is None or piece.tile is None or not fits:
            self._add_slowly(piece, np.ones(odd.shape, bool))
            return
        self._add_fast(piece, odd.astype(np.uint8), by_row)
        if odd.any():
            self._add_slowly(piece, odd)

    def _add_fast(self, piece: Piece, skip: npt.NDArray[np.uint8], by_row: I64 | None) -> None:
        x, tile, subject = piece.x32, piece.tile, piece.subject
        assert x is not None and tile is not None
        grid = self.values
        target = np.zeros(x.shape[0], np.int64)
        kernels.bin_values(x, skip, np.float32(2.0**-grid.exponent), grid.first, target, grid.counts[:1])
        zero = piece.shifted_zeros
        common = (x, skip, tile.codes, tile.values, tile.first, tile.bits, tile.flip, subject.partner.table)
        rest = (piece.scale, zero, subject.layout.block, piece.box[2] % max(1, subject.layout.block))
        if grid.counts.shape[0] > 1:
            if by_row is not None and subject.partner.mode == STEPS and not subject.blocked:
                scale = 2.0**-grid.exponent
                flat = zero.reshape(-1)
                kernels.bin_counts(by_row, skip, -128, piece.scale.reshape(-1), flat, scale, grid.first, grid.counts[1])
            else:
                kernels.bin_partner(*common, *rest, 2.0**-grid.exponent, grid.first, 0, target, grid.counts[1:])
        if self.errors is not None:
            grid = self.errors
            kernels.bin_partner(*common, *rest, 2.0**-grid.exponent, grid.first, 1, target, grid.counts)

    def _add_slowly(self, piece: Piece, chosen: npt.NDArray[np.bool_]) -> None:
        most = max(1, _SLOW_ELEMENTS // max(1, piece.shape[1]))
        for start, stop in stretches(np.flatnonzero(chosen), most):
            part = piece.rows(start, stop)
            x, y = part.x64(), values64(part)
            with np.errstate(all="ignore"):
                error = x - y
            ok = np.isfinite(error)
            self.values.add(0, x[ok])
            if self.values.counts.shape[0] > 1:
                self.values.add(1, y[ok])
            if self.errors is not None:
                self.errors.add(0, error[ok])


def values64(piece: Piece) -> F64:
    """x̂ of a piece in float64."""
    block, columns = piece.subject.layout.block, piece.shape[1]
    scale, zero = piece.scale, piece.zeros
    if scale.shape[1] > 1:
        index = (np.arange(columns) + piece.box[2] % block) // block
        scale, zero = scale[:, index], zero[:, index]
    with np.errstate(all="ignore"):
        out: F64 = (piece.partner64() - zero) * scale
    return out


def _below(value: float) -> float:
    """A little less: extremes of x̂ that come from float32 may be off by one rounding."""
    return value - abs(value) * 2.0**-22


def _above(value: float) -> float:
    return value + abs(value) * 2.0**-22
