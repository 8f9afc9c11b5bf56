"""How samples lie in an array: which axis counts them, which axis counts steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.errors import InputError

Array = npt.NDArray[Any]
Dims = Sequence[int | str | None]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Source:
    """An input's array.

    Attributes:
        array: all samples.
        axis: counts samples, before the step axis is taken away.
        extra: the array has one axis more than the input: the samples' own.
        step_axis: counts the steps of a sequence; None where there are none.
        chunk: how much of the step axis one step takes; 0 where a step takes the axis away.
    """

    array: Array
    axis: int
    extra: bool
    step_axis: int | None = None
    chunk: int = 0

    @property
    def count(self) -> int:
        """Samples."""
        return int(self.array.shape[self.axis])

    @property
    def steps(self) -> int:
        """Steps of each sample; 0 for inputs that are the same at every step."""
        return 0 if self.step_axis is None else int(self.array.shape[self.step_axis]) // max(self.chunk, 1)

    def take(self, start: int, stop: int, step: int = 0) -> Array:
        """Samples from start to stop at one step; a single sample loses its axis where that is `extra`."""
        index: list[Any] = [slice(None)] * self.array.ndim
        index[self.axis] = start if self.extra else slice(start, stop)
        if self.step_axis is not None:
            first = step * max(self.chunk, 1)
            index[self.step_axis] = slice(first, first + self.chunk) if self.chunk else step
        return np.asarray(self.array[tuple(index)])

    @property
    def axis_of_input(self) -> int | None:
        """The input's axis that counts samples; None where the array has an axis of its own for them."""
        if self.extra:
            return None
        gone = self.step_axis is not None and not self.chunk and self.step_axis < self.axis
        return self.axis - 1 if gone else self.axis

    @property
    def sample_shape(self) -> list[int]:
        """The array's shape as the input sees it, all samples still counted."""
        gone = {self.axis} if self.extra else set()
        if self.step_axis is not None and not self.chunk:
            gone.add(self.step_axis)
        sizes = list(self.array.shape)
        if self.step_axis is not None and self.chunk:
            sizes[self.step_axis] = self.chunk
        return [n for k, n in enumerate(sizes) if k not in gone]


def source(array: Array, shape: Dims, stated: int | None, step_axis: int | None = None) -> Source:
    """How the samples of an input lie in its array (see data.md).

    Args:
        array: of the sample file.
        shape: of the input.
        stated: the axis that the user names for samples.
        step_axis: the axis that the user names for steps.

    Raises:
        InputError: an axis does not exist.
    """
    for option, axis in (("--sample-axis", stated), ("--step-axis", step_axis)):
        if axis is not None and not -array.ndim <= axis < array.ndim:
            raise InputError(f"{option} {axis} does not exist in an array of shape {list(array.shape)}.")
    chunk = 0
    if step_axis is not None:
        step_axis %= array.ndim
        if array.ndim == len(shape):  # the input keeps the axis and takes a piece of it at each step
            size = shape[step_axis]
            chunk = size if isinstance(size, int) and size > 0 else 1
    # Axes of the array that the input sees, if samples have no axis of their own.
    seen = [k for k in range(array.ndim) if k != step_axis or chunk]
    extra = len(seen) > len(shape)
    if stated is not None:
        return Source(array, stated % array.ndim, extra, step_axis, chunk)
    if len(seen) == len(shape) + 1:
        return Source(array, seen[0], True, step_axis, chunk)
    candidates = [k for k, axis in enumerate(seen) if axis != step_axis]
    symbolic = [k for k in candidates if k < len(shape) and (not isinstance(shape[k], int) or shape[k] <= 0)]  # type: ignore[operator]
    if not array.ndim or not candidates:
        return Source(np.atleast_1d(array), 0, False, step_axis, chunk)
    return Source(array, seen[(symbolic or candidates)[0]], False, step_axis, chunk)


def fits(have: Sequence[int], want: Dims) -> bool:
    """True where every fixed size of the input is met."""
    return all(not isinstance(w, int) or w <= 0 or w == h for h, w in zip(have, want, strict=True))


def constant(text: str, shape: Dims, dtype: np.dtype[Any], name: str) -> Array:
    """The array that `--set NAME=text` stands for, in the input's shape (1 where a size is open).

    Raises:
        InputError: no numbers, too many of them, or numbers that the type can't hold.
    """
    try:
        numbers = [int(x) if x.strip().lstrip("+-").isdecimal() else float(x) for x in text.split(",")]
    except ValueError as error:
        raise InputError(f"--set {name}={text}: numbers are needed, separated by commas.") from error
    try:
        if dtype.kind in "iu" and any(x != int(x) for x in numbers):
            raise OverflowError
        values = np.array([int(x) if dtype.kind in "iu" else x for x in numbers], dtype)
    except (OverflowError, ValueError) as error:
        raise InputError(f"--set {name}={text}: the input takes {dtype}, which can't hold that.") from error
    sizes = [n if isinstance(n, int) and n > 0 else 1 for n in shape]
    if values.size == 1:
        return np.full(sizes, values[0], dtype)
    if int(np.prod(sizes)) != values.size:
        raise InputError(f"--set {name}={text}: {values.size} numbers do not fill shape {list(shape)}.")
    return values.reshape(sizes)
