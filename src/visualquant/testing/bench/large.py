"""A decoder-like float model of any size with its int8 and blocked int4 counterparts, written in one stream.

Weights are heavy-tailed (Student's t with four degrees of freedom) and a few input channels are many times larger
than the rest, as in large language models. No tensor is ever whole in memory: rows are made in chunks, twice (the
first time for the scales a column), and go to all three files at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from visualquant.errors import CancelledError, InputError

F32 = npt.NDArray[np.float32]
BLOCK = 32
_POOL = 1 << 22  # different values; a row is a window of them with a factor
_CHUNK_BYTES = 16 << 20
_ALIGNMENT = 4096
_LEAST_BYTES = 1 << 20
_OUTLIERS = 256  # one input channel of so many is an outlier


@dataclasses.dataclass(frozen=True, slots=True)
class Sizes:
    """What a model of some size consists of.

    Attributes:
        width: of the residual stream.
        inner: of the feed-forward part.
        vocabulary: rows of the embedding.
        layers: decoder layers.
    """

    width: int
    inner: int
    vocabulary: int
    layers: int

    @property
    def parameters(self) -> int:
        """Elements of all matrices."""
        return 2 * self.vocabulary * self.width + self.layers * self._layer

    @property
    def _layer(self) -> int:
        return 4 * self.width * self.width + 3 * self.width * self.inner


def sizes_for(size_bytes: int) -> Sizes:
    """The widest model of about so many bytes of float32 that still has eight layers.

    Raises:
        InputError: below 1 MiB.
    """
    if size_bytes < _LEAST_BYTES:
        raise InputError(f"A model of {size_bytes} bytes is too small to measure anything: ask for 1MiB or more.")
    elements = size_bytes // 4
    best = Sizes(64, 192, 1024, 1)
    for power in range(6, 15):
        width = 1 << power
        one = Sizes(width, width * 11 // 4 // BLOCK * BLOCK, min(32_000, 16 * width), 1)
        layers = (elements - 2 * one.vocabulary * width) // one._layer
        if layers >= 8 or power == 6:
            best = dataclasses.replace(one, layers=max(1, layers))
    return best


def write_large(
    folder: Path,
    size_bytes: int,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> dict[str, Path]:
    """Writes `float.onnx`, `int8.onnx` (per channel) and `int4.onnx` (blocks of 32), each with a data file.

    Args:
        folder: where to; made where it is missing.
        size_bytes: of the float model, about.
        seed: of the values.
        progress: called with elements done and in all.
        cancel: asked a few times a second; True stops.

    Returns:
        The three models by name: "float", "int8", "int4".

    Raises:
        InputError: the size is too small, or the folder can't be written to.
        CancelledError: `cancel` said so; the data files are incomplete then.
    """
    sizes = sizes_for(size_bytes)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            files = {n: stack.enter_context((folder / f"{n}.data").open("wb")) for n in ("float", "int8", "int4")}
            writer = _Writer(files, sizes, seed, progress, cancel)
            models = writer.models()
        for name, model in models.items():
            (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    except OSError as error:
        raise InputError(f"{folder} can't be written to: {error.strerror}. Name a folder with enough room.") from error
    return {name: folder / f"{name}.onnx" for name in models}


class _Writer:
    """Writes the same graph three times, tensor after tensor."""

    def __init__(
        self,
        files: Mapping[str, BinaryIO],
        sizes: Sizes,
        seed: int,
        progress: Callable[[int, int], None] | None,
        cancel: Callable[[], bool] | None,
    ) -> None:
        self.files, self.sizes, self.seed = files, sizes, seed
        self.progress, self.cancel = progress, cancel
        self.done = 0
        rng = np.random.default_rng(seed)
        self.pool: F32 = rng.standard_t(4, _POOL).astype(np.float32)
        self.rng = rng
        self.nodes: dict[str, list[onnx.NodeProto]] = {name: [] for name in files}
        self.tensors: dict[str, list[TensorProto]] = {name: [] for name in files}

    def models(self) -> dict[str, onnx.ModelProto]:
        """The three models; their data are written on the way."""
        sizes = self.sizes
        self._small("eps", np.float32(1e-5))
        self._small("two", np.float32(2.0))
        self._small("scale", np.float32(sizes.width**-0.5))
        x = self._node("Gather", self._matrix("embed", sizes.vocabulary, sizes.width), "ids", out="h0")
        for k in range(sizes.layers):
            x = self._layer(x, f"layer{k}")
        self._linear(self._norm(x, "norm"), "head", sizes.width, sizes.vocabulary, out="logits")
        ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["tokens"])
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["tokens", sizes.vocabulary])
        opset = [helper.make_opsetid("", 21)]
        return {
            name: helper.make_model(
                helper.make_graph(self.nodes[name], "decoder", [ids], [logits], self.tensors[name]),
                opset_imports=opset,
                ir_version=10,
                producer_name="visualquant bench",
            )
            for name in self.files
        }

    # -- graph

    def _layer(self, x: str, at: str) -> str:
        width, inner = self.sizes.width, self.sizes.inner
        h = self._norm(x, f"{at}.norm1")
        q, k, v = (self._linear(h, f"{at}.{n}", width, width) for n in "qkv")
        turned = self._node("Transpose", k, out=f"{at}.kt", perm=[1, 0])
        scores = self._node("Mul", self._node("MatMul", q, turned, out=f"{at}.qk"), "scale", out=f"{at}.scores")
        mixed = self._node("MatMul", self._node("Softmax", scores, out=f"{at}.soft"), v, out=f"{at}.mixed")
        x = self._node("Add", x, self._linear(mixed, f"{at}.o", width, width), out=f"{at}.res1")
        h = self._norm(x, f"{at}.norm2")
        gate, up = (self._linear(h, f"{at}.{n}", width, inner) for n in ("gate", "up"))
        silu = self._node("Mul", gate, self._node("Sigmoid", gate, out=f"{at}.sigmoid"), out=f"{at}.silu")
        both = self._node("Mul", silu, up, out=f"{at}.gated")
        return self._node("Add", x, self._linear(both, f"{at}.down", inner, width), out=f"{at}.res2")

    def _norm(self, x: str, at: str) -> str:
        gain = (1 + 0.1 * self.rng.standard_normal(self.sizes.width)).astype(np.float32)
        mean = self._node("ReduceMean", self._node("Pow", x, "two", out=f"{at}.sq"), out=f"{at}.mean", axes=[-1])
        root = self._node("Sqrt", self._node("Add", mean, "eps", out=f"{at}.eps"), out=f"{at}.root")
        unit = self._node("Div", x, root, out=f"{at}.unit")
        return self._node("Mul", unit, self._small(f"{at}.gain", gain), out=f"{at}.out")

    def _linear(self, x: str, name: str, rows: int, columns: int, out: str = "") -> str:
        return self._node("MatMul", x, self._matrix(name, rows, columns), out=out or f"{name}.out")

    def _node(self, op_type: str, *inputs: str, out: str, **attributes: Any) -> str:
        axes = attributes.pop("axes", None)
        if axes is not None:
            inputs = (*inputs, self._small(f"{out}.axes", np.array(axes, np.int64)))
        for nodes in self.nodes.values():
            nodes.append(helper.make_node(op_type, inputs, [out], name=out, **attributes))
        return out

    def _small(self, name: str, array: npt.ArrayLike) -> str:
        tensor = helper.make_tensor(
            name,
            helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype),
            np.asarray(array).shape,
            np.asarray(array).tobytes(),
            raw=True,
        )
        for tensors in self.tensors.values():
            tensors.append(tensor)
        return name

    # -- matrices

    def _matrix(self, name: str, rows: int, columns: int) -> str:
        """A weight [rows, columns] in all three forms; its value has the same name in each graph."""
        by_row = name == "embed"  # rows are what an embedding looks up: its channels
        seed = int(self.rng.integers(1 << 62))
        scale = self._int8_scale(seed, rows, columns, by_row)
        starts = {n: _aligned(file) for n, file in self.files.items()}
        steps: list[F32] = []
        for first, values in self._chunks(seed, rows, columns):
            self.files["float"].write(values.tobytes())
            of = scale[first : first + len(values), None] if by_row else scale
            np.rint(values / of).astype(np.int8).tofile(self.files["int8"])
            codes, step = _int4(values, by_row)
            self.files["int4"].write(codes.tobytes())
            steps.append(step)
            self.done += values.size
            if self.progress is not None:
                self.progress(self.done, self.sizes.parameters)
        shape = (rows, columns)
        self.tensors["float"].append(_external(name, TensorProto.FLOAT, shape, "float", starts["float"], 32))
        self.tensors["int8"].append(_external(f"{name}.q", TensorProto.INT8, shape, "int8", starts["int8"], 8))
        self.tensors["int4"].append(_external(f"{name}.q", TensorProto.INT4, shape, "int4", starts["int4"], 4))
        raw = helper.make_tensor(f"{name}.s", TensorProto.FLOAT, scale.shape, scale.tobytes(), raw=True)
        self.tensors["int8"].append(raw)
        start = _aligned(self.files["int4"])
        for step in steps:
            self.files["int4"].write(step.tobytes())
        grid = (rows, columns // BLOCK) if by_row else (rows // BLOCK, columns)
        self.tensors["int4"].append(_external(f"{name}.s", TensorProto.FLOAT, grid, "int4", start, 32))
        forms: dict[str, dict[str, Any]] = {
            "int8": {"axis": 0 if by_row else 1},
            "int4": {"axis": 1 if by_row else 0, "block_size": BLOCK},
        }
        for kind, more in forms.items():
            node = helper.make_node("DequantizeLinear", [f"{name}.q", f"{name}.s"], [name], name=f"{name}.dq", **more)
            self.nodes[kind].append(node)
        return name

    def _int8_scale(self, seed: int, rows: int, columns: int, by_row: bool) -> F32:
        largest = np.zeros(rows if by_row else columns, np.float32)
        for first, values in self._chunks(seed, rows, columns):
            size = np.abs(values, out=values)
            if by_row:
                largest[first : first + len(values)] = size.max(axis=1)
            else:
                np.maximum(largest, size.max(axis=0), out=largest)
        return largest / np.float32(127)

    def _chunks(self, seed: int, rows: int, columns: int) -> Iterator[tuple[int, F32]]:
        """(first row, values) of a matrix, whole blocks of rows each; equal seeds give equal values."""
        rng = np.random.default_rng(seed)
        count = max(BLOCK, _CHUNK_BYTES // 4 // columns // BLOCK * BLOCK)
        for first in range(0, rows, count):
            if self.cancel is not None and self.cancel():
                raise CancelledError("The work was stopped.")
            number = min(count, rows - first)
            starts = rng.integers(0, _POOL - columns, number)
            factors = (rng.choice((-1.0, 1.0), number) * rows**-0.5).astype(np.float32)
            factors[rng.random(number) < 1 / _OUTLIERS] *= 12
            out = np.empty((number, columns), np.float32)
            for k, (start, factor) in enumerate(zip(starts, factors, strict=True)):
                np.multiply(self.pool[start : start + columns], factor, out=out[k])
            yield first, out


def _int4(values: F32, by_row: bool) -> tuple[npt.NDArray[np.uint8], F32]:
    """Symmetric int4 codes packed low nibble first, and a scale for each 32 elements of a row, or of a column."""
    rows, columns = values.shape
    blocks = values.reshape(rows, -1, BLOCK, 1) if by_row else values.reshape(-1, 1, BLOCK, columns)
    step = np.abs(blocks).max(axis=2, keepdims=True) / np.float32(7)
    codes = np.rint(blocks / step).astype(np.int8).reshape(-1, 2).view(np.uint8)
    return (codes[:, 0] & 15) | (codes[:, 1] << 4), step.reshape(rows, -1) if by_row else step.reshape(-1, columns)


def _aligned(file: BinaryIO) -> int:
    """Moves to the next page and says where that is."""
    start = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
    file.seek(start)
    return start


def _external(name: str, kind: int, shape: tuple[int, ...], file: str, start: int, bits: int) -> TensorProto:
    """An initializer whose data lie in a file beside the model."""
    tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
    length = int(np.prod(shape, dtype=np.int64)) * bits // 8
    for key, value in (("location", f"{file}.data"), ("offset", str(start)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return tensor
