"""The benchmarks measure what they say: rivals give our figures, and the table says what was measured."""

from __future__ import annotations

import numpy as np
from click.testing import CliRunner

from visualquant.kernels import MeasureOptions, measure
from visualquant.testing.bench import rivals
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


def test_command_says_what_is_wrong() -> None:
    from visualquant.cli.bench import command

    result = CliRunner().invoke(command, ["--size", "many"])
    assert result.exit_code != 0
    assert "--size" in CliRunner().invoke(command, ["--help"]).output
