"""What a container reader is, and the explicit list of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from visualquant.core.graph import GraphView
from visualquant.errors import ModelFileError
from visualquant.formats.registry import load

HEAD_BYTES = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class FileProbe:
    """What a reader may look at before it claims a file.

    Attributes:
        path: the file.
        size: its bytes.
        head: its first 4,096 bytes.
    """

    path: Path
    size: int
    head: bytes


Claim = Literal["certain", "likely"]


@runtime_checkable
class ContainerReader(Protocol):
    """A module (or object) that reads one kind of file."""

    NAME: str

    def probe(self, probe: FileProbe) -> Claim | None:
        """How sure this reader is that the file is its own, by content before suffix."""

    def read(self, path: Path, *, data_root: Path | None = None) -> GraphView:
        """The graph of the file."""


# NOTE: order matters only between equal claims. A reader is imported when a file is opened, never before.
CONTAINERS: tuple[str, ...] = (
    "visualquant.formats.onnx_file",
    "visualquant.formats.openvino_ir",
    "visualquant.formats.tensorrt_json",
)


def open_model(
    path: Path | str, *, data_root: Path | str | None = None, encodings: Path | str | None = None
) -> GraphView:
    """The graph of a model file of any known container.

    Args:
        path: the file.
        data_root: a further folder in which (links to) external tensor data may lie.
        encodings: an encodings file of AIMET for this model; one of the same stem beside an ONNX file is found.

    Raises:
        ModelFileError: not a file, empty, or no reader knows it; the message says what the file looks like.
        ExternalDataError: tensor data is missing, short, or outside the model's folder.
    """
    path = Path(path)
    probe = probe_file(path)
    readers = load(CONTAINERS)
    claims = [(reader.probe(probe), reader) for reader in readers]
    for wanted in ("certain", "likely"):
        for claim, reader in claims:
            if claim == wanted:
                graph: GraphView = reader.read(path, data_root=None if data_root is None else Path(data_root))
                return _with_encodings(graph, path, None if encodings is None else Path(encodings))
    raise ModelFileError(f"{path.name!r} is not a model that visualquant can read: {looks_like(probe)}")


def _with_encodings(graph: GraphView, path: Path, given: Path | None) -> GraphView:
    """The graph with an AIMET encodings file attached, where one is given or lies beside it."""
    beside = path.with_suffix(".encodings")
    found = given or (beside if graph.container == "onnx" and beside != path and beside.is_file() else None)
    if found is None:
        return graph
    from visualquant.formats.aimet_encodings import attach

    return attach(graph, found)


def probe_file(path: Path) -> FileProbe:
    """Size and first bytes of a file.

    Raises:
        ModelFileError: the path is missing, a folder, unreadable, or empty.
    """
    try:
        if path.is_dir():
            raise ModelFileError(
                f"{path.name or str(path)!r} is a folder, not a model file. Name the .onnx file inside it."
            )
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise ModelFileError(f"{str(path)!r} can't be opened: {error.strerror}. Check the path.") from error
    if size == 0:
        raise ModelFileError(f"{path.name!r} is empty (0 bytes): an export or a download did not finish.")
    return FileProbe(path, size, head)


def looks_like(probe: FileProbe) -> str:
    """A sentence on what a file seems to be instead of a model."""
    head = probe.head
    if head.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, not the file itself. Run `git lfs pull` in its repository."
    if head.startswith(b"PK\x03\x04"):
        return "it is a zip archive. Unpack it, or use `visualquant report` where it is a .vqz file."
    if head.startswith(b"\x1f\x8b"):
        return "it is gzip-compressed. Decompress it first."
    if head[:9].lower().startswith((b"<!doctype", b"<html")):
        return "it is a web page, probably an error page saved by a download. Download the file again."
    if head[4:8] == b"TFL3":
        return "it is a TensorFlow Lite model. Convert it to ONNX first."
    try:
        text = head.decode("utf-8")
        printable = sum(c.isprintable() or c.isspace() for c in text) / max(len(text), 1)
    except UnicodeDecodeError:
        printable = 0.0
    if printable > 0.95:
        return "it is a text file."
    return "its bytes are not a model's. It may be cut short, damaged, or of another kind."
