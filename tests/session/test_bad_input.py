"""Bad input: a clear sentence and exit code 2, or a report with a finding; never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.models import mlp, mlp_qdq, model, quantized_mlp, save, tensor
from visualquant.cli.main import run

RNG = np.random.default_rng(7)
WEIGHT = RNG.normal(size=(16, 8)).astype(np.float32)


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    return save(mlp(WEIGHT), tmp_path / "float.onnx")


def _onnx_bytes() -> bytes:
    return mlp(WEIGHT).SerializeToString()


BAD_BYTES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "empty"),
    "text": (lambda: b"hello, this is a note\n" * 9, "text file"),
    "html": (lambda: b"<!DOCTYPE html><html>404</html>", "web page"),
    "lfs": (lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 1\n", "git lfs"),
    "zip": (lambda: b"PK\x03\x04" + bytes(100), "zip"),
    "random": (lambda: np.random.default_rng(1).bytes(5000), "not a model"),
    "zeros": (lambda: bytes(4096), "not a"),
    "truncated": (lambda: _onnx_bytes()[: len(_onnx_bytes()) // 2], "onnx model"),
    "one_byte_short": (lambda: _onnx_bytes()[:-1], "onnx model"),
    "tensor_proto": (lambda: tensor("t", WEIGHT).SerializeToString(), "onnx"),
    "no_graph": (lambda: onnx.ModelProto(ir_version=9).SerializeToString(), "no onnx graph"),
}


@pytest.mark.parametrize("name", BAD_BYTES)
@pytest.mark.parametrize("side", ["float", "quant"])
def test_bytes_that_are_no_model(
    name: str, side: str, sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, words = BAD_BYTES[name]
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(make())
    pair = (bad, sound) if side == "float" else (sound, bad)
    assert run(["compare", *map(str, pair)]) == 2
    message = capsys.readouterr().err
    assert words in message.lower() and "bad.onnx" in message and "Traceback" not in message


def test_missing_and_folder(sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(sound), str(tmp_path / "nowhere.onnx")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert run(["compare", str(tmp_path), str(sound)]) == 2
    assert "folder" in capsys.readouterr().err


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_any_truncation_is_a_sentence(cut: int, sound: Path, tmp_path: Path) -> None:
    data = _onnx_bytes()
    bad = tmp_path / "cut.onnx"
    bad.write_bytes(data[: len(data) * cut // 60])
    assert run(["compare", str(sound), str(bad)]) == 2


def _external(path: Path, location: str, *, offset: int = 0, length: int | None = None) -> Path:
    proto = mlp(WEIGHT)
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            weight.external_data.add(key=key, value=str(value))
    return save(proto, path)


def test_external_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    data = folder / "w.data"
    good = _external(folder / "float.onnx", "w.data")
    quant = save(quantized_mlp(WEIGHT), folder / "quant.onnx")
    data.write_bytes(WEIGHT.tobytes())
    out = tmp_path / "r.json"
    assert run(["compare", str(good), str(quant), "--json", str(out)]) == 0
    (row,) = json.loads(out.read_text())["weights"]
    assert row["metrics"]["sqnr_db"] > 40
    capsys.readouterr()

    data.write_bytes(WEIGHT.tobytes()[:-1])
    assert run(["compare", str(good), str(quant)]) == 2
    assert "w.data" in capsys.readouterr().err
    data.unlink()
    assert run(["compare", str(good), str(quant)]) == 2
    assert "missing" in capsys.readouterr().err


@pytest.mark.parametrize("location", ["../secret.data", "/etc/hostname", "a/../../secret.data", ""])
def test_external_data_outside_the_folder(location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "m"
    (folder / "a").mkdir(parents=True)
    (tmp_path / "secret.data").write_bytes(WEIGHT.tobytes())
    bad = _external(folder / "float.onnx", location)
    assert run(["compare", str(bad), str(bad)]) == 2
    assert "outside" in capsys.readouterr().err


def test_link_into_a_cache_needs_the_word_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, blobs = tmp_path / "snapshot", tmp_path / "blobs"
    folder.mkdir()
    blobs.mkdir()
    (blobs / "abc").write_bytes(WEIGHT.tobytes())
    (folder / "w.data").symlink_to(blobs / "abc")
    linked = _external(folder / "float.onnx", "w.data")
    quant = save(quantized_mlp(WEIGHT), tmp_path / "quant.onnx")
    assert run(["compare", str(linked), str(quant)]) == 2
    assert "--data-root" in capsys.readouterr().err
    assert run(["compare", str(linked), str(quant), "--data-root", str(blobs)]) == 0


def _report(tmp_path: Path, float_model: onnx.ModelProto, quant_model: onnx.ModelProto) -> dict:
    paths = [save(float_model, tmp_path / "f.onnx"), save(quant_model, tmp_path / "q.onnx")]
    out = tmp_path / "r.json"
    assert run(["compare", *map(str, paths), "--json", str(out)]) == 0
    return json.loads(out.read_text())


def _codes(report: dict) -> dict[str, str]:
    return {f["code"]: f["severity"] for f in report["findings"]}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_weights(bad: float, tmp_path: Path) -> None:
    weight = WEIGHT.copy()
    weight[3, 2] = bad
    report = _report(tmp_path, mlp(weight), quantized_mlp(WEIGHT))
    assert _codes(report)["WEIGHT_NON_FINITE"] == "error"
    (row,) = report["weights"]
    assert row["metrics"]["non_finite_float"] == 1 and row["metrics"]["sqnr_db"] > 40


def test_all_zero_channel_is_said_and_is_no_nan(tmp_path: Path) -> None:
    weight = WEIGHT.copy()
    weight[:, 5] = 0
    report = _report(tmp_path, mlp(weight), quantized_mlp(weight))
    assert report["weights"][0]["zero_channels"] == [5]
    assert "WEIGHT_DEAD_CHANNEL" in _codes(report)
    assert "NaN" not in json.dumps(report)


@pytest.mark.parametrize("scale", [0.0, np.nan, np.inf])
def test_unusable_scale(scale: float, tmp_path: Path) -> None:
    codes = RNG.integers(-100, 100, size=(16, 8)).astype(np.int8)
    report = _report(tmp_path, mlp(WEIGHT), mlp_qdq(codes, np.float32(scale)))
    assert _codes(report)["SCALE_VALUE"] == "error"


@pytest.mark.parametrize("scale", [-0.01, 1e-42])
def test_strange_scale_is_said(scale: float, tmp_path: Path) -> None:
    codes = RNG.integers(-100, 100, size=(16, 8)).astype(np.int8)
    assert _codes(_report(tmp_path, mlp(WEIGHT), mlp_qdq(codes, np.float32(scale))))["SCALE_VALUE"] == "info"


@pytest.mark.parametrize(
    ("scale", "zero_point", "attributes"),
    [
        (np.ones(5, np.float32), None, {"axis": 1}),
        (np.ones(8, np.float32), np.zeros(7, np.int8), {"axis": 1}),
        (np.ones((2, 8), np.float32), None, {"axis": 0, "block_size": 3}),
        (np.ones((0,), np.float32), None, {}),
        (np.ones((3, 3, 3), np.float32), None, {"axis": 1}),
    ],
)
def test_scale_that_does_not_fit(
    scale: np.ndarray, zero_point: np.ndarray | None, attributes: dict, tmp_path: Path
) -> None:
    codes = RNG.integers(-100, 100, size=(16, 8)).astype(np.int8)
    report = _report(tmp_path, mlp(WEIGHT), mlp_qdq(codes, scale, zero_point, **attributes))
    assert _codes(report)["SCALE_SHAPE"] == "error"


def test_block_that_does_not_divide_the_axis_is_ragged(tmp_path: Path) -> None:
    scale = np.full((4, 8), 0.02, np.float32)
    codes = np.clip(np.rint(WEIGHT / 0.02), -127, 127).astype(np.int8)
    report = _report(tmp_path, mlp(WEIGHT), mlp_qdq(codes, scale, axis=0, block_size=5))
    (row,) = report["weights"]
    assert row["block_size"] == 5 and row["metrics"]["sqnr_db"] > 30


def test_same_model_twice(tmp_path: Path) -> None:
    report = _report(tmp_path, mlp(WEIGHT, np.ones(8, np.float32)), mlp(WEIGHT, np.ones(8, np.float32)))
    assert {g["kind"] for g in report["alignment"]} == {"1:1"}
    assert {w["metrics"]["sqnr_db"] for w in report["weights"]} == {"inf"}
    assert {w["metrics"]["max_abs_error"] for w in report["weights"]} == {0}
    assert "same" in report["findings"][0]["what"]


def test_swapped_files_are_said(tmp_path: Path) -> None:
    report = _report(tmp_path, quantized_mlp(WEIGHT), mlp(WEIGHT))
    assert "swapped" in next(f["what"] for f in report["findings"] if f["code"] == "NOT_QUANTIZED")


def test_unrelated_models_are_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    kernel = tensor("k", rng.normal(size=(5, 3, 3, 3)).astype(np.float32))
    other = model(
        [helper.make_node("Conv", ["img", "k"], ["c"], name="conv"), helper.make_node("Sigmoid", ["c"], ["y"])],
        [kernel],
        inputs=[("img", (1, 3, 8, 8))],
    )
    report = _report(tmp_path, mlp(WEIGHT), other)
    assert report["weights"] == [] or all("sqnr_db" not in w["metrics"] for w in report["weights"])
    assert "unrelated" in report["summary"]["verdict"] or "share" in report["summary"]["verdict"]


def test_names_in_any_script_and_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = mlp(WEIGHT)
    quant = quantized_mlp(WEIGHT)
    for m in (proto, quant):
        for node in m.graph.node:
            if node.name == "fc":
                node.name = "слой/層/λ\x1b[31mred\u202e\n"
    report = _report(tmp_path, proto, quant)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\u202e" not in shown and "слой/層/λ" in shown and "\\u202e" in shown
    assert "слой/層/λ\x1b[31mred\u202e\n" in {n["name"] for n in report["nodes"]["quant"]}


def test_unknown_domain_is_an_opaque_node(tmp_path: Path) -> None:
    def with_foreign(proto: onnx.ModelProto) -> onnx.ModelProto:
        proto.graph.node[-1].output[0] = "z"
        proto.graph.node.append(helper.make_node("Magic", ["z"], ["y"], name="magic", domain="org.unknown"))
        proto.opset_import.append(helper.make_opsetid("org.unknown", 3))
        return proto

    report = _report(tmp_path, with_foreign(mlp(WEIGHT)), with_foreign(quantized_mlp(WEIGHT)))
    assert "UNKNOWN_OPERATOR" in _codes(report)
    assert report["weights"][0]["metrics"]["sqnr_db"] > 40


def test_unknown_opset_is_read_all_the_same(tmp_path: Path) -> None:
    quant = quantized_mlp(WEIGHT)
    quant.opset_import[0].version = 999
    report = _report(tmp_path, mlp(WEIGHT), quant)
    assert report["models"]["quant"]["opset"] == {"": 999}
    assert report["weights"][0]["metrics"]["sqnr_db"] > 40


def test_tensors_without_elements(tmp_path: Path) -> None:
    empty = np.zeros((0, 8), np.float32)
    quant = mlp_qdq(np.zeros((0, 8), np.int8), np.float32(0.1))
    report = _report(tmp_path, mlp(empty), quant)
    assert "sqnr_db" not in report["weights"][0]["metrics"]


def test_ten_thousand_initializers(tmp_path: Path) -> None:
    def chain(name: str) -> onnx.ModelProto:
        inits = [tensor(f"c{k}", np.float32(k)) for k in range(10_000)]
        nodes = [helper.make_node("Add", [f"v{k}", f"c{k}"], [f"v{k + 1}"], name=f"{name}{k}") for k in range(10_000)]
        return model(nodes, inits, inputs=[("v0", (1,))], outputs=["v10000"])

    report = _report(tmp_path, chain("add"), chain("add"))
    assert len(report["alignment"]) == 10_000


def test_cycle_and_undefined_input_are_no_crash(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["b", "x"], ["a"], name="one"),
        helper.make_node("Relu", ["a"], ["b"], name="two"),
        helper.make_node("Add", ["a", "nowhere"], ["y"], name="three"),
    ]
    report = _report(tmp_path, model(nodes), model(nodes))
    assert any("nowhere" in note for note in report["models"]["quant"]["notes"])


def test_endless_functions_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = [helper.make_node("Again", ["a"], ["b"], domain="f")]
    function = helper.make_function("f", "Again", ["a"], ["b"], body, [helper.make_opsetid("f", 1)])
    proto = model([helper.make_node("Again", ["x"], ["y"], domain="f")], functions=[function], extra_opsets=[("f", 1)])
    path = save(proto, tmp_path / "f.onnx")
    assert run(["compare", str(path), str(path)]) == 2
    assert "nests" in capsys.readouterr().err


def test_inline_tensor_that_is_too_short(sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = mlp(WEIGHT)
    proto.graph.initializer[0].raw_data = b"abc"
    bad = save(proto, tmp_path / "bad.onnx")
    assert run(["compare", str(sound), str(bad)]) == 2
    assert "'w'" in capsys.readouterr().err


def test_element_type_that_onnx_does_not_define(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proto = mlp(WEIGHT)
    proto.graph.initializer[0].data_type = 99
    bad = save(proto, tmp_path / "bad.onnx")
    assert run(["compare", str(sound), str(bad)]) == 2
    assert "99" in capsys.readouterr().err
