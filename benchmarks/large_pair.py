"""A made-up decoder pair of any size, as a report: what the window and the archive are measured on."""

from __future__ import annotations

import numpy as np

from visualquant.core.report import (
    EnvironmentRow,
    GroupRow,
    ModelRow,
    ModelsRow,
    NodeRow,
    Report,
    SummaryRow,
    ToolRow,
    ValueRow,
    WeightRow,
)

SHAPE = (1, 64)
NODES_PER_BLOCK = 25


class _Graph:
    def __init__(self, quantized: bool) -> None:
        self.quantized = quantized
        self.nodes: list[NodeRow] = []
        self.values: dict[str, ValueRow] = {"x": ValueRow("input", "float32", SHAPE)}

    def add(self, op_type: str, inputs: tuple[str, ...], name: str) -> str:
        made = f"{name}_out"
        self.nodes.append(NodeRow(f"n{len(self.nodes)}", name, op_type, "", inputs, (made,)))
        self.values[made] = ValueRow("activation", "float32", SHAPE)
        return made

    def linear(self, x: str, name: str) -> str:
        weight = f"{name}.weight"
        self.values[weight] = ValueRow("initializer", "int8" if self.quantized else "float32", (64, 64))
        if self.quantized:
            weight = self.add("DequantizeLinear", (weight,), f"{name}/dequantize")
        return self.add("MatMul", (x, weight), f"{name}/MatMul")

    def block(self, x: str, at: str) -> str:
        norm = self.add("LayerNormalization", (x,), f"{at}/norm1/LayerNormalization")
        query, key, value = (self.linear(norm, f"{at}/attention/{n}") for n in ("q", "k", "v"))
        scores = self.add("MatMul", (query, key), f"{at}/attention/scores/MatMul")
        scores = self.add("Softmax", (scores,), f"{at}/attention/Softmax")
        mixed = self.add("MatMul", (scores, value), f"{at}/attention/mix/MatMul")
        x = self.add("Add", (x, self.linear(mixed, f"{at}/attention/o")), f"{at}/Add")
        norm = self.add("LayerNormalization", (x,), f"{at}/norm2/LayerNormalization")
        gate = self.add("Silu", (self.linear(norm, f"{at}/mlp/gate"),), f"{at}/mlp/Silu")
        wide = self.add("Mul", (gate, self.linear(norm, f"{at}/mlp/up")), f"{at}/mlp/Mul")
        return self.add("Add", (x, self.linear(wide, f"{at}/mlp/down")), f"{at}/Add_1")


def large_report(nodes: int) -> Report:
    """A pair with about so many nodes a side, aligned by name, with an SQNR of each weight."""
    graphs = {}
    for side in ("float", "quant"):
        graph = _Graph(side == "quant")
        x, block = "x", 0
        while len(graph.nodes) < nodes - NODES_PER_BLOCK + 1:
            x = graph.block(x, f"/layers.{block}")
            block += 1
        graph.values[x] = ValueRow("output", "float32", SHAPE)
        graphs[side] = graph
    by_name = {n.name: n.id for n in graphs["float"].nodes}
    rng = np.random.default_rng(0)
    groups: list[GroupRow] = []
    weights: list[WeightRow] = []
    plumbing: list[str] = []
    for node in graphs["quant"].nodes:
        if node.op_type == "DequantizeLinear":
            plumbing.append(node.id)
            continue
        own = by_name.pop(node.name, None)
        kind = "inserted" if own is None else "1:n" if plumbing else "1:1"
        name, members = f"g{len(groups)}", (*plumbing, node.id)
        groups.append(GroupRow(name, kind, () if own is None else (own,), members, 0.95, ("name",)))  # type: ignore[arg-type]
        if plumbing:
            metrics = {"sqnr_db": float(rng.uniform(8, 48))}
            weights.append(WeightRow(name, node.id, node.inputs[1], "weight", "qdq", "int8", 4096, metrics=metrics))
        plumbing = []
    groups += [
        GroupRow(f"g{len(groups) + k}", "removed", (n,), (), 0.9, ("name",)) for k, n in enumerate(by_name.values())
    ]
    model = ModelRow("decoder.onnx", 1, 0, nodes)
    return Report(
        tool=ToolRow("visualquant", "0"),
        environment=EnvironmentRow("3", "any"),
        summary=SummaryRow("A made-up decoder.", f"A pair of {nodes:,} nodes a side."),
        models=ModelsRow(model, model),
        nodes={side: tuple(g.nodes) for side, g in graphs.items()},
        values={side: g.values for side, g in graphs.items()},
        alignment=tuple(groups),
        fusions=(),
        weights=tuple(weights),
        findings=(),
    )
