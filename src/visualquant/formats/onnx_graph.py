"""Flattens a ModelProto: main graph, bodies of If/Loop/Scan, and one instance of each function call."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx

from visualquant.core.graph import Attribute, Body, Dim, GraphView, NodeView, Role, ValueView
from visualquant.core.tensors import ELEMENT_TYPES, ElementType, InlineSource, TensorRef
from visualquant.errors import ModelFileError
from visualquant.formats.onnx_shapes import TypeAndShape, type_of
from visualquant.formats.onnx_tensors import TensorReader, element_type, text

MAX_NODES = 5_000_000
MAX_DEPTH = 64
_A = onnx.AttributeProto


@dataclasses.dataclass
class _Scope:
    """Names visible at one place: its own values, then those of the scope around it."""

    path: str
    outer: _Scope | None
    ids: dict[str, int | None] = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, onnx.AttributeProto] = dataclasses.field(default_factory=dict)
    depth: int = 0

    def find(self, name: str) -> int | None:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.ids:
                return scope.ids[name]
            scope = scope.outer
        raise KeyError(name)

    def attribute(self, name: str) -> onnx.AttributeProto | None:
        """A function's attribute by name, from the nearest call around."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.attributes:
                return scope.attributes[name]
            scope = scope.outer
        return None


@dataclasses.dataclass
class _Value:
    name: str
    scope: str
    role: Role
    dtype: ElementType | None = None
    shape: tuple[Dim, ...] | None = None
    producer: int | None = None
    const: TensorRef | None = None


class GraphBuilder:
    """Builds one `GraphView` from one model."""

    def __init__(self, model: onnx.ModelProto, tensors: TensorReader, types: Mapping[str, TypeAndShape]) -> None:
        self.model = model
        self.tensors = tensors
        self.types = types
        self.functions = {(text(f.domain), text(f.name), text(f.overload)): f for f in model.functions}
        self.nodes: list[NodeView | None] = []
        self.values: list[_Value] = []
        self.notes: list[str] = []

    def build(self) -> GraphView:
        """The whole model, flat."""
        graph = self.model.graph
        scope = _Scope("", None)
        stored = {text(i.name) for i in graph.initializer} | {text(i.values.name) for i in graph.sparse_initializer}
        inputs = []
        for info in graph.input:
            if text(info.name) not in stored:
                dtype, shape = type_of(info.type)
                inputs.append(self._value(scope, text(info.name), "input", dtype, shape))
        self._initializers(scope, graph.initializer, graph.sparse_initializer)
        self._body_nodes(scope, graph.node, None)
        outputs = []
        for info in graph.output:
            found = self._use(scope, text(info.name), "the graph's outputs")
            if found is not None:
                outputs.append(found)
                if self.values[found].role == "activation":
                    self.values[found].role = "output"
        return GraphView(
            name=text(graph.name),
            nodes=tuple(n for n in self.nodes if n is not None),
            values=self._finished(),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            opsets={_domain(o.domain): int(o.version) for o in self.model.opset_import},
            ir_version=int(self.model.ir_version),
            producer=" ".join(text(x) for x in (self.model.producer_name, self.model.producer_version) if x),
            functions=frozenset((domain, name) for domain, name, _ in self.functions),
            metadata={text(p.key): text(p.value) for p in self.model.metadata_props},
            container="onnx",
            notes=tuple(self.notes),
        )

    def _finished(self) -> tuple[ValueView, ...]:
        taken: set[str] = set()
        views = []
        for index, value in enumerate(self.values):
            key = value.name
            if key in taken:
                key = f"{value.scope}::{value.name}" if value.scope else f"{value.name}#{index}"
            if key in taken:
                key = f"{key}#{index}"
            taken.add(key)
            views.append(
                ValueView(
                    index,
                    value.name,
                    key,
                    value.dtype,
                    value.shape,
                    value.role,
                    value.producer,
                    value.const,
                    value.scope,
                )
            )
        return tuple(views)

    def _value(
        self,
        scope: _Scope,
        name: str,
        role: Role,
        dtype: ElementType | None = None,
        shape: tuple[Dim, ...] | None = None,
        const: TensorRef | None = None,
    ) -> int:
        if const is not None:
            dtype, shape = const.dtype, const.shape
        elif dtype is None and not scope.path:
            dtype, shape = self.types.get(name, (None, None))
        if name in scope.ids and role != "activation":
            self.notes.append(f"the name {name!r} is given to two tensors; the later one counts")
        self.values.append(_Value(name, scope.path, role, dtype, shape, None, const))
        scope.ids[name] = len(self.values) - 1
        return len(self.values) - 1

    def _initializers(
        self, scope: _Scope, dense: Iterable[onnx.TensorProto], sparse: Iterable[onnx.SparseTensorProto]
    ) -> None:
        for tensor in dense:
            self._value(scope, text(tensor.name), "initializer", const=self.tensors.read(tensor))
        for item in sparse:
            name = text(item.values.name)
            self._value(scope, name, "initializer", const=self.tensors.read_sparse(item, name))

    def _use(self, scope: _Scope, name: str, where: str) -> int | None:
        if not name:
            return None
        try:
            return scope.find(name)
        except KeyError:
            self.notes.append(f"{where} read {name!r}, which nothing makes")
            return self._value(scope, name, "activation")

    def _body_nodes(self, scope: _Scope, protos: Sequence[onnx.NodeProto], parent: int | None) -> list[int]:
        """Adds the nodes of one graph; outputs come before any input is looked up, since files need not be sorted."""
        if scope.depth > MAX_DEPTH or len(self.nodes) + len(protos) > MAX_NODES:
            raise ModelFileError(
                f"{self.tensors.model_path.name!r} nests graphs or functions deeper than {MAX_DEPTH}, or has more than "
                f"{MAX_NODES:,} nodes once its functions are expanded: the file is damaged or hostile."
            )
        ids: list[int] = []
        outputs: list[tuple[int | None, ...]] = []
        kept: list[onnx.NodeProto] = []
        for proto in protos:
            if proto.op_type == "Constant" and proto.domain in ("", "ai.onnx") and proto.output:
                self._constant(scope, proto)
                continue
            node_id = len(self.nodes)
            self.nodes.append(None)
            made: list[int | None] = []
            for name in map(text, proto.output):
                if not name:
                    made.append(None)
                    continue
                if name in scope.ids:
                    self.notes.append(f"the name {name!r} is given to two tensors; the later one counts")
                value = self._value(scope, name, "activation")
                self.values[value].producer = node_id
                made.append(value)
            ids.append(node_id)
            outputs.append(tuple(made))
            kept.append(proto)
        for node_id, made_ids, proto in zip(ids, outputs, kept, strict=True):
            self._node(scope, proto, node_id, made_ids, parent)
        return ids

    def _constant(self, scope: _Scope, proto: onnx.NodeProto) -> None:
        name = text(proto.output[0])
        ref: TensorRef | None = None
        for raw in proto.attribute:
            attr = self._resolve(scope, raw)
            if attr is None:
                continue
            if attr.type == _A.TENSOR:
                ref = self.tensors.read(attr.t, name)
            elif attr.type == _A.SPARSE_TENSOR:
                ref = self.tensors.read_sparse(attr.sparse_tensor, name)
            elif attr.type == _A.FLOAT:
                ref = TensorRef.of(np.array(attr.f, np.float32))
            elif attr.type == _A.FLOATS:
                ref = TensorRef.of(np.array(attr.floats, np.float32))
            elif attr.type == _A.INT:
                ref = TensorRef.of(np.array(attr.i, np.int64))
            elif attr.type == _A.INTS:
                ref = TensorRef.of(np.array(attr.ints, np.int64))
            elif attr.type in (_A.STRING, _A.STRINGS):
                shape = () if attr.type == _A.STRING else (len(attr.strings),)
                ref = TensorRef(ELEMENT_TYPES["string"], shape, InlineSource(np.empty(0, np.uint8)))
        if ref is None:
            self.notes.append(f"the Constant {name!r} has no value")
            self._value(scope, name, "activation")
        else:
            self._value(scope, name, "initializer", const=ref)

    def _node(
        self, scope: _Scope, proto: onnx.NodeProto, node_id: int, outputs: tuple[int | None, ...], parent: int | None
    ) -> None:
        op_type, domain = text(proto.op_type), _domain(proto.domain)
        label = text(proto.name) or f"{op_type}_{node_id}"
        inputs = tuple(self._use(scope, text(name), f"the node {label!r} wants to") for name in proto.input)
        attributes: dict[str, Attribute] = {}
        bodies: list[Body] = []
        path = f"{scope.path}/{label}" if scope.path else label
        for raw in proto.attribute:
            attr = self._resolve(scope, raw)
            if attr is None:
                continue
            graphs = [attr.g] if attr.type == _A.GRAPH else list(attr.graphs) if attr.type == _A.GRAPHS else []
            for graph in graphs:
                bodies.append(self._body(scope, graph, f"{path}/{text(raw.name)}", text(raw.name), node_id))
            if not graphs and (value := self._attribute(attr, text(raw.name))) is not None:
                attributes[text(raw.name)] = value
        function = self.functions.get((text(proto.domain), op_type, text(proto.overload)))
        if function is not None:
            bodies.append(self._call(scope, function, proto, inputs, path, node_id))
        self.nodes[node_id] = NodeView(
            id=node_id,
            name=text(proto.name),
            op_type=op_type,
            domain=domain,
            inputs=inputs,
            outputs=outputs,
            attributes=attributes,
            scope=scope.path,
            parent=parent,
            bodies=tuple(bodies),
            metadata={text(p.key): text(p.value) for p in proto.metadata_props},
        )

    def _resolve(self, scope: _Scope, attr: onnx.AttributeProto) -> onnx.AttributeProto | None:
        """The attribute itself, or what the call gave for one that refers to the function's attribute."""
        return scope.attribute(text(attr.ref_attr_name)) if attr.ref_attr_name else attr

    def _body(self, scope: _Scope, graph: onnx.GraphProto, path: str, name: str, parent: int) -> Body:
        inner = _Scope(path, scope, depth=scope.depth + 1)
        inputs = []
        for info in graph.input:
            dtype, shape = type_of(info.type)
            inputs.append(self._value(inner, text(info.name), "activation", dtype, shape))
        self._initializers(inner, graph.initializer, graph.sparse_initializer)
        nodes = self._body_nodes(inner, graph.node, parent)
        stated = {text(i.name): type_of(i.type) for i in (*graph.value_info, *graph.output)}
        for value_name, (dtype, shape) in stated.items():
            found = inner.ids.get(value_name)
            if found is not None and self.values[found].dtype is None:
                self.values[found].dtype, self.values[found].shape = dtype, shape
        outputs = tuple(self._use(inner, text(o.name), f"the outputs of {path!r}") for o in graph.output)
        return Body(name, tuple(inputs), outputs, tuple(nodes))

    def _call(
        self,
        scope: _Scope,
        function: onnx.FunctionProto,
        proto: onnx.NodeProto,
        inputs: tuple[int | None, ...],
        path: str,
        parent: int,
    ) -> Body:
        given = {text(a.name): self._resolve(scope, a) for a in proto.attribute}
        attributes = {text(a.name): a for a in function.attribute_proto}
        attributes.update({k: v for k, v in given.items() if v is not None})
        inner = _Scope(path, None, attributes=attributes, depth=scope.depth + 1)
        for k, name in enumerate(map(text, function.input)):
            inner.ids[name] = inputs[k] if k < len(inputs) else None
        nodes = self._body_nodes(inner, function.node, parent)
        outputs = tuple(self._use(inner, text(name), f"the outputs of {path!r}") for name in function.output)
        return Body("function", (), outputs, tuple(nodes))

    def _attribute(self, attr: onnx.AttributeProto, name: str) -> Attribute | None:
        if attr.type == _A.FLOAT:
            return float(attr.f)
        if attr.type == _A.INT:
            return int(attr.i)
        if attr.type == _A.STRING:
            return attr.s.decode("utf-8", "replace")
        if attr.type == _A.FLOATS:
            return tuple(float(x) for x in attr.floats)
        if attr.type == _A.INTS:
            return tuple(int(x) for x in attr.ints)
        if attr.type == _A.STRINGS:
            return tuple(s.decode("utf-8", "replace") for s in attr.strings)
        if attr.type == _A.TENSOR:
            return self.tensors.read(attr.t, name)
        if attr.type == _A.SPARSE_TENSOR:
            return self.tensors.read_sparse(attr.sparse_tensor, name)
        if attr.type == _A.TYPE_PROTO:
            dtype = attr.tp.tensor_type.elem_type
            return element_type(dtype, f"attribute {name!r}").name if dtype else ""
        return None


def _domain(raw: str) -> str:
    """A domain; "ai.onnx" is the ONNX domain, which is written as nothing."""
    domain = text(raw)
    return "" if domain == "ai.onnx" else domain
