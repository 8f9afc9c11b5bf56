"""Order of the vertices within their layers: barycentre sweeps and swaps of neighbours, the best one kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from visualquant.kernels._jit import i64, kernel, read, write

# swaps look at pairs of edges of two neighbours; beyond this many pairs the sweep alone decides
MOST_PAIRS = 4096


@kernel(
    (read(i64), read(i64), read(i64), read(i64), i64, i64, write(i64)),
    strict=True,
)
def order_layers(first: Any, upper: Any, lower: Any, weight: Any, fixed_top: Any, sweeps: Any, place: Any) -> Any:
    """Orders every layer so that few edges cross.

    Args:
        first: int64 [H + 1]; vertices first[h] .. first[h + 1] - 1 stand in layer h.
        upper: int64 [S], upper ends of the segments between neighbouring layers.
        lower: int64 [S], lower ends.
        weight: int64 [S], number of edges that run along each.
        fixed_top: 1 where the order of layer 0 is given.
        sweeps: at most so many down and up.
        place: int64 [V], in and out: place within its layer.

    Returns:
        The number of crossings that are left.
    """
    layers = first.shape[0] - 1
    vertices = first[layers]
    segments = upper.shape[0]
    up_first = np.zeros(vertices + 1, np.int64)
    down_first = np.zeros(vertices + 1, np.int64)
    for s in range(segments):
        up_first[lower[s] + 1] += 1
        down_first[upper[s] + 1] += 1
    for v in range(vertices):
        up_first[v + 1] += up_first[v]
        down_first[v + 1] += down_first[v]
    up = np.empty(segments, np.int64)
    up_weight = np.empty(segments, np.int64)
    down = np.empty(segments, np.int64)
    down_weight = np.empty(segments, np.int64)
    fill = up_first.copy()
    for s in range(segments):
        up[fill[lower[s]]] = upper[s]
        up_weight[fill[lower[s]]] = weight[s]
        fill[lower[s]] += 1
    fill = down_first.copy()
    for s in range(segments):
        down[fill[upper[s]]] = lower[s]
        down_weight[fill[upper[s]]] = weight[s]
        fill[upper[s]] += 1
    widest = 1
    for h in range(layers):
        widest = max(widest, first[h + 1] - first[h])
    slots = np.empty(vertices, np.int64)
    for h in range(layers):
        for v in range(first[h], first[h + 1]):
            slots[first[h] + place[v]] = v
    best = place.copy()
    best_crossings = np.int64(-1)
    tree = np.zeros(widest + 1, np.int64)
    centre = np.empty(widest, np.float64)
    since = 0
    for turn in range(sweeps + 1):
        if turn > 0:
            downwards = turn % 2 == 1
            for step in range(layers):
                h = step if downwards else layers - 1 - step
                if h == 0 and fixed_top == 1:
                    continue
                if (downwards and h == 0) or (not downwards and h == layers - 1):
                    continue
                a, b = first[h], first[h + 1]
                for k in range(a, b):
                    v = slots[k]
                    total = 0.0
                    mass = 0.0
                    if downwards:
                        for e in range(up_first[v], up_first[v + 1]):
                            total += up_weight[e] * place[up[e]]
                            mass += up_weight[e]
                    else:
                        for e in range(down_first[v], down_first[v + 1]):
                            total += down_weight[e] * place[down[e]]
                            mass += down_weight[e]
                    centre[k - a] = total / mass if mass > 0 else -1.0
                # a vertex without neighbours stays beside its left one
                carried = 0.0
                for k in range(b - a):
                    if centre[k] < 0:
                        centre[k] = carried
                    carried = centre[k]
                # NOTE: every other pair of sweeps turns equal ones round, which leaves many a local minimum
                if (turn // 2) % 2 == 1:
                    for k in range((b - a) // 2):
                        j = b - a - 1 - k
                        slots[a + k], slots[a + j] = slots[a + j], slots[a + k]
                        centre[k], centre[j] = centre[j], centre[k]
                sorting = np.argsort(centre[: b - a], kind="mergesort")
                taken = slots[a:b].copy()
                for k in range(b - a):
                    slots[a + k] = taken[sorting[k]]
                for k in range(a, b):
                    place[slots[k]] = k - a
        improved = True
        rounds = 0
        while improved and rounds < 8:
            improved = False
            rounds += 1
            for h in range(layers):
                if h == 0 and fixed_top == 1:
                    continue
                for k in range(first[h], first[h + 1] - 1):
                    v, w = slots[k], slots[k + 1]
                    gain = 0
                    tied = 0
                    if (up_first[v + 1] - up_first[v]) * (up_first[w + 1] - up_first[w]) < MOST_PAIRS:
                        for e in range(up_first[v], up_first[v + 1]):
                            for f in range(up_first[w], up_first[w + 1]):
                                if place[up[e]] > place[up[f]]:
                                    gain += up_weight[e] * up_weight[f]
                                    tied = 1
                                elif place[up[e]] < place[up[f]]:
                                    gain -= up_weight[e] * up_weight[f]
                    if (down_first[v + 1] - down_first[v]) * (down_first[w + 1] - down_first[w]) < MOST_PAIRS:
                        for e in range(down_first[v], down_first[v + 1]):
                            for f in range(down_first[w], down_first[w + 1]):
                                if place[down[e]] > place[down[f]]:
                                    gain += down_weight[e] * down_weight[f]
                                    tied = 1
                                elif place[down[e]] < place[down[f]]:
                                    gain -= down_weight[e] * down_weight[f]
                    # NOTE: swaps that change nothing lead off a plateau; only every fourth turn, and once a round
                    if gain > 0 or (gain == 0 and tied == 1 and rounds == 1 and turn % 4 >= 2):
                        slots[k], slots[k + 1] = w, v
                        place[w] = k - first[h]
                        place[v] = k + 1 - first[h]
                        improved = improved or gain > 0
        crossings = np.int64(0)
        for h in range(layers - 1):
            wide = first[h + 2] - first[h + 1]
            tree[: wide + 1] = 0
            total_weight = 0
            for k in range(first[h], first[h + 1]):
                v = slots[k]
                for e in range(down_first[v], down_first[v + 1]):
                    i = place[down[e]] + 1
                    seen = 0
                    while i > 0:
                        seen += tree[i]
                        i -= i & -i
                    crossings += down_weight[e] * (total_weight - seen)
                for e in range(down_first[v], down_first[v + 1]):
                    i = place[down[e]] + 1
                    total_weight += down_weight[e]
                    while i <= wide:
                        tree[i] += down_weight[e]
                        i += i & -i
        if best_crossings < 0 or crossings < best_crossings:
            best_crossings = crossings
            best[:] = place
            since = 0
        else:
            since += 1
        if best_crossings == 0 or since >= 6:
            break
    place[:] = best
    return best_crossings


@kernel((read(i64), read(i64), read(i64), i64, write(i64)), strict=True)
def depth_first(first: Any, upper: Any, lower: Any, upwards: Any, place: Any) -> None:
    """A second order to start from: vertices in the order in which a depth-first walk meets them.

    Args:
        first: int64 [H + 1]; vertices first[h] .. first[h + 1] - 1 stand in layer h.
        upper: int64 [S], upper ends of the segments.
        lower: int64 [S], lower ends.
        upwards: 1 to walk from the bottom.
        place: int64 [V], out.
    """
    vertices = place.shape[0]
    layers = first.shape[0] - 1
    begin = np.zeros(vertices + 1, np.int64)
    for s in range(upper.shape[0]):
        begin[upper[s] + 1] += 1
        begin[lower[s] + 1] += 1
    for v in range(vertices):
        begin[v + 1] += begin[v]
    fill = begin.copy()
    near = np.empty(2 * upper.shape[0], np.int64)
    layer = np.empty(vertices, np.int64)
    for h in range(layers):
        layer[first[h] : first[h + 1]] = h
    # NOTE: what is pushed last is visited first, so neighbours that lead on come after those that lead back
    for turn in range(2):
        for s in range(upper.shape[0]):
            a, b = (lower[s], upper[s]) if (turn == 0) == (upwards == 0) else (upper[s], lower[s])
            near[fill[a]] = b
            fill[a] += 1
    used = np.zeros(layers, np.int64)
    stack = np.empty(2 * upper.shape[0] + vertices, np.int64)
    place[:] = -1
    for k in range(vertices):
        start = vertices - 1 - k if upwards == 1 else k
        if place[start] >= 0:
            continue
        stack[0] = start
        height = 1
        while height > 0:
            height -= 1
            v = stack[height]
            if place[v] >= 0:
                continue
            place[v] = used[layer[v]]
            used[layer[v]] += 1
            for e in range(begin[v], begin[v + 1]):
                if place[near[e]] < 0:
                    stack[height] = near[e]
                    height += 1
