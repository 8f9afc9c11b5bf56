"""TensorRT's layer information and profile (trtexec --exportLayerInfo, --exportProfile) as a graph without weights.

Source of the shapes: TensorRT developer guide, engine inspector; NVIDIA/TensorRT, trt-engine-explorer, parser.py.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from visualquant.core.graph import Attribute, Dim, GraphView, NodeView, Role, ValueView
from visualquant.core.tensors import ELEMENT_TYPES, ElementType
from visualquant.errors import ModelFileError
from visualquant.formats.container import Claim, FileProbe
from visualquant.formats.json_file import read_json

NAME = "tensorrt"
DOMAIN = "tensorrt"

_OPERATORS = {
    "Convolution": "Conv",
    "Deconvolution": "ConvTranspose",
    "MatrixMultiply": "MatMul",
    "gemm": "MatMul",
    "FullyConnected": "Gemm",
    "SoftMax": "Softmax",
    "SoftMaxV2": "Softmax",
    "Concatenation": "Concat",
    "Shuffle": "Reshape",
    "Slice": "Slice",
    "Gather": "Gather",
    "Resize": "Resize",
    "TopK": "TopK",
    "Normalization": "LayerNormalization",
    "Quantize": "QuantizeLinear",
    "Dequantize": "DequantizeLinear",
    "Identity": "Identity",
    "Cast": "Cast",
    "Select": "Where",
    "Shape": "Shape",
    "Constant": "Constant",
}
_ACTIVATIONS = {"RELU": "Relu", "SIGMOID": "Sigmoid", "TANH": "Tanh", "LEAKY_RELU": "LeakyRelu", "ELU": "Elu"}
_ELEMENTWISE = {"Sum": "Add", "Prod": "Mul", "Sub": "Sub", "Div": "Div", "Max": "Max", "Min": "Min", "Pow": "Pow"}
_TYPES = (
    (r"fp32|float32|\bfloat\b", "float32"),
    (r"bf16|bfloat16", "bfloat16"),
    (r"fp16|half", "float16"),
    (r"fp8|float8", "float8e4m3fn"),
    (r"fp4|float4", "float4e2m1"),
    (r"uint8", "uint8"),
    (r"int8", "int8"),
    (r"int4", "int4"),
    (r"int64", "int64"),
    (r"int32", "int32"),
    (r"\bbool", "bool"),
)
_SEPARATORS = re.compile("[\x1e\x1f]")


def probe(probe: FileProbe) -> Claim | None:
    """A JSON object with "Layers", or a list of records with a name and times."""
    head = probe.head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"{") and b'"Layers"' in head:
        return "certain"
    return "likely" if head.startswith(b"[") and (b'"averageMs"' in head or b'"timeMs"' in head) else None


def read(path: Path, *, data_root: Path | None = None) -> GraphView:
    """The graph of an engine's layers, with their times where a profile lies beside the file.

    A profile alone gives the layers in order, without edges. Times stand in `NodeView.metadata`: latency_average_us,
    latency_median_us and latency_percent. Fused layers name their members in the attribute "members".

    Raises:
        ModelFileError: neither of the two files.
    """
    found = read_json(path, "layer information or a profile of TensorRT")
    if isinstance(found, list):
        return _Engine(path, _named(found), [], _times(found)).build()
    layers = found.get("Layers") if isinstance(found, dict) else None
    if not isinstance(layers, list) or not layers:
        raise ModelFileError(f"{path.name!r} has no list of layers: it is no layer information of TensorRT.")
    bindings = found.get("Bindings")
    names = [str(b) for b in bindings] if isinstance(bindings, list) else []
    return _Engine(path, layers, names, _profile_beside(path, data_root)).build()


def members_of(name: str) -> tuple[str, ...]:
    """Names of the layers that a fused layer stands for, in order.

    "conv1 + relu1" and "conv1 || conv2" are lists, "PWN(sigmoid, mul)" is a pointwise fusion of its arguments,
    "{ForeignNode[a...b]}" everything from a to b.
    """
    text = _SEPARATORS.sub(" + ", name).strip()
    foreign = re.fullmatch(r"\{ForeignNode\[(.*?)\.\.\.(.*?)\]\}", text)
    if foreign:
        return tuple(part for part in foreign.groups() if part)
    if text.startswith("PWN(") and text.endswith(")") and _closes_at_end(text[3:]):
        return tuple(m for part in _split(text[4:-1], (", ",)) for m in members_of(part))
    parts = _split(text, (" + ", " || "))
    if len(parts) > 1:
        return tuple(m for part in parts for m in members_of(part))
    return (text,) if text else ()


def _closes_at_end(text: str) -> bool:
    """True where the bracket that opens `text` closes with its last character."""
    depth = 0
    for k, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return k == len(text) - 1
    return False


def _split(text: str, separators: Sequence[str]) -> list[str]:
    """Parts of a text at separators outside of brackets."""
    parts, depth, start, k = [], 0, 0, 0
    while k < len(text):
        depth += (text[k] in "([{") - (text[k] in ")]}")
        found = next((s for s in separators if text.startswith(s, k)), None) if depth == 0 else None
        if found:
            parts.append(text[start:k])
            k += len(found)
            start = k
        else:
            k += 1
    return [p.strip() for p in (*parts, text[start:]) if p.strip()]


def _named(records: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"Name": str(r["name"])} for r in records if isinstance(r, dict) and "name" in r]


def _times(records: Sequence[Any]) -> dict[str, dict[str, str]]:
    """Times by layer name, in microseconds."""
    found: dict[str, dict[str, str]] = {}
    for record in records:
        if not isinstance(record, dict) or "name" not in record:
            continue
        times = {}
        for theirs, ours, factor in (
            ("averageMs", "latency_average_us", 1000.0),
            ("medianMs", "latency_median_us", 1000.0),
            ("percentage", "latency_percent", 1.0),
        ):
            value = record.get(theirs)
            if isinstance(value, int | float) and not isinstance(value, bool):
                times[ours] = repr(float(value) * factor)
        found[str(record["name"])] = times
    return found


def _profile_beside(path: Path, data_root: Path | None) -> dict[str, dict[str, str]]:
    """The profile whose file name says "profile" where this one says "graph" or "layer…"; empty where there is none."""
    name = re.sub(r"graph|layer[_-]?info|layers?", "profile", path.name, count=1)
    candidates = [name, f"{path.stem}.profile.json"]
    for root in (path.parent, *([data_root] if data_root else [])):
        for candidate in candidates:
            if candidate != path.name and (root / candidate).is_file():
                records = read_json(root / candidate, "a profile of TensorRT")
                return _times(records) if isinstance(records, list) else {}
    return {}


@dataclasses.dataclass
class _Engine:
    path: Path
    layers: Sequence[Any]
    bindings: Sequence[str]
    times: Mapping[str, Mapping[str, str]]

    def __post_init__(self) -> None:
        self.values: list[ValueView] = []
        self.ids: dict[str, int] = {}
        self.notes: list[str] = []

    def build(self) -> GraphView:
        rows: list[dict[str, Any]] = []
        for layer in self.layers:
            if isinstance(layer, str):
                rows.append({"Name": layer})
            elif isinstance(layer, dict) and isinstance(layer.get("Name"), str):
                rows.append(layer)
            else:
                raise ModelFileError(f"{self.path.name!r} has a layer without a name: it is damaged.")
        if not any("LayerType" in row for row in rows):
            self.notes.append(
                "the file holds layer names only; build the engine with --profilingVerbosity=detailed to see its graph"
            )
        nodes = tuple(self._node(k, row) for k, row in enumerate(rows))
        made = {v for node in nodes for v in node.outputs if v is not None}
        for node in nodes:
            for value in node.outputs:
                if value is not None:
                    self.values[value] = dataclasses.replace(self.values[value], producer=node.id)
        inputs: list[int] = []
        outputs: list[int] = []
        for name in self.bindings:
            value = self.ids.get(name)
            if value is not None:
                role: Role = "output" if value in made else "input"
                self.values[value] = dataclasses.replace(self.values[value], role=role)
                (outputs if value in made else inputs).append(value)
        return GraphView(
            name=self.path.stem,
            nodes=nodes,
            values=tuple(self.values),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            producer="tensorrt",
            container=NAME,
            notes=tuple(self.notes),
        )

    def _node(self, node_id: int, row: Mapping[str, Any]) -> NodeView:
        name = _SEPARATORS.sub(" + ", str(row["Name"]))
        domain, op_type = _operator(row)
        attributes: dict[str, Attribute] = {"members": members_of(str(row["Name"]))}
        for theirs, ours in (("LayerType", "layer_type"), ("TacticName", "tactic"), ("Activation", "activation")):
            if isinstance(row.get(theirs), str) and row[theirs]:
                attributes[ours] = row[theirs]
        for key in ("Kernel", "Stride", "Dilation", "PrePadding", "PostPadding"):
            sizes = row.get(key)
            if isinstance(sizes, list) and all(isinstance(n, int) for n in sizes):
                attributes[key.lower()] = tuple(sizes)
        weights = row.get("Weights")
        if isinstance(weights, dict) and "Count" in weights:
            attributes["weights_type"] = str(weights.get("Type", ""))
            attributes["weights_count"] = int(weights["Count"])
        metadata = dict(self.times.get(str(row["Name"]), {}))
        onnx_names = re.findall(r"\[ONNX Layer: (.*?)\]", str(row.get("Metadata", "")))
        if onnx_names:
            attributes["onnx_names"] = tuple(onnx_names)
        return NodeView(
            id=node_id,
            name=name,
            op_type=op_type,
            domain=domain,
            inputs=tuple(self._value(t) for t in _tensors(row, "Inputs")),
            outputs=tuple(self._value(t) for t in _tensors(row, "Outputs")),
            attributes=attributes,
            metadata=metadata,
        )

    def _value(self, tensor: Mapping[str, Any]) -> int:
        name = str(tensor["Name"])
        if name not in self.ids:
            sizes = tensor.get("Dimensions")
            shape: tuple[Dim, ...] | None = None
            if isinstance(sizes, list):
                shape = tuple(n if isinstance(n, int) and n >= 0 else None for n in sizes)
            self.ids[name] = len(self.values)
            self.values.append(ValueView(len(self.values), name, name, _type_of(tensor), shape, "activation"))
        return self.ids[name]


def _tensors(row: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = row.get(key)
    return [t for t in found if isinstance(t, dict) and "Name" in t] if isinstance(found, list) else []


def _type_of(tensor: Mapping[str, Any]) -> ElementType | None:
    text = " ".join(str(tensor.get(key, "")) for key in ("Format/Datatype", "Datatype", "Format")).lower()
    return next((ELEMENT_TYPES[name] for pattern, name in _TYPES if re.search(pattern, text)), None)


def _operator(row: Mapping[str, Any]) -> tuple[str, str]:
    """(domain, operator type), in ONNX's words where there is one for the layer."""
    kinds = [str(row[key]) for key in ("ParameterType", "LayerType") if isinstance(row.get(key), str)]
    for kind in kinds:
        if kind == "Activation":
            return "", _ACTIVATIONS.get(str(row.get("ActivationType", row.get("Activation", ""))).upper(), "Activation")
        if kind == "ElementWise":
            return "", _ELEMENTWISE.get(str(row.get("ElementWiseOperation", row.get("Operation", "Sum"))), "Add")
        if kind == "Pooling":
            return "", "AveragePool" if "average" in str(row.get("PoolingType", "")).lower() else "MaxPool"
        if kind in _OPERATORS:
            if kind == "Convolution" and "Deconvolution" in str(row.get("LayerType", "")):
                return "", "ConvTranspose"
            return "", _OPERATORS[kind]
    return DOMAIN, kinds[-1] if kinds else "Layer"
