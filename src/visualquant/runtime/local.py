"""Runs models on this host, with taps that change nothing."""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort

from visualquant.core.taps import Level, NodeTime, Profile, RunOptions, TapEvent
from visualquant.errors import InputError
from visualquant.runtime.segments import ELEMENT_NUMBERS, Segment, cut
from visualquant.runtime.sessions import FailedRunError, RefusedError, first_line, make_session

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]
_ORT_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
}


class LocalRunner:
    """One model on this host's ONNX Runtime.

    Attributes:
        path: the model file.
        options: how it runs; where the runtime refuses the file optimised, `level` says what was taken instead.
        level: the optimisation level in use.
        notes: what a user should know ("refused with optimisation; run without").
    """

    def __init__(self, path: Path, options: RunOptions) -> None:
        """Creates the plain session.

        Raises:
            RefusedError: the runtime refuses the file at every level.
        """
        self.path = path
        self.options = options
        self.level: Level = options.level
        self.notes: list[str] = []
        self._folder = tempfile.TemporaryDirectory(prefix="visualquant-")
        self._optimised: onnx.ModelProto | None = None
        self._value_types: dict[str, str] | None = None
        self._segments: dict[tuple[str, ...], list[tuple[Any, Segment]]] = {}
        try:
            self._plain = self._open()
        except BaseException:
            self._folder.cleanup()
            raise
        self.inputs = {i.name: i for i in self._plain.get_inputs()}
        self.outputs = tuple(o.name for o in self._plain.get_outputs())

    def _open(self) -> Any:
        target = Path(self._folder.name) / "optimised.onnx"
        try:
            return make_session(self.path, self.options, optimised_path=target)
        except RefusedError as refusal:
            if self.level == "none":
                raise
            self.level = "none"
            self.notes.append(f"The runtime refuses it optimised ({refusal}); it was run without optimisation.")
            return make_session(self.path, self.options, level="none", optimised_path=target)

    def close(self) -> None:
        """Frees sessions and temporary files."""
        self._segments.clear()
        self._folder.cleanup()

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def input_dtype(self, name: str) -> np.dtype[Any]:
        """The numpy type of an input.

        Raises:
            InputError: strings, sequences and the like, which samples can't hold.
        """
        kind = self.inputs[name].type
        if kind not in _ORT_TYPES:
            raise InputError(
                f"input {name!r} of {self.path.name!r} has type {kind}: samples of that type can't be given."
            )
        return np.dtype(_ORT_TYPES[kind])

    def optimised(self) -> onnx.ModelProto:
        """The graph that really runs, as the runtime wrote it."""
        if self._optimised is None:
            folder = Path(self._folder.name)
            model = onnx.load(folder / "optimised.onnx", load_external_data=False)
            self._load_external(model, folder)
            self._optimised = model
        return self._optimised

    @property
    def optimised_path(self) -> Path:
        """The file that the runtime wrote."""
        return Path(self._folder.name) / "optimised.onnx"

    def _load_external(self, model: onnx.ModelProto, folder: Path) -> None:
        """Takes tensor data in: what the runtime wrote beside its graph, and what stayed with the original file."""
        for tensor in model.graph.initializer:
            if tensor.data_location != onnx.TensorProto.EXTERNAL:
                continue
            location = next((e.value for e in tensor.external_data if e.key == "location"), "")
            base = folder if (folder / location).is_file() else self.path.parent
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(base))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]

    def _types(self) -> dict[str, str]:
        """The runtime's own type of every value of the optimised graph: its file does not state them all."""
        if self._value_types is None:
            model = onnx.ModelProto()
            model.CopyFrom(self.optimised())
            listed = {o.name for o in model.graph.output}
            made = [out for n in model.graph.node for out in n.output if out and out not in listed]
            model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in made)
            session = make_session(model.SerializeToString(), self.options, level="none")
            self._value_types = {o.name: o.type for o in session.get_outputs()}
        return self._value_types

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """All graph outputs of one batch, without taps.

        Raises:
            FailedRunError: the runtime fails on these samples.
        """
        return dict(zip(self.outputs, self._call(self._plain, None, feeds), strict=True))

    def _call(self, session: Any, outputs: Sequence[str] | None, feeds: Feeds) -> list[Array]:
        wanted = {i.name: i.type for i in session.get_inputs()}
        values = {n: _as_value(a, wanted.get(n, "")) for n, a in feeds.items()}
        try:
            if all(isinstance(v, np.ndarray) for v in values.values()):
                found: list[Array] = session.run(outputs, values)
            else:
                plain = {n: _ort_value(v) for n, v in values.items()}
                names = outputs or [o.name for o in session.get_outputs()]
                found = [v.numpy() for v in session.run_with_ort_values(names, plain)]
        except Exception as error:  # NOTE: the runtime raises classes of its own without a common base
            raise FailedRunError(self.path, first_line(str(error))) from error
        return found

    def tap(self, batches: Iterable[tuple[Sequence[int], Feeds]], taps: Collection[str]) -> Iterator[TapEvent]:
        """Runs batches and emits each tapped tensor as soon as it exists, then the outputs.

        Args:
            batches: (sample indices, feeds).
            taps: names of values in `optimised()`.
        """
        for number, (samples, feeds) in enumerate(batches):
            held: dict[str, Array] = dict(feeds)
            outputs: dict[str, Array] = {}
            for session, segment in self._pieces(tuple(sorted(taps)), feeds):
                found = self._call(session, list(segment.outputs), {n: held[n] for n in segment.inputs})
                for name, array in zip(segment.outputs, found, strict=True):
                    held[name] = array
                    if name in self.outputs:
                        outputs[name] = array
                    if name in segment.taps:
                        yield TapEvent(number, samples, name, array)
                for name in segment.drop:
                    held.pop(name, None)
                for name in [n for n in segment.taps if n in held and not self._needed(n, segment)]:
                    held.pop(name, None)
            for name in self.outputs:  # an output that is an input or a constant needs no segment
                if name not in outputs:
                    outputs[name] = held[name] if name in held else self.run(feeds)[name]
            yield TapEvent(number, samples, outputs={n: outputs[n] for n in self.outputs})

    def _needed(self, name: str, segment: Segment) -> bool:
        pieces = next(p for p in self._segments.values() if any(s is segment for _, s in p))
        later = False
        for _, other in pieces:
            if later and name in other.inputs:
                return True
            later = later or other is segment
        return False

    def _pieces(self, taps: tuple[str, ...], feeds: Feeds) -> list[tuple[Any, Segment]]:
        if taps not in self._segments:
            budget = None if self.options.memory_bytes is None else max(self.options.memory_bytes // 4, 1 << 20)
            sizes = self._sizes(taps, feeds) if budget is not None else {}
            types = self._types() if budget is not None else {}
            segments = cut(self.optimised(), set(taps), sizes, budget, types)
            self._segments[taps] = [(make_session(s.model, self.options, level="none"), s) for s in segments]
        return self._segments[taps]

    def _sizes(self, taps: Sequence[str], feeds: Feeds) -> dict[str, int]:
        """Bytes of the taps on these feeds: by shape inference, else by the largest feed."""
        model = onnx.ModelProto()
        model.CopyFrom(self.optimised())
        for info in model.graph.input:
            if info.name in feeds:
                shape = info.type.tensor_type.shape
                del shape.dim[:]
                for n in feeds[info.name].shape:
                    shape.dim.add(dim_value=n)
        del model.graph.value_info[:]
        with contextlib.suppress(Exception):
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        known: dict[str, int] = {}
        for info in (*model.graph.value_info, *model.graph.output):
            dims = [d.dim_value for d in info.type.tensor_type.shape.dim]
            if info.type.tensor_type.HasField("shape") and all(dims):
                known[info.name] = int(np.prod(dims, dtype=np.int64)) * 4
        largest = max([f.nbytes for f in feeds.values()] + list(known.values()), default=0)
        return {name: known.get(name, largest) for name in taps}

    def taps_are_neutral(self, feeds: Feeds, taps: Collection[str]) -> bool:
        """True where outputs with taps equal outputs without, to the last bit."""
        plain = self.run(feeds)
        tapped = next(e for e in self.tap([((0,), feeds)], taps) if not e.value).outputs
        return all(_same_bits(plain[n], tapped[n]) for n in self.outputs)

    def profile(self, feeds: Feeds, *, level: Level | None = None, warm_up: int = 3, repeats: int = 20) -> Profile:
        """Node times by the runtime's own profiler, at the runner's level or another one."""
        prefix = str(Path(self._folder.name) / "profile")
        session = make_session(self.path, self.options, level=level or self.level, profile_prefix=prefix)
        for _ in range(warm_up + repeats):
            self._call(session, None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
        return parse_profile(events, warm_up)


def _as_value(array: Array, kind: str) -> Any:
    """The array, or a runtime value where numpy has no such type: 8-bit floats and bfloat16 come back as integers."""
    number = ELEMENT_NUMBERS.get(kind.removeprefix("tensor(").removesuffix(")").lower())
    if number is None or kind in _ORT_TYPES:
        return array
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(array), number)


def _ort_value(value: Any) -> Any:
    return ort.OrtValue.ortvalue_from_numpy(value) if isinstance(value, np.ndarray) else value


def _same_bits(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def parse_profile(events: Sequence[Mapping[str, Any]], warm_up: int) -> Profile:
    """Node times from ONNX Runtime's profile (a list of trace events)."""
    times: dict[str, list[float]] = {}
    facts: dict[str, tuple[str, str]] = {}
    totals: list[float] = []
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Session" and name == "model_run":
            totals.append(float(event["dur"]))
        if event.get("cat") == "Node" and name.endswith("_kernel_time"):
            node = name.removesuffix("_kernel_time")
            times.setdefault(node, []).append(float(event["dur"]))
            args = event.get("args", {})
            facts[node] = str(args.get("op_name", "")), str(args.get("provider", ""))
    nodes = []
    for node, found in times.items():
        kept = found[warm_up:] or found
        op_type, provider = facts[node]
        nodes.append(NodeTime(node, op_type, provider, statistics.median(kept), float(np.percentile(kept, 90))))
    kept_totals = totals[warm_up:] or totals or [0.0]
    return Profile(tuple(nodes), statistics.median(kept_totals), len(kept_totals))
