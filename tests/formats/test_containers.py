from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from tests.formats.test_openvino import _compressed
from tests.formats.test_tensorrt import LAYERS
from visualquant.formats import onnx_file, openvino_ir, tensorrt_json
from visualquant.formats.container import CONTAINERS
from visualquant.formats.registry import load, status
from visualquant.formats.scheme import SCHEMES
from visualquant.testing.conformance import ContainerConformance
from visualquant.testing.models import model, node, tensor, value


def _quantized() -> onnx.ModelProto:
    tensors = [
        tensor("w", np.ones((4, 3), np.int8)),
        tensor("s", np.ones(3, np.float32)),
        tensor("b", np.ones(3, np.float32)),
    ]
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["d"], "dq", axis=1),
        node("Gemm", ["x", "d", "b"], ["h"], "gemm"),
        node("QuantizeLinear", ["h", "s2"], ["q"], "q"),
        node("DequantizeLinear", ["q", "s2"], ["y"], "dq2"),
    ]
    return model(nodes, [*tensors, tensor("s2", np.float32(0.1))], [value("x", shape=["n", 4])], [value("y")])


def _nested() -> onnx.ModelProto:
    """A branch, a function and a Constant node."""
    inner = helper.make_graph([node("Relu", ["x"], ["r"], "relu")], "b", [], [value("r")])
    function = helper.make_function(
        "f", "twice", ["a"], ["c"], [helper.make_node("Add", ["a", "a"], ["c"])], [helper.make_opsetid("", 21)]
    )
    nodes = [
        helper.make_node("Constant", [], ["k"], value=tensor("", np.array([True]))),
        node("If", ["k"], ["h"], "if", then_branch=inner, else_branch=inner),
        node("twice", ["h"], ["y"], "call", "f"),
    ]
    proto = model(nodes, [], [value("x", shape=[2])], [value("y")])
    proto.functions.append(function)
    return proto


class TestOnnx(ContainerConformance):
    reader = onnx_file
    examples = 400

    def files(self, folder: Path) -> Iterator[Path]:
        for name, proto in (("plain", _quantized()), ("nested", _nested())):
            path = folder / f"{name}.onnx"
            path.write_bytes(proto.SerializeToString())
            yield path


class TestOpenVino(ContainerConformance):
    reader = openvino_ir
    examples = 200

    def files(self, folder: Path) -> Iterator[Path]:
        yield _compressed(folder, "uint4", (6, 2, 16))


class TestTensorRt(ContainerConformance):
    reader = tensorrt_json
    examples = 200

    def files(self, folder: Path) -> Iterator[Path]:
        path = folder / "engine.json"
        path.write_text(json.dumps(LAYERS))
        yield path


def test_registries_are_whole() -> None:
    for paths in (CONTAINERS, SCHEMES):
        assert [s.error for s in status(paths)] == [None] * len(paths)
        assert len({s.name for s in status(paths)}) == len(paths) == len(load(paths))


def test_a_reader_that_cannot_be_imported_is_named() -> None:
    (entry,) = status(("visualquant.formats.schemes.not_there",))
    assert entry.name == "not_there" and entry.error is not None
    assert load(("visualquant.formats.schemes.not_there",)) == []
