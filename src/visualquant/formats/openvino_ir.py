"""The OpenVINO IR container: an .xml of layers with the weights in a .bin beside it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from visualquant.core.graph import Attribute, Dim, GraphView, NodeView, Role, ValueView
from visualquant.core.tensors import ELEMENT_TYPES, ElementType, FileSource, InlineSource, TensorRef
from visualquant.errors import ExternalDataError, ModelFileError
from visualquant.formats.container import Claim, FileProbe
from visualquant.formats.element_types import NF4
from visualquant.formats.onnx_types import NUMBERS
from visualquant.formats.openvino_ops import attributes_of, operator_of
from visualquant.formats.openvino_xml import Layer, Network, Port, read_network

NAME = "openvino"

# Element types by their name in <data element_type="…"> and, in capitals, in <port precision="…">.
_TYPES: dict[str, ElementType] = {
    "nf4": NF4,
    **{
        ours: ELEMENT_TYPES[onnx]
        for ours, onnx in {
            "f64": "float64",
            "f32": "float32",
            "f16": "float16",
            "bf16": "bfloat16",
            "i64": "int64",
            "i32": "int32",
            "i16": "int16",
            "i8": "int8",
            "i4": "int4",
            "u64": "uint64",
            "u32": "uint32",
            "u16": "uint16",
            "u8": "uint8",
            "u4": "uint4",
            "u2": "uint2",
            "boolean": "bool",
            "string": "string",
            "f8e4m3": "float8e4m3fn",
            "f8e5m2": "float8e5m2",
            "f8e8m0": "float8e8m0",
            "f4e2m1": "float4e2m1",
        }.items()
    },
}
_PRECISIONS = {"FP64": "f64", "FP32": "f32", "FP16": "f16", "BF16": "bf16", "BOOL": "boolean"}


def probe(probe: FileProbe) -> Claim | None:
    """XML whose first tag is <net>."""
    head = probe.head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return "certain" if head.startswith(b"<") and b"<net " in head else None


def read(path: Path, *, data_root: Path | None = None) -> GraphView:
    """The graph of an IR; weights stay in the .bin.

    Raises:
        ModelFileError: no readable IR.
        ExternalDataError: the .bin is missing or shorter than the layers say.
    """
    return _Builder(path, read_network(path), data_root).build()


@dataclasses.dataclass
class _Builder:
    path: Path
    net: Network
    data_root: Path | None

    def __post_init__(self) -> None:
        self.values: list[ValueView] = []
        self.made: dict[tuple[str, str], int] = {}
        self.taken: set[str] = set()
        self.notes: list[str] = []
        self.weights: tuple[Path, int] | None = None

    def build(self) -> GraphView:
        computing = [x for x in self.net.layers if x.type not in ("Parameter", "Const", "Result")]
        inputs = []
        for layer in self.net.layers:
            for port in layer.outputs:
                if layer.type == "Parameter":
                    inputs.append(self._value(layer, port, None))
                elif layer.type == "Const":
                    self._value(layer, port, None, self._const(layer))
        for node_id, layer in enumerate(computing):
            for port in layer.outputs:
                self._value(layer, port, node_id)
        nodes = [self._node(k, layer) for k, layer in enumerate(computing)]
        for node_id, layer in enumerate(computing):
            if _has_groups(layer):
                nodes.append(self._grouped_weight(nodes, node_id, layer))
        outputs = []
        for layer in self.net.layers:
            if layer.type == "Result" and layer.inputs:
                value = self._source(layer, layer.inputs[0])
                if value is not None:
                    outputs.append(value)
        for k in outputs:
            if self.values[k].role == "activation":
                self.values[k] = dataclasses.replace(self.values[k], role="output")
        version = next((v for key, v in self.net.info.items() if key.endswith("Runtime_version")), "")
        return GraphView(
            name=self.net.name,
            nodes=tuple(nodes),
            values=tuple(self.values),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            opsets={"openvino": int(self.net.version) if self.net.version.isdigit() else 0},
            producer=f"openvino {version}".strip(),
            metadata={k: v for k, v in self.net.info.items() if len(v) < 1000},
            container=NAME,
            notes=tuple(self.notes),
        )

    def _value(self, layer: Layer, port: Port, producer: int | None, const: TensorRef | None = None) -> int:
        name = next((n for n in port.names.split(",") if n), "") or layer.name
        if len(layer.outputs) > 1 and not port.names:
            name = f"{layer.name}:{port.id}"
        key = name if name not in self.taken else f"{name}#{layer.id}:{port.id}"
        self.taken.add(key)
        role: Role = "input" if layer.type == "Parameter" else "initializer" if const is not None else "activation"
        stated = _PRECISIONS.get(port.precision, port.precision.lower())
        dtype = _TYPES.get(stated) if const is None else const.dtype
        shape: tuple[Dim, ...] = tuple(n if n >= 0 else None for n in port.sizes)
        index = len(self.values)
        self.values.append(ValueView(index, name, key, dtype, shape, role, producer, const))
        self.made[layer.id, port.id] = index
        return index

    def _source(self, layer: Layer, port: Port) -> int | None:
        edge = self.net.edges.get((layer.id, port.id))
        found = None if edge is None else self.made.get(edge)
        if found is None:
            self.notes.append(f"the layer {layer.name!r} reads a port that nothing makes")
        return found

    def _node(self, node_id: int, layer: Layer) -> NodeView:
        domain, op_type = operator_of(layer)
        inputs = tuple(self._source(layer, port) for port in layer.inputs)
        target = _TYPES.get(layer.data.get("destination_type", "").lower())
        attributes = attributes_of(layer, None if target is None else NUMBERS.get(target.name, 0))
        if layer.has_body:
            self.notes.append(f"the body of {layer.name!r} ({layer.type}) is not looked into")
        if op_type in ("Transpose", "ReduceMean"):
            op_type, inputs = self._with_constant(op_type, inputs, attributes)
        elif op_type in ("Gather", "Split") and len(inputs) > 1:
            inputs = self._with_axis(inputs, -1 if op_type == "Gather" else 1, attributes)
        elif _has_groups(layer):
            attributes["group"] = layer.inputs[1].sizes[0]
        return NodeView(
            id=node_id,
            name=layer.name,
            op_type=op_type,
            domain=domain,
            inputs=inputs,
            outputs=tuple(self.made[layer.id, port.id] for port in layer.outputs),
            attributes=attributes,
            metadata={"openvino.type": layer.type},
        )

    def _grouped_weight(self, nodes: list[NodeView], node_id: int, layer: Layer) -> NodeView:
        """A Reshape between the weight [groups, channels, …] and its convolution, which ONNX gives [channels, …].

        The file has no such node; it stands behind all others, so that ids are those of the file's layers.
        """
        node = nodes[node_id]
        sizes = layer.inputs[1].sizes
        shape = (sizes[0] * sizes[1], *sizes[2:])
        made, name = len(self.values), f"{layer.name}/onnx_weight"
        weight = node.inputs[1]
        dtype = None if weight is None else self.values[weight].dtype
        added = len(nodes)
        self.values.append(ValueView(made, name, f"{name}#{layer.id}", dtype, shape, "activation", added))
        nodes[node_id] = dataclasses.replace(node, inputs=(node.inputs[0], made, *node.inputs[2:]))
        return NodeView(
            added, name, "Reshape", "", (weight,), (made,), {"shape": shape}, metadata={"openvino.type": ""}
        )

    def _with_constant(
        self, op_type: str, inputs: tuple[int | None, ...], attributes: dict[str, Attribute]
    ) -> tuple[str, tuple[int | None, ...]]:
        """Order and axes, which OpenVINO takes as a constant input, as ONNX's attribute."""
        const = self.values[inputs[1]].const if len(inputs) > 1 and inputs[1] is not None else None
        data = inputs[0]
        if const is None or not const.dtype.is_integer or const.size > 16 or data is None:
            return op_type, inputs
        numbers = tuple(int(x) for x in const.array().reshape(-1))
        if op_type == "Transpose":
            if numbers:
                attributes["perm"] = numbers
            return op_type, inputs[:1]
        shape = self.values[data].shape or ()
        spatial = tuple(range(2, len(shape)))
        if spatial and attributes.get("keepdims") and tuple(sorted(n % len(shape) for n in numbers)) == spatial:
            return "GlobalAveragePool", inputs[:1]
        attributes["axes"] = numbers
        return op_type, inputs[:1]

    def _with_axis(
        self, inputs: tuple[int | None, ...], slot: int, attributes: dict[str, Attribute]
    ) -> tuple[int | None, ...]:
        """The axis, which OpenVINO takes as a constant input, as ONNX's attribute."""
        value = inputs[slot]
        const = None if value is None else self.values[value].const
        if const is None or const.size != 1 or not const.dtype.is_integer:
            return inputs
        attributes["axis"] = int(const.array().reshape(-1)[0])
        if attributes.get("batch_dims") == 0:
            del attributes["batch_dims"]
        at = slot % len(inputs)
        return (*inputs[:at], *inputs[at + 1 :])

    def _const(self, layer: Layer) -> TensorRef:
        where = f"the Const layer {layer.name!r} of {self.path.name!r}"
        dtype = _TYPES.get(layer.data.get("element_type", ""))
        if dtype is None:
            raise ModelFileError(
                f"{where} has element type {layer.data.get('element_type')!r}, which is not known here: the file is "
                "damaged, or newer than this version of visualquant."
            )
        try:
            shape = tuple(int(n) for n in layer.data.get("shape", "").split(",") if n.strip())
            offset, size = int(layer.data.get("offset", "0")), int(layer.data.get("size", "0"))
        except ValueError as error:
            raise ModelFileError(f"{where} has a shape, offset or size that is no number.") from error
        ref = TensorRef(dtype, shape, InlineSource(np.empty(0, np.uint8)))
        if dtype.kind == "string" or ref.nbytes == 0:
            return ref
        if any(n < 0 for n in shape) or size < ref.nbytes:
            raise ModelFileError(f"{where} has {size} bytes for {dtype} of shape {list(shape)}: the file is damaged.")
        path, length = self._weights_file(where)
        if offset < 0 or offset + ref.nbytes > length:
            raise ExternalDataError(
                f"{where} needs {ref.nbytes} bytes at offset {offset} of {path.name!r}, which has {length} bytes: it "
                "is cut short, or belongs to another .xml. Export both again."
            )
        return dataclasses.replace(ref, source=FileSource(path, offset, ref.nbytes))

    def _weights_file(self, where: str) -> tuple[Path, int]:
        if self.weights is None:
            name = self.path.with_suffix(".bin").name
            for root in (self.path.parent, *([self.data_root] if self.data_root else [])):
                candidate = root / name
                if candidate.is_file():
                    self.weights = (candidate, candidate.stat().st_size)
                    return self.weights
            raise ExternalDataError(
                f"{where} needs {name!r}, which is missing beside the .xml. Copy it there, or name its folder with "
                "--data-root DIR."
            )
        return self.weights


def _has_groups(layer: Layer) -> bool:
    """True for grouped convolutions whose weight has known sizes."""
    grouped = layer.type in ("GroupConvolution", "GroupConvolutionBackpropData")
    return grouped and len(layer.inputs) > 1 and len(layer.inputs[1].sizes) > 2 and min(layer.inputs[1].sizes) > 0
