"""Layers of a layered drawing: a stable topological order, longest paths, then short edges."""

from __future__ import annotations

from typing import Any

import numpy as np

from visualquant.kernels._jit import f64, i64, kernel, read, write


@kernel((i64, read(i64), read(i64), write(i64), write(i64)), strict=True)
def assign_layers(count: Any, sources: Any, targets: Any, rank: Any, layer: Any) -> Any:
    """Gives each vertex a layer so that edges lead downwards and are short.

    Longest path first, then three rounds in which a vertex moves to the end of its slack that shortens its edges:
    as short as network simplex on large model graphs, in linear time.

    Args:
        count: number of vertices.
        sources: int64 [E], where edges begin; no loops. Files need not be sorted, so neither need these.
        targets: int64 [E], where they end.
        rank: int64 [count], out: place in a topological order, ties in the order of ids; what lies on a cycle
            comes last, in the order of ids, and its backward edges are taken as forward ones.
        layer: int64 [count], out.

    Returns:
        The number of layers.
    """
    edges = sources.shape[0]
    begin = np.zeros(count + 1, np.int64)
    for e in range(edges):
        begin[sources[e] + 1] += 1
    for v in range(count):
        begin[v + 1] += begin[v]
    fill = begin.copy()
    out = np.empty(edges, np.int64)
    waiting = np.zeros(count, np.int64)
    for e in range(edges):
        out[fill[sources[e]]] = targets[e]
        fill[sources[e]] += 1
        waiting[targets[e]] += 1
    queue = np.empty(count, np.int64)
    tail = 0
    for v in range(count):
        rank[v] = -1
        if waiting[v] == 0:
            queue[tail] = v
            tail += 1
    head = 0
    while head < tail:
        v = queue[head]
        rank[v] = head
        head += 1
        for k in range(begin[v], begin[v + 1]):
            w = out[k]
            waiting[w] -= 1
            if waiting[w] == 0:
                queue[tail] = w
                tail += 1
    for v in range(count):
        if rank[v] < 0:
            rank[v] = tail
            queue[tail] = v
            tail += 1
    # edges by topological order, both ways
    first_in = np.zeros(count + 1, np.int64)
    first_out = np.zeros(count + 1, np.int64)
    for e in range(edges):
        a, b = sources[e], targets[e]
        if rank[a] > rank[b]:
            a, b = b, a
        first_in[b + 1] += 1
        first_out[a + 1] += 1
    for v in range(count):
        first_in[v + 1] += first_in[v]
        first_out[v + 1] += first_out[v]
    fill_in = first_in.copy()
    fill_out = first_out.copy()
    above = np.empty(edges, np.int64)
    below = np.empty(edges, np.int64)
    for e in range(edges):
        a, b = sources[e], targets[e]
        if rank[a] > rank[b]:
            a, b = b, a
        above[fill_in[b]] = a
        fill_in[b] += 1
        below[fill_out[a]] = b
        fill_out[a] += 1
    highest = 0
    for k in range(count):
        v = queue[k]
        layer[v] = 0
        for e in range(first_in[v], first_in[v + 1]):
            layer[v] = max(layer[v], layer[above[e]] + 1)
        highest = max(highest, layer[v])
    for turn in range(3):
        moved = False
        for k in range(count):
            v = queue[count - 1 - k] if turn % 2 == 0 else queue[k]
            ins = first_in[v + 1] - first_in[v]
            outs = first_out[v + 1] - first_out[v]
            if ins == outs:
                continue
            lowest, last = -1, highest + 1
            for e in range(first_in[v], first_in[v + 1]):
                lowest = max(lowest, layer[above[e]])
            for e in range(first_out[v], first_out[v + 1]):
                last = min(last, layer[below[e]])
            if outs > ins:
                goal = last - 1
            elif ins > 0:
                goal = lowest + 1
            else:
                goal = layer[v]
            if goal != layer[v]:
                layer[v] = goal
                moved = True
        if not moved:
            break
    return highest + 1


@kernel(
    (
        read(i64),
        read(i64),
        read(i64),
        read(i64),
        write(i64),
        write(i64),
        write(i64),
        write(i64),
        write(i64),
        write(i64),
    ),
    strict=True,
)
def expand(
    layer: Any,
    sources: Any,
    targets: Any,
    tensors: Any,
    dummy_layer: Any,
    upper: Any,
    lower: Any,
    weight: Any,
    last: Any,
    sizes: Any,
) -> Any:
    """Cuts edges into segments between neighbouring layers; edges of one tensor share their dummies.

    Args:
        layer: int64 [V] of the vertices.
        sources: int64 [E], sorted by (tensor, layer of the target).
        targets: int64 [E].
        tensors: int64 [E].
        dummy_layer: int64 [D], out: layer of dummy V + k.
        upper: int64 [S], out: upper ends of the segments.
        lower: int64 [S], out: lower ends.
        weight: int64 [S], out: number of edges that run along each.
        last: int64 [E], out: the segment that ends at the target; the one before it is found through its `upper`.
        sizes: int64 [2], out: dummies and segments that there are.
    """
    vertices = layer.shape[0]
    dummies = 0
    segments = 0
    e = 0
    edges = sources.shape[0]
    while e < edges:
        end = e
        while end < edges and tensors[end] == tensors[e] and sources[end] == sources[e]:
            end += 1
        at = layer[sources[e]]
        tip = sources[e]
        for k in range(e, end):
            while at < layer[targets[k]] - 1:
                at += 1
                dummy_layer[dummies] = at
                upper[segments] = tip
                lower[segments] = vertices + dummies
                weight[segments] = end - k
                tip = vertices + dummies
                dummies += 1
                segments += 1
            upper[segments] = tip
            lower[segments] = targets[k]
            weight[segments] = 1
            last[k] = segments
            segments += 1
        e = end
    sizes[0] = dummies
    sizes[1] = segments


@kernel(
    (i64, read(i64), read(i64), read(i64), read(i64), read(f64), read(f64), read(f64), write(f64, 2), write(i64)),
    strict=True,
)
def route(
    vertices: Any,
    last: Any,
    upper: Any,
    lower: Any,
    layer: Any,
    x: Any,
    top: Any,
    bottom: Any,
    points: Any,
    offsets: Any,
) -> None:
    """The bend points of each edge: straight down through the layers of its dummies, aslant only between layers.

    Args:
        vertices: how many vertices there are; dummies follow them.
        last: int64 [E], the segment that ends at the target of each edge.
        upper: int64 [S], upper ends of the segments.
        lower: int64 [S], lower ends.
        layer: int64 [V] of vertices, then of dummies.
        x: float64 [V], their centres.
        top: float64 [H], upper ends of the layers.
        bottom: float64 [H], lower ends of the layers.
        points: float64 [P, 2], out; P is at least twice the sum of the spans of all edges.
        offsets: int64 [E + 1], out: points of edge e are offsets[e] .. offsets[e + 1] - 1.
    """
    into = np.full(layer.shape[0], -1, np.int64)
    for s in range(upper.shape[0]):
        into[lower[s]] = s
    used = 0
    for e in range(last.shape[0]):
        offsets[e] = used
        target, source = lower[last[e]], upper[last[e]]
        dummies = 0
        while source >= vertices:
            source = upper[into[source]]
            dummies += 1
        points[used, 0], points[used, 1] = x[source], bottom[layer[source]]
        at = used + 1 + 2 * dummies
        points[at, 0], points[at, 1] = x[target], top[layer[target]]
        used = at + 1
        v = upper[last[e]]
        while v >= vertices:
            points[at - 1, 0], points[at - 1, 1] = x[v], bottom[layer[v]]
            points[at - 2, 0], points[at - 2, 1] = x[v], top[layer[v]]
            at -= 2
            v = upper[into[v]]
    offsets[last.shape[0]] = used


@kernel((read(i64), read(i64), write(i64), write(i64)), strict=True)
def reach(first: Any, near: Any, reached: Any, waiting: Any) -> None:
    """Marks all that can be reached along edges.

    Args:
        first: int64 [V + 1]; neighbours of v are near[first[v]] .. near[first[v + 1] - 1].
        near: int64 [E].
        reached: int64 [V], in and out: 1 where a walk begins, then wherever it leads.
        waiting: int64 [V], room for the walk.
    """
    tail = 0
    for v in range(reached.shape[0]):
        if reached[v] == 1:
            waiting[tail] = v
            tail += 1
    head = 0
    while head < tail:
        v = waiting[head]
        head += 1
        for e in range(first[v], first[v + 1]):
            w = near[e]
            if reached[w] == 0:
                reached[w] = 1
                waiting[tail] = w
                tail += 1
