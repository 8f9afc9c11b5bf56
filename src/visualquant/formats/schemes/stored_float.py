"""Weights that were quantized and then stored as float again, between quantized activations."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from visualquant.core.graph import GraphView, NodeView
from visualquant.core.quant import QuantParams, QuantSite
from visualquant.core.trace import trace_operand
from visualquant.formats.schemes._qdq_ops import is_dequantize
from visualquant.formats.schemes._sites import Origin, origin_of

NAME = "stored_float"
LEVELS = 255
"""Steps of an 8-bit grid."""
TOLERANCE = 2e-4
"""Distance from the grid, in steps: float32 rounding of code·scale stays below 255·2⁻²³."""
# The axis of the weight that counts output channels, by operator: Gemm and MatMul by transB.
_CHANNEL_AXIS = {"Conv": 0, "FusedConv": 0, "ConvTranspose": 1, "MatMul": -1, "Gemm": -1}


def find(graph: GraphView) -> Iterable[QuantSite]:
    """Float weights of layers whose data is dequantized, where the values of each channel lie on an 8-bit grid."""
    for node in graph.nodes:
        if node.op_type not in _CHANNEL_AXIS or not _data_is_quantized(graph, node):
            continue
        origin = origin_of(graph, node.input(1))
        if origin is None or origin.stored.dtype.name not in ("float32", "float16", "bfloat16"):
            continue
        if len(origin.shape) < 2 or not on_grid(origin, _channel_axis(node, len(origin.shape))):
            continue
        yield QuantSite(
            value=origin.value,
            scheme=NAME,
            role="weight",
            params=QuantParams(origin.stored.dtype, np.array(1.0)),
            codes=origin.stored,
            reader=node.id,
            slot=1,
            view=origin.steps,
            nodes=origin.nodes,
        )


def _data_is_quantized(graph: GraphView, node: NodeView) -> bool:
    data = node.input(0)
    return data is not None and is_dequantize(graph.producer_of(trace_operand(graph, data).source))


def _channel_axis(node: NodeView, rank: int) -> int:
    if node.op_type == "Gemm" and node.int_attribute("transB", 0):
        return 0
    return _CHANNEL_AXIS[node.op_type] % rank


def on_grid(origin: Origin, axis: int) -> bool:
    """True where every output channel is a step times integers from −255 to 255; all-zero channels fit any grid.

    A tensor of which fewer than four elements a channel are not zero can't be told from chance.
    """
    half = origin.stored.dtype.bits == 16
    precision = 2.0 ** -(7 if origin.stored.dtype.name == "bfloat16" else 10) if half else 0.0
    tolerance = TOLERANCE + precision * LEVELS
    if tolerance > 0.1:
        return False  # so coarse a type hides the grid
    rows = np.moveaxis(origin.operand(), axis, 0)
    filled = elements = 0
    for k in range(rows.shape[0]):  # row by row: a float weight shows itself in the first
        row = rows[k].reshape(-1).astype(np.float64)
        count = int(np.count_nonzero(row))
        if not np.isfinite(row).all() or (count and not _row_on_grid(row, tolerance)):
            return False
        filled, elements = filled + (count > 0), elements + count
    return filled > 0 and elements >= 4 * filled


def _row_on_grid(row: npt.NDArray[np.float64], tolerance: float) -> bool:
    """Tries the largest value as 1, 2, … 255 steps, first on a few elements."""
    top = np.abs(row).max()
    steps = top / np.arange(1, LEVELS + 1)
    few = row[:: max(row.size // 32, 1)]
    close = np.abs(few[:, None] / steps - np.rint(few[:, None] / steps)).max(axis=0) <= tolerance
    return any(np.abs(row / s - np.rint(row / s)).max() <= tolerance for s in steps[close])
