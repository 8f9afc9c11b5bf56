"""What x is held against: codes of any type with their scales, or a second float tensor."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.quant import QuantParams
from visualquant.core.tensors import ElementType, TensorRef, element_type_of
from visualquant.errors import InputError
from visualquant.kernels.layout import Layout
from visualquant.kernels.sources import Box, Source, Strided, c_strides, source_of, type_of

FLOATS, STEPS, TABLE = 0, 1, 2  # as in float64.py
VALUES = 32
_NO_CODES = np.empty(0, np.uint8)
_NO_VALUES = np.empty((0, 0), np.float32)
_NO_TABLE = np.empty(0, np.float32)
_NO_ENDS = np.zeros(2)


def finite_values(params: QuantParams) -> npt.NDArray[np.float64]:
    """Finite values that float or table codes can take, before the scale."""
    if params.table is not None:
        values = params.table.astype(np.float64)
    else:
        patterns = np.arange(1 << params.code_type.bits).astype(np.uint8)
        values = patterns.view(params.code_type.numpy).astype(np.float64)
    return values[np.isfinite(values)]


def declared_range(params: QuantParams) -> tuple[int, int]:
    """Lowest and highest integer code that the scheme declares."""
    bits, signed = params.code_type.bits, params.code_type.kind == "int"
    low = -(1 << (bits - 1)) if signed else 0
    low = params.qmin if params.qmin is not None else low
    return low, params.qmax if params.qmax is not None else low + (1 << bits) - 1


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """The partner of a box, as the float32 kernels want it (see `rows32.measure_rows`)."""

    codes: npt.NDArray[np.uint8]
    values: npt.NDArray[np.float32]
    first: int
    bits: int
    flip: np.uint8


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Partner:
    """Codes or values beside x.

    Attributes:
        kind: element type of what is stored.
        mode: FLOATS, STEPS or TABLE.
        layout: rows and columns.
        source: unpacked elements by box; None for packed 2- and 4-bit codes.
        packed: packed bytes of 2- and 4-bit codes, else None.
        table: float32 [256], or empty where codes are integers or values.
        table_ends: float64 [2], smallest and largest finite value of the table.
        is_signed: signed integer codes.
    """

    kind: ElementType
    mode: int
    layout: Layout
    source: Source | None
    packed: npt.NDArray[np.uint8] | None
    table: npt.NDArray[np.float32]
    table_ends: npt.NDArray[np.float64]
    is_signed: bool

    @property
    def is_narrow(self) -> bool:
        """Whether codes have 8 bits or fewer (or values have: float8 without params)."""
        return self.kind.bits <= 8

    @property
    def fits_float32(self) -> bool:
        """Whether every code or value is a float32."""
        return self.kind.bits <= 16 or self.kind.name == "float32"

    @property
    def code_shift(self) -> int:
        """What `tile` subtracts from the codes: 128 for uint8."""
        return 128 if self.mode == STEPS and self.kind.name == "uint8" else 0

    def packed_view(self) -> Strided | None:
        """Where packed codes stand, positions in codes; None where nothing is packed."""
        return None if self.packed is None else Strided(self.packed, c_strides(self.layout.shape), self.layout)

    def _plain(self, box: Box) -> bool:
        r0, r1, c0, c1 = box
        in_order = self.layout.row_axes + self.layout.column_axes == tuple(range(len(self.layout.shape)))
        return in_order and (r1 - r0 == 1 or c1 - c0 == self.layout.columns)

    def _packed_bytes(self, box: Box, flip: int) -> npt.NDArray[np.uint8]:
        """Packed codes of a box, one a byte, sign-extended where flip is the sign bit."""
        from visualquant.kernels.gather import gather_packed, transpose_packed, unpack

        assert self.packed is not None
        r0, r1, c0, c1 = box
        out = np.empty((r1 - r0, c1 - c0), np.uint8)
        if not out.size:
            return out
        if self._plain(box):
            unpack(self.packed, r0 * self.layout.columns + c0, self.kind.bits, np.uint8(flip), out.reshape(-1))
            return out
        view = self.packed_view()
        assert view is not None
        if view.turn is not None:
            transpose_packed(self.packed, view.place(r0, c0), view.turn, self.kind.bits, np.uint8(flip), out)
            return out
        rows, columns = view.row_offsets(r0, r1), view.column_offsets(c0, c1)
        gather_packed(self.packed, rows, columns, self.kind.bits, np.uint8(flip), out)
        return out

    def tile(self, box: Box) -> Tile:
        """The partner of a box for the float32 kernels; packed codes stay packed where rows lie in order."""
        r0, _, c0, _ = box
        sign = 1 << (self.kind.bits - 1) if self.is_signed and self.mode == STEPS else 0
        if self.packed is not None:
            if self._plain(box):
                first = r0 * self.layout.columns + c0
                return Tile(self.packed, _NO_VALUES, first, self.kind.bits, np.uint8(sign))
            return Tile(self._packed_bytes(box, sign).reshape(-1), _NO_VALUES, 0, 8, np.uint8(0))
        assert self.source is not None
        part = self.source.box(box)
        if self.is_narrow:
            return Tile(part.view(np.uint8).reshape(-1), _NO_VALUES, 0, 8, np.uint8(self.code_shift))
        return Tile(_NO_CODES, as_float32(part), 0, VALUES, np.uint8(0))

    def wide(self, box: Box) -> npt.NDArray[np.float64]:
        """Integer codes, or values of float and table codes, of a box in float64 [rows, columns]."""
        if self.packed is not None:
            sign = 1 << (self.kind.bits - 1) if self.is_signed and self.mode == STEPS else 0
            part: npt.NDArray[Any] = self._packed_bytes(box, sign).view(np.int8)
        else:
            assert self.source is not None
            part = self.source.box(box)
        if self.table.size:
            return self.table.astype(np.float64)[part.view(np.uint8)]
        return part.astype(np.float64)

    def patterns16(self, box: Box) -> npt.NDArray[np.uint16]:
        """Bit patterns of 16-bit codes, uint16 [rows, columns]."""
        assert self.source is not None
        return self.source.box(box).view(np.uint16)


def as_float32(part: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """A C-contiguous array as float32 without loss: float32 itself, float16, bfloat16, 16-bit integers."""
    if part.dtype == np.float32:
        return part
    if part.dtype.name in ("bfloat16", "float16"):
        from visualquant.kernels.gather import widen_bfloat16, widen_float16

        widen = widen_float16 if part.dtype == np.float16 else widen_bfloat16
        out = np.empty(part.shape, np.uint32)
        widen(part.view(np.uint16).reshape(-1), out.reshape(-1))
        return out.view(np.float32)
    return part.astype(np.float32)


def partner_of(codes: Any, params: QuantParams | None, layout: Layout) -> Partner:
    """The partner for codes (or, with params None, for a second float tensor).

    Raises:
        InputError: element types that make no sense.
    """
    kind = params.code_type if params is not None else type_of(codes)
    stored = type_of(codes)
    if kind is None:
        return values_of(source_of(codes, layout), layout)
    if stored is not None and stored.bits != kind.bits:
        raise InputError(f"the codes are stored as {stored}, but the scheme says {kind}")
    if kind.kind not in ("int", "uint", "float") or (params is None and not kind.is_float):
        raise InputError(f"{kind} tensors can't be compared as weights")
    table, ends, mode = _NO_TABLE, _NO_ENDS, STEPS
    if params is None:
        mode = FLOATS
    elif params.table is not None or kind.is_float:
        mode = TABLE
        values = finite_values(params)
        ends = np.array([values.min(), values.max()]) if values.size else ends
    if kind.bits <= 8 and (kind.is_float or mode == TABLE):
        table = np.full(256, np.nan, np.float32)
        if params is not None and params.table is not None:
            table[: params.table.size] = params.table
        else:
            count = 1 << kind.bits
            table[:count] = np.arange(count).astype(np.uint8).view(kind.numpy).astype(np.float32)
    if kind.is_packed and kind.bits != 6:
        reference = codes if isinstance(codes, TensorRef) else TensorRef.of(np.ascontiguousarray(codes), kind)
        return Partner(kind, mode, layout, None, reference.raw(), table, ends, kind.kind == "int")
    if kind.bits == 6 and isinstance(codes, np.ndarray):
        codes = codes.view(np.uint8)
    if mode == TABLE and not table.size:
        mode = FLOATS  # NOTE: 16-bit floats and wider are values; no code of theirs is the end of a range
    return Partner(kind, mode, layout, source_of(codes, layout), None, table, ends, kind.kind == "int")


def values_of(source: Source, layout: Layout) -> Partner:
    """Float values as a partner."""
    kind = element_type_of(source.dtype)
    return Partner(kind, FLOATS, layout, source, None, _NO_TABLE, _NO_ENDS, True)
