"""Decoder-like models of any size with external data, written piece by piece, never whole in memory.

A float32 model with heavy-tailed weights and outlier channels, and two counterparts: int8 codes a channel, and int4
codes in blocks of 32 (QDQ form, opset 21). Weights are [K, N] as MatMul reads them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

BLOCK = 32
_POOL = 1 << 21  # values that every weight is cut from
_PIECE = 1 << 22  # elements of one piece
_ALIGN = 4096
F32 = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True, slots=True)
class LargeModels:
    """Where the three models are.

    Attributes:
        float_model, int8_model, int4_model: the .onnx files; data lies beside them.
        float_bytes: of the float weights.
    """

    float_model: Path
    int8_model: Path
    int4_model: Path
    float_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Shape:
    hidden: int
    feed_forward: int
    layers: int

    @staticmethod
    def of(size_bytes: int) -> _Shape:
        hidden = 128 if size_bytes < 16 << 20 else 512 if size_bytes < 256 << 20 else 2048
        hidden = 4096 if size_bytes > 8 << 30 else hidden
        feed_forward = hidden * 11 // 4 // BLOCK * BLOCK
        layer = (4 * hidden * hidden + 3 * hidden * feed_forward) * 4
        return _Shape(hidden, feed_forward, max(1, round(size_bytes / layer)))

    def weights(self) -> Iterator[tuple[str, int, int]]:
        """Name, K and N of each weight."""
        h, f = self.hidden, self.feed_forward
        for layer in range(self.layers):
            for name, k, n in (("q", h, h), ("k", h, h), ("v", h, h), ("o", h, h), ("gate", h, f), ("up", h, f)):
                yield f"layers.{layer}.{name}.weight", k, n
            yield f"layers.{layer}.down.weight", f, h


class _Weights:
    """Values of a weight, a few rows at a time, the same every time."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        pool = rng.standard_t(4, _POOL).astype(np.float32)
        self.pool = np.clip(pool, -30, 30) * np.float32(0.02)
        self.largest = float(np.abs(self.pool).max())
        self.rng = rng

    def channels(self, index: int, n: int) -> F32:
        """Size of each output channel; one in 200 is twenty times larger."""
        rng = np.random.default_rng(1000 + index)
        scale = rng.uniform(0.5, 1.5, n)
        scale[rng.random(n) < 0.005] *= 20
        return scale.astype(np.float32)

    def rows(self, index: int, start: int, stop: int, n: int, channels: F32) -> F32:
        """Rows [start, stop) of a weight of n columns."""
        at = (index * 7_919 + start * n) % _POOL
        count = (stop - start) * n
        flat = np.resize(np.roll(self.pool, -at), count) if at + count > _POOL else self.pool[at : at + count]
        out: F32 = flat.reshape(stop - start, n) * channels
        return out


class _DataFile:
    """External data, appended at page boundaries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: BinaryIO = path.open("wb")
        self.offset = 0

    def begin(self) -> int:
        """Offset of the next tensor."""
        gap = -self.offset % _ALIGN
        self.file.write(bytes(gap))
        self.offset += gap
        return self.offset

    def write(self, array: npt.NDArray[Any]) -> None:
        """Appends the bytes of an array."""
        data = np.ascontiguousarray(array)
        self.file.write(data.view(np.uint8).reshape(-1).data)
        self.offset += data.nbytes


def make_large(
    folder: Path, size_bytes: int, *, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> LargeModels:
    """Writes the three models.

    Args:
        folder: where; made if missing.
        size_bytes: about how large the float weights are.
        seed: of the values.
        progress: called with (bytes done, bytes in all).

    Returns:
        Where they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shape, weights = _Shape.of(size_bytes), _Weights(seed)
    total = sum(4 * k * n for _, k, n in shape.weights())
    names = ("float", "int8", "int4")
    files = {name: _DataFile(folder / f"{name}.onnx.data") for name in names}
    tensors: dict[str, list[Any]] = {name: [] for name in names}
    done = 0
    for index, (name, k, n) in enumerate(shape.weights()):
        channels = weights.channels(index, n)
        scale = (channels * np.float32(weights.largest / 127)).astype(np.float32)
        block_scales = []
        starts = {name: file.begin() for name, file in files.items()}
        step = max(BLOCK, _PIECE // n // BLOCK * BLOCK)
        for row in range(0, k, step):
            values = weights.rows(index, row, min(k, row + step), n, channels)
            files["float"].write(values)
            files["int8"].write(np.rint(values / scale).astype(np.int8))
            codes, scales = _blocked(values)
            files["int4"].write(codes)
            block_scales.append(scales)
            done += values.nbytes
            if progress is not None:
                progress(done, total)
        tensors["float"].append(_external(name, "FLOAT", (k, n), files["float"], starts["float"]))
        tensors["int8"].append(_external(f"{name}_q", "INT8", (k, n), files["int8"], starts["int8"]))
        tensors["int4"].append(_external(f"{name}_q", "INT4", (k, n), files["int4"], starts["int4"]))
        for kind, scales in (("int8", scale), ("int4", np.concatenate(block_scales))):
            start = files[kind].begin()
            files[kind].write(scales)
            tensors[kind].append(_external(f"{name}_scale", "FLOAT", scales.shape, files[kind], start))
    for name in names:
        files[name].file.close()
        _write_model(folder / f"{name}.onnx", shape, name, tensors[name])
    return LargeModels(folder / "float.onnx", folder / "int8.onnx", folder / "int4.onnx", total)


def _blocked(values: F32) -> tuple[npt.NDArray[np.uint8], F32]:
    """int4 codes, two a byte, and scales [K / 32, N], blocks along K."""
    k, n = values.shape
    blocks = values.reshape(k // BLOCK, BLOCK, n)
    scales = np.abs(blocks).max(axis=1) / np.float32(7)
    scales[scales == 0] = 1
    codes = np.rint(blocks / scales[:, None]).astype(np.int8).reshape(-1).view(np.uint8)
    return (codes[0::2] & 15) | (codes[1::2] << 4), scales


def _external(name: str, kind: str, shape: tuple[int, ...], file: _DataFile, start: int) -> Any:
    from onnx import TensorProto

    tensor = TensorProto(name=name, data_type=TensorProto.DataType.Value(kind), dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", file.path.name), ("offset", str(start)), ("length", str(file.offset - start))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def _write_model(path: Path, shape: _Shape, kind: str, tensors: list[Any]) -> None:
    """The graph: projections, a gated product instead of attention, a gated feed-forward part, residual sums."""
    from onnx import TensorProto, helper

    nodes: list[Any] = []

    def node(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], name=f"{output}/{op}", **attributes))
        return output

    def weight(name: str) -> str:
        if kind == "float":
            return name
        how = {"axis": 1} if kind == "int8" else {"axis": 0, "block_size": BLOCK}
        return node("DequantizeLinear", [f"{name}_q", f"{name}_scale"], f"{name}_dq", **how)

    x = "hidden"
    for layer in range(shape.layers):
        base = f"layers.{layer}"
        q, k, v = (node("MatMul", [x, weight(f"{base}.{p}.weight")], f"{base}.{p}") for p in "qkv")
        mixed = node("Mul", [node("Add", [q, k], f"{base}.qk"), v], f"{base}.mixed")
        o = node("MatMul", [mixed, weight(f"{base}.o.weight")], f"{base}.o")
        x = node("Add", [x, o], f"{base}.attended")
        gate = node("MatMul", [x, weight(f"{base}.gate.weight")], f"{base}.gate")
        up = node("MatMul", [x, weight(f"{base}.up.weight")], f"{base}.up")
        active = node("Mul", [gate, node("Sigmoid", [gate], f"{base}.sigmoid")], f"{base}.silu")
        down = node(
            "MatMul", [node("Mul", [active, up], f"{base}.gated"), weight(f"{base}.down.weight")], f"{base}.down"
        )
        x = node("Add", [x, down], f"{base}.out")
    value = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "decoder",
        [helper.make_tensor_value_info("hidden", value, ["tokens", shape.hidden])],
        [helper.make_tensor_value_info(x, value, ["tokens", shape.hidden])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path.write_bytes(model.SerializeToString())


def size_of(text: str) -> int:
    """Bytes of "1GB", "500MB", "2.5 GB" or a number.

    Raises:
        ValueError: anything else.
    """
    clean = text.strip().upper().replace(" ", "")
    for suffix, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3), ("B", 1.0)):
        if clean.endswith(suffix):
            clean, scale = clean[: -len(suffix)], factor
            break
    else:
        scale = 1.0
    value = float(clean) * scale
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{text!r} is no size")
    return int(value)
