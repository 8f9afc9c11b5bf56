"""What every runner has: on this host or on a device, the same inputs, taps, outputs and profiles."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import onnx

from visualquant.core.taps import Level, Profile, RunOptions, TapEvent
from visualquant.errors import InputError
from visualquant.runtime.segments import Segment, cut
from visualquant.runtime.sessions import RefusedError, make_session

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]
HOST_PROVIDER = "CPUExecutionProvider"
OPTIMISED = "optimised.onnx"
SMALL_TENSOR_BYTES = 1 << 16
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
ELEMENT_BYTES = {kind: np.dtype(t).itemsize for kind, t in _ORT_TYPES.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class InputInfo:
    """An input as the runtime describes it.

    Attributes:
        name: of the input.
        type: as the runtime spells it ("tensor(float)").
        shape: sizes; a symbol or None where one is not fixed.
    """

    name: str
    type: str
    shape: tuple[int | str | None, ...]


class Runner(abc.ABC):
    """One model on one runtime.

    Attributes:
        path: the model file.
        options: how it runs; where the runtime refuses the file optimised, `level` says what was taken instead.
        level: the optimisation level in use.
        notes: what a user should know ("refused with optimisation; run without").
        inputs: by name.
        outputs: names, in order.
        kind: "local", or "device" where the model runs elsewhere.
    """

    kind: ClassVar[Literal["local", "device"]] = "local"
    inputs: Mapping[str, InputInfo]
    outputs: tuple[str, ...]

    def __init__(self, path: Path, options: RunOptions) -> None:
        """Makes the folder for the optimised graph."""
        self.path = path
        self.options = options
        self.level: Level = options.level
        self.notes: list[str] = []
        self._folder = tempfile.TemporaryDirectory(prefix="visualquant-")
        self._optimised: onnx.ModelProto | None = None

    @property
    def host_options(self) -> RunOptions:
        """How this host runs pieces of the model: a device's provider need not exist here."""
        return self.options if self.kind == "local" else dataclasses.replace(self.options, provider=HOST_PROVIDER)

    @abc.abstractmethod
    def run(self, feeds: Feeds) -> dict[str, Array]:
        """All graph outputs of one batch, without taps.

        Raises:
            FailedRunError: the runtime fails on these samples.
        """

    @abc.abstractmethod
    def tap(self, batches: Iterable[tuple[Sequence[int], Feeds]], taps: Collection[str]) -> Iterator[TapEvent]:
        """Runs batches and emits each tapped tensor as soon as it exists, then the outputs.

        Args:
            batches: (sample indices, feeds).
            taps: names of values in `optimised()`.
        """

    @abc.abstractmethod
    def profile(self, feeds: Feeds, *, level: Level | None = None, warm_up: int = 3, repeats: int = 20) -> Profile:
        """Node times by the runtime's own profiler, at the runner's level or another one."""

    @abc.abstractmethod
    def _types(self) -> Mapping[str, str]:
        """The runtime's own type of every value of the optimised graph: its file does not state them all."""

    def close(self) -> None:
        """Frees sessions and temporary files."""
        self._folder.cleanup()

    def __enter__(self) -> Self:
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

    @property
    def optimised_path(self) -> Path:
        """The file that the runtime wrote."""
        return Path(self._folder.name) / OPTIMISED

    def optimised(self) -> onnx.ModelProto:
        """The graph that really runs, as the runtime wrote it, all tensors inside."""
        if self._optimised is None:
            model = onnx.load(self.optimised_path, load_external_data=False)
            for tensor in model.graph.initializer:
                self._take_in(tensor)
            self._optimised = model
        return self._optimised

    def _take_in(self, tensor: onnx.TensorProto) -> None:
        """Data outside: what the runtime wrote beside its graph, and what stayed with the original file."""
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return
        location = next((e.value for e in tensor.external_data if e.key == "location"), "")
        folder = self.optimised_path.parent
        base = folder if (folder / location).is_file() else self.path.parent
        onnx.external_data_helper.load_external_data_for_tensor(tensor, str(base))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]

    def _segments_of(self, taps: Collection[str], feeds: Feeds) -> tuple[Segment, ...]:
        """The optimised graph in pieces that fit the memory allowed."""
        budget, with_weights = self._budget()
        if budget is None:
            return cut(self.optimised(), set(taps), {}, None, {})
        types, sizes = self._described(feeds)
        return cut(self.optimised(), set(taps), sizes, budget, types, with_weights=with_weights)

    def _budget(self) -> tuple[int | None, bool]:
        """Bytes of one piece, and whether its weights count: they do where pieces are loaded one after the other."""
        return self.options.portion_bytes, False

    def _skeleton(self) -> onnx.ModelProto:
        """The optimised graph with large tensors as inputs of the same type: all that types and shapes need."""
        whole = self.optimised()
        model = onnx.ModelProto(ir_version=whole.ir_version)
        model.opset_import.extend(whole.opset_import)
        model.functions.extend(whole.functions)
        graph = model.graph
        graph.name = whole.graph.name
        graph.node.extend(whole.graph.node)
        graph.input.extend(whole.graph.input)
        graph.output.extend(whole.graph.output)
        graph.sparse_initializer.extend(whole.graph.sparse_initializer)
        listed = {i.name for i in graph.input}
        for tensor in whole.graph.initializer:
            if tensor.ByteSize() <= SMALL_TENSOR_BYTES:
                graph.initializer.append(tensor)
            elif tensor.name not in listed:
                graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        return model

    def _described(self, feeds: Feeds) -> tuple[Mapping[str, str], Mapping[str, int]]:
        """Type and bytes of every value on such feeds, by the runtime's own inference (it knows its own operators).

        Where this host's runtime refuses a device's graph, types are the device's, and sizes what ONNX infers; a value
        of unknown size counts as the largest.
        """
        skeleton = _with_shapes(self._skeleton(), feeds)
        made = [out for n in skeleton.graph.node for out in n.output if out]
        sizes = {name: array.nbytes for name, array in feeds.items()}
        types: Mapping[str, str]
        shapes: Mapping[str, Sequence[int | str | None]]
        try:
            types, shapes = _asked(skeleton)
        except RefusedError:  # some operators want their weights as constants
            try:
                types, shapes = _asked(_with_shapes(self.optimised(), feeds))
            except (RefusedError, ValueError):  # NOTE: protobuf's own limit of 2 GB is a ValueError
                types, shapes = self._types(), _inferred(skeleton)
        for name, dims in shapes.items():
            fixed = [n for n in dims if isinstance(n, int) and n >= 0]
            if len(fixed) == len(dims):
                sizes[name] = int(np.prod(fixed, dtype=np.int64)) * ELEMENT_BYTES.get(types.get(name, ""), 4)
        largest = max(sizes.values(), default=0)
        return types, sizes | {n: largest for n in made if n not in sizes}

    def taps_are_neutral(self, feeds: Feeds, taps: Collection[str]) -> bool:
        """True where outputs with taps equal outputs without, to the last bit."""
        return self._is_neutral(self.run(feeds), feeds, taps)

    def _is_neutral(self, plain: Mapping[str, Array], feeds: Feeds, taps: Collection[str]) -> bool:
        tapped = next(e for e in self.tap([((0,), feeds)], taps) if not e.value).outputs
        return all(same_bits(plain[n], tapped[n]) for n in self.outputs)


def _with_shapes(model: onnx.ModelProto, feeds: Feeds) -> onnx.ModelProto:
    """A copy whose inputs have the shapes of the feeds."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for info in made.graph.input:
        if info.name in feeds:
            shape = info.type.tensor_type.shape
            del shape.dim[:]
            for n in feeds[info.name].shape:
                shape.dim.add(dim_value=n)
    del made.graph.value_info[:]
    return made


def _asked(model: onnx.ModelProto) -> tuple[dict[str, str], dict[str, Sequence[int | str | None]]]:
    """Type and shape of every value, as this host's runtime knows them."""
    listed = {o.name for o in model.graph.output}
    names = dict.fromkeys(out for n in model.graph.node for out in n.output if out and out not in listed)
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    whole.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    found = make_session(whole.SerializeToString(), RunOptions(level="none", threads=1)).get_outputs()
    return {o.name: o.type for o in found}, {o.name: list(o.shape or ()) for o in found}


def _inferred(model: onnx.ModelProto) -> dict[str, Sequence[int | str | None]]:
    """Shapes as ONNX infers them; None for a size that is not fixed."""
    with contextlib.suppress(Exception):
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    return {
        info.name: [d.dim_value if d.HasField("dim_value") else None for d in info.type.tensor_type.shape.dim]
        for info in (*model.graph.value_info, *model.graph.output)
        if info.type.tensor_type.HasField("shape")
    }


def same_bits(a: Array, b: Array) -> bool:
    """True where type, shape and every bit are equal."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
