"""Small ONNX models for tests, written with onnx.helper; opset 21 unless said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def tensor(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def model(
    nodes: Sequence[onnx.NodeProto],
    initializers: Sequence[onnx.TensorProto] = (),
    *,
    inputs: Sequence[tuple[str, Sequence[int | str]]] = (("x", (1, 4)),),
    outputs: Sequence[str] = ("y",),
    opset: int = 21,
    extra_opsets: Sequence[tuple[str, int]] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    sparse: Sequence[onnx.SparseTensorProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in inputs],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        initializer=list(initializers),
        sparse_initializer=list(sparse),
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in extra_opsets)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)


def save(proto: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(proto.SerializeToString())
    return path


def mlp(weight: np.ndarray, bias: np.ndarray | None = None) -> onnx.ModelProto:
    """y = Relu(x·W [+ b]), W as [K, N]."""
    inits = [tensor("w", weight)]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h" if bias is not None else "m"], name="fc")]
    if bias is not None:
        inits.append(tensor("b", bias))
        nodes.append(helper.make_node("Add", ["h", "b"], ["m"], name="add"))
    nodes.append(helper.make_node("Relu", ["m"], ["y"], name="act"))
    return model(nodes, inits, inputs=[("x", (1, weight.shape[0]))])


def mlp_qdq(
    codes: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None = None, *, opset: int = 21, **attributes: Any
) -> onnx.ModelProto:
    """The same net with DequantizeLinear before the weight."""
    inits = [tensor("w_q", codes), tensor("w_s", scale)]
    inputs = ["w_q", "w_s"]
    if zero_point is not None:
        inits.append(tensor("w_z", zero_point))
        inputs.append("w_z")
    nodes = [
        helper.make_node("DequantizeLinear", inputs, ["w"], name="w_dq", **attributes),
        helper.make_node("MatMul", ["x", "w"], ["m"], name="fc"),
        helper.make_node("Relu", ["m"], ["y"], name="act"),
    ]
    return model(nodes, inits, inputs=[("x", (1, codes.shape[0]))], opset=opset)


def quantized_mlp(weight: np.ndarray) -> onnx.ModelProto:
    """A sound int8 form of `mlp(weight)`, a scale per output channel."""
    peak = np.abs(weight).max(axis=0)
    scale = np.where(peak > 0, peak / 127, 1).astype(np.float32)
    codes = np.clip(np.rint(weight / scale), -127, 127).astype(np.int8)
    return mlp_qdq(codes, scale, axis=1)
