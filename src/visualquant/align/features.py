"""What one node says about itself without looking at its neighbours: operator, parameters, scalars, weights."""

from __future__ import annotations

import dataclasses
import math

from visualquant.align.folding import small_ints
from visualquant.align.side import Side
from visualquant.align.sketches import Sketch, side_sketches, similarity
from visualquant.core.graph import NodeId

_PARAMETER_OPS = frozenset(
    {
        "ReduceMean",
        "ReduceSum",
        "ReduceMax",
        "ReduceMin",
        "ReduceL2",
        "ReduceProd",
        "Slice",
        "Split",
        "Gather",
        "GatherND",
        "Expand",
        "Pad",
        "Tile",
        "Clip",
        "Resize",
        "TopK",
        "OneHot",
        "CumSum",
        "Concat",
        "Softmax",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Reshape",
    }
)
_TELLING = frozenset(
    {
        "kernel_shape",
        "strides",
        "dilations",
        "group",
        "pads",
        "axis",
        "axes",
        "perm",
        "direction",
        "hidden_size",
        "mode",
        "num_heads",
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Features:
    """Local evidence of one node.

    Attributes:
        family: operator family.
        parameters: telling attributes and small integer operands, by name.
        scalar: the one constant scalar operand of an elementwise operator, None where there is none.
        sketches: of the constant operands.
        arity: number of data inputs.
        outputs: number of outputs.
    """

    family: str
    parameters: dict[str, object]
    scalar: float | None
    sketches: tuple[Sketch, ...]
    arity: int
    outputs: int


def side_features(side: Side) -> dict[NodeId, Features]:
    """Features of every compute node."""
    sketches = side_sketches(side)
    return {node_id: _features(side, node_id, tuple(sketches.get(node_id, ()))) for node_id in side.compute}


def _features(side: Side, node_id: NodeId, sketches: tuple[Sketch, ...]) -> Features:
    node = side.graph.nodes[node_id]
    data = {arg.slot for arg in side.args[node_id]}
    parameters: dict[str, object] = {
        k: v for k, v in node.attributes.items() if k in _TELLING and isinstance(v, int | tuple | str)
    }
    scalar = None
    for slot, value in enumerate(node.inputs):
        if value is None or slot in data:
            continue
        if node.op_type in _PARAMETER_OPS:
            ints = small_ints(side.folder, value)
            if ints is not None:
                parameters[f"input{slot}"] = ints
        shape = side.folder.shape(value)
        if scalar is None and shape is not None and math.prod(shape) == 1 and len(node.inputs) <= 2:
            got = side.folder.array(value)
            scalar = None if got is None else float(got.reshape(-1)[0])
    return Features(side.families[node_id], parameters, scalar, sketches, len(data), len(node.outputs))


def weight_agreement(a: Features, b: Features) -> float | None:
    """The best cosine among comparable operands, weighted to the largest; None where nothing can be compared."""
    best: tuple[int, float] | None = None
    for s in a.sketches:
        for t in b.sketches:
            got = similarity(s, t)
            if got is not None and (best is None or (s.rows * s.columns, got) > best):
                best = (s.rows * s.columns, got)
    return None if best is None else best[1]


def parameters_agree(a: Features, b: Features) -> float:
    """1 where the shared parameters are equal, lower where they differ, 0 where nothing is shared."""
    shared = a.parameters.keys() & b.parameters.keys()
    if not shared:
        return 0.0
    same = sum(_equal(a.parameters[k], b.parameters[k]) for k in shared)
    return (2.0 * same - len(shared)) / len(shared)


def _equal(x: object, y: object) -> bool:
    if x == y:
        return True
    return isinstance(x, tuple) and isinstance(y, tuple) and len(x) != len(y) and x[-len(y) :] == y[-len(x) :]


def scalars_agree(a: Features, b: Features) -> float:
    """1 where the scalar operands are equal within fp16 rounding, −1 where they differ, 0 where one is missing."""
    if a.scalar is None or b.scalar is None:
        return 0.0
    if a.scalar == b.scalar:
        return 1.0
    size = max(abs(a.scalar), abs(b.scalar))
    return 1.0 if abs(a.scalar - b.scalar) <= 0.01 * size or (size > 1e4 and a.scalar * b.scalar > 0) else -1.0
