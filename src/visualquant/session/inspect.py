"""What is in one model, without a counterpart."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np

from visualquant._version import __version__
from visualquant.analysis.findings import find_alone
from visualquant.analysis.findings.context import value_range
from visualquant.analysis.summary import sentence
from visualquant.analysis.weights import WeightOptions, weights_alone
from visualquant.core.graph import GraphView
from visualquant.core.model import Model, node_key
from visualquant.core.operators import DEQUANTIZE_OPS, QUANTIZE_OPS, is_weight_slot
from visualquant.core.quant import QuantSite
from visualquant.core.report import CheckRow, Inspection, OperatorRow, SiteRow, ToolRow
from visualquant.core.trace import trace_operand
from visualquant.formats.onnx_checks import check_onnx
from visualquant.session.pipeline import Stage, load_model
from visualquant.session.rows import model_row


def inspect(
    path: Path | str,
    *,
    what_if: bool = False,
    data_root: Path | str | None = None,
    threads: int = 1,
    progress: Stage | None = None,
) -> Inspection:
    """Schemes, parameters, storage, what stays in float, checks and findings of one model.

    Args:
        path: the model.
        what_if: also what int8 and int4 in other forms would give for each float weight.
        data_root: see `compare`.
        threads: of the kernels.
        progress: see `compare`.

    Raises:
        InputError: the file can't be read.
    """
    model = load_model(path, data_root=data_root)
    options = WeightOptions(
        what_if=what_if,
        threads=threads,
        progress=None if progress is None else lambda done, total: progress("measuring weights", done, total),
    )
    return Inspection(
        tool=ToolRow("visualquant", __version__),
        model=model_row(model),
        sentence=sentence(model),
        operators=_operators(model),
        checks=_checks(Path(path), model.graph),
        sites=tuple(_site_row(model, s) for s in model.sites),
        weights=weights_alone(model, options) if what_if else (),
        left_float=_left_float(model),
        findings=find_alone(model),
    )


def _operators(model: Model) -> tuple[OperatorRow, ...]:
    readers = {s.reader for s in model.sites if s.reader is not None}
    plumbing = {n for s in model.sites for n in s.nodes}
    count: collections.Counter[tuple[str, str]] = collections.Counter()
    quantized: collections.Counter[tuple[str, str]] = collections.Counter()
    for node in model.graph.nodes:
        key = (node.op_type, node.domain)
        count[key] += 1
        quantized[key] += node.id in readers or node.id in plumbing
    ordered = sorted(count.items(), key=lambda item: (-item[1], item[0]))
    return tuple(OperatorRow(op, domain, n, quantized[op, domain]) for (op, domain), n in ordered)


def _checks(path: Path, graph: GraphView) -> tuple[CheckRow, ...]:
    checks = [CheckRow(*row) for row in check_onnx(path)] if graph.container == "onnx" else []
    computed = [v for v in graph.values if v.producer is not None and not v.scope]
    unknown = [v for v in computed if v.shape is None]
    message = f"{len(computed) - len(unknown)} of {len(computed)} computed tensors have a known shape"
    if unknown:
        message += f"; the first without one is {unknown[0].key!r}"
    checks.append(CheckRow("shape inference", not unknown, message + "."))
    return tuple(checks)


def _site_row(model: Model, site: QuantSite) -> SiteRow:
    params = site.params
    scale: tuple[float, float] | None = None
    if params is not None and params.scale.size and not np.isnan(params.scale).all():
        scale = (float(np.nanmin(params.scale)), float(np.nanmax(params.scale)))
    return SiteRow(
        value=model.key(site.value),
        role=site.role,
        scheme=site.scheme,
        code_type=None if params is None else params.code_type.name,
        granularity=None if params is None else params.granularity,
        axis=None if params is None else params.axis,
        block_size=None if params is None else params.block_size,
        symmetric=None if params is None else params.is_symmetric,
        scale=scale,
        range=value_range(params) if site.role == "activation" else None,
        node=None if site.reader is None else node_key(site.reader),
        problem=site.problem,
    )


def _left_float(model: Model) -> tuple[str, ...]:
    graph = model.graph
    readers = {s.reader for s in model.sites if s.role == "weight" and s.scheme != "stored_float"}
    if not readers:
        return ()
    found = []
    for node in graph.nodes:
        if node.id in readers or node.op_type in QUANTIZE_OPS | DEQUANTIZE_OPS:
            continue
        for slot, value in enumerate(node.inputs):
            const = None if value is None else graph.const(trace_operand(graph, value).source)
            if const is not None and is_weight_slot(node, slot) and const.dtype.is_float and len(const.shape) >= 2:
                found.append(node.name or node_key(node.id))
                break
    return tuple(found)
