"""A network of the size and shape of ResNet-50 with random weights: for memory and speed, not for accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from visualquant.testing.models import model, node, tensor, value

STAGES = ((3, 64, 256, 1), (4, 128, 512, 2), (6, 256, 1024, 2), (3, 512, 2048, 2))


class _Builder:
    def __init__(self, quantized: bool, width: float) -> None:
        self.quantized, self.width = quantized, width
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(0)
        self._count = 0

    def conv(self, x: str, inputs: int, outputs: int, kernel: int, stride: int, relu: bool) -> str:
        self._count += 1
        name = f"conv{self._count}"
        weight = self._rng.normal(size=(outputs, inputs, kernel, kernel)).astype(np.float32)
        weight *= np.float32(np.sqrt(2 / (inputs * kernel * kernel)))
        used = f"{name}_w"
        if self.quantized:
            peak = np.abs(weight).max()
            self.constants.append(tensor(f"{name}_q", np.rint(weight / (peak / 127)).astype(np.int8)))
            self.constants.append(tensor(f"{name}_s", np.array(peak / 127, np.float32)))
            self.nodes.append(node("DequantizeLinear", [f"{name}_q", f"{name}_s"], [used], f"{name}_wdq"))
        else:
            self.constants.append(tensor(used, weight))
        self.constants.append(tensor(f"{name}_b", np.zeros(outputs, np.float32)))
        pad = kernel // 2
        attributes: dict[str, Any] = {"pads": [pad] * 4, "strides": [stride] * 2, "kernel_shape": [kernel] * 2}
        self.nodes.append(node("Conv", [x, used, f"{name}_b"], [name], name, **attributes))
        y = name
        if relu:
            y = f"{name}_relu"
            self.nodes.append(node("Relu", [name], [y], y))
        return self.codes(y)

    def codes(self, x: str) -> str:
        """Q and DQ behind a value, where the network is quantized."""
        if not self.quantized:
            return x
        self.constants.append(tensor(f"{x}_as", np.array(0.05, np.float32)))
        self.constants.append(tensor(f"{x}_az", np.array(64, np.uint8)))
        scale = [f"{x}_as", f"{x}_az"]
        self.nodes.append(node("QuantizeLinear", [x, *scale], [f"{x}_c"], f"{x}_q"))
        self.nodes.append(node("DequantizeLinear", [f"{x}_c", *scale], [f"{x}_d"], f"{x}_dq"))
        return f"{x}_d"


def resnet_like(*, quantized: bool = False, width: float = 1.0) -> onnx.ModelProto:
    """Bottlenecks as in ResNet-50; input "x" [N, 3, H, W], output "y"; `width` scales the channels."""
    build = _Builder(quantized, width)

    def wide(n: int) -> int:
        return max(int(n * width), 8)

    x = build.conv(build.codes("x"), 3, wide(64), 7, 2, relu=True)
    pool: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    build.nodes.append(node("MaxPool", [x], ["pool"], "pool", **pool))
    x, inputs = "pool", wide(64)
    for blocks, middle, outputs, first_stride in STAGES:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            a = build.conv(x, inputs, wide(middle), 1, 1, relu=True)
            b = build.conv(a, wide(middle), wide(middle), 3, stride, relu=True)
            c = build.conv(b, wide(middle), wide(outputs), 1, 1, relu=False)
            side = x if block else build.conv(x, inputs, wide(outputs), 1, stride, relu=False)
            name = f"block{len(build.nodes)}"
            build.nodes.append(node("Add", [c, side], [name], name))
            build.nodes.append(node("Relu", [name], [f"{name}_relu"], f"{name}_relu"))
            x, inputs = build.codes(f"{name}_relu"), wide(outputs)
    build.nodes.append(node("GlobalAveragePool", [x], ["y"], "y"))
    return model(build.nodes, build.constants, [value("x", shape=["N", 3, "H", "W"])], [value("y", shape=None)])


def quantized_resnet_like(width: float = 1.0) -> onnx.ModelProto:
    """With uint8 activations and int8 weights, one scale a tensor."""
    return resnet_like(quantized=True, width=width)
