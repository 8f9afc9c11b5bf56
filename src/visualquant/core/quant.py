"""How codes become values, and where in a graph that happens."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from visualquant.core.graph import NodeId, ValueId
from visualquant.core.tensors import ElementType, TensorRef
from visualquant.errors import InputError

FloatArray = npt.NDArray[np.floating[Any]]
Granularity = Literal["per_tensor", "per_channel", "blocked"]
SiteRole = Literal["weight", "activation", "bias"]


class QuantParamsError(InputError, ValueError):
    """Scale, zero point, axis or block size that do not fit each other or the tensor."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class QuantParams:
    """How the codes of one tensor become values: x̂ = (code − zero_point)·scale, or table[code]·scale.

    Float codes (float8, float6, float4) use the value of the code itself and zero_point 0.

    Attributes:
        code_type: element type of the codes.
        scale: float64 array. Per tensor: shape (). Per channel: [C]. Blocked: the shape of the codes with
            `axis` shortened to its number of blocks. NaN, infinity, 0 and negative values are kept: findings
            speak of them.
        zero_point: of scale's shape, integer (or float where a scheme has float zero points); None means 0.
        axis: axis of the stored codes along which scales change; None per tensor.
        block_size: elements of `axis` that share a scale; None unless blocked.
        qmin, qmax: the range of codes that the scheme declares (narrow ranges included), before observing codes.
        table: value of each code where it is neither the integer nor the float itself (nf4), float32 [2**bits].
    """

    code_type: ElementType
    scale: npt.NDArray[np.float64]
    zero_point: npt.NDArray[Any] | None = None
    axis: int | None = None
    block_size: int | None = None
    qmin: int | None = None
    qmax: int | None = None
    table: npt.NDArray[np.float32] | None = None

    @property
    def granularity(self) -> Granularity:
        """per_tensor, per_channel or blocked."""
        if self.block_size is not None:
            return "blocked"
        return "per_tensor" if self.axis is None else "per_channel"

    @property
    def is_quantized(self) -> bool:
        """True for codes below 16 bits and for integers; False for float16, bfloat16 and wider values."""
        return self.code_type.is_integer or self.code_type.bits < 16

    @property
    def is_symmetric(self) -> bool:
        """True where every zero point is 0 (or, unsigned, none is given)."""
        return self.zero_point is None or not np.any(self.zero_point)

    def validate(self, shape: tuple[int, ...]) -> None:
        """Check against the shape of the codes.

        Raises:
            QuantParamsError: a sentence that names what does not fit.
        """
        want: tuple[int, ...]
        if self.axis is None:
            want = ()
        elif not 0 <= self.axis < max(len(shape), 1):
            raise QuantParamsError(f"axis {self.axis} does not exist in a tensor of shape {list(shape)}")
        elif self.block_size is None:
            want = (shape[self.axis],)
        else:
            if self.block_size <= 0:
                raise QuantParamsError(f"block size {self.block_size} is not positive")
            blocks = math.ceil(shape[self.axis] / self.block_size)
            want = (*shape[: self.axis], blocks, *shape[self.axis + 1 :])
        if self.scale.shape != want:
            raise QuantParamsError(
                f"the scale has shape {list(self.scale.shape)}, but {self.granularity} codes of shape {list(shape)}"
                + (f" along axis {self.axis}" if self.axis is not None else "")
                + (f" in blocks of {self.block_size}" if self.block_size else "")
                + f" need {list(want)}"
            )
        if self.zero_point is not None and self.zero_point.shape != want:
            raise QuantParamsError(
                f"the zero point has shape {list(self.zero_point.shape)}, the scale {list(want)}: they must agree"
            )

    def broadcast(self, array: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Scale or zero point as an array that broadcasts against codes of `shape`."""
        if self.axis is None:
            return array
        if self.block_size is None:
            return array.reshape([-1 if k == self.axis else 1 for k in range(len(shape))])
        return np.repeat(array, self.block_size, axis=self.axis).take(np.arange(shape[self.axis]), axis=self.axis)

    def dequantize(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """x̂ in float64 for a whole array of codes: small and slow, the reference of every faster path.

        Zero points are subtracted in int64 (or float64), so no code type wraps.
        Source: ONNX DequantizeLinear, y = (x − zero_point)·scale.
        """
        if self.table is not None:
            value = self.table.astype(np.float64)[codes.astype(np.int64) % self.table.size]
        elif self.code_type.is_integer:
            value = codes.astype(np.int64)
        else:
            value = codes.astype(np.float64)
        if self.zero_point is not None:
            zero = self.zero_point
            zero = zero.astype(np.int64) if zero.dtype.kind in "iu" else zero.astype(np.float64)
            value = value - self.broadcast(zero, codes.shape)
        with np.errstate(all="ignore"):
            out: npt.NDArray[np.float64] = value.astype(np.float64) * self.broadcast(self.scale, codes.shape)
        return out


def code_limits(params: QuantParams) -> tuple[int, int] | None:
    """Lowest and highest code of integer parameters, None for float codes."""
    if not params.code_type.is_integer:
        return None
    low, high = params.qmin, params.qmax
    if low is None:
        low = 0 if params.code_type.kind == "uint" else -(1 << (params.code_type.bits - 1))
    if high is None:
        high = (1 << params.code_type.bits) - 1 if params.code_type.kind == "uint" else -low - 1
    return low, high


@dataclasses.dataclass(frozen=True, slots=True)
class ViewStep:
    """One step from stored codes (or a stored float tensor) to the operand that a node reads.

    Attributes:
        kind: "transpose" (args = perm), "reshape" (args = shape), "slice" (args = axis, start, stop).
    """

    kind: Literal["transpose", "reshape", "slice"]
    args: tuple[int, ...]

    def apply(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array after this step; a view wherever numpy can give one."""
        if self.kind == "transpose":
            return array.transpose(self.args)
        if self.kind == "reshape":
            return array.reshape(self.args)
        axis, start, stop = self.args
        return array[(slice(None),) * axis + (slice(start, stop),)]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class QuantSite:
    """One place where a graph turns codes into values (or values into codes).

    Attributes:
        value: the stored (or produced) tensor of codes; for a weight quantized at run time, the float tensor.
        scheme: which reader found it: "qdq", "qoperator", "dynamic", "matmul_nbits", ...
        role: weight, bias or activation.
        params: None where they exist only at run time (dynamic activations) or are not constant.
        codes: the stored codes; for weights quantized at run time those that the file's formula gives, computed when
            they are read. None for activations. Its element type may be wider than `params.code_type` (a 5-bit code
            lies in an int8), never narrower.
        reader: the compute node that uses the tensor (for an activation: the first one), with its input slot.
        slot: input slot of `reader`.
        view: steps from the stored codes to the operand at that slot.
        nodes: plumbing nodes that belong to this site (Q, DQ, Transpose on the way, scale arithmetic).
        dequantized: the value that holds x̂ as a float tensor, where the graph has one.
        quantized_at_run_time: the file stores float and quantizes when it runs.
        permutation: order of the axis before grouping (g_idx), or None. Where it is given, element j of the codes
            along `params.axis` is element permutation[j] of the operand's axis: put x̂ back before `view` is applied.
        pre_scale: factor that was multiplied into the float weight before quantizing (AWQ), or None; it broadcasts
            against the operand, that is against x̂ after `view`.
        problem: what does not fit (scale shape, zero-point length, block size, opset), as a sentence, or None. Then
            `params` is None, except where one reading alone fits: it is given, and the number stands all the same.
    """

    value: ValueId
    scheme: str
    role: SiteRole
    params: QuantParams | None
    codes: TensorRef | None
    reader: NodeId | None
    slot: int
    view: tuple[ViewStep, ...] = ()
    nodes: tuple[NodeId, ...] = ()
    dequantized: ValueId | None = None
    quantized_at_run_time: bool = False
    permutation: npt.NDArray[np.int64] | None = None
    pre_scale: npt.NDArray[np.float64] | None = None
    problem: str | None = None
