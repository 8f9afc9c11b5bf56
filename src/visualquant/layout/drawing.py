"""What a layout is asked for, and what it gives."""

from __future__ import annotations

import dataclasses
import hashlib
from functools import cached_property

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class LayoutRequest:
    """A graph of boxes. Two requests are equal when their digests are.

    Attributes:
        width, height: float64 [N] of the boxes.
        sources, targets: int64 [E] vertices.
        tensors: int64 [E]; edges of one tensor share their way.
    """

    width: F64
    height: F64
    sources: I64
    targets: I64
    tensors: I64

    @cached_property
    def digest(self) -> str:
        """A digest of everything that the drawing depends on."""
        found = hashlib.blake2b(digest_size=16)
        for array in (self.width, self.height, self.sources, self.targets, self.tensors):
            found.update(str(array.size).encode())
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LayoutRequest) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """Positions; y grows downwards, edges lead downwards.

    Attributes:
        x, y: float64 [N], centres of the boxes.
        layer: int64 [N].
        piece: int64 [N], the piece of the drawing that each vertex belongs to, from top to bottom.
        boxes: float64 [P, 4], left, top, right, bottom of the pieces.
        shapes: int64 [P]; pieces of one shape look equal.
        points: float64 [Q, 2]; offsets: int64 [E + 1]: bend points of each edge, from source to target.
        jumps: bool [E], edges too long to be drawn: two points below the source, two above the target.
        digest: of the request.
    """

    x: F64
    y: F64
    layer: I64
    piece: I64
    boxes: F64
    shapes: I64
    points: F64
    offsets: I64
    jumps: npt.NDArray[np.bool_]
    digest: str

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom of everything; a unit square for nothing."""
        if not self.boxes.size:
            return (0.0, 0.0, 1.0, 1.0)
        low, high = self.boxes.min(axis=0), self.boxes.max(axis=0)
        return (float(low[0]), float(low[1]), float(high[2]), float(high[3]))
