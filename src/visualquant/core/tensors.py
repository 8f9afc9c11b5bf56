"""Element types, and references to tensor data that are read only when asked."""

from __future__ import annotations

import dataclasses
import math
import mmap
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from visualquant.errors import ExternalDataError, InputError

AnyArray = npt.NDArray[Any]
Kind = Literal["float", "int", "uint", "bool", "string", "complex"]


@dataclasses.dataclass(frozen=True, slots=True)
class ElementType:
    """One of ONNX's element types.

    Attributes:
        name: the ONNX name in lower case ("float32" for FLOAT, "float64" for DOUBLE).
        bits: bits of one stored element; 0 for strings.
        kind: float, int, uint, bool, string or complex.
        numpy: the dtype of one unpacked element (ml_dtypes for small types); object for strings.
    """

    name: str
    bits: int
    kind: Kind
    numpy: np.dtype[Any]

    @property
    def is_float(self) -> bool:
        """True for every float kind, float8, float6 and float4 included."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in ("int", "uint")

    @property
    def is_packed(self) -> bool:
        """True where several elements share a byte (2, 4 and 6 bits)."""
        return 0 < self.bits < 8 and self.kind != "bool"

    def storage_bytes(self, elements: int) -> int:
        """Bytes that `elements` packed elements take."""
        return (elements * self.bits + 7) // 8

    def __str__(self) -> str:
        return self.name


def _types() -> dict[str, ElementType]:
    plain: list[tuple[str, int, Kind, Any]] = [
        ("float32", 32, "float", np.float32),
        ("float64", 64, "float", np.float64),
        ("float16", 16, "float", np.float16),
        ("bfloat16", 16, "float", ml_dtypes.bfloat16),
        ("float8e4m3fn", 8, "float", ml_dtypes.float8_e4m3fn),
        ("float8e4m3fnuz", 8, "float", ml_dtypes.float8_e4m3fnuz),
        ("float8e5m2", 8, "float", ml_dtypes.float8_e5m2),
        ("float8e5m2fnuz", 8, "float", ml_dtypes.float8_e5m2fnuz),
        ("float8e8m0", 8, "float", ml_dtypes.float8_e8m0fnu),
        ("float6e2m3", 6, "float", ml_dtypes.float6_e2m3fn),
        ("float6e3m2", 6, "float", ml_dtypes.float6_e3m2fn),
        ("float4e2m1", 4, "float", ml_dtypes.float4_e2m1fn),
        ("uint8", 8, "uint", np.uint8),
        ("int8", 8, "int", np.int8),
        ("uint16", 16, "uint", np.uint16),
        ("int16", 16, "int", np.int16),
        ("int32", 32, "int", np.int32),
        ("int64", 64, "int", np.int64),
        ("uint32", 32, "uint", np.uint32),
        ("uint64", 64, "uint", np.uint64),
        ("uint4", 4, "uint", ml_dtypes.uint4),
        ("int4", 4, "int", ml_dtypes.int4),
        ("uint2", 2, "uint", ml_dtypes.uint2),
        ("int2", 2, "int", ml_dtypes.int2),
        ("bool", 8, "bool", np.bool_),
        ("string", 0, "string", np.object_),
        ("complex64", 64, "complex", np.complex64),
        ("complex128", 128, "complex", np.complex128),
    ]
    return {name: ElementType(name, bits, kind, np.dtype(dtype)) for name, bits, kind, dtype in plain}


ELEMENT_TYPES: dict[str, ElementType] = _types()
_BY_NUMPY: dict[np.dtype[Any], ElementType] = {t.numpy: t for t in ELEMENT_TYPES.values()}


def element_type_of(dtype: npt.DTypeLike) -> ElementType:
    """The element type of a numpy (or ml_dtypes) dtype; KeyError where ONNX has none."""
    return _BY_NUMPY[np.dtype(dtype)]


def unpack_bits(packed: npt.NDArray[np.uint8], bits: int, count: int) -> npt.NDArray[np.uint8]:
    """`count` unsigned elements of 2, 4 or 6 bits, one a byte, from ONNX's little-endian packing.

    Source: the comments of TensorProto.raw_data in onnx.proto (first element in the lowest bits; 6-bit
    types as one 24-bit stream for four elements).
    """
    flat = packed.reshape(-1)
    if bits == 4:
        out = np.empty(flat.size * 2, np.uint8)
        np.bitwise_and(flat, 15, out=out[0::2])
        np.right_shift(flat, 4, out=out[1::2])
    elif bits == 2:
        out = np.empty(flat.size * 4, np.uint8)
        for k in range(4):
            np.bitwise_and(np.right_shift(flat, 2 * k), 3, out=out[k::4])
    elif bits == 6:
        padded = np.zeros(-(-flat.size // 3) * 3, np.uint8)
        padded[: flat.size] = flat
        b0, b1, b2 = padded[0::3], padded[1::3], padded[2::3]
        out = np.empty(b0.size * 4, np.uint8)
        out[0::4] = b0 & 63
        out[1::4] = (b0 >> 6) | ((b1 & 15) << 2)
        out[2::4] = (b1 >> 4) | ((b2 & 3) << 4)
        out[3::4] = b2 >> 2
    else:
        raise InputError(f"elements of {bits} bits are not packed")
    return out[:count]


@lru_cache(maxsize=64)
def _map_file(path: Path, size: int, mtime_ns: int) -> npt.NDArray[np.uint8]:
    """A read-only map of a whole file; size and time are part of the cache key only."""
    del size, mtime_ns
    with path.open("rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(view, np.uint8)


@dataclasses.dataclass(frozen=True, slots=True)
class FileSource:
    """Bytes [offset, offset + length) of a file, mapped read-only when asked."""

    path: Path
    offset: int
    length: int

    def buffer(self) -> npt.NDArray[np.uint8]:
        """The bytes as a read-only view of the map.

        Raises:
            ExternalDataError: the file is gone, or shorter than offset + length.
        """
        try:
            stat = self.path.stat()
        except OSError as error:
            raise ExternalDataError(
                f"The tensor data file {self.path.name!r} can't be read ({error.strerror}). "
                "Put it beside the model, or name its folder with --data-root."
            ) from error
        end = self.offset + self.length
        if end > stat.st_size or self.offset < 0 or self.length < 0:
            raise ExternalDataError(
                f"The tensor data file {self.path.name!r} has {stat.st_size} bytes, but the model wants bytes "
                f"{self.offset} to {end}: it is cut short, or another model's file was saved over it."
            )
        if self.length == 0:
            return np.empty(0, np.uint8)
        return _map_file(self.path, stat.st_size, stat.st_mtime_ns)[self.offset : end]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class InlineSource:
    """Bytes that are in memory already."""

    data: npt.NDArray[np.uint8]

    def buffer(self) -> npt.NDArray[np.uint8]:
        """The bytes, read-only."""
        return self.data


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ComputedSource:
    """Packed bytes that a function makes each time they are asked for.

    For codes that no file holds: weights that are quantized at run time, codes behind a Clip, other bit orders.
    """

    make: Callable[[], npt.NDArray[np.uint8]]

    def buffer(self) -> npt.NDArray[np.uint8]:
        """The bytes, made anew."""
        return self.make()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SparseSource:
    """A sparse tensor; its dense bytes are made when asked.

    Attributes:
        values: the stored elements, [NNZ].
        indices: flat positions [NNZ], or coordinates [NNZ, rank].
        shape: the dense shape.
    """

    values: TensorRef
    indices: TensorRef
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        count = self.values.size
        if self.values.dtype.bits < 8 or self.indices.shape not in ((count,), (count, len(self.shape))):
            raise ValueError("values and indices of the sparse tensor do not fit each other")
        flat = self._flat()
        if count and (flat.min() < 0 or flat.max() >= math.prod(self.shape)):
            raise ValueError(f"an index of the sparse tensor lies outside its shape {list(self.shape)}")

    def _flat(self) -> npt.NDArray[np.int64]:
        index = self.indices.array().astype(np.int64)
        if index.ndim == 1:
            return index
        return index @ np.array([math.prod(self.shape[k + 1 :]) for k in range(len(self.shape))], np.int64)

    def buffer(self) -> npt.NDArray[np.uint8]:
        """The dense bytes."""
        dense = np.zeros(math.prod(self.shape), self.values.dtype.numpy)
        dense[self._flat()] = self.values.array()
        return dense.view(np.uint8)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TensorRef:
    """A tensor whose type and shape are known before any byte of it is read.

    Attributes:
        dtype: element type.
        shape: sizes of the axes; `()` for a scalar.
        source: where the packed little-endian bytes are; for strings an empty source.
    """

    dtype: ElementType
    shape: tuple[int, ...]
    source: FileSource | InlineSource | SparseSource | ComputedSource

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the packed data."""
        return self.dtype.storage_bytes(self.size)

    def raw(self) -> npt.NDArray[np.uint8]:
        """The packed bytes as uint8 [nbytes]: a view of the file map or of memory, read-only.

        Raises:
            ExternalDataError: the data file is missing or too short.
            InputError: the stored bytes do not fit type and shape.
        """
        data = self.source.buffer()
        if data.size < self.nbytes:
            raise InputError(
                f"a {self.dtype} tensor of shape {list(self.shape)} needs {self.nbytes} bytes, {data.size} are stored"
            )
        return data[: self.nbytes]

    def array(self) -> AnyArray:
        """The whole tensor in its numpy (or ml_dtypes) dtype: a read-only view where nothing is packed."""
        return self._decode(self.raw(), self.size).reshape(self.shape)

    def chunks(self, max_bytes: int = 16 << 20) -> Iterator[tuple[int, AnyArray]]:
        """Flat pieces (index of the first element, elements) of at most `max_bytes` packed bytes each."""
        group = 8 // math.gcd(self.dtype.bits, 8)
        step = max(group, max_bytes * 8 // self.dtype.bits // group * group)
        data = self.raw()
        for start in range(0, self.size, step):
            count = min(step, self.size - start)
            first = start * self.dtype.bits // 8
            yield start, self._decode(data[first : first + self.dtype.storage_bytes(count)], count)

    def _decode(self, data: npt.NDArray[np.uint8], count: int) -> AnyArray:
        if self.dtype.kind == "string":
            raise InputError("string tensors hold no numbers")
        if self.dtype.is_packed:
            return _unpacked(data, self.dtype, count)
        if data.ctypes.data % self.dtype.numpy.itemsize:
            data = data.copy()  # NOTE: external offsets need not be aligned; kernels want aligned elements
        return data.view(self.dtype.numpy)

    @staticmethod
    def of(array: AnyArray, dtype: ElementType | None = None) -> TensorRef:
        """A reference to an array in memory (packed where its type is)."""
        dtype = dtype or element_type_of(array.dtype)
        flat = np.ascontiguousarray(array).reshape(-1)
        if dtype.is_packed:
            data = pack_bits(flat.view(np.uint8), dtype.bits)
        else:
            data = flat.view(np.uint8)
        data.flags.writeable = False
        return TensorRef(dtype, tuple(int(n) for n in array.shape), InlineSource(data))


def _unpacked(data: npt.NDArray[np.uint8], dtype: ElementType, count: int) -> AnyArray:
    codes = unpack_bits(data, dtype.bits, count)
    if dtype.kind == "int":
        sign = np.uint8(1 << (dtype.bits - 1))
        return ((codes ^ sign).astype(np.int8) - np.int8(sign)).astype(dtype.numpy)
    if dtype.kind == "uint":
        return codes.astype(dtype.numpy)
    return codes.view(dtype.numpy)


def pack_bits(codes: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """The inverse of `unpack_bits`: the lowest `bits` bits of each byte, packed, zero-padded."""
    flat = codes.reshape(-1) & np.uint8((1 << bits) - 1)
    stream = np.unpackbits(flat[:, None], axis=1, count=bits, bitorder="little").reshape(-1)
    return np.packbits(stream, bitorder="little")
