"""Hostile hosts against the agent, and a hostile agent against the host. All on loopback, in bounded numbers."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.agent.agents import AgentProcess, Certificates
from visualquant.errors import DeviceError, InputError, VisualQuantError
from visualquant.runtime.connect import Access
from visualquant.runtime.remote import Device, DeviceRefusal
from visualquant.runtime.remote_runner import RemoteRunner
from visualquant.testing.runner_conformance import PLAIN, conv_net, images
from visualquant_agent.limits import Limits, Refused, tensor_bytes
from visualquant_agent.onnx_scan import scan_file
from visualquant_agent.service_names import SERVICE_NAME
from visualquant_agent.store import check_name
from visualquant_agent.wire.v1 import agent_pb2, agent_pb2_grpc

TOKEN = "a-token-of-a-test-0123456789"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    with AgentProcess(tmp_path_factory.mktemp("store")) as process:
        yield process


@pytest.fixture(autouse=True)
def still_serves(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    yield
    if "agent" in request.fixturenames:
        running = request.getfixturevalue("agent")
        folder = tmp_path / "after"
        folder.mkdir()
        with Device(Access(running.address)) as device, RemoteRunner(conv_net(folder), PLAIN, device) as runner:
            assert runner.run(images(1))["p"].shape == (1, 8, 1, 1)


def _port(agent: AgentProcess) -> tuple[str, int]:
    host, _, port = agent.address.rpartition(":")
    return host, int(port)


def test_random_bytes_on_the_port(agent: AgentProcess) -> None:
    rng = np.random.default_rng(0)
    start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for k in range(60):
        with socket.create_connection(_port(agent), timeout=5) as sock:
            try:
                sock.sendall((start if k % 2 else b"") + rng.bytes(int(rng.integers(1, 4096))))
            except OSError:
                continue


def test_ten_thousand_connections_opened_and_dropped(agent: AgentProcess) -> None:
    server = agent.tree()[1]
    files = server.num_fds()
    for _ in range(100):
        batch = [socket.create_connection(_port(agent), timeout=5) for _ in range(100)]
        for sock in batch:
            sock.close()
    with Device(Access(agent.address)) as device:
        assert device.info().cores
    for _ in range(100):  # dropped connections are noticed one after the other
        if server.num_fds() < files + 50:
            break
        time.sleep(0.1)
    assert server.num_fds() < files + 50


def _call(agent: AgentProcess, method: str, *messages: Any) -> grpc.StatusCode:
    with grpc.insecure_channel(agent.address, [("grpc.max_send_message_length", -1)]) as channel:
        call = channel.stream_stream(f"/{SERVICE_NAME}/{method}", None, None)
        with pytest.raises(grpc.RpcError) as caught:
            list(call(iter(messages), timeout=30))
    code: grpc.StatusCode = caught.value.code()
    return code


def test_malformed_and_oversized_messages(agent: AgentProcess) -> None:
    for method in ("Run", "Profile", "Upload", "Hello", "Optimize", "BeginUpload"):
        assert _call(agent, method, os.urandom(200)) not in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)
        assert _call(agent, method, bytes(9 << 20)) == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert _call(agent, "Run") == grpc.StatusCode.INVALID_ARGUMENT
    assert _call(agent, "NoSuchMethod", b"") == grpc.StatusCode.UNIMPLEMENTED


def _with_model(agent: AgentProcess, path: Path, change: Callable[[agent_pb2.RunStart], None]) -> DeviceRefusal:
    """What the agent says to a run that was changed."""
    with Device(Access(agent.address)) as device, RemoteRunner(path, PLAIN, device) as runner:
        program = runner._program((), images(1))
        change(program)
        with pytest.raises((DeviceRefusal, InputError)) as caught:
            runner.run(images(1))
    found = caught.value
    return found if isinstance(found, DeviceRefusal) else DeviceRefusal(str(found), "")


def test_options_that_name_a_path_or_are_unknown(agent: AgentProcess, tmp_path: Path) -> None:
    path = conv_net(tmp_path)
    for name, value in (
        ("session.optimized_model_external_initializers_file_name", "x"),
        ("ep.context_file_path", "/tmp/x"),
        ("session.use_env_allocators", "1"),
        ("session.intra_op.allow_spinning", "/etc/passwd"),
        ("session.intra_op.allow_spinning", "0\n1"),
    ):
        said = _with_model(agent, path, lambda s, n=name, v=value: s.settings.config.update({n: v}))
        assert "may not be set" in str(said) or "plain word" in str(said)
    for name in ("backend_path", "shared_lib_path", "config_file"):
        said = _with_model(agent, path, lambda s, n=name: s.settings.provider_options.update({n: "/tmp/evil.so"}))
        assert "may not be set" in str(said)
    said = _with_model(agent, path, lambda s: setattr(s.settings, "provider", "../evil"))
    assert "no provider" in str(said)


def test_ids_and_file_names_that_leave_the_folder(agent: AgentProcess, tmp_path: Path) -> None:
    path = conv_net(tmp_path)
    for digest in ("../../../etc", "a" * 63, "A" * 64, "", "a" * 64):
        said = _with_model(agent, path, lambda s, d=digest: setattr(s.model, "digest", d))
        assert "digest" in str(said) or "no such model" in str(said)
    said = _with_model(agent, path, lambda s: s.segments.add(file="../manifest.json", outputs=["p"]) and None)
    assert "no file" in str(said)
    with Device(Access(agent.address)) as device:
        for name in (
            "../x.onnx",
            "/etc/x",
            "a/../../x",
            "a\\x",
            "x\x00y",
            "x\ny",
            ".",
            "a//b",
            "x" * 300,
            "nul\x1b[2J",
        ):
            with pytest.raises(DeviceRefusal, match="plain relative file name"):
                device.upload([(name, b"x")], "evil")
            with pytest.raises(Refused):
                check_name(name)


def _model(folder: Path, nodes: list[onnx.NodeProto], domain: str = "", **location: str) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    for name, place in location.items():
        weight = graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=[4])
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=place)
        weight.external_data.add(key="length", value="16")
    opsets = [helper.make_opsetid("", 21), *([helper.make_opsetid(domain, 1)] if domain else [])]
    path = folder / "evil.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    return path


def _refused(agent: AgentProcess, path: Path) -> str:
    with Device(Access(agent.address)) as device:
        digest = device.upload([(path.name, path)], path.name)
        with pytest.raises(DeviceRefusal) as caught:
            device.optimise(digest, agent_pb2.SessionSettings(), path.parent)
    return str(caught.value)


def test_models_that_load_code_or_foreign_files(agent: AgentProcess, tmp_path: Path) -> None:
    inside = helper.make_graph(
        [helper.make_node("EPContext", [], ["z"], domain="com.microsoft", ep_cache_context="/tmp/x.so")], "b", [], []
    )
    inside.output.extend([helper.make_tensor_value_info("z", TensorProto.FLOAT, None)])
    compiled = [helper.make_node("EPContext", ["x"], ["y"], domain="com.microsoft", ep_cache_context="/tmp/x.so")]
    nested = [helper.make_node("If", ["x"], ["y"], then_branch=inside, else_branch=inside)]
    assert "EPContext" in _refused(agent, _model(tmp_path, compiled, "com.microsoft"))
    assert "EPContext" in _refused(agent, _model(tmp_path, nested, "com.microsoft"))
    foreign = [helper.make_node("Shell", ["x"], ["y"], domain="org.evil\x1b[2J")]
    said = _refused(agent, _model(tmp_path, foreign, "org.evil\x1b[2J"))
    assert "operator domain" in said and "\x1b" not in said
    add = [helper.make_node("Add", ["x", "w"], ["y"])]
    for place in ("/etc/passwd", "../../../../../../etc/passwd", "../manifest.json", "not-there.bin"):
        assert "external data" in _refused(agent, _model(tmp_path, add, w=place))


def test_garbage_instead_of_a_model(agent: AgentProcess, tmp_path: Path) -> None:
    path = tmp_path / "garbage.onnx"
    sound = conv_net(tmp_path).read_bytes()
    rng = np.random.default_rng(1)
    for k in range(12):
        data = bytearray(sound[: rng.integers(1, len(sound))] if k % 2 else sound)
        for at in rng.integers(0, len(data), 6):
            data[at] = rng.integers(0, 256)
        path.write_bytes(bytes(data) if k else b"")
        try:
            with Device(Access(agent.address)) as device, RemoteRunner(path, PLAIN, device) as runner:
                runner.run(images(1))
        except (VisualQuantError, KeyError) as error:
            assert str(error)


def test_feeds_that_lie(agent: AgentProcess, tmp_path: Path) -> None:
    with Device(Access(agent.address)) as device, RemoteRunner(conv_net(tmp_path), PLAIN, device) as runner:
        start = agent_pb2.RunRequest(start=runner._program((), images(1))).SerializeToString()
    head = agent_pb2.TensorHead
    lies = [
        head(name="x", dtype="float32", shape=[1 << 62, 1 << 62], bytes=16),
        head(name="x", dtype="float32", shape=[1 << 40], bytes=1 << 42),
        head(name="x", dtype="object", shape=[4], bytes=16),
        head(name="x", dtype="float32", shape=[4], bytes=17),
        head(name="x", dtype="float32", shape=[1] * 100, bytes=4),
        head(name="x", dtype="float32", shape=[4], bytes=16, crc32=1),
    ]
    for lie in lies:
        message = agent_pb2.RunRequest(data=bytes(16), tensor=lie, end_of_batch=True).SerializeToString()
        code = _call(agent, "Run", start, message)
        assert code.name in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "DATA_LOSS")
    with pytest.raises(Refused):
        tensor_bytes("float32", (1 << 63, 1 << 63, 0), Limits().batch_bytes)


def test_wrong_tokens_and_separate_folders(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# of a test\n{TOKEN}\n{TOKEN}-second\n")
    with AgentProcess(tmp_path / "store", "--token-file", str(tokens)) as agent:
        for token in (None, "", "wrong", TOKEN[:-1], TOKEN + "x"):
            with Device(Access(agent.address, token=token)) as device, pytest.raises(DeviceError, match="token"):
                device.info(5)
        with grpc.insecure_channel(agent.address) as channel, pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/grpc.health.v1.Health/Check", None, None)(b"", timeout=5)
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        with Device(Access(agent.address, token=TOKEN)) as one:
            digest = one.upload([("m.onnx", b"mine")], "mine")
            with Device(Access(agent.address, token=TOKEN + "-second")) as two:
                assert two.models().models == ()
                with pytest.raises(DeviceRefusal, match="no such model"):
                    two.optimise(digest, agent_pb2.SessionSettings(), tmp_path)
            assert [m.label for m in one.models().models] == ["mine"]
        assert TOKEN not in "".join(agent.log)


def test_an_agent_does_not_listen_unprotected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from visualquant_agent.__main__ import main

    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN + "\n")
    made = Certificates(tmp_path / "c")
    tls = ["--tls-cert", str(made.server_certificate), "--tls-key", str(made.server_key)]
    listen = ["serve", "--listen", "0.0.0.0:0", "--store", str(tmp_path / "s")]
    for options, said in (
        ([], "--insecure"),
        (["--token-file", str(tokens)], "without TLS"),
        (tls, "anybody may use it"),
        (["--tls-cert", str(made.server_certificate)], "belong together"),
        (["--client-ca", str(made.ca)], "needs --tls-cert"),
        (["--token-file", str(tmp_path / "none")], "none"),
    ):
        assert main([*listen, *options]) == 2
        assert said in capsys.readouterr().err


class _HostileAgent(agent_pb2_grpc.AgentServicer):
    """An agent that sends what a test says."""

    def __init__(self, graph: bytes, replies: Callable[[], Iterator[bytes]], name: str) -> None:
        self.graph, self.replies, self.name = graph, replies, name

    def Hello(self, request: Any, context: Any) -> Any:  # noqa: N802
        device = agent_pb2.Device(machine=self.name, processor=self.name * 1000, cpu_features=[self.name] * 1000)
        return agent_pb2.HelloReply(protocol_version=1, agent_version=self.name, device=device, busy=self.name)

    def BeginUpload(self, request: Any, context: Any) -> Any:  # noqa: N802
        return agent_pb2.UploadState(digest="x", complete=True)

    def Optimize(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        yield agent_pb2.OptimizeReply(file="optimised.onnx", data=self.graph)
        info = agent_pb2.ValueInfo(name="x", type="tensor(float)", shape=[-1, 3, 24, 24])
        outputs = [agent_pb2.ValueInfo(name=n) for n in ("p", "top")]
        yield agent_pb2.OptimizeReply(done=True, inputs=[info], outputs=outputs)


def _serve(servicer: _HostileAgent) -> tuple[grpc.Server, str]:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    agent_pb2_grpc.add_AgentServicer_to_server(servicer, server)

    def run(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        next(requests)
        yield from servicer.replies()

    handler = grpc.stream_stream_rpc_method_handler(run, None, None)
    server.add_registered_method_handlers(SERVICE_NAME, {"Run": handler})
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


def _reply(**fields: Any) -> bytes:
    data: bytes = agent_pb2.RunReply(**fields).SerializeToString()
    return data


_HEAD = agent_pb2.TensorHead
HOSTILE = {
    "overflowing shape": lambda: iter(
        [_reply(output=True, tensor=_HEAD(name="p", dtype="float32", shape=[1 << 62] * 4))]
    ),
    "huge tensor": lambda: iter(
        [_reply(output=True, tensor=_HEAD(name="p", dtype="float32", shape=[1 << 50], bytes=1 << 52))]
    ),
    "unknown type": lambda: iter([_reply(output=True, tensor=_HEAD(name="p", dtype="O", shape=[1], bytes=8))]),
    "name that nobody asked for": lambda: iter([_reply(output=True, tensor=_HEAD(name="\x1b]0;x\x07" * 99))]),
    "bytes of no tensor": lambda: iter([_reply(data=b"x" * 99)]),
    "endless empty messages": lambda: iter(lambda: _reply(batch=1), None),
    "endless bytes": lambda: _endless(),
    "garbage": lambda: iter([b"\x0a\xff\xff\xff\xff\x7f" + b"x" * 50]),
    "protobuf garbage": lambda: iter([b"\xff" * 300]),
    "an end without outputs": lambda: iter([_reply(end_of_batch=True)]),
    "summaries of nothing": lambda: iter([_reply(summary=[agent_pb2.TapSummary(name="\x1b[2J")])]),
}


def _endless() -> Iterator[bytes]:
    yield _reply(output=True, tensor=_HEAD(name="p", dtype="float32", shape=[64], bytes=256), data=bytes(256 - 16))
    while True:
        yield _reply(data=bytes(1 << 16))


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_agent_does_the_host_no_harm(what: str, tmp_path: Path) -> None:
    path = conv_net(tmp_path)
    name = "board\x1b[31m\u202e\x00"
    server, address = _serve(_HostileAgent(path.read_bytes(), HOSTILE[what], name))
    try:
        with Device(Access(address)) as device:
            info = device.info()
            for text in (info.machine, info.processor, info.agent_version, info.busy, *info.cpu_features):
                assert text.isprintable() and len(text) <= 200
            with RemoteRunner(path, PLAIN, device) as runner, pytest.raises(VisualQuantError) as caught:
                runner.run(images(1))
            assert str(caught.value).isprintable()
    finally:
        server.stop(None).wait()


def test_the_scan_agrees_with_onnx(tmp_path: Path) -> None:
    path = conv_net(tmp_path)
    found, proto = scan_file(path), onnx.load(path)
    assert {op for _, op in found.operators} == {n.op_type for n in proto.graph.node}
    assert list(found.made) == [out for n in proto.graph.node for out in n.output]
    assert list(found.outputs) == [o.name for o in proto.graph.output]
