"""Whether 16-bit accumulation saturates: computed from codes and weights, the same on every processor.

x86 without VNNI adds two uint8·int8 products in saturating 16 bits (vpmaddubsw). Counted are pairs of neighbours along
the reduction with a0·w0 + a1·w1 outside [−32768, 32767].
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.analysis.operands import apply_steps
from visualquant.core.graph import NodeView
from visualquant.core.quant import QuantParams, QuantSite

Array = npt.NDArray[Any]
ROWS, COLUMNS = 128, 64


def saturating_share(x: Array, data: QuantSite, weight: QuantSite, reader: NodeView) -> float | None:
    """Share of the pairs that saturate on sampled rows and output channels; None for layers of another kind.

    Args:
        x: float values of the layer's data input (a few samples).
        data: its quantizer.
        weight: the int8 weight.
        reader: MatMul, Gemm or Conv (also their integer forms).
    """
    assert weight.codes is not None and data.params is not None
    w = apply_steps(weight.codes.array(), weight.view).astype(np.int32)
    if weight.params is not None and weight.params.zero_point is not None and np.any(weight.params.zero_point):
        return None
    codes = _codes(x, data.params)
    if "Conv" in reader.op_type:
        if w.ndim != 4 or codes.ndim != 4 or reader.int_attribute("group", 1) != 1:
            return None
        rows, columns = _patches(codes, w, reader, data.params), w.reshape(w.shape[0], -1).T
    elif w.ndim == 2:
        flipped = "Gemm" in reader.op_type and reader.int_attribute("transB", 0) == 1
        rows, columns = codes.reshape(-1, codes.shape[-1]), w.T if flipped else w
    else:
        return None
    if rows.shape[1] != columns.shape[0] or rows.shape[1] < 2 or not rows.size:
        return None
    step = max(1, rows.shape[0] // ROWS)
    rows, columns = rows[::step][:ROWS], columns[:, :: max(1, columns.shape[1] // COLUMNS)][:, :COLUMNS]
    even = rows.shape[1] // 2 * 2
    hit = total = 0
    for k in range(0, even, 2):
        pair = np.outer(rows[:, k], columns[k]) + np.outer(rows[:, k + 1], columns[k + 1])
        hit += int(((pair > 32767) | (pair < -32768)).sum())
        total += pair.size
    return hit / total if total else None


def _codes(x: Array, params: QuantParams) -> npt.NDArray[np.int32]:
    zero = 0.0 if params.zero_point is None else params.broadcast(params.zero_point.astype(np.float64), x.shape)
    with np.errstate(all="ignore"):
        codes = np.rint(x.astype(np.float64) / params.broadcast(params.scale, x.shape)) + zero
    out: npt.NDArray[np.int32] = np.nan_to_num(np.clip(codes, 0, 255)).astype(np.int32)
    return out


def _patches(codes: Array, w: Array, reader: NodeView, params: QuantParams) -> Array:
    """Patches of a convolution as rows, padded with the code of zero; strides are not followed: it is a sample."""
    zero = 0 if params.zero_point is None else int(np.asarray(params.zero_point).reshape(-1)[0])
    pads = reader.ints_attribute("pads") or (0, 0, 0, 0)
    padded = np.pad(codes, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])), constant_values=zero)
    if padded.shape[2] < w.shape[2] or padded.shape[3] < w.shape[3]:
        return np.empty((0, 0), np.int32)
    view = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))
    rows = view.transpose(0, 2, 3, 1, 4, 5).reshape(-1, *w.shape[1:])
    return rows[:: max(1, rows.shape[0] // ROWS)][:ROWS].reshape(-1, int(np.prod(w.shape[1:])))
