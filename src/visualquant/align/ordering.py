"""A dataflow order that does not depend on how a file happens to list its nodes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from visualquant.core.graph import GraphView, NodeId, ValueId, after_needs

_SMALL = 64


def canonical_order(
    graph: GraphView,
    order: Sequence[NodeId],
    reads: Sequence[Sequence[ValueId | None]],
    producer: Callable[[ValueId], NodeId | None],
) -> tuple[NodeId, ...]:
    """Node ids, producers before consumers; what is free to stand anywhere stands by what it computes and for whom.

    Args:
        graph: the graph.
        order: any dataflow order.
        reads: what each node reads, results of bodies included.
        producer: the node that makes a value.
    """
    behind = [0] * len(graph.nodes)
    leaves: dict[ValueId | None, object] = {}
    inputs = {v: k for k, v in enumerate(graph.inputs)}
    own = [_own(graph, k) for k in range(len(graph.nodes))]
    made = [tuple(None if v is None else producer(v) for v in found) for found in reads]
    for k in order:
        for v, p in zip(reads[k], made[k], strict=True):
            if p is None and v not in leaves:
                leaves[v] = _leaf(graph, v, inputs)
        parts = [
            (behind[p], graph.nodes[p].outputs.index(v) if v in graph.nodes[p].outputs else -1)
            if p is not None
            else leaves[v]
            for v, p in zip(reads[k], made[k], strict=True)
        ]
        behind[k] = zlib.crc32(repr((own[k], parts)).encode())
    ahead = [0] * len(graph.nodes)
    users: list[list[tuple[int, int]]] = [[] for _ in graph.nodes]
    outputs = {producer(v): k for k, v in enumerate(graph.outputs)}
    for k in reversed(order):
        ahead[k] = zlib.crc32(repr((own[k], outputs.get(k), sorted(users[k]))).encode())
        for slot, p in enumerate(made[k]):
            if p is not None:
                users[p].append((ahead[k], slot))
    needs: list[set[NodeId]] = [{p for p in found if p is not None and p != k} for k, found in enumerate(made)]
    for node in graph.nodes:
        for body in node.bodies:
            needs[node.id].update(body.nodes)
    places = [0] * len(needs)
    for place, k in enumerate(sorted(range(len(needs)), key=lambda k: (behind[k], ahead[k], k))):
        places[k] = place
    return after_needs(needs, places)


def _own(graph: GraphView, k: NodeId) -> int:
    node = graph.nodes[k]
    attributes = sorted(
        (name, repr(v)) for name, v in node.attributes.items() if isinstance(v, int | float | str | tuple)
    )
    return zlib.crc32(repr((node.domain, node.op_type, attributes)).encode())


def _leaf(graph: GraphView, value: ValueId | None, inputs: dict[ValueId, int]) -> object:
    if value is None:
        return None
    const = graph.values[value].const
    if const is None:
        return "input", inputs.get(value)
    if const.dtype.kind in ("string", "complex"):
        return const.shape
    head = bytes(const.raw()[:_SMALL])
    return const.dtype.name, const.shape, zlib.crc32(head)
