"""The ways in which a float operand of one layout can become a quantized operand of another."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Protocol

from visualquant.align.operands import BLOCKED_DOMAIN, Operand
from visualquant.align.sketches import canonical_index
from visualquant.core.graph import NodeView
from visualquant.core.quant import ViewStep

_BLOCKS = (16, 8)


class OperandSlot(Protocol):
    """What is needed of an operand's place."""

    @property
    def node(self) -> NodeView:
        """The reader."""

    @property
    def family(self) -> str:
        """Its operator family."""

    @property
    def slot(self) -> int:
        """The input slot."""

    @property
    def operand(self) -> Operand:
        """The operand."""


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """Steps from a float operand to the orientation of a quantized one.

    Attributes:
        steps: in order.
        transform: None, "transposed", "reshaped" or "re_blocked".
        expected: whether both operators read their operands in just these orientations.
        rows_axis: axis of the quantized operand along which output channels stand, where that is one axis (of a
            re-blocked one: before the steps).
    """

    steps: tuple[ViewStep, ...]
    transform: str | None
    expected: bool
    rows_axis: int | None


def ways(source: OperandSlot, target: OperandSlot) -> list[Way]:
    """Every way that shapes allow, the one that both operators expect marked."""
    have, want = source.operand.shape, target.operand.shape
    rows_axis = output_axis(target)
    blocked = _blocked(have, want, target)
    if blocked:
        return [Way(steps, "re_blocked", True, 0) for steps in blocked]
    plain = _turned(source) == _turned(target)
    out: list[Way] = []
    if have == want:
        out.append(Way((), None, plain, rows_axis))
    elif _squeezed(have) == _squeezed(want) or len(have) < 2:
        out.append(Way((ViewStep("reshape", want),), "reshaped", plain, rows_axis))
    if len(have) >= 2 and len(have) <= 4 and math.prod(have) > 1:
        for perm in itertools.permutations(range(len(have))):
            turned = tuple(have[k] for k in perm)
            if perm == tuple(range(len(have))) or (
                _squeezed(turned) == _squeezed(have) and have != want and _squeezed(have) == _squeezed(want)
            ):
                continue
            step = ViewStep("transpose", perm)
            if turned == want:
                out.append(Way((step,), "transposed", not plain, rows_axis))
            elif _squeezed(turned) == _squeezed(want):
                out.append(Way((step, ViewStep("reshape", want)), "transposed", not plain, rows_axis))
    if not out:
        out.append(Way((ViewStep("reshape", want),), "reshaped", plain, None))
    return out


def output_axis(place: OperandSlot) -> int | None:
    """The axis of an operand along which output channels stand; None where that is not one axis."""
    shape = place.operand.shape
    order, lead = canonical_index(place.node, place.family, place.slot, shape)
    if lead == 1:
        return order[0]
    long = [k for k, n in enumerate(shape) if n > 1]
    return long[0] if len(long) == 1 else None


def _turned(place: OperandSlot) -> bool:
    """Whether output channels stand last."""
    axis = output_axis(place)
    return axis is not None and len(place.operand.shape) >= 2 and axis == len(place.operand.shape) - 1


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _blocked(have: tuple[int, ...], want: tuple[int, ...], target: OperandSlot) -> list[tuple[ViewStep, ...]]:
    """The layouts of onnxruntime's blocked Conv (see `Operands.layouts`), from the plain one."""
    if target.node.domain != BLOCKED_DOMAIN or target.slot != 1 or have != want or len(have) != 4:
        return []
    o, i, h, w = have
    out: list[tuple[ViewStep, ...]] = []
    for b in _BLOCKS:
        if o % b == 0 and i % b == 0:
            split = ViewStep("reshape", (o // b, b, i // b, b, h, w))
            out.append((split, ViewStep("transpose", (0, 2, 4, 5, 3, 1)), ViewStep("reshape", want)))
        if o % b == 0:
            split = ViewStep("reshape", (o // b, b, i, h, w))
            out.append((split, ViewStep("transpose", (0, 2, 3, 4, 1)), ViewStep("reshape", want)))
    return out
