"""One piece of a drawing: dummies, order, coordinates, bend points; pieces that are equal are drawn once."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict

import numpy as np

from visualquant.layout.drawing import F64, I64

LAYER_GAP = 34.0
NODE_GAP = 18.0
DUMMY_WIDTH = 4.0
SWEEPS = 24
SMALL = 60
STARTS = 8
MIDDLE = 1000
LARGE = 3000
_KEPT = 4096


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """The question: vertices are entry ports, boxes by layer, then exit ports.

    Attributes:
        entries, exits: numbers of ports above and below.
        layer: int64 [V].
        width, height: float64 [V].
        side: int64 [V], 1 for vertices that take no part in alignment.
        sources, targets, tensors: int64 [E], sorted by (tensor, layer of the target).
        entry_order: int64 [entries], places of the entry ports from left to right.
    """

    entries: int
    exits: int
    layer: I64
    width: F64
    height: F64
    side: I64
    sources: I64
    targets: I64
    tensors: I64
    entry_order: I64

    def key(self) -> bytes:
        """Equal for pieces that are drawn alike."""
        head = np.array([self.entries, self.exits, self.layer.size, self.sources.size], np.int64)
        arrays = (head, self.layer, self.width, self.height, self.side, self.sources, self.targets, self.tensors)
        return b"".join(np.ascontiguousarray(a).tobytes() for a in (*arrays, self.entry_order))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """The answer, with its top at y = 0 and its trunk at x = 0.

    Attributes:
        x, y: float64 [V].
        height: of the whole piece.
        left, right: of all boxes and bends.
        points: float64 [Q, 2]; offsets: int64 [E + 1].
        exit_order: int64 [exits], places of the exit ports from left to right.
        crossings: of edges.
    """

    x: F64
    y: F64
    height: float
    left: float
    right: float
    points: F64
    offsets: I64
    exit_order: I64
    crossings: int


_cache: OrderedDict[bytes, Drawn] = OrderedDict()
_lock = threading.Lock()


def draw(piece: Piece, *, compiled: bool) -> Drawn:
    """Draws a piece, or gives what was drawn for an equal one."""
    key = piece.key()
    with _lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    drawn = _draw(piece, compiled)
    with _lock:
        _cache[key] = drawn
        while len(_cache) > _KEPT:
            _cache.popitem(last=False)
    return drawn


def forget() -> None:
    """Empties the cache of pieces."""
    with _lock:
        _cache.clear()


def _draw(piece: Piece, compiled: bool) -> Drawn:
    from visualquant.kernels import layout_coordinates, layout_layers, layout_order
    from visualquant.kernels._jit import Kernel

    def run(kernel: Kernel, *args: object) -> object:
        return kernel(*args) if compiled else kernel.interpreted(*args)

    vertices, edges = piece.layer.size, piece.sources.size
    spans = piece.layer[piece.targets] - piece.layer[piece.sources]
    room = int(spans.sum())
    dummy_layer, upper, lower, weight = (np.empty(room, np.int64) for _ in range(4))
    last, sizes = np.empty(edges, np.int64), np.zeros(2, np.int64)
    ways = (piece.layer, piece.sources, piece.targets, piece.tensors)
    run(layout_layers.expand, *ways, dummy_layer, upper, lower, weight, last, sizes)
    upper, lower, weight = upper[: sizes[1]], lower[: sizes[1]], weight[: sizes[1]]
    layer = np.concatenate([piece.layer, dummy_layer[: sizes[0]]])
    # vertices numbered layer by layer, boxes before dummies
    by_layer = np.argsort(layer, kind="stable")
    number = np.empty_like(by_layer)
    number[by_layer] = np.arange(by_layer.size)
    layers = int(layer.max()) + 1
    first = np.searchsorted(layer[by_layer], np.arange(layers + 1)).astype(np.int64)
    place = np.arange(by_layer.size, dtype=np.int64) - np.repeat(first[:-1], np.diff(first))
    if piece.entries:
        place[piece.entry_order] = np.arange(piece.entries)
    order = np.argsort(layer[upper], kind="stable")
    a, b, w = number[upper[order]], number[lower[order]], weight[order]
    crossings = run(layout_order.order_layers, first, a, b, w, int(piece.entries > 1), SWEEPS, place)
    if _number(crossings) > 0 and place.size < LARGE:
        rng = np.random.default_rng(0)
        for turn in range(STARTS if place.size < MIDDLE else 2):
            other = np.empty_like(place)
            if turn < 2:
                run(layout_order.depth_first, first, a, b, turn, other)
            else:  # the best one so far, shaken
                shaken = place + rng.normal(scale=2.0, size=place.size)
                by = np.lexsort((shaken, np.repeat(np.arange(layers), np.diff(first))))
                other[by] = np.arange(place.size) - np.repeat(first[:-1], np.diff(first))
            if piece.entries:
                other[: piece.entries] = place[: piece.entries]
            fewer = run(layout_order.order_layers, first, a, b, w, int(piece.entries > 1), SWEEPS, other)
            if _number(fewer) < _number(crossings):
                crossings, place = fewer, other
    slots = np.empty_like(by_layer)
    slots[np.repeat(first[:-1], np.diff(first)) + place] = np.arange(by_layer.size)

    dummy = (by_layer >= vertices).astype(np.int64)
    side = np.concatenate([piece.side, np.zeros(sizes[0], np.int64)])[by_layer]
    width = np.concatenate([piece.width, np.full(sizes[0], DUMMY_WIDTH)])[by_layer]
    trunk = np.empty(by_layer.size, np.int64)
    # the trunk leads through the exit when there is one only
    end = int(number[vertices - 1]) if piece.exits == 1 else -1
    start = _number(run(layout_coordinates.find_trunk, a, b, 1 - dummy, end, side, trunk))
    at = np.empty(by_layer.size)
    run(layout_coordinates.place_layers, first, slots, a, b, width, dummy, side, trunk, NODE_GAP, at)
    at -= at[start] if start >= 0 else (at.min() + at.max()) / 2

    heights = np.zeros(layers)
    np.maximum.at(heights, piece.layer, piece.height)
    top = np.concatenate([[0.0], np.cumsum(heights[:-1] + LAYER_GAP)])
    bottom = top + heights
    x = at[number]
    points, offsets = np.empty((2 * room + 2 * edges, 2)), np.zeros(edges + 1, np.int64)
    run(layout_layers.route, vertices, last, upper, lower, layer, x, top, bottom, points, offsets)
    halves = np.concatenate([piece.width, np.full(sizes[0], DUMMY_WIDTH)]) / 2
    exits = x[vertices - piece.exits : vertices]
    return Drawn(
        x=x[:vertices].copy(),
        y=((top + bottom) / 2)[piece.layer],
        height=float(bottom[-1]),
        left=float((x - halves).min()),
        right=float((x + halves).max()),
        points=points[: offsets[-1]].copy(),
        offsets=offsets,
        exit_order=np.argsort(exits, kind="stable"),
        crossings=_number(crossings),
    )


def _number(found: object) -> int:
    assert isinstance(found, int | np.integer)
    return int(found)
