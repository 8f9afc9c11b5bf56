"""What one unit says about itself without looking at its neighbours: operator, parameters, scalars, weights."""

from __future__ import annotations

import dataclasses

from visualquant.align.folding import small_ints
from visualquant.align.side import Side
from visualquant.align.sketches import Sketch, similarity, sketch_of
from visualquant.align.units import Unit, UnitGraph
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
_SAME_VALUE = 0.01
_BINARY = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mod", "Equal", "Less", "Greater"})
_HUGE = 1e4


@dataclasses.dataclass(frozen=True, slots=True)
class Features:
    """Local evidence of one unit.

    Attributes:
        family: operator family.
        parameters: telling attributes and small integer operands, by name.
        scalar: the one constant scalar operand of an elementwise operator, None where there is none.
        sketches: of the constant operands, the largest first.
        arity: number of data inputs.
        place: names of the bodies around it (branches, loops).
    """

    family: str
    parameters: dict[str, object]
    scalar: float | None
    sketches: tuple[Sketch, ...]
    arity: int
    place: tuple[str, ...]


def unit_features(units: UnitGraph) -> list[Features]:
    """Features of every unit."""
    out = []
    for unit in units.units:
        key = (unit.node, unit.rank, unit.window) if len(unit.parts) <= 1 else None
        if key is None:
            out.append(_features(units.side, unit))
            continue
        if key not in units.side.features:  # the same unit stands in the simple and in the composed graph
            units.side.features[key] = _features(units.side, unit)
        out.append(units.side.features[key])
    return out


def _features(side: Side, unit: Unit) -> Features:
    node = side.graph.nodes[unit.node]
    parameters: dict[str, object] = {}
    scalar = None
    if len(unit.parts) <= 1:
        parameters.update(
            (k, v) for k, v in node.attributes.items() if k in _TELLING and isinstance(v, int | tuple | str)
        )
        for node_id, slot in unit.constants:
            value = node.input(slot)
            if value is None or node_id != unit.node:
                continue
            if node.op_type in _PARAMETER_OPS:
                ints = small_ints(side.folder, value)
                if ints is not None:
                    parameters[f"input{slot}"] = ints
            if scalar is None and unit.family in _BINARY:
                scalar = side.operands.scalar(node, slot)
    if unit.window is not None:
        names = ("axis", "start", "end")
        parameters = {k: v for k, v in zip(names, unit.window, strict=True) if v is not None}
    sketches = [s for node_id, slot in unit.constants for s in _sketches(side, node_id, slot)]
    sketches.sort(key=lambda s: (-s.size, s.slot))
    return Features(unit.family, parameters, scalar, tuple(sketches), len(unit.args), _place(side, unit.node))


def _sketches(side: Side, node_id: NodeId, slot: int) -> tuple[Sketch, ...]:
    """One sketch for each layout in which the operand may be stored."""
    key = (node_id, slot)
    if key not in side.sketches:
        node = side.graph.nodes[node_id]
        made = [
            sketch_of(side.operands, node, side.families[node_id], slot, operand)
            for operand in side.operands.layouts(node, slot)
        ]
        side.sketches[key] = tuple(s for s in made if s is not None)
    return side.sketches[key]


def _place(side: Side, node_id: NodeId) -> tuple[str, ...]:
    path = []
    node = side.graph.nodes[node_id]
    while node.parent is not None:
        parent = side.graph.nodes[node.parent]
        if not parent.is_call:
            path.append(next(b.name for b in parent.bodies if node.id in b.nodes))
        node = parent
    return tuple(path)


def weight_agreement(a: Features, b: Features) -> float | None:
    """The cosine of the largest comparable operands, the best where there are several; None where there are none."""
    best: tuple[int, float] | None = None
    for s in a.sketches:
        for t in b.sketches:
            got = similarity(s, t)
            if got is not None and (best is None or (s.rows * s.columns, got) > best):
                best = (s.rows * s.columns, got)
    return None if best is None else best[1]


def parameters_agree(a: Features, b: Features) -> float:
    """1 where the shared parameters are equal, −1 where all differ, 0 where nothing is shared."""
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
    """1 where the scalar operands are equal within half precision, −1 where they differ, 0 where one is missing."""
    if a.scalar is None or b.scalar is None:
        return 0.0
    if a.scalar == b.scalar:
        return 1.0
    size = max(abs(a.scalar), abs(b.scalar))
    near = abs(a.scalar - b.scalar) <= _SAME_VALUE * size or (size > _HUGE and a.scalar * b.scalar > 0)
    return 1.0 if near else -1.0
