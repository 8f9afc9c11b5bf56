"""Outliers of channels that are longer than a box, by streaming: a few more reads of those channels alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from visualquant.kernels.engine import Pass
from visualquant.kernels.quantile import quantiles
from visualquant.kernels.records import COUNT, X_MAX, X_MIN, X_SQ, X_SUM
from visualquant.kernels.sources import Box
from visualquant.kernels.tasks import Control, run

F64 = npt.NDArray[np.float64]
_QUARTILES = (0.25, 0.5, 0.75)


def outliers_of_long_channels(done: Pass, cut: npt.NDArray[np.bool_], control: Control) -> None:
    """Fills in `done.outliers` and `done.six` of the channels marked in `cut` [channels].

    Two reads for the quartiles; one more where an element may be beyond a limit.
    """
    per = done.subject.layout.rows_per_channel
    for channel in np.flatnonzero(cut):
        first, last = int(channel) * per, (int(channel) + 1) * per
        parts = [(max(b[0], first), min(b[1], last), b[2], b[3]) for b in done.boxes if b[0] < last and b[1] > first]
        done.outliers[channel], done.six[channel] = _one(done, int(channel), parts, control.silent)


def _one(done: Pass, channel: int, parts: list[Box], control: Control) -> tuple[int, int]:
    subject = done.subject
    per = done.per_record
    lay = subject.layout
    rows = slice(channel, channel + 1)
    if per != lay.rows_per_channel:
        rows = slice(channel * lay.rows_per_channel, (channel + 1) * lay.rows_per_channel)
    rec = done.records[rows]
    low, high = float(rec[:, X_MIN].min()), float(rec[:, X_MAX].max())
    count, total, square = (float(rec[:, k].sum()) for k in (COUNT, X_SUM, X_SQ))
    found = quantiles(subject.x, subject.x_fits_float32, parts, _QUARTILES, control)
    if not found or count == 0:
        return 0, -1
    q25, median, q75 = (found[p] for p in _QUARTILES)
    mean = total / count
    variance = square / count - mean * mean
    if mean * mean > 100 * variance:
        variance = _sum(done, parts, control, lambda x: np.array([((x - mean) ** 2).sum()]))[0] / count
    limit, sigma = 10 * (q75 - q25), math.sqrt(max(0.0, variance))
    reach_median = max(high - median, median - low)
    reach_mean = max(high - mean, mean - low)
    if reach_median <= limit and (reach_mean <= 6 * sigma or count < 64):
        return 0, 0 if count >= 64 else -1

    def beyond(x: F64) -> F64:
        return np.array([(np.abs(x - median) > limit).sum(), (np.abs(x - mean) > 6 * sigma).sum()], np.float64)

    far, six = _sum(done, parts, control, beyond)
    return int(far), int(six) if count >= 64 else -1


def _sum(done: Pass, parts: list[Box], control: Control, figure: Callable[[F64], F64]) -> F64:
    """Sums a figure of the finite values over boxes, in order."""
    totals: list[F64] = []
    pieces = [piece for box in parts for piece in _small(box)]

    def work(index: int) -> F64:
        values = done.subject.x.box(pieces[index]).astype(np.float64)
        return figure(values[np.isfinite(values)])

    run(len(pieces), work, lambda _, value: totals.append(value), control)
    out: F64 = np.sum(totals, axis=0)
    return out


def _small(box: Box) -> list[Box]:
    r0, r1, c0, c1 = box
    step = 1 << 19
    return [(r, r + 1, c, min(c1, c + step)) for r in range(r0, r1) for c in range(c0, c1, step)]
