"""The gRPC service, and a server that carries it."""

from __future__ import annotations

import logging
import os
import platform
from concurrent import futures

import grpc
import onnxruntime
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from visualquant_agent import device
from visualquant_agent._version import __version__
from visualquant_agent.service_names import PROTOCOL_VERSION, SERVICE_NAME
from visualquant_agent.wire.v1 import agent_pb2, agent_pb2_grpc

CAPABILITIES = ("hello",)

log = logging.getLogger("visualquant_agent")


class AgentService(agent_pb2_grpc.AgentServicer):
    """Answers the RPCs of agent.proto."""

    def Hello(  # noqa: N802  (gRPC names methods as the schema does)
        self, request: agent_pb2.HelloRequest, context: grpc.ServicerContext
    ) -> agent_pb2.HelloReply:
        """Versions and device facts; FAILED_PRECONDITION where the host speaks another protocol."""
        log.info("hello from %r, protocol %d", request.client[:100], request.protocol_version)
        if request.protocol_version != PROTOCOL_VERSION:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the agent speaks protocol {PROTOCOL_VERSION}, the host {request.protocol_version}: "
                "install the same release of visualquant and visualquant-agent on both",
            )
        return agent_pb2.HelloReply(
            protocol_version=PROTOCOL_VERSION,
            agent_version=__version__,
            onnxruntime_version=onnxruntime.__version__,
            python_version=platform.python_version(),
            providers=onnxruntime.get_available_providers(),
            capabilities=CAPABILITIES,
            device=agent_pb2.Device(
                machine=platform.machine(),
                system=platform.platform(terse=True),
                processor=device.processor_name(),
                cores=os.cpu_count() or 0,
                memory_bytes=device.memory_bytes(),
                cpu_features=device.cpu_features(),
            ),
        )


def make_server(listen: str, workers: int = 4) -> tuple[grpc.Server, int]:
    """A server that is not started yet, and its port (chosen by the system for port 0).

    Raises:
        RuntimeError: the address is taken or malformed.
    """
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=workers, thread_name_prefix="rpc"),
        options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 4 << 20)],
    )
    agent_pb2_grpc.add_AgentServicer_to_server(AgentService(), server)
    status = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    for name in ("", SERVICE_NAME):
        status.set(name, health_pb2.HealthCheckResponse.SERVING)
    port = server.add_insecure_port(listen)
    if port == 0:
        raise RuntimeError(f"can't listen on {listen}")
    return server, port
