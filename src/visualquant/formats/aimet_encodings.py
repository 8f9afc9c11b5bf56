"""AIMET's encodings files (schemas 0.6.1, 1.0.0, 2.0.0 and 2.1.0) as one list of encodings.

Source: aimet-onnx 2.42, _encoding.py and common/onnx/_utils.py.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.graph import GraphView
from visualquant.core.tensors import ELEMENT_TYPES, ElementType
from visualquant.errors import ModelFileError
from visualquant.formats.element_types import integer_type
from visualquant.formats.json_file import read_json

METADATA_KEY = "aimet.encodings"
"""Where the file's text stands in `GraphView.metadata`."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """What a file says of one tensor.

    Attributes:
        name: of the tensor.
        code_type: of its codes.
        scale, zero_point: as written, flat or nested; zero_point None means 0.
        low, high: range of codes, None for float codes.
        axis: channels, or (with blocks) the axis that is cut; None where the file leaves it to the operator.
        block_size: 0 without blocks.
        block_scale: integers that multiply the scale of a channel (LPBQ), or None.
        problem: what the file leaves out or gets wrong.
    """

    name: str
    code_type: ElementType
    scale: npt.NDArray[np.float64]
    zero_point: npt.NDArray[np.int64] | None = None
    low: int | None = None
    high: int | None = None
    axis: int | None = None
    block_size: int = 0
    block_scale: npt.NDArray[np.float64] | None = None
    problem: str | None = None


def attach(graph: GraphView, path: Path) -> GraphView:
    """The graph with an encodings file in its metadata; names that it lacks become a note.

    Raises:
        ModelFileError: no encodings file of a schema that is known here.
    """
    found = read_json(path, "an encodings file of AIMET")
    if not isinstance(found, dict) or not ({"activation_encodings", "param_encodings", "encodings"} & set(found)):
        raise ModelFileError(f"{path.name!r} holds neither activation nor parameter encodings of AIMET.")
    try:
        names = [e.name for e in parse(found)]
    except (LookupError, AttributeError, TypeError, ValueError) as error:
        raise ModelFileError(
            f"{path.name!r} is not an encodings file of a schema known here (0.6.1, 1.0.0, 2.0.0): {error!r}."
        ) from error
    unknown = [n for n in names if n not in graph.by_key]
    notes = graph.notes
    if unknown:
        shown = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        notes = (*notes, f"the encodings in {path.name!r} name {len(unknown)} tensors that the model lacks: {shown}")
    metadata = {**graph.metadata, METADATA_KEY: json.dumps(found)}
    return dataclasses.replace(graph, metadata=metadata, notes=notes)


def parse(found: Mapping[str, Any]) -> list[Encoding]:
    """The encodings of a file, parameters and activations alike, in file order."""
    out: list[Encoding] = []
    for section in ("param_encodings", "activation_encodings", "encodings"):
        entries = found.get(section, [])
        if isinstance(entries, dict):
            out += [_version_06(str(name), rows) for name, rows in entries.items()]
        else:
            out += [_version_1(e) if "bw" in e else _version_2(e) for e in entries]
    return out


def _version_06(name: str, rows: list[Mapping[str, Any]]) -> Encoding:
    """One row a channel; integers are unsigned, their offset is added."""
    first = rows[0]
    bits = int(first["bitwidth"])
    if str(first.get("dtype", "int")).lower() == "float":
        return _as_float(name, bits)
    symmetric = str(first.get("is_symmetric", "False")).lower() == "true"
    scale = np.array([float(r["scale"]) for r in rows])
    return _integer(name, bits, symmetric, scale, np.array([int(r["offset"]) for r in rows]))


def _version_1(entry: Mapping[str, Any]) -> Encoding:
    """Lists of scales and offsets; integers are unsigned, their offset is added."""
    name, bits = str(entry["name"]), int(entry["bw"])
    if str(entry["dtype"]).upper() == "FLOAT":
        return _as_float(name, bits)
    scale, offset = np.array(entry["scale"], np.float64), np.array(entry.get("offset", 0), np.int64)
    kind = str(entry.get("enc_type", "PER_TENSOR"))
    block = int(entry.get("block_size", 0)) if kind in ("PER_BLOCK", "LPBQ") else 0
    if kind == "LPBQ":
        low, high = _limits(int(entry["compressed_bw"]), signed=True)
        steps = np.array(entry["per_block_int_scale"], np.float64)
        code_type = integer_type(int(entry["compressed_bw"]), signed=True)
        return Encoding(name, code_type, scale, None, low, high, None, block, steps)
    found = _integer(name, bits, bool(entry.get("is_sym", False)), scale, offset)
    return dataclasses.replace(found, block_size=block)


def _version_2(entry: Mapping[str, Any]) -> Encoding:
    """ONNX's words: output_dtype, y_scale, y_zero_point, axis, block_size."""
    name, stated = str(entry["name"]), str(entry["output_dtype"])
    axis = None if entry.get("axis") is None else int(entry["axis"])
    block = int(entry.get("block_size") or 0)
    if "int" not in stated:
        dtype = ELEMENT_TYPES[stated]
        scale = np.array(entry.get("y_scale", 1.0), np.float64)
        return Encoding(name, dtype, scale, axis=axis, block_size=block)
    unsigned, bits = stated.split("int")
    code_type = integer_type(int(bits), signed=not unsigned)
    low, high = _limits(int(bits), signed=not unsigned)
    given = entry.get("y_scale")
    if "per_block_int_scale" in entry:
        scale = np.array(entry["per_channel_float_scale"], np.float64)
        steps = np.array(entry["per_block_int_scale"], np.float64)
        return Encoding(name, code_type, scale, None, low, high, axis, block, steps)
    if isinstance(given, dict):  # 2.1.0: a scale that is quantized itself
        steps = np.array(given["x"], np.float64)
        return Encoding(name, code_type, np.array(given["x_scale"], np.float64), None, low, high, axis, block, steps)
    zero = entry.get("y_zero_point")
    shift = None if zero is None or not np.any(zero) else np.array(zero, np.int64)
    return Encoding(name, code_type, np.array(given, np.float64), shift, low, high, axis, block)


def _limits(bits: int, *, signed: bool) -> tuple[int, int]:
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def _integer(
    name: str, bits: int, symmetric: bool, scale: npt.NDArray[np.float64], offset: npt.NDArray[np.int64]
) -> Encoding:
    """x̂ = (code + offset)·scale with unsigned codes; symmetric offsets are the signed grid with zero point 0."""
    half = 1 << (bits - 1)
    if symmetric and bool(np.isin(offset, (-half, 1 - half)).all()):
        strict = bool((offset == 1 - half).all())
        low = 1 - half if strict else -half
        return Encoding(name, integer_type(bits, signed=True), scale, None, low, half - 1)
    zero = None if not offset.any() else -offset
    return Encoding(name, integer_type(bits, signed=False), scale, zero, 0, (1 << bits) - 1)


def _as_float(name: str, bits: int) -> Encoding:
    """A plain cast: 16 bits are float16, 32 are no change."""
    return Encoding(name, ELEMENT_TYPES["float16" if bits == 16 else "float32"], np.array(1.0))


def encodings_of(graph: GraphView) -> Iterator[Encoding]:
    """The encodings that `attach` put beside a graph."""
    text = graph.metadata.get(METADATA_KEY)
    if text is not None:
        yield from parse(json.loads(text))
