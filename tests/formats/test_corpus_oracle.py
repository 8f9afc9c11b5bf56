"""Every dequantized tensor of the corpus and the zoo, as onnxruntime computes it from the file's own nodes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.conftest import corpus_folder
from tests.formats.oracles import skip_old_onnxruntime
from visualquant.formats.container import open_model
from visualquant.formats.scheme import find_sites
from visualquant.testing.models import value


def _files() -> list[str]:
    folder = corpus_folder()
    if folder is None:
        return []
    corpus = [f"corpus/{r['file']}" for r in json.loads((folder / "index.json").read_text())]
    zoo = [f"zoo/corpus/{r['file']}" for r in json.loads((folder.parent / "zoo/corpus/index.json").read_text())]
    wanted = ("qdq", "nncf", "modelopt", "brevitas", "inc_static_qdq", "quark")
    skipped = ("qonnx", "bfp16", "quark_bf16")  # operators that onnxruntime does not have
    return [
        f
        for f in corpus + zoo
        if f.endswith(".onnx") and any(w in f for w in wanted) and not any(s in f for s in skipped)
    ]


def _only(proto: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """The nodes that make some values out of stored tensors alone, at an opset that has axes."""
    made = {o: n for n in proto.graph.node for o in n.output}
    nodes: list[onnx.NodeProto] = []
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in made and name not in seen:
            seen.update(made[name].output)
            nodes.insert(0, made[name])
            waiting += made[name].input
    used = {i for n in nodes for i in n.input}
    stored = [t for t in proto.graph.initializer if t.name in used]
    graph = helper.make_graph(nodes, "g", [], [value(n, "float32", None) for n in names], stored)
    for output in graph.output:
        output.ClearField("type")
    opsets = [
        helper.make_opsetid(o.domain, max(o.version, 13) if o.domain == "" else o.version) for o in proto.opset_import
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=max(proto.ir_version, 8))


@pytest.mark.parametrize("file", _files())
def test_onnxruntime_dequantizes_alike(corpus: Path, file: str) -> None:
    import onnxruntime as ort

    skip_old_onnxruntime()
    path = corpus.parent / file
    graph = open_model(path)
    found = {}
    for site in find_sites(graph).sites:
        made = site.dequantized
        if site.role == "activation" or made is None or site.params is None or graph.values[made].scope:
            continue
        if site.scheme != "qdq" or (site.problem and "scale of shape" in site.problem):
            continue  # a scale that fits another axis only: onnxruntime refuses the node
        assert site.codes is not None
        steps = site.view[: _steps_before(graph, site.value, made)]
        operand = site.params.dequantize(site.codes.array())
        for step in steps:
            operand = step.apply(operand)
        found[graph.values[made].name] = operand
    if not found:
        return
    proto = onnx.load(path)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(
        _only(proto, list(found)).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    for name, got in zip(found, session.run(list(found), {}), strict=True):
        half = got.dtype == np.float16
        relative, absolute = (2e-3, 6e-8) if half else (3e-7, 1e-12)
        np.testing.assert_allclose(found[name], got.astype(np.float64), rtol=relative, atol=absolute)


def _steps_before(graph, value_id: int, made: int) -> int:  # type: ignore[no-untyped-def]
    """Steps of the view that stand before the dequantize node."""
    from visualquant.core.trace import trace_operand

    node = graph.producer_of(made)
    data = None if node is None else node.input(0)
    return 0 if data is None else len(trace_operand(graph, data).steps)
