"""Networks with real shapes and random weights: a ResNet-50 and a U-Net, float and quantized."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static


class _Net:
    """Collects nodes; every method returns the name of the value it makes."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{kind}_{len(self.nodes)}", **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def conv(self, x: str, c_in: int, c_out: int, kernel: int, stride: int = 1, *, relu: bool = True) -> str:
        weight = self.rng.normal(size=(c_out, c_in, kernel, kernel)) * np.sqrt(2 / (c_in * kernel * kernel))
        pad = kernel // 2
        made = self.op(
            "Conv",
            x,
            self.constant(weight),
            self.constant(np.zeros(c_out)),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
        )
        return self.op("Relu", made) if relu else made

    def model(self, output: str, size: int) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, size, size])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def resnet50(size: int, first: int = 64) -> onnx.ModelProto:
    """Bottleneck blocks 3, 4, 6, 3; `first` channels behind the first layer, fewer make a smaller network."""
    net = _Net()
    x = net.op("MaxPool", net.conv("x", 3, first, 7, 2), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    width = first
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner = first << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = net.conv(
                net.conv(net.conv(x, width, inner, 1), inner, inner, 3, stride), inner, inner * 4, 1, relu=False
            )
            short = x if block else net.conv(x, width, inner * 4, 1, stride, relu=False)
            x, width = net.op("Relu", net.op("Add", y, short)), inner * 4
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    out = net.op("Gemm", x, net.constant(net.rng.normal(size=(width, 1000)) / 32), net.constant(np.zeros(1000)))
    return net.model(out, size)


def unet(size: int, width: int = 32) -> onnx.ModelProto:
    """Four levels down and up, joined by Concat."""
    net = _Net()
    x, c, skips = "x", 3, []
    for level in range(4):
        wide = width << level
        x = net.conv(net.conv(x, c, wide, 3), wide, wide, 3)
        skips.append((x, wide))
        x, c = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), wide
    x = net.conv(x, c, c * 2, 3)
    c *= 2
    for skip, wide in reversed(skips):
        weight = net.constant(net.rng.normal(size=(c, wide, 2, 2)) / np.sqrt(c))
        up = net.op("ConvTranspose", x, weight, kernel_shape=[2, 2], strides=[2, 2])
        x, c = net.conv(net.conv(net.op("Concat", up, skip, axis=1), wide * 2, wide, 3), wide, wide, 3), wide
    return net.model(net.conv(x, c, 4, 1, relu=False), size)


class _Once(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, size: int) -> None:
        self._feeds: Iterator[dict[str, np.ndarray]] = iter([{"x": samples(1, size)}])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def samples(count: int, size: int) -> np.ndarray:
    """Made-up pictures, [count, 3, size, size]."""
    return np.random.default_rng(1).normal(size=(count, 3, size, size)).astype(np.float32)


def write_pair(model: onnx.ModelProto, size: int, folder: Path, name: str) -> tuple[Path, Path]:
    """The model and its QDQ form by ONNX Runtime (uint8 activations, int8 weights, 7 bits used), as files."""
    paths = folder / f"{name}_float.onnx", folder / f"{name}_qdq.onnx"
    onnx.save(model, paths[0])
    quantize_static(
        str(paths[0]),
        str(paths[1]),
        _Once(size),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        reduce_range=True,
        per_channel=True,
    )
    return paths
