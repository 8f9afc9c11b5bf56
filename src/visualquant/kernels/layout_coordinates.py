"""Horizontal coordinates after Brandes and Köpf (2001), with a trunk that stays one vertical line.

The four alignments are compacted as blocks by longest paths; the mean of the two middle ones is taken. Two rules
are added: a side vertex (one without inputs whose reader has another input, such as the DequantizeLinear of a weight)
takes no part, and the trunk of a piece is aligned before all else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from visualquant.kernels._jit import f64, i64, kernel, read, write


@kernel((read(i64), read(i64), read(i64), i64, read(i64), write(i64)), strict=True)
def find_trunk(upper: Any, lower: Any, real: Any, end: Any, side: Any, trunk: Any) -> Any:
    """The path with the most vertices that ends at `end` (−1: anywhere), as the next vertex below each.

    Args:
        upper: int64 [S], upper ends of the segments, sorted by their layer.
        lower: int64 [S], lower ends.
        real: int64 [V], 1 for vertices, 0 for dummies.
        end: the vertex at which the path has to end.
        side: int64 [V], 1 for side vertices: no part of a trunk.
        trunk: int64 [V], out: the next vertex of the trunk below, or −1.

    Returns:
        The first vertex of the trunk, or −1.
    """
    count = real.shape[0]
    longest = real.copy()
    before = np.full(count, -1, np.int64)
    for s in range(upper.shape[0]):
        a, b = upper[s], lower[s]
        if side[a] == 0 and longest[a] + real[b] > longest[b]:
            longest[b] = longest[a] + real[b]
            before[b] = a
    trunk[:] = -1
    if end < 0:
        for v in range(count):
            if side[v] == 0 and (end < 0 or longest[v] > longest[end]):
                end = v
    while end >= 0 and before[end] >= 0:
        trunk[before[end]] = end
        end = before[end]
    return end


@kernel(
    (read(i64), read(i64), read(i64), read(i64), read(f64), read(i64), read(i64), read(i64), f64, write(f64)),
    strict=True,
)
def place_layers(
    first: Any,
    slots: Any,
    upper: Any,
    lower: Any,
    width: Any,
    dummy: Any,
    side: Any,
    trunk: Any,
    gap: Any,
    x: Any,
) -> None:
    """Gives each vertex the x of its centre.

    Args:
        first: int64 [H + 1] places where the layers begin in `slots`.
        slots: int64 [V] vertices in order, layer by layer.
        upper: int64 [S], upper ends of the segments between neighbouring layers.
        lower: int64 [S], lower ends.
        width: float64 [V] of each vertex.
        dummy: int64 [V], 1 for dummies.
        side: int64 [V], 1 for vertices that take no part in alignment.
        trunk: int64 [V], the vertex of the trunk below, or −1.
        gap: space between neighbours.
        x: float64 [V], out.
    """
    layers = first.shape[0] - 1
    vertices = slots.shape[0]
    segments = upper.shape[0]
    place = np.empty(vertices, np.int64)
    layer = np.empty(vertices, np.int64)
    for h in range(layers):
        for k in range(first[h], first[h + 1]):
            place[slots[k]] = k - first[h]
            layer[slots[k]] = h
    trunk_up = np.full(vertices, -1, np.int64)
    for v in range(vertices):
        if trunk[v] >= 0:
            trunk_up[trunk[v]] = v
    # adjacency, sorted by place
    up_first = np.zeros(vertices + 1, np.int64)
    down_first = np.zeros(vertices + 1, np.int64)
    for s in range(segments):
        if side[upper[s]] == 0:
            up_first[lower[s] + 1] += 1
            down_first[upper[s] + 1] += 1
    for v in range(vertices):
        up_first[v + 1] += up_first[v]
        down_first[v + 1] += down_first[v]
    up = np.empty(up_first[vertices], np.int64)
    up_segment = np.empty(up_first[vertices], np.int64)
    down = np.empty(up_first[vertices], np.int64)
    down_segment = np.empty(up_first[vertices], np.int64)
    key = np.empty(segments, np.int64)
    for s in range(segments):
        key[s] = place[upper[s]]
    fill = up_first.copy()
    for s in np.argsort(key, kind="mergesort"):
        if side[upper[s]] == 0:
            k = fill[lower[s]]
            up[k] = upper[s]
            up_segment[k] = s
            fill[lower[s]] += 1
    for s in range(segments):
        key[s] = place[lower[s]]
    fill = down_first.copy()
    for s in np.argsort(key, kind="mergesort"):
        if side[upper[s]] == 0:
            k = fill[upper[s]]
            down[k] = lower[s]
            down_segment[k] = s
            fill[upper[s]] += 1
    # what may not be aligned: what crosses the trunk, then what crosses a segment between two dummies
    barred = np.zeros(segments, np.int64)
    cross_upper = np.full(layers, -1, np.int64)
    cross_lower = np.full(layers, -1, np.int64)
    for v in range(vertices):
        if trunk[v] >= 0:
            cross_upper[layer[v]] = place[v]
            cross_lower[layer[v]] = place[trunk[v]]
    for s in range(segments):
        h = layer[upper[s]]
        if cross_upper[h] >= 0 and (place[upper[s]] - cross_upper[h]) * (place[lower[s]] - cross_lower[h]) < 0:
            barred[s] = 1
    for h in range(layers - 1):
        left = 0
        done = first[h + 1]
        for k in range(first[h + 1], first[h + 2]):
            v = slots[k]
            inner = -1
            if dummy[v] == 1:
                for e in range(up_first[v], up_first[v + 1]):
                    if dummy[up[e]] == 1 and barred[up_segment[e]] == 0:
                        inner = place[up[e]]
            if inner >= 0 or k == first[h + 2] - 1:
                right = inner if inner >= 0 else first[h + 1] - first[h] - 1
                while done <= k:
                    w = slots[done]
                    for e in range(up_first[w], up_first[w + 1]):
                        at = place[up[e]]
                        both = dummy[w] == 1 and dummy[up[e]] == 1
                        if (at < left or at > right) and not both:
                            barred[up_segment[e]] = 1
                    done += 1
                left = right
    for v in range(vertices):
        if trunk[v] >= 0:
            for e in range(down_first[v], down_first[v + 1]):
                if down[e] == trunk[v]:
                    barred[down_segment[e]] = 0
    found = np.empty((4, vertices), np.float64)
    root = np.empty(vertices, np.int64)
    align = np.empty(vertices, np.int64)
    degree = np.empty(vertices, np.int64)
    queue = np.empty(vertices, np.int64)
    spot = np.empty(vertices, np.float64)
    low = np.empty(4, np.float64)
    high = np.empty(4, np.float64)
    for way in range(4):
        downwards = way < 2
        leftwards = way % 2 == 0
        for v in range(vertices):
            root[v] = v
            align[v] = v
        for step in range(1, layers):
            h = step if downwards else layers - 1 - step
            count = first[h + 1] - first[h]
            bound = -1 if leftwards else vertices
            for j in range(count):
                v = slots[first[h] + (j if leftwards else count - 1 - j)]
                a = up_first[v] if downwards else down_first[v]
                b = up_first[v + 1] if downwards else down_first[v + 1]
                wish = trunk_up[v] if downwards else trunk[v]
                if b <= a:
                    continue
                middle = (a + b - 1) // 2
                other = a + (b - a) // 2
                for pick in range(2):
                    k = middle if (pick == 0) == leftwards else other
                    if wish >= 0:
                        for e in range(a, b):
                            if (up[e] if downwards else down[e]) == wish:
                                k = e
                    u = up[k] if downwards else down[k]
                    s = up_segment[k] if downwards else down_segment[k]
                    partner = trunk[u] if downwards else trunk_up[u]
                    if align[v] != v or barred[s] == 1 or (partner >= 0 and partner != v):
                        continue
                    if (leftwards and bound < place[u]) or (not leftwards and bound > place[u]):
                        align[u] = v
                        root[v] = root[u]
                        align[v] = root[v]
                        bound = place[u]
        # blocks from the left: each as far left as it can be; then each as far right as its neighbours let it
        degree[:] = 0
        for h in range(layers):
            for k in range(first[h] + 1, first[h + 1]):
                degree[root[slots[k]]] += 1
        tail = 0
        for v in range(vertices):
            spot[v] = 0.0
            if root[v] == v and degree[v] == 0:
                queue[tail] = v
                tail += 1
        head = 0
        while head < tail:
            block = queue[head]
            head += 1
            v = block
            while True:
                k = first[layer[v]] + place[v]
                if k + 1 < first[layer[v] + 1]:
                    w = slots[k + 1]
                    r = root[w]
                    spot[r] = max(spot[r], spot[block] + (width[v] + width[w]) / 2 + gap)
                    degree[r] -= 1
                    if degree[r] == 0:
                        queue[tail] = r
                        tail += 1
                v = align[v]
                if v == block:
                    break
        if leftwards:
            # close up to the right neighbour, as the mirror of what the rightward ones do below
            for k in range(tail):
                block = queue[tail - 1 - k]
                room = np.inf
                v = block
                while True:
                    i = first[layer[v]] + place[v]
                    if i + 1 < first[layer[v] + 1]:
                        w = slots[i + 1]
                        room = min(room, spot[root[w]] - (width[v] + width[w]) / 2 - gap)
                    v = align[v]
                    if v == block:
                        break
                if room < np.inf and room > spot[block]:
                    spot[block] = room
        else:
            # as far right as they can be, then close up to the left neighbour
            for k in range(tail):
                block = queue[tail - 1 - k]
                room = 0.0
                v = block
                while True:
                    i = first[layer[v]] + place[v]
                    if i + 1 < first[layer[v] + 1]:
                        w = slots[i + 1]
                        room = min(room, spot[root[w]] - (width[v] + width[w]) / 2 - gap)
                    v = align[v]
                    if v == block:
                        break
                spot[block] = room
            for k in range(tail):
                block = queue[k]
                room = -np.inf
                v = block
                while True:
                    i = first[layer[v]] + place[v]
                    if place[v] > 0:
                        w = slots[i - 1]
                        room = max(room, spot[root[w]] + (width[v] + width[w]) / 2 + gap)
                    v = align[v]
                    if v == block:
                        break
                if room > -np.inf and room < spot[block]:
                    spot[block] = room
        low[way] = np.inf
        high[way] = -np.inf
        for v in range(vertices):
            found[way, v] = spot[root[v]]
            low[way] = min(low[way], found[way, v] - width[v] / 2)
            high[way] = max(high[way], found[way, v] + width[v] / 2)
    narrow = 0
    for way in range(1, 4):
        if high[way] - low[way] < high[narrow] - low[narrow]:
            narrow = way
    for way in range(4):
        shift = low[narrow] - low[way] if way % 2 == 0 else high[narrow] - high[way]
        for v in range(vertices):
            found[way, v] += shift
    for v in range(vertices):
        four = np.sort(found[:, v])
        x[v] = (four[1] + four[2]) / 2
