"""Records and block sums of a piece: the fast kernels, and float64 for what they hand back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.kernels import blocks32, float64, rows32
from visualquant.kernels._jit import HAS_FMA
from visualquant.kernels._simd import PIECE
from visualquant.kernels.partner import STEPS
from visualquant.kernels.piece import Piece, Subject, stretches
from visualquant.kernels.records import CODE_MAX, CODE_MIN, E_SQ, FIELDS, HIGH_CODE, LOW_CODE, REDO, X_SQ, Records

F64 = npt.NDArray[np.float64]
# Tensors below this many elements are measured in float64 throughout: speed does not matter there.
FAST_FROM = 65_536
_NONE = np.zeros((2, 0, 0))
_REDO_ELEMENTS = 1 << 19


def is_fast(subject: Subject, fast_from: int) -> bool:
    """Whether the float32 kernels do this tensor."""
    lay = subject.layout
    if not (HAS_FMA and subject.x_fits_float32 and subject.partner.fits_float32 and subject.forced is None):
        return False
    if lay.rows * lay.columns < fast_from:
        return False
    return not subject.blocked or lay.block % PIECE == 0 or _one_block(subject)


def near_half(bits: int) -> float:
    """|e|/scale from which an element may be a tie or over half a step.

    Ties are exact in x/scale rounded to float32, which is off by at most 2^-24 of a code less its zero point.
    """
    return 0.5 - 2.0 ** (bits + 1 - 24)


def _one_block(subject: Subject) -> bool:
    return subject.layout.blocks == 1 and subject.layout.columns <= subject.leaf


def measure(piece: Piece) -> tuple[Records, npt.NDArray[Any] | None]:
    """Records [rows, leaves, FIELDS], and block sums [2, rows, blocks] where scales are per block."""
    subject = piece.subject
    rows, columns = piece.shape
    leaves = -(-columns // subject.leaf)
    wants_blocks = subject.blocked and subject.forced is None
    if piece.x32 is None or piece.tile is None:
        records = np.zeros((rows, leaves, FIELDS))
        blocks = np.zeros((2, *piece.scale.shape)) if wants_blocks else None
        _in_float64(piece, records, blocks)
        return records, blocks
    records, sums = _in_float32(piece, leaves, wants_blocks)
    return records, _redo(piece, records, sums)


def _in_float32(piece: Piece, leaves: int, wants_blocks: bool) -> tuple[Records, npt.NDArray[Any] | None]:
    subject, tile, x = piece.subject, piece.tile, piece.x32
    assert tile is not None and x is not None
    partner = subject.partner
    records = np.zeros((x.shape[0], leaves, FIELDS))
    shift = partner.code_shift
    common = (x, tile.codes, tile.values, tile.first, tile.bits, tile.flip, partner.mode, partner.table)
    ends = np.append(partner.table_ends, near_half(partner.kind.bits))
    if wants_blocks and not _one_block(subject):
        sums = np.empty((2, *piece.scale.shape), np.float32)
        zero = piece.shifted_zeros if piece.zero is not None or shift else np.zeros((x.shape[0], 0))
        block = subject.layout.block
        blocks32.measure_blocks(*common, ends, piece.scale, zero, block, subject.leaf, records, sums)
        blocks: npt.NDArray[Any] | None = sums
    else:
        zero = piece.shifted_zeros.reshape(-1)
        rows32.measure_rows(*common, ends, piece.scale.reshape(-1), zero, subject.leaf, records)
        blocks = None
        if wants_blocks:
            blocks = np.stack([records[:, :, X_SQ], records[:, :, E_SQ]])
            records[:, :, LOW_CODE] = records[:, :, HIGH_CODE] = 0.0
    if shift:
        records[:, :, CODE_MIN : CODE_MAX + 1] += shift
        if not wants_blocks:
            records[:, :, LOW_CODE] += shift
            records[:, :, HIGH_CODE] += shift
    return records, blocks


def _in_float64(piece: Piece, records: Records, blocks: F64 | None) -> None:
    subject = piece.subject
    whole = partner_settles_later(subject)
    forced = _NONE
    if subject.forced is not None:
        forced = np.stack([subject.by_block(piece.box, subject.forced[k]) for k in range(2)])
    float64.measure64(
        piece.x64(),
        piece.partner64(),
        piece.scale,
        piece.zeros,
        forced,
        subject.layout.block,
        subject.leaf,
        subject.partner.mode,
        subject.partner.table_ends,
        int(whole),
        records,
        _NONE if blocks is None else blocks,
    )


def partner_settles_later(subject: Subject) -> bool:
    """Whether the extreme codes of a scale group are known only when all its rows and leaves are merged."""
    return subject.partner.mode == STEPS and not subject.blocked and subject.forced is None


def _redo(piece: Piece, records: Records, blocks: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    """Measures the leaves that float32 could not hold in float64; other leaves keep their records."""
    marked = records[:, :, REDO] != 0
    if not marked.any():
        return blocks
    if blocks is not None:
        blocks = blocks.astype(np.float64)  # NOTE: sums that left float32 would do so again
    lay, leaf = piece.subject.layout, piece.subject.leaf
    affected = np.flatnonzero(marked.any(axis=1))
    step = max(1, _REDO_ELEMENTS // max(1, piece.shape[1]))
    for start, stop in stretches(affected, step):
        part = piece.rows(start, stop)
        again = np.zeros((stop - start, *records.shape[1:]))
        sums = None if blocks is None else np.zeros((2, stop - start, blocks.shape[2]))
        _in_float64(part, again, sums)
        here = marked[start:stop]
        records[start:stop][here] = again[here]
        if blocks is not None and sums is not None:
            per_leaf = max(1, leaf // lay.block)
            of_leaf = np.arange(blocks.shape[2]) // per_leaf
            chosen = here[:, of_leaf]
            for k in range(2):
                blocks[k, start:stop][chosen] = sums[k][chosen]
    return blocks
