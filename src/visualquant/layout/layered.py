"""The whole drawing: layers, cut into pieces where one tensor crosses, each piece drawn, all put together.

Long edges (over `LONG` layers) take no part: a shared mask in a deep decoder would need millions of dummies.
The design and its measurements: a layered drawing after Sugiyama with the coordinates of Brandes and Köpf.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from visualquant.errors import CancelledError
from visualquant.layout.drawing import F64, I64, Drawing, LayoutRequest
from visualquant.layout.pieces import LAYER_GAP, SMALL, Drawn, Piece, draw

LONG = 128
LEAST = 24
MOST = 1500
WIDEST = 1000
STUB = 12.0
_KEPT_DRAWINGS = 16
_drawings: OrderedDict[str, Drawing] = OrderedDict()
_lock = threading.Lock()


def layout(request: LayoutRequest, cancel: Callable[[], bool] | None = None) -> Drawing:
    """Draws a graph; equal requests give the same drawing, from a cache where it was drawn before.

    Args:
        request: boxes and edges; cycles and double edges are allowed.
        cancel: asked between pieces.

    Raises:
        CancelledError: `cancel` said so.
    """
    with _lock:
        if request.digest in _drawings:
            _drawings.move_to_end(request.digest)
            return _drawings[request.digest]
    drawing = _layout(request, cancel or (lambda: False))
    with _lock:
        _drawings[request.digest] = drawing
        while len(_drawings) > _KEPT_DRAWINGS:
            _drawings.popitem(last=False)
    return drawing


def forget() -> None:
    """Empties the cache of drawings."""
    with _lock:
        _drawings.clear()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Edges:
    """Edges that are drawn, each once, all downwards.

    Attributes:
        source, target, wire: int64 [D]; a wire is one tensor of one source.
        of_edge: int64 [E], the drawn edge of each edge of the request, −1 for jumps and loops.
        turned: bool [E], drawn upside down because it lies on a cycle.
    """

    source: I64
    target: I64
    wire: I64
    of_edge: I64
    turned: np.ndarray[tuple[int], np.dtype[np.bool_]]


def _layout(request: LayoutRequest, cancel: Callable[[], bool]) -> Drawing:
    count = request.width.size
    if not count:
        none = np.zeros(0, np.int64)
        wires = np.zeros(request.sources.size, bool)
        flat = np.zeros(0)
        return Drawing(
            flat,
            flat,
            none,
            none,
            np.zeros((0, 4)),
            none,
            np.zeros((0, 2)),
            np.zeros(1, np.int64),
            wires,
            request.digest,
        )
    from visualquant.kernels.layout_layers import assign_layers

    compiled = count > SMALL
    rank, layer = np.empty(count, np.int64), np.empty(count, np.int64)
    plain = np.flatnonzero(request.sources != request.targets)
    ends = (np.ascontiguousarray(request.sources[plain]), np.ascontiguousarray(request.targets[plain]))
    (assign_layers if compiled else assign_layers.interpreted)(count, *ends, rank, layer)
    layer = _wrapped(layer, rank)
    edges = _edges(request, layer)
    side = _side(request)
    first = _cuts(layer, edges, side)
    return _Assembly(request, rank, layer, edges, first, side).drawing(compiled, cancel)


def _wrapped(layer: I64, rank: I64) -> I64:
    """Layers of more than `WIDEST` boxes go on below."""
    sizes = np.bincount(layer)
    if sizes.max() <= WIDEST:
        return layer
    rows = -(-sizes // WIDEST)
    begin = np.concatenate([[0], np.cumsum(rows)[:-1]])
    order = np.lexsort((rank, layer))
    within = np.arange(layer.size) - np.repeat(np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
    found = np.empty_like(layer)
    found[order] = begin[layer[order]] + within // WIDEST
    return found


def _edges(request: LayoutRequest, layer: I64) -> _Edges:
    source, target = request.sources.copy(), request.targets.copy()
    turned = layer[source] > layer[target]
    source[turned], target[turned] = target[turned], source[turned]
    span = layer[target] - layer[source]
    drawn = np.flatnonzero((span > 0) & (span <= LONG))
    of_edge = np.full(source.size, -1, np.int64)
    if not drawn.size:
        none = np.zeros(0, np.int64)
        return _Edges(none, none, none, of_edge, turned)
    tensors = int(request.tensors.max()) + 1
    wire = np.unique(source[drawn] * tensors + request.tensors[drawn], return_inverse=True)[1].astype(np.int64)
    pair = wire * np.int64(layer.size) + target[drawn]
    _, keep, inverse = np.unique(pair, return_index=True, return_inverse=True)
    of_edge[drawn] = inverse
    return _Edges(source[drawn][keep], target[drawn][keep], wire[keep], of_edge, turned)


def _cuts(layer: I64, edges: _Edges, side: I64) -> I64:
    """First layers of the pieces, and the number of layers at the end.

    A cut lies where at most one tensor crosses, after at least `LEAST` boxes; with none within `MOST`, at the
    thinnest gap. A side vertex just above a cut moves below it, so its tensor does not count there.
    """
    layers = int(layer.max()) + 1
    wires = int(edges.wire.max()) + 1 if edges.wire.size else 0
    low, high = np.zeros(wires, np.int64), np.zeros(wires, np.int64)
    low[edges.wire] = layer[edges.source] + side[edges.source]
    np.maximum.at(high, edges.wire, layer[edges.target])
    crossing = np.zeros(layers + 1, np.int64)
    np.add.at(crossing, low, 1)
    np.add.at(crossing, high, -1)
    across = np.cumsum(crossing)[:layers].tolist()  # tensors that cross the gap below each layer
    boxes = np.concatenate([[0], np.cumsum(np.bincount(layer, minlength=layers))]).tolist()
    first, thinnest, at = [0], -1, 0
    while at < layers - 1:
        size = boxes[at + 1] - boxes[first[-1]]
        if size >= LEAST:
            if across[at] <= 1:
                first.append(at + 1)
                thinnest = -1
            elif thinnest < 0 or across[at] <= across[thinnest]:
                thinnest = at
            if size > MOST and thinnest >= 0:
                first.append(thinnest + 1)
                at, thinnest = thinnest, -1
        at += 1
    return np.array([*first, layers], np.int64)


class _Assembly:
    """Numbers the vertices and edges of every piece, and joins what was drawn.

    Where a wire crosses from a piece to the next, the upper one has an exit port and the lower one an entry port.
    """

    def __init__(self, request: LayoutRequest, rank: I64, layer: I64, edges: _Edges, first: I64, side: I64) -> None:
        self.request, self.layer, self.edges = request, layer, edges
        self.pieces = first.size - 1
        self.first_layer = first[:-1]
        self.piece = np.repeat(np.arange(self.pieces), np.diff(first))[layer]
        self.side = side
        self._lower_sides(side)
        self.order = np.lexsort((rank, layer, self.piece))
        self.begin = np.searchsorted(self.piece[self.order], np.arange(self.pieces + 1))
        self.local = np.empty(layer.size, np.int64)
        self.local[self.order] = np.arange(layer.size) - self.begin[self.piece[self.order]]
        # crossings: wire × piece that it leaves downwards
        wires = int(edges.wire.max()) + 1 if edges.wire.size else 0
        self.home, lowest = np.zeros(wires, np.int64), np.zeros(wires, np.int64)
        self.wire_source = np.zeros(wires, np.int64)
        self.wire_source[edges.wire] = edges.source
        self.home[edges.wire] = self.piece[edges.source]
        np.maximum.at(lowest, edges.wire, self.piece[edges.target])
        times = np.maximum(lowest - self.home, 0)
        self.cross_begin = np.concatenate([[0], np.cumsum(times)])
        self.cross_wire = np.repeat(np.arange(wires), times)
        self.cross_piece = self.home[self.cross_wire] + np.arange(times.sum()) - self.cross_begin[self.cross_wire]
        by_piece = np.argsort(self.cross_piece, kind="stable")
        self.cross_first = np.searchsorted(self.cross_piece[by_piece], np.arange(self.pieces + 1))
        self.port = np.empty(by_piece.size, np.int64)
        self.port[by_piece] = np.arange(by_piece.size) - self.cross_first[self.cross_piece[by_piece]]
        self.exits = np.diff(self.cross_first)
        self.entries = np.concatenate([[0], self.exits[:-1]])
        self._number_edges()

    def _lower_sides(self, side: I64) -> None:
        """Side vertices just above a cut go to the piece of their reader, beside its entry ports."""
        edges = self.edges
        near = (side[edges.source] == 1) & (self.layer[edges.target] == self.layer[edges.source] + 1)
        self.piece[edges.source[near]] = self.piece[edges.target[near]]

    def _source_in(self, wire: I64, piece: I64) -> I64:
        """Local number of where a wire comes from within a piece: its vertex, or an entry port."""
        own = self.home[wire] == piece
        above = self.cross_begin[wire] + piece - 1 - self.home[wire]
        port = self.port[np.where(own, 0, above)] if self.port.size else np.zeros(wire.size, np.int64)
        return np.where(own, self.entries[piece] + self.local[self.wire_source[wire]], port)

    def _number_edges(self) -> None:
        edges = self.edges
        target_piece = self.piece[edges.target]
        boxes = np.diff(self.begin)
        into = self.entries[target_piece] + self.local[edges.target]
        out = self.entries[self.cross_piece] + boxes[self.cross_piece] + self.port
        deep = int(self.layer.max()) + 2
        piece = np.concatenate([target_piece, self.cross_piece])
        wire = np.concatenate([edges.wire, self.cross_wire])
        depth = np.concatenate([self.layer[edges.target], np.full(self.cross_wire.size, deep)])
        order = np.lexsort((depth, wire, piece))
        self.part = np.empty(order.size, np.int64)  # place of each edge, then of each crossing, in piece order
        self.part[order] = np.arange(order.size)
        self.part_first = np.searchsorted(piece[order], np.arange(self.pieces + 1))
        self.part_source = self._source_in(wire, piece)[order]
        self.part_target = np.concatenate([into, out])[order]
        self.part_wire = wire[order]

    def _question(self, p: int, entry_order: I64) -> Piece:
        entries, exits = int(self.entries[p]), int(self.exits[p])
        inside = self.order[self.begin[p] : self.begin[p + 1]]
        layer = self.layer[inside] - self.first_layer[p]
        layer += 1 if entries else -int(layer.min())
        below = int(layer.max()) + 1
        none_above, none_below = np.zeros(entries), np.zeros(exits)
        parts = slice(self.part_first[p], self.part_first[p + 1])
        wire = self.part_wire[parts]
        fresh = np.concatenate([[0], np.cumsum(np.diff(wire) != 0)]) if wire.size else wire
        ports = np.ones(entries, np.int64), np.ones(exits, np.int64)
        return Piece(
            entries=entries,
            exits=exits,
            layer=np.concatenate([ports[0] * 0, layer, ports[1] * below]),
            width=np.concatenate([none_above, self.request.width[inside], none_below]),
            height=np.concatenate([none_above, self.request.height[inside], none_below]),
            side=np.concatenate([ports[0] * 0, self.side[inside], ports[1] * 0]),
            sources=np.ascontiguousarray(self.part_source[parts]),
            targets=np.ascontiguousarray(self.part_target[parts]),
            tensors=fresh.astype(np.int64),
            entry_order=entry_order,
        )

    def drawing(self, compiled: bool, cancel: Callable[[], bool]) -> Drawing:
        """Draws every piece and joins them."""
        count = self.layer.size
        x, y = np.empty(count), np.empty(count)
        boxes, shapes = np.empty((self.pieces, 4)), np.empty(self.pieces, np.int64)
        seen: dict[int, int] = {}
        points: list[F64] = []
        lengths: list[I64] = []
        at, entry_order = 0.0, np.zeros(0, np.int64)
        for p in range(self.pieces):
            if cancel():
                raise CancelledError("The layout was cancelled.")
            drawn: Drawn = draw(self._question(p, entry_order), compiled=compiled)
            entry_order = drawn.exit_order
            inside = self.order[self.begin[p] : self.begin[p + 1]]
            own = slice(int(self.entries[p]), int(self.entries[p]) + inside.size)
            x[inside], y[inside] = drawn.x[own], drawn.y[own] + at
            boxes[p] = (drawn.left, at, drawn.right, at + drawn.height)
            shapes[p] = seen.setdefault(id(drawn), len(seen))
            points.append(drawn.points + np.array([0.0, at]))
            lengths.append(np.diff(drawn.offsets))
            at += drawn.height + (LAYER_GAP if not self.exits[p] else LAYER_GAP / 4)
        joined, offsets = self._joined(np.concatenate(points), np.concatenate(lengths))
        return self._finished(x, y, boxes, shapes, joined, offsets)

    def _joined(self, points: F64, lengths: I64) -> tuple[F64, I64]:
        """The points of every drawn edge, from piece to piece."""
        edges = self.edges
        begin = np.concatenate([[0], np.cumsum(lengths)])
        hops = self.piece[edges.target] - self.home[edges.wire]
        first = np.concatenate([[0], np.cumsum(hops + 1)])
        owner = np.repeat(np.arange(edges.source.size), hops + 1)
        step = np.arange(owner.size) - first[owner]
        final = step == hops[owner]
        crossing = np.where(final, 0, self.cross_begin[edges.wire[owner]] + step)
        part = np.where(final, self.part[owner], self.part[edges.source.size + crossing] if self.port.size else 0)
        sizes = lengths[part]
        ends = np.cumsum(sizes)
        take = (
            np.arange(int(ends[-1]) if ends.size else 0)
            - np.repeat(ends - sizes, sizes)
            + np.repeat(begin[part], sizes)
        )
        whole = np.concatenate([[0], ends])
        return points[take], whole[first]

    def _finished(self, x: F64, y: F64, boxes: F64, shapes: I64, points: F64, offsets: I64) -> Drawing:
        """Points by edge of the request; jumps get stubs, turned ones lead upwards."""
        request, edges = self.request, self.edges
        jumps = edges.of_edge < 0
        lengths = np.where(jumps, 4, np.diff(offsets)[edges.of_edge] if edges.source.size else 0)
        ends = np.cumsum(lengths)
        starts = ends - lengths
        found = np.empty((int(ends[-1]) if ends.size else 0, 2))
        drawn = np.flatnonzero(~jumps)
        if drawn.size:
            own, size = edges.of_edge[drawn], lengths[drawn]
            run = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
            back = np.repeat(edges.turned[drawn], size)
            to = np.where(back, np.repeat(ends[drawn] - 1, size) - run, np.repeat(starts[drawn], size) + run)
            found[to] = points[np.repeat(offsets[own], size) + run]
        far = np.flatnonzero(jumps)
        for k, (end, sign) in enumerate(
            ((request.sources, 1), (request.sources, 1), (request.targets, -1), (request.targets, -1))
        ):
            v = end[far]
            length = STUB if k in (1, 2) else 0.0
            found[starts[far] + k] = np.stack([x[v], y[v] + sign * (request.height[v] / 2 + length)], axis=1)
        return Drawing(
            x, y, self.layer, self.piece, boxes, shapes, found, np.concatenate([[0], ends]), jumps, request.digest
        )


def _side(request: LayoutRequest) -> I64:
    """1 for boxes without inputs whose readers all have another input that is no such box.

    Where all inputs of a reader are such boxes, the first one is none.
    """
    count = request.width.size
    inputs = np.bincount(request.targets, minlength=count)
    bare = inputs == 0
    side = bare & (np.bincount(request.sources, minlength=count) > 0)
    fed = np.zeros(count, bool)
    fed[request.targets[~bare[request.sources]]] = True
    _, first = np.unique(request.targets, return_index=True)
    lead = first[~fed[request.targets[first]]]
    side[request.sources[lead]] = False
    found: I64 = side.astype(np.int64)
    return found
