"""Sites of integer operators for experiments, until the scheme readers are there."""

from __future__ import annotations

import numpy as np

from visualquant.core.graph import GraphView, NodeView
from visualquant.core.quant import QuantParams, QuantSite
from visualquant.core.tensors import ELEMENT_TYPES, TensorRef, unpack_bits

# op type: (codes, scale, zero point) slots of the weight, and of the bias where there is one
_SLOTS = {
    "QLinearConv": (3, 4, 5, 0),
    "QLinearMatMul": (3, 4, 5, -1),
    "QGemm": (3, 4, 5, 1),
    "ConvInteger": (1, None, 3, 0),
    "MatMulInteger": (1, None, 3, -1),
    "MatMulIntegerToFloat": (1, 3, 5, -1),
    "DynamicQuantizeMatMul": (1, 2, 3, -1),
    "QLinearAdd": (3, 4, 5, None),
    "QLinearMul": (3, 4, 5, None),
}


def find_sites(graph: GraphView) -> list[QuantSite]:
    found = []
    for node in graph.nodes:
        site = None
        if node.op_type in _SLOTS:
            site = _integer(graph, node)
        elif node.op_type == "MatMulNBits":
            site = _nbits(graph, node)
        if site is not None:
            found.append(site)
    return found


def _integer(graph: GraphView, node: NodeView) -> QuantSite | None:
    slot, scale_slot, zero_slot, axis = _SLOTS[node.op_type]
    codes = graph.const(node.input(slot))
    if codes is None:
        return None
    scale_ref = graph.const(node.input(scale_slot)) if scale_slot is not None else None
    zero_ref = graph.const(node.input(zero_slot))
    scale = scale_ref.array().astype(np.float64).reshape(-1) if scale_ref else np.ones(1)
    zero = zero_ref.array().astype(np.int64).reshape(-1) if zero_ref else np.zeros(1, np.int64)
    if axis is None:
        axis = 0
    axis = axis % max(len(codes.shape), 1)
    n = max(scale.size, zero.size)
    if n > 1:
        params = QuantParams(codes.dtype, np.broadcast_to(scale, n).copy(), np.broadcast_to(zero, n).copy(), axis)
    else:
        params = QuantParams(codes.dtype, scale.reshape(()), zero.reshape(()))
    try:
        params.validate(codes.shape)
    except ValueError:
        return None
    return QuantSite(node.input(slot), "qoperator", "weight", params, codes, node.id, slot)


def _nbits(graph: GraphView, node: NodeView) -> QuantSite | None:
    blob, scales, zeros = (graph.const(node.input(k)) for k in (1, 2, 3))
    if blob is None or scales is None:
        return None
    k, n, bits, block = (node.int_attribute(x, 0) for x in ("K", "N", "bits", "block_size"))
    bits = bits or 4
    blocks = -(-k // block)
    raw = blob.array().reshape(n, blocks, -1)
    if bits == 8:
        codes = raw
    else:
        codes = unpack_bits(np.ascontiguousarray(raw).reshape(-1), bits, raw.size * 8 // bits)
    codes = codes.reshape(n, blocks * block)[:, :k]
    scale = scales.array().astype(np.float64).reshape(n, blocks)
    if zeros is None:
        zero = np.full((n, blocks), 1 << (bits - 1), np.int64)
    elif zeros.dtype.is_float:
        zero = zeros.array().astype(np.float64).reshape(n, blocks)
    else:
        packed = zeros.array().reshape(n, -1)
        zero = packed if bits == 8 else np.stack([unpack_bits(r, bits, r.size * 8 // bits) for r in packed])
        zero = zero[:, :blocks].astype(np.int64)
    params = QuantParams(ELEMENT_TYPES["uint8"], scale, zero, 1, block)
    return QuantSite(node.input(1), "matmul_nbits", "weight", params, TensorRef.of(codes.astype(np.uint8)), node.id, 1)
