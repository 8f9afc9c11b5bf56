"""What names say: equal names, and names with what toolchains append."""

from __future__ import annotations

import re

from visualquant.align.side import Side
from visualquant.core.graph import NodeId

_TAIL = re.compile(
    r"(_quantized|_QuantizeLinear_Output|_DequantizeLinear_Output|_QuantizeLinear_Input|_DequantizeLinear_Input|_QuantizeLinear"
    r"|_DequantizeLinear|_QuantizeInput|_dequantized|_quant|_nchwc|_Q\d|_token_\d+|/duplicated|_output_0)$"
)


def base(name: str) -> str:
    """A name without the endings that toolchains append."""
    if "_" not in name and "/" not in name:
        return name
    while (cut := _TAIL.sub("", name)) != name and cut:
        name = cut
    return name


def named_pairs(left: Side, right: Side) -> dict[tuple[NodeId, NodeId], float]:
    """Node pairs of compute operators that share a name, with how much that says (1: equal tensor names).

    Tensor names count by the value behind quantizers, since quantizers name what they make after what they read.
    """
    found: dict[tuple[NodeId, NodeId], float] = {}
    by_value: dict[str, NodeId] = {}
    by_base: dict[str, NodeId | None] = {}
    by_node: dict[str, NodeId | None] = {}
    for node_id in left.compute:
        node = left.graph.nodes[node_id]
        for out in node.outputs:
            if out is not None:
                name = left.graph.values[out].name
                by_value.setdefault(name, node_id)
                by_base[base(name)] = node_id if base(name) not in by_base else None
        if node.name:
            by_node[node.name] = node_id if node.name not in by_node else None

    def add(a: NodeId | None, b: NodeId | None, weight: float) -> None:
        if a is not None and b is not None and right.kinds[b] == "compute":
            found[a, b] = max(found.get((a, b), 0.0), weight)

    seen: dict[str, int] = {}
    for node in right.graph.nodes:
        if node.name:
            seen[node.name] = seen.get(node.name, 0) + 1
    for node in right.graph.nodes:
        for out in node.outputs:
            if out is None:
                continue
            name = right.graph.values[out].name
            made = right.producer(right.quiet_root(out))
            if name in by_value:
                add(by_value[name], made, 1.0)
            elif base(name) in by_value:
                add(by_value[base(name)], made, 0.8)
            else:
                add(by_base.get(base(name)), made, 0.7)
        if node.name and seen[node.name] == 1:
            if node.name in by_node:
                add(by_node[node.name], node.id, 0.6)
            elif base(node.name) in by_node:
                add(by_node[base(node.name)], node.id, 0.5)
    return found
