"""Which finding explains which: a consequence never stands before its cause."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from visualquant.analysis.findings.context import Draft
from visualquant.analysis.findings.data import DataContext, clip_level_db
from visualquant.core.graph import NodeId

HOT_RATIO = 8.0
# What a channel that dwarfs the others does to the ranges that it passes through.
_OF_HOT_CHANNELS = frozenset({"ACT_RANGE_WASTED", "ACT_OUTLIER_CHANNELS", "ACT_COARSE"})
_LOUDNESS = {"error": 0, "warning": 1, "info": 2}


def explained(drafts: Sequence[Draft], context: DataContext) -> list[Draft]:
    """Drafts of which consequences are put behind their cause; the cause takes over their severity."""
    found = list(drafts)
    _biases(found, context)
    for k, draft in enumerate(found):
        if draft.code == "WEIGHT_ONE_SCALE":
            _hot_channel(found, k, context)
    return found


def _biases(drafts: list[Draft], context: DataContext) -> None:
    """A bias whose scale is not input × weight only because the scale of the input is wrong."""
    graph = context.files.graph
    clipped = {
        id(i.pair.site)
        for i in context.run.activations
        if i.pair.site is not None and i.range_use is not None and clip_level_db(i.range_use) is not None
    }
    for k, draft in enumerate(drafts):
        if draft.code != "BIAS_SCALE" or draft.node is None:
            continue
        source = graph.nodes[draft.node].input(0)
        site = None if source is None else context.files.activation_at.get(source)
        if site is not None and id(site) in clipped:
            drafts[k] = dataclasses.replace(draft, effect=min(draft.effect, 15.0), severity="warning")


def _hot_channel(drafts: list[Draft], cause: int, context: DataContext) -> None:
    """One channel of a weight dwarfs the others, and so it does in the layer's output and wherever that goes."""
    draft = drafts[cause]
    groups = context.files.groups_at(draft)
    if not _is_hot(draft, groups, context):
        return
    behind = _groups_behind(groups, context)
    consequences = [
        k for k, d in enumerate(drafts) if d.code in _OF_HOT_CHANNELS and behind & set(context.files.groups_at(d))
    ]
    if not consequences:
        return
    loudest = min((drafts[k].severity for k in consequences), key=_LOUDNESS.__getitem__)
    severity = min(draft.severity, loudest, key=_LOUDNESS.__getitem__)
    drafts[cause] = draft = dataclasses.replace(draft, severity=severity)
    for k in consequences:
        drafts[k] = dataclasses.replace(drafts[k], effect=min(drafts[k].effect, draft.effect - 1))


def _is_hot(draft: Draft, groups: tuple[str, ...], context: DataContext) -> bool:
    for item in context.files.weights:
        if item.row.value != draft.value or item.stats is None or item.stats.channel_x is None:
            continue
        peaks = item.stats.channel_x.max_abs()
        hot, middle = int(np.argmax(peaks)), float(np.median(peaks))
        if middle <= 0 or peaks[hot] < HOT_RATIO * middle:
            continue
        for seen in context.run.activations:
            sums = seen.cumulative if seen.cumulative.n else seen.isolated
            if seen.pair.group in groups and sums is not None and sums.channel_max is not None:
                same = sums.channel_max.size == peaks.size and int(np.argmax(sums.channel_max)) == hot
                if same and sums.channel_max[hot] > HOT_RATIO / 2 * float(np.median(sums.channel_max)):
                    return True
    return False


def _groups_behind(groups: Iterable[str], context: DataContext) -> set[str]:
    """The groups themselves, and every group that their outputs reach in the float graph."""
    graph, alignment = context.files.float_model.graph, context.files.alignment
    waiting = [n for g in alignment.groups if g.id in set(groups) for n in g.float_nodes]
    seen: set[NodeId] = set(waiting)
    while waiting:
        for out in graph.nodes[waiting.pop()].outputs:
            for reader, _ in () if out is None else graph.readers_of(out):
                if reader.id not in seen:
                    seen.add(reader.id)
                    waiting.append(reader.id)
    return {alignment.group_of_float[n].id for n in seen if n in alignment.group_of_float}
