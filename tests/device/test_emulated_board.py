"""The host against an emulated aarch64 board: make test-device."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agents import AgentProcess
from visualquant.runtime.connect import Access
from visualquant.runtime.feeds import FeedOptions
from visualquant.runtime.remote import Device
from visualquant.session.compare import compare
from visualquant.session.devices import DeviceOptions
from visualquant.session.with_data import DataOptions

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("emulated_board.sh")
pytestmark = pytest.mark.device


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = ROOT / "build" / "emulated-board"
    subprocess.run([SCRIPT, "build", folder], check=True)
    store = tmp_path_factory.mktemp("store")
    with AgentProcess(store, command=[str(SCRIPT), "serve", str(folder)]) as agent:
        yield agent.address


def test_the_board_tells_what_it_is(board: str) -> None:
    with Device(Access(board)) as device:
        info = device.info(120)
    assert info.machine == "aarch64" and "asimd" in info.cpu_features


@pytest.mark.parametrize("name", ["ort_qdq_u8s8_percentile.onnx", "ort_qdq_u8u8_pt.onnx"])
def test_host_and_board_on_the_same_samples(name: str, board: str, corpus: Path) -> None:
    folder = corpus / "digits_resnet"
    data = DataOptions(str(corpus / "data" / "digits.npz"), feeds=FeedOptions(limit=8), profile=False)
    report = compare(folder / "fp32.onnx", folder / name, data=data, devices=DeviceOptions((Access(board),)))
    (device,) = report.devices
    assert device.machine == "aarch64" and device.codes > 1000 and device.differing is not None
    assert all(r.taps_verified is True for r in report.runs)
    print(name, f"{device.differing:.4%}", device.max_difference, device.off_by)  # noqa: T201
    levels = {o.run: o.metrics["sqnr_db"] for o in report.outputs}
    assert float(levels["r1"]) > 20 and float(levels["host"]) > 20
    if name.startswith("ort_qdq_u8u8"):
        assert device.differing < 0.001
