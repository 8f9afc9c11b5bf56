"""MatMulBnb4: 4-bit table codes (NF4, FP4) of bitsandbytes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from visualquant.core.graph import GraphView, NodeView
from visualquant.core.quant import QuantParams, QuantSite, ViewStep
from visualquant.core.tensors import ELEMENT_TYPES, ComputedSource, TensorRef
from visualquant.formats.element_types import FP4_BNB, FP4_BNB_TABLE, NF4, NF4_TABLE
from visualquant.formats.schemes._constants import constant
from visualquant.formats.schemes._flow import place
from visualquant.formats.schemes._packed import stored_bytes

NAME = "matmul_bnb4"


def find(graph: GraphView) -> Iterable[QuantSite]:
    """One site for each node with a stored weight."""
    for node in graph.nodes:
        if (node.domain, node.op_type) != ("com.microsoft", "MatMulBnb4"):
            continue
        found = stored_bytes(graph, node.input(1))
        if found is not None:
            site = QuantSite(found[0], NAME, "weight", None, found[1], node.id, 1)
            yield _read(graph, node, site, found[1])


def _read(graph: GraphView, node: NodeView, site: QuantSite, stored: TensorRef) -> QuantSite:
    """The site with parameters, or with a problem."""
    where = place(node)
    n, k = node.int_attribute("N", 0), node.int_attribute("K", 0)
    block, kind = node.int_attribute("block_size", 0), node.int_attribute("quant_type", -1)
    if n <= 0 or k <= 0 or block <= 0 or kind not in (0, 1):
        return dataclasses.replace(site, problem=f"{where} says N {n}, K {k}, blocks of {block}, type {kind}.")
    if stored.nbytes != (n * k + 1) // 2:
        why = f"{where} stores {stored.nbytes} bytes of codes, but N {n} and K {k} take {(n * k + 1) // 2}."
        return dataclasses.replace(site, problem=why)
    scale = constant(graph, node.input(2))
    blocks = math.ceil(n * k / block)
    if scale is None or scale.size != blocks:
        count = "no constant absmax" if scale is None else f"an absmax of {scale.size} values"
        return dataclasses.replace(site, problem=f"{where} has {count} for {blocks} blocks of {block}.")

    def swapped() -> npt.NDArray[np.uint8]:
        data = stored.raw()  # the first element stands in the high half of a byte
        return np.asarray((data << np.uint8(4)) | (data >> np.uint8(4)), np.uint8)

    in_rows = k % block == 0
    shape = (n, k) if in_rows else (n * k,)
    codes = TensorRef(ELEMENT_TYPES["uint4"], shape, ComputedSource(swapped))
    params = QuantParams(
        NF4 if kind == 1 else FP4_BNB,
        scale.astype(np.float64).reshape((n, k // block) if in_rows else (blocks,)),
        axis=1 if in_rows else 0,
        block_size=block,
        table=NF4_TABLE if kind == 1 else FP4_BNB_TABLE,
    )
    view = () if in_rows else (ViewStep("reshape", (n, k)),)
    turned = (ViewStep("transpose", (1, 0)),) if node.int_attribute("transB", 1) else ()
    return dataclasses.replace(site, codes=codes, params=params, view=(*view, *turned))
