"""Random networks, and rewrites of them whose true alignment is known."""

from __future__ import annotations

import dataclasses
import random

import numpy as np

from tests.align.build import Net, Op
from visualquant.core.alignment import Alignment
from visualquant.core.graph import GraphView
from visualquant.core.tensors import TensorRef

WIDTH = 8
_UNARY = ("Relu", "Sigmoid", "Tanh", "Softmax", "Abs", "Exp")
_BINARY = ("Add", "Mul", "Sub", "Max")


def random_net(seed: int, size: int) -> Net:
    """A random network with weights of its own in every layer; every value is used."""
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    net = Net(["x"], ["y"])
    open_values = ["x"]
    recent = ["x"]
    for k in range(size):
        out = f"v{k}"
        kind = rng.random()
        first = rng.choice(recent[-4:])
        if kind < 0.4:
            net.const(f"w{k}", numbers.standard_normal((WIDTH, WIDTH)).astype(np.float32))
            net.add("MatMul", first, f"w{k}", out=out)
        elif kind < 0.55:
            net.const(f"b{k}", numbers.standard_normal(WIDTH).astype(np.float32))
            net.add("Add", first, f"b{k}", out=out)
        elif kind < 0.8 or len(recent) < 2:
            net.add(rng.choice(_UNARY), first, out=out)
        else:
            other = rng.choice([v for v in recent[-5:] if v != first] or recent[-1:])
            net.add(rng.choice(_BINARY), first, other, out=out)
        recent.append(out)
    used = {i for op in net.ops for i in op.inputs}
    open_values = [v for v in recent if v not in used and v != "x"]
    while len(open_values) > 1:
        a, b = open_values.pop(0), open_values.pop(0)
        open_values.append(net.add("Add", a, b, out=f"j{len(net.ops)}"))
    last = open_values[0] if open_values else recent[-1]
    net.const("w_out", numbers.standard_normal((WIDTH, 4)).astype(np.float32))
    net.add("MatMul", last, "w_out", out="y")
    return net


@dataclasses.dataclass
class Rewritten:
    """A rewritten network and which of its operators stand for which of the original, by output names."""

    net: Net
    truth: dict[str, set[str]]


def rewrite(net: Net, seed: int) -> Rewritten:
    """Folds biases, inserts Q/DQ and Identity, spells operators differently, merges equal nodes."""
    rng = random.Random(seed)
    out = Net(list(net.inputs), list(net.outputs), [], dict(net.constants))
    out.const("qs", np.float32(0.05))
    out.const("qz", np.uint8(128))
    truth: dict[str, set[str]] = {}
    uses: dict[str, int] = {}
    for op in net.ops:
        for i in op.inputs:
            uses[i] = uses.get(i, 0) + 1
    by_input = {op.inputs[0]: op for op in net.ops if op.op_type == "Add" and op.inputs[1] in net.constants}
    folded: set[str] = set()
    label: dict[str, str] = {v: v for v in net.inputs}

    def read(name: str) -> str:
        if name in net.constants:
            return name
        value = label[name]
        if rng.random() < 0.25:
            q = out.add("QuantizeLinear", value, "qs", "qz", out=f"{name}.q{len(out.ops)}")
            return out.add("DequantizeLinear", q, "qs", "qz", out=f"{name}.dq{len(out.ops)}")
        if rng.random() < 0.1:
            return out.add("Identity", value, out=f"{name}.id{len(out.ops)}")
        return value

    for op in net.ops:
        made = op.outputs[0]
        if made in folded:
            continue
        bias = by_input.get(made)
        if op.op_type == "MatMul" and bias is not None and uses[made] == 1 and rng.random() < 0.6:
            out.add("Gemm", read(op.inputs[0]), op.inputs[1], bias.inputs[1], out=bias.outputs[0])
            truth[made] = truth[bias.outputs[0]] = {bias.outputs[0]}
            label[bias.outputs[0]] = bias.outputs[0]
            folded.add(bias.outputs[0])
            continue
        if op.op_type == "Sub" and rng.random() < 0.3:
            negative = out.add("Neg", read(op.inputs[1]), out=f"{made}.neg")
            out.add("Add", read(op.inputs[0]), negative, out=made)
            truth[made] = {made, f"{made}.neg"}
        else:
            inputs = tuple(read(i) for i in op.inputs)
            if op.op_type in ("Add", "Mul", "Max") and rng.random() < 0.3:
                inputs = inputs[::-1]
            out.ops.append(Op(op.op_type, inputs, op.outputs, op.attributes))
            truth[made] = {made}
        label[made] = made
    return Rewritten(out, truth)


def f1(
    alignment: Alignment,
    float_graph: GraphView,
    quant_graph: GraphView,
    names: dict[int, str],
    truth: dict[str, set[str]],
) -> float:
    """F1 as the shared scorer counts it; `names` gives the plain name of each quant node's result."""
    hit, judged, good, bad = 0, 0, 0, 0
    all_true = set().union(*truth.values())
    for group in alignment.groups:
        quants = {names[k] for k in group.quant_nodes} & all_true
        for node in group.float_nodes:
            want = truth.get(float_graph.values[float_graph.nodes[node].outputs[0] or 0].name)
            if want is None:
                continue
            judged += 1
            hit += bool(want & quants)
            good += len(want & quants)
            bad += len(quants - want)
    recall, precision = hit / judged, good / (good + bad) if good else 0.0
    return 2 * recall * precision / (recall + precision) if recall + precision else 0.0


_OTHER = ("Split", "Slice", "Gather", "Conv", "Gemm", "Reshape", "Transpose", "FusedConv", "QLinearConv", "Pad", "LSTM")
_ODD_SHAPES: tuple[tuple[int, ...], ...] = ((0,), (0, 3), (), (1, 1, 1), (2, 3, 4, 5))


def damaged(graph: GraphView, rng: random.Random) -> GraphView:
    """The graph with a few faults: left-out inputs and outputs, cycles, wrong operators, odd shapes, NaN."""
    nodes, values = list(graph.nodes), list(graph.values)
    stored = [v.id for v in values if v.const is not None]
    for _ in range(rng.randint(1, 4)):
        k = rng.randrange(len(nodes))
        node, fault = nodes[k], rng.randrange(7)
        inputs = list(node.inputs)
        if fault == 0 and inputs:
            inputs[rng.randrange(len(inputs))] = rng.choice([None, rng.randrange(len(values))])
            node = dataclasses.replace(node, inputs=tuple(inputs))
        elif fault == 1:
            node = dataclasses.replace(node, inputs=node.inputs[:-1])
        elif fault == 2:
            for out in node.outputs:
                if out is not None:
                    values[out] = dataclasses.replace(values[out], producer=None)
            node = dataclasses.replace(node, outputs=())
        elif fault == 3:
            node = dataclasses.replace(node, op_type=rng.choice(_OTHER))
        elif fault == 4:
            odd = {"axis": rng.choice([-9, 9, 0]), "perm": rng.choice([(0,), (5, 5)]), "block_size": -1}
            node = dataclasses.replace(node, attributes=odd)
        else:
            v = rng.choice(stored)
            shape = rng.choice(_ODD_SHAPES) if fault == 5 else values[v].const.shape  # type: ignore[union-attr]
            array = np.full(shape, rng.choice([np.nan, np.inf, 0.0, 1.0]), np.float32)
            values[v] = dataclasses.replace(values[v], const=TensorRef.of(array), shape=shape)
        nodes[k] = node
    return dataclasses.replace(graph, nodes=tuple(nodes), values=tuple(values))
