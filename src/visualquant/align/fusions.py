"""Names what stands in other nodes on the other side."""

from __future__ import annotations

import dataclasses

from visualquant.align.families import ACTIVATIONS, LINEAR, is_quiet
from visualquant.align.matched import Matched
from visualquant.align.rules import NAMED_FUSIONS
from visualquant.align.side import Side
from visualquant.core.alignment import Fusion, MatchGroup
from visualquant.core.graph import NodeId


def fusions_of(
    left: Side, right: Side, matched: Matched, groups: tuple[MatchGroup, ...]
) -> tuple[tuple[MatchGroup, ...], tuple[Fusion, ...]]:
    """The groups with the patterns among their evidence, and the patterns themselves.

    A pattern that has a rule carries its name, several layers in one are "packed: A+B", one operator in place of
    another is "A as B"; any other is "fused: A+B+C", the operators of the longer side.
    """
    families = {
        key: c.family for c in matched.compositions for key in (*((0, n) for n in c.left), *((1, n) for n in c.right))
    }
    out_groups, fusions = [], []
    for group in groups:
        fusion = _fusion(left, right, group, families)
        if fusion is not None:
            fusions.append(fusion)
            group = dataclasses.replace(group, evidence=(*group.evidence, f"fusion:{fusion.pattern}"))
        out_groups.append(group)
    return tuple(out_groups), tuple(fusions)


def _fusion(left: Side, right: Side, group: MatchGroup, families: dict[tuple[int, NodeId], str]) -> Fusion | None:
    fs, qs = _core(left, group.float_nodes), _core(right, group.quant_nodes)
    if not fs or not qs:
        return None
    some, others = _spelled(left, fs), _spelled(right, qs)
    if some == others or (len(fs) == len(qs) == 1 and left.families[fs[0]] == right.families[qs[0]]):
        return None
    if len(some) == len(others) == 1:
        return Fusion(f"{some[0]} as {others[0]}", group.id, tuple(fs), tuple(qs))
    longer = some if len(some) >= len(others) else others
    shorter = others if longer is some else some
    family = next((families[k] for k in (*((0, n) for n in fs), *((1, n) for n in qs)) if k in families), "")
    return Fusion(_pattern(longer, shorter, family), group.id, tuple(fs), tuple(qs))


def _core(side: Side, nodes: tuple[NodeId, ...]) -> list[NodeId]:
    """The members of a pattern in dataflow order, without plumbing and constants."""
    return sorted((k for k in nodes if side.kinds[k] == "compute"), key=lambda k: side.file_rank[k])


def _spelled(side: Side, nodes: list[NodeId]) -> list[str]:
    return [side.graph.nodes[k].op_type for k in nodes if not is_quiet(side.graph.nodes[k].op_type)]


def _pattern(longer: list[str], shorter: list[str], family: str) -> str:
    for op in shorter:
        if op in NAMED_FUSIONS:
            return NAMED_FUSIONS[op]
    if family in NAMED_FUSIONS:
        return NAMED_FUSIONS[family]
    layer = [op for op in longer if op in _LAYER_PARTS]
    if layer == longer and len([op for op in longer if _is_layer(op)]) == 1:
        return "+".join(longer)
    layers = [op for op in longer if _is_layer(op)]
    if layer == longer and len(layers) > 1 and len([op for op in shorter if _is_layer(op)]) == 1:
        return "packed: " + "+".join(layers)
    return "fused: " + "+".join(longer)


def _is_layer(op: str) -> bool:
    return op in _LAYERS


_LAYERS = LINEAR | {
    "Gemm",
    "ConvInteger",
    "MatMulInteger",
    "QLinearConv",
    "QLinearMatMul",
    "FusedMatMul",
    "FusedConv",
    "MatMulNBits",
}
_LAYER_PARTS = _LAYERS | ACTIVATIONS | {"Add", "Mul", "Sub", "QLinearAdd", "QLinearMul"}
