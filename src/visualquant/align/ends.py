"""Graph inputs and outputs that stand for each other."""

from __future__ import annotations

from visualquant.align.side import Side
from visualquant.core.graph import ValueId


def input_pairs(left: Side, right: Side) -> list[tuple[ValueId, ValueId]]:
    """Graph inputs by equal names, those left over in order if there are as many on both sides."""
    return _by_name_then_order(left, right, left.graph.inputs, right.graph.inputs)


def output_pairs(left: Side, right: Side) -> list[tuple[ValueId, ValueId]]:
    """Graph outputs by equal names, those left over in order if there are as many on both sides."""
    return _by_name_then_order(left, right, left.graph.outputs, right.graph.outputs)


def _by_name_then_order(
    left: Side, right: Side, some: tuple[ValueId, ...], others: tuple[ValueId, ...]
) -> list[tuple[ValueId, ValueId]]:
    by_name = {right.graph.values[v].name: v for v in others}
    found: list[tuple[ValueId, ValueId]] = []
    rest: list[ValueId] = []
    for v in some:
        other = by_name.pop(left.graph.values[v].name, None)
        if other is None:
            rest.append(v)
        else:
            found.append((v, other))
    rest_others = [v for v in others if v in by_name.values()]
    if len(rest) == len(rest_others):
        found += zip(rest, rest_others, strict=True)
    return found
