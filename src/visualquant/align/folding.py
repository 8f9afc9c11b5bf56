"""Values of constant sub-graphs, element by element, so that a sketch of a large weight reads little of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.align.arithmetic import MAX_ELEMENTS, evaluate
from visualquant.align.elements import Floats, Index, Shape, broadcast_back, is_plain, ravel, take
from visualquant.core.graph import GraphView, NodeView, ValueId
from visualquant.core.trace import const_ints, static_shape

_SAME = frozenset(
    {
        "Identity",
        "Cast",
        "CastLike",
        "Dropout",
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        # NOTE: a weight that is quantized when the model runs still has its float values here; what the rounding
        # changes is far below what a fingerprint can see.
        "QuantizeLinear",
        "Quant",
        "BipolarQuant",
        "IntQuant",
        "FloatQuant",
        "ExtendedQuantizeLinear",
        "BFPQuantizeDequantize",
        "MXQuantizeDequantize",
        "FakeQuantize",
        "Clip",
        "TRT_FP8QuantizeLinear",
        "TRT_INT4QuantizeLinear",
    }
)
_DEQUANTIZE = frozenset(
    {"DequantizeLinear", "ExtendedDequantizeLinear", "TRT_FP8DequantizeLinear", "TRT_INT4DequantizeLinear"}
)
_QUANTIZE = frozenset({"QuantizeLinear", "ExtendedQuantizeLinear", "TRT_FP8QuantizeLinear", "TRT_INT4QuantizeLinear"})
_BINARY = {"Mul": np.multiply, "Add": np.add, "Sub": np.subtract, "Div": np.divide}
_UNARY: dict[str, Any] = {"Neg": np.negative, "Reciprocal": np.reciprocal, "Sqrt": np.sqrt, "Exp": np.exp}
_FOLLOWED = _SAME | _DEQUANTIZE | _BINARY.keys() | _UNARY.keys() | {"Transpose", "Concat"}
_MAX_DEPTH = 200


class Folder:
    """Evaluates constants of one graph lazily."""

    def __init__(self, graph: GraphView) -> None:
        self.graph = graph
        self._shapes: dict[ValueId, Shape | None] = {}
        self._small: dict[ValueId, npt.NDArray[Any] | None] = {}
        self._flat: dict[ValueId, npt.NDArray[Any]] = {}

    def shape(self, value: ValueId) -> Shape | None:
        """The shape of a constant value, None for anything that is not constant or that can't be evaluated."""
        if value not in self._shapes:
            self._shapes[value] = None  # NOTE: ends recursion on damaged, cyclic graphs
            self._shapes[value] = self._shape(value)
        return self._shapes[value]

    def array(self, value: ValueId) -> Floats | None:
        """A whole constant as float64."""
        shape = self.shape(value)
        if shape is None:
            return None
        got = self.at(value, np.arange(math.prod(shape), dtype=np.int64))
        return None if got is None else got.reshape(shape)

    def _shape(self, value: ValueId) -> Shape | None:
        graph = self.graph
        value = graph.inner(value)
        const = graph.const(value)
        if const is not None:
            return None if const.dtype.kind in ("string", "complex") else const.shape
        made = graph.values[value].producer
        if made is None:
            return None
        node = graph.nodes[made]
        first = node.input(0)
        if first is None or node.bodies:
            return None
        shape = self.shape(first)
        found = None if shape is None else self._shape_through(node, shape)
        if found is None and (small := self.small(value)) is not None:
            found = tuple(small.shape)
        return found

    def _shape_through(self, node: NodeView, shape: Shape) -> Shape | None:
        """The shape behind an operator that is followed element by element."""
        op = node.op_type
        if op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
            return self._moved(node, shape)
        if op == "Transpose":
            perm = node.ints_attribute("perm") or tuple(range(len(shape)))[::-1]
            return tuple(shape[k] for k in perm) if sorted(perm) == list(range(len(shape))) else None
        if op in _SAME or op in _DEQUANTIZE or op in _UNARY:
            return shape
        if op in _BINARY:
            second = node.input(1)
            other = None if second is None else self.shape(second)
            try:
                return None if other is None else np.broadcast_shapes(shape, other)
            except ValueError:
                return None
        if op == "Concat":
            shapes = [None if v is None else self.shape(v) for v in node.inputs]
            if any(s is None or len(s) != len(shape) for s in shapes) or not shape:
                return None
            axis = node.int_attribute("axis", 0) % len(shape)
            total = sum(s[axis] for s in shapes if s is not None)
            return (*shape[:axis], total, *shape[axis + 1 :])
        return None

    def small(self, value: ValueId) -> npt.NDArray[Any] | None:
        """A small constant, with the arithmetic of shapes and indices carried out; None for anything else."""
        value = self.graph.inner(value)
        if value not in self._small:
            self._small[value] = None  # NOTE: ends recursion on damaged, cyclic graphs
            self._small[value] = self._evaluated(value)
        return self._small[value]

    def _evaluated(self, value: ValueId) -> npt.NDArray[Any] | None:
        graph = self.graph
        const = graph.const(value)
        if const is not None:
            usable = const.dtype.kind not in ("string", "complex") and const.size <= MAX_ELEMENTS
            return const.array() if usable else None
        made = graph.values[value].producer
        if made is None:
            return None
        node = graph.nodes[made]
        if node.op_type in ("Shape", "Size"):
            sizes = None if node.input(0) is None else static_shape(graph, node.inputs[0])  # type: ignore[arg-type]
            return None if sizes is None else _shape_values(node, sizes)
        if (known := self._one_size(node)) is not None:
            return known
        if node.bodies or len(node.outputs) != 1:
            return None
        inputs = [None if v is None else self.small(v) for v in node.inputs]
        if any(a is None and v is not None for a, v in zip(inputs, node.inputs, strict=True)):
            return None
        return evaluate(node, inputs)

    def _one_size(self, node: NodeView) -> npt.NDArray[Any] | None:
        """Gather of a size that is known from a shape that is not known in full."""
        first = node.input(0)
        made = None if first is None else self.graph.producer_of(first)
        if (
            node.op_type != "Gather"
            or made is None
            or made.op_type != "Shape"
            or made.attributes
            or made.input(0) is None
        ):
            return None
        sizes = self.graph.values[made.inputs[0]].shape  # type: ignore[index]
        at = None if node.input(1) is None else self.small(node.inputs[1])  # type: ignore[arg-type]
        if sizes is None or at is None or not all(-len(sizes) <= int(k) < len(sizes) for k in at.reshape(-1)):
            return None
        picked = [sizes[int(k)] for k in at.reshape(-1)]
        if not all(isinstance(n, int) for n in picked):
            return None
        return np.array(picked, np.int64).reshape(at.shape)

    def _moved(self, node: NodeView, shape: Shape) -> Shape | None:
        from visualquant.core.trace import _reshaped

        return _reshaped(self.graph, node, shape)

    def at(self, value: ValueId, index: Index, depth: int = 0) -> Floats | None:
        """Elements of a constant value at flat positions."""
        graph = self.graph
        value = graph.inner(value)
        const = graph.const(value)
        if const is not None:
            if const.size == 0 or int(index.max(initial=0)) >= const.size:
                return None  # a scale without elements, or one that does not fit
            if value not in self._flat and is_plain(const):
                self._flat[value] = const.array().reshape(-1)
            flat = self._flat.get(value)
            return (take(const, index) if flat is None else flat[index]).astype(np.float64)
        made = graph.values[value].producer
        shape = self.shape(value)
        if made is None or shape is None or depth > _MAX_DEPTH:
            return None
        node = graph.nodes[made]
        first = node.input(0)
        source = None if first is None else self.shape(first)
        op = node.op_type
        if first is None or source is None or op not in _FOLLOWED:
            small = self.small(value)
            return None if small is None else small.reshape(-1)[index].astype(np.float64)
        if op == "Transpose":
            perm = node.ints_attribute("perm") or tuple(range(len(source)))[::-1]
            coords = np.unravel_index(index, shape)
            back: list[Any] = [None] * len(perm)
            for k, axis in enumerate(perm):
                back[axis] = coords[k]
            return self.at(first, ravel(back, source, index), depth + 1)
        if op in _SAME:
            return self.at(first, index, depth + 1)
        if op in _DEQUANTIZE:
            return self._dequantized(node, first, source, index, depth)
        if op in _UNARY:
            got = self.at(first, index, depth + 1)
            with np.errstate(all="ignore"):
                return None if got is None else _UNARY[op](got)
        if op in _BINARY:
            second = node.input(1)
            assert second is not None
            other = self.shape(second)
            assert other is not None
            left = self.at(first, broadcast_back(index, shape, source), depth + 1)
            right = self.at(second, broadcast_back(index, shape, other), depth + 1)
            with np.errstate(all="ignore"):
                return None if left is None or right is None else _BINARY[op](left, right)
        if op == "Concat":
            axis = node.int_attribute("axis", 0) % len(shape)
            parts = np.unravel_index(index, shape)
            out = np.empty(index.shape, np.float64)
            start = 0
            for part in node.inputs:
                assert part is not None
                size = self.shape(part)
                assert size is not None
                here = (parts[axis] >= start) & (parts[axis] < start + size[axis])
                inner = [c[here] - (start if k == axis else 0) for k, c in enumerate(parts)]
                got = self.at(part, ravel(inner, size, index[here]), depth + 1)
                if got is None:
                    return None
                out[here] = got
                start += size[axis]
            return out
        small = self.small(value)
        return None if small is None else small.reshape(-1)[index].astype(np.float64)

    def _dequantized(self, node: NodeView, first: ValueId, shape: Shape, index: Index, depth: int) -> Floats | None:
        behind = self.graph.producer_of(first)
        if behind is not None and behind.op_type in _QUANTIZE:
            return self.at(first, index, depth + 1)
        codes = self.at(first, index, depth + 1)
        if codes is None:
            return None
        for slot, sign in ((2, "zero"), (1, "scale")):
            value = node.input(slot)
            if value is None:
                continue
            side = self.shape(value)
            if side is None or 0 in side:
                return None
            got = self.at(value, self._param_index(node, index, shape, side), depth + 1)
            if got is None:
                return None
            with np.errstate(all="ignore"):
                codes = codes - got if sign == "zero" else codes * got
        return codes

    def _param_index(self, node: NodeView, index: Index, shape: Shape, params: Shape) -> Index:
        """Where the scale of each element stands, for per-tensor, per-axis and blocked parameters."""
        size = math.prod(params)
        if size == 1 or not shape:
            return np.zeros(index.shape, np.int64)
        axis = node.int_attribute("axis", 1)
        axis = min(max(axis + len(shape) if axis < 0 else axis, 0), len(shape) - 1)
        coords = np.unravel_index(index, shape)
        if len(params) == len(shape) and len(shape) > 1:
            block = max(node.int_attribute("block_size", 0), 1)
            if block == 1:
                block = -(-shape[axis] // max(params[axis], 1))
            parts = tuple(
                np.minimum(c // block if k == axis else c, n - 1)
                for k, (c, n) in enumerate(zip(coords, params, strict=True))
            )
            return ravel(parts, params, index)
        return np.minimum(coords[axis], size - 1)


def _shape_values(node: NodeView, sizes: Shape) -> npt.NDArray[Any]:
    if node.op_type == "Size":
        return np.array(math.prod(sizes), np.int64)
    start, end = node.int_attribute("start", 0), node.int_attribute("end", len(sizes))
    return np.array(sizes[start:end], np.int64)


def small_ints(folder: Folder, value: ValueId | None) -> tuple[int, ...] | None:
    """A short constant of integers as a tuple, folded where it must be."""
    if value is None:
        return None
    direct = const_ints(folder.graph, value)
    if direct is not None:
        return direct
    shape = folder.shape(value)
    if shape is None or math.prod(shape) > 64:
        return None
    got = folder.array(value)
    if got is None or not np.all(np.isfinite(got)) or not np.array_equal(got, np.round(got)):
        return None
    return tuple(int(x) for x in got.reshape(-1))
