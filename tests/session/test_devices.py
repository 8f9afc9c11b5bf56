"""`compare --device`: the same report as here where the machine is the same, and the kernel's fault where it is not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agents import AgentProcess, haswell
from visualquant.cli.main import run
from visualquant.core.device import CodeDifference
from visualquant.core.report import Report
from visualquant.runtime.connect import Access
from visualquant.runtime.feeds import FeedOptions
from visualquant.runtime.remote_runner import RemoteRunner
from visualquant.session.archive import load, save
from visualquant.session.compare import compare
from visualquant.session.devices import DeviceOptions
from visualquant.session.with_data import DataOptions

PAIRS = [
    ("digits_resnet", "ort_qdq_u8s8_percentile.onnx", "digits"),
    pytest.param("mnist_mbnet", "ort_qdq_s8s8_pc.onnx", "mnist", marks=pytest.mark.slow),
    pytest.param("mnist_vit", "ort_qdq_s8s8_pc.onnx", "mnist", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with AgentProcess(tmp_path_factory.mktemp("store")) as agent:
        yield agent.address


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with AgentProcess(tmp_path_factory.mktemp("store"), before=haswell()) as agent:
        yield agent.address


def _data(corpus: Path, file: str, samples: int) -> DataOptions:
    feeds = FeedOptions(limit=samples, batch=8)
    return DataOptions(str(corpus / "data" / f"{file}.npz"), feeds=feeds, profile=False)


def _compare(corpus: Path, folder: str, name: str, file: str, samples: int, *devices: str) -> Report:
    where = DeviceOptions(tuple(Access(d) for d in devices)) if devices else None
    paths = corpus / folder / "fp32.onnx", corpus / folder / name
    return compare(*paths, data=_data(corpus, file, samples), devices=where)


@pytest.mark.parametrize(("folder", "name", "file"), PAIRS)
def test_on_the_same_machine_the_report_is_the_local_one(
    folder: str, name: str, file: str, corpus: Path, native: str
) -> None:
    here = _compare(corpus, folder, name, file, 16)
    there = _compare(corpus, folder, name, file, 16, native)
    (device,) = there.devices
    assert device.codes > 1000 and device.differing == 0 and device.max_difference == 0
    assert there.activations == here.activations
    assert [o for o in there.outputs if o.run == "r1"] == list(here.outputs)
    assert [t for t in there.task if t.run == "r1"] == list(here.task)
    assert [f.code for f in there.findings] == [f.code for f in here.findings]
    ran = {r.id: r.kind for r in there.runs}
    assert ran == {"r0": "local", "r1": "device", "host": "local"}
    assert all(r.taps_verified is True for r in there.runs)
    strip = [dataclasses.replace(o, run="r1") for o in there.outputs if o.run == "host"]
    assert strip == list(here.outputs)


def test_a_processor_without_vnni_is_found_out(corpus: Path, emulated: str, native: str) -> None:
    report = _compare(corpus, "digits_resnet", "ort_qdq_u8s8_percentile.onnx", "digits", 8, emulated, native)
    codes = {f.code for f in report.findings}
    assert codes & {"RUNTIME_SATURATES", "DEVICE_DIFFERS"}
    assert [d.run for d in report.devices] == ["r1", "r2"]
    board, same = report.devices
    assert "avx512_vnni" not in board.features and same.differing == 0
    assert {a.run for a in report.activations} == {"r1", "r2"}
    if "avx512_vnni" in same.features:  # otherwise this machine saturates as well
        assert board.differing is not None and board.differing > 0.05 and board.max_difference > 3
        (finding,) = [f for f in report.findings if f.code == "DEVICE_DIFFERS"]
        assert "saturating 16 bits" in finding.what and finding.settings == "reduce_range=True"
        assert finding.numbers["off_by_1"] > 0 and finding.where["device"] == emulated


def test_uint8_weights_do_not_saturate_there(corpus: Path, emulated: str) -> None:
    report = _compare(corpus, "digits_resnet", "ort_qdq_u8u8_pt.onnx", "digits", 8, emulated)
    assert not {f.code for f in report.findings} & {"RUNTIME_SATURATES", "DEVICE_DIFFERS"}
    assert report.devices[0].differing is not None and report.devices[0].differing < 0.001


def test_the_command_line(corpus: Path, native: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = corpus / "digits_resnet"
    pair = [str(folder / "fp32.onnx"), str(folder / "ort_qdq_s8s8_pc.onnx")]
    data = ["--data", str(corpus / "data" / "digits.npz"), "--samples", "8", "--fresh"]
    assert run(["compare", *pair, *data, "--device", native, "--json", str(tmp_path / "r.json")]) == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["devices"][0]["name"] == native and report["devices"][0]["differing"] == 0
    assert run(["compare", *pair, *data, "--device", native, "--save", str(tmp_path / "r.vqz")]) == 0
    out = capsys.readouterr().out
    assert "The quantized model by machine" in out and native in out and "this host" in out
    kept = load(tmp_path / "r.vqz")
    assert kept.devices[0].name == native
    save(kept, tmp_path / "again.vqz")
    assert run(["compare", *pair, "--device", native]) == 2
    assert "--device needs --data" in capsys.readouterr().err
    assert run(["compare", *pair, *data, "--device", "127.0.0.1:1"]) == 3
    assert "No agent answers" in capsys.readouterr().err
    assert run(["compare", *pair, *data, "--device", "192.0.2.1:5"]) == 2
    assert "ssh://" in capsys.readouterr().err


def test_device_commands(corpus: Path, native: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(corpus / "digits_resnet" / "ort_qdq_s8s8_pc.onnx")
    assert run(["device", "info", native, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cores"] >= 1
    assert run(["device", "info", native]) == 0 and "ONNX Runtime" in capsys.readouterr().out
    assert run(["device", "profile", native, model, "--repeats", "3", "--json"]) == 0
    profile = json.loads(capsys.readouterr().out)
    assert profile["repeats"] == 3 and profile["plain_p50_us"] > 0
    assert run(["device", "profile", native, model, "--repeats", "3"]) == 0 and "QLinearConv" in capsys.readouterr().out
    assert run(["device", "taps", native, model, "--json"]) == 0
    taps = json.loads(capsys.readouterr().out)
    assert len(taps) > 10 and all(t["count"] > 0 for t in taps.values())
    assert run(["device", "taps", native, model, "--tensor", next(iter(taps)), "--out", str(tmp_path / "t.npy")]) == 0
    assert (tmp_path / "t.npy").exists()
    assert run(["device", "taps", native, model, "--tensor", "nothing", "--out", str(tmp_path / "t.npy")]) == 2
    assert run(["device", "bench", native, model, "--repeats", "1"]) == 0 and "summaries" in capsys.readouterr().out
    assert run(["device", "models", native]) == 0
    listed = capsys.readouterr().out
    digest = next(line.split()[0] for line in listed.splitlines() if "ort_qdq_s8s8_pc" in line)
    assert run(["device", "models", native, "--delete", digest]) == 0
    assert digest not in capsys.readouterr().out


def test_differences_do_not_depend_on_batches() -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    a = rng.integers(0, 256, 1000).astype(np.uint8)
    b = np.where(rng.random(1000) < 0.3, rng.integers(0, 256, 1000), a).astype(np.uint8)
    whole, parts = CodeDifference("x"), CodeDifference("x")
    whole.update(a, b)
    for k in range(0, 1000, 70):
        parts.update(a[k : k + 70], b[k : k + 70])
    assert (whole.elements, whole.largest, whole.off_by.tolist()) == (
        parts.elements,
        parts.largest,
        parts.off_by.tolist(),
    )
    distance = np.abs(a.astype(int) - b.astype(int))
    assert whole.largest == distance.max() and whole.differing == np.count_nonzero(distance)
    assert whole.off_by[0] == np.count_nonzero(distance == 1)


def test_a_device_that_is_lost_leaves_the_others_and_a_rerun_goes_on(
    corpus: Path, native: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("visualquant.runtime.remote_runner.RETRY_S", (0.05,))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = corpus / "digits_resnet"
    pair = [str(folder / "fp32.onnx"), str(folder / "ort_qdq_s8s8_pc.onnx")]
    data = ["--data", str(corpus / "data" / "digits.npz"), "--samples", "64"]
    batches = 0
    with AgentProcess(tmp_path / "store") as agent:
        original = RemoteRunner.tap

        def tap(self: RemoteRunner, *given: Any) -> Iterator[Any]:
            nonlocal batches
            for event in original(self, *given):
                yield event
                if self.device.name == agent.address and not event.value:
                    batches += 1
                    if batches == 3:  # the check, and two batches
                        agent.process.kill()
                        agent.process.wait()

        monkeypatch.setattr(RemoteRunner, "tap", tap)
        devices = ["--device", agent.address, "--device", native]
        assert run(["compare", *pair, *data, *devices]) == 4
        out = " ".join(capsys.readouterr().out.split())
        assert "lost on the way" in out and "This result is partial" in out and "goes on from there" in out
        monkeypatch.setattr(RemoteRunner, "tap", original)
    kept = list((tmp_path / "cache").rglob("list.json"))
    assert len(kept) >= 2
    with AgentProcess(tmp_path / "store", listen=agent.address) as again:
        assert again.address == agent.address
        assert run(["compare", *pair, *data, "--device", agent.address]) == 0
    assert not list((tmp_path / "cache").rglob("list.json"))
