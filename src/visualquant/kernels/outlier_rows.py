"""Outliers of channels that lie wholly within a piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.kernels import ranks
from visualquant.kernels.grid import values64
from visualquant.kernels.piece import Piece

I64 = npt.NDArray[np.int64]


def outliers(piece: Piece, partner_is_odd: npt.NDArray[np.bool_]) -> tuple[I64, I64]:
    """Elements beyond median ± 10·IQR, and beyond 6σ (−1: fewer than 64 elements), of each channel of the piece.

    Args:
        piece: whole channels.
        partner_is_odd: bool [rows], rows whose partner has NaN or infinities, so that their pairs are left out.
    """
    per = min(piece.subject.layout.rows_per_channel, max(1, piece.shape[0]))
    channels = piece.shape[0] // per
    odd = partner_is_odd.reshape(channels, per).any(axis=1)
    if piece.x32 is not None or piece.x.dtype == np.float32:
        x = piece.x32 if piece.x32 is not None else piece.x
        rows = x.reshape(channels, -1)
        far, six = np.zeros(channels, np.int64), np.zeros(channels, np.int64)
        ranks.outliers(rows, np.empty((2, rows.shape[1]), np.float32), far, six)
    else:
        odd = np.ones(channels, bool)
        far, six = np.zeros(channels, np.int64), np.zeros(channels, np.int64)
    for k in np.flatnonzero(odd):
        part = piece.rows(int(k) * per, (int(k) + 1) * per)
        x64 = part.x64()
        with np.errstate(all="ignore"):
            far[k], six[k] = of_values(x64[np.isfinite(x64 - values64(part))])
    return far, six


def of_values(values: npt.NDArray[Any]) -> tuple[int, int]:
    """The same of finite float64 values, with numpy."""
    if values.size == 0:
        return 0, -1
    q25, median, q75 = np.quantile(values, [0.25, 0.5, 0.75])
    far = int((np.abs(values - median) > 10 * (q75 - q25)).sum())
    six = int((np.abs(values - values.mean()) > 6 * values.std()).sum()) if values.size >= 64 else -1
    return far, six
