"""Rules on what aligned operators read, and on what they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from visualquant.analysis.findings.context import Context, Draft, label
from visualquant.core.graph import GraphView, NodeId, NodeView, ValueId
from visualquant.core.operators import DEQUANTIZE_OPS, QUANTIZE_OPS
from visualquant.core.trace import LAYOUT_OPS

MOST_STEPS = 64
# Operators that stand in the same place and compute something else. Those that are each other's decomposition
# (ReduceSum for ReduceMean, Mul for Div) are in no set together.
_ALTERNATIVES = (
    frozenset({"MaxPool", "AveragePool", "LpPool"}),
    frozenset({"GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"}),
    frozenset({"ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"}),
    frozenset({"Add", "Sub"}),
    frozenset({"Add", "Mul"}),
    frozenset({"Max", "Min"}),
    frozenset({"ArgMax", "ArgMin"}),
)


def wired_differently(context: Context) -> Iterator[Draft]:
    """WIRED_DIFFERENTLY: an input of a group comes from another value than its float counterpart's."""
    ours, theirs = context.float_model.graph, context.graph
    ahead: dict[ValueId, set[ValueId]] = {}
    back: dict[ValueId, set[ValueId]] = {}
    pairs = [(t.float_value, t.quant_value) for t in context.alignment.values]
    if len(ours.inputs) == len(theirs.inputs):
        pairs += zip(ours.inputs, theirs.inputs, strict=True)
    for float_value, quant_value in pairs:
        a, b = source_of(ours, float_value), source_of(theirs, quant_value)
        ahead.setdefault(a, set()).add(b)
        back.setdefault(b, set()).add(a)
    for group in context.alignment.groups:
        if not group.float_nodes or not group.quant_nodes:
            continue
        reads = _outside(ours, group.float_nodes)
        others = _outside(theirs, group.quant_nodes)
        if not reads or len(reads) != len(others) or any(v not in ahead for v in reads):
            continue
        if any(v not in back for v in others):
            continue
        wrong = [v for v in others if not back[v] & reads]
        missing = [v for v in reads if not ahead[v] & others]
        if not wrong or not missing:
            continue
        node = next((theirs.nodes[n] for n in group.quant_nodes if _computes(theirs.nodes[n])), None)
        if node is None:
            continue
        instead = ", ".join(sorted(ours.values[x].key for x in back[wrong[0]]))
        yield Draft(
            "WIRED_DIFFERENTLY",
            "warning",
            f"{label(node)} reads {theirs.values[wrong[0]].key!r}, which is {instead!r} of the float model, where the "
            f"float model reads {ours.values[missing[0]].key!r}.",
            effect=60.0,
            node=node.id,
            value=theirs.values[wrong[0]].key,
            float_value=ours.values[missing[0]].key,
            groups=(group.id,),
        )


def operator_replaced(context: Context) -> Iterator[Draft]:
    """OPERATOR_REPLACED: an aligned operator of another function."""
    ours, theirs = context.float_model.graph, context.graph
    for group in context.alignment.groups:
        mine = {_kind(ours.nodes[n]) for n in group.float_nodes}
        other = {n: _kind(theirs.nodes[n]) for n in group.quant_nodes if _computes(theirs.nodes[n])}
        for kinds in _ALTERNATIVES:
            before, after = mine & kinds, {n: k for n, k in other.items() if k in kinds}
            if len(before) != 1 or len(set(after.values())) != 1 or before & set(after.values()):
                continue
            node = theirs.nodes[min(after)]
            name = before.pop()
            if name in ("Add", "Mul", "Sub") and not (_is_alone(ours, group.float_nodes) and _is_alone(theirs, other)):
                continue  # a part of something larger may be written in many ways
            yield Draft(
                "OPERATOR_REPLACED",
                "error",
                f"{label(node)} stands where the float model has {name}.",
                effect=90.0,
                node=node.id,
                groups=(group.id,),
            )
            break


def _is_alone(graph: GraphView, nodes: Iterable[NodeId]) -> bool:
    """True for one operator, perhaps with a clipping activation behind it."""
    return sum(_computes(graph.nodes[n]) and graph.nodes[n].op_type not in ("Relu", "Clip") for n in nodes) == 1


def source_of(graph: GraphView, value: ValueId) -> ValueId:
    """The computed value (or input, or constant) behind layout operators, quantizers and dequantizers."""
    for _ in range(MOST_STEPS):
        node = graph.producer_of(value)
        first = None if node is None else node.input(0)
        if node is None or first is None or _computes(node):
            return value
        value = first
    return value


def _computes(node: NodeView) -> bool:
    return node.op_type not in QUANTIZE_OPS | DEQUANTIZE_OPS | LAYOUT_OPS


def _kind(node: NodeView) -> str:
    return node.op_type.removeprefix("QLinear")


def _outside(graph: GraphView, nodes: Iterable[NodeId]) -> set[ValueId]:
    """Sources of what a group reads and does not make itself; constants left out."""
    inside = set(nodes)
    found = set()
    for n in inside:
        for value in graph.nodes[n].inputs:
            if value is None:
                continue
            source = source_of(graph, value)
            made = graph.values[source].producer
            if graph.const(source) is None and made not in inside:
                found.add(source)
    return found


RULES = (wired_differently, operator_replaced)
