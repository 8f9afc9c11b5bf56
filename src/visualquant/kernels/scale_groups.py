"""Lowest and highest code of each scale group, where groups cross the channels that are reported."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from visualquant.core.quant import QuantParams
from visualquant.kernels.piece import Subject
from visualquant.kernels.tasks import Control, boxes, run

F64 = npt.NDArray[np.float64]


def code_ends(subject: Subject, params: QuantParams, control: Control) -> tuple[F64, F64]:
    """Extreme codes by scale, two arrays of the shape of the scales.

    Args:
        subject: laid out so that scale groups lie within rows.
        params: its scales.
        control: threads and cancel.
    """
    layout = subject.layout
    low = np.full((layout.rows, layout.blocks), np.inf)
    high = np.full((layout.rows, layout.blocks), -np.inf)
    parts = boxes(layout, subject.leaf, 1 << 20, False)
    if not parts:
        return np.full(params.scale.shape, np.inf), np.full(params.scale.shape, -np.inf)

    def work(index: int) -> tuple[F64, F64]:
        box = parts[index]
        codes = subject.partner.wide(box)
        cuts = np.arange(0, codes.shape[1], layout.block) if subject.blocked else np.array([0])
        return np.minimum.reduceat(codes, cuts, axis=1), np.maximum.reduceat(codes, cuts, axis=1)

    def commit(index: int, ends: tuple[F64, F64]) -> None:
        r0, r1, c0, _ = parts[index]
        first = c0 // layout.block if subject.blocked else 0
        here = (slice(r0, r1), slice(first, first + ends[0].shape[1]))
        low[here] = np.minimum(low[here], ends[0])
        high[here] = np.maximum(high[here], ends[1])

    run(len(parts), work, commit, control.silent)
    shape = tuple(params.scale.shape[k] for k in layout.scale_order)
    back = np.argsort(layout.scale_order)
    return low.reshape(shape).transpose(back), high.reshape(shape).transpose(back)
