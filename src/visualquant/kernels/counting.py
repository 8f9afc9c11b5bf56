"""Which codes occur in a piece, and how often."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from visualquant.kernels import bins
from visualquant.kernels.piece import Piece, Subject

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Codes of a piece.

    Attributes:
        total: int64 [256 or 65536], by decoded code − lowest one (8 bits) or by bit pattern (16 bits).
        rows: int64 [rows, 256], the same a row; None for 16 bits.
        distinct, entropy: of each channel that lies wholly within the piece; None where channels are cut.
    """

    total: I64
    rows: I64 | None
    distinct: I64 | None
    entropy: F64 | None


def can_count(subject: Subject) -> bool:
    """Whether the partner has codes of at most 16 bits."""
    return subject.partner.kind.bits <= 8 or (subject.partner.mode != 0 and subject.partner.kind.bits == 16)


def count(piece: Piece, whole_channels: bool, with_entropy: bool = True) -> Counts:
    """Counts of a piece.

    Args:
        piece: codes of at most 16 bits.
        whole_channels: its rows make up whole channels.
        with_entropy: find distinct codes and entropy of channels too.
    """
    subject = piece.subject
    rows, columns = piece.shape
    per_channel = subject.layout.rows_per_channel
    if subject.partner.kind.bits == 16:
        return _count16(piece, whole_channels)
    tile = piece.tile if piece.tile is not None else subject.partner.tile(piece.box)
    by_row = np.zeros((rows, 256), np.int64)
    bins.count_codes(tile.codes, tile.first, rows, columns, tile.bits, tile.flip, by_row)
    total = by_row.sum(axis=0)
    if not (whole_channels and with_entropy):
        return Counts(total, by_row, None, None)
    channels = by_row if per_channel == 1 else by_row.reshape(-1, min(per_channel, rows), 256).sum(axis=1)
    distinct, entropy = np.zeros(channels.shape[0], np.int64), np.zeros(channels.shape[0])
    bins.code_entropy(channels, distinct, entropy)
    return Counts(total, by_row, distinct, entropy)


def _count16(piece: Piece, whole_channels: bool) -> Counts:
    rows, columns = piece.shape
    per_channel = piece.subject.layout.rows_per_channel
    patterns = piece.subject.partner.patterns16(piece.box)
    if whole_channels and per_channel > 1:
        patterns = patterns.reshape(-1, columns * min(per_channel, rows))
    total = np.zeros(65_536, np.int64)
    distinct, entropy = np.zeros(patterns.shape[0], np.int64), np.zeros(patterns.shape[0])
    bins.count_codes16(patterns, np.zeros(65_536, np.uint32), total, distinct, entropy)
    if not whole_channels:
        return Counts(total, None, None, None)
    return Counts(total, None, distinct, entropy)


def joined(parts: list[Counts]) -> Counts | None:
    """Counts of pieces of one box, rows in order."""
    if len(parts) < 2:
        return parts[0] if parts else None
    rows = [part.rows for part in parts if part.rows is not None]
    distinct = [part.distinct for part in parts if part.distinct is not None]
    entropy = [part.entropy for part in parts if part.entropy is not None]
    return Counts(
        np.sum([part.total for part in parts], axis=0),
        np.concatenate(rows) if rows else None,
        np.concatenate(distinct) if distinct else None,
        np.concatenate(entropy) if entropy else None,
    )
