"""Tapped tensors of one batch, by name: in memory, or on disk where memory is bounded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class TapStore(Mapping[str, Array]):
    """What the float model had, until the quantized model and its groups have been held against it.

    On disk a tensor is read back whole each time it is asked for: the same few megabytes again and again, instead of
    all of them at once.
    """

    def __init__(self, *, on_disk: bool) -> None:
        """An empty store; a file of its own goes with it."""
        self._arrays: dict[str, Array] = {}
        self._places: dict[str, tuple[int, np.dtype[Any], tuple[int, ...]]] = {}
        self._file: IO[bytes] | None = None
        if on_disk:
            self._file = tempfile.TemporaryFile(prefix="visualquant-")  # noqa: SIM115 - `close` ends it

    def put(self, name: str, array: Array, *, held: bool = False) -> None:
        """Adds a tensor.

        Args:
            name: of the tap.
            array: any.
            held: it is kept elsewhere anyway (an input): it stays in memory.
        """
        if self._file is None or held:
            self._arrays[name] = array
            return
        place = self._file.seek(0, 2)
        self._file.write(np.ascontiguousarray(array).data)
        self._places[name] = place, array.dtype, array.shape

    def __getitem__(self, name: str) -> Array:
        if name in self._arrays:
            return self._arrays[name]
        place, dtype, shape = self._places[name]
        assert self._file is not None
        self._file.seek(place)
        array = np.empty(shape, dtype)
        self._file.readinto(array.reshape(-1).view(np.uint8).data)  # type: ignore[attr-defined]
        return array

    def nbytes(self, name: str) -> int | None:
        """Bytes of a tensor without reading it; None where there is none."""
        if name in self._arrays:
            return self._arrays[name].nbytes
        if name not in self._places:
            return None
        _, dtype, shape = self._places[name]
        return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize

    def __iter__(self) -> Iterator[str]:
        yield from self._arrays
        yield from self._places

    def __len__(self) -> int:
        return len(self._arrays) + len(self._places)

    def close(self) -> None:
        """Removes the file."""
        if self._file is not None:
            self._file.close()
