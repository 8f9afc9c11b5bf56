"""GatherBlockQuantized: an embedding table in blocks that share a scale."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from visualquant.core.graph import GraphView, NodeView
from visualquant.core.quant import QuantParams, QuantSite
from visualquant.core.tensors import TensorRef
from visualquant.formats.schemes._affine import code_range
from visualquant.formats.schemes._constants import constant
from visualquant.formats.schemes._flow import place
from visualquant.formats.schemes._packed import Array, packed_codes, stored_bytes, unpack_rows

NAME = "gather_block_quantized"


def find(graph: GraphView) -> Iterable[QuantSite]:
    """One site for each node with a stored table."""
    for node in graph.nodes:
        if (node.domain, node.op_type) != ("com.microsoft", "GatherBlockQuantized"):
            continue
        found = stored_bytes(graph, node.input(0))
        if found is not None:
            site = QuantSite(found[0], NAME, "weight", None, found[1], node.id, 0)
            yield _read(graph, node, site, found[1])


def _read(graph: GraphView, node: NodeView, site: QuantSite, stored: TensorRef) -> QuantSite:
    """The site with parameters, or with a problem."""
    where = place(node)
    bits, block = node.int_attribute("bits", 4), node.int_attribute("block_size", 128)
    packed = stored.dtype.name == "uint8"
    if not stored.shape or (packed and bits not in (2, 4, 8)):
        return dataclasses.replace(site, problem=f"{where} says {bits} bits for a table of shape {list(stored.shape)}.")
    shape = (*stored.shape[:-1], stored.shape[-1] * 8 // bits) if packed else stored.shape
    codes = packed_codes(stored, bits, shape) if packed else stored
    assert codes is not None
    axis = node.int_attribute("quantize_axis", 1)
    if not -len(shape) <= axis < len(shape) or block < 0:
        return dataclasses.replace(site, problem=f"{where} has no axis {axis} to quantize, or blocks of {block}.")
    axis %= len(shape)
    block = block or max(shape[axis], 1)
    want = (*shape[:axis], math.ceil(shape[axis] / block), *shape[axis + 1 :])
    scale = constant(graph, node.input(2))
    if scale is None or scale.ndim != len(want) or any(n not in (1, m) for n, m in zip(scale.shape, want, strict=True)):
        shown = "no constant scale" if scale is None else f"a scale of shape {list(scale.shape)}"
        why = f"{where} has {shown}, but a table of shape {list(shape)} in blocks of {block} along axis {axis} needs "
        return dataclasses.replace(site, problem=f"{why}{list(want)}.")
    zero: Array | None = np.full(want, 1 << (bits - 1), np.uint8) if packed else None
    if node.input(3) is not None:
        zero = _zero_points(graph, node, bits if packed else 0, want)
        if zero is None:
            return dataclasses.replace(site, problem=f"{where} has zero points that do not fit scales {list(want)}.")
    low, high = code_range(codes.dtype)
    spread = np.ascontiguousarray(np.broadcast_to(scale.astype(np.float64), want))
    return dataclasses.replace(site, codes=codes, params=QuantParams(codes.dtype, spread, zero, axis, block, low, high))


def _zero_points(graph: GraphView, node: NodeView, bits: int, want: tuple[int, ...]) -> Array | None:
    """Zero points in the shape of the scales; `bits` is 0 where they are not packed."""
    zero = constant(graph, node.input(3))
    if zero is None:
        return None
    if bits:
        return unpack_rows(zero.astype(np.uint8), bits, want[:-1], want[-1])
    return zero.reshape(want) if zero.size == math.prod(want) else None
