"""Memory, disk, time: a run that needs more than there is ends in a clear status, and the agent serves on."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from benchmarks.nets import resnet50, samples, write_pair

from tests.agent.agents import AgentProcess
from visualquant.core.taps import RunOptions
from visualquant.errors import DeviceError, InputError
from visualquant.runtime.connect import Access
from visualquant.runtime.remote import Device, DeviceRefusal
from visualquant.runtime.remote_runner import RemoteRunner
from visualquant.testing.models import node
from visualquant.testing.runner_conformance import PLAIN, conv_net, images, saved, taps_of
from visualquant_agent.limits import Limits
from visualquant_agent.store import File, Store, file_digest


class Growth:
    """Largest proportional memory of an agent's processes above its idle size; use as a context.

    Attributes:
        mb: the largest growth in MB so far.
    """

    def __init__(self, agent: AgentProcess) -> None:
        self._agent = agent
        self.mb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _total(self) -> float:
        total = 0
        for process in self._agent.tree():
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue
        return total / 1e6

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.mb = max(self.mb, self._total() - self._idle)

    def __enter__(self) -> Growth:
        time.sleep(0.3)
        self._idle = self._total()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()


def _served(address: str, path: Path) -> None:
    with Device(Access(address)) as device, RemoteRunner(path, PLAIN, device) as runner:
        assert runner.run(images(1))["p"].shape == (1, 8, 1, 1)


@pytest.mark.parametrize(
    ("first", "size", "memory_mb", "pause_s"),
    [(16, 256, 30, 2.0), pytest.param(64, 512, 84, 10.0, marks=pytest.mark.slow)],
)
def test_memory_stays_within_the_bound_also_with_a_slow_reader(
    first: int, size: int, memory_mb: int, pause_s: float, tmp_path: Path
) -> None:
    _, path = write_pair(resnet50(size, first), size, tmp_path, "resnet")
    feeds = {"x": samples(1, size)}
    with (
        AgentProcess(tmp_path / "store", "--memory", f"{memory_mb}MB") as agent,
        Device(Access(agent.address)) as device,
        Growth(agent) as growth,
        RemoteRunner(path, PLAIN, device) as runner,
    ):
        taps = taps_of(runner)
        events = runner.tap([((0,), feeds)], taps)
        for k, _ in enumerate(events):
            if k == len(taps) // 3:
                time.sleep(pause_s)
        assert k == len(taps)
        (program,) = runner._programs.values()
        print(f"floor {program.floor_bytes / 1e6:.1f} MB, bound {memory_mb} MB, growth {growth.mb:.1f} MB")  # noqa: T201
        assert len(program.segments) > 1
        assert growth.mb <= memory_mb + 32


def test_less_memory_than_the_floor_is_refused_with_the_floor(tmp_path: Path) -> None:
    path = conv_net(tmp_path)
    with AgentProcess(tmp_path / "store", "--memory", "20MB") as agent, Device(Access(agent.address)) as device:
        with RemoteRunner(path, PLAIN, device) as runner:
            with pytest.raises(DeviceRefusal, match=r"needs at least \d+ bytes .* largest segment and its largest tap"):
                list(runner.tap([(range(200), images(200))], taps_of(runner)))
            assert runner.run(images(1))
        more = RunOptions(threads=1, memory_bytes=99_000_000)
        with RemoteRunner(path, more, device) as runner, pytest.raises(DeviceRefusal, match="20000000 bytes, not 99"):
            runner.run(images(1))


@pytest.fixture
def huge(tmp_path: Path) -> Path:
    """A few bytes of model and input, 40 GB of output."""
    (tmp_path / "huge").mkdir()
    nodes = [node("Expand", ["x", "s"], ["y"])]
    return saved(tmp_path / "huge", nodes, [1], ["y"], {"s": np.array([10_000_000_000])})


def test_a_small_model_with_a_huge_output_ends_alone(huge: Path, tmp_path: Path) -> None:
    with AgentProcess(tmp_path / "store", "--memory", "200MB") as agent, Device(Access(agent.address)) as device:
        with RemoteRunner(huge, RunOptions(level="none"), device) as runner, pytest.raises(InputError, match="memory"):
            runner.run({"x": np.ones(1, np.float32)})
        _served(agent.address, conv_net(tmp_path))
    with AgentProcess(tmp_path / "store", "--max-batch", "1MB") as agent, Device(Access(agent.address)) as device:
        nodes = [node("Expand", ["x", "s"], ["y"])]
        path = saved(tmp_path, nodes, [1], ["y"], {"s": np.array([1_000_000])})
        with RemoteRunner(path, RunOptions(level="none"), device) as runner, pytest.raises(InputError, match="1000000"):
            runner.run({"x": np.ones(1, np.float32)})


def test_a_call_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with AgentProcess(tmp_path / "store", "--max-seconds", "0.4") as agent, Device(Access(agent.address)) as device:
        nodes = [node("MatMul", ["x", "x"], ["a"]), node("MatMul", ["a", "a"], ["y"], "again")]
        path = saved(tmp_path, nodes, ["N", "N"], ["y"])
        one = RunOptions(level="none", threads=1)
        with RemoteRunner(path, one, device) as runner, pytest.raises(InputError, match=r"longer than 0\.4 seconds"):
            runner.run({"x": np.ones((6000, 6000), np.float32)})
        _served(agent.address, conv_net(tmp_path))


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGSEGV, "a fault inside ONNX Runtime"), (signal.SIGKILL, "too little memory")]
)
def test_a_worker_that_dies_is_named_and_the_agent_serves_on(number: int, said: str, tmp_path: Path) -> None:
    path = conv_net(tmp_path)
    with AgentProcess(tmp_path / "store") as agent, Device(Access(agent.address)) as device:
        with RemoteRunner(path, PLAIN, device) as runner:
            assert runner.run(images(1))
            _, _, worker = agent.tree()
            os.kill(worker.pid, number)
            with pytest.raises((InputError, DeviceError), match=said):
                runner.run(images(1))
        _served(agent.address, path)


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "big.onnx"
    path.write_bytes(os.urandom(6 << 20))
    return path


def test_a_full_disk_and_a_full_quota_end_in_a_clear_status(big: Path, tmp_path: Path) -> None:
    full = AgentProcess(tmp_path / "a", before=("prlimit", "--fsize=2000000"))
    with full as agent, Device(Access(agent.address)) as device:
        with pytest.raises(DeviceRefusal, match="the device's disk is full"):
            device.upload([("big.onnx", big)], "big")
        assert [m.complete for m in device.models().models] == [False]
        _served(agent.address, conv_net(tmp_path))
    with AgentProcess(tmp_path / "a", "--quota", "8MB") as agent, Device(Access(agent.address)) as device:
        digest = device.upload([("big.onnx", big)], "big")  # goes on from where the disk was full
        with pytest.raises(DeviceRefusal, match=r"the device's store has .* left"):
            device.upload([("other.onnx", big)], "other")
        assert device.delete(digest) == 6 << 20 or device.models().used_bytes < 1 << 20
        device.upload([("other.onnx", big)], "other")


def test_a_corrupt_upload_is_never_taken_for_a_model(big: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with AgentProcess(store) as agent, Device(Access(agent.address)) as device:
        whole = big.read_bytes()

        digest = device.upload([("big.onnx", big)], "big")
        device.delete(digest)
        # A partial upload whose bytes on the device were damaged: it is noticed, and that file starts again.
        entry = File("big.onnx", len(whole), file_digest(big))
        direct = Store(store, Limits())
        direct.begin([entry], "big")
        direct.write(digest, 0, 0, whole[:1000] + b"x" + whole[1001:100_000])
        assert device.upload([("big.onnx", big)], "big") == digest
        assert (store / "default" / "models" / digest / "files" / "big.onnx").read_bytes() == whole
