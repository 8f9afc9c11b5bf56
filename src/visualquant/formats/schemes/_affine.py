"""Scale and zero point of affine codes: from constants of any stored shape to validated `QuantParams`."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.graph import GraphView, ValueId
from visualquant.core.quant import QuantParams, QuantParamsError, ViewStep
from visualquant.core.tensors import ElementType
from visualquant.formats.schemes._constants import constant

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """Parameters, or why there are none; both where one reading alone fits a malformed file."""

    params: QuantParams | None
    problem: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Spec:
    """What a node says about its codes.

    Attributes:
        where: how to name the place in a message, e.g. "the DequantizeLinear 'w_dq'".
        code_type: of the codes.
        shape: of the codes that the node reads; None where unknown.
        scale, zero_point: value ids; None where left out.
        axis: as in the attribute; None where it is left out.
        default_axis: what a left-out axis means; None where the operator knows one scale for a tensor only.
        block_size: 0 where there are no blocks.
        qmin, qmax: narrower range of codes, or None for that of the type.
        scale_is_exponent: the scale is stored as the exponent byte of float8e8m0, in an integer tensor.
    """

    where: str
    code_type: ElementType
    shape: Shape | None
    scale: ValueId | None
    zero_point: ValueId | None
    axis: int | None = None
    default_axis: int | None = 1
    block_size: int = 0
    qmin: int | None = None
    qmax: int | None = None
    scale_is_exponent: bool = False


def code_range(code_type: ElementType) -> tuple[int | None, int | None]:
    """Lowest and highest code of an integer type; (None, None) for float codes."""
    if not code_type.is_integer:
        return None, None
    if code_type.kind == "uint":
        return 0, (1 << code_type.bits) - 1
    return -(1 << (code_type.bits - 1)), (1 << (code_type.bits - 1)) - 1


def read_affine(graph: GraphView, spec: Spec, *, stored: bool = True) -> Reading:
    """The parameters that a node's constants give.

    Args:
        graph: the model.
        spec: what the node says.
        stored: True for tensors in the file: then a missing or computed scale is a problem, not just unknown.
    """
    scale = constant(graph, spec.scale)
    if scale is None:
        if not stored and spec.scale is not None:
            return Reading(None)
        why = "has no scale" if spec.scale is None else "takes a scale that is no constant of the file"
        return Reading(None, f"{spec.where} {why}, so its codes have no value that can be compared.")
    if spec.scale_is_exponent and scale.dtype.kind in "iu":
        scale = np.exp2(scale.astype(np.float64) - 127)
    zero = constant(graph, spec.zero_point)
    if zero is None and spec.zero_point is not None:
        if not stored:
            return Reading(None)
        return Reading(None, f"{spec.where} takes a zero point that is no constant of the file.")
    if zero is not None and not zero.any() and not spec.code_type.is_integer:
        zero = None
    return affine_params(spec, scale.astype(np.float64), zero)


def affine_params(spec: Spec, scale: npt.NDArray[np.float64], zero: Array | None) -> Reading:
    """Parameters from arrays, by the rules of DequantizeLinear; see `Spec`."""
    axis, block, shaped, problem = _layout(spec, scale)
    if shaped is None:
        return Reading(None, problem)
    fitted, zero_problem = _zero_like(spec, zero, shaped)
    if zero_problem is not None and fitted is None:
        return Reading(None, zero_problem)
    low, high = code_range(spec.code_type)
    params = QuantParams(
        spec.code_type,
        shaped,
        fitted,
        axis,
        block,
        low if spec.qmin is None else spec.qmin,
        high if spec.qmax is None else spec.qmax,
    )
    if spec.shape is not None:
        try:
            params.validate(spec.shape)
        except QuantParamsError as error:
            return Reading(None, f"{spec.where}: {error}.")
    return Reading(params, problem or zero_problem)


_Layout = tuple[int | None, int | None, npt.NDArray[np.float64] | None, str | None]


def _layout(spec: Spec, scale: npt.NDArray[np.float64]) -> _Layout:
    """(axis, block size, scale in the shape that `QuantParams` wants, problem)."""
    shape = spec.shape
    if scale.size == 0:
        return None, None, None, f"{spec.where} has a scale without elements."
    if spec.block_size:
        return _blocked(spec, scale)
    if scale.size == 1:  # also per channel with one channel: the same thing
        return None, None, scale.reshape(()), None
    if shape is None:
        axis = spec.axis if spec.axis is not None else spec.default_axis
        if scale.ndim == 1 and axis is not None and axis >= 0:
            return axis, None, scale, None
        return None, None, None, f"{spec.where} has {scale.size} scales, and the shape of its input is unknown."
    axis = _normal_axis(spec.axis, shape)
    if spec.axis is None and spec.default_axis is not None:
        axis = 0 if len(shape) == 1 else _normal_axis(spec.default_axis, shape)
    flat = scale.reshape(-1)
    if axis is not None and scale.ndim == 1 and flat.size == shape[axis]:
        return axis, None, flat, None
    along = f"axis {axis}, which has {shape[axis]}" if axis is not None else "no axis that is named"
    problem = (
        f"{spec.where} has a scale of shape {list(scale.shape)} for codes of shape {list(shape)} along {along}. "
        "The standard takes one scale, or one for each element of that axis"
    )
    if spec.default_axis is None:
        problem += " (at this opset: one scale for the whole tensor; export with opset 13 or newer)"
    one_long = sum(n != 1 for n in scale.shape) == 1
    fits = [k for k, n in enumerate(shape) if n == flat.size]
    if one_long and axis in fits:
        return axis, None, flat, f"{problem}; read along axis {axis} all the same."
    if one_long and len(fits) == 1:
        return fits[0], None, flat, f"{problem}; read along axis {fits[0]}, the only one of that length."
    return None, None, None, problem + "."


def _blocked(spec: Spec, scale: npt.NDArray[np.float64]) -> _Layout:
    shape, block = spec.shape, spec.block_size
    if shape is None:
        return None, None, None, f"{spec.where} has blocks of {block}, and the shape of its input is unknown."
    if block < 0:
        return None, None, None, f"{spec.where} says a block size of {block}, which is not positive."
    axis = _normal_axis(spec.axis if spec.axis is not None else spec.default_axis, shape)
    if axis is None:
        return None, None, None, f"{spec.where} names axis {spec.axis}, which codes of shape {list(shape)} do not have."

    def wanted(k: int) -> Shape:
        return (*shape[:k], math.ceil(shape[k] / block), *shape[k + 1 :])

    if scale.shape == wanted(axis):
        return axis, block, scale, None
    problem = (
        f"{spec.where} has a scale of shape {list(scale.shape)}, but codes of shape {list(shape)} in blocks of {block} "
        f"along axis {axis} need {list(wanted(axis))}"
    )
    fits = [k for k in range(len(shape)) if scale.shape == wanted(k)]
    if len(fits) == 1:
        return fits[0], block, scale, f"{problem}; read along axis {fits[0]}, the only one that fits."
    if scale.size == math.prod(wanted(axis)) and scale.ndim == 1:
        return axis, block, scale.reshape(wanted(axis)), f"{problem}; read in that order all the same."
    return None, None, None, problem + "."


def _normal_axis(axis: int | None, shape: Shape | None) -> int | None:
    """The axis counted from 0; None where it is left out or does not exist."""
    if axis is None or shape is None or not -len(shape) <= axis < len(shape):
        return None
    return axis % len(shape)


def _zero_like(spec: Spec, zero: Array | None, scale: Array) -> tuple[Array | None, str | None]:
    """The zero point in the scale's shape, and what is wrong with it."""
    if zero is None:
        return None, None
    if zero.size == scale.size:
        return zero.reshape(scale.shape), None
    problem = (
        f"{spec.where} has {zero.size} zero points for {scale.size} scales: the standard wants as many of one as of "
        "the other"
    )
    if zero.size == 1:
        spread = np.full(scale.shape, zero.reshape(-1)[0])
        return spread, None if not zero.any() else f"{problem}; the one is used for all."
    return None, problem + "."


def pull_back(params: QuantParams, steps: tuple[ViewStep, ...], shapes: tuple[Shape, ...]) -> QuantParams | None:
    """Parameters of the tensor before some layout steps, from those after them.

    Args:
        params: of the tensor after all steps.
        steps: in the order in which they are applied.
        shapes: the shape before each step, then the last one.

    Returns:
        None where the scales are not constant along one axis (or in blocks of one axis) before the steps.
    """
    if params.axis is None:
        return params
    axis, scale, zero = params.axis, params.scale, params.zero_point
    for step, before, after in zip(reversed(steps), reversed(shapes[:-1]), reversed(shapes[1:]), strict=True):
        if step.kind == "transpose":
            if params.block_size is not None:
                inverse = np.argsort(step.args)
                scale = scale.transpose(inverse)
                zero = None if zero is None else zero.transpose(inverse)
            axis = step.args[axis]
        elif step.kind == "reshape":
            found = _same_axis(before, after, axis, blocked=params.block_size is not None)
            if found is None:
                return None
            if params.block_size is not None:
                want = (*before[:found], scale.shape[axis], *before[found + 1 :])
                scale = scale.reshape(want)
                zero = None if zero is None else zero.reshape(want)
            axis = found
        else:
            return None
    return dataclasses.replace(params, axis=axis, scale=scale, zero_point=zero)


def _same_axis(before: Shape, after: Shape, axis: int, *, blocked: bool) -> int | None:
    """The axis before a reshape that is the given one after it, None where a reshape mixes it with others."""
    if blocked and [n for n in before if n != 1] != [n for n in after if n != 1]:
        return None
    lead = math.prod(after[:axis])
    for k, size in enumerate(before):
        if size == after[axis] and math.prod(before[:k]) == lead:
            return k
    return None


def broadcast_params(code_type: ElementType, shape: Shape, scale: Array, zero: Array | None) -> QuantParams | None:
    """Parameters from a scale and zero point that broadcast against the codes by numpy's rules.

    One scale, one for each element of one axis, or (for stacks of matrices) one for all but one axis; the last is
    written as blocks that are as long as that axis. None where the arrays do not broadcast that way.
    """
    arrays = [scale.astype(np.float64)] + ([] if zero is None else [zero])
    if any(a.ndim > len(shape) for a in arrays):
        arrays = [
            a.reshape(a.shape[max(a.ndim - len(shape), 0) :]) if a.size <= math.prod(shape) else a for a in arrays
        ]
    padded = [a.reshape((1,) * (len(shape) - a.ndim) + a.shape) for a in arrays if a.ndim <= len(shape)]
    if len(padded) < len(arrays):
        return None
    if any(n not in (1, want) for a in padded for n, want in zip(a.shape, shape, strict=True)):
        return None
    both = np.broadcast_shapes(*(a.shape for a in padded))
    padded = [np.broadcast_to(a, both) for a in padded]
    varying = [k for k, n in enumerate(both) if n != 1]
    low, high = code_range(code_type)
    axis: int | None
    block: int | None = None
    want: Shape = ()
    if not varying:
        axis = None
    elif len(varying) == 1:
        axis, want = varying[0], (both[varying[0]],)
    else:
        flat = [k for k, n in enumerate(both) if n == 1 and shape[k] != 1]
        if len(flat) != 1:
            return None
        axis, want, block = flat[0], both, max(shape[flat[0]], 1)
        if any(both[k] != n for k, n in enumerate(shape) if k != axis):
            return None
    fitted = [np.ascontiguousarray(a).reshape(want) for a in padded]
    return QuantParams(code_type, fitted[0], fitted[1] if zero is not None else None, axis, block, low, high)
