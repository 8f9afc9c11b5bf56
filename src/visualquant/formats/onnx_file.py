"""The ONNX container: ModelProto to `GraphView`.

Reads the protobuf classes of `onnx` itself, not `onnx-ir`: that (1.1) drops sparse initializers without a
word, refuses files with repeated output names that can still be explained, and takes 50 times as long.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from visualquant.core.graph import GraphView
from visualquant.errors import ModelFileError
from visualquant.formats.container import Claim, FileProbe, looks_like, probe_file
from visualquant.formats.onnx_graph import GraphBuilder
from visualquant.formats.onnx_shapes import infer_types
from visualquant.formats.onnx_tensors import TensorReader

NAME = "onnx"


def probe(probe: FileProbe) -> Claim | None:
    """ONNX has no magic number: field 1 (ir_version) as a varint, or field 8 (opset_import) comes first."""
    head = probe.head
    if head[:1] == b"\x08" and len(head) > 2 and head[1] < 64:
        return "certain"
    if head.startswith(b"version https://git-lfs") or head[:1] in (b"<", b"{", b"P"):
        return None
    return "likely" if probe.path.suffix == ".onnx" or head[:1] in (b"\x3a", b"\x42", b"\x12", b"\x1a") else None


def load_proto(path: Path) -> onnx.ModelProto:
    """The parsed file, without external data.

    Raises:
        ModelFileError: not a ModelProto with a graph; the message says what the file looks like.
    """
    what = probe_file(path)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except (DecodeError, ValueError, RuntimeError) as error:
        raise ModelFileError(f"{path.name!r} is not a readable ONNX model: {looks_like(what)}") from error
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelFileError(
            f"{path.name!r} holds no ONNX graph: it may be a protobuf file of another kind (a tensor, a checkpoint)."
        )
    return model


def read(path: Path, *, data_root: Path | None = None) -> GraphView:
    """The graph of an ONNX file; external data stays on disk.

    Raises:
        ModelFileError: see `load_proto`; also unknown element types, and function calls that never end.
        ExternalDataError: tensor data is missing, short, or outside the model's folder and `data_root`.
    """
    model = load_proto(path)
    builder = GraphBuilder(model, TensorReader(path, data_root), infer_types(model))
    return builder.build()
