"""Weight-only operators of com.microsoft whose codes are small floats: NVFP4 and float8."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from visualquant.core.graph import GraphView, NodeView
from visualquant.core.quant import QuantParams, QuantSite, ViewStep
from visualquant.core.tensors import ELEMENT_TYPES, TensorRef
from visualquant.formats.schemes._constants import constant
from visualquant.formats.schemes._flow import place
from visualquant.formats.schemes._packed import Array, stored_bytes

NAME = "float_weights"


def find(graph: GraphView) -> Iterable[QuantSite]:
    """One site for each stored weight of these operators."""
    for node in graph.nodes:
        read = _READERS.get(node.op_type)
        if node.domain != "com.microsoft" or read is None:
            continue
        found = stored_bytes(graph, node.input(1))
        if found is not None:
            yield read(graph, node, QuantSite(found[0], NAME, "weight", None, found[1], node.id, 1), found[1])


def _nvfp4(graph: GraphView, node: NodeView, site: QuantSite, stored: TensorRef) -> QuantSite:
    """[N, K/2] bytes of E2M1, one float8 scale for 16 values, one float32 scale for all."""
    if len(stored.shape) != 2:
        return dataclasses.replace(site, problem=f"{place(node)} has a weight of shape {list(stored.shape)}.")
    codes = dataclasses.replace(stored, dtype=ELEMENT_TYPES["float4e2m1"], shape=(stored.shape[0], stored.shape[1] * 2))
    inner = stored_bytes(graph, node.input(2))
    outer = constant(graph, node.input(3))
    if inner is None or outer is None or outer.size != 1:
        return dataclasses.replace(site, problem=f"{place(node)} has a scale that is missing or no constant.")
    scale = dataclasses.replace(inner[1], dtype=ELEMENT_TYPES["float8e4m3fn"]).array().astype(np.float64)
    return _blocked(node, site, codes, scale * float(outer.reshape(-1)[0]), node.int_attribute("block_size", 16))


def _float8(graph: GraphView, node: NodeView, site: QuantSite, stored: TensorRef) -> QuantSite:
    """[N, K] of E4M3, one float32 scale for a run of K."""
    if len(stored.shape) != 2:
        return dataclasses.replace(site, problem=f"{place(node)} has a weight of shape {list(stored.shape)}.")
    codes = dataclasses.replace(stored, dtype=ELEMENT_TYPES["float8e4m3fn"]) if stored.dtype.is_integer else stored
    return _blocked(node, site, codes, constant(graph, node.input(2)), node.int_attribute("block_size", 128))


def _blocked(node: NodeView, site: QuantSite, codes: TensorRef, scale: Array | None, block: int) -> QuantSite:
    n, k = codes.shape
    want = (n, -(-k // block)) if block > 0 else (n, 0)
    if scale is None or scale.size != want[0] * want[1] or not scale.size:
        shown = "no constant scales" if scale is None else f"scales of shape {list(scale.shape)}"
        why = f"{place(node)} has {shown}, but codes {list(codes.shape)} in blocks of {block} need {list(want)}."
        return dataclasses.replace(site, problem=why)
    params = QuantParams(codes.dtype, scale.astype(np.float64).reshape(want), None, 1, block)
    return dataclasses.replace(site, codes=codes, params=params, view=(ViewStep("transpose", (1, 0)),))


def _gemm(graph: GraphView, node: NodeView, site: QuantSite, stored: TensorRef) -> QuantSite:
    """GemmFloat8: B as Gemm's, one scale."""
    scale = constant(graph, node.input(4))
    if not stored.dtype.is_float or stored.dtype.bits != 8:
        return dataclasses.replace(site, problem=f"{place(node)} has a {stored.dtype} weight, not a float8 one.")
    if scale is None or scale.size != 1:
        return dataclasses.replace(site, problem=f"{place(node)} has no single constant scale for its weight.")
    params = QuantParams(stored.dtype, scale.astype(np.float64).reshape(()))
    return dataclasses.replace(site, params=params)


_READERS = {
    "MatMulBlockQuantizedFp4Weight": _nvfp4,
    "MatMulBlockQuantizedFp8Weight": _float8,
    "GemmFloat8": _gemm,
}
