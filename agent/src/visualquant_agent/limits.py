"""Every bound of the agent in one place, and the refusals that name them."""

from __future__ import annotations

import dataclasses
from typing import Mapping, Optional, Tuple

MESSAGE_BYTES = 4 << 20
PIECE_BYTES = 1 << 20
MAX_FILES = 4096
MAX_MODELS = 10_000
MAX_NAME_CHARS = 255
MAX_TAPS = 100_000
MAX_RANK = 64
MAX_EDGES = 4096
# numpy's names of what may cross the wire; 8-bit floats and bfloat16 travel as integers, as the runtime gives them.
ELEMENT_BYTES: Mapping[str, int] = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one agent allows.

    Attributes:
        memory_bytes: growth of a run over the idle agent; None for no bound but the device's memory.
        quota_bytes: of the whole store, partial uploads counted as announced.
        batch_bytes: of the tensors of one batch, in and out.
        seconds: wall time of one call of the runtime.
        idle_seconds: without a message from the host during a call, then it is ended.
        foreign: operator domains beyond ONNX and Microsoft's that may load.
        ep_context: allow EPContext nodes.
    """

    memory_bytes: Optional[int] = None
    quota_bytes: int = 16 << 30
    batch_bytes: int = 8 << 30
    seconds: float = 600.0
    idle_seconds: float = 900.0
    foreign: Tuple[str, ...] = ()
    ep_context: bool = False


class Refused(Exception):
    """A request that is not served.

    Attributes:
        code: name of a gRPC status ("INVALID_ARGUMENT").
    """

    def __init__(self, code: str, message: str) -> None:
        """The message is for a person: what is wrong and what to do."""
        super().__init__(message)
        self.code = code


def tensor_bytes(dtype: str, shape: "Tuple[int, ...]", limit: int) -> int:
    """Bytes of a tensor, checked without overflow.

    Raises:
        Refused: an element type that does not travel, a negative or absurd shape, more than `limit` bytes.
    """
    size = ELEMENT_BYTES.get(dtype)
    if size is None:
        raise Refused("INVALID_ARGUMENT", f"tensors of type {dtype[:40]!r} can't be sent")
    if len(shape) > MAX_RANK or any(n < 0 for n in shape):
        raise Refused("INVALID_ARGUMENT", f"a shape of {len(shape)} axes is not possible, or a size is negative")
    total = size
    for n in shape:
        total *= n
        if n and total > limit:
            raise Refused("RESOURCE_EXHAUSTED", f"a tensor of shape {list(shape)[:8]} is over {limit} bytes")
    return total


def check_memory(
    asked: int, own: Optional[int], floor: int, of: str = "the largest segment and its largest tap"
) -> Optional[int]:
    """The bound of a run in bytes, or None.

    Args:
        asked: by the host; 0 for none.
        own: of the agent.
        floor: what the run needs at least.
        of: what makes the floor, in words.

    Raises:
        Refused: more than the agent allows, or less than the run needs; the floor is in the message.
    """
    if asked and own is not None and asked > own:
        raise Refused("RESOURCE_EXHAUSTED", f"the agent allows a run {own} bytes, not {asked}: ask for less memory")
    bound = asked or own
    if bound is not None and floor > bound:
        raise Refused(
            "RESOURCE_EXHAUSTED",
            f"this run needs at least {floor} bytes ({floor / 1e6:.1f} MB: {of}), "
            f"and it may use {bound} ({bound / 1e6:.1f} MB). Raise --memory to that, or give smaller batches.",
        )
    return bound
