"""Small constant tensors (scales, zero points), also where a few operators stand between them and the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.graph import GraphView, ValueId
from visualquant.core.trace import trace_operand
from visualquant.formats.schemes._qdq_ops import is_dequantize
from visualquant.kernels.api import release

Array = npt.NDArray[Any]
MAX_DEPTH = 16


def constant(graph: GraphView, value: ValueId | None, depth: int = 0) -> Array | None:
    """The array behind a value: integers in their own type, floats in float64; None where data decides.

    Follows layout operators, Cast, Mul, Div and DequantizeLinear: scales that are themselves quantized
    (two levels), products of scales, and reshaped scales.
    """
    if value is None or depth > MAX_DEPTH:
        return None
    trace = trace_operand(graph, value)
    stored = graph.const(trace.source)
    if stored is not None:
        if stored.dtype.kind not in ("float", "int", "uint", "bool"):
            return None
        array = stored.array()
        if stored.dtype.is_float or stored.dtype.is_packed:
            array = array.astype(
                np.float64 if stored.dtype.is_float else np.int8 if stored.dtype.kind == "int" else np.uint8
            )
            release(stored)  # NOTE: scales of millions of blocks need not be in memory twice
    else:
        made = _computed(graph, trace.source, depth + 1)
        if made is None:
            return None
        array = made
    if not trace.exact:
        return array if array.size == 1 else None
    for step in trace.steps:
        array = step.apply(array)
    return array


def _computed(graph: GraphView, value: ValueId, depth: int) -> Array | None:
    node = graph.producer_of(value)
    if node is None or node.output() is None:
        return None
    if node.op_type in ("Mul", "Div") and node.domain == "":
        left, right = constant(graph, node.input(0), depth), constant(graph, node.input(1), depth)
        if left is None or right is None:
            return None
        left, right = left.astype(np.float64), right.astype(np.float64)
        try:
            with np.errstate(all="ignore"):
                product: Array = left * right if node.op_type == "Mul" else left / right
        except ValueError:  # shapes that do not broadcast: the caller reports that no constant stands there
            return None
        return product
    if is_dequantize(node):
        codes, scale = constant(graph, node.input(0), depth), constant(graph, node.input(1), depth)
        if codes is None or scale is None or scale.size != 1:
            return None
        zero = constant(graph, node.input(2), depth)
        shift = 0.0 if zero is None or zero.size != 1 else float(zero.reshape(-1)[0])
        with np.errstate(all="ignore"):
            out: Array = (codes.astype(np.float64) - shift) * float(scale.reshape(-1)[0])
        return out
    return None
