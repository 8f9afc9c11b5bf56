"""What a BatchNormalization multiplies into the layer in front of it, channel by channel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from visualquant.align.families import LINEAR
from visualquant.align.side import Side
from visualquant.core.graph import NodeId


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """A BatchNormalization that folds into the layer in front of it.

    Attributes:
        node: the BatchNormalization.
        factor: gamma / sqrt(variance + epsilon), [C].
        bias: what the layer's bias becomes, [C]; None where its own bias is not known.
    """

    node: NodeId
    factor: npt.NDArray[np.float64]
    bias: npt.NDArray[np.float64] | None


def folded_norms(side: Side, nodes: Sequence[NodeId]) -> dict[NodeId, Norm]:
    """For layers among the nodes that a BatchNormalization among them follows, that norm."""
    inside = set(nodes)
    found: dict[NodeId, Norm] = {}
    for node_id in nodes:
        node = side.graph.nodes[node_id]
        if node.op_type != "BatchNormalization" or not side.args[node_id] or len(node.inputs) < 5:
            continue
        values = [side.folder.array(v) if v is not None else None for v in node.inputs[1:5]]
        gamma, beta, mean, variance = values
        if gamma is None or beta is None or mean is None or variance is None:
            continue
        epsilon = node.attributes.get("epsilon")
        with np.errstate(all="ignore"):
            factor = (gamma / np.sqrt(variance + (epsilon if isinstance(epsilon, float) else 1e-5))).reshape(-1)
        own, layer = _layer_in_front(side, node_id, inside)
        if layer is not None:
            bias = None if own is None else (own - mean.reshape(-1)) * factor + beta.reshape(-1)
            found[layer] = Norm(node_id, factor, bias)
    return found


def _layer_in_front(
    side: Side, norm: NodeId, inside: set[NodeId]
) -> tuple[npt.NDArray[np.float64] | None, NodeId | None]:
    """(the bias that arrives at a norm, the layer with weights in front of it); a bias may be an Add in between."""
    bias: npt.NDArray[np.float64] | None = np.zeros(1)
    current: NodeId | None = side.producer(side.args[norm][0].root)
    while current is not None and current in inside and len(side.args[current]) == 1:
        node = side.graph.nodes[current]
        data = {arg.slot for arg in side.args[current]}
        linear = side.families[current] in LINEAR
        slots = [2] if linear else [k for k in range(len(node.inputs)) if k not in data]
        for slot in slots:
            if slot < len(node.inputs) and node.inputs[slot] is not None:
                got = side.folder.array(node.inputs[slot])  # type: ignore[arg-type]
                bias = None if got is None or bias is None else bias + got.reshape(-1)
        if linear:
            return bias, current
        if side.families[current] != "Add":
            return None, None
        current = side.producer(side.args[current][0].root)
    return None, None
