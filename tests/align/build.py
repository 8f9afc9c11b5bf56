"""Small graphs for tests, straight from core types: no file, no onnx."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from visualquant.core.graph import Attribute, GraphView, NodeView, ValueView
from visualquant.core.tensors import ELEMENT_TYPES, TensorRef

FLOAT = ELEMENT_TYPES["float32"]


@dataclasses.dataclass(frozen=True)
class Op:
    """One operator: names of what it reads and makes."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = dataclasses.field(default_factory=dict)
    name: str = ""
    domain: str = ""


@dataclasses.dataclass
class Net:
    """A graph as plain lists, easy to rewrite; `view` makes the GraphView."""

    inputs: list[str]
    outputs: list[str]
    ops: list[Op] = dataclasses.field(default_factory=list)
    constants: dict[str, npt.NDArray[np.generic]] = dataclasses.field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)

    def add(
        self, op_type: str, *inputs: str, out: str | Sequence[str] = "", name: str = "", **attributes: Attribute
    ) -> str:
        outputs = (out,) if isinstance(out, str) else tuple(out)
        if outputs == ("",):
            outputs = (f"v{len(self.ops)}",)
        self.ops.append(Op(op_type, inputs, outputs, attributes, name))
        return outputs[0]

    def const(self, name: str, array: npt.ArrayLike) -> str:
        self.constants[name] = np.asarray(array)
        return name

    def copy(self) -> Net:
        return Net(list(self.inputs), list(self.outputs), list(self.ops), dict(self.constants), dict(self.shapes))

    def view(self, rng: random.Random | None = None, rename: bool = False) -> GraphView:
        """The graph; with `rng` in a random, not even topological order, with `rename` under other inner names."""
        ops = list(self.ops)
        order = list(self.constants)
        if rng is not None:
            rng.shuffle(ops)
            rng.shuffle(order)
        keep = {*self.inputs, *self.outputs}
        every = [*self.inputs, *order, *(o for op in ops for o in op.outputs)]
        fresh = list(range(len(every)))
        if rng is not None:
            rng.shuffle(fresh)
        label = {n: n if n in keep or not rename else f"t{fresh[k]}" for k, n in enumerate(every)}
        ids = {n: k for k, n in enumerate(every)}
        made = {o: k for k, op in enumerate(ops) for o in op.outputs}
        values = []
        for n, k in ids.items():
            const = TensorRef.of(self.constants[n]) if n in self.constants else None
            role = (
                "input"
                if n in self.inputs
                else "initializer"
                if const
                else "output"
                if n in self.outputs
                else "activation"
            )
            shape = const.shape if const else self.shapes.get(n)
            dtype = const.dtype if const else FLOAT
            values.append(ValueView(k, label[n], label[n], dtype, shape, role, made.get(n), const))
        nodes = tuple(
            NodeView(
                k,
                "" if rename else op.name,
                op.op_type,
                op.domain,
                tuple(ids[i] if i else None for i in op.inputs),
                tuple(ids[o] for o in op.outputs),
                op.attributes,
            )
            for k, op in enumerate(ops)
        )
        return GraphView(
            "g", nodes, tuple(values), tuple(ids[n] for n in self.inputs), tuple(ids[n] for n in self.outputs), {"": 21}
        )


def decoder(layers: int, width: int = 16, seed: int = 0) -> Net:
    """A decoder-like network: norms, attention with rotary arithmetic, gated feed-forward, residuals."""
    rng = np.random.default_rng(seed)
    net = Net(["x"], ["y"])
    cos = net.const("cos", rng.standard_normal((1, width)).astype(np.float32))
    sin = net.const("sin", rng.standard_normal((1, width)).astype(np.float32))
    eps, two = net.const("eps", np.float32(1e-5)), net.const("two", np.float32(2.0))
    scale = net.const("scale", np.float32(width**-0.5))
    x = "x"

    def weight(name: str) -> str:
        return net.const(name, (rng.standard_normal((width, width)) / width**0.5).astype(np.float32))

    def norm(v: str, tag: str) -> str:
        gain = net.const(f"{tag}.g", (1 + 0.1 * rng.standard_normal(width)).astype(np.float32))
        square = net.add("Pow", v, two, out=f"{tag}.sq")
        mean = net.add("ReduceMean", square, out=f"{tag}.mean")
        root = net.add("Sqrt", net.add("Add", mean, eps, out=f"{tag}.eps"), out=f"{tag}.root")
        return net.add("Mul", net.add("Div", v, root, out=f"{tag}.div"), gain, out=f"{tag}.out")

    for k in range(layers):
        p = f"l{k}"
        h = norm(x, f"{p}.n1")
        q, key, v = (net.add("MatMul", h, weight(f"{p}.{n}.w"), out=f"{p}.{n}") for n in "qkv")
        turned = []
        for n, value in (("q", q), ("k", key)):
            a = net.add("Mul", value, cos, out=f"{p}.{n}.c")
            b = net.add("Mul", net.add("Neg", value, out=f"{p}.{n}.neg"), sin, out=f"{p}.{n}.s")
            turned.append(net.add("Add", a, b, out=f"{p}.{n}.rot"))
        t = net.add("Transpose", turned[1], out=f"{p}.kt", perm=(1, 0))
        scores = net.add("Mul", net.add("MatMul", turned[0], t, out=f"{p}.qk"), scale, out=f"{p}.sc")
        mixed = net.add("MatMul", net.add("Softmax", scores, out=f"{p}.sm", axis=-1), v, out=f"{p}.mix")
        x = net.add("Add", x, net.add("MatMul", mixed, weight(f"{p}.o.w"), out=f"{p}.o"), out=f"{p}.r1")
        h = norm(x, f"{p}.n2")
        gate = net.add("MatMul", h, weight(f"{p}.gate.w"), out=f"{p}.gate")
        up = net.add("MatMul", h, weight(f"{p}.up.w"), out=f"{p}.up")
        silu = net.add("Mul", gate, net.add("Sigmoid", gate, out=f"{p}.sig"), out=f"{p}.silu")
        down = net.add("MatMul", net.add("Mul", silu, up, out=f"{p}.gu"), weight(f"{p}.down.w"), out=f"{p}.down")
        x = net.add("Add", x, down, out="y" if k == layers - 1 else f"{p}.r2")
    return net


def quantized(net: Net, every: int = 1) -> Net:
    """Q/DQ in front of each MatMul's data input, and weights as int8 codes with a DequantizeLinear (per channel)."""
    out = net.copy()
    out.ops = []
    zero = out.const("zp", np.int8(0))
    scale = out.const("act.scale", np.float32(0.05))
    for number, op in enumerate(net.ops):
        if op.op_type != "MatMul" or number % every:
            out.ops.append(op)
            continue
        inputs = []
        for slot, name in enumerate(op.inputs):
            if name in net.constants:
                weight = net.constants[name].astype(np.float64)
                step = np.maximum(np.abs(weight).max(axis=0), 1e-9) / 127
                codes = out.const(f"{name}.q", np.round(weight / step).astype(np.int8))
                steps = out.const(f"{name}.s", step.astype(np.float32))
                zeros = out.const(f"{name}.z", np.zeros(len(step), np.int8))
                out.constants.pop(name, None)
                inputs.append(out.add("DequantizeLinear", codes, steps, zeros, out=f"{name}.dq", axis=1))
            else:
                code = out.add("QuantizeLinear", name, scale, zero, out=f"{op.outputs[0]}.{slot}.q")
                inputs.append(out.add("DequantizeLinear", code, scale, zero, out=f"{op.outputs[0]}.{slot}.dq"))
        out.ops.append(dataclasses.replace(op, inputs=tuple(inputs)))
    return out


def blocked(net: Net, block_size: int = 16) -> Net:
    """Each MatMul with a stored weight as MatMulNBits of 4-bit blocks: as many nodes as before."""
    out = net.copy()
    out.ops = []
    for op in net.ops:
        weight = net.constants.get(op.inputs[1]) if op.op_type == "MatMul" else None
        if weight is None or weight.ndim != 2 or weight.shape[0] % block_size:
            out.ops.append(op)
            continue
        k, n = weight.shape
        rows = weight.T.astype(np.float64).reshape(n, k // block_size, block_size)
        step = np.maximum(np.abs(rows).max(axis=2, keepdims=True), 1e-9) / 7
        codes = (np.clip(np.rint(rows / step), -8, 7) + 8).astype(np.uint8)
        name = op.inputs[1]
        packed = out.const(f"{name}.q", codes[..., ::2] | codes[..., 1::2] << 4)
        scales = out.const(f"{name}.s", step.astype(np.float32).reshape(-1))
        out.constants.pop(name, None)
        attributes: dict[str, Attribute] = {"K": k, "N": n, "bits": 4, "block_size": block_size}
        inputs = (op.inputs[0], packed, scales)
        out.ops.append(Op("MatMulNBits", inputs, op.outputs, attributes, op.name, "com.microsoft"))
    return out
