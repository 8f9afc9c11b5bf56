"""Small constants that a graph computes: shapes, indices, masks. Exact numpy on a few elements, no data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.graph import NodeView
from visualquant.core.tensors import TensorRef

Array = npt.NDArray[Any]
MAX_ELEMENTS = 4096
_MISFITS = (ValueError, IndexError, TypeError, AttributeError, ArithmeticError, StopIteration, MemoryError)


def evaluate(node: NodeView, inputs: Sequence[Array | None]) -> Array | None:
    """The first output of a node whose inputs are all known; None where the operator is not one of these.

    Inputs that are left out are None. Anything that does not fit (a damaged graph) gives None, not an error.
    """
    function = _TABLE.get(node.op_type)
    if function is None or node.domain not in ("", "ai.onnx"):
        return None
    try:
        with np.errstate(all="ignore"):
            out = function(node, list(inputs))
    except _MISFITS:
        return None
    return out if out is not None and out.size <= MAX_ELEMENTS else None


def _ints(array: Array | None) -> list[int]:
    return [] if array is None else [int(x) for x in array.reshape(-1)]


def _gather(node: NodeView, x: list[Any]) -> Array:
    return np.asarray(np.take(x[0], x[1].astype(np.int64), axis=node.int_attribute("axis", 0)))


def _slice(node: NodeView, x: list[Any]) -> Array:
    data: Array = x[0]
    if len(x) > 1:
        starts, ends = _ints(x[1]), _ints(x[2])
        axes = _ints(x[3]) if len(x) > 3 and x[3] is not None else list(range(len(starts)))
        steps = _ints(x[4]) if len(x) > 4 and x[4] is not None else [1] * len(starts)
    else:
        starts = list(node.ints_attribute("starts") or ())
        ends = list(node.ints_attribute("ends") or ())
        axes = list(node.ints_attribute("axes") or range(len(starts)))
        steps = [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        where = (slice(None),) * (axis % data.ndim)
        stop = None if step < 0 and end < -data.shape[axis] else end
        data = data[(*where, slice(start, stop, step))]
    return data


def _div(_: NodeView, x: list[Any]) -> Array:
    if x[0].dtype.kind in "iu" and x[1].dtype.kind in "iu":
        return np.asarray(np.trunc(x[0] / x[1])).astype(np.int64)
    return np.asarray(x[0] / x[1])


def _unsqueeze(node: NodeView, x: list[Any]) -> Array:
    axes = _ints(x[1]) if len(x) > 1 else list(node.ints_attribute("axes") or ())
    rank = x[0].ndim + len(axes)
    at = {a % rank for a in axes}
    rest = iter(x[0].shape)
    return np.asarray(x[0].reshape([1 if k in at else next(rest) for k in range(rank)]))


def _squeeze(node: NodeView, x: list[Any]) -> Array:
    axes = _ints(x[1]) if len(x) > 1 and x[1] is not None else node.ints_attribute("axes")
    return np.asarray(np.squeeze(x[0], None if axes is None else tuple(axes)))


def _cast(node: NodeView, x: list[Any]) -> Array:
    # NOTE: TensorProto.DataType numbers: 2 to 8, 12 and 13 are integers, 9 is bool
    to = node.int_attribute("to", 1)
    if to == 9:
        return np.asarray(x[0] != 0)
    if to in (2, 3, 4, 5, 6, 7, 12, 13):
        return np.asarray(np.trunc(x[0])).astype(np.int64)
    return np.asarray(x[0], np.float64)


def _constant_of_shape(node: NodeView, x: list[Any]) -> Array:
    value = node.attributes.get("value")
    shape = _ints(x[0])
    if int(np.prod(shape)) > MAX_ELEMENTS:
        raise ValueError("too large")
    fill = value.array().reshape(-1)[0] if isinstance(value, TensorRef) else 0.0
    return np.full(shape, fill)


def _range(_: NodeView, x: list[Any]) -> Array:
    start, stop, step = (v.reshape(-1)[0] for v in x)
    if abs((stop - start) / step) > MAX_ELEMENTS:
        raise ValueError("too large")
    return np.arange(start, stop, step)


def _concat(node: NodeView, x: list[Any]) -> Array:
    return np.concatenate(x, axis=node.int_attribute("axis", 0))


def _reshape(_: NodeView, x: list[Any]) -> Array:
    sizes = [x[0].shape[k] if n == 0 else n for k, n in enumerate(_ints(x[1]))]
    return np.asarray(x[0].reshape(sizes))


def _expand(_: NodeView, x: list[Any]) -> Array:
    shape = np.broadcast_shapes(x[0].shape, tuple(_ints(x[1])))
    if int(np.prod(shape)) > MAX_ELEMENTS:
        raise ValueError("too large")
    return np.broadcast_to(x[0], shape)


def _plain(function: Callable[..., Any]) -> Callable[[NodeView, list[Any]], Array]:
    return lambda _, x: np.asarray(function(*x))


_TABLE: dict[str, Callable[[NodeView, list[Any]], Array | None]] = {
    "Identity": lambda _, x: x[0],
    "Cast": _cast,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Reshape": _reshape,
    "Expand": _expand,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Transpose": lambda node, x: np.transpose(x[0], node.ints_attribute("perm")),
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Add": _plain(np.add),
    "Sub": _plain(np.subtract),
    "Mul": _plain(np.multiply),
    "Div": _div,
    "Mod": _plain(np.mod),
    "Neg": _plain(np.negative),
    "Abs": _plain(np.abs),
    "Floor": _plain(np.floor),
    "Ceil": _plain(np.ceil),
    "Sqrt": _plain(np.sqrt),
    "Exp": _plain(np.exp),
    "Log": _plain(np.log),
    "Cos": _plain(np.cos),
    "Sin": _plain(np.sin),
    "Reciprocal": _plain(lambda v: 1 / v),
    "Pow": _plain(lambda a, b: np.asarray(a, np.float64) ** b),
    "Min": _plain(lambda *v: np.minimum.reduce(np.broadcast_arrays(*v))),
    "Max": _plain(lambda *v: np.maximum.reduce(np.broadcast_arrays(*v))),
    "Equal": _plain(np.equal),
    "Greater": _plain(np.greater),
    "Less": _plain(np.less),
    "GreaterOrEqual": _plain(np.greater_equal),
    "LessOrEqual": _plain(np.less_equal),
    "And": _plain(np.logical_and),
    "Or": _plain(np.logical_or),
    "Not": _plain(np.logical_not),
    "Where": _plain(np.where),
    "ReduceProd": lambda node, x: np.asarray(np.prod(x[0])).reshape(
        (1,) * x[0].ndim if node.int_attribute("keepdims", 1) else ()
    ),
}
