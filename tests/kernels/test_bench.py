"""The benchmarks measure what they say: rivals give our figures, generated models are what they should be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from visualquant.core.quant import QuantParams
from visualquant.core.tensors import ELEMENT_TYPES, FileSource, TensorRef
from visualquant.kernels import MeasureOptions, measure
from visualquant.testing.bench import rivals
from visualquant.testing.bench.large import make_large, size_of
from visualquant.testing.bench.report import line
from visualquant.testing.bench.rounds import Timing, alternate, ratio
from visualquant.testing.bench.tables import Row, Sample


def test_rivals_give_the_same_figures() -> None:
    sample = Sample.make(64, 2080)
    options = MeasureOptions(channel_axis=0, outliers=False, code_counts=False)
    stats = measure(sample.x, sample.codes, sample.int8, options)
    assert stats.channel_x is not None and stats.channel_error is not None and stats.channel_x_hat is not None
    ours = (
        stats.channel_x.minimum, stats.channel_x.maximum, stats.channel_x.zeros, stats.channel_x.count,
        stats.channel_x.sum, stats.channel_x.sum_sq, stats.channel_x_hat.sum_sq, stats.channel_error.dot,
        stats.channel_error.sum, stats.channel_error.sum_abs, stats.channel_error.sum_sq, stats.channel_error.max_abs,
        stats.channel_error.clipped_low.count, stats.channel_error.clipped_high.count,
    )  # fmt: skip
    for mine, other in zip(ours, rivals.numpy_statistics(sample.x, sample.codes, sample.scale), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-3)
    reference = rivals.c_statistics(sample.x, sample.codes, sample.scale)
    if reference is not None:
        columns = reference().T
        for k, mine in enumerate((*ours[:3], ours[4], ours[5], *ours[8:12])):
            np.testing.assert_allclose(mine, columns[k], rtol=1e-4, atol=1e-3)


def test_rounds() -> None:
    calls: list[str] = []
    found = alternate({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "b"] * 4
    assert all(len(timing.seconds) == 3 for timing in found.values())
    assert ratio(Timing((1.0, 1.0, 2.0)), Timing((2.0, 2.0, 4.0))) == (2.0, 0.0)
    assert Timing((1.0, 2.0, 3.0, 4.0, 5.0)).median == 3.0


def test_lines() -> None:
    assert line(Row("what", "7 ms", "at most 5 ms", False)).endswith("NOT MET")
    assert line(Row("what", "7 ms", "at most 9 ms", True)).endswith("met")
    assert line(Row("what", "7 ms")).endswith("7 ms")


@pytest.mark.parametrize(("text", "size"), [("1GB", 10**9), ("2.5 mb", 2_500_000), ("77", 77), ("3kB", 3000)])
def test_sizes(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "nan", "1XB", "0"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError):
        size_of(text)


def test_generated_models(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    made = make_large(tmp_path / "models", 1_000_000, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (made.float_bytes, made.float_bytes)
    for path in (made.float_model, made.int8_model, made.int4_model):
        onnx.checker.check_model(str(path))

    def tensor(model: Path, name: str) -> TensorRef:
        (found,) = [t for t in onnx.load(str(model), load_external_data=False).graph.initializer if t.name == name]
        place = {entry.key: entry.value for entry in found.external_data}
        source = FileSource(model.parent / place["location"], int(place["offset"]), int(place["length"]))
        kind = onnx.TensorProto.DataType.Name(found.data_type).lower().replace("float", "float32")
        return TensorRef(ELEMENT_TYPES[kind], tuple(found.dims), source)

    name = "layers.0.up.weight"
    x = tensor(made.float_model, name)
    for model, axis, block, least in ((made.int8_model, 1, None, 20), (made.int4_model, 0, 32, 15)):
        codes, scale = tensor(model, f"{name}_q"), tensor(model, f"{name}_scale").array().astype(np.float64)
        params = QuantParams(codes.dtype, scale, None, axis, block)
        stats = measure(x, codes, params, MeasureOptions(channel_axis=1))
        assert stats.sqnr_db is not None and stats.sqnr_db > least
        assert stats.clipped_low == stats.clipped_high == 0


def test_command_says_what_is_wrong() -> None:
    from visualquant.cli.bench import command

    result = CliRunner().invoke(command, ["--size", "many"])
    assert result.exit_code != 0
    assert "--size" in CliRunner().invoke(command, ["--help"]).output
