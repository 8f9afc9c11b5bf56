"""Pan and zoom of a pane, and what of a drawing is in view."""

from __future__ import annotations

import dataclasses

import numpy as np

from visualquant.layout.drawing import F64, I64, Drawing

SMALLEST, LARGEST = 1e-5, 4.0
READABLE = 0.42
BOXES_FROM = 0.09
LEAST_PIXELS = 4.0
FOLD_PIXELS = 24.0
STRIP_PIXELS = 26.0
_SPANS = (300.0, 3_000.0, np.inf)


@dataclasses.dataclass(frozen=True)
class Camera:
    """Screen = world · scale + offset, in pixels of the pane."""

    scale: float = 1.0
    dx: float = 0.0
    dy: float = 0.0

    def to_screen(self, x: float, y: float) -> tuple[float, float]:
        """A point of the drawing in pixels."""
        return x * self.scale + self.dx, y * self.scale + self.dy

    def to_world(self, x: float, y: float) -> tuple[float, float]:
        """A pixel as a point of the drawing."""
        return (x - self.dx) / self.scale, (y - self.dy) / self.scale

    def panned(self, dx: float, dy: float) -> Camera:
        """Moved by pixels."""
        return Camera(self.scale, self.dx + dx, self.dy + dy)

    def zoomed(self, factor: float, x: float, y: float) -> Camera:
        """Zoomed so that the point under pixel (x, y) stays there."""
        scale = min(max(self.scale * factor, SMALLEST), LARGEST)
        wx, wy = self.to_world(x, y)
        return Camera(scale, x - wx * scale, y - wy * scale)

    def centred(self, x: float, y: float, width: float, height: float) -> Camera:
        """The same zoom with a point of the drawing in the middle."""
        return Camera(self.scale, width / 2 - x * self.scale, height / 2 - y * self.scale)

    def window(self, width: float, height: float) -> tuple[float, float, float, float]:
        """Left, top, right, bottom of what is in view, in the drawing."""
        return (*self.to_world(0, 0), *self.to_world(width, height))


def fitted(bounds: tuple[float, float, float, float], width: float, height: float, margin: float = 38) -> Camera:
    """The camera that shows all of `bounds`, never larger than life."""
    left, top, right, bottom = bounds
    scale = min((width - 2 * margin) / max(right - left, 1), (height - 2 * margin) / max(bottom - top, 1), 1.0)
    scale = min(max(scale, SMALLEST), LARGEST)
    return Camera(scale, width / 2 - (left + right) / 2 * scale, height / 2 - (top + bottom) / 2 * scale)


class Index:
    """Finds boxes and edges in a window without touching the rest."""

    def __init__(self, drawing: Drawing, width: F64, height: F64) -> None:
        self.drawing, self.width, self.height = drawing, width, height
        self._by_y = np.argsort(drawing.y, kind="stable")
        self._y = drawing.y[self._by_y]
        self._tallest = float(height.max()) / 2 if height.size else 0.0
        offsets, points = drawing.offsets, drawing.points
        if offsets.size > 1:
            starts, ends = offsets[:-1], offsets[1:] - 1
            y0, y1 = points[starts, 1], points[ends, 1]
            self._low, self._high = np.minimum(y0, y1), np.maximum(y0, y1)
            self._left = np.minimum.reduceat(points[:, 0], starts)
            self._right = np.maximum.reduceat(points[:, 0], starts)
        else:
            self._low = self._high = self._left = self._right = np.zeros(0)
        span = self._high - self._low
        self._buckets: list[tuple[float, I64, F64]] = []
        least = -1.0
        for most in _SPANS:
            own = np.flatnonzero((span > least) & (span <= most) & ~drawing.jumps)
            own = own[np.argsort(self._low[own], kind="stable")]
            self._buckets.append((float(span[own].max()) if own.size else 0.0, own, self._low[own]))
            least = most
        jumps = np.flatnonzero(drawing.jumps)
        self._jumps = jumps

    def boxes(self, window: tuple[float, float, float, float]) -> I64:
        """Boxes that touch the window, from top to bottom."""
        left, top, right, bottom = window
        a, b = np.searchsorted(self._y, (top - self._tallest, bottom + self._tallest))
        own = self._by_y[a:b]
        x, half = self.drawing.x[own], self.width[own] / 2
        return own[(x + half >= left) & (x - half <= right)]

    def edges(self, window: tuple[float, float, float, float]) -> I64:
        """Edges that may touch the window; jumps where an end does."""
        left, top, right, bottom = window
        found = []
        for span, own, low in self._buckets:
            a, b = np.searchsorted(low, (top - span, bottom))
            part = own[a:b]
            part = part[self._high[part] >= top]
            found.append(part[(self._right[part] >= left) & (self._left[part] <= right)])
        jumps = self._jumps
        if jumps.size:
            near = (self._low[jumps] <= bottom) & (self._low[jumps] >= top)
            near |= (self._high[jumps] <= bottom) & (self._high[jumps] >= top)
            found.append(jumps[near])
        return np.concatenate(found)

    def at(self, x: float, y: float) -> int | None:
        """The box under a point."""
        for box in self.boxes((x, y, x, y)).tolist():
            inside = abs(self.drawing.y[box] - y) <= self.height[box] / 2
            if inside and abs(self.drawing.x[box] - x) <= self.width[box] / 2:
                return int(box)
        return None


@dataclasses.dataclass(frozen=True)
class Strip:
    """Neighbouring pieces drawn as one box, far out.

    Attributes:
        first, last: pieces.
        repeats: more than 1 where all of them look equal.
    """

    first: int
    last: int
    repeats: int
    box: tuple[float, float, float, float]


def strips(drawing: Drawing, scale: float) -> list[Strip]:
    """One box a piece; equal neighbours folded, and what would be thinner than a few pixels put together.

    A fold ends where it is high enough for its label, so that one sees where along the depth the worst pieces are.
    """
    found: list[Strip] = []
    boxes, shapes = drawing.boxes.tolist(), drawing.shapes.tolist()
    for k, (left, top, right, bottom) in enumerate(boxes):
        if found:
            tip = found[-1]
            pixels = (tip.box[3] - tip.box[1]) * scale
            thin = pixels < LEAST_PIXELS
            equal = pixels < FOLD_PIXELS and shapes[tip.last] == shapes[k] and tip.repeats == tip.last - tip.first + 1
            if equal or thin:
                whole = (min(left, tip.box[0]), tip.box[1], max(right, tip.box[2]), bottom)
                found[-1] = Strip(tip.first, k, tip.repeats + 1 if equal else 1, whole)
                continue
        found.append(Strip(k, k, 1, (left, top, right, bottom)))
    return found


def worst_by_piece(drawing: Drawing, values: F64) -> F64:
    """The largest value in each piece; NaN where nothing was measured."""
    found = np.full(drawing.shapes.size, -np.inf)
    known = ~np.isnan(values)
    np.maximum.at(found, drawing.piece[known], values[known])
    return np.where(np.isneginf(found), np.nan, found)
