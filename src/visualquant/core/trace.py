"""Walks from an operand back through plumbing to the value that really holds it."""

from __future__ import annotations

import dataclasses
import math

from visualquant.core.graph import GraphView, NodeId, NodeView, ValueId
from visualquant.core.quant import ViewStep

LAYOUT_OPS = frozenset({"Identity", "Cast", "Dropout", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})
"""Operators that change where an element stands, or its type, and nothing else."""


_SAME_SHAPE = frozenset({"Identity", "Cast", "Clip", "Quant", "IntQuant", "BipolarQuant", "FakeQuantize"})
_SAME_SHAPE_ENDINGS = ("QuantizeLinear", "DequantizeLinear", "QuantizeDequantize")


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """What stands behind an operand.

    Attributes:
        source: the first value on the way back that no plumbing makes: a stored tensor, or a computed one.
        steps: from `source` to the operand, in that order. Empty where the way could not be followed exactly.
        nodes: plumbing nodes passed, from the source on.
        exact: False where a step has an unknown shape; then `steps` must not be used.
    """

    source: ValueId
    steps: tuple[ViewStep, ...]
    nodes: tuple[NodeId, ...]
    exact: bool = True


def trace_operand(graph: GraphView, value: ValueId) -> Trace:
    """The value behind an operand, seen through layout operators and function calls."""
    passed: list[NodeView] = []
    seen: set[ValueId] = set()
    while value not in seen:
        seen.add(value)
        made = graph.values[value].producer
        if made is None:
            break
        node = graph.nodes[made]
        if node.is_call:
            inner = node.inner(value)
            if inner is None:
                break
            value = inner
            continue
        first = node.input(0)
        if node.op_type not in LAYOUT_OPS or node.domain != "" or first is None:
            break
        passed.append(node)
        value = first
    shape = static_shape(graph, value)
    steps: list[ViewStep] = []
    exact = True
    for node in reversed(passed):
        step, shape, known = _step(graph, node, shape)
        exact &= known
        if step is not None:
            steps.append(step)
    nodes = tuple(n.id for n in reversed(passed))
    return Trace(value, tuple(steps) if exact else (), nodes, exact)


def static_shape(graph: GraphView, value: ValueId) -> tuple[int, ...] | None:
    """The shape of a value where every size is a known number, else None.

    Shape inference ends at functions and at vendors' operators; a quantizer's output has the shape of its input, and
    what a function returns that of the call's output.
    """
    for _ in range(16):
        view = graph.values[value]
        if view.const is not None:
            return view.const.shape
        if view.shape is not None:
            sizes = tuple(d for d in view.shape if isinstance(d, int))
            return sizes if len(sizes) == len(view.shape) else None
        node = None if view.producer is None else graph.nodes[view.producer]
        if node is None:
            return None
        call = None if node.parent is None else graph.nodes[node.parent]
        outside = None
        if call is not None and call.is_call and value in call.bodies[0].outputs:
            outside = call.output(call.bodies[0].outputs.index(value))
        if outside is not None and graph.values[outside].shape is not None:
            value = outside
        elif node.op_type in _SAME_SHAPE or node.op_type.endswith(_SAME_SHAPE_ENDINGS):
            first = node.input(0)
            if first is None:
                return None
            value = first
        else:
            return None
    return None


def const_ints(graph: GraphView, value: ValueId | None) -> tuple[int, ...] | None:
    """A small stored integer tensor as a tuple, None where it is computed, left out, or no integer."""
    const = graph.const(value)
    if const is None or not const.dtype.is_integer or const.size > 64:
        return None
    return tuple(int(x) for x in const.array().reshape(-1))


def _step(
    graph: GraphView, node: NodeView, shape: tuple[int, ...] | None
) -> tuple[ViewStep | None, tuple[int, ...] | None, bool]:
    """(step, shape after it, whether it is exact) of one layout operator; no step where nothing moves."""
    if node.op_type in ("Identity", "Cast", "Dropout"):
        return None, shape, True
    if node.op_type == "Transpose":
        perm = node.ints_attribute("perm")
        if perm is None:
            if shape is None:
                return None, None, False
            perm = tuple(range(len(shape)))[::-1]
        if shape is not None and sorted(perm) != list(range(len(shape))):
            return None, None, False  # a damaged file
        after = None if shape is None else tuple(shape[k] for k in perm)
        return ViewStep("transpose", perm), after, True
    after = _reshaped(graph, node, shape)
    if after is None:
        return None, None, False
    return ViewStep("reshape", after), after, True


def _reshaped(graph: GraphView, node: NodeView, shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if shape is None:
        return None
    if node.op_type == "Reshape":
        wanted = const_ints(graph, node.input(1)) or node.ints_attribute("shape")
        if wanted is None:
            made = node.output()
            stated = None if made is None else static_shape(graph, made)
            return stated if stated is not None and math.prod(stated) == math.prod(shape) else None
        keep_zero = node.int_attribute("allowzero", 0) == 1
        sizes = [shape[k] if n == 0 and not keep_zero and k < len(shape) else n for k, n in enumerate(wanted)]
        if sizes.count(-1) == 1:
            rest = math.prod(n for n in sizes if n != -1)
            if rest == 0 or math.prod(shape) % rest:
                return None
            sizes[sizes.index(-1)] = math.prod(shape) // rest
        return tuple(sizes) if math.prod(sizes) == math.prod(shape) and min(sizes, default=0) >= 0 else None
    if node.op_type == "Flatten":
        axis = node.int_attribute("axis", 1) % (len(shape) + 1)
        return math.prod(shape[:axis]), math.prod(shape[axis:])
    axes = const_ints(graph, node.input(1)) or node.ints_attribute("axes")
    if node.op_type == "Squeeze":
        drop = {k for k, n in enumerate(shape) if n == 1} if axes is None else {a % max(len(shape), 1) for a in axes}
        kept = tuple(n for k, n in enumerate(shape) if k not in drop)
        return kept if math.prod(kept) == math.prod(shape) else None
    if axes is None:
        return None
    rank = len(shape) + len(axes)
    at, rest_sizes = {a % rank for a in axes}, iter(shape)
    if len(at) < len(axes):
        return None  # an axis named twice
    return tuple(1 if k in at else next(rest_sizes) for k in range(rank))
