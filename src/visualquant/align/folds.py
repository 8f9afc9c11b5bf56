"""What a folded or rescaled weight was multiplied with, channel by channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from visualquant.align.elements import behind
from visualquant.align.families import LINEAR
from visualquant.align.reshapings import OperandSlot, Way
from visualquant.align.side import Side
from visualquant.core.graph import NodeId

Folded = Mapping[NodeId, npt.NDArray[np.float64]]
_COLUMNS = 64
_UNEQUAL = 0.15
_EXPLAINED = 0.3


def batch_norm_factors(side: Side, nodes: Sequence[NodeId]) -> Folded:
    """For layers in a group that a BatchNormalization of the group follows: gamma / sqrt(variance + epsilon)."""
    inside = set(nodes)
    found: dict[NodeId, npt.NDArray[np.float64]] = {}
    for node_id in nodes:
        node = side.graph.nodes[node_id]
        if node.op_type != "BatchNormalization" or not side.args[node_id]:
            continue
        gamma, variance = (side.folder.array(v) if v is not None else None for v in (node.input(1), node.input(4)))
        if gamma is None or variance is None:
            continue
        epsilon = node.attributes.get("epsilon")
        with np.errstate(all="ignore"):
            factor = gamma / np.sqrt(variance + (epsilon if isinstance(epsilon, float) else 1e-5))
        layer = side.producer(side.args[node_id][0].root)
        while (
            layer is not None and layer in inside and side.families[layer] not in LINEAR and len(side.args[layer]) == 1
        ):
            layer = side.producer(side.args[layer][0].root)  # a bias in between
        if layer is not None and layer in inside and side.families[layer] in LINEAR:
            found[layer] = factor.reshape(-1)
    return found


def row_scales(
    left: Side, right: Side, source: OperandSlot, target: OperandSlot, way: Way
) -> npt.NDArray[np.float64] | None:
    """One factor a channel (or an input feature) that explains an otherwise different weight, as a broadcasting array.

    Cross-layer equalisation and smoothing do this. None where no such factors explain it, or where they are all 1.
    """
    shape = target.operand.shape
    for axis in range(len(shape)):
        if shape[axis] < 2 or len(shape) < 2:
            continue
        rest = int(np.prod([n for k, n in enumerate(shape) if k != axis]))
        picked = np.unique(np.linspace(0, rest - 1, min(rest, _COLUMNS)).astype(np.int64))
        grid = np.moveaxis(np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape), axis, 0).reshape(
            shape[axis], rest
        )
        index = grid[:, picked].reshape(-1)
        have = left.operands.elements(source.operand, behind(way.steps, source.operand.shape, index))
        got = right.operands.elements(target.operand, index)
        if have is None or got is None:
            return None
        a, b = (np.nan_to_num(x).reshape(shape[axis], len(picked)) for x in (have, got))
        power = (a * a).sum(axis=1)
        scale = np.divide((a * b).sum(axis=1), power, out=np.ones(len(a)), where=power > 0)
        left_over = float(np.sqrt(((a * scale[:, None] - b) ** 2).sum() / max((b * b).sum(), 1e-300)))
        if left_over < _EXPLAINED and np.abs(scale - 1).max() > _UNEQUAL:
            return np.asarray(scale.reshape([-1 if k == axis else 1 for k in range(len(shape))]), np.float64)
    return None
