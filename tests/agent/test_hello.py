"""The first RPC, over a real socket, from the host's own client to a served agent."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import onnxruntime
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.agent.agents import AgentProcess
from visualquant.errors import DeviceError
from visualquant.runtime.remote import hello
from visualquant_agent import __main__ as agent_main
from visualquant_agent.auth import is_loopback
from visualquant_agent.service import SERVICE_NAME, make_server
from visualquant_agent.wire.v1 import agent_pb2, agent_pb2_grpc


@pytest.fixture
def address() -> Iterator[str]:
    served = make_server("127.0.0.1:0")
    served.start()
    yield f"127.0.0.1:{served.port}"
    served.stop()


def test_hello_tells_versions_and_device(address: str) -> None:
    info = hello(address)
    assert info.onnxruntime_version == onnxruntime.__version__
    assert "CPUExecutionProvider" in info.providers
    assert {"hello", "models", "optimize", "run", "summary", "profile"} <= set(info.capabilities)
    assert info.cores >= 1 and info.memory_bytes > 0 and info.machine


def test_another_protocol_is_refused_with_what_to_do(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        stub = agent_pb2_grpc.AgentStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Hello(agent_pb2.HelloRequest(protocol_version=99), timeout=5)
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "same release" in caught.value.details()


def test_health_service_serves(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE_NAME):
            reply = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING


def test_nobody_there_is_a_device_error() -> None:
    with pytest.raises(DeviceError, match=r"No agent answers at 127\.0\.0\.1:1"):
        hello("127.0.0.1:1", timeout_s=2)


def test_open_address_needs_the_word_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert agent_main.main(["serve", "--listen", "0.0.0.0:0"]) == 2
    assert "--insecure" in capsys.readouterr().err
    assert is_loopback("127.0.0.1:1") and is_loopback("[::1]:1") and is_loopback("unix:/tmp/agent")
    assert not is_loopback("192.168.0.2:1") and not is_loopback("board.local:1")


def test_command_serves_and_stops_on_sigterm(tmp_path: Path) -> None:
    with AgentProcess(tmp_path) as agent:
        assert hello(agent.address).agent_version
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(timeout=20) == 0
