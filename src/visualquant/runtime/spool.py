"""Finished batches of a device run on the host's disk: a rerun after a failure begins at the first unfinished one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
QUOTA_BYTES = 4 << 30


class Spool:
    """A folder of batches by digest. A batch is taken for finished only after one rename."""

    def __init__(self, folder: Path, quota_bytes: int = QUOTA_BYTES) -> None:
        """Opens or makes the folder; beyond the quota batches are no longer kept.

        Attributes:
            read_batches: how many batches came from the folder.
        """
        self.folder, self._quota = folder, quota_bytes
        self.read_batches = 0
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for part in folder.glob("*.part*"):
            shutil.rmtree(part, ignore_errors=True)
        self._used = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())

    def key(self, identity: Sequence[str], taps: Sequence[str], feeds: Mapping[str, Array]) -> str:
        """A digest of what runs where on which samples."""
        digest = hashlib.sha256(json.dumps([list(identity), list(taps)]).encode("utf-8", "surrogatepass"))
        for name in sorted(feeds):
            array = np.ascontiguousarray(feeds[name])
            digest.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode("utf-8", "surrogatepass"))
            digest.update(array.tobytes())
        return digest.hexdigest()

    def read(self, key: str) -> list[tuple[str, bool, Array]] | None:
        """(name, is output, array) of a finished batch, arrays mapped; None where it is not there or damaged."""
        folder = self.folder / key
        try:
            listed = json.loads((folder / "list.json").read_text(encoding="utf-8"))
            found = [
                (str(name), bool(is_output), np.load(folder / f"{k}.npy", mmap_mode="r", allow_pickle=False))
                for k, (name, is_output) in enumerate(listed)
            ]
        except (OSError, ValueError, TypeError):
            return None
        self.read_batches += 1
        return found

    def write(self, key: str, items: Iterator[tuple[str, bool, Array]]) -> Iterator[tuple[str, bool, Array]]:
        """Passes a batch on and keeps it; a full disk or the quota ends the keeping, not the run."""
        part = self.folder / f"{key}.part-{uuid.uuid4().hex[:8]}"
        listed: list[tuple[str, bool]] = []
        keep, size = self._used < self._quota, 0
        with contextlib.suppress(OSError):
            part.mkdir(mode=0o700)
        try:
            for name, is_output, array in items:
                if keep:
                    try:
                        np.save(part / f"{len(listed)}.npy", array, allow_pickle=False)
                        listed.append((name, is_output))
                        size += array.nbytes
                        keep = self._used + size < self._quota
                    except OSError:
                        keep = False
                yield name, is_output, array
            if keep:
                with contextlib.suppress(OSError):
                    (part / "list.json").write_text(json.dumps(listed), encoding="utf-8")
                    part.replace(self.folder / key)
                    self._used += size
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def clear(self) -> None:
        """Removes all of it: the run is complete."""
        shutil.rmtree(self.folder, ignore_errors=True)
