"""Gives every node without a tie of its own to the compute node whose output, weight or scale it carries."""

from __future__ import annotations

from collections.abc import Container

from visualquant.align.side import Side
from visualquant.core.graph import NodeId


def hosts(side: Side, tied: Container[NodeId], pinned: Container[NodeId] = ()) -> dict[NodeId, NodeId]:
    """The host of each plumbing, constant and call node that is not tied itself; absent where there is none."""
    found: dict[NodeId, NodeId] = {}
    for node_id in reversed(side.order):
        kind = side.kinds[node_id]
        if kind == "compute":
            found[node_id] = node_id
            continue
        host = _maker(side, node_id) if kind != "static" else None
        if host is None:  # NOTE: readers come first here, and scales follow the integer product that they scale
            host = next(
                (found[u] for o in side.outputs(node_id) if o is not None for u, _ in side.readers[o] if u in found),
                None,
            )
        if host is None:
            host = _maker(side, node_id)
        if host is not None:
            found[node_id] = host
    return {k: v for k, v in found.items() if k != v and k not in tied and k not in pinned}


def _maker(side: Side, node_id: NodeId) -> NodeId | None:
    """The compute node whose value a node hands on, or is made from."""
    values = [*side.outputs(node_id), *side.reads[node_id]]
    for value in values:
        made = None if value is None else side.producer(side.root(value))
        if made is not None and side.kinds[made] == "compute":
            return made
    return None
