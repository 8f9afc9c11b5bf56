"""Talks to an agent on a device."""

from __future__ import annotations

import grpc

from visualquant._version import __version__
from visualquant.core.device import DeviceInfo
from visualquant.errors import DeviceError
from visualquant_agent import client


def hello(address: str, timeout_s: float = 10.0) -> DeviceInfo:
    """What the agent at HOST:PORT is.

    Raises:
        DeviceError: nobody answers there in time, or the agent speaks another protocol.
    """
    with grpc.insecure_channel(address) as channel:
        try:
            reply = client.hello(channel, f"visualquant {__version__}", timeout_s)
        except grpc.RpcError as error:
            raise _device_error(address, error) from error
    return DeviceInfo(
        agent_version=reply.agent_version,
        onnxruntime_version=reply.onnxruntime_version,
        python_version=reply.python_version,
        providers=tuple(reply.providers),
        capabilities=tuple(reply.capabilities),
        machine=reply.device.machine,
        system=reply.device.system,
        processor=reply.device.processor,
        cores=reply.device.cores,
        memory_bytes=reply.device.memory_bytes,
        cpu_features=tuple(reply.device.cpu_features),
    )


def _device_error(address: str, error: grpc.RpcError) -> DeviceError:
    code = error.code() if hasattr(error, "code") else None
    details = error.details() if hasattr(error, "details") else str(error)
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return DeviceError(
            f"No agent answers at {address}. Is `visualquant-agent serve` running there, and is the port right?"
        )
    return DeviceError(f"The agent at {address} refused: {details}.")
