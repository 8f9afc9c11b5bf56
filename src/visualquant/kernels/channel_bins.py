"""Histograms of every channel on one grid: a channel × bin matrix of at most 32 MB, by a second read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from visualquant.core.stats import ChannelHistograms
from visualquant.core.stats_shape import bin_exponent, bin_index
from visualquant.kernels import bins as kernels
from visualquant.kernels.engine import reader_of
from visualquant.kernels.grid import values64
from visualquant.kernels.piece import Piece, Subject
from visualquant.kernels.tasks import Control, box_bytes, boxes, run

I64 = npt.NDArray[np.int64]
MOST_BYTES = 32 << 20


def channel_histograms(
    subject: Subject, low: float, high: float, limit: int, with_partner: bool, fast: bool, control: Control
) -> ChannelHistograms | None:
    """Counts of x (and x̂) by channel.

    Args:
        subject: the tensor.
        low: smallest finite value of both.
        high: largest finite value of both.
        limit: most bins; fewer where the matrix would exceed 32 MB.
        with_partner: count x̂ too.
        fast: use the float32 kernels.
        control: threads, cancel, progress.

    Returns:
        None where there is no finite value, or where not even two bins a channel fit.
    """
    channels = subject.layout.channels
    variables = 2 if with_partner else 1
    limit = min(limit, MOST_BYTES // (4 * variables * max(1, channels)))
    if not low <= high or limit < 2:
        return None
    exponent = bin_exponent(low, high, limit)
    first = bin_index(low, exponent)
    count = bin_index(high, exponent) - first + 1
    out = np.zeros((variables, channels, count), np.uint32)
    parts = boxes(subject.layout, subject.leaf, min(1 << 20, 4096 * max(1, subject.layout.columns)), False)
    reader = reader_of(subject, parts)
    per = subject.layout.rows_per_channel

    def work(index: int) -> tuple[int, I64]:
        reader.before(index)
        box = parts[index]
        begin, end = box[0] // per, -(-box[1] // per)
        counts = np.zeros((variables, end - begin, count), np.int64)
        piece = subject.piece(box, fast and abs(exponent) <= 120)
        _add(piece, np.arange(box[0], box[1]) // per - begin, exponent, first, counts)
        reader.after(index)
        return begin, counts

    def commit(index: int, result: tuple[int, I64]) -> None:
        del index
        begin, counts = result
        out[:, begin : begin + counts.shape[1]] += counts.astype(np.uint32)

    run(len(parts), work, commit, control, box_bytes(parts, subject.bits))
    return ChannelHistograms(exponent, first, out[0], out[1] if with_partner else None)


def _add(piece: Piece, target: I64, exponent: int, first: int, counts: I64) -> None:
    x, tile, subject = piece.x32, piece.tile, piece.subject
    odd = np.ones(piece.shape[0], bool)
    if x is not None and tile is not None:
        with np.errstate(all="ignore"):
            odd = ~np.isfinite(x.sum(axis=1, dtype=np.float64)) | ~np.isfinite(piece.scale).all(axis=1)
        if tile.values.size:
            odd |= ~np.isfinite(tile.values).all(axis=1)
        odd |= bool(subject.partner.table.size)  # NOTE: codes that stand for NaN are looked for the slow way
        skip = odd.astype(np.uint8)
        kernels.bin_values(x, skip, np.float32(2.0**-exponent), first, target, counts[0])
        if counts.shape[0] > 1:
            common = (x, skip, tile.codes, tile.values, tile.first, tile.bits, tile.flip, subject.partner.table)
            block = subject.layout.block
            rest = (piece.scale, piece.shifted_zeros, block, piece.box[2] % max(1, block))
            kernels.bin_partner(*common, *rest, 2.0**-exponent, first, 0, target, counts[1])
    for row in np.flatnonzero(odd):  # NOTE: rows of several channels, so one at a time
        part = piece.rows(int(row), int(row) + 1)
        x64, y64 = part.x64(), values64(part)
        with np.errstate(all="ignore"):
            ok = np.isfinite(x64 - y64)
        for variable, values in enumerate((x64, y64)[: counts.shape[0]]):
            index = np.floor(np.ldexp(values[ok], -exponent)) - first
            counts[variable, target[row]] += np.bincount(index.astype(np.int64), minlength=counts.shape[2])
