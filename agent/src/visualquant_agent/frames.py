"""Frames between the server and a worker process, and tensors as protobuf messages without needless copies.

A frame is its length (4 bytes, little-endian), a kind (1 byte), and the content.
"""

from __future__ import annotations

import socket
import struct
import zlib
from typing import Any, Callable, Iterator, List, Optional, Tuple, Union

import numpy as np

from visualquant_agent.limits import ELEMENT_BYTES, PIECE_BYTES, Refused, tensor_bytes
from visualquant_agent.onnx_scan import varint
from visualquant_agent.wire.v1 import agent_pb2

JOB, FEED, END, REPLY, ERROR, DONE = range(6)
_HEAD = struct.Struct("<IB")
_MAX_FRAME = 64 << 20
_DATA_TAG = 0x0A  # field 1, length-delimited: the place of `data` in every message that carries tensors
Bytes = Union[bytes, memoryview]


def send(sock: socket.socket, kind: int, *parts: Bytes) -> None:
    """One frame; OSError where the other side is gone."""
    pending: List[Bytes] = [_HEAD.pack(sum(len(p) for p in parts), kind), *parts]
    while pending:
        sent = sock.sendmsg(pending)
        while pending and sent >= len(pending[0]):
            sent -= len(pending.pop(0))
        if pending and sent:
            pending[0] = memoryview(pending[0])[sent:]


def receive(sock: socket.socket) -> Optional[Tuple[int, bytes]]:
    """One frame; None where the other side is gone."""
    head = _exactly(sock, _HEAD.size)
    if head is None:
        return None
    size, kind = _HEAD.unpack(head)
    if size > _MAX_FRAME:
        return None
    content = _exactly(sock, size)
    return None if content is None else (kind, content)


def _exactly(sock: socket.socket, size: int) -> Optional[bytes]:
    if size == 0:
        return b""
    try:
        first = sock.recv(size, socket.MSG_WAITALL)
        if len(first) == size:
            return first
        parts = [first]
        left = size - len(first)
        while left and parts[-1]:
            parts.append(sock.recv(left))
            left -= len(parts[-1])
        return b"".join(parts) if not left else None
    except OSError:
        return None


def raw(array: Any) -> memoryview:
    """The bytes of an array, row-major and little-endian, without a copy where it already lies so."""
    if array.dtype.name not in ELEMENT_BYTES:
        raise Refused("UNIMPLEMENTED", f"tensors of type {array.dtype.name!r} can't be sent")
    flat = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)
    return flat.view(np.uint8).data if flat.size else memoryview(b"")


def head_of(name: str, array: Any, data: memoryview) -> agent_pb2.TensorHead:
    """What is said of a tensor before its bytes."""
    return agent_pb2.TensorHead(
        name=name, dtype=array.dtype.name, shape=array.shape, bytes=len(data), crc32=zlib.crc32(data)
    )


def pieces(name: str, array: Any, make: Callable[..., Any], **fields: Any) -> Iterator[Tuple[Bytes, ...]]:
    """A tensor as serialized messages, each as parts to be joined: data first, then the other fields.

    Args:
        name: of the tensor.
        array: the tensor.
        make: the message class (`RunRequest`, `RunReply`); its field 1 is `data`.
        fields: further fields of the first message.
    """
    data = raw(array)
    rest: bytes = make(tensor=head_of(name, array, data), **fields).SerializeToString()
    for start in range(0, max(len(data), 1), PIECE_BYTES):
        chunk = data[start : start + PIECE_BYTES]
        if len(chunk):
            yield bytes([_DATA_TAG]) + varint(len(chunk)), chunk, rest
        else:
            yield (rest,)
        rest = b""


def split(message: bytes) -> Tuple[memoryview, bytes]:
    """(data, the other fields) of a message that `pieces` made; any other valid message has no data here.

    Raises:
        ValueError: a length beyond the message.
    """
    view = memoryview(message)
    if not message or message[0] != _DATA_TAG:
        return view[:0], message
    size = shift = 0
    at = 1
    while True:
        if at >= len(message) or shift > 35:
            raise ValueError("a message is cut short")
        byte = message[at]
        at += 1
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if at + size > len(message):
        raise ValueError("a message is cut short")
    return view[at : at + size], bytes(view[at + size :])


class Assembler:
    """Puts tensors together from their pieces; never holds more than was announced, nor more than the limit."""

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` bounds all tensors since the last `reset`."""
        self._limit = limit_bytes
        self._taken = 0
        self._head: Any = None
        self._buffer: Any = None
        self._at = 0

    def reset(self) -> None:
        """A new batch: the limit counts from zero."""
        self._taken = 0

    @property
    def open(self) -> bool:
        """True between the pieces of one tensor."""
        return self._head is not None

    def add(self, head: Any, data: memoryview) -> Optional[Tuple[str, Any]]:
        """(name, array) once a tensor is whole.

        Args:
            head: `TensorHead` where this piece begins a tensor, else None.
            data: the piece.

        Raises:
            Refused: shapes that overflow, sizes that disagree, wrong checksums.
        """
        if head is not None:
            if self._head is not None:
                raise Refused("INVALID_ARGUMENT", "a tensor begins before the one before it is whole")
            size = tensor_bytes(head.dtype, tuple(head.shape), self._limit - self._taken)
            if size != head.bytes or len(head.name) > 4096:
                raise Refused("INVALID_ARGUMENT", "a tensor's shape and its bytes disagree")
            self._taken += size
            self._head, self._at = head, 0
            self._buffer = np.empty(size, np.uint8)
        elif self._head is None:
            if len(data):
                raise Refused("INVALID_ARGUMENT", "these bytes belong to no tensor")
            return None
        if self._at + len(data) > self._buffer.size:
            raise Refused("INVALID_ARGUMENT", "a tensor has more bytes than it announced")
        if len(data):
            self._buffer[self._at : self._at + len(data)] = np.frombuffer(data, np.uint8)
            self._at += len(data)
        if self._at < self._buffer.size:
            return None
        head, buffer = self._head, self._buffer
        self._head = self._buffer = None
        if zlib.crc32(buffer) != head.crc32:
            raise Refused("DATA_LOSS", "a tensor was damaged on its way (its CRC-32 differs)")
        array = buffer.view(np.dtype(head.dtype).newbyteorder("<")).reshape(tuple(head.shape))
        return head.name, array
