"""QMoE: the packed weights of all experts of a mixture in one tensor."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from visualquant.core.graph import GraphView, NodeView
from visualquant.core.quant import QuantParams, QuantSite
from visualquant.core.tensors import ELEMENT_TYPES, TensorRef
from visualquant.formats.element_types import integer_type
from visualquant.formats.schemes._affine import broadcast_params
from visualquant.formats.schemes._constants import constant
from visualquant.formats.schemes._flow import place
from visualquant.formats.schemes._packed import Array, packed_codes, stored_bytes, unpack_rows

NAME = "qmoe"


@dataclasses.dataclass(frozen=True, slots=True)
class _Layer:
    """Input slots of one fully connected layer of the experts."""

    weights: int
    scales: int
    zeros: int
    global_scale: int


_LAYERS = {"fc1": _Layer(2, 3, 11, 15), "fc2": _Layer(5, 6, 12, 16), "fc3": _Layer(8, 9, 13, -1)}


def find(graph: GraphView) -> Iterable[QuantSite]:
    """One site for each layer of each node."""
    for node in graph.nodes:
        if (node.domain, node.op_type) != ("com.microsoft", "QMoE"):
            continue
        for name, layer in _LAYERS.items():
            found = stored_bytes(graph, node.input(layer.weights))
            if found is not None:
                site = QuantSite(found[0], NAME, "weight", None, found[1], node.id, layer.weights)
                yield _read(graph, node, name, layer, site, found[1])


def _read(graph: GraphView, node: NodeView, name: str, layer: _Layer, site: QuantSite, stored: TensorRef) -> QuantSite:
    """The site with parameters, or with a problem."""
    where = f"{name} of {place(node)}"
    if len(stored.shape) != 3:
        return dataclasses.replace(site, problem=f"{where} has a weight of shape {list(stored.shape)}, not three axes.")
    kind = str(node.attributes.get("quant_type", "int"))
    block = node.int_attribute("block_size", 0)
    scale = constant(graph, node.input(layer.scales))
    factor = constant(graph, node.input(layer.global_scale)) if layer.global_scale >= 0 else None
    experts, rows, last = stored.shape
    if kind == "fp8":
        return _float8(where, site, stored, scale, factor, block)
    if kind in ("fp4", "nvfp4", "wfp4afp8"):
        why = f"{where} holds its weight in {kind}, in the order of one kind of GPU: no number can be given."
        if kind == "nvfp4" and node.int_attribute("weights_prepacked", -1) != 1:
            return dataclasses.replace(site, problem=why)
        codes = dataclasses.replace(stored, dtype=ELEMENT_TYPES["float4e2m1"], shape=(experts, rows, last * 2))
        block = 16 if kind == "nvfp4" else 32
        if scale is not None and factor is not None:
            scale = scale * factor.reshape(-1, 1, 1)
        return _blocked(where, site, codes, scale, None, block)
    if node.int_attribute("weights_prepacked", -1) == 1:
        why = f"{where} holds its weight in the order of one kind of GPU (weights_prepacked 1): export it with 0."
        return dataclasses.replace(site, problem=why)
    bits = node.int_attribute(f"{name}_expert_weight_bits", node.int_attribute("expert_weight_bits", 4))
    if not 1 <= bits <= 8:
        return dataclasses.replace(site, problem=f"{where} says {bits} bits.")
    shape = (experts, rows, last * 8 // bits)
    packed = packed_codes(stored, bits, shape)
    assert packed is not None
    zero: Array | None = None
    if (given := node.input(layer.zeros)) is not None:
        stored_zero = constant(graph, given)
        blocks = math.ceil(shape[2] / block) if block > 0 else 0
        if stored_zero is not None:
            data = stored_zero.astype(np.uint8)
            zero = unpack_rows(data, bits, shape[:2], blocks) if blocks else unpack_rows(data, bits, shape[:1], rows)
        if zero is None:
            return dataclasses.replace(
                site, problem=f"{where} has zero points that do not fit its shape {list(shape)}."
            )
    return _blocked(where, site, packed, scale, zero, block, bits)


def _blocked(
    where: str, site: QuantSite, codes: TensorRef, scale: Array | None, zero: Array | None, block: int, bits: int = 0
) -> QuantSite:
    """Scales [E, N, blocks] where there are blocks, else [E, N]."""
    experts, rows, columns = codes.shape
    want = (experts, rows, math.ceil(columns / block)) if block > 0 else (experts, rows)
    if scale is None or scale.shape != want:
        shown = "no constant scales" if scale is None else f"scales of shape {list(scale.shape)}"
        return dataclasses.replace(
            site, problem=f"{where} has {shown}, but codes {list(codes.shape)} need {list(want)}."
        )
    if bits and zero is None:
        zero = np.full(want, 1 << (bits - 1), np.uint8)
    code_type = integer_type(bits, signed=False) if bits else codes.dtype
    params: QuantParams | None
    if block > 0:
        top = (1 << bits) - 1 if bits else None
        params = QuantParams(code_type, scale.astype(np.float64), zero, 2, block, 0 if bits else None, top)
    else:
        shift = None if zero is None else zero[..., None]
        params = broadcast_params(code_type, codes.shape, scale[..., None], shift)
    return dataclasses.replace(site, codes=codes, params=params)


def _float8(
    where: str, site: QuantSite, stored: TensorRef, scale: Array | None, factor: Array | None, block: int
) -> QuantSite:
    """Square blocks, or one scale an expert."""
    experts, rows, columns = stored.shape
    wanted = ELEMENT_TYPES["float8e4m3fn"]
    codes = dataclasses.replace(stored, dtype=wanted) if stored.dtype.name == "uint8" else stored
    if block > 0 and scale is not None and scale.shape == (experts, -(-rows // block), -(-columns // block)):
        spread = np.repeat(scale.astype(np.float64), block, axis=1)[:, :rows]
        return dataclasses.replace(site, codes=codes, params=QuantParams(codes.dtype, spread, None, 2, block))
    if block <= 0 and factor is not None and factor.size == experts:
        params = QuantParams(codes.dtype, factor.astype(np.float64).reshape(-1), None, 0)
        return dataclasses.replace(site, codes=codes, params=params)
    return dataclasses.replace(site, problem=f"{where} has scales that do not fit its shape {list(stored.shape)}.")
