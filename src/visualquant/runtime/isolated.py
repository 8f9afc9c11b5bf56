"""Each group alone: its quantized form, fed with what the float model had at that place.

All groups stand beside each other in one model, with inputs and outputs of their own, so that one run measures many.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from visualquant.core.taps import RunOptions
from visualquant.runtime.segments import ELEMENT_NUMBERS
from visualquant.runtime.sessions import make_session

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """One group.

    Attributes:
        key: unique, a legal part of a name.
        nodes: indices of its nodes among the non-Constant nodes of the main graph, in file order.
        inputs: element type by name of the values that it takes from outside.
        outputs: names of the values that it gives.
    """

    key: str
    nodes: tuple[int, ...]
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]


class IsolatedModel:
    """A session on many groups at once."""

    def __init__(self, model: onnx.ModelProto, parts: Sequence[Part], options: RunOptions) -> None:
        """Cuts the groups out of a model.

        Raises:
            RefusedError: the runtime refuses the cut-out.
        """
        graph = onnx.GraphProto(name="isolated")
        compute = [n for n in model.graph.node if n.op_type != "Constant"]
        constants = {n.output[0]: n for n in model.graph.node if n.op_type == "Constant" and n.output}
        initializers = {i.name: i for i in model.graph.initializer}
        taken: set[str] = set()
        for part in parts:
            own = {out for k in part.nodes for out in compute[k].output if out}
            rename = {name: f"{part.key}|{name}" for name in (*own, *part.inputs)}
            for k in part.nodes:
                node = graph.node.add()
                node.CopyFrom(compute[k])
                node.name = f"{part.key}|{k}"
                for field in (node.input, node.output):
                    for position, name in enumerate(field):
                        field[position] = rename.get(name, name)
                taken.update(n for n in node.input if n in initializers or n in constants)
            for name, kind in part.inputs.items():
                info = graph.input.add(name=rename[name])
                info.type.tensor_type.elem_type = ELEMENT_NUMBERS.get(kind, onnx.TensorProto.FLOAT)
            graph.output.extend(onnx.ValueInfoProto(name=rename[n]) for n in part.outputs)
        graph.initializer.extend(initializers[n] for n in sorted(taken) if n in initializers)
        ordered = [constants[n] for n in sorted(taken) if n in constants] + list(_sorted(graph))
        del graph.node[:]
        graph.node.extend(ordered)
        out = onnx.ModelProto(ir_version=model.ir_version)
        out.opset_import.extend(model.opset_import)
        out.functions.extend(model.functions)
        out.graph.CopyFrom(graph)
        self._session = make_session(out.SerializeToString(), options, level="basic")
        self._outputs = [o.name for o in self._session.get_outputs()]

    def run(self, feeds: Mapping[tuple[str, str], Array]) -> dict[tuple[str, str], Array]:
        """Outputs by (key of the part, name), from inputs by the same kind of key."""
        found = self._session.run(self._outputs, {f"{k}|{n}": np.ascontiguousarray(a) for (k, n), a in feeds.items()})
        result = {}
        for name, array in zip(self._outputs, found, strict=True):
            key, _, value = name.partition("|")
            result[key, value] = array
        return result


def _sorted(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Nodes with producers first: files need not be sorted."""
    made = {out: k for k, n in enumerate(graph.node) for out in n.output if out}
    order: list[onnx.NodeProto] = []
    done: set[int] = set()
    for start in range(len(graph.node)):
        stack = [start]
        while stack:
            k = stack[-1]
            if k in done:
                stack.pop()
                continue
            waiting = [made[n] for n in graph.node[k].input if n in made and made[n] not in done and made[n] != k]
            if waiting and len(stack) <= len(graph.node):
                stack += waiting
            else:
                done.add(k)
                order.append(graph.node[k])
                stack.pop()
    return order
