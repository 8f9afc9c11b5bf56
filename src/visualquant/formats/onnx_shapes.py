"""Types and shapes of the values of an ONNX model, by onnx's own inference where the file does not state them."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from visualquant.core.graph import Dim
from visualquant.core.tensors import ElementType
from visualquant.formats.onnx_tensors import BY_NUMBER, text

TypeAndShape = tuple[ElementType | None, tuple[Dim, ...] | None]
_SMALL_BYTES = 4096


def type_of(info: onnx.TypeProto) -> TypeAndShape:
    """Element type and shape of a tensor type; (None, None) for sequences, maps and the like."""
    if not info.HasField("tensor_type"):
        return None, None
    tensor = info.tensor_type
    shape: tuple[Dim, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(
            int(d.dim_value) if d.HasField("dim_value") else (text(d.dim_param) or None) for d in tensor.shape.dim
        )
    return BY_NUMBER.get(tensor.elem_type), shape


def infer_types(model: onnx.ModelProto) -> Mapping[str, TypeAndShape]:
    """Type and shape by value name of the main graph; empty where inference refuses the model.

    Works on a copy without large initializers (their types stand in for them), so its cost does not grow with
    the weights. Operators that onnx does not know end inference behind them, nothing more.
    """
    slim = onnx.ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import)
    slim.functions.extend(model.functions)
    graph = slim.graph
    graph.name = "g"
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    graph.value_info.extend(model.graph.value_info)
    listed = {i.name for i in model.graph.input}
    for tensor in model.graph.initializer:
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        if not external and tensor.ByteSize() <= _SMALL_BYTES:
            graph.initializer.append(tensor)
        elif tensor.name not in listed:
            graph.input.append(onnx.helper.make_tensor_value_info(text(tensor.name), tensor.data_type, tensor.dims))
    try:
        inferred = onnx.shape_inference.infer_shapes(slim, data_prop=True)
    except Exception:  # NOTE: onnx raises RuntimeError, ValueError, InferenceError or DecodeError here
        inferred = model
    found: dict[str, TypeAndShape] = {}
    for source in (inferred.graph, model.graph):
        for info in (*source.value_info, *source.output, *source.input):
            dtype, shape = type_of(info.type)
            if dtype is not None and (shape is not None or text(info.name) not in found):
                found.setdefault(text(info.name), (dtype, shape))
    return found
