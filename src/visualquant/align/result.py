"""Groups as they are reported: members, confidence, evidence, and a reason where there is no counterpart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from visualquant.align.cuts import Key, all_keys
from visualquant.align.matched import Composition, Matched, Tie
from visualquant.align.side import Side
from visualquant.core.alignment import MatchGroup
from visualquant.core.graph import NodeId

_SAME_WEIGHT = 0.8
_SURE, _LIKELY, _FAIR, _GUESS = 0.98, 0.94, 0.8, 0.6


def match_groups(
    left: Side, right: Side, matched: Matched, plumbing: Mapping[NodeId, NodeId]
) -> tuple[MatchGroup, ...]:
    """All groups in dataflow order of the float side; what only the quantized side has stands where it is read."""
    by_key: dict[Key, list[Tie]] = {}
    for tie in matched.ties:
        by_key.setdefault(matched.groups.find((0, tie.left)), []).append(tie)
    composed: dict[Key, list[Composition]] = {}
    for item in matched.compositions:
        first = (0, item.left[0]) if item.left else (1, item.right[0]) if item.right else None
        if first is not None:
            composed.setdefault(matched.groups.find(first), []).append(item)
    members = matched.groups.members(all_keys(left, right))
    places = _places(left, right, members)
    out: list[tuple[tuple[NodeId, ...], tuple[NodeId, ...], float, tuple[str, ...], str]] = []
    for key in sorted(members, key=lambda k: places[k]):
        fs = tuple(sorted(k for side, k in members[key] if side == 0))
        qs = tuple(sorted(k for side, k in members[key] if side == 1))
        ties, items = by_key.get(key, []), composed.get(key, [])
        loose = sum(k in matched.absorbed for k in members[key])
        if not fs or not qs:
            out.append(
                (fs, qs, _FAIR, ("user",) if any(i.by_user for i in items) else (), _reason(left, right, fs, qs))
            )
            continue
        confidence, evidence = _judged(ties, items, loose)
        if not ties and not items and any(plumbing.get(f) in qs for f in fs):
            confidence = max(confidence, _LIKELY)
        out.append((fs, qs, confidence, evidence, ""))
    return tuple(MatchGroup(f"g{k}", *row) for k, row in enumerate(out))


def _judged(ties: list[Tie], items: list[Composition], loose: int) -> tuple[float, tuple[str, ...]]:
    evidence: dict[str, None] = {}
    if any(i.by_user for i in items):
        return 1.0, ("user",)
    worst = 1.0
    for tie in ties:
        worst = min(worst, _tie_confidence(tie))
        if tie.named >= 0.5:
            evidence["name"] = None
        if tie.weights is not None and tie.weights > _SAME_WEIGHT:
            evidence["weights"] = None
        if tie.inputs > 0 or tie.outputs > 0:
            evidence["topology"] = None
    for item in items:
        same = item.weights is not None and item.weights > _SAME_WEIGHT
        worst = min(worst, _SURE if same and item.bounds >= 0.5 else _LIKELY if item.bounds >= 0.5 or same else _FAIR)
        if same:
            evidence["weights"] = None
        if item.bounds > 0:
            evidence["topology"] = None
    if not ties and not items:
        worst = _FAIR
        evidence["topology"] = None
    if loose:
        worst = min(worst, _FAIR)
    if len(ties) > 1:
        worst = min(worst, _FAIR)
    return worst, tuple(evidence)


def _tie_confidence(tie: Tie) -> float:
    """How sure a tie is, from how many kinds of evidence agree."""
    if tie.forced:
        return _GUESS
    same = tie.weights is not None and tie.weights > _SAME_WEIGHT
    unlike = tie.weights is not None and tie.weights < 0.5
    good = same + (tie.named >= 0.5) + (tie.inputs >= 0.5) + (tie.outputs >= 0.5)
    bad = (tie.inputs < 0) + (tie.outputs < 0) + unlike
    if good >= 3 and not bad:
        return 0.99
    if good >= 2:
        return _SURE if not bad else 0.92
    if good == 1:
        return 0.92 if not bad else 0.75
    return _GUESS


def _places(left: Side, right: Side, members: Mapping[Key, list[Key]]) -> dict[Key, tuple[int, int]]:
    """Order of groups: the first float node; a group without one stands before the first float group that reads it."""
    places: dict[Key, tuple[int, int]] = {}
    of_quant: dict[NodeId, Key] = {}
    for key, found in members.items():
        ranks = [left.file_rank[k] for side, k in found if side == 0]
        if ranks:
            places[key] = (min(ranks), 1)
        of_quant.update((k, key) for side, k in found if side == 1)
    for key, found in members.items():
        if key in places:
            continue
        readers = (u for side, k in found for o in right.outputs(k) if o is not None for u, _ in right.readers[o])
        after = [places[of_quant[u]][0] for u in readers if of_quant[u] in places and places[of_quant[u]][1]]
        places[key] = (min(after, default=len(left.file_rank)), 0)
    ranked = {
        key: (*place, min(left.file_rank[k] if s == 0 else right.file_rank[k] for s, k in members[key]))
        for key, place in places.items()
    }
    order = {key: n for n, key in enumerate(sorted(ranked, key=lambda k: ranked[k]))}
    return {key: (order[key], 0) for key in members}


def _reason(left: Side, right: Side, fs: tuple[NodeId, ...], qs: tuple[NodeId, ...]) -> str:
    """Why a group has members on one side only."""
    side, ids, other = (left, fs, "quantized") if fs else (right, qs, "float")
    ops = "+".join(dict.fromkeys(_operators(side, ids)))
    kinds = {side.kinds[k] for k in ids}
    if kinds <= {"quiet"}:
        return f"{ops} stands where no layer of either model makes or reads the value, so it goes with none."
    if kinds <= {"static", "call"}:
        return f"{ops} makes a constant that no layer reads; the {other} model has no such constant."
    ends = any(o in side.graph.outputs for k in ids for o in side.outputs(k))
    if ends:
        return f"{ops} makes an output that the {other} model does not have."
    return f"No operator of the {other} model has the inputs and the result of {ops}."


def _operators(side: Side, ids: Iterable[NodeId]) -> list[str]:
    return [side.graph.nodes[k].op_type for k in sorted(ids, key=lambda k: side.file_rank[k])]
