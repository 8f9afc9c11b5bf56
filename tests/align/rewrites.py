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
SYMMETRIC = ("Add", "Mul", "Max")


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
    """Folds biases, inserts Q/DQ and Identity, spells operators differently, merges equal nodes, duplicates shared."""
    writer = _Writer(net, random.Random(seed))
    for op in net.ops:
        writer.write(op)
    kept = _without_dead(writer.out)
    return Rewritten(writer.out, _either(net, {name: made & kept for name, made in writer.truth.items()}))


def _without_dead(net: Net) -> set[str]:
    """Takes out what nobody reads, as toolchains do; the results that are left."""
    while True:
        read = {*net.outputs, *(i for op in net.ops for i in op.inputs)}
        kept = [op for op in net.ops if not read.isdisjoint(op.outputs)]
        if len(kept) == len(net.ops):
            return read
        net.ops[:] = kept


class _Writer:
    """Writes the operators of a network anew, one after another.

    Attributes:
        out: what is written so far.
        truth: names of the results that stand for each original one.
    """

    def __init__(self, net: Net, rng: random.Random) -> None:
        self.net, self.rng = net, rng
        self.out = Net(list(net.inputs), list(net.outputs), [], dict(net.constants))
        self.out.const("qs", np.float32(0.05))
        self.out.const("qz", np.uint8(128))
        self.truth: dict[str, set[str]] = {}
        self._uses: dict[str, int] = {}
        for op in net.ops:
            for i in op.inputs:
                self._uses[i] = self._uses.get(i, 0) + 1
        self._equal = _values(net)
        self._biases = {op.inputs[0]: op for op in net.ops if op.op_type == "Add" and op.inputs[1] in net.constants}
        self._folded: set[str] = set()
        self._made: dict[tuple[str, tuple[str, ...]], str] = {}
        self._label: dict[str, list[str]] = {v: [v] for v in net.inputs}

    def write(self, op: Op) -> None:
        made = op.outputs[0]
        if made in self._folded:
            return
        # Equal nodes read equal values, so those that were merged before count as one.
        key = op.op_type, tuple(i if i in self.net.constants else self._label[i][0] for i in op.inputs)
        twin = self._made.setdefault(key, made)
        if twin != made and made not in self.net.outputs and self.rng.random() < 0.5:
            self.truth[made] = self.truth[twin]
            self._label[made] = self._label[twin]
            return
        bias = self._biases.get(made)
        if op.op_type == "MatMul" and bias is not None and self._uses[made] == 1 and self.rng.random() < 0.6:
            result = bias.outputs[0]
            self.out.add("Gemm", self._read(op.inputs[0]), op.inputs[1], bias.inputs[1], out=result)
            self.truth[made] = self.truth[result] = {result}
            self._label[result] = [result]
            self._folded.add(result)
            return
        apart = op.op_type == "Sub" and self.rng.random() < 0.3
        self.truth[made] = self._spell(op, made, apart)
        self._label[made] = [made]
        # Where the network itself repeats an operator, nobody could say which of them a copy is one of.
        alone = sum(value == self._equal[made] for value in self._equal.values()) == 1
        if alone and self._uses.get(made, 0) > 1 and self.rng.random() < 0.1:
            again = f"{made}.again"
            self.truth[made] |= self._spell(op, again, apart)
            self._label[made].append(again)

    def _spell(self, op: Op, made: str, apart: bool) -> set[str]:
        """Writes one operator, a difference in one piece or apart; the results that its nodes have."""
        if apart:
            negative = self.out.add("Neg", self._read(op.inputs[1]), out=f"{made}.neg")
            self.out.add("Add", self._read(op.inputs[0]), negative, out=made)
            return {made, negative}
        inputs = tuple(self._read(i) for i in op.inputs)
        if op.op_type in SYMMETRIC and self.rng.random() < 0.3:
            inputs = inputs[::-1]
        self.out.ops.append(Op(op.op_type, inputs, (made,), op.attributes))
        return {made}

    def _read(self, name: str) -> str:
        if name in self.net.constants:
            return name
        value = self.rng.choice(self._label[name])
        number = len(self.out.ops)
        if self.rng.random() < 0.25:
            q = self.out.add("QuantizeLinear", value, "qs", "qz", out=f"{name}.q{number}")
            return self.out.add("DequantizeLinear", q, "qs", "qz", out=f"{name}.dq{number}")
        if self.rng.random() < 0.1:
            return self.out.add("Identity", value, out=f"{name}.id{number}")
        return value


def _values(net: Net) -> dict[str, int]:
    """A number for each result; equal where the operators compute the same from the same."""
    found: dict[str, int] = {}
    for op in net.ops:
        reads = [found.get(i, i) for i in op.inputs]
        found[op.outputs[0]] = hash((op.op_type, tuple(sorted(reads, key=repr) if op.op_type in SYMMETRIC else reads)))
    return found


def _either(net: Net, truth: dict[str, set[str]]) -> dict[str, set[str]]:
    """The truth where operators can change places without any change of the network: any of them is right."""
    behind = _values(net)
    ahead: dict[str, list[object]] = {name: [] for name in behind}
    for op in reversed(net.ops):
        result = op.outputs[0]
        own = hash((behind[result], tuple(sorted(map(repr, ahead[result]))), result in net.outputs))
        for slot, i in enumerate(op.inputs):
            if i in ahead:
                ahead[i].append((own, 0 if op.op_type in SYMMETRIC else slot))
    alike: dict[object, set[str]] = {}
    for name in behind:
        alike.setdefault((behind[name], tuple(sorted(map(repr, ahead[name])))), set()).add(name)
    return {n: set().union(*(truth[m] for m in same)) for same in alike.values() for n in same if n in truth}


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
