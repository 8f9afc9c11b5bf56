"""Types and shapes of the values of an ONNX model, by onnx's own inference where the file does not state them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import onnx

from visualquant.core.graph import Dim
from visualquant.core.tensors import ElementType
from visualquant.formats.onnx_tensors import text
from visualquant.formats.onnx_types import BY_NUMBER

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
        if not external and tensor.ByteSize() <= _SMALL_BYTES and is_whole(tensor):
            graph.initializer.append(tensor)
        elif tensor.name not in listed:
            graph.input.append(onnx.helper.make_tensor_value_info(text(tensor.name), tensor.data_type, tensor.dims))
    try:
        inferred = onnx.shape_inference.infer_shapes(slim, data_prop=True) if _is_safe(model) else model
    except Exception:  # NOTE: onnx raises RuntimeError, ValueError, InferenceError or DecodeError here
        inferred = model
    found: dict[str, TypeAndShape] = {}
    for source in (inferred.graph, model.graph):
        for info in (*source.value_info, *source.output, *source.input):
            dtype, shape = type_of(info.type)
            if dtype is not None and (shape is not None or text(info.name) not in found):
                found.setdefault(text(info.name), (dtype, shape))
    return found


def is_whole(tensor: onnx.TensorProto) -> bool:
    """True where a tensor stores as many bytes or entries as its type and shape need."""
    dtype = BY_NUMBER.get(tensor.data_type)
    if dtype is None or any(n < 0 for n in tensor.dims):
        return False
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return True
    count = math.prod(tensor.dims)
    if tensor.raw_data:
        return len(tensor.raw_data) >= dtype.storage_bytes(count)
    lists = (tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data)
    entries = max(len(tensor.string_data), *(len(x) for x in lists))
    return entries >= (-(-count * dtype.bits // 8) if dtype.is_packed and dtype.bits != 6 else count)


def _is_safe(model: onnx.ModelProto) -> bool:
    """False for models on which onnx's inference (seen in 1.18 to 1.21) ends the process.

    Those are tensors in attributes that are cut short, and functions that call themselves.
    """
    bodies = {(f.domain, f.name): f.node for f in model.functions}
    state: dict[tuple[str, str], int] = {}

    def visit(nodes: Iterable[onnx.NodeProto]) -> bool:
        for node in nodes:
            for attribute in node.attribute:
                if attribute.HasField("t") and not is_whole(attribute.t):
                    return False
                graphs = [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
                for graph in graphs:
                    if not (all(is_whole(t) for t in graph.initializer) and visit(graph.node)):
                        return False
            key = (node.domain, node.op_type)
            if key in bodies and state.get(key) != _DONE:
                if state.get(key) == _OPEN:
                    return False
                state[key] = _OPEN
                if not visit(bodies[key]):
                    return False
                state[key] = _DONE
        return True

    try:
        return visit(model.graph.node) and all(visit(nodes) for nodes in bodies.values())
    except RecursionError:
        return False


_OPEN, _DONE = 1, 2
