"""TensorProto and SparseTensorProto to `TensorRef`, without reading external data."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from visualquant.core.tensors import (
    ElementType,
    FileSource,
    InlineSource,
    SparseSource,
    TensorRef,
    pack_bits,
)
from visualquant.errors import ExternalDataError, ModelFileError
from visualquant.formats.onnx_types import BY_NUMBER

MAX_RANK = 64
"""Axes of a numpy array."""


def text(raw: str) -> str:
    """A string of the file; protobuf hands out bytes where they are no UTF-8, which then stand as escapes."""
    data: object = raw
    return data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else raw


def element_type(number: int, where: str) -> ElementType:
    """The element type of a TensorProto.DataType number.

    Raises:
        ModelFileError: a number that ONNX does not define.
    """
    found = BY_NUMBER.get(number)
    if found is None:
        raise ModelFileError(
            f"{where} has element type number {number}, which ONNX does not define. "
            "The file is damaged, or newer than this version of visualquant."
        )
    return found


@dataclasses.dataclass
class TensorReader:
    """Makes `TensorRef`s for one model file.

    Attributes:
        model_path: the model; external data is looked up in its folder.
        data_root: a further folder in which external data may lie, or None.
    """

    model_path: Path
    data_root: Path | None = None

    def __post_init__(self) -> None:
        self._files: dict[str, tuple[Path, int]] = {}

    def read(self, tensor: onnx.TensorProto, name: str = "") -> TensorRef:
        """The reference for one tensor.

        Raises:
            ModelFileError: unknown type, negative shape, or fewer bytes than type and shape need.
            ExternalDataError: the data file is missing, too short or outside the allowed folders.
        """
        where = f"tensor {name or text(tensor.name)!r} of {self.model_path.name!r}"
        dtype = element_type(tensor.data_type, where)
        shape = tuple(int(n) for n in tensor.dims)
        if any(n < 0 for n in shape):
            raise ModelFileError(f"{where} has a negative size in its shape {list(shape)}: the file is damaged.")
        if len(shape) > MAX_RANK or math.prod(n for n in shape if n) >= 1 << 62:
            raise ModelFileError(f"{where} has a shape of {len(shape)} axes that no memory holds: the file is damaged.")
        ref = TensorRef(dtype, shape, InlineSource(np.empty(0, np.uint8)))
        if dtype.kind == "string":
            return ref
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return dataclasses.replace(ref, source=self._external(tensor, ref.nbytes, where))
        data = np.frombuffer(tensor.raw_data, np.uint8) if tensor.raw_data else _typed(tensor, dtype)
        if data.size < ref.nbytes:
            raise ModelFileError(
                f"{where} holds {data.size} bytes, but {dtype} of shape {list(shape)} needs {ref.nbytes}: "
                "the file is damaged. Export it again."
            )
        data.flags.writeable = False
        return dataclasses.replace(ref, source=InlineSource(data))

    def read_sparse(self, sparse: onnx.SparseTensorProto, name: str) -> TensorRef:
        """The reference for a sparse tensor; the dense form is made when it is read."""
        values, indices = self.read(sparse.values, name), self.read(sparse.indices, name)
        shape = tuple(int(n) for n in sparse.dims)
        try:
            source = SparseSource(values, indices, shape)
        except ValueError as error:
            raise ModelFileError(f"sparse tensor {name!r} of {self.model_path.name!r}: {error}") from error
        return TensorRef(values.dtype, shape, source)

    def _external(self, tensor: onnx.TensorProto, nbytes: int, where: str) -> FileSource:
        entries = {text(e.key): text(e.value) for e in tensor.external_data}
        location = entries.get("location", "")
        try:
            offset, length = int(entries.get("offset") or 0), int(entries.get("length") or nbytes)
        except ValueError as error:
            raise ModelFileError(f"{where} has an external offset or length that is no number.") from error
        if location not in self._files:
            path = self._locate(location, where)
            self._files[location] = (path, path.stat().st_size)
        path, size = self._files[location]
        if length < nbytes or offset < 0 or offset + nbytes > size:
            raise ExternalDataError(
                f"{where} needs {nbytes} bytes at offset {offset} of {location!r}, which has {size} bytes"
                + (f" (the model allows it {length})" if length < nbytes else "")
                + ". The data file is cut short, or another model's data was saved over it: export both models "
                "into folders of their own."
            )
        return FileSource(path, offset, nbytes)

    def _locate(self, location: str, where: str) -> Path:
        outside = ExternalDataError(
            f"{where} points to {location!r}, which leads outside the model's folder. Where that is meant (links into "
            "a download cache), allow the folder that really holds the data with --data-root DIR."
        )
        if not location or "\0" in location:
            raise ExternalDataError(f"{where} is stored outside the file, but names no data file.")
        roots = [self.model_path.parent] + ([self.data_root] if self.data_root else [])
        real_roots = [root.resolve() for root in roots]
        escaped = False
        for root in real_roots:
            candidate = (root / location).resolve()
            if not any(candidate.is_relative_to(allowed) for allowed in real_roots):
                escaped = True
            elif candidate.is_file():
                return candidate
        if escaped:
            raise outside
        raise ExternalDataError(
            f"{where} needs the data file {location!r}, which is missing beside the model. Copy it there, or name its "
            "folder with --data-root DIR."
        )


def _typed(tensor: onnx.TensorProto, dtype: ElementType) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The packed little-endian bytes of a tensor that is stored in a typed field (see onnx.proto)."""
    name = dtype.name
    values: np.ndarray[Any, np.dtype[Any]]
    if name in ("float32", "complex64"):
        values = np.array(tensor.float_data, np.float32)
    elif name in ("float64", "complex128"):
        values = np.array(tensor.double_data, np.float64)
    elif name == "int64":
        values = np.array(tensor.int64_data, np.int64)
    elif name in ("uint32", "uint64"):
        values = np.array(tensor.uint64_data, np.uint64).astype(dtype.numpy)
    else:
        entries = np.array(tensor.int32_data, np.int64)
        if dtype.bits == 6:  # one element an entry
            return pack_bits(entries.astype(np.uint8), 6)
        width = max(dtype.bits, 8) // 8  # packed types: one byte an entry
        values = entries.astype({1: np.uint8, 2: np.uint16, 4: np.uint32}[width])
    return values.view(np.uint8).copy()
