"""Brings a float operand into the layout of the stored codes, without copying where numpy can view it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.quant import ViewStep

AnyArray = npt.NDArray[Any]


def shape_after(steps: Sequence[ViewStep], shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shapes before, between and after steps: len(steps) + 1 of them.

    Raises:
        ValueError: a step does not fit.
    """
    probe: AnyArray = np.broadcast_to(np.int8(0), shape)
    shapes = [shape]
    for step in steps:
        if step.kind == "reshape" and math.prod(step.args) != probe.size:
            raise ValueError(f"shape {list(probe.shape)} can't become {list(step.args)}")
        probe = np.broadcast_to(np.int8(0), step.args) if step.kind == "reshape" else step.apply(probe)
        shapes.append(probe.shape)
    return shapes


def inverse_steps(steps: Sequence[ViewStep], shape: tuple[int, ...]) -> tuple[ViewStep, ...]:
    """Steps that lead from the operand back to the layout of stored codes of `shape`; slices must be gone.

    Raises:
        ValueError: a slice has no inverse, or a step does not fit.
    """
    shapes = shape_after(steps, shape)
    back: list[ViewStep] = []
    for step, before in zip(reversed(steps), reversed(shapes[:-1]), strict=True):
        if step.kind == "transpose":
            back.append(ViewStep("transpose", tuple(int(k) for k in np.argsort(step.args))))
        elif step.kind == "reshape":
            back.append(ViewStep("reshape", before))
        else:
            raise ValueError("a slice has no inverse")
    return tuple(back)


def apply_steps(array: AnyArray, steps: Sequence[ViewStep]) -> AnyArray:
    """The array after all steps; a view wherever numpy can give one."""
    for step in steps:
        array = step.apply(array)
    return array


def axis_before(steps: Sequence[ViewStep], shape: tuple[int, ...], axis: int) -> int | None:
    """The axis of the stored codes that becomes `axis` of the operand; None where a reshape mixes it."""
    shapes = shape_after(steps, shape)
    for step, before, after in zip(reversed(steps), reversed(shapes[:-1]), reversed(shapes[1:]), strict=True):
        if step.kind == "transpose":
            axis = step.args[axis]
        elif step.kind == "reshape":
            ahead = math.prod(after[:axis])
            found = [k for k in range(len(before)) if math.prod(before[:k]) == ahead and before[k] == after[axis]]
            if not found:
                return None
            axis = found[0]
    return axis


@dataclasses.dataclass
class JoinedSource:
    """A float operand that is not one plain array: parts joined, scaled, or in another order.

    Attributes:
        parts: arrays (views of the map) in the layout of the codes, joined along `axis`.
        axis: where the parts are joined.
        factor: broadcasts against the whole, or None.
        order: (axis, permutation): element k of the result is element permutation[k] of the parts, or None.
        shape: of the whole.
    """

    parts: tuple[AnyArray, ...]
    axis: int = 0
    factor: npt.NDArray[np.float64] | None = None
    order: tuple[int, npt.NDArray[np.int64]] | None = None
    shape: tuple[int, ...] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        first = self.parts[0].shape
        joined = sum(p.shape[self.axis] for p in self.parts) if first else 1
        self.shape = tuple(joined if k == self.axis else n for k, n in enumerate(first))

    def read(self, start: int, stop: int) -> npt.NDArray[np.float64]:
        """Flat C-order elements [start, stop) in float64; reads whole rows of axis 0, never the whole tensor."""
        shape = self.shape
        row = math.prod(shape[1:])
        if not shape or row == 0:
            return self._rows(0, shape[0] if shape else 1).reshape(-1)[start:stop]
        first, last = start // row, -(-stop // row)
        return self._rows(first, last).reshape(-1)[start - first * row : stop - first * row]

    def _rows(self, first: int, last: int) -> npt.NDArray[np.float64]:
        if not self.shape:
            whole = self.parts[0].astype(np.float64)
            return whole if self.factor is None else whole * self.factor
        wanted = np.arange(first, last)
        if self.order is not None and self.order[0] == 0:
            wanted = self.order[1][first:last]
        pieces = []
        offset = 0
        if self.axis == 0:
            out = np.empty((wanted.size, *self.shape[1:]), np.float64)
            for part in self.parts:
                inside = (wanted >= offset) & (wanted < offset + part.shape[0])
                out[inside] = part[wanted[inside] - offset]
                offset += part.shape[0]
        else:
            pieces = [np.asarray(part[wanted], np.float64) for part in self.parts]
            out = np.concatenate(pieces, axis=self.axis) if len(pieces) > 1 else pieces[0]
        if self.order is not None and self.order[0] != 0:
            out = np.take(out, self.order[1], axis=self.order[0])
        if self.factor is not None:
            factor = np.broadcast_to(self.factor, self.shape)[first:last]
            out = out * factor
        return out
