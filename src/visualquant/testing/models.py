"""Small ONNX models, built in a line or two."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from visualquant.core.graph import GraphView
from visualquant.core.tensors import ELEMENT_TYPES, ElementType, TensorRef, element_type_of
from visualquant.formats.onnx_types import NUMBERS

Array = npt.NDArray[Any]
Shape = Sequence[int | str | None]


def data_type(dtype: ElementType | str) -> int:
    """The TensorProto.DataType number of an element type."""
    return NUMBERS[str(dtype)]


def tensor(name: str, array: Array, dtype: ElementType | str | None = None) -> onnx.TensorProto:
    """An initializer with raw data; packed types are packed as onnx.proto says."""
    kind = ELEMENT_TYPES[str(dtype)] if dtype is not None else element_type_of(array.dtype)
    ref = TensorRef.of(np.ascontiguousarray(array.astype(kind.numpy)).reshape(array.shape), kind)
    return onnx.TensorProto(name=name, data_type=data_type(kind), dims=array.shape, raw_data=ref.raw().tobytes())


def value(name: str, dtype: ElementType | str = "float32", shape: Shape | None = None) -> onnx.ValueInfoProto:
    """A graph input or output."""
    return helper.make_tensor_value_info(name, data_type(dtype), shape)


def node(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", domain: str = "", **attributes: Any
) -> onnx.NodeProto:
    """One operator; its name is its type where none is given."""
    return helper.make_node(op_type, inputs, outputs, name=name or op_type, domain=domain, **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    initializers: Sequence[onnx.TensorProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[onnx.ValueInfoProto] = (),
    opset: int = 21,
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model; domains of the nodes are imported at version 1 where `domains` says nothing else."""
    imports = {"": opset, **{n.domain: 1 for n in nodes if n.domain}, **(domains or {})}
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(initializers))
    opsets = [helper.make_opsetid(domain, version) for domain, version in imports.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def graph_of(proto: onnx.ModelProto) -> GraphView:
    """The graph of a model, read from a file as a user's would be."""
    from visualquant.formats.container import open_model

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(proto.SerializeToString())
        return open_model(path)
