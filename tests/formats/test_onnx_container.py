from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.formats.oracles import ONNX_IS_OLD
from visualquant.core.graph import GraphView
from visualquant.core.tensors import ELEMENT_TYPES
from visualquant.errors import ExternalDataError, ModelFileError
from visualquant.formats.container import open_model
from visualquant.testing.models import data_type, graph_of, model, node, tensor, value

NUMERIC = [n for n, t in ELEMENT_TYPES.items() if t.kind in ("float", "int", "uint", "bool")]


def _write(folder: Path, proto: onnx.ModelProto, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


def _const(graph: GraphView, name: str) -> np.ndarray:
    ref = graph.values[graph.by_key[name]].const
    assert ref is not None
    return ref.array()


def _holding(*tensors: onnx.TensorProto) -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["y"])], list(tensors), [value("x", shape=[1])], [value("y")])


@pytest.mark.parametrize("name", NUMERIC)
@given(count=st.integers(0, 9), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=8, deadline=None, derandomize=True, database=None)
def test_every_type_from_raw_and_typed_fields(name: str, count: int, seed: int) -> None:
    """onnx's own make_tensor writes both forms; numpy_helper reads them."""
    kind = ELEMENT_TYPES[name]
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 256, 16 * 8, dtype=np.uint8)
    if kind.bits < 8:
        array = (bits[:count] & ((1 << kind.bits) - 1)).view(np.uint8)
        array = array.astype(np.int8).view(np.uint8).astype(kind.numpy) if kind.is_integer else array.view(kind.numpy)
        if kind.kind == "int":
            array = rng.integers(-(1 << (kind.bits - 1)), 1 << (kind.bits - 1), count).astype(kind.numpy)
    elif name == "bool":
        array = rng.integers(0, 2, count).astype(np.bool_)
    else:
        array = bits[: count * kind.numpy.itemsize].view(kind.numpy)
    if ONNX_IS_OLD and (kind.bits < 8 or kind.name == "bfloat16" or (kind.is_float and kind.bits == 8)):
        return  # its numpy_helper knows these types by other dtypes
    proto = onnx.numpy_helper.from_array(np.ascontiguousarray(array), "w")
    assert proto.data_type == data_type(kind)
    got = _const(graph_of(_holding(proto)), "w")
    assert got.dtype == kind.numpy
    np.testing.assert_array_equal(got.view(np.uint8), np.ascontiguousarray(array).view(np.uint8))
    if kind.is_float and kind.bits < 32 and not np.isfinite(array.astype(np.float32)).all():
        return
    typed = helper.make_tensor(
        "w", data_type(kind), [count], array.astype(object if name == "bool" else array.dtype).tolist()
    )
    np.testing.assert_array_equal(_const(graph_of(_holding(typed)), "w").astype(np.float64), array.astype(np.float64))


def test_strings_are_left_alone() -> None:
    proto = helper.make_tensor("w", onnx.TensorProto.STRING, [2], [b"a", b"b"])
    graph = graph_of(_holding(proto))
    assert str(graph.values[graph.by_key["w"]].dtype) == "string"


def test_sparse_initializers() -> None:
    dense = np.zeros((3, 4), np.float32)
    dense[0, 1], dense[2, 3] = 5, -1
    for indices in (np.array([1, 11], np.int64), np.array([[0, 1], [2, 3]], np.int64)):
        proto = _holding()
        values = tensor("w", np.array([5, -1], np.float32))
        proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, tensor("i", indices), [3, 4]))
        np.testing.assert_array_equal(_const(graph_of(proto), "w"), dense)
    proto.graph.sparse_initializer[0].indices.CopyFrom(tensor("i", np.array([1, 99], np.int64)))
    with pytest.raises(ModelFileError, match="outside its shape"):
        graph_of(proto)


def test_constants_are_values() -> None:
    forms = {
        "value": tensor("", np.arange(3, dtype=np.int8)),
        "value_float": 1.5,
        "value_floats": [1.5, 2.5],
        "value_int": 7,
        "value_ints": [1, 2],
        "value_string": b"s",
    }
    nodes = [helper.make_node("Constant", [], [k], name=k, **{k: v}) for k, v in forms.items()]
    graph = graph_of(model([*nodes, node("Relu", ["x"], ["y"])], [], [value("x")], [value("y")]))
    assert [n.op_type for n in graph.nodes] == ["Relu"]
    assert {v.name: v.role for v in graph.values if v.name in forms} == dict.fromkeys(forms, "initializer")
    np.testing.assert_array_equal(_const(graph, "value_floats"), np.array([1.5, 2.5], np.float32))
    np.testing.assert_array_equal(_const(graph, "value"), [0, 1, 2])


def test_initializers_that_are_listed_as_inputs() -> None:
    proto = _holding(tensor("w", np.ones(2, np.float32)))
    proto.graph.input.append(value("w", shape=[2]))
    graph = graph_of(proto)
    assert [graph.values[v].name for v in graph.inputs] == ["x"]
    assert graph.values[graph.by_key["w"]].role == "initializer"


def test_names_order_and_repetition() -> None:
    """Unnamed and equally named nodes, nodes before their producers, names in any script."""
    nodes = [
        helper.make_node("Relu", ["中文"], ["ü"], name="same"),
        helper.make_node("Relu", ["x"], ["中文"], name="same"),
        helper.make_node("Relu", ["ü"], ["😀"]),
    ]
    graph = graph_of(model(nodes, [], [value("x", shape=[2])], [value("😀")]))
    assert [n.name for n in graph.nodes] == ["same", "same", ""]
    assert graph.topological == (1, 0, 2)
    assert [v.name for v in graph.values if v.role == "output"] == ["😀"]


def test_sub_graphs_and_functions_are_reachable() -> None:
    """Bodies capture outer values; a function called twice has two instances; attributes are handed in."""
    then = helper.make_graph(
        [node("Mul", ["x", "k"], ["t"], "mul")], "then", [], [value("t")], [tensor("k", np.float32(2))]
    )
    other = helper.make_graph([node("Relu", ["x"], ["e"], "relu")], "else", [], [value("e")])
    scaled = helper.make_node("LeakyRelu", ["a"], ["b"])
    scaled.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    function = helper.make_function("f", "leak", ["a"], ["b"], [scaled], [helper.make_opsetid("", 21)], ["slope"])
    nodes = [
        node("If", ["c"], ["h"], "if", then_branch=then, else_branch=other),
        node("leak", ["h"], ["i"], "one", "f", slope=0.5),
        node("leak", ["i"], ["y"], "two", "f", slope=0.25),
    ]
    proto = model(nodes, [], [value("c", "bool", []), value("x", shape=[2])], [value("y")])
    proto.functions.append(function)
    graph = graph_of(proto)
    scopes = {(n.scope, n.op_type) for n in graph.nodes}
    assert scopes >= {("if/then_branch", "Mul"), ("if/else_branch", "Relu"), ("one", "LeakyRelu"), ("two", "LeakyRelu")}
    slopes = {n.scope: n.attributes["alpha"] for n in graph.nodes if n.op_type == "LeakyRelu"}
    assert slopes == {"one": 0.5, "two": 0.25}
    captured = next(n for n in graph.nodes if n.op_type == "Mul")
    assert captured.inputs[0] == graph.by_key["x"] and ("f", "leak") in graph.functions


def test_function_that_calls_itself_is_refused() -> None:
    function = helper.make_function(
        "f", "loop", ["a"], ["b"], [helper.make_node("loop", ["a"], ["b"], domain="f")], [helper.make_opsetid("f", 1)]
    )
    proto = model([node("loop", ["x"], ["y"], "call", "f")], [], [value("x")], [value("y")])
    proto.functions.append(function)
    with pytest.raises(ModelFileError, match="deeper than"):
        graph_of(proto)


def test_attributes_and_missing_values() -> None:
    proto = model(
        [node("Conv", ["x", "", "ghost"], ["y"], strides=[2, 1], group=1, auto_pad="VALID")],
        [],
        [value("x")],
        [value("y")],
    )
    graph = graph_of(proto)
    conv = graph.nodes[0]
    assert conv.attributes == {"strides": (2, 1), "group": 1, "auto_pad": "VALID"}
    assert conv.inputs[1] is None and any("ghost" in note for note in graph.notes)


def _external(folder: Path, location: str, data: bytes | None, **entries: int) -> Path:
    proto = _holding(tensor("w", np.ones(4, np.float32)))
    stored = proto.graph.initializer[0]
    stored.ClearField("raw_data")
    stored.data_location = onnx.TensorProto.EXTERNAL
    for key, text in {"location": location, **{k: str(v) for k, v in entries.items()}}.items():
        stored.external_data.add(key=key, value=text)
    if data is not None:
        (folder / location).write_bytes(data)
    return _write(folder, proto)


def test_external_data_is_mapped(tmp_path: Path) -> None:
    data = np.arange(6, dtype=np.float32).tobytes()
    array = _const(open_model(_external(tmp_path, "w.bin", data, offset=4, length=16)), "w")
    np.testing.assert_array_equal(array, [1, 2, 3, 4])
    assert not array.flags.writeable


@pytest.mark.parametrize(
    ("location", "data", "entries", "words"),
    [
        ("w.bin", None, {}, ["w.bin", "missing", "--data-root"]),
        ("w.bin", b"1234", {}, ["w.bin", "16 bytes", "4 bytes"]),
        ("w.bin", bytes(64), {"offset": 60}, ["offset 60"]),
        ("w.bin", bytes(64), {"length": 3}, ["allows it 3"]),
        ("../w.bin", None, {}, ["outside"]),
        ("/etc/passwd", None, {}, ["outside"]),
        ("", None, {}, ["names no data file"]),
    ],
)
def test_bad_external_data(
    tmp_path: Path, location: str, data: bytes | None, entries: dict[str, int], words: list[str]
) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(64))
    with pytest.raises(ExternalDataError) as error:
        open_model(_external(tmp_path / "inner", location, data, **entries))
    assert all(word in str(error.value) for word in words), str(error.value)


def test_links_out_of_the_folder_need_leave(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "cache" / "blob").write_bytes(np.ones(4, np.float32).tobytes())
    (tmp_path / "model" / "w.bin").symlink_to(tmp_path / "cache" / "blob")
    path = _external(tmp_path / "model", "w.bin", None)
    with pytest.raises(ExternalDataError, match="--data-root"):
        open_model(path)
    np.testing.assert_array_equal(_const(open_model(path, data_root=tmp_path / "cache"), "w"), np.ones(4))


def test_weights_larger_than_memory_open_at_once(tmp_path: Path) -> None:
    """A hole of 64 GiB on disk: sizes are known, no byte is read."""
    proto = _holding(tensor("w", np.ones(1, np.float32)))
    stored = proto.graph.initializer[0]
    stored.ClearField("raw_data")
    del stored.dims[:]
    stored.dims.extend([1 << 17, 1 << 17])
    stored.data_location = onnx.TensorProto.EXTERNAL
    stored.external_data.add(key="location", value="w.bin")
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(1 << 36)
    start = time.monotonic()
    graph = open_model(_write(tmp_path, proto))
    ref = graph.values[graph.by_key["w"]].const
    assert ref is not None and ref.nbytes == 1 << 36
    first = next(ref.chunks(1 << 20))[1]
    assert first.size == 1 << 18 and not first.any()
    assert time.monotonic() - start < 5


def test_ten_thousand_initializers() -> None:
    tensors = [tensor(f"w{k}", np.ones(3, np.float32)) for k in range(10_000)]
    nodes = [node("Add", ["x" if k == 0 else f"h{k}", f"w{k}"], [f"h{k + 1}"], f"add{k}") for k in range(10_000)]
    proto = model(nodes, tensors, [value("x", shape=[3])], [value("h10000")])
    start = time.monotonic()
    graph = graph_of(proto)
    assert len(graph.nodes) == 10_000 and len(graph.topological) == 10_000
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ["empty", "did not finish"]),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ["LFS", "git lfs pull"]),
        (b"PK\x03\x04" + bytes(40), ["zip"]),
        (b"<!DOCTYPE html><html>", ["web page"]),
        (b"just words\n" * 20, ["text file"]),
        (bytes(range(256)) * 4, ["not a model"]),
        (b"\x08\x07\x12\x04abc", ["not a readable ONNX model"]),
        (onnx.TensorProto(name="t", data_type=1, dims=[1], raw_data=bytes(4)).SerializeToString(), ["model.onnx"]),
    ],
)
def test_files_of_another_kind(tmp_path: Path, data: bytes, words: list[str]) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelFileError) as error:
        open_model(path)
    assert "model.onnx" in str(error.value) and all(word in str(error.value) for word in words), str(error.value)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="folder"):
        open_model(tmp_path)
    with pytest.raises(ModelFileError, match="can't be opened"):
        open_model(tmp_path / "nothing.onnx")


def test_content_counts_and_not_the_suffix(tmp_path: Path) -> None:
    path = _write(tmp_path, _holding(), "model.bin")
    assert open_model(path).container == "onnx"


def test_unknown_type_and_damaged_tensors() -> None:
    bad = tensor("w", np.ones(2, np.float32))
    bad.data_type = 99
    with pytest.raises(ModelFileError, match="type number 99"):
        graph_of(_holding(bad))
    short = tensor("w", np.ones(2, np.float32))
    short.raw_data = b"123"
    with pytest.raises(ModelFileError, match="needs 8"):
        graph_of(_holding(short))
    negative = tensor("w", np.ones(2, np.float32))
    negative.dims[0] = -2
    with pytest.raises(ModelFileError, match="negative"):
        graph_of(_holding(negative))


def test_unknown_domains_and_opsets_open() -> None:
    proto = model([node("Strange", ["x"], ["y"], "odd", "acme")], [], [value("x")], [value("y")], opset=99)
    graph = graph_of(proto)
    assert graph.nodes[0].domain == "acme" and graph.opsets[""] == 99
