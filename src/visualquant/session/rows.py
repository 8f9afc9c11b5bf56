"""Graphs and alignments as rows of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from visualquant.analysis.storage import storage
from visualquant.core.alignment import Alignment
from visualquant.core.graph import Attribute, Dim, GraphView
from visualquant.core.model import Model, node_key
from visualquant.core.report import FusionRow, GroupRow, ModelRow, ModelsRow, NodeRow, ValueRow
from visualquant.core.tensors import TensorRef

SHORT_ATTRIBUTE = 64


def models_row(float_model: Model, quant_model: Model | None) -> ModelsRow:
    """Both models."""
    return ModelsRow(model_row(float_model), None if quant_model is None else model_row(quant_model))


def model_row(model: Model) -> ModelRow:
    """One model's file, origin and storage."""
    graph = model.graph
    return ModelRow(
        name=model.name,
        bytes=model.bytes,
        bytes_external=model.bytes_external,
        nodes=len(graph.nodes),
        sha256=model.sha256,
        container=graph.container,
        opset=dict(graph.opsets),
        ir_version=graph.ir_version or None,
        producer=graph.producer,
        quantizer=model.quantizer,
        schemes=model.schemes,
        storage=storage(model),
        notes=(*graph.notes[:20], *model.conflicts[:20]),
    )


def node_rows(graph: GraphView) -> tuple[NodeRow, ...]:
    """Every node, those of bodies too; Constant nodes are values."""
    keys = [v.key for v in graph.values]
    return tuple(
        NodeRow(
            id=node_key(n.id),
            name=n.name,
            op_type=n.op_type,
            domain=n.domain,
            inputs=tuple("" if v is None else keys[v] for v in n.inputs),
            outputs=tuple("" if v is None else keys[v] for v in n.outputs),
            attributes=_short(n.attributes),
            scope=n.scope,
        )
        for n in graph.nodes
    )


def _short(attributes: Mapping[str, Attribute]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in attributes.items():
        if isinstance(value, TensorRef):
            found[name] = f"<{value.dtype} {list(value.shape)}>"
        elif isinstance(value, bytes):
            found[name] = f"<{len(value)} bytes>"
        elif isinstance(value, str | tuple) and len(value) > SHORT_ATTRIBUTE:
            found[name] = f"<{len(value)} {'characters' if isinstance(value, str) else 'values'}>"
        else:
            found[name] = value
    return found


def value_rows(graph: GraphView) -> dict[str, ValueRow]:
    """Every value by its unique key."""
    return {
        v.key: ValueRow(
            role=v.role,
            dtype=None if v.dtype is None else v.dtype.name,
            shape=None if v.shape is None else tuple(_size(d) for d in v.shape),
        )
        for v in graph.values
    }


def _size(dim: Dim) -> int | str:
    return "?" if dim is None else dim


def alignment_rows(alignment: Alignment) -> tuple[GroupRow, ...]:
    """Every group."""
    return tuple(
        GroupRow(
            group=g.id,
            kind=g.kind,
            float=tuple(node_key(n) for n in g.float_nodes),
            quant=tuple(node_key(n) for n in g.quant_nodes),
            confidence=round(g.confidence, 4),
            evidence=g.evidence,
            reason=g.reason or None,
        )
        for g in alignment.groups
    )


def fusion_rows(alignment: Alignment, quant_model: Model, blocked: frozenset[str]) -> tuple[FusionRow, ...]:
    """Every recognised fusion, with the quantization points in its group.

    Args:
        alignment: of the two models.
        quant_model: the quantized one.
        blocked: groups in which a Q/DQ pair stands inside the pattern.
    """
    points: dict[str, dict[str, None]] = {}
    for site in quant_model.sites:
        for node in (*site.nodes, *(() if site.reader is None else (site.reader,))):
            group = alignment.group_of_quant.get(node)
            if group is not None:
                points.setdefault(group.id, {})[quant_model.key(site.value)] = None
    return tuple(
        FusionRow(
            pattern=f.pattern,
            group=f.group,
            float=tuple(node_key(n) for n in f.float_nodes),
            quant=tuple(node_key(n) for n in f.quant_nodes),
            quant_points=tuple(points.get(f.group, ())),
            blocked=f.group in blocked,
        )
        for f in alignment.fusions
    )
