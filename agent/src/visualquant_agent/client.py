"""The host's side of the wire: thin calls, no policy."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Tuple

import grpc

from visualquant_agent import frames
from visualquant_agent.limits import MESSAGE_BYTES
from visualquant_agent.service_names import PROTOCOL_VERSION, SERVICE_NAME
from visualquant_agent.wire.v1 import agent_pb2, agent_pb2_grpc

CHANNEL_OPTIONS: Tuple[Tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)


def stub(channel: grpc.Channel) -> Any:
    """The generated client."""
    return agent_pb2_grpc.AgentStub(channel)


def hello(channel: grpc.Channel, client: str, timeout_s: float = 10.0) -> agent_pb2.HelloReply:
    """The agent's versions and device facts.

    Raises:
        grpc.RpcError: no agent answers there, or it speaks another protocol (FAILED_PRECONDITION).
    """
    request = agent_pb2.HelloRequest(protocol_version=PROTOCOL_VERSION, client=client)
    reply: agent_pb2.HelloReply = stub(channel).Hello(request, timeout=timeout_s)
    return reply


def run(channel: grpc.Channel, requests: Iterable[bytes]) -> Any:
    """The call `Run`: iterate over it for `split_reply`'s input; `cancel()` ends the run on the device."""
    return channel.stream_stream(f"/{SERVICE_NAME}/Run", None, None)(iter(requests))


def profile(channel: grpc.Channel, requests: Iterable[bytes], timeout_s: float) -> agent_pb2.ProfileReply:
    """The call `Profile`."""
    data = channel.stream_unary(f"/{SERVICE_NAME}/Profile", None, None)(iter(requests), timeout=timeout_s)
    return agent_pb2.ProfileReply.FromString(data)


def split_reply(message: bytes) -> Tuple[memoryview, agent_pb2.RunReply]:
    """(bytes of a tensor, everything else).

    Raises:
        ValueError: the message is malformed.
    """
    data, rest = frames.split(message)
    try:
        return data, agent_pb2.RunReply.FromString(rest)
    except Exception as error:  # NOTE: protobuf's DecodeError has another base in each of its implementations
        raise ValueError(str(error)) from error


def tensor_requests(name: str, array: Any) -> Iterator[bytes]:
    """A tensor of a batch as messages."""
    for parts in frames.pieces(name, array, agent_pb2.RunRequest):
        yield b"".join(parts)
