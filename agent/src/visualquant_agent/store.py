"""Models on the device: uploaded in pieces, resumed where they were cut, checked by digest, one rename at the end.

    DIR/NAMESPACE/partial/DIGEST/{manifest.json, files/...}    an upload that is not complete
    DIR/NAMESPACE/models/DIGEST/{manifest.json, files/...}     a model: nothing here was ever incomplete
    DIR/work/                                                  scratch of runs, emptied at the start

A digest is the SHA-256 of the manifest, which names every file with its size and its own SHA-256.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import re
import shutil
import threading
import time
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Set, Tuple

from visualquant_agent.limits import MAX_FILES, MAX_MODELS, MAX_NAME_CHARS, Limits, Refused
from visualquant_agent.onnx_scan import scan_file

CACHE_LABEL = "segments of "
"""Labels that begin so are a cache: the oldest go when a new upload needs the room."""
FORGOTTEN_S = 7 * 86400.0
"""An upload that nobody went on with for so long makes room as well."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 20
KNOWN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"})


@dataclasses.dataclass(frozen=True)
class File:
    """One file of a manifest."""

    name: str
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Entry:
    """One model, complete or not."""

    digest: str
    label: str
    files: Tuple[File, ...]
    complete: bool
    last_used: float


def manifest_digest(files: Sequence[File]) -> str:
    """SHA-256 of the canonical form: JSON without spaces of [[name, bytes, sha256], ...] in order."""
    listed = [[f.name, f.bytes, f.sha256] for f in files]
    return hashlib.sha256(json.dumps(listed, separators=(",", ":"), ensure_ascii=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def check_name(name: str) -> None:
    """Refuses every name that is not a plain relative path."""
    parts = name.split("/")
    if (
        not name
        or len(name) > MAX_NAME_CHARS
        or not name.isprintable()
        or "\\" in name
        or any(p in ("", ".", "..") or p.endswith((" ", ".")) for p in parts)
        or len(parts) > 8
    ):
        raise Refused("INVALID_ARGUMENT", f"{name[:80]!a} is no plain relative file name")


class Store:
    """The models of one namespace; namespaces share the quota."""

    def __init__(self, root: Path, limits: Limits, namespace: str = "default") -> None:
        """Opens or makes the folder."""
        self.root, self.limits, self.namespace = root, limits, namespace
        self._lock = _lock_of(root)
        self._busy: Set[str] = set()
        for kind in ("partial", "models"):
            (root / namespace / kind).mkdir(parents=True, exist_ok=True, mode=0o700)

    def begin(self, files: Sequence[File], label: str) -> Tuple[str, bool, List[int]]:
        """Announces an upload: (digest, complete, bytes received by file).

        Raises:
            Refused: unsafe names, too many files, no room.
        """
        if not 0 < len(files) <= MAX_FILES or len({f.name for f in files}) != len(files):
            raise Refused("INVALID_ARGUMENT", f"a manifest has 1 to {MAX_FILES} files with different names")
        for file in files:
            check_name(file.name)
            if not _DIGEST.fullmatch(file.sha256):
                raise Refused("INVALID_ARGUMENT", "a file's sha256 is 64 lower-case hexadecimal digits")
        digest = manifest_digest(files)
        with self._lock:
            if self._folder("models", digest).is_dir():
                self._touch(digest)
                return digest, True, [f.bytes for f in files]
            folder = self._folder("partial", digest)
            if not folder.is_dir():
                self._make_room(sum(f.bytes for f in files))
                with _disk():
                    (folder / "files").mkdir(parents=True, mode=0o700)
                    _write_manifest(folder, files, label)
            return digest, False, [_size(folder / "files" / f.name) for f in files]

    def write(self, digest: str, number: int, offset: int, data: bytes) -> None:
        """Appends a piece.

        Raises:
            Refused: NOT_FOUND without a manifest; OUT_OF_RANGE where the offset is not the next one or the piece is
                too long; RESOURCE_EXHAUSTED on a full disk (what was received stays).
        """
        folder = self._folder("partial", digest)
        entry = self._entry(folder)
        if number >= len(entry.files):
            raise Refused("INVALID_ARGUMENT", f"the manifest has no file number {number}")
        file = entry.files[number]
        path = folder / "files" / file.name
        with self._lock, _disk():  # NOTE: a cut call may still write while the next one begins
            have = _size(path)
            if offset != have or offset + len(data) > file.bytes:
                raise Refused("OUT_OF_RANGE", f"{file.name!r} continues at {have} of {file.bytes}, not at {offset}")
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(handle, view) :]
            finally:
                os.close(handle)

    def finish(self, digest: str) -> None:
        """Checks all digests and renames the folder.

        Raises:
            Refused: OUT_OF_RANGE where bytes are missing; DATA_LOSS where a digest differs (that file starts again).
        """
        with self._one_at_a_time(digest):
            if self._folder("models", digest).is_dir():
                return
            folder = self._folder("partial", digest)
            entry = self._entry(folder)
            for file in entry.files:
                path = folder / "files" / file.name
                if file.bytes == 0:
                    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                    path.touch(mode=0o600)
                if _size(path) != file.bytes:
                    raise Refused("OUT_OF_RANGE", f"{file.name!r} has {_size(path)} of {file.bytes} bytes")
                if file_digest(path) != file.sha256:
                    path.unlink()
                    raise Refused(
                        "DATA_LOSS", f"{file.name!r} was damaged on its way (its SHA-256 differs): send again"
                    )
                with path.open("rb") as handle:
                    os.fsync(handle.fileno())
            with self._lock, _disk():
                os.replace(folder, self._folder("models", digest))
                _sync_folder(self.root / self.namespace / "models")

    def path(self, digest: str) -> Path:
        """The folder of a complete model's files; marks it as used.

        Raises:
            Refused: NOT_FOUND.
        """
        folder = self._folder("models", digest)
        if not folder.is_dir():
            raise Refused("NOT_FOUND", "no such model is on the device: upload it first")
        self._touch(digest)
        return folder / "files"

    def model(self, digest: str) -> Path:
        """The first file of a model, looked over: foreign operators and data outside the folder are refused."""
        files = self.path(digest)
        path = files / self._entry(files.parent).files[0].name
        self.check(path)
        return path

    def check(self, path: Path) -> None:
        """Refuses a model with EPContext nodes, foreign operators, or external data outside its own folder."""
        found = scan_file(path)
        allowed = KNOWN_DOMAINS | set(self.limits.foreign)
        for domain, op_type in sorted(found.operators):
            if op_type == "EPContext" and not self.limits.ep_context:
                raise Refused(
                    "PERMISSION_DENIED",
                    "the model has an EPContext node, which loads compiled code: start the agent with "
                    "--allow-ep-context if you trust it",
                )
            if domain not in allowed and not (domain == "" or op_type == "EPContext"):
                raise Refused(
                    "PERMISSION_DENIED",
                    f"the model uses the operator domain {domain[:60]!a}: start the agent with --allow-domain "
                    "if its ONNX Runtime has it and you trust it",
                )
        root = path.parent.resolve()
        for location in found.locations:
            target = (path.parent / location).resolve()
            if Path(location).is_absolute() or root not in target.parents or not target.is_file():
                raise Refused(
                    "PERMISSION_DENIED", f"external data {location[:80]!a} is not among the model's own files"
                )

    def entries(self) -> List[Entry]:
        """All models and uploads of this namespace, the last used first."""
        found = []
        for kind in ("models", "partial"):
            for folder in sorted((self.root / self.namespace / kind).iterdir()):
                with contextlib.suppress(Refused):
                    found.append(self._entry(folder))
        return sorted(found, key=lambda e: -e.last_used)[:MAX_MODELS]

    def delete(self, digest: str) -> int:
        """Removes a model or an upload; bytes freed, 0 where there was none."""
        freed = 0
        with self._lock:
            for kind in ("models", "partial"):
                folder = self._folder(kind, digest)
                if folder.is_dir():
                    freed += _tree_bytes(folder)
                    gone = folder.with_name(f"{digest}.gone")
                    os.replace(folder, gone)  # NOTE: a half-deleted folder must never be taken for a model
                    shutil.rmtree(gone, ignore_errors=True)
        return freed

    def used_bytes(self) -> int:
        """Bytes of the whole store: models, and uploads as announced."""
        return sum(sum(f.bytes for f in e.files) for e in self._all())

    def free_bytes(self) -> int:
        """Room that quota and disk leave; may be negative."""
        return min(self.limits.quota_bytes - self.used_bytes(), shutil.disk_usage(self.root).free)

    def _all(self) -> Iterator[Entry]:
        for kind in ("models", "partial"):
            for folder in self.root.glob(f"*/{kind}/*"):
                with contextlib.suppress(Refused):
                    yield self._entry(folder)

    def _make_room(self, need: int) -> None:
        free = self.free_bytes()
        long_ago = time.time() - FORGOTTEN_S
        caches = [
            e
            for e in reversed(self.entries())
            if (e.complete and e.label.startswith(CACHE_LABEL)) or (not e.complete and e.last_used < long_ago)
        ]
        for entry in caches:
            if free >= need:
                return
            self.delete(entry.digest)
            free = self.free_bytes()
        if free < need:
            raise Refused(
                "RESOURCE_EXHAUSTED",
                f"the upload needs {need} bytes and the device's store has {max(free, 0)} left (quota "
                f"{self.limits.quota_bytes}): delete models, or start the agent with a larger --quota",
            )

    @contextlib.contextmanager
    def _one_at_a_time(self, digest: str) -> Iterator[None]:
        with self._lock:
            if digest in self._busy:
                raise Refused("ABORTED", "another upload of the same model is being finished")
            self._busy.add(digest)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(digest)

    def _folder(self, kind: str, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise Refused("INVALID_ARGUMENT", "a digest is 64 lower-case hexadecimal digits")
        return self.root / self.namespace / kind / digest

    def _entry(self, folder: Path) -> Entry:
        path = folder / "manifest.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            files = tuple(File(str(n), int(b), str(s)) for n, b, s in content["files"])
            used = path.stat().st_mtime
            return Entry(folder.name, str(content["label"]), files, folder.parent.name == "models", used)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Refused("NOT_FOUND", "no such upload is known here: announce it first") from error

    def _touch(self, digest: str) -> None:
        with contextlib.suppress(OSError):
            os.utime(self._folder("models", digest) / "manifest.json", (time.time(), time.time()))


_LOCKS: Dict[Path, threading.RLock] = {}


def _lock_of(root: Path) -> threading.RLock:
    return _LOCKS.setdefault(root.absolute(), threading.RLock())


def _write_manifest(folder: Path, files: Sequence[File], label: str) -> None:
    content = {"label": label[:200], "files": [[f.name, f.bytes, f.sha256] for f in files]}
    part = folder / "manifest.part"
    with part.open("w", encoding="utf-8") as out:
        json.dump(content, out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(part, folder / "manifest.json")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _tree_bytes(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _disk() -> Iterator[None]:
    """A full disk as a refusal: what was received stays, so the upload resumes once there is room."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise Refused("RESOURCE_EXHAUSTED", "the device's disk is full: free some room and send again") from error
        raise
