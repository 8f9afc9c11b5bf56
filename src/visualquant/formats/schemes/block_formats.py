"""Block formats of AMD Quark: block floating point (BFP, BFP') and microscaling (MX) of weights stored in float."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

import ml_dtypes
import numpy as np
import numpy.typing as npt

from visualquant.core.graph import GraphView, NodeView, ValueId
from visualquant.core.quant import QuantParams, QuantSite
from visualquant.core.tensors import ELEMENT_TYPES, ElementType
from visualquant.formats.element_types import held_in, integer_type
from visualquant.formats.schemes._affine import Array, Reading
from visualquant.formats.schemes._flow import Flow, place
from visualquant.formats.schemes._quantize import computed, to_float_codes
from visualquant.formats.schemes._sites import activation_site, origin_of, weight_sites

NAME = "block_formats"
_BFP = frozenset({("com.amd.quark", "BFPQuantizeDequantize"), ("com.vai.quantize", "BFPFixNeuron")})
_MX = frozenset({("com.amd.quark", "MXQuantizeDequantize"), ("com.vai.quantize", "MXFixNeuron")})

# Element types of MX: (ONNX type, exponent of the largest value). Source: Quark, custom_op_mx.cc.
_MX_ELEMENTS = {
    "fp8_e5m2": ("float8e5m2", 15),
    "fp8_e4m3": ("float8e4m3fn", 8),
    "fp6_e3m2": ("float6e3m2", 4),
    "fp6_e2m3": ("float6e2m3", 2),
    "fp4_e2m1": ("float4e2m1", 2),
    "int8": ("int8", 0),
}
_ROUND: dict[int, Callable[[Array], Array]] = {
    0: lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),  # half away from zero
    1: lambda x: np.floor(x + 0.5),  # half up
    2: np.rint,  # half to even
}


@dataclasses.dataclass(frozen=True, slots=True)
class _Format:
    """One block format: attributes of a node with their defaults filled in."""

    scheme: str
    code_type: ElementType
    axis: int
    block: int
    rounding: int
    emax: int = 0
    mantissa: int = 0
    sub_block: int = 0
    shift_limit: int = 0
    by_compiler: bool = False
    via_bfloat16: bool = False


def find(graph: GraphView) -> Iterable[QuantSite]:
    """Weights and biases of the file, and activations, behind quantize-dequantize nodes."""
    flow = Flow(graph)
    for node in graph.nodes:
        kind = (node.domain, node.op_type)
        if (kind in _BFP or kind in _MX) and (made := node.output()) is not None:
            yield from _node(flow, node, made)


def _node(flow: Flow, node: NodeView, made: ValueId) -> Iterator[QuantSite]:
    origin = origin_of(flow.graph, node.input(0))
    form, why = _format(node)
    scheme = "bfp" if (node.domain, node.op_type) in _BFP else "mx"
    if origin is None or not origin.stored.dtype.is_float:
        yield activation_site(flow, scheme, made, None, nodes=(node.id,), dequantized=made)
        return
    if origin.stored.size <= 1:
        return  # the operator passes single values through
    rank = len(origin.shape)
    reading, codes = Reading(None, why), origin.stored
    if form is not None and not (rank == 1 or -rank <= form.axis < rank):
        reading = Reading(None, f"{place(node)} names axis {form.axis} of a tensor of shape {list(origin.shape)}.")
    elif form is not None:
        axis = 0 if rank == 1 else form.axis % rank
        scale = _scales(origin.operand(), form, axis)
        block = form.sub_block or form.block
        low, high = _limits(form)
        params = QuantParams(form.code_type, scale, None, axis, block, low, high)
        reading = Reading(params)
        kept = form
        codes = computed(held_in(form.code_type), origin.shape, lambda: _codes(origin.operand(), params, kept))
    nodes = (*origin.nodes, node.id)
    yield from weight_sites(flow, scheme, origin.value, codes, reading, made, (), nodes, at_run_time=True)


def _format(node: NodeView) -> tuple[_Format | None, str | None]:
    """The format that a node's attributes name, or why there is none.

    Source: Quark, custom_op_bfp.h and custom_op_mx.h, for what left-out attributes mean.
    """
    axis, rounding = node.int_attribute("axis", 1), node.int_attribute("rounding_mode", 0)
    if rounding not in _ROUND:
        return None, f"{place(node)} says rounding mode {rounding}; 0, 1 and 2 are defined."
    if (node.domain, node.op_type) in _MX:
        name, block = str(node.attributes.get("element_dtype", "int8")), node.int_attribute("block_size", 32)
        if name not in _MX_ELEMENTS or block <= 0:
            return None, f"{place(node)} says elements of type {name!r} in blocks of {block}: not a format of MX."
        element, emax = _MX_ELEMENTS[name]
        return _Format("mx", ELEMENT_TYPES[element], axis, block, rounding, emax), None
    bits, block = node.int_attribute("bit_width", 16), node.int_attribute("block_size", 8)
    method = str(node.attributes.get("bfp_method", "to_bfp"))
    prime = method in ("to_bfp_prime", "to_bfp_prime_shared")
    sub = node.int_attribute("sub_block_size", 2) if prime else 0
    known = prime or method == "to_bfp"
    if not 10 <= bits <= 24 or block <= 0 or not known or (prime and (sub <= 0 or block % sub)):
        why = f"{place(node)} says {method!r} with {bits} bits in blocks of {block} and {sub}: not a format of BFP."
        return None, why
    return _Format(
        scheme="bfp",
        code_type=integer_type(bits - 8, signed=True),
        axis=axis,
        block=block,
        rounding=rounding,
        mantissa=bits - 9,
        sub_block=sub,
        shift_limit=(1 << node.int_attribute("sub_block_shift_bits", 1)) - 1,
        by_compiler=node.int_attribute("use_compiler_version_cpu_kernel", 0) != 0 and not prime,
        via_bfloat16=node.int_attribute("convert_to_bfloat_before_bfp", 0) != 0,
    ), None


def _limits(form: _Format) -> tuple[int | None, int | None]:
    if form.scheme == "mx":
        return (-128, 127) if form.code_type.is_integer else (None, None)
    top = (1 << form.mantissa) - 1
    return (-top - 1, top) if form.by_compiler else (-top, top)


def _blocks(x: Array, axis: int, block: int) -> Array:
    """Elements along an axis as [..., blocks, block] with that axis last, padded with zeros."""
    lines = np.moveaxis(x, axis, -1)
    short = -lines.shape[-1] % block
    lines = np.pad(lines, [(0, 0)] * (lines.ndim - 1) + [(0, short)])
    return lines.reshape(*lines.shape[:-1], -1, block)


def _exponents(x: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Biased exponents of float32."""
    return ((x.view(np.uint32) >> np.uint32(23)) & np.uint32(0xFF)).astype(np.int64)


def _prepared(x: Array, form: _Format) -> npt.NDArray[np.float32]:
    if form.via_bfloat16:
        x = x.astype(ml_dtypes.bfloat16)
    return np.ascontiguousarray(x, np.float32)


def _scales(x: Array, form: _Format, axis: int) -> npt.NDArray[np.float64]:
    """One power of two for each block (BFP': each sub-block), with the axis shortened to its blocks."""
    lines = _blocks(_prepared(x, form), axis, form.block)
    biased = _exponents(lines)
    if form.sub_block:
        shared = biased.max(axis=-1, keepdims=True)
        subs = biased.reshape(*biased.shape[:-1], -1, form.sub_block).max(axis=-1)
        shift = np.minimum(shared - subs, form.shift_limit)
        power = (shared - 127 - shift + 1 - form.mantissa).reshape(*subs.shape[:-2], -1)
    else:
        shared = np.where(biased == 0xFF, 0, biased).max(axis=-1)
        power = shared - 127 - (6 + form.emax if form.code_type.name == "int8" and form.scheme == "mx" else form.emax)
        if form.scheme == "bfp":
            power = shared - 127 - (form.mantissa - 1)
        if form.by_compiler:
            steps = _ROUND[form.rounding](lines / np.exp2(power.astype(np.float64))[..., None])
            power = power + np.any((steps >= 128) | (steps < -128), axis=-1)
    count = -(-x.shape[axis] // (form.sub_block or form.block))
    scales: npt.NDArray[np.float64] = np.moveaxis(np.exp2(power.astype(np.float64))[..., :count], -1, axis)
    return np.ascontiguousarray(scales)


def _codes(x: Array, params: QuantParams, form: _Format) -> Array:
    """Codes of all elements; NaN and infinity, which the operator passes through, become 0 (or NaN)."""
    data = _prepared(x, form)
    if form.sub_block:
        data = np.where(_exponents(data) == 0, np.float32(0), data)  # BFP' flushes subnormal values
    with np.errstate(all="ignore"):
        steps = data / params.broadcast(params.scale, x.shape)
    if params.code_type.is_float:
        return to_float_codes(steps.astype(np.float32), params.code_type)
    if form.sub_block and form.rounding == 1:  # ties by magnitude: up for positive, towards zero for negative values
        rounded = np.floor(steps + 0.5)
    else:
        rounded = _ROUND[form.rounding](steps)
    whole: Array = np.clip(np.nan_to_num(rounded, nan=0.0, posinf=0.0, neginf=0.0), params.qmin, params.qmax)
    return whole
