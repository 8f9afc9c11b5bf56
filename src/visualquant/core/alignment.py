"""The result of aligning two graphs."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from visualquant.core.graph import NodeId, ValueId
from visualquant.core.quant import ViewStep

GroupKind = Literal["1:1", "n:1", "1:n", "n:m", "inserted", "removed"]
SideName = Literal["float", "quant"]


def kind_of(float_nodes: int, quant_nodes: int) -> GroupKind:
    """The kind of a group from its member counts."""
    if not float_nodes:
        return "inserted"
    if not quant_nodes:
        return "removed"
    if float_nodes == 1:
        return "1:1" if quant_nodes == 1 else "1:n"
    return "n:1" if quant_nodes == 1 else "n:m"


@dataclasses.dataclass(frozen=True, slots=True)
class MatchGroup:
    """Nodes of both sides that do the same thing.

    Attributes:
        id: "g0", "g1", ... in dataflow order of the float side, inserted ones where they stand.
        float_nodes, quant_nodes: ids in ascending order; one of them may be empty.
        confidence: 0..1, calibrated: of groups at or above 0.9 at least 99 % are right.
        evidence: what earned it: "name", "weights", "topology", "activation", "fusion:<pattern>", "user", ...
        reason: for inserted and removed groups, why there is no counterpart.
    """

    id: str
    float_nodes: tuple[NodeId, ...]
    quant_nodes: tuple[NodeId, ...]
    confidence: float
    evidence: tuple[str, ...] = ()
    reason: str = ""

    @property
    def kind(self) -> GroupKind:
        """1:1, n:1, 1:n, n:m, inserted or removed."""
        return kind_of(len(self.float_nodes), len(self.quant_nodes))


@dataclasses.dataclass(frozen=True, slots=True)
class Fusion:
    """A pattern that stands in other nodes on the other side.

    Attributes:
        pattern: operators joined by "+", e.g. "Conv+BatchNormalization+Relu".
        group: id of the MatchGroup.
        float_nodes, quant_nodes: the members of the pattern (plumbing left out).
    """

    pattern: str
    group: str
    float_nodes: tuple[NodeId, ...]
    quant_nodes: tuple[NodeId, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ValuePair:
    """A float tensor and a quant tensor that hold the same value.

    Attributes:
        float_value, quant_value: value ids.
        confidence: 0..1.
        evidence: what tied them.
    """

    float_value: ValueId
    quant_value: ValueId
    confidence: float
    evidence: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class FloatOperand:
    """A constant operand of the float graph, brought into the orientation of its quantized counterpart.

    Attributes:
        node, slot: the reader and its input slot in the float graph.
        steps: from that operand to the orientation of the quantized operand (empty: alike).
    """

    node: NodeId
    slot: int
    steps: tuple[ViewStep, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WeightPair:
    """One constant operand of a quant node and the float operand(s) that it stands for.

    The reference is: each float operand after its steps, concatenated along `concat_axis`, times `factor`.

    Attributes:
        quant: (node id, slot) of the reader in the quantized graph.
        floats: one operand, or several where they were packed into one (QKV, gate and up).
        concat_axis: axis of the quantized operand along which several are packed, else None.
        factor: broadcasts against the quantized operand: what BatchNormalization folding multiplied in, or None.
        transform: None (alike), "transposed", "reshaped", "bn_folded", "bn_unfolded", "concatenated", "sliced",
            "rescaled", "re_blocked".
        evidence: what tied them.
    """

    quant: tuple[NodeId, int]
    floats: tuple[FloatOperand, ...]
    concat_axis: int | None = None
    factor: npt.NDArray[np.float64] | None = None
    transform: str | None = None
    evidence: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Alignment:
    """A partition: each node of each side is in exactly one group.

    Attributes:
        groups: in dataflow order.
        fusions: recognised patterns.
        values: pairs of activations that hold the same value (for taps).
        weights: pairs of constant operands, biases included.
        related: False where the two models share too little to be compared; `reason` says it in a sentence.
    """

    groups: tuple[MatchGroup, ...]
    fusions: tuple[Fusion, ...] = ()
    values: tuple[ValuePair, ...] = ()
    weights: tuple[WeightPair, ...] = ()
    related: bool = True
    reason: str = ""

    @cached_property
    def group_of_float(self) -> dict[NodeId, MatchGroup]:
        """The group of each float node."""
        return {n: g for g in self.groups for n in g.float_nodes}

    @cached_property
    def group_of_quant(self) -> dict[NodeId, MatchGroup]:
        """The group of each quant node."""
        return {n: g for g in self.groups for n in g.quant_nodes}
