"""MatMulNBits and the operators of com.microsoft that fuse several of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from visualquant.core.graph import GraphView, NodeView
from visualquant.core.quant import QuantParams, QuantSite, ViewStep
from visualquant.core.tensors import TensorRef
from visualquant.formats.element_types import integer_type
from visualquant.formats.schemes._constants import constant
from visualquant.formats.schemes._flow import place
from visualquant.formats.schemes._packed import Array, packed_codes, stored_bytes, unpack_rows
from visualquant.formats.schemes._quantize import computed

NAME = "matmul_nbits"


@dataclasses.dataclass(frozen=True, slots=True)
class _Matrix:
    """Input slots and attribute names of one packed matrix; -1 where the operator has no such input."""

    codes: int
    scales: int
    zeros: int = -1
    group_index: int = -1
    rows: str = "N"
    bits: str = "bits"
    block: str = "block_size"


_OPERATORS: dict[str, tuple[_Matrix, ...]] = {
    "MatMulNBits": (_Matrix(1, 2, 3, 4),),
    "MatMulNBitsMlp": (_Matrix(3, 4), _Matrix(6, 7)),
    "MatMulNBitsQkv": (_Matrix(3, 4, rows="Nq"), _Matrix(6, 7, rows="Nkv"), _Matrix(9, 10, rows="Nkv")),
    "MatMulNBitsQLoRA": (_Matrix(1, 2),),
}


def find(graph: GraphView) -> Iterable[QuantSite]:
    """One site for each packed matrix of each node."""
    for node in graph.nodes:
        if node.domain != "com.microsoft":
            continue
        for matrix in _OPERATORS.get(node.op_type, ()):
            site = _site(graph, node, matrix)
            if site is not None:
                yield site


def _site(graph: GraphView, node: NodeView, matrix: _Matrix) -> QuantSite | None:
    found = stored_bytes(graph, node.input(matrix.codes))
    if found is None:
        return None
    value, stored = found
    if stored.size == 0:  # an omitted projection
        return None
    blank = QuantSite(value, NAME, "weight", None, stored, node.id, matrix.codes)
    problem = _problem(node, matrix, stored)
    if problem is not None:
        return dataclasses.replace(blank, problem=problem)
    n, k = node.int_attribute(matrix.rows, 0), node.int_attribute("K", 0)
    bits, block = node.int_attribute(matrix.bits, 4), node.int_attribute(matrix.block, 0)
    blocks = -(-k // block)
    shape = (n, blocks * block)
    codes = packed_codes(stored, bits, shape)
    assert codes is not None
    where = place(node)
    scale = constant(graph, node.input(matrix.scales))
    if scale is None or scale.size != n * blocks:
        count = "no constant scales" if scale is None else f"{scale.size} scales"
        why = f"{where} has {count} for {n} columns of {blocks} blocks: it needs {n * blocks}."
        return dataclasses.replace(blank, problem=why)
    zero, why_not = _zero_points(graph, node, matrix, bits, (n, blocks))
    if why_not is not None:
        return dataclasses.replace(blank, problem=f"{where} {why_not}")
    params = QuantParams(
        integer_type(bits, signed=False),
        scale.astype(np.float64).reshape(n, blocks),
        zero,
        axis=1,
        block_size=block,
        qmin=0,
        qmax=(1 << bits) - 1,
    )
    permutation: npt.NDArray[np.int64] | None = None
    groups = constant(graph, node.input(matrix.group_index)) if matrix.group_index >= 0 else None
    if groups is not None and groups.size >= k:
        params, codes, permutation = _grouped(params, codes, groups.reshape(-1)[:k].astype(np.int64))
    view = () if codes.shape[1] == k else (ViewStep("slice", (1, 0, k)),)
    return dataclasses.replace(
        blank,
        params=params,
        codes=codes,
        view=(*view, ViewStep("transpose", (1, 0))),
        permutation=permutation,
    )


def _problem(node: NodeView, matrix: _Matrix, stored: TensorRef) -> str | None:
    n, k = node.int_attribute(matrix.rows, 0), node.int_attribute("K", 0)
    bits, block = node.int_attribute(matrix.bits, 4), node.int_attribute(matrix.block, 0)
    where = place(node)
    if n <= 0 or k <= 0 or block <= 0 or not 1 <= bits <= 8:
        return f"{where} says {matrix.rows} {n}, K {k}, {bits} bits and blocks of {block}: no weight has such a form."
    if node.int_attribute("weight_prepacked", 0):
        return f"{where} holds its weight in the order of one kind of GPU (weight_prepacked): export it without."
    need = n * -(-k // block) * -(-block * bits // 8)
    if stored.nbytes != need:
        return (
            f"{where} stores {stored.nbytes} bytes of codes, but {n} columns of {k} values with {bits} bits in blocks "
            f"of {block} take {need}: the tensor is cut short, or bits, block_size, K or N are wrong."
        )
    return None


def _zero_points(
    graph: GraphView, node: NodeView, matrix: _Matrix, bits: int, shape: tuple[int, int]
) -> tuple[Array | None, str | None]:
    """Zero points [N, blocks], and what is wrong with them; half of the range where none are given."""
    given = node.input(matrix.zeros) if matrix.zeros >= 0 else None
    if given is None:
        return np.full(shape, 1 << (bits - 1), np.uint8), None
    zero = constant(graph, given)
    if zero is None:
        return None, "takes zero points that are no constant of the file."
    if zero.dtype.kind == "f":
        if zero.size == shape[0] * shape[1]:
            return zero.reshape(shape), None
    elif (unpacked := unpack_rows(zero.astype(np.uint8), bits, (shape[0],), shape[1])) is not None:
        return unpacked, None
    return None, f"has {zero.size} zero points (or bytes of them) for {shape[0]} columns of {shape[1]} blocks."


def _grouped(
    params: QuantParams, codes: TensorRef, groups: npt.NDArray[np.int64]
) -> tuple[QuantParams, TensorRef, npt.NDArray[np.int64] | None]:
    """Codes in the order of their groups, where g_idx scatters the members of a group over K.

    Source: W[k, n] = (code[n, k] − zero_point[n, g_idx[k]]) · scale[n, g_idx[k]].
    """
    k, block = groups.size, params.block_size or 1
    plain = np.arange(k) // block
    if (groups == plain).all():
        return params, codes, None
    order = np.argsort(groups, kind="stable")
    shape = (codes.shape[0], k)
    if (groups[order] == plain).all():
        return params, computed(codes.dtype, shape, lambda: codes.array()[:, order]), order
    # NOTE: groups of unequal size: no blocks any more, so each element names its own scale
    groups = groups % params.scale.shape[1]
    single = dataclasses.replace(
        params,
        scale=params.scale[:, groups],
        zero_point=None if params.zero_point is None else params.zero_point[:, groups],
        block_size=1,
    )
    return single, computed(codes.dtype, shape, lambda: codes.array()[:, :k]), None
