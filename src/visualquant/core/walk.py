"""The stations of one number on its way through a quantizer."""

from __future__ import annotations

import dataclasses
from typing import Literal

Role = Literal["weight", "bias", "activation"]


@dataclasses.dataclass(frozen=True, slots=True)
class Walk:
    """The stations of one number.

    Attributes:
        value: name of the tensor in the quantized model.
        float_value: its name in the float model.
        role: what the tensor is.
        index: of the element, in the layout of the stored codes.
        shape: of the codes.
        code_type: ONNX type name in lower case.
        granularity: of the scales.
        scale, zero_point: of this element.
        channel: index along the axis of the scales; None per tensor.
        x: the float model's number.
        divided: x / scale.
        rounded: half to even; None for codes that are no integers.
        shifted: rounded + zero_point; None likewise.
        limits: lowest and highest code; None likewise.
        expected: the code that follows from all this.
        code: the code in the file; None for activations, which have none.
        dequantized: what the code stands for.
        error: x − dequantized.
    """

    value: str
    float_value: str
    role: Role
    index: tuple[int, ...]
    shape: tuple[int, ...]
    code_type: str
    granularity: str
    scale: float
    zero_point: float
    channel: int | None
    x: float
    divided: float
    rounded: float | None
    shifted: float | None
    limits: tuple[int, int] | None
    expected: float | None
    code: float | None
    dequantized: float
    error: float

    @property
    def error_in_steps(self) -> float | None:
        """|error| / scale: above 0.5 it is more than rounding."""
        return abs(self.error / self.scale) if self.scale else None

    @property
    def is_clipped(self) -> bool:
        """True where the rounded value lies beyond the codes."""
        return self.limits is not None and self.shifted is not None and self.shifted != self.expected


def stations(walk: Walk) -> list[tuple[str, str, str]]:
    """The stations as (name, number, what happens there), for any face."""
    rows = [
        ("x", f"{walk.x:.9g}", "the float model's number"),
        ("scale", f"{walk.scale:.9g}", "the step between two codes" if walk.limits else ""),
        ("x / scale", f"{walk.divided:.9g}", "in steps" if walk.limits else ""),
    ]
    if walk.rounded is not None and walk.shifted is not None and walk.limits is not None:
        rows.append(("rounded", f"{walk.rounded:.9g}", "half to even"))
        rows.append(("+ zero_point", f"{walk.shifted:.9g}", f"zero_point is {walk.zero_point:g}"))
        low, high = walk.limits
        words = f"codes reach from {low} to {high}" + ("; the number lies beyond" if walk.is_clipped else "")
        rows.append(("clipped", f"{walk.expected:.9g}", words))
    if walk.code is not None:
        other = walk.expected is not None and walk.code != walk.expected
        words = "another one: not rounded to the nearest, or other weights" if other else ""
        rows.append(("code in the file", f"{walk.code:.9g}", words))
    formula = "(code − zero_point)·scale" if walk.limits else "what the code stands for, times scale"
    rows.append(("x̂", f"{walk.dequantized:.9g}", formula))
    steps = walk.error_in_steps
    size = "" if steps is None or walk.limits is None else f"{steps:.3g} steps"
    if size:
        size += ": rounding only" if steps is not None and steps <= 0.5 + 1e-3 else ": more than rounding (at most 0.5)"
    rows.append(("error x − x̂", f"{walk.error:.9g}", size))
    return rows
