"""Parts of the agent: summaries, frames, scan, store, device facts."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from visualquant_agent import device, frames, onnx_scan, profiling
from visualquant_agent.frames import Assembler
from visualquant_agent.limits import ELEMENT_BYTES, Limits, Refused
from visualquant_agent.store import File, Store, file_digest, manifest_digest
from visualquant_agent.summaries import summarize
from visualquant_agent.wire.v1 import agent_pb2

ARRAYS = st.sampled_from(sorted(ELEMENT_BYTES)).flatmap(
    lambda kind: hnp.arrays(np.dtype(kind), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7))
)


@settings(deadline=None, max_examples=120, derandomize=True, database=None)
@given(ARRAYS)
def test_tensors_travel_bit_for_bit(array: np.ndarray) -> None:
    assembler = Assembler(1 << 20)
    found = None
    for parts in frames.pieces("näme/x", array, agent_pb2.RunReply, batch=7):
        message = b"".join(parts)
        whole = agent_pb2.RunReply.FromString(message)  # any protobuf reader understands it
        data, rest = frames.split(message)
        reply = agent_pb2.RunReply.FromString(rest)
        assert bytes(data) == whole.data and reply.tensor == whole.tensor
        found = assembler.add(reply.tensor if reply.HasField("tensor") else None, data)
    assert found is not None and found[0] == "näme/x"
    assert found[1].dtype == array.dtype and found[1].shape == array.shape
    assert found[1].tobytes() == array.tobytes()


def test_a_large_tensor_comes_in_pieces() -> None:
    array = np.random.default_rng(0).normal(size=(700, 1000)).astype(np.float32)
    messages = [b"".join(p) for p in frames.pieces("x", array, agent_pb2.RunReply)]
    assert len(messages) == 3 and max(map(len, messages)) < (1 << 20) + 200
    damaged = bytearray(messages[1])
    damaged[500] ^= 1
    assembler = Assembler(1 << 24)
    with pytest.raises(Refused, match="CRC"):
        for message in (messages[0], bytes(damaged), messages[2]):
            data, rest = frames.split(message)
            reply = agent_pb2.RunReply.FromString(rest)
            assembler.add(reply.tensor if reply.HasField("tensor") else None, data)


@settings(deadline=None, max_examples=100, derandomize=True, database=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_split_or_refused(message: bytes) -> None:
    try:
        data, rest = frames.split(message)
    except ValueError:
        return
    assert len(data) + len(rest) <= len(message)


@settings(deadline=None, max_examples=150, derandomize=True, database=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_scanned_or_refused(data: bytes) -> None:
    try:
        onnx_scan.scan(data)
    except ValueError:
        return


@settings(deadline=None, max_examples=60, derandomize=True, database=None)
@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=9)))
def test_summaries_are_those_of_numpy(array: np.ndarray) -> None:
    found = summarize(array, [-1.0, 0.0, 1.0])
    x = array.reshape(-1).astype(np.float64)
    good = x[np.isfinite(x)]
    assert found["count"] == x.size and found["shape"] == list(array.shape)
    assert found["nan_count"] == np.isnan(x).sum() and found["inf_count"] == np.isinf(x).sum()
    assert found["zero_count"] == (x == 0).sum()
    assert sum(found["histogram"]) == x.size - np.isnan(x).sum()
    if good.size:
        assert found["min"] == good.min() and found["max"] == good.max()
        scale = np.abs(good).max() or 1.0
        assert found["mean"] == pytest.approx(good.mean(), abs=1e-6 * scale)
        assert found["l1"] == pytest.approx(np.abs(good).sum(), rel=1e-5)
        assert found["l2"] == pytest.approx(math.sqrt(np.square(good).sum()), rel=1e-5)
        assert found["std"] == pytest.approx(good.std(), abs=1e-3 * scale)


def test_summaries_of_codes() -> None:
    codes = np.random.default_rng(0).integers(-128, 128, 300_000).astype(np.int8)
    found = summarize(codes)
    x = codes.astype(np.float64)
    assert (found["min"], found["max"], found["zero_count"]) == (x.min(), x.max(), (x == 0).sum())
    assert found["mean"] == pytest.approx(x.mean(), abs=1e-3) and found["std"] == pytest.approx(x.std(), rel=1e-4)
    assert found["l1"] == pytest.approx(np.abs(x).sum(), rel=1e-5)
    assert summarize(np.empty((0, 3), np.float32))["count"] == 0


def test_a_store_survives_its_own_death_at_any_point(tmp_path: Path) -> None:
    content = b"0123456789" * 1000
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    files = [File("m.onnx", len(content), file_digest(path)), File("d/w.bin", 0, file_digest(Path("/dev/null")))]
    digest = manifest_digest(files)
    for cut in (0, 1, 5000, len(content)):
        root = tmp_path / f"store-{cut}"
        Store(root, Limits()).begin(files, "m")
        Store(root, Limits()).write(digest, 0, 0, content[:cut])
        again = Store(root, Limits())  # as after a kill: nothing is known but what lies on the disk
        with pytest.raises(Refused, match="no such model"):
            again.path(digest)
        _, complete, received = again.begin(files, "m")
        assert not complete and received == [cut, 0]
        with pytest.raises(Refused) as caught:
            again.write(digest, 0, cut + 1, b"x")
        assert caught.value.code == "OUT_OF_RANGE"
        again.write(digest, 0, cut, content[cut:])
        again.finish(digest)
        assert (again.path(digest) / "m.onnx").read_bytes() == content
        assert (again.path(digest) / "d" / "w.bin").read_bytes() == b""
        assert again.begin(files, "m")[1]


def test_cached_segments_make_room(tmp_path: Path) -> None:
    store = Store(tmp_path, Limits(quota_bytes=1000))

    def put(name: str, size: int, label: str) -> str:
        data = name.encode() * size
        path = tmp_path / "file"
        path.write_bytes(data)
        digest, _, _ = store.begin([File("m.onnx", len(data), file_digest(path))], label)
        store.write(digest, 0, 0, data)
        store.finish(digest)
        return digest

    cached = put("a", 600, "segments of m (3 taps)")
    kept = put("b", 300, "m")
    put("c", 500, "other")
    left = {e.digest for e in store.entries()}
    assert cached not in left and kept in left
    with pytest.raises(Refused, match="left"):
        put("d", 500, "more")
    store.delete(kept)
    begun, _, _ = store.begin([File("m.onnx", 400, "0" * 64)], "begun")
    with pytest.raises(Refused, match="left"):
        put("d", 400, "more")
    manifest = tmp_path / "default" / "partial" / begun / "manifest.json"
    os.utime(manifest, (0, 0))  # nobody went on with it for years
    put("d", 400, "more")
    assert not manifest.exists()


def test_facts_of_a_board(tmp_path: Path) -> None:
    sys = tmp_path / "sys"
    for name, text in {
        "devices/system/cpu/cpu0/cpufreq/scaling_governor": "schedutil\n",
        "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1500000\n",
        "devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "1800000\n",
        "devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "3\n",
        "class/thermal/thermal_zone0/temp": "45000\n",
        "class/thermal/thermal_zone1/temp": "61500\n",
        "class/powercap/intel-rapl:0/name": "package-0\n",
        "class/powercap/intel-rapl:0/energy_uj": "123456\n",
    }.items():
        (sys / name).parent.mkdir(parents=True, exist_ok=True)
        (sys / name).write_text(text)
    facts = device.facts(sys)
    assert (facts.governor, facts.frequency_khz, facts.frequency_max_khz) == ("schedutil", 1_500_000, 1_800_000)
    assert (facts.temperature_celsius, facts.throttle_count) == (61.5, 3)
    assert list(facts.energy_sources) == ["rapl:package-0"]
    assert profiling.read_energy(profiling.energy_counters(sys)) == {"rapl:package-0": 123456}
    bare = device.facts(tmp_path / "nothing")
    assert not bare.HasField("temperature_celsius") and not bare.HasField("throttle_count")


def test_features_of_an_arm_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("Features\t: fp asimd asimddp i8mm bf16 crc32\n")
    monkeypatch.setattr(device, "_asked_processor", lambda: {"ASIMD": True, "ASIMDDP": True})
    assert device.cpu_features(path) == ["asimd", "asimddp", "bf16", "i8mm"]
    monkeypatch.setattr(device, "_asked_processor", lambda: {"AVX512VNNI": False, "AVX2": True})
    path.write_text("flags\t: avx2 avx512_vnni\n")  # an emulator shows the real machine's file
    assert device.cpu_features(path) == ["avx2"]
