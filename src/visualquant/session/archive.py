"""The .vqz archive: one file that every face opens without the models."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from visualquant._version import __version__
from visualquant.core.report import Report
from visualquant.errors import ArchiveError, InputError
from visualquant.reports.json_report import from_plain, to_plain
from visualquant.session.archive_columns import (
    pack_details,
    pack_groups,
    pack_nodes,
    pack_values,
    read_json,
    unpack_details,
    unpack_groups,
    unpack_nodes,
    unpack_values,
)

MIMETYPE = b"application/vnd.visualquant+zip"
VERSION = (1, 0)
MAX_MEMBERS = 100_000
MAX_BYTES = 4 << 30
MAX_RATIO = 1_000
_COLUMNS = ("nodes", "values", "alignment")


def save(report: Report, path: Path) -> None:
    """Writes the archive under a temporary name in the same folder, then renames it.

    Raises:
        ArchiveError: the folder can't be written.
    """
    members = dict(_members(report))
    manifest = {
        "format": "vqz",
        "version": list(VERSION),
        "min_reader": [VERSION[0], 0],
        "tool": f"visualquant {__version__}",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "complete": report.status == "complete",
        "members": {k: {"sha256": hashlib.sha256(v).hexdigest(), "bytes": len(v)} for k, v in members.items()},
    }
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise ArchiveError(f"{str(path)!r} can't be written: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
                archive.writestr(zipfile.ZipInfo("mimetype"), MIMETYPE)
                _write(archive, "manifest.json", json.dumps(manifest, indent=1).encode())
                for name, data in members.items():
                    _write(archive, name, data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise ArchiveError(f"{str(path)!r} can't be written: {error.strerror}.") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: Path | str) -> Report:
    """The report of an archive; nothing is extracted to disk.

    Raises:
        ArchiveError: not an archive, damaged, hostile, or written by a newer major version.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = _checked(archive, path.name)
            plain = read_json(members["report.json"])
            plain["nodes"] = {s: unpack_nodes(members, f"graph/{s}") for s in _sides(members)}
            plain["values"] = {s: unpack_values(members, f"graph/{s}") for s in _sides(members)}
            plain["alignment"] = unpack_groups(members, "align")
            report = from_plain(plain)
            return dataclasses.replace(report, details=unpack_details(members, "weights", len(report.weights)))
    except OSError as error:
        raise ArchiveError(f"{str(path)!r} can't be opened: {error.strerror}.") from error
    except (zipfile.BadZipFile, zlib.error) as error:
        raise ArchiveError(f"{path.name!r} is not a .vqz archive, or it is damaged ({error}).") from error
    except (KeyError, ValueError, IndexError, TypeError, EOFError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, ArchiveError):
            raise
        raise ArchiveError(f"{path.name!r} is damaged: {error}. Save it again with `compare --save`.") from error
    except InputError as error:
        raise ArchiveError(f"{path.name!r}: {error}") from error


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    # NOTE: a member that deflates by more than half of what a reader refuses is stored: it would be refused.
    small = len(data) < 64 or len(data) > MAX_RATIO // 2 * len(zlib.compress(data, 1))
    method = zipfile.ZIP_STORED if small else zipfile.ZIP_DEFLATED
    info = zipfile.ZipInfo(name)
    info.compress_type = method
    archive.writestr(info, data, compress_type=method, compresslevel=6)


def _sides(members: Mapping[str, bytes]) -> list[str]:
    return sorted({name.split("/")[1] for name in members if name.startswith("graph/")})


def _checked(archive: zipfile.ZipFile, name: str) -> dict[str, bytes]:
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise ArchiveError(f"{name!r} has {len(infos):,} members, more than {MAX_MEMBERS:,}: it is refused.")
    names = [i.filename for i in infos]
    if len(set(names)) != len(names):
        raise ArchiveError(f"{name!r} holds two members of one name: it is refused.")
    total = 0
    for info in infos:
        parts = info.filename.replace("\\", "/").split("/")
        if info.filename.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
            raise ArchiveError(f"{name!r} holds a member that leads outside ({info.filename!r}): it is refused.")
        total += info.file_size
        if info.file_size > MAX_RATIO * max(info.compress_size, 1) or total > MAX_BYTES:
            raise ArchiveError(f"{name!r} unpacks to an unreasonable size ({info.filename!r}): it is refused.")
    if "manifest.json" not in names:
        raise ArchiveError(f"{name!r} is a zip file, but no .vqz archive (it has no manifest).")
    manifest = json.loads(archive.read("manifest.json"))
    if manifest.get("format") != "vqz":
        raise ArchiveError(f"{name!r} is a zip file, but no .vqz archive.")
    if manifest["min_reader"][0] > VERSION[0]:
        raise ArchiveError(
            f"{name!r} needs a reader of version {manifest['min_reader'][0]}; this visualquant reads {VERSION[0]}. "
            "Update visualquant."
        )
    members: dict[str, bytes] = {}
    for member, stated in manifest["members"].items():
        if member not in names:
            raise ArchiveError(f"{name!r} lacks its member {member!r}: it was cut short. Save it again.")
        data = archive.read(member)
        if len(data) != stated["bytes"] or hashlib.sha256(data).hexdigest() != stated["sha256"]:
            raise ArchiveError(f"{name!r} is damaged: {member!r} has another digest than it was saved with.")
        members[member] = data
    return members


def _members(report: Report) -> Iterable[tuple[str, bytes]]:
    plain = to_plain(report)
    yield "report.json", json.dumps({k: v for k, v in plain.items() if k not in _COLUMNS}, ensure_ascii=False).encode()
    for side, nodes in report.nodes.items():
        yield from pack_nodes(nodes, report.values[side], f"graph/{side}")
        yield from pack_values(report.values[side], f"graph/{side}")
    yield from pack_groups(report.alignment, "align")
    yield from pack_details(report.details, "weights")
