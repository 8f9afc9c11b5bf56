"""Looks over an ONNX file without onnx: operator domains, EPContext, places of external data.

A walk over the protobuf wire format (https://protobuf.dev/programming-guides/encoding/) with the field numbers of
onnx.proto; large fields are skipped, so weights are never read.
"""

from __future__ import annotations

import dataclasses
import mmap
from pathlib import Path
from typing import Dict, Iterator, Set, Tuple, Union

from visualquant_agent.limits import Refused

Buffer = Union[bytes, memoryview, mmap.mmap]
_MAX_DEPTH = 64
_MODEL_GRAPH, _MODEL_FUNCTIONS = 7, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_OUTPUT, _GRAPH_SPARSE = 1, 5, 12, 15
_NODE_OUTPUT, _NODE_OP_TYPE, _NODE_ATTRIBUTE, _NODE_DOMAIN = 2, 4, 5, 7
_FUNCTION_NODE = 7
_TENSOR_EXTERNAL = 13


@dataclasses.dataclass
class Scan:
    """What is in a file.

    Attributes:
        operators: (domain, operator type).
        made: names of all values that top-level nodes make, in order.
        outputs: names of the graph's outputs.
        locations: files named as external data.
    """

    operators: Set[Tuple[str, str]] = dataclasses.field(default_factory=set)
    made: Dict[str, None] = dataclasses.field(default_factory=dict)
    outputs: Dict[str, None] = dataclasses.field(default_factory=dict)
    locations: Set[str] = dataclasses.field(default_factory=set)


def scan_file(path: Path) -> Scan:
    """Looks over a file.

    Raises:
        Refused: it is no ONNX model.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return scan(data)
    except (OSError, ValueError) as error:
        raise Refused("INVALID_ARGUMENT", f"{path.name!r} is no ONNX model: {error}") from error


def scan(data: Buffer) -> Scan:
    """Looks over serialized bytes.

    Raises:
        ValueError: no protobuf, no graph, or graphs nested absurdly deep.
    """
    found = Scan()
    graphs = 0
    for number, start, stop in _fields(data, 0, len(data)):
        if number == _MODEL_GRAPH:
            graphs += 1
            _graph(data, start, stop, found, 0)
        elif number == _MODEL_FUNCTIONS:
            for inner, a, b in _fields(data, start, stop):
                if inner == _FUNCTION_NODE:
                    _node(data, a, b, found, 1)
    if not graphs:
        raise ValueError("it has no graph")
    return found


def with_outputs(model: bytes, names: Iterator[str]) -> bytes:
    """The model with further graph outputs without types: in protobuf, appended fields are merged."""
    outputs = b"".join(_field(_GRAPH_OUTPUT, _field(1, name.encode("utf-8", "surrogateescape"))) for name in names)
    return model + _field(_MODEL_GRAPH, outputs)


def _graph(data: Buffer, start: int, stop: int, found: Scan, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError("graphs are nested too deep")
    for number, a, b in _fields(data, start, stop):
        if number == _GRAPH_NODE:
            _node(data, a, b, found, depth)
        elif number == _GRAPH_INITIALIZER:
            _tensor(data, a, b, found)
        elif number == _GRAPH_SPARSE:
            for _, c, d in _fields(data, a, b):
                if d > c:
                    _tensor(data, c, d, found)
        elif number == _GRAPH_OUTPUT and depth == 0:
            for inner, c, d in _fields(data, a, b):
                if inner == 1:
                    found.outputs[_text(data, c, d)] = None


def _node(data: Buffer, start: int, stop: int, found: Scan, depth: int) -> None:
    op_type = domain = ""
    for number, a, b in _fields(data, start, stop):
        if number == _NODE_OP_TYPE:
            op_type = _text(data, a, b)
        elif number == _NODE_DOMAIN:
            domain = _text(data, a, b)
        elif number == _NODE_OUTPUT and depth == 0 and b > a:
            found.made[_text(data, a, b)] = None
        elif number == _NODE_ATTRIBUTE:
            for inner, c, d in _fields(data, a, b):
                if inner in (6, 11):  # g, graphs
                    _graph(data, c, d, found, depth + 1)
                elif inner in (5, 10):  # t, tensors
                    _tensor(data, c, d, found)
    found.operators.add((domain, op_type))


def _tensor(data: Buffer, start: int, stop: int, found: Scan) -> None:
    for number, a, b in _fields(data, start, stop):
        if number == _TENSOR_EXTERNAL:
            entry = {inner: _text(data, c, d) for inner, c, d in _fields(data, a, b)}
            if entry.get(1) == "location":
                found.locations.add(entry.get(2, ""))


def _text(data: Buffer, start: int, stop: int) -> str:
    if stop - start > 1 << 16:
        raise ValueError("a name is over 65,536 bytes")
    return bytes(data[start:stop]).decode("utf-8", "surrogateescape")


def _fields(data: Buffer, start: int, stop: int) -> Iterator[Tuple[int, int, int]]:
    """(field number, start, stop) of each length-delimited field; numbers are skipped (start equals stop)."""
    at = start
    while at < stop:
        key, at = _varint(data, at, stop)
        kind = key & 7
        if kind == 2:
            size, at = _varint(data, at, stop)
            if size > stop - at:
                raise ValueError("it is cut short")
            yield key >> 3, at, at + size
            at += size
        elif kind == 0:
            _, at = _varint(data, at, stop)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
            if at > stop:
                raise ValueError("it is cut short")
        else:
            raise ValueError("its bytes are no protobuf")


def _varint(data: Buffer, at: int, stop: int) -> Tuple[int, int]:
    value = shift = 0
    while at < stop and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("it is cut short")


def varint(value: int) -> bytes:
    """The wire form of a number."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content
