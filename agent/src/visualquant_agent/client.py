"""The host's side of the wire: thin calls, no policy."""

from __future__ import annotations

import grpc

from visualquant_agent.service_names import PROTOCOL_VERSION
from visualquant_agent.wire.v1 import agent_pb2, agent_pb2_grpc


def hello(channel: grpc.Channel, client: str, timeout_s: float = 10.0) -> agent_pb2.HelloReply:
    """The agent's versions and device facts.

    Raises:
        grpc.RpcError: no agent answers there, or it speaks another protocol (FAILED_PRECONDITION).
    """
    request = agent_pb2.HelloRequest(protocol_version=PROTOCOL_VERSION, client=client)
    reply: agent_pb2.HelloReply = agent_pb2_grpc.AgentStub(channel).Hello(request, timeout=timeout_s)
    return reply
