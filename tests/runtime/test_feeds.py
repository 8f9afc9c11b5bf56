"""Which slice of which array goes into which input, and a sentence with exit code 2 where none fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.models import save
from visualquant.cli.main import run
from visualquant.core.taps import RunOptions
from visualquant.errors import InputError
from visualquant.runtime.feeds import Batch, Feeder, FeedOptions
from visualquant.runtime.local import LocalRunner
from visualquant.runtime.samples import SampleFile

Shape = Sequence[int | str]
RNG = np.random.default_rng(4)
FLOAT, HALF, UINT8, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.UINT8, TensorProto.INT64


def net(*inputs: tuple[str, Shape, int]) -> onnx.ModelProto:
    """An output for each input: the input as float, negated."""
    nodes, outputs = [], []
    for name, shape, _ in inputs:
        nodes.append(helper.make_node("Cast", [name], [f"{name}_f"], name=f"{name}_cast", to=FLOAT))
        nodes.append(helper.make_node("Neg", [f"{name}_f"], [f"{name}_out"], name=f"{name}_neg"))
        outputs.append(helper.make_tensor_value_info(f"{name}_out", FLOAT, list(shape)))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, t, list(s)) for n, s, t in inputs], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def feed(tmp_path: Path) -> Callable[..., tuple[list[Batch], list[str]]]:
    def bind(
        float_model: onnx.ModelProto, arrays: dict[str, Any], quant_model: onnx.ModelProto | None = None, **options: Any
    ) -> tuple[list[Batch], list[str]]:
        paths = save(float_model, tmp_path / "f.onnx"), save(quant_model or float_model, tmp_path / "q.onnx")
        with LocalRunner(paths[0], RunOptions()) as ours, LocalRunner(paths[1], RunOptions()) as theirs:
            feeder = Feeder(SampleFile("d.npz", arrays), ours, theirs, FeedOptions(**options))
            batches = list(feeder.batches())
            for batch in batches:  # the runtime takes what is fed
                ours.run(batch.float_feeds)
                theirs.run(batch.quant_feeds)
            assert [k for b in batches for k in b.samples] == list(range(feeder.count))
            return batches, feeder.notes

    return bind


def joined(batches: list[Batch], name: str, side: str = "float", axis: int = 0) -> np.ndarray:
    feeds = [b.float_feeds if side == "float" else b.quant_feeds for b in batches]
    return np.concatenate([f[name] for f in feeds], axis=axis)


def test_symbolic_batch_axis(feed: Any) -> None:
    x = RNG.normal(size=(37, 3, 2)).astype(np.float32)
    batches, notes = feed(net(("x", ["N", 3, 2], FLOAT)), {"val_x": x})
    assert [len(b.samples) for b in batches] == [16, 16, 5] and notes == []
    np.testing.assert_array_equal(joined(batches, "x"), x)
    np.testing.assert_array_equal(joined(batches, "x", "quant"), x)


def test_symbolic_axis_that_is_not_the_first(feed: Any) -> None:
    state = RNG.normal(size=(2, 20, 4)).astype(np.float32)
    x = RNG.normal(size=(20, 3)).astype(np.float32)
    batches, _ = feed(net(("x", ["N", 3], FLOAT), ("s", [2, "N", 4], FLOAT)), {"x": x, "s": state})
    assert [b.float_feeds["s"].shape[1] for b in batches] == [16, 4]
    np.testing.assert_array_equal(joined(batches, "s", axis=1), state)
    np.testing.assert_array_equal(joined(batches, "x"), x)


def test_fixed_batch_of_one(feed: Any) -> None:
    x = RNG.normal(size=(5, 3)).astype(np.float32)
    batches, _ = feed(net(("x", [1, 3], FLOAT)), {"x": x})
    assert [b.float_feeds["x"].shape for b in batches] == [(1, 3)] * 5
    np.testing.assert_array_equal(joined(batches, "x"), x)


def test_fixed_batch_of_one_in_the_quantized_model_only(feed: Any) -> None:
    x = RNG.normal(size=(5, 3)).astype(np.float32)
    batches, _ = feed(net(("x", ["N", 3], FLOAT)), {"x": x}, net(("x", [1, 3], FLOAT)))
    assert [b.quant_feeds["x"].shape for b in batches] == [(1, 3)] * 5


def test_fixed_batch_of_several(feed: Any) -> None:
    x = RNG.normal(size=(8, 3)).astype(np.float32)
    batches, _ = feed(net(("x", [4, 3], FLOAT)), {"x": x})
    assert [b.float_feeds["x"].shape for b in batches] == [(4, 3)] * 2
    np.testing.assert_array_equal(joined(batches, "x"), x)


def test_samples_that_do_not_fill_a_fixed_batch_are_left_out_and_that_is_said(feed: Any) -> None:
    x = RNG.normal(size=(10, 3)).astype(np.float32)
    batches, notes = feed(net(("x", [4, 3], FLOAT)), {"x": x})
    assert [len(b.samples) for b in batches] == [4, 4] and "2 samples" in notes[0] and "4" in notes[0]


def test_one_axis_more_than_the_input(feed: Any) -> None:
    x = RNG.normal(size=(5, 7, 3)).astype(np.float32)
    batches, _ = feed(net(("x", ["length", 3], FLOAT)), {"x": x})
    assert len(batches) == 5
    for k, batch in enumerate(batches):
        np.testing.assert_array_equal(batch.float_feeds["x"], x[k])


def test_sample_axis_option(feed: Any) -> None:
    x = RNG.normal(size=(3, 6)).astype(np.float32)
    batches, _ = feed(net(("x", ["a", "b"], FLOAT)), {"x": x}, sample_axis={"x": 1})
    np.testing.assert_array_equal(joined(batches, "x", axis=1), x)
    assert sum(len(b.samples) for b in batches) == 6
    stacked = RNG.normal(size=(7, 5, 3)).astype(np.float32)
    for axis in (1, -2):
        batches, _ = feed(net(("x", ["length", 3], FLOAT)), {"x": stacked}, sample_axis={"x": axis})
        assert len(batches) == 5
        np.testing.assert_array_equal(batches[2].float_feeds["x"], stacked[:, 2])


def test_sample_axis_of_a_fixed_state(feed: Any) -> None:
    x, state = (RNG.normal(size=s).astype(np.float32) for s in ((5, 3), (2, 5, 4)))
    model = net(("x", [1, 3], FLOAT), ("state", [2, 1, 4], FLOAT))
    batches, _ = feed(model, {"x": x, "state": state}, sample_axis={"state": 1})
    assert [b.float_feeds["state"].shape for b in batches] == [(2, 1, 4)] * 5
    np.testing.assert_array_equal(joined(batches, "state", axis=1), state)


def test_a_scalar_may_be_a_vector_of_one_in_the_other_model(feed: Any) -> None:
    ours, theirs = net(("x", ["N", 3], FLOAT), ("k", [], INT64)), net(("x", ["N", 3], FLOAT), ("k", [1], INT64))
    batches, _ = feed(ours, {"x": np.zeros((1, 3), np.float32)}, theirs, constants={"k": "5"})
    assert batches[0].float_feeds["k"].shape == () and batches[0].quant_feeds["k"].tolist() == [5]


def test_limit_and_batch(feed: Any) -> None:
    x = RNG.normal(size=(9, 3)).astype(np.float32)
    batches, _ = feed(net(("x", ["N", 3], FLOAT)), {"x": x}, limit=7, batch=3)
    assert [len(b.samples) for b in batches] == [3, 3, 1]
    batches, _ = feed(net(("x", ["N", 3], FLOAT)), {"x": x}, limit=700)
    assert sum(len(b.samples) for b in batches) == 9


def test_constants(feed: Any) -> None:
    x = RNG.normal(size=(4, 3)).astype(np.float32)
    model = net(("x", ["N", 3], FLOAT), ("sr", [], INT64), ("pair", [2], FLOAT))
    batches, _ = feed(model, {"": x}, constants={"sr": "16000", "pair": "0.5,-1"})
    (batch,) = batches
    assert batch.float_feeds["sr"].dtype == np.int64 and batch.float_feeds["sr"].shape == ()
    assert int(batch.quant_feeds["sr"]) == 16000 and batch.float_feeds["pair"].tolist() == [0.5, -1]
    np.testing.assert_array_equal(batch.float_feeds["x"], x)


def test_large_whole_constants_are_exact(feed: Any) -> None:
    model = net(("x", ["N", 3], FLOAT), ("k", [], INT64))
    batches, _ = feed(model, {"x": np.zeros((1, 3), np.float32)}, constants={"k": str(2**60 + 1)})
    assert int(batches[0].float_feeds["k"]) == 2**60 + 1


def test_a_constant_follows_the_batch(feed: Any) -> None:
    """A constant for an input with a symbolic batch axis is given for every sample of the batch."""
    x = RNG.normal(size=(5, 3)).astype(np.float32)
    model = net(("x", ["N", 3], FLOAT), ("scale", ["N", 1], FLOAT))
    batches, _ = feed(model, {"x": x}, constants={"scale": "2"}, batch=4)
    assert [b.float_feeds["scale"].shape for b in batches] == [(4, 1), (1, 1)]
    assert all((b.float_feeds["scale"] == 2).all() for b in batches)


def test_names_differ_by_position_and_by_option(feed: Any) -> None:
    a, b = (RNG.normal(size=(3, 2)).astype(np.float32) for _ in range(2))
    ours, theirs = (
        net(("a", ["N", 2], FLOAT), ("b", ["N", 2], FLOAT)),
        net(("p", ["N", 2], FLOAT), ("q", ["N", 2], FLOAT)),
    )
    batches, notes = feed(ours, {"a": a, "b": b}, theirs)
    np.testing.assert_array_equal(joined(batches, "q", "quant"), b)
    assert len(notes) == 2 and "by position" in notes[0]
    batches, notes = feed(ours, {"a": a, "b": b}, theirs, map_input={"a": "q", "b": "p"})
    np.testing.assert_array_equal(joined(batches, "q", "quant"), a)
    assert notes == []


def test_same_names_in_another_order(feed: Any) -> None:
    a, b = (RNG.normal(size=(3, 2)).astype(np.float32) for _ in range(2))
    ours, theirs = (net(*[(n, ["N", 2], FLOAT) for n in names]) for names in ("ab", "ba"))
    batches, notes = feed(ours, {"a": a, "b": b}, theirs)
    np.testing.assert_array_equal(joined(batches, "a", "quant"), a)
    assert notes == []


def test_layout_and_type_differ(feed: Any) -> None:
    x = RNG.integers(0, 256, size=(3, 2, 5, 4)).astype(np.float32)
    for batch_axis in ("N", 1):
        ours, theirs = net(("x", [batch_axis, 2, 5, 4], FLOAT)), net(("x", [batch_axis, 5, 4, 2], UINT8))
        batches, notes = feed(ours, {"x": x}, theirs)
        got = joined(batches, "x", "quant")
        assert got.dtype == np.uint8
        np.testing.assert_array_equal(got, x.transpose(0, 2, 3, 1).astype(np.uint8))
        assert any("transposed [0, 2, 3, 1]" in n for n in notes) and any("cast to uint8" in n for n in notes)


def test_pictures_of_equal_sides_go_from_nchw_to_nhwc_and_back(feed: Any) -> None:
    """Several orders fit 3×8×8: height must not become width."""
    x = RNG.normal(size=(2, 3, 8, 8)).astype(np.float32)
    batches, _ = feed(net(("x", ["N", 3, 8, 8], FLOAT)), {"x": x}, net(("x", ["N", 8, 8, 3], FLOAT)))
    np.testing.assert_array_equal(joined(batches, "x", "quant"), x.transpose(0, 2, 3, 1))
    y = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    batches, _ = feed(net(("x", ["N", 8, 8, 3], FLOAT)), {"x": y}, net(("x", ["N", 3, 8, 8], FLOAT)))
    np.testing.assert_array_equal(joined(batches, "x", "quant"), x)


def test_half_precision_input(feed: Any) -> None:
    x = np.float32([[0.1, 1e6, -3]])
    batches, notes = feed(net(("x", ["N", 3], FLOAT)), {"x": x}, net(("x", ["N", 3], HALF)))
    assert batches[0].quant_feeds["x"].dtype == np.float16 and np.isinf(batches[0].quant_feeds["x"][0, 1])
    assert "float16" in notes[0]


def test_types_of_the_file_are_cast_to_the_float_input(feed: Any) -> None:
    x = RNG.normal(size=(3, 2))
    batches, _ = feed(net(("x", ["N", 2], FLOAT)), {"x": x})
    assert batches[0].float_feeds["x"].dtype == np.float32


def test_fractions_are_not_cut_off_silently(feed: Any) -> None:
    """A uint8 input fed with pixels in [0, 1] would see only zeros."""
    x = RNG.uniform(size=(3, 2)).astype(np.float32)
    with pytest.raises(InputError, match="whole numbers"):
        feed(net(("x", ["N", 2], FLOAT)), {"x": x}, net(("x", ["N", 2], UINT8)))
    with pytest.raises(InputError, match="whole numbers"):
        feed(net(("ids", ["N", 2], INT64)), {"ids": x})
    with pytest.raises(InputError, match="takes whole numbers from 0 to 255; the samples reach from -2 to 300"):
        feed(net(("x", ["N", 2], FLOAT)), {"x": np.float32([[300, -2]])}, net(("x", ["N", 2], UINT8)))


IMAGE = net(("image", ["N", 3, 4, 4], FLOAT))
TWO = net(("a", ["N", 2], FLOAT), ("b", ["N", 2], FLOAT))
X2, X3 = np.zeros((2, 2), np.float32), np.zeros((3, 2), np.float32)
IDS = net(("a", ["N", 2], FLOAT), ("k", [], INT64))
PICTURE = np.zeros((2, 3, 4, 4), np.float32)
BAD: dict[str, tuple[onnx.ModelProto, onnx.ModelProto | None, dict[str, Any], list[str], str]] = {
    "no key": (IMAGE, None, {"other": X2}, [], "no samples for input 'image'"),
    "only calibration": (IMAGE, None, {"calib_image": PICTURE}, [], "calib_image"),
    "one of two keys": (TWO, None, {"a": X2}, [], "'b'"),
    "no arrays": (IMAGE, None, {}, [], "sample"),
    "rank": (IMAGE, None, {"image": X2}, [], "do not fit"),
    "size": (IMAGE, None, {"image": np.zeros((2, 3, 4, 5), np.float32)}, [], "5 elements instead of 4"),
    "layout of the float model": (IMAGE, None, {"image": np.zeros((2, 4, 4, 3), np.float32)}, [], "elements instead"),
    "layout of the other model": (
        IMAGE,
        net(("image", ["N", 5, 4, 3], FLOAT)),
        {"image": PICTURE},
        [],
        "do not fit it in any layout",
    ),
    "rank of the other model": (IMAGE, net(("image", ["N", 48], FLOAT)), {"image": PICTURE}, [], "do not fit it"),
    "no samples": (IMAGE, None, {"image": PICTURE[:0]}, [], "no samples"),
    "different counts": (TWO, None, {"a": X2, "b": X3}, [], "different numbers of samples"),
    "texts": (IMAGE, None, {"image": np.array(["a", "b"])}, [], "numbers are needed"),
    "complex": (IMAGE, None, {"image": PICTURE.astype(np.complex64)}, [], "numbers are needed"),
    "scalar": (IMAGE, None, {"image": np.float32(1)}, [], "do not fit"),
    "axis that is not there": (IMAGE, None, {"image": PICTURE}, ["--sample-axis", "image=7"], "--sample-axis"),
    "axis that is no number": (IMAGE, None, {"image": PICTURE}, ["--sample-axis", "image=x"], "--sample-axis"),
    "axis of an unknown input": (IMAGE, None, {"image": PICTURE}, ["--sample-axis", "picture=0"], "'picture'"),
    "constant that is no number": (TWO, None, {"a": X2}, ["--set", "b=x"], "--set b=x"),
    "constant that does not fill": (TWO, None, {"a": X2}, ["--set", "b=1,2,3"], "--set b=1,2,3"),
    "constant of an unknown input": (TWO, None, {"a": X2, "b": X2}, ["--set", "c=1"], "'c'"),
    "constant with a fraction": (IDS, None, {"a": X2}, ["--set", "k=1.5"], "int64"),
    "constant too large": (IDS, None, {"a": X2}, ["--set", f"k={2**70}"], "int64"),
    "constant that is no finite number": (IDS, None, {"a": X2}, ["--set", "k=inf"], "int64"),
    "fewer samples than the batch": (net(("x", [4, 2], FLOAT)), None, {"x": X2}, [], "has only 2"),
    "two batch sizes": (
        net(("x", [2, 3], FLOAT), ("y", [4, 3], FLOAT)),
        None,
        {"x": np.zeros((8, 3)), "y": np.zeros((8, 3))},
        [],
        "--sample-axis",
    ),
    "constant without value": (TWO, None, {"a": X2, "b": X2}, ["--set", "c"], "--set wants NAME=VALUE"),
    "map of an unknown input": (TWO, None, {"a": X2, "b": X2}, ["--map-input", "c=a"], "'c'"),
    "map to an unknown input": (TWO, None, {"a": X2, "b": X2}, ["--map-input", "a=c"], "'c'"),
    "only constants": (TWO, None, {"z": X2}, ["--set", "a=1", "--set", "b=1"], "no samples"),
    "more inputs in the other model": (IMAGE, TWO, {"image": PICTURE}, [], "--map-input"),
    "memory": (IMAGE, None, {"image": PICTURE}, ["--memory", "lots"], "no size"),
    "mean": (IMAGE, None, {"image": PICTURE}, ["--mean", "a"], "--mean"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs, arrays, options, words = BAD[name]
    paths = save(ours, tmp_path / "f.onnx"), save(theirs or ours, tmp_path / "q.onnx")
    np.savez(tmp_path / "d.npz", **arrays)
    assert run(["compare", *map(str, paths), "--data", str(tmp_path / "d.npz"), *options]) == 2
    message = capsys.readouterr().err
    assert words in message and "Traceback" not in message and "fault of visualquant" not in message


def test_string_inputs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"], name="same")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.STRING, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, ["N"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = str(save(model, tmp_path / "f.onnx"))
    np.savez(tmp_path / "d.npz", x=np.array(["a", "b"]))
    for data in (str(tmp_path / "d.npz"), "random"):
        assert run(["compare", path, path, "--data", data]) == 2
        message = capsys.readouterr().err
        assert "tensor(string)" in message and "'x'" in message and "Traceback" not in message


@pytest.mark.parametrize(
    "options", [["--calib", "c.npz"], ["--samples", "3"], ["--set", "a=1"], ["--memory", "1GB"], ["--mean", "0.5"]]
)
def test_options_that_need_data(options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(save(TWO, tmp_path / "f.onnx"))
    assert run(["compare", path, path, *options]) == 2
    assert f"{options[0]} needs --data" in capsys.readouterr().err


def test_a_missing_sample_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(save(TWO, tmp_path / "f.onnx"))
    assert run(["compare", path, path, "--data", str(tmp_path / "nowhere.npz")]) == 2
    assert "nowhere.npz" in capsys.readouterr().err
