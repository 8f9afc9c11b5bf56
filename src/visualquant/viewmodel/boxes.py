"""The boxes that a pane shows: nodes, closed fusions, closed modules; plumbing hidden or not."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from visualquant.layout.drawing import LayoutRequest
from visualquant.layout.pieces import SMALL
from visualquant.viewmodel.sides import I64, Pair, Side

BoxKind = Literal["node", "fusion", "module", "input", "output"]
BOX_HEIGHT = 30.0
_CHARACTER = 8.2
_MARGIN = 26.0
_LONGEST = 28


@dataclasses.dataclass(frozen=True)
class ViewOptions:
    """What is shown. Equal options of one pair give an equal drawing.

    Attributes:
        plumbing: show QuantizeLinear, DequantizeLinear and the like.
        closed_fusions: groups whose fusion is one box.
        closed_modules: paths of modules that are one box.
        scope: the sub-graph or function that is entered; "" for the main graph.
    """

    plumbing: bool = False
    closed_fusions: frozenset[int] = frozenset()
    closed_modules: frozenset[str] = frozenset()
    scope: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Boxes:
    """A graph ready for layout.

    Attributes:
        labels, kinds: of each box.
        members: int64 arrays of node places (hidden plumbing left out).
        group: int64 [B], −1 for terminals and modules of several groups.
        box_of: int64 [N], the box that shows a node, −1 where it is hidden or in another scope.
        request: for the layout.
        edge_tensors: name of the tensor of each edge.
        modules: path of each module box, "" for others.
    """

    labels: tuple[str, ...]
    kinds: tuple[BoxKind, ...]
    members: tuple[I64, ...]
    group: I64
    box_of: I64
    request: LayoutRequest
    edge_tensors: tuple[str, ...]
    modules: tuple[str, ...]

    @cached_property
    def ways(self) -> tuple[tuple[I64, I64], tuple[I64, I64]]:
        """Neighbours below and above, as (first [B + 1], neighbours [E])."""
        return (
            _neighbours(self.request.sources, self.request.targets, len(self.labels)),
            _neighbours(self.request.targets, self.request.sources, len(self.labels)),
        )


def _neighbours(of: I64, near: I64, count: int) -> tuple[I64, I64]:
    order = np.argsort(of, kind="stable")
    return np.searchsorted(of[order], np.arange(count + 1)).astype(np.int64), near[order]


def box_width(label: str) -> float:
    """Width for a label; wide characters count twice."""
    cells = sum(2 if ord(c) > 0x2E7F else 1 for c in label)
    return max(72.0, cells * _CHARACTER + _MARGIN)


def shorten(label: str) -> str:
    """A label that fits in a box."""
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"


def make_boxes(pair: Pair, side: Side, options: ViewOptions) -> Boxes:
    """The boxes of one side under the options."""
    shown, box_of, modules = _assign(pair, side, options)
    labels: list[str] = []
    kinds: list[BoxKind] = []
    for members, module in zip(shown, modules, strict=True):
        first = side.nodes[members[0]]
        if module:
            labels.append(f"{module} ({len(members)})")
            kinds.append("module")
        elif len(members) > 1:
            fusion = pair.fusions.get(int(side.group[members[0]]))
            labels.append(fusion.pattern if fusion else "+".join(side.nodes[m].op_type for m in members))
            kinds.append("fusion")
        else:
            labels.append(first.op_type)
            kinds.append("node")
    edges = _edges(side, box_of, hidden=not options.plumbing)
    terminals = _terminals(pair, side, options, box_of)
    for name, kind, links in terminals:
        number = len(labels)
        labels.append(name)
        kinds.append(kind)
        shown.append([])
        modules.append("")
        edges += [(number, box, -1 - number) if kind == "input" else (box, number, -1 - number) for box in links]
    names = dict.fromkeys(t for _, _, t in edges)
    numbers = {t: k for k, t in enumerate(names)}
    table = np.array([(a, b, numbers[t]) for a, b, t in edges], np.int64).reshape(-1, 3)
    sources, targets, tensors = table.T.copy()
    short = tuple(shorten(x) for x in labels)
    group = np.array([_one_group(side, m) for m in shown], np.int64)
    width = np.array([box_width(x) for x in short])
    request = LayoutRequest(width, np.full(len(short), BOX_HEIGHT), sources, targets, tensors)
    tensor_names = tuple(side.tensor_names[t] if t >= 0 else labels[-1 - t] for _, _, t in edges)
    members_of = tuple(np.array(m, np.int64) for m in shown)
    return Boxes(short, tuple(kinds), members_of, group, box_of, request, tensor_names, tuple(modules))


def _one_group(side: Side, members: list[int]) -> int:
    groups = {int(side.group[m]) for m in members}
    return groups.pop() if len(groups) == 1 else -1


def _assign(pair: Pair, side: Side, options: ViewOptions) -> tuple[list[list[int]], I64, list[str]]:
    """Members of each box, the box of each node, and the module path of each box."""
    box_of = np.full(len(side.nodes), -1, np.int64)
    shown: list[list[int]] = []
    modules: list[str] = []
    by_key: dict[tuple[str, object], int] = {}
    for k, node in enumerate(side.nodes):
        if node.scope != options.scope or (side.plumbing[k] and not options.plumbing and _passes(side, k)):
            continue
        group = int(side.group[k])
        key: tuple[str, object] = ("node", k)
        module = _closed(pair.modules[group], options.closed_modules) if group >= 0 else ""
        if module:
            key = ("module", module)
        elif group in options.closed_fusions and not side.plumbing[k]:
            key = ("fusion", group)
        if key not in by_key:
            by_key[key] = len(shown)
            shown.append([])
            modules.append(module)
        box_of[k] = by_key[key]
        shown[by_key[key]].append(k)
    return shown, box_of, modules


def _passes(side: Side, node: int) -> bool:
    """Hidden plumbing has one output, so that edges can lead through it."""
    return sum(1 for v in side.nodes[node].outputs if v) == 1


def _closed(module: str, closed: frozenset[str]) -> str:
    """The outermost closed module on a path, or ""."""
    if not module or not closed:
        return ""
    parts = module.split("/")
    for k in range(1, len(parts) + 1):
        path = "/".join(parts[:k])
        if path in closed:
            return path
    return ""


def _edges(side: Side, box_of: I64, *, hidden: bool) -> list[tuple[int, int, int]]:
    """(source box, target box, tensor), each once; edges lead through hidden plumbing along its first input."""
    through: dict[int, int] = {}
    if hidden:
        data_edge: dict[int, int] = {}
        for e, target in enumerate(side.targets.tolist()):
            if box_of[target] < 0 and side.plumbing[target]:
                data_edge.setdefault(target, e)
        through = data_edge
    sources = side.sources.tolist()
    boxes = box_of.tolist()
    tensors = side.tensors.tolist()
    found: dict[tuple[int, int, int], None] = {}
    for e, target in enumerate(side.targets.tolist()):
        if boxes[target] < 0:
            continue
        at, tensor = sources[e], tensors[e]
        steps = 0
        while boxes[at] < 0 and at in through and steps < len(boxes):
            tensor, at = tensors[through[at]], sources[through[at]]
            steps += 1
        if boxes[at] >= 0 and boxes[at] != boxes[target]:
            found[(boxes[at], boxes[target], tensor)] = None
    return list(found)


def _terminals(
    pair: Pair, side: Side, options: ViewOptions, box_of: I64
) -> list[tuple[str, Literal["input", "output"], list[int]]]:
    """Inputs and outputs of the main graph, with the boxes that they are tied to."""
    if options.scope:
        return []
    rows = pair.report.values.get(side.name, {})
    ends = {name: row.role for name, row in rows.items() if row.role in ("input", "output")}
    if not ends:
        return []
    readers: dict[str, list[int]] = {}
    makers: dict[str, int] = {}
    for k, node in enumerate(side.nodes):
        if node.scope:
            continue
        for v in node.inputs:
            readers.setdefault(v, []).append(k)
        for v in node.outputs:
            makers[v] = k
    found: list[tuple[str, Literal["input", "output"], list[int]]] = []
    for name, role in ends.items():
        if role == "input":
            boxes = _reached(name, side, readers, box_of)
            found.append((name, "input", boxes))
        else:
            made = makers.get(name)
            steps = 0
            while made is not None and box_of[made] < 0 and steps < len(side.nodes):
                made = makers.get(side.nodes[made].inputs[0]) if side.nodes[made].inputs else None
                steps += 1
            found.append((name, "output", [int(box_of[made])] if made is not None and box_of[made] >= 0 else []))
    return found


def _reached(name: str, side: Side, readers: dict[str, list[int]], box_of: I64) -> list[int]:
    """Boxes that read a value, through hidden plumbing."""
    boxes: dict[int, None] = {}
    waiting, seen = [name], {name}
    while waiting:
        for k in readers.get(waiting.pop(), []):
            if box_of[k] >= 0:
                boxes[int(box_of[k])] = None
                continue
            for v in side.nodes[k].outputs:
                if v and v not in seen:
                    seen.add(v)
                    waiting.append(v)
    return list(boxes)


def relatives(boxes: Boxes, start: I64) -> npt.NDArray[np.bool_]:
    """Bool [B]: the given boxes, all their ancestors, and all their descendants."""
    from visualquant.kernels.layout_layers import reach

    count = len(boxes.labels)
    run = reach if count > SMALL else reach.interpreted
    kept = np.zeros(count, np.int64)
    for first, near in boxes.ways:
        reached = np.zeros(count, np.int64)
        reached[start] = 1
        run(first, near, reached, np.empty(count, np.int64))
        kept |= reached
    found: npt.NDArray[np.bool_] = kept == 1
    return found
