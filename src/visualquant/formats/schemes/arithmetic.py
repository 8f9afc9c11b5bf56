"""Dequantization written out: Cast (or Convert) of stored codes, Sub of a zero point, Mul by a scale."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from visualquant.core.graph import GraphView, NodeId, NodeView, ValueId
from visualquant.core.quant import QuantSite
from visualquant.core.tensors import TensorRef
from visualquant.formats.element_types import NF4, NF4_TABLE
from visualquant.formats.schemes._affine import Array, Reading, broadcast_params
from visualquant.formats.schemes._constants import constant
from visualquant.formats.schemes._flow import Flow, place
from visualquant.formats.schemes._sites import Origin, origin_of, weight_sites

NAME = "arithmetic"


def find(graph: GraphView) -> Iterable[QuantSite]:
    """One site for each stored integer tensor that is cast to float and scaled by constants."""
    flow = Flow(graph)
    for node in graph.nodes:
        if node.op_type != "Cast" or node.domain != "":
            continue
        origin = origin_of(graph, node.input(0))
        made = node.output()
        if origin is None or made is None or not _is_code(origin.stored) or origin.stored.size < 2:
            continue
        cast_to = graph.values[made].dtype
        if cast_to is not None and not cast_to.is_float:
            continue
        yield from _chain(flow, node, origin, made)


def _is_code(stored: TensorRef) -> bool:
    """Integers up to 16 bits, floats up to 8, and table types."""
    return (stored.dtype.is_integer and stored.dtype.bits <= 16) or (stored.dtype.is_float and stored.dtype.bits <= 8)


def _chain(flow: Flow, cast: NodeView, origin: Origin, made: ValueId) -> Iterator[QuantSite]:
    """Follows Sub and Mul behind a Cast, as long as each has one reader and a constant."""
    graph = flow.graph
    zero: Array | None = None
    nodes: list[NodeId] = [*origin.nodes, cast.id]
    value = made
    while True:
        readers = list(flow.readers(value))
        if not readers:
            return
        node, slot = readers[0]
        other = constant(graph, node.input(1 - slot)) if slot < 2 and len(node.inputs) == 2 else None
        scaled = node.output()
        if len(readers) > 1 or node.domain != "" or other is None or scaled is None:
            return
        nodes.append(node.id)
        value = scaled
        if node.op_type == "Cast":
            continue
        if node.op_type == "Sub" and slot == 0 and zero is None:
            zero = other
        elif node.op_type == "Mul":
            params = broadcast_params(origin.stored.dtype, origin.shape, other, zero)
            problem = None
            if params is not None and origin.stored.dtype == NF4:
                params = dataclasses.replace(params, table=NF4_TABLE)
            elif params is None:
                problem = f"{place(node)} scales codes of shape {list(origin.shape)} by {list(other.shape)}: no fit."
            yield from weight_sites(
                flow, NAME, origin.value, origin.stored, Reading(params, problem), value, (), tuple(nodes)
            )
            return
        else:
            return
