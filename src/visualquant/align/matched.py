"""What matching found, before groups are made of it."""

from __future__ import annotations

import dataclasses

from visualquant.align.cuts import Groups, Key
from visualquant.align.packs import Matrix
from visualquant.align.units import UnitGraph, UnitId
from visualquant.core.graph import NodeId, ValueId


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """Units of both sides that belong together without being tied one to one.

    Attributes:
        lefts, rights: composed units.
        reads: pairs of values that they read.
        floats, quants: their weights, in the order in which they are concatenated.
        by_user: whether a user said so.
    """

    lefts: tuple[UnitId, ...]
    rights: tuple[UnitId, ...]
    reads: tuple[tuple[ValueId, ValueId], ...] = ()
    floats: tuple[Matrix, ...] = ()
    quants: tuple[Matrix, ...] = ()
    by_user: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Tie:
    """One-to-one tie of two compute nodes and what speaks for it.

    Attributes:
        left, right: the nodes.
        inputs, outputs: agreement of tied neighbours in front and behind, −1..1; 0 where nothing is known.
        weights: cosine of the weights, None where there are none to compare.
        named: how much names say, 0..1.
        forced: one of several equally good ones, decided by order.
    """

    left: NodeId
    right: NodeId
    inputs: float
    outputs: float
    weights: float | None
    named: float
    forced: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Composition:
    """A composed unit on one side that is a single unit on the other, or a pack.

    Attributes:
        family: operator family of the whole.
        left, right: nodes.
        weights: cosine of the weights, None where there are none to compare.
        bounds: how many of its input and output values are known to be the same on both sides, 0..1.
        by_user: whether a user said so.
    """

    family: str
    left: tuple[NodeId, ...]
    right: tuple[NodeId, ...]
    weights: float | None
    bounds: float
    by_user: bool = False


@dataclasses.dataclass
class Matched:
    """What both passes found.

    Attributes:
        groups: of compute nodes.
        values: pairs of values that are the same.
        ties: of compute nodes.
        compositions: see there.
        absorbed: nodes that came to their group only because they feed it, or are fed by it.
        bindings: packed layers and the user's groups.
        coarse: the composed unit graphs of the first pass.
        simple: the simple unit graphs of the second pass.
    """

    groups: Groups
    values: list[tuple[ValueId, ValueId]]
    ties: list[Tie]
    compositions: list[Composition]
    absorbed: set[Key]
    bindings: list[Binding]
    coarse: tuple[UnitGraph, UnitGraph]
    simple: tuple[UnitGraph, UnitGraph]

    @property
    def nodes(self) -> dict[NodeId, NodeId]:
        """Tied compute nodes, left to right."""
        return {tie.left: tie.right for tie in self.ties}
