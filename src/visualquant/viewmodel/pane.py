"""One pane: its boxes, drawing and camera, and which boxes stand out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from visualquant.core.alignment import SideName
from visualquant.layout.drawing import F64, Drawing
from visualquant.layout.layered import layout
from visualquant.viewmodel import tables
from visualquant.viewmodel.boxes import Boxes, ViewOptions, make_boxes, relatives
from visualquant.viewmodel.camera import READABLE, Camera, Index, fitted
from visualquant.viewmodel.colours import Coloured
from visualquant.viewmodel.history import Selection
from visualquant.viewmodel.requests import Task
from visualquant.viewmodel.sides import I64, Pair

Bounds = tuple[float, float, float, float]
FRAME_MARGIN = 9.0


@dataclasses.dataclass(frozen=True, eq=False)
class Picture:
    """What a layout request gives: boxes where they stand.

    Attributes:
        options: under which it was made.
        frames: open fusions as (group, bounds); only those whose frame holds nothing else.
    """

    options: ViewOptions
    boxes: Boxes
    drawing: Drawing
    index: Index
    frames: tuple[tuple[int, Bounds], ...]


def make_picture(pair: Pair, side: SideName, options: ViewOptions, cancel: Callable[[], bool] | None) -> Picture:
    """Boxes and their drawing; run off the main thread.

    Raises:
        CancelledError: `cancel` said so.
    """
    boxes = make_boxes(pair, pair.sides[side], options)
    drawing = layout(boxes.request, cancel)
    index = Index(drawing, boxes.request.width, boxes.request.height)
    relatives(boxes, np.zeros(0, np.int64))  # NOTE: what it needs is made here, not at the first click
    return Picture(options, boxes, drawing, index, _frames(pair, side, boxes, drawing, index))


def draw_picture(pair: Pair, side: SideName, options: ViewOptions, task: Task) -> Picture:
    """`make_picture` as a job, which says when kernels are compiled: that takes long, once on a machine."""
    from visualquant.kernels._jit import on_compile

    with on_compile(lambda _kernel: task.say("preparing to draw large graphs (the first time only)", 0, 0)):
        return make_picture(pair, side, options, task.cancelled)


def _frames(pair: Pair, side: SideName, boxes: Boxes, drawing: Drawing, index: Index) -> tuple[tuple[int, Bounds], ...]:
    found = []
    for group in pair.fusions:
        own = boxes_of_group(pair, side, boxes, group)
        if own.size < 2:
            continue
        bounds = _bounds(boxes, drawing, own, FRAME_MARGIN)
        inside = set(index.boxes(bounds).tolist()) - set(own.tolist())
        if not any(boxes.kinds[b] != "node" or int(boxes.group[b]) != group for b in inside):
            found.append((group, bounds))
    return tuple(found)


def boxes_of_group(pair: Pair, side: SideName, boxes: Boxes, group: int) -> I64:
    """The boxes that show members of a group; hidden members have none."""
    members = pair.members[side][group]
    found = np.unique(boxes.box_of[members])
    return found[found >= 0]


def _bounds(boxes: Boxes, drawing: Drawing, own: I64, margin: float = 0.0) -> Bounds:
    half_width, half_height = boxes.request.width[own] / 2, boxes.request.height[own] / 2
    return (
        float((drawing.x[own] - half_width).min()) - margin,
        float((drawing.y[own] - half_height).min()) - margin,
        float((drawing.x[own] + half_width).max()) + margin,
        float((drawing.y[own] + half_height).max()) + margin,
    )


def values_of_boxes(pair: Pair, side: SideName, picture: Picture, of: F64) -> F64:
    """Values of groups as values of boxes: a module has the worst of its groups, plumbing by itself none."""
    boxes, own = picture.boxes, pair.sides[side]
    found = np.concatenate([of, [np.nan]])[boxes.group]
    for b in range(len(boxes.labels)) if picture.options.closed_modules else ():
        if boxes.kinds[b] == "module":
            values = np.concatenate([of, [np.nan]])[np.unique(own.group[boxes.members[b]])]
            found[b] = np.nan if np.isnan(values).all() else np.nanmax(values)
    if picture.options.plumbing:
        alone = np.array([m.size == 1 and bool(own.plumbing[m[0]]) for m in boxes.members], bool)
        found[alone] = np.nan
    return found


def describe_box(pair: Pair, side: SideName, picture: Picture, box: int, coloured: Coloured) -> str:
    """What the tooltip says: operator, name, metric, and the counterpart or why there is none."""
    boxes = picture.boxes
    if not boxes.members[box].size:
        return f"{boxes.kinds[box]} {boxes.labels[box]}"
    lines = [boxes.labels[box], pair.sides[side].nodes[int(boxes.members[box][0])].name]
    group = int(boxes.group[box])
    if group >= 0:
        value = float(coloured.values[group])
        shown = "not measured"
        if not np.isnan(value):
            shown = coloured.categories[int(value)] if coloured.categories else f"{value:.4g} {coloured.metric.unit}"
        lines.append(f"{coloured.metric.title}: {shown}")
        lines.append(pair.why_alone(group) or f"match: {pair.groups[group].kind}")
    return "\n".join(x for x in lines if x)


def selection_words(pair: Pair, group: int, hidden: bool | None, options: ViewOptions) -> str:
    """What the status bar says of a selected group; `hidden`: its counterpart has no box, None: not drawn yet."""
    row, name = pair.groups[group], tables.title(pair, group)
    reason = pair.why_alone(group)
    if reason:
        return f"{name}: {reason}"
    if hidden is None:
        return f"{name}: the other side is still being drawn."
    if hidden:
        where = "in another sub-graph" if options.plumbing else "hidden plumbing, P shows it"
        return f"{name}: its counterpart is {where}."
    return f"{name}: {row.kind}, confidence {float(row.confidence):.2f}"


class Pane:
    """A side as it is shown. All changes come from the workspace."""

    def __init__(self, side: SideName) -> None:
        self.side = side
        self.picture: Picture | None = None
        self.camera = Camera()
        self.width, self.height = 600.0, 600.0

    def show(self, pair: Pair, picture: Picture, selection: Selection) -> None:
        """Takes a new picture; what was in the middle, or is selected, stays where it was."""
        before = self.picture
        if before is None or before.options.scope != picture.options.scope:
            self.picture = picture
            self.start_view()
            return
        anchor = self._anchor(pair, before, selection)
        self.picture = picture
        if anchor is None:
            return
        node, x, y = anchor
        box = int(picture.boxes.box_of[node])
        if box >= 0:
            scale = self.camera.scale
            self.camera = Camera(scale, x - picture.drawing.x[box] * scale, y - picture.drawing.y[box] * scale)
        _, top, _, bottom = picture.drawing.bounds
        if (bottom - top) * self.camera.scale < self.height - 76:
            self.fit()

    def _anchor(self, pair: Pair, before: Picture, selection: Selection) -> tuple[int, float, float] | None:
        if selection.group is not None:
            own = boxes_of_group(pair, self.side, before.boxes, selection.group)
        else:
            own = np.zeros(0, np.int64)
        if not own.size:
            own = before.index.boxes(self.camera.window(self.width, self.height))
        middle = self.camera.to_world(self.width / 2, self.height / 2)
        drawing = before.drawing
        for box in own[np.argsort(np.hypot(drawing.x[own] - middle[0], drawing.y[own] - middle[1]))].tolist():
            members = before.boxes.members[box]
            if members.size:
                return (int(members[0]), *self.camera.to_screen(float(drawing.x[box]), float(drawing.y[box])))
        return None

    def start_view(self) -> None:
        """All of a small graph; of a large one its beginning at a readable size."""
        self.fit()
        if self.picture is not None and self.camera.scale < READABLE:
            _, top, _, _ = self.picture.drawing.bounds
            scale = max(READABLE, 0.62)
            self.camera = Camera(scale, self.width / 2, 44.0 - top * scale)

    def fit(self) -> None:
        """Everything in view."""
        if self.picture is not None:
            self.camera = fitted(self.picture.drawing.bounds, self.width, self.height)

    def box_at(self, x: float, y: float) -> int | None:
        """The box under a pixel of the pane."""
        if self.picture is None:
            return None
        return self.picture.index.at(*self.camera.to_world(x, y))

    def frame_at(self, x: float, y: float) -> int | None:
        """The group of the fusion frame under a pixel."""
        if self.picture is None:
            return None
        wx, wy = self.camera.to_world(x, y)
        for group, (left, top, right, bottom) in self.picture.frames:
            if left <= wx <= right and top <= wy <= bottom:
                return group
        return None

    def screen_of(self, box: int) -> tuple[float, float]:
        """The centre of a box in pixels of the pane."""
        assert self.picture is not None
        drawing = self.picture.drawing
        return self.camera.to_screen(float(drawing.x[box]), float(drawing.y[box]))

    def in_view(self, box: int) -> bool:
        """True where the centre of a box is inside the pane."""
        x, y = self.screen_of(box)
        return 0 <= x <= self.width and 0 <= y <= self.height

    def go_to(self, own: I64, at_y: float | None = None) -> None:
        """Moves so that boxes are in view, at a readable size; their top box at height `at_y` where given."""
        if self.picture is None or not own.size:
            return
        drawing = self.picture.drawing
        left, top, right, bottom = _bounds(self.picture.boxes, drawing, own)
        camera = self.camera if self.camera.scale >= READABLE else Camera(0.8)
        y = self.height / 2 if at_y is None else min(max(at_y, 40.0), self.height - 40.0)
        first = own[np.argmin(drawing.y[own])]
        middle = float(drawing.y[first]) if (bottom - top) * camera.scale > self.height * 0.8 else (top + bottom) / 2
        moved = camera.centred((left + right) / 2, middle, self.width, self.height)
        self.camera = moved.panned(0, y - self.height / 2)

    def related(self, own: I64) -> npt.NDArray[np.bool_] | None:
        """Boxes on the way to or from the given ones; None where there are none."""
        if self.picture is None or not own.size:
            return None
        return relatives(self.picture.boxes, own)

    def neighbour(self, box: int, direction: str) -> int | None:
        """The next box along an edge ("up", "down") or within the layer ("left", "right")."""
        if self.picture is None:
            return None
        drawing, request = self.picture.drawing, self.picture.boxes.request
        if direction in ("left", "right"):
            row = np.flatnonzero(np.abs(drawing.y - drawing.y[box]) < 1.0)
            sign = 1 if direction == "right" else -1
            ahead = row[(drawing.x[row] - drawing.x[box]) * sign > 0]
            return None if not ahead.size else int(ahead[np.argmin(np.abs(drawing.x[ahead] - drawing.x[box]))])
        near = (
            request.targets[request.sources == box] if direction == "down" else request.sources[request.targets == box]
        )
        if not near.size:
            return None
        # the data path before the weights: the straightest way, then the nearest
        return int(near[np.argmin(np.abs(drawing.x[near] - drawing.x[box]))])
