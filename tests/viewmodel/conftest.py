"""Reports for the view-model: a real pair, and a small one with every kind of group."""

from __future__ import annotations

import time

import pytest

from visualquant.core.report import (
    ActivationRow,
    DeviceRow,
    EnvironmentRow,
    Finding,
    FusionRow,
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
from visualquant.viewmodel.sides import Pair, read_pair
from visualquant.viewmodel.workspace import Workspace


def node(number: int, op: str, name: str, inputs: str, outputs: str, scope: str = "") -> NodeRow:
    return NodeRow(f"n{number}", name, op, "", tuple(inputs.split()), tuple(outputs.split()), scope=scope)


def small_report() -> Report:
    """Every kind of group: 1:1, n:1, 1:n, n:m, inserted and removed; a sub-graph; modules; plumbing."""
    left = (
        node(0, "Conv", "/block0/conv/Conv", "x w0", "a"),
        node(1, "BatchNormalization", "/block0/bn/BatchNormalization", "a s b", "c"),
        node(2, "Relu", "/block0/act/Relu", "c", "d"),
        node(3, "Conv", "/block1/conv/Conv", "d w1", "e"),
        node(4, "Dropout", "/block1/drop/Dropout", "e", "f"),
        node(5, "Gelu", "/head/gelu/Gelu", "f", "g"),
        node(6, "Add", "/head/add/Add", "g d", "h"),
        node(7, "If", "branch", "h", "y"),
        node(8, "Neg", "inner", "h", "i", scope="branch/then_branch"),
    )
    right = (
        node(0, "QuantizeLinear", "q0", "x", "xq"),
        node(1, "DequantizeLinear", "dq0", "xq", "xd"),
        node(2, "DequantizeLinear", "dqw", "w0q", "w0d"),
        node(3, "Conv", "/block0/conv/Conv", "xd w0d", "d"),
        node(4, "QLinearConv", "/block1/conv/Conv_quant", "d w1q", "f"),
        node(5, "Erf", "/head/erf/Erf", "f", "g0"),
        node(6, "Mul", "/head/mul/Mul", "g0 f", "g"),
        node(7, "Add", "/head/add/Add", "g d", "h"),
        node(8, "Cast", "extra", "h", "h2"),
        node(9, "If", "branch", "h2", "y"),
        node(10, "Neg", "inner", "h2", "i", scope="branch/then_branch"),
    )
    groups = (
        GroupRow("g0", "n:m", ("n0", "n1", "n2"), ("n0", "n1", "n2", "n3"), 0.97, ("weights", "fusion:Conv+Bn+Relu")),
        GroupRow("g1", "1:1", ("n3",), ("n4",), 0.9, ("name",)),
        GroupRow("g2", "removed", ("n4",), (), 0.8, (), "Dropout does nothing at inference."),
        GroupRow("g3", "1:n", ("n5",), ("n5", "n6"), 0.7, ("topology",)),
        GroupRow("g4", "1:1", ("n6",), ("n7",), 0.95, ("name",)),
        GroupRow("g5", "inserted", (), ("n8",), 0.9, (), "A conversion that only the quantized model needs."),
        GroupRow("g6", "1:1", ("n7",), ("n9",), 0.99, ("name",)),
        GroupRow("g7", "1:1", ("n8",), ("n10",), 0.99, ("name",)),
    )
    weights = (
        WeightRow("g0", "n3", "w0q", "weight", "qdq", "int8", 100, bits_per_weight=8.1, metrics={"sqnr_db": 40.0}),
        WeightRow(
            "g1", "n4", "w1q", "weight", "qoperator", "int4", 100, bits_per_weight=4.2, metrics={"sqnr_db": 14.5}
        ),
    )
    first = {"run": "r1", "group": "g1", "float_value": "f", "quant_value": "f", "samples": 8, "depth": 2}
    second = {"run": "r1", "group": "g4", "float_value": "h", "quant_value": "h", "samples": 8, "depth": 4}
    activations = (
        ActivationRow(**first, cumulative={"sqnr_db": 22.0}, isolated={"sqnr_db": 25.0}),  # type: ignore[arg-type]
        ActivationRow(**second, cumulative={"sqnr_db": 18.0}, clipped_share=0.02),  # type: ignore[arg-type]
        ActivationRow(**first | {"run": "board"}, cumulative={"sqnr_db": 9.0}),  # type: ignore[arg-type]
    )
    board = DeviceRow("board", "pi:50051", "Raspberry Pi 5", codes=100, differing=0.25, max_difference=3, first="f")
    read = {v for n in (*left, *right) for v in (*n.inputs, *n.outputs)} - {"x", "y"}
    names = {v: ValueRow("activation", "float32", (1,)) for v in sorted(read)}
    values = {"x": ValueRow("input", "float32", (1,)), **names, "y": ValueRow("output", "float32", (1,))}
    model = ModelRow("model.onnx", 1, 0, 9)
    finding = Finding("f1", "OUTLIER_CHANNELS", "warning", "one channel is large", "why", "do this", groups=("g1",))
    return Report(
        tool=ToolRow("visualquant", "0"),
        environment=EnvironmentRow("3", "linux"),
        summary=SummaryRow("A small pair.", "The verdict."),
        models=ModelsRow(model, model),
        nodes={"float": left, "quant": right},
        values={"float": values, "quant": values},
        alignment=groups,
        fusions=(FusionRow("Conv+BatchNormalization+Relu", "g0", ("n0", "n1", "n2"), ("n3",), ("w0q",)),),
        weights=weights,
        findings=(finding,),
        activations=activations,
        devices=(board,),
    )


def settle(workspace: Workspace) -> None:
    """Waits for background work and takes it."""
    limit = time.monotonic() + 120
    while workspace.requests.busy():
        workspace.drain()
        time.sleep(0.002)
        assert time.monotonic() < limit, "background work hangs"


def opened(report: Report) -> Workspace:
    workspace = Workspace()
    workspace.open(lambda _say, _cancelled: report, "test")
    settle(workspace)
    assert not workspace.message.error, workspace.message.text
    return workspace


@pytest.fixture
def pair() -> Pair:
    return read_pair(small_report())


@pytest.fixture
def workspace() -> Workspace:
    return opened(small_report())
