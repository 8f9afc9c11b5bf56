"""What the weights of a model cost, and how much of its compute is quantized."""

from __future__ import annotations

import math

from visualquant.core.alignment import Alignment
from visualquant.core.graph import GraphView, NodeView
from visualquant.core.model import Model
from visualquant.core.operators import WEIGHT_SLOTS, is_weight_slot
from visualquant.core.quant import QuantSite
from visualquant.core.report import Coverage, StorageRow
from visualquant.core.trace import trace_operand


def storage(model: Model) -> StorageRow | None:
    """Bits per weight with scales and zero points counted in; None for a model without weights.

    Each stored tensor counts once, however many layers read it. Weights that are quantized at run time count as the
    float tensors that they are in the file.
    """
    graph = model.graph
    seen: set[int] = set()
    elements = code_bytes = scale_bytes = 0
    for site in model.sites:
        if site.role != "weight" or site.value in seen or site.codes is None:
            continue
        seen.add(site.value)
        elements += site.codes.size
        stored = graph.const(site.value)
        code_bytes += site.codes.nbytes if stored is None else stored.nbytes
        if not site.quantized_at_run_time:
            scale_bytes += _scale_bytes(model, site)
    for node in graph.nodes:
        for slot, value in enumerate(node.inputs):
            if value is None or not is_weight_slot(node, slot):
                continue
            source = trace_operand(graph, value).source
            const = graph.const(source)
            if const is None or source in seen or not const.dtype.is_float or len(const.shape) < 2:
                continue
            seen.add(source)
            elements += const.size
            code_bytes += const.nbytes
    if not elements:
        return None
    total = code_bytes + scale_bytes
    return StorageRow(
        bits_per_weight=8 * total / elements,
        weight_bytes=code_bytes,
        scale_bytes=scale_bytes,
        compression=4 * elements / total if total else math.inf,
    )


def _scale_bytes(model: Model, site: QuantSite) -> int:
    """Bytes of scales and zero points as they are stored; estimated as float32 where they are not constants."""
    graph = model.graph
    found: set[int] = set()
    readers = [graph.nodes[n] for n in site.nodes]
    if site.reader is not None:
        readers.append(graph.nodes[site.reader])
    count = 0 if site.params is None else site.params.scale.size
    total = 0
    for node in readers:
        for value in node.inputs:
            const = graph.const(value)
            if const is None or value is None or value == site.value or value in found:
                continue
            if const.size in (count, max(count, 1)) and const.size < max(site.codes.size if site.codes else 0, 2):
                found.add(value)
                total += const.nbytes
    return total or 4 * count


def coverage(float_model: Model, quant_model: Model, alignment: Alignment) -> Coverage:
    """Which part of the quantized model's layers, parameters and multiply-adds works on quantized weights."""
    graph = quant_model.graph
    quantized = {s.reader for s in quant_model.sites if s.role == "weight" and s.scheme != "stored_float"}
    nodes = covered = 0
    parameters = covered_parameters = 0
    macs: int | None = 0
    covered_macs = 0
    for node in graph.nodes:
        size = _weight_elements(graph, node, quant_model)
        if not size:
            continue
        nodes += 1
        parameters += size
        own = _macs(_output_shape(node, quant_model, float_model, alignment), node, size)
        macs = None if macs is None or own is None else macs + own
        if node.id in quantized:
            covered += 1
            covered_parameters += size
            covered_macs += own or 0
    if not nodes:
        return Coverage()
    return Coverage(covered / nodes, covered_parameters / parameters, covered_macs / macs if macs else None)


def _weight_elements(graph: GraphView, node: NodeView, model: Model) -> int:
    if node.op_type not in WEIGHT_SLOTS:
        return 0
    total = 0
    for slot in WEIGHT_SLOTS[node.op_type]:
        site = model.site_at.get((node.id, slot))
        if site is not None and site.codes is not None:
            total += site.codes.size
            continue
        value = node.input(slot)
        const = None if value is None else graph.const(trace_operand(graph, value).source)
        if const is not None and len(const.shape) >= 2 and const.dtype.is_float:
            total += const.size
    return total


def _output_shape(
    node: NodeView, quant_model: Model, float_model: Model, alignment: Alignment
) -> tuple[int, ...] | None:
    """Sizes of a node's output, symbolic ones as 1; from the float counterpart where the file does not tell."""
    group = alignment.group_of_quant.get(node.id)
    partners = () if group is None else group.float_nodes
    places = [(quant_model.graph, node), *((float_model.graph, float_model.graph.nodes[n]) for n in partners)]
    for graph, place in places:
        if place.op_type not in WEIGHT_SLOTS:
            continue
        out = place.outputs[0] if place.outputs else None
        shape = None if out is None else graph.values[out].shape
        if shape is not None:
            return tuple(n if isinstance(n, int) else 1 for n in shape)
    return None


def _macs(shape: tuple[int, ...] | None, node: NodeView, weight_elements: int) -> int | None:
    """Multiply-adds of one run with batch 1: weight elements times output positions; None where shapes are unknown."""
    if "Gather" in node.op_type or "Embed" in node.op_type:
        return 0
    if not shape:
        return None
    return weight_elements * math.prod(shape[2:] if "Conv" in node.op_type else shape[1:-1])
