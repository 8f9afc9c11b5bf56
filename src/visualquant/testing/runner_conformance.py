"""What every runner has to pass: on this host, in process, over TCP, over TLS, on another processor.

    class TestMyRunner(RunnerConformance):
        @pytest.fixture
        def make(self):
            return lambda path, options: MyRunner(path, options)

No figure of a processor is asserted: runners are compared with themselves, taps with runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from visualquant.core.taps import RunOptions
from visualquant.runtime.runner import Runner, same_bits
from visualquant.runtime.sessions import FailedRunError, RefusedError
from visualquant.testing.models import model, node, tensor, value

Array = npt.NDArray[Any]
Make = Callable[[Path, RunOptions], Runner]
PLAIN = RunOptions(threads=1)
_RNG = np.random.default_rng(5)


def saved(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int | str],
    outputs: Sequence[str],
    weights: Mapping[str, Any] | None = None,
) -> Path:
    """A small model with the float input "x" as a file."""
    constants = [tensor(n, np.asarray(a)) for n, a in (weights or {}).items()]
    results = [onnx.ValueInfoProto(name=n) for n in outputs]
    path = folder / "model.onnx"
    path.write_bytes(model(nodes, constants, [value("x", shape=shape)], results).SerializeToString())
    return path


def conv_net(folder: Path) -> Path:
    """Conv, Relu, a residual, quantized weights, two outputs, a symbolic batch."""
    weight = _RNG.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8)
    nodes = [
        node("DequantizeLinear", ["w", "ws"], ["wf"], name="dq"),
        node("Conv", ["x", "wf"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        node("QuantizeLinear", ["c", "cs", "cz"], ["cq"], name="q"),
        node("DequantizeLinear", ["cq", "cs", "cz"], ["cd"], name="dq2"),
        node("Relu", ["cd"], ["r"], name="relu"),
        node("Add", ["r", "c"], ["s"], name="add"),
        node("GlobalAveragePool", ["s"], ["p"], name="pool"),
        node("ArgMax", ["p"], ["top"], name="top", axis=1),
    ]
    weights = {"w": weight, "ws": np.array(0.01, np.float32), "cs": np.float32(0.05), "cz": np.uint8(128)}
    return saved(folder, nodes, ["N", 3, 24, 24], ["p", "top"], weights)


def images(count: int) -> dict[str, Array]:
    """Feeds of `conv_net`."""
    return {"x": np.random.default_rng(count).normal(size=(count, 3, 24, 24)).astype(np.float32)}


def taps_of(runner: Runner) -> list[str]:
    """Every value of the graph that runs."""
    return [out for n in runner.optimised().graph.node for out in n.output if out]


class RunnerConformance:
    """The suite for one kind of runner; `make` is a fixture that gives a factory.

    Attributes:
        pieces_bytes, pieces_batch: a bound of memory, and images whose taps do not fit a quarter of it.
    """

    pieces_bytes: ClassVar[int] = 40 << 20
    pieces_batch: ClassVar[int] = 120

    def test_describes_inputs_and_outputs(self, make: Make, tmp_path: Path) -> None:
        """Names, types, symbols."""
        with make(conv_net(tmp_path), PLAIN) as runner:
            info = runner.inputs["x"]
            assert (info.type, list(info.shape)) == ("tensor(float)", ["N", 3, 24, 24])
            assert runner.input_dtype("x") == np.float32
            assert runner.outputs == ("p", "top")
            assert runner.level == "all" and runner.notes == []

    def test_runs_are_the_same_twice(self, make: Make, tmp_path: Path) -> None:
        """Types and shapes are those of the graph, and a second run gives the same bits."""
        with make(conv_net(tmp_path), PLAIN) as runner:
            first, second = runner.run(images(3)), runner.run(images(3))
            assert first["p"].shape == (3, 8, 1, 1) and first["p"].dtype == np.float32
            assert first["top"].dtype == np.int64
            assert all(same_bits(first[n], second[n]) for n in first)

    def test_every_tap_comes_once_and_changes_nothing(self, make: Make, tmp_path: Path) -> None:
        """Each value of the optimised graph, then the end with the outputs."""
        with make(conv_net(tmp_path), PLAIN) as runner:
            taps = taps_of(runner)
            events = list(runner.tap([((0, 1), images(2))], taps))
            assert sorted(e.value for e in events) == sorted([*taps, ""]) and events[-1].value == ""
            assert list(events[-1].outputs) == ["p", "top"]
            assert runner.taps_are_neutral(images(2), taps)
            assert all(e.array.shape[0] == 2 for e in events[:-1] if e.array.ndim == 4 and e.value != "wf")

    def test_pieces_give_the_same_bits(self, make: Make, tmp_path: Path) -> None:
        """Bounded memory cuts the graph; nothing else changes."""
        path = conv_net(tmp_path)
        with make(path, PLAIN) as whole, make(path, RunOptions(threads=1, memory_bytes=self.pieces_bytes)) as cut:
            count = self.pieces_batch
            feeds = images(count)
            taps = taps_of(whole)
            assert taps == taps_of(cut)
            want = {e.value: e for e in whole.tap([(range(count), feeds)], taps)}
            whole.close()
            got = {e.value: e for e in cut.tap([(range(count), feeds)], taps)}
            assert got.keys() == want.keys()
            assert all(same_bits(got[n].array, want[n].array) for n in taps)
            assert all(same_bits(got[""].outputs[n], want[""].outputs[n]) for n in whole.outputs)

    def test_batches_are_numbered_and_of_any_size(self, make: Make, tmp_path: Path) -> None:
        """Several batches in one call, and several calls."""
        with make(conv_net(tmp_path), PLAIN) as runner:
            tap = "c" if "c" in taps_of(runner) else taps_of(runner)[0]
            for _ in range(2):
                batches = [(range(k, k + n), images(n)) for k, n in ((0, 1), (1, 4), (5, 2))]
                events = list(runner.tap(batches, [tap]))
                assert [(e.batch, e.value) for e in events] == [(k, v) for k in range(3) for v in (tap, "")]
                assert [e.outputs["p"].shape[0] for e in events[1::2]] == [1, 4, 2]

    def test_a_consumer_that_stops_early(self, make: Make, tmp_path: Path) -> None:
        """What is left of a batch never reaches the next one."""
        with make(conv_net(tmp_path), PLAIN) as runner:
            taps = taps_of(runner)
            events = runner.tap([((0,), images(1))], taps)
            next(iter(events))
            events.close()  # type: ignore[attr-defined]
            assert sum(1 for _ in runner.tap([((0,), images(1))], taps)) == len(taps) + 1

    def test_types_and_shapes_survive(self, make: Make, tmp_path: Path) -> None:
        """Booleans, 64-bit and half numbers, scalars, empty tensors, NaN and infinities, names of any script."""
        nodes = [
            node("Cast", ["x"], ["half"], name="h", to=TensorProto.FLOAT16),
            node("Greater", ["x", "zero"], ["größer/層"], name="b"),
            node("Shape", ["x"], ["shape"], name="s"),
            node("ReduceSum", ["x"], ["scalar"], name="r", keepdims=0),
            node("Slice", ["x", "start", "start"], ["empty"], name="e"),
        ]
        weights = {"zero": np.float32(0), "start": np.array([0])}
        names = ["half", "größer/層", "shape", "scalar", "empty"]
        path = saved(tmp_path, nodes, ["N", 3], names, weights)
        with make(path, RunOptions(threads=1, level="none")) as runner:
            x = np.array([[np.nan, np.inf, -0.0], [1, 2, 3]], np.float32)
            found = runner.run({"x": x})
            assert found["half"].dtype == np.float16 and np.isnan(found["half"][0, 0])
            assert found["größer/層"].tolist() == [[False, True, False], [True, True, True]]
            assert found["shape"].tolist() == [2, 3] and found["scalar"].shape == ()
            assert found["empty"].shape == (0, 3)
            assert runner.taps_are_neutral({"x": x}, taps_of(runner))

    def test_outputs_that_are_inputs_or_constants(self, make: Make, tmp_path: Path) -> None:
        """Such outputs come out of no segment."""
        nodes = [node("Relu", ["x"], ["y"], name="act")]
        path = saved(tmp_path, nodes, [1, 4], ["y", "c", "x"], {"c": np.array([1, 2], np.float32)})
        with make(path, PLAIN) as runner:
            feeds = {"x": np.array([[1, -2, 3, -4]], np.float32)}
            (end,) = [e for e in runner.tap([((0,), feeds)], ["y"]) if not e.value]
            assert list(end.outputs) == ["y", "c", "x"]
            assert end.outputs["c"].tolist() == [1, 2] and end.outputs["x"].tolist() == feeds["x"].tolist()

    def test_refused_at_every_level(self, make: Make, tmp_path: Path) -> None:
        """An operator that nobody has."""
        nodes = [node("NoSuchOperator", ["x"], ["y"], name="magic")]
        path = saved(tmp_path, nodes, [1, 4], ["y"])
        try:
            make(path, PLAIN).close()
        except RefusedError as error:
            assert "NoSuchOperator" in str(error)
        else:
            raise AssertionError("it was not refused")

    def test_a_run_that_fails_names_the_file_and_the_next_one_works(self, make: Make, tmp_path: Path) -> None:
        """The error of the runtime, not a hang; the runner stays usable."""
        nodes = [node("Reshape", ["x", "s"], ["y"], name="r")]
        path = saved(tmp_path, nodes, ["N", 3], ["y"], {"s": np.array([3, 3])})
        with make(path, PLAIN) as runner:
            for call in (runner.run, lambda f: list(runner.tap([((0,), f)], ["y"]))):
                try:
                    call({"x": np.zeros((1, 3), np.float32)})
                except FailedRunError as error:
                    assert error.path == path and "model.onnx" in str(error)
                else:
                    raise AssertionError("it did not fail")
                assert runner.run({"x": np.ones((3, 3), np.float32)})["y"].shape == (3, 3)

    def test_node_times(self, make: Make, tmp_path: Path) -> None:
        """Every node that runs, with its operator and provider."""
        with make(conv_net(tmp_path), RunOptions(threads=1, level="none")) as runner:
            profile = runner.profile(images(1), warm_up=1, repeats=3)
            assert {"Conv", "Relu", "Add"} <= {n.op_type for n in profile.nodes}
            assert profile.repeats == 3 and profile.total_p50_us > 0
            assert all(n.provider == "CPUExecutionProvider" and n.p90_us >= n.p50_us for n in profile.nodes)
