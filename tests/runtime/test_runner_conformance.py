"""One suite for every way to run a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agents import AgentProcess, Certificates, haswell
from visualquant.errors import DeviceError
from visualquant.runtime.connect import Access
from visualquant.runtime.local import LocalRunner
from visualquant.runtime.remote import Device
from visualquant.runtime.remote_runner import RemoteRunner
from visualquant.testing.runner_conformance import Make, RunnerConformance
from visualquant_agent.service import make_server


def _on(device: Device) -> Make:
    return lambda path, options: RemoteRunner(path, options, device)


@pytest.fixture(scope="module")
def in_process() -> Iterator[Make]:
    served = make_server("127.0.0.1:0")
    served.start()
    with Device(Access(f"127.0.0.1:{served.port}")) as device:
        yield _on(device)
    served.stop()


@pytest.fixture(scope="module")
def over_tcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    with AgentProcess(tmp_path_factory.mktemp("store")) as agent, Device(Access(agent.address)) as device:
        yield _on(device)


@pytest.fixture(scope="module")
def over_mutual_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    store = tmp_path_factory.mktemp("store")
    with AgentProcess(store, *made.server_options) as agent, Device(made.access(agent.address)) as device:
        yield _on(device)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """A processor without VNNI: the host's own virtual environment under qemu."""
    store = tmp_path_factory.mktemp("store")
    with AgentProcess(store, before=haswell()) as agent, Device(Access(agent.address)) as device:
        features = device.info(60).cpu_features
        assert "avx2" in features and "avx512_vnni" not in features
        yield _on(device)


class TestLocal(RunnerConformance):
    @pytest.fixture
    def make(self) -> Make:
        return LocalRunner


class TestInProcess(RunnerConformance):
    @pytest.fixture
    def make(self, in_process: Make) -> Make:
        return in_process


class TestTcp(RunnerConformance):
    @pytest.fixture
    def make(self, over_tcp: Make) -> Make:
        return over_tcp


class TestMutualTls(RunnerConformance):
    @pytest.fixture
    def make(self, over_mutual_tls: Make) -> Make:
        return over_mutual_tls


class TestEmulated(RunnerConformance):
    pieces_bytes = 96 << 20  # NOTE: what the emulator itself translates counts as growth
    pieces_batch = 300

    @pytest.fixture
    def make(self, emulated: Make) -> Make:
        return emulated


def test_certificates_are_checked(tmp_path: Path) -> None:
    made, other = Certificates(tmp_path / "a"), Certificates(tmp_path / "b")
    with AgentProcess(tmp_path / "store", *made.server_options) as agent:
        with Device(made.access(agent.address)) as device:
            assert device.info().cores
        with Device(Access(agent.address, ca=made.ca)) as device, pytest.raises(DeviceError):
            device.info(5)  # no client certificate
        with Device(other.access(agent.address)) as device, pytest.raises(DeviceError):
            device.info(5)  # signed by somebody else
        with Device(Access(agent.address)) as device, pytest.raises(DeviceError):
            device.info(5)  # not encrypted
        pinned = Access(
            agent.address,
            fingerprint=made.fingerprint,
            certificate=made.client_certificate,
            key=made.client_key,
        )
        with Device(pinned) as device:
            assert device.info().cores
        with pytest.raises(DeviceError, match="another certificate"):
            Device(Access(agent.address, fingerprint="00" * 32))
