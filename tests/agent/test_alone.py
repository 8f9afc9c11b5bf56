"""The agent from its own wheel alone, on old and new runtimes; installed over a real ssh."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agents import AgentProcess
from visualquant.cli.main import run
from visualquant.runtime.connect import Access
from visualquant.runtime.install import agent_wheel
from visualquant.runtime.remote import Device
from visualquant.runtime.remote_runner import RemoteRunner
from visualquant.testing.runner_conformance import PLAIN, conv_net, images
from visualquant_agent.__main__ import unit_text

ROOT = Path(__file__).resolve().parents[2]
LOADS = (
    "from visualquant_agent.wire.v1 import agent_pb2, agent_pb2_grpc; import google.protobuf, grpc; "
    "m = agent_pb2.RunReply.FromString(agent_pb2.RunReply(data=b'x', batch=3).SerializeToString()); "
    "assert m.batch == 3 and m.data == b'x'; print(google.protobuf.__version__, grpc.__version__)"
)


def _environment(folder: Path, *requirements: str) -> Path:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *requirements], check=True)
    return python


def _wheel(folder: Path) -> Path:
    name, data = agent_wheel()
    (folder / name).write_bytes(data)
    return folder / name


@pytest.mark.slow
def test_the_wheel_alone_serves(tmp_path: Path) -> None:
    python = _environment(tmp_path / "venv", str(_wheel(tmp_path)))
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True
    )
    names = {line.partition("==")[0].lower() for line in listed.stdout.splitlines()}
    assert "visualquant-agent" in names and not names & {"visualquant", "onnx", "numba", "dearpygui", "psutil"}
    with (
        AgentProcess(tmp_path / "store", python=str(python)) as agent,
        Device(Access(agent.address)) as device,
        RemoteRunner(conv_net(tmp_path), PLAIN, device) as runner,
    ):
        assert runner.run(images(1))["p"].shape == (1, 8, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "versions", [("protobuf==4.25.0", "grpcio==1.62.3"), ("protobuf", "grpcio")], ids=["oldest", "newest"]
)
def test_generated_code_loads_on_old_and_new_runtimes(versions: tuple[str, ...], tmp_path: Path) -> None:
    python = _environment(tmp_path / "venv", *versions)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "agent" / "src")}
    subprocess.run([python, "-W", "error", "-c", LOADS], env=environment, check=True)


def test_the_wheel_holds_everything_and_is_the_same_twice(tmp_path: Path) -> None:
    import zipfile

    assert agent_wheel() == agent_wheel()
    with zipfile.ZipFile(_wheel(tmp_path)) as archive:
        names = archive.namelist()
        assert "visualquant_agent/wire/v1/agent_pb2.py" in names
        assert "visualquant_agent/visualquant-agent.service" in names
        assert archive.testzip() is None


def test_the_units() -> None:
    hardened = unit_text("/opt/agent/bin/python -m visualquant_agent", "--memory 64MB")
    assert "ExecStart=/opt/agent/bin/python -m visualquant_agent serve --memory 64MB\n" in hardened
    for line in ("DynamicUser=yes", "ProtectSystem=strict", "NoNewPrivileges=yes", "IPAddressDeny=any"):
        assert line in hardened
    user = unit_text("x", user=True)
    assert "WantedBy=default.target" in user and "DynamicUser" not in user and "ExecStart=x serve\n" in user


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A real sshd on loopback with a key of its own; the address for ssh://."""
    program = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None or os.geteuid() != 0:
        pytest.skip("no sshd, or not root")
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    Path("/run/sshd").mkdir(exist_ok=True)
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"PasswordAuthentication no\nPermitRootLogin yes\nStrictModes no\nUsePAM no\nPidFile {folder}/pid\n"
    )
    server = subprocess.Popen([program, "-D", "-e", "-f", folder / "config"], stderr=subprocess.DEVNULL)
    options = f"-i {folder}/user -o UserKnownHostsFile={folder}/known -o StrictHostKeyChecking=accept-new -F none"
    monkeypatch.setenv("VISUALQUANT_SSH_OPTIONS", options)
    time.sleep(0.5)
    yield f"ssh://root@127.0.0.1:{port}"
    server.terminate()
    server.wait()


def test_through_ssh(sshd: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with AgentProcess(tmp_path / "store") as agent:
        port = int(agent.address.rpartition(":")[2])
        with Device(Access(sshd, agent_port=port)) as device, RemoteRunner(conv_net(tmp_path), PLAIN, device) as runner:
            assert runner.run(images(1))["p"].shape == (1, 8, 1, 1)
        assert run(["device", "info", sshd, "--agent-port", str(port)]) == 0
        assert "ONNX Runtime" in capsys.readouterr().out
    assert run(["device", "info", sshd, "--agent-port", "9"]) == 3
    assert run(["device", "info", "ssh://nobody@127.0.0.1:9"]) == 3
    assert "ssh does not reach nobody@127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.slow
def test_install_over_ssh(sshd: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = tmp_path / "board"
    where = ["device", "install", sshd, "--folder", str(board), "--python", sys.executable, "--agent-port", "50997"]
    try:
        assert run([*where, "--service", "background", "--serve-options", "--memory 500MB"]) == 0
        assert "500.0 MB" in capsys.readouterr().out
        assert run([*where, "--service", "background"]) == 0  # again: the old one is replaced
    finally:
        if (board / "agent.pid").exists():
            os.kill(int((board / "agent.pid").read_text()), 15)
