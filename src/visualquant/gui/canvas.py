"""One pane: pooled items under one transform, of which only those in view are drawn."""

from __future__ import annotations

from typing import Any

import dearpygui.dearpygui as dpg
import numpy as np

from visualquant.core.alignment import SideName
from visualquant.gui.look import CANVAS_PIXELS, Look
from visualquant.viewmodel.camera import BOXES_FROM, READABLE, STRIP_PIXELS, Camera, strips, worst_by_piece
from visualquant.viewmodel.colours import F64, Coloured, ink_on, palette, rgb
from visualquant.viewmodel.pane import Picture, values_of_boxes
from visualquant.viewmodel.sides import I64
from visualquant.viewmodel.workspace import Workspace

SPARE = 0.35  # of the pane, drawn around it so that a short pan only moves the transform
MOST_EDGES = 2500
MOST_BOXES = 2500
FADED = 60
TEXT_UNITS = 15.5
_TITLES = {"float": "float", "quant": "quantized"}


class Pool:
    """Draw items that are configured anew instead of made anew."""

    def __init__(self, parent: Any, make: Any) -> None:
        self._parent, self._make = parent, make
        self._items: list[Any] = []
        self._used = 0
        self._shown = 0

    def begin(self) -> None:
        """Starts a new round."""
        self._used = 0

    def put(self, **settings: Any) -> None:
        """One more item."""
        if self._used == len(self._items):
            self._items.append(self._make(self._parent))
        dpg.configure_item(self._items[self._used], show=True, **settings)
        self._used += 1

    def end(self) -> None:
        """Hides what the round did not use."""
        for item in self._items[self._used : self._shown]:
            dpg.configure_item(item, show=False)
        self._shown = self._used

    @property
    def used(self) -> int:
        """Items in use."""
        return self._used


def _rectangle(parent: Any) -> Any:
    return dpg.draw_rectangle((0, 0), (1, 1), parent=parent, show=False)


def _line(parent: Any) -> Any:
    return dpg.draw_polyline([[0, 0], [1, 1]], parent=parent, show=False)


def _text(parent: Any) -> Any:
    return dpg.draw_text((0, 0), "", parent=parent, show=False)


class Canvas:
    """Draws a pane of the workspace into a drawlist."""

    def __init__(self, workspace: Workspace, side: SideName, parent: Any, scale: float, font: Any) -> None:
        self.font = font
        self._widths: dict[str, float] = {}
        self.workspace, self.side, self.scale = workspace, side, scale
        self.drawlist = dpg.add_drawlist(100, 100, parent=parent)
        self._back = dpg.draw_rectangle((0, 0), (1, 1), parent=self.drawlist)
        self._world = dpg.add_draw_node(parent=self.drawlist)
        frames, edges, boxes, labels = (dpg.add_draw_node(parent=self._world) for _ in range(4))
        self._frames, self._edges = Pool(frames, _rectangle), Pool(edges, _line)
        self._boxes, self._labels = Pool(boxes, _rectangle), Pool(labels, _text)
        marks, minimap, notes = (dpg.add_draw_node(parent=self.drawlist) for _ in range(3))
        self._marks, self._map, self._notes = Pool(marks, _rectangle), Pool(minimap, _rectangle), Pool(notes, _text)
        self._drawn: tuple[Any, ...] = ()
        self._window = (0.0, 0.0, 0.0, 0.0)
        self._strip_key: tuple[Any, ...] = ()
        self._strips: list[Any] = []
        self._colours: tuple[Any, ...] = ()
        self._palette = np.zeros((0, 4), np.uint8)
        self._related: tuple[Any, Any] = (None, None)
        self._size = (0.0, 0.0)

    def resize(self, width: float, height: float) -> None:
        """The size of the pane in pixels."""
        if (width, height) != self._size:
            self._size = (width, height)
            dpg.configure_item(self.drawlist, width=int(width), height=int(height))
            dpg.configure_item(self._back, pmax=(width, height))
            self.workspace.resize(self.side, width, height)
            self._drawn = ()

    def draw(self, look: Look) -> None:
        """Brings the picture up to date: the transform always, items only where something else is in view."""
        pane, picture = self.workspace.panes[self.side], self.workspace.panes[self.side].picture
        dpg.configure_item(self._back, fill=look.back, color=look.back)
        camera = pane.camera
        if picture is not None:
            matrix = dpg.create_translation_matrix([camera.dx, camera.dy]) * dpg.create_scale_matrix(
                [camera.scale, camera.scale]
            )
            dpg.apply_transform(self._world, matrix)
            state = (
                picture,
                camera.scale,
                self.workspace.metric,
                self.workspace.pair,
                self.workspace.dim,
                self.workspace.selection,
                look.name,
            )
            view = camera.window(pane.width, pane.height)
            if state != self._drawn or not _inside(view, self._window):
                self._materialise(picture, camera, look)
                self._drawn = state
        else:
            for pool in (self._frames, self._edges, self._boxes, self._labels):
                pool.begin()
                pool.end()
            self._drawn = ()
        self._overlay(picture, camera, look)

    # the world: redrawn only when the view leaves what is there

    def _materialise(self, picture: Picture, camera: Camera, look: Look) -> None:
        left, top, right, bottom = camera.window(*self._size)
        dx, dy = (right - left) * SPARE, (bottom - top) * SPARE
        self._window = (left - dx, top - dy, right + dx, bottom + dy)
        pools = (self._frames, self._edges, self._boxes, self._labels)
        for pool in pools:
            pool.begin()
        coloured = self.workspace.colours(self.workspace.metric)
        if camera.scale >= BOXES_FROM:
            self._put_boxes(picture, camera, look, coloured)
        else:
            self._put_strips(picture, camera, look, coloured)
        for pool in pools:
            pool.end()

    def _put_boxes(self, picture: Picture, camera: Camera, look: Look, coloured: Coloured) -> None:
        boxes, drawing, request = picture.boxes, picture.drawing, picture.boxes.request
        fills = self._fills(picture, look, coloured)
        kept = self._kept(picture)
        for _group, (left, top, right, bottom) in picture.frames:
            if bottom >= self._window[1] and top <= self._window[3]:
                self._frames.put(
                    pmin=(left, top), pmax=(right, bottom), color=look.outline, fill=look.frame, rounding=5.0
                )
        plain = (*look.edge[:3], 255)
        faded = (*look.edge[:3], FADED)
        points, offsets = drawing.points, drawing.offsets
        for e in picture.index.edges(self._window)[:MOST_EDGES].tolist():
            colour = plain if kept is None or (kept[request.sources[e]] and kept[request.targets[e]]) else faded
            way = points[offsets[e] : offsets[e + 1]].tolist()
            if drawing.jumps[e]:
                self._edges.put(points=way[:2], color=colour, thickness=1.0)
                self._edges.put(points=way[2:], color=colour, thickness=1.0)
            else:
                self._edges.put(points=way, color=colour, thickness=1.4 if camera.scale >= READABLE else 1.0)
        readable = camera.scale >= READABLE
        pixels = min(TEXT_UNITS * camera.scale, CANVAS_PIXELS * 1.6 * self.scale)
        visible = picture.index.boxes(self._window)[:MOST_BOXES]
        for b in visible.tolist():
            x, y = float(drawing.x[b]), float(drawing.y[b])
            half_width, half_height = float(request.width[b]) / 2, float(request.height[b]) / 2
            fill = tuple(int(c) for c in fills[b])
            alpha = 255 if kept is None or kept[b] else FADED
            kind = boxes.kinds[b]
            rounding = 13.0 * camera.scale if kind in ("input", "output") else 4.0 * camera.scale
            self._boxes.put(
                pmin=(x - half_width, y - half_height),
                pmax=(x + half_width, y + half_height),
                fill=(*fill[:3], alpha),
                color=(*look.outline[:3], alpha),
                thickness=2.0 if kind in ("module", "fusion") else 1.0,
                rounding=rounding,
            )
            if readable:
                measured = fill[:3] != look.unmeasured[:3] and fill[:3] != look.terminal[:3]
                ink = ink_on((fill[0], fill[1], fill[2])) if measured else look.text
                if alpha < 255:
                    ink = (*look.faint[:3], 150)
                wide = self._text_units(boxes.labels[b])
                self._labels.put(pos=(x - wide / 2, y - 8.6), text=boxes.labels[b], color=ink, size=pixels)

    def _text_units(self, label: str) -> float:
        """Width of a label in the drawing, where its letters are `TEXT_UNITS` high."""
        if label not in self._widths:
            size = dpg.get_text_size(label, font=self.font)
            if not size or not size[0]:  # NOTE: not known before the first frame
                return len(label) * 8.0
            self._widths[label] = float(size[0]) / (CANVAS_PIXELS * self.scale) * TEXT_UNITS
        return self._widths[label]

    def _fills(self, picture: Picture, look: Look, coloured: Coloured) -> Any:
        key = (picture, coloured, look.name)
        if key != self._colours:
            workspace = self.workspace
            table = palette(coloured, look.unmeasured)
            fills = table[picture.boxes.group]
            if workspace.options.closed_modules or workspace.options.plumbing:
                for b, value in enumerate(self._badness(picture, coloured).tolist()):
                    if coloured.categories:
                        continue
                    fills[b, :3] = look.unmeasured[:3] if np.isnan(value) else rgb(value)
            for b in range(len(picture.boxes.kinds) - 1, -1, -1):
                if picture.boxes.kinds[b] not in ("input", "output"):
                    break
                fills[b] = look.terminal
            self._palette, self._colours = fills, key
        return self._palette

    def _badness(self, picture: Picture, coloured: Coloured) -> F64:
        assert self.workspace.pair is not None
        return values_of_boxes(self.workspace.pair, self.side, picture, coloured.badness)

    def _kept(self, picture: Picture) -> Any:
        own = self.workspace.marked(self.side)
        if not self.workspace.dim or not own.size:
            return None
        key = (picture, self.workspace.selection)
        if self._related[0] != key:
            self._related = (key, self.workspace.panes[self.side].related(own))
        return self._related[1]

    def _put_strips(self, picture: Picture, camera: Camera, look: Look, coloured: Coloured) -> None:
        drawing = picture.drawing
        key = (picture, round(camera.scale, 12), coloured)
        if key != self._strip_key:
            worst = worst_by_piece(drawing, self._badness(picture, coloured))
            self._strips = [(s, _worst(worst[s.first : s.last + 1])) for s in strips(drawing, camera.scale)]
            self._strip_key = key
        least = STRIP_PIXELS / camera.scale / 2
        for strip, value in self._strips:
            left, top, right, bottom = strip.box
            if bottom < self._window[1] or top > self._window[3]:
                continue
            fill = look.unmeasured if np.isnan(value) else (*rgb(value), 255)
            middle = (left + right) / 2
            half = max((right - left) / 2, least)
            self._boxes.put(
                pmin=(middle - half, top),
                pmax=(middle + half, bottom),
                fill=fill,
                color=look.outline,
                thickness=1.0,
                rounding=0.0,
            )
            if strip.repeats > 1 and (bottom - top) * camera.scale > 18:
                at = (middle + half + 6 / camera.scale, (top + bottom) / 2 - 8 / camera.scale)
                self._labels.put(pos=at, text=f"× {strip.repeats}", color=look.text, size=15.0 * self.scale)

    # marks, minimap and words: few items, every frame that something changed

    def _overlay(self, picture: Picture | None, camera: Camera, look: Look) -> None:
        for pool in (self._marks, self._map, self._notes):
            pool.begin()
        workspace = self.workspace
        if picture is not None:
            self._mark(picture, camera, workspace.hovered_on(self.side), look.hovered, 1.5)
            own = workspace.selection.side == self.side
            self._mark(picture, camera, workspace.marked(self.side), look.selected if own else look.sibling, 3.0)
            self._minimap(picture, camera, look)
        self._title(picture, look)
        for pool in (self._marks, self._map, self._notes):
            pool.end()

    def _mark(self, picture: Picture, camera: Camera, own: I64, colour: Any, thickness: float) -> None:
        drawing, request = picture.drawing, picture.boxes.request
        for b in own[:200].tolist():
            x, y = camera.to_screen(float(drawing.x[b]), float(drawing.y[b]))
            half_width = max(float(request.width[b]) * camera.scale / 2, 3.0) + 2
            half_height = max(float(request.height[b]) * camera.scale / 2, 2.0) + 2
            if x + half_width < 0 or y + half_height < 0 or x - half_width > self._size[0]:
                continue
            self._marks.put(
                pmin=(x - half_width, y - half_height),
                pmax=(x + half_width, y + half_height),
                color=colour,
                fill=(0, 0, 0, 0),
                thickness=thickness * self.scale,
                rounding=5.0,
            )

    def minimap_box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom of the minimap in pixels of the pane."""
        width, height = self._size
        wide = 26 * self.scale
        return (width - wide - 8, 34 * self.scale, width - 8, height - 10)

    def _minimap(self, picture: Picture, camera: Camera, look: Look) -> None:
        left, top, right, bottom = self.minimap_box()
        _, low, _, high = picture.drawing.bounds
        _, view_top, _, view_bottom = camera.window(*self._size)
        if bottom - top < 60 or (view_top <= low and view_bottom >= high):
            return
        per = (bottom - top) / max(high - low, 1.0)
        self._map.put(pmin=(left, top), pmax=(right, bottom), color=look.raised, fill=look.panel, rounding=3.0)
        marked = self.workspace.marked(self.side)
        for b in marked[:50].tolist():
            y = top + (float(picture.drawing.y[b]) - low) * per
            self._map.put(pmin=(left + 2, y - 2), pmax=(right - 2, y + 2), color=look.selected, fill=look.selected)
        a = min(max(top + (view_top - low) * per, top), bottom - 3)
        b_ = max(min(top + (view_bottom - low) * per, bottom), a + 3)
        self._map.put(
            pmin=(left, a), pmax=(right, b_), color=look.text, fill=(*look.outline[:3], 60), rounding=2.0, thickness=1.0
        )

    def _title(self, picture: Picture | None, look: Look) -> None:
        pair = self.workspace.pair
        if pair is None:
            return
        model = pair.report.models.float if self.side == "float" else pair.report.models.quant
        name = model.name if model is not None else "no model"
        count = len(pair.sides[self.side].nodes)
        scope = f"  ›  {self.workspace.options.scope}" if self.workspace.options.scope else ""
        words = f"{_TITLES[self.side]}: {name}, {count:,} nodes{scope}"
        if picture is None:
            words += "  (drawing …)" if count else "  (empty)"
        size = 15.0 * self.scale
        most = int((self._size[0] - 50) / (size * 0.5))
        if len(words) > most > 1:
            words = words[: most - 1] + "…"
        high = 26 * self.scale
        self._map.put(pmin=(0, 0), pmax=(self._size[0], high), color=look.panel, fill=look.panel, rounding=0.0)
        self._notes.put(pos=(8, 5 * self.scale), text=words, color=look.text, size=size)

    @property
    def items_in_use(self) -> int:
        """How many items are drawn: what a frame costs."""
        return sum(p.used for p in (self._frames, self._edges, self._boxes, self._labels))


def _inside(view: tuple[float, float, float, float], drawn: tuple[float, float, float, float]) -> bool:
    return view[0] >= drawn[0] and view[1] >= drawn[1] and view[2] <= drawn[2] and view[3] <= drawn[3]


def _worst(values: F64) -> float:
    return float("nan") if np.isnan(values).all() else float(np.nanmax(values))
