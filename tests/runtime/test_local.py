"""Runs with taps: outputs to the last bit those without, in one piece and in many; refusals, failures, node times."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.conftest import corpus_folder
from tests.models import mlp, model, quantized_mlp, save, tensor
from visualquant.core.taps import RunOptions
from visualquant.errors import InputError
from visualquant.runtime.feeds import Feeder, FeedOptions
from visualquant.runtime.local import LocalRunner, parse_profile
from visualquant.runtime.samples import read_samples
from visualquant.runtime.segments import cut
from visualquant.runtime.sessions import FailedRunError, RefusedError, make_session

RNG = np.random.default_rng(8)
WEIGHT = RNG.normal(size=(16, 8)).astype(np.float32)
PLAIN = RunOptions(threads=1)
SMALL = RunOptions(threads=1, memory_bytes=4_000_000)
DATA = {
    "digits_resnet": "digits",
    "mnist_mbnet": "mnist",
    "mnist_vit": "mnist",
    "ppocr_cls": "ppocr_cls",
    "ppocr_v4_det": "ppocr_det",
    "llama_char": "llama",
    "llama_builder": "llama_builder",
    "silero_vad_16k": "silero",
}
CONSTANTS = {"silero_vad_16k": {"sr": "16000"}}


def _quantized() -> list[tuple[str, str]]:
    """Every ONNX file of the corpus, one of each kind: the first bytes of a name say how it was made."""
    folder = corpus_folder()
    if folder is None:
        return []
    return [(m, p.name) for m in DATA for p in sorted((folder / m).glob("*.onnx")) if p.name != "fp32.onnx"]


def _all_outputs(path: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All values of an optimised graph from one session."""
    proto = onnx.load(path)
    listed = {o.name for o in proto.graph.output}
    made = [out for n in proto.graph.node for out in n.output if out and out not in listed]
    proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in made)
    session = make_session(proto.SerializeToString(), PLAIN, level="none")
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def _float_taps(runner: LocalRunner) -> list[str]:
    return [out for n in runner.optimised().graph.node for out in n.output if out]


@pytest.mark.parametrize(("folder", "name"), _quantized(), ids=lambda x: str(x))
def test_taps_change_nothing(folder: str, name: str, corpus: Path) -> None:
    path = corpus / folder / name
    file = read_samples(corpus / "data" / f"{DATA[folder]}.npz")
    options = FeedOptions(constants=CONSTANTS.get(folder, {}), limit=2, batch=2)
    try:
        runner = LocalRunner(path, PLAIN)
    except RefusedError:
        return  # nothing to tap: the comparison says so (RUNTIME_REFUSES)
    with runner, LocalRunner(corpus / folder / "fp32.onnx", PLAIN) as reference:
        try:
            batch = next(Feeder(file, reference, runner, options).batches())
            plain = runner.run(batch.quant_feeds)
        except FailedRunError:
            return
        taps = _float_taps(runner)
        seen: dict[str, int] = {}
        for event in runner.tap([(batch.samples, batch.quant_feeds)], taps):
            if event.value:
                seen[event.value] = seen.get(event.value, 0) + 1
            else:
                assert set(event.outputs) == set(plain)
                for output, array in plain.items():
                    assert array.tobytes() == event.outputs[output].tobytes(), output
        assert seen == dict.fromkeys(taps, 1)
        assert runner.taps_are_neutral(batch.quant_feeds, taps)


PIECES = [
    ("digits_resnet", "fp32.onnx", 64),
    ("digits_resnet", "ort_qdq_s8s8_pc.onnx", 64),
    ("mnist_mbnet", "ort_qdq_u8u8_pt.onnx", 16),
    ("mnist_vit", "ort_qdq_s8s8_pc.onnx", 16),
    ("ppocr_v4_det", "ort_qdq_s8s8_pc.onnx", 1),
    ("llama_char", "ort_qdq_u8u8_pt.onnx", 16),
    ("silero_vad_16k", "ort_dyn_u8w.onnx", 16),
]


@pytest.mark.parametrize(("folder", "name", "count"), PIECES)
def test_pieces_give_what_one_session_gives(folder: str, name: str, count: int, corpus: Path) -> None:
    file = read_samples(corpus / "data" / f"{DATA[folder]}.npz")
    options = FeedOptions(constants=CONSTANTS.get(folder, {}), limit=count, batch=count)
    with LocalRunner(corpus / folder / name, SMALL) as runner:
        batch = next(Feeder(file, runner, runner, options).batches())
        taps = _float_taps(runner)
        want = _all_outputs(runner.optimised_path, batch.quant_feeds)
        got: dict[str, np.ndarray] = {}
        for event in runner.tap([(batch.samples, batch.quant_feeds)], taps):
            if event.value:
                assert event.value not in got
                got[event.value] = event.array
        pieces = len(runner._pieces(tuple(sorted(taps)), batch.quant_feeds))
        assert set(got) == set(taps)
        for value, array in got.items():
            assert array.dtype == want[value].dtype and array.tobytes() == want[value].tobytes(), value
        assert runner.taps_are_neutral(batch.quant_feeds, taps)
    if sum(a.nbytes for a in want.values()) > 2_000_000:
        assert pieces > 1


def test_pieces_of_one_node_each() -> None:
    """A residual, a value read far behind, an output in the middle, an initializer read by two pieces."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="a"),
        helper.make_node("Relu", ["a"], ["b"], name="b"),
        helper.make_node("MatMul", ["b", "w"], ["c"], name="c"),
        helper.make_node("Add", ["a", "c"], ["y"], name="y"),
        helper.make_node("Add", ["y", "x"], ["z"], name="z"),
    ]
    proto = model(nodes, [tensor("w", np.eye(4, dtype=np.float32))], outputs=["y", "z"])
    taps = {"a", "b", "c", "y", "z"}
    kinds = dict.fromkeys([*taps, "x"], "tensor(float)")
    segments = cut(proto, taps, dict.fromkeys(taps, 16), 16, kinds)
    assert [s.taps for s in segments] == [("a",), ("b",), ("c",), ("y",), ("z",)]
    assert segments[3].inputs == ("a", "c") and set(segments[3].drop) == {"a", "c"}
    assert [s.outputs for s in cut(proto, {"b"}, {}, None, {})] == [("b", "y", "z")]
    assert len(cut(proto, taps, dict.fromkeys(taps, 16), 32, kinds)) == 3


def _body(name: str, source: str, target: str, op: str) -> onnx.GraphProto:
    outs = [helper.make_tensor_value_info(target, onnx.TensorProto.FLOAT, None)]
    return helper.make_graph([helper.make_node(op, [source], [target], name=f"{name}_{op}")], name, [], outs)


def test_pieces_with_bodies_that_read_outside(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="first"),
        helper.make_node("ReduceMax", ["x"], ["m"], name="max", keepdims=0),
        helper.make_node("Greater", ["m", "zero"], ["test"], name="test"),
        helper.make_node(
            "If",
            ["test"],
            ["b"],
            name="if",
            then_branch=_body("then", "a", "t", "Relu"),
            else_branch=_body("else", "a", "e", "Abs"),
        ),
        helper.make_node("Add", ["b", "a"], ["y"], name="last"),
    ]
    proto = model(nodes, [tensor("zero", np.float32(0))], inputs=[("x", ["N", 200000])])
    options = dataclasses.replace(SMALL, level="none")
    with LocalRunner(save(proto, tmp_path / "m.onnx"), options) as runner:
        for sign in (1, -1):
            feeds = {"x": sign * np.abs(RNG.normal(size=(2, 200000))).astype(np.float32)}
            taps = _float_taps(runner)
            assert runner.taps_are_neutral(feeds, taps)
            got = {e.value: e.array for e in runner.tap([((0, 1), feeds)], taps) if e.value}
            np.testing.assert_array_equal(got["b"], np.maximum(-feeds["x"], 0) if sign > 0 else np.abs(feeds["x"]))
        assert len(runner._pieces(tuple(sorted(taps)), feeds)) > 1


def test_an_output_that_is_an_input_or_a_constant(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="act")]
    proto = model(nodes, [tensor("c", np.float32([1, 2]))], outputs=["y", "c", "x"])
    with LocalRunner(save(proto, tmp_path / "m.onnx"), PLAIN) as runner:
        feeds = {"x": np.float32([[1, -2, 3, -4]])}
        end = [e for e in runner.tap([((0,), feeds)], ["y"]) if not e.value]
        assert len(end) == 1 and list(end[0].outputs) == ["y", "c", "x"]
        assert end[0].outputs["c"].tolist() == [1, 2] and end[0].outputs["x"].tolist() == feeds["x"].tolist()
        assert runner.taps_are_neutral(feeds, ["y"])


def test_batches_are_numbered_and_ended(tmp_path: Path) -> None:
    with LocalRunner(save(mlp(WEIGHT), tmp_path / "m.onnx"), RunOptions(level="none")) as runner:
        batches = [((k,), {"x": RNG.normal(size=(1, 16)).astype(np.float32)}) for k in range(3)]
        events = list(runner.tap(batches, ["m"]))
        assert [(e.batch, tuple(e.samples), e.value) for e in events] == [
            (k, (k,), v) for k in range(3) for v in ("m", "")
        ]
        for (_, feeds), event in zip(batches, events[::2], strict=True):
            np.testing.assert_allclose(event.array, feeds["x"] @ WEIGHT, rtol=1e-5, atol=1e-5)


def test_no_taps(tmp_path: Path) -> None:
    with LocalRunner(save(quantized_mlp(WEIGHT), tmp_path / "m.onnx"), PLAIN) as runner:
        feeds = {"x": RNG.normal(size=(1, 16)).astype(np.float32)}
        (event,) = runner.tap([((0,), feeds)], [])
        assert event.value == "" and event.outputs["y"].tobytes() == runner.run(feeds)["y"].tobytes()


def test_refused_optimised_runs_unoptimised_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(mlp(WEIGHT), tmp_path / "m.onnx")

    def picky(source: Any, options: RunOptions, *, level: Any = None, **more: Any) -> Any:
        if (level or options.level) != "none":
            raise RefusedError("no kernel for what fusion made")
        return make_session(source, options, level=level, **more)

    monkeypatch.setattr("visualquant.runtime.local.make_session", picky)
    with LocalRunner(path, PLAIN) as runner:
        assert runner.level == "none" and "no kernel for what fusion made" in runner.notes[0]
        assert "without optimisation" in runner.notes[0]
        assert runner.run({"x": np.zeros((1, 16), np.float32)})["y"].shape == (1, 8)
        assert runner.taps_are_neutral({"x": np.ones((1, 16), np.float32)}, ["m"])
    with pytest.raises(RefusedError):
        monkeypatch.setattr("visualquant.runtime.local.make_session", _refuse)
        LocalRunner(path, PLAIN)


def _refuse(*_args: Any, **_more: Any) -> Any:
    raise RefusedError("never")


def test_refused_at_every_level(tmp_path: Path) -> None:
    nodes = [helper.make_node("Magic", ["x"], ["y"], name="magic", domain="org.foreign")]
    path = save(model(nodes, extra_opsets=[("org.foreign", 1)]), tmp_path / "m.onnx")
    with pytest.raises(RefusedError, match=r"org\.foreign|Magic"):
        LocalRunner(path, PLAIN)


def test_a_run_that_fails_names_the_file(tmp_path: Path) -> None:
    proto = model([helper.make_node("Reshape", ["x", "s"], ["y"], name="r")], [tensor("s", np.int64([3, 3]))])
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    path = save(proto, tmp_path / "fails.onnx")
    with LocalRunner(path, PLAIN) as runner:
        for call in (runner.run, lambda feeds: list(runner.tap([((0,), feeds)], ["y"]))):
            with pytest.raises(FailedRunError, match=r"'fails\.onnx' fails when it runs") as caught:
                call({"x": np.zeros((1, 4), np.float32)})
            assert caught.value.path == path and isinstance(caught.value, InputError)


def test_profile(tmp_path: Path) -> None:
    with LocalRunner(save(quantized_mlp(WEIGHT), tmp_path / "m.onnx"), RunOptions(level="none")) as runner:
        profile = runner.profile({"x": np.zeros((1, 16), np.float32)}, warm_up=1, repeats=4)
        kinds = {n.node: n.op_type for n in profile.nodes}
        assert kinds == {"w_dq": "DequantizeLinear", "fc": "MatMul", "act": "Relu"}
        assert profile.repeats == 4 and profile.total_p50_us > 0
        assert all(0 <= n.p50_us <= n.p90_us and n.provider == "CPUExecutionProvider" for n in profile.nodes)


def test_profile_figures() -> None:
    def node(name: str, dur: float) -> dict[str, Any]:
        args = {"op_name": "Conv", "provider": "CPU"}
        return {"cat": "Node", "name": f"{name}_kernel_time", "dur": dur, "args": args}

    def whole(dur: float) -> dict[str, Any]:
        return {"cat": "Session", "name": "model_run", "dur": dur}

    runs = [[whole(10 * k), node("a", k), {"cat": "Node", "name": "a_fence_before", "dur": 99}] for k in (9, 1, 2, 3)]
    profile = parse_profile(json.loads(json.dumps([e for r in runs for e in r])), warm_up=1)
    (timed,) = profile.nodes
    assert (timed.node, timed.op_type, timed.p50_us, timed.p90_us) == ("a", "Conv", 2, 2.8)
    assert (profile.total_p50_us, profile.repeats) == (20, 3)


def test_temporary_files_go(tmp_path: Path) -> None:
    runner = LocalRunner(save(mlp(WEIGHT), tmp_path / "m.onnx"), PLAIN)
    assert runner.optimised_path.exists()
    runner.close()
    assert not runner.optimised_path.parent.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
