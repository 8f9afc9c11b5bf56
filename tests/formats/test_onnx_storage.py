"""The ONNX container: every element type and storage form, scopes, ids, and what is no node."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.models import model, save, tensor
from visualquant.core.graph import GraphView
from visualquant.core.tensors import ELEMENT_TYPES, TensorRef, pack_bits, unpack_bits
from visualquant.formats.container import open_model
from visualquant.formats.onnx_tensors import BY_NUMBER, TensorReader

NUMERIC = sorted(n for n, t in BY_NUMBER.items() if t.kind in ("float", "int", "uint", "bool", "complex"))


def _read(proto: onnx.TensorProto) -> TensorRef:
    return TensorReader(Path("m.onnx")).read(proto)


def test_every_element_type_of_onnx_is_known() -> None:
    numbers = {n for name, n in TensorProto.DataType.items() if name != "UNDEFINED"}
    assert numbers == set(BY_NUMBER)


@pytest.mark.parametrize("number", NUMERIC, ids=lambda n: BY_NUMBER[n].name)
@pytest.mark.parametrize("size", [0, 1, 5, 8, 13])
@pytest.mark.parametrize("raw", [True, False])
def test_values_equal_onnx(number: int, size: int, raw: bool) -> None:
    dtype = BY_NUMBER[number]
    values = np.arange(size) % (2 if dtype.bits == 2 or dtype.kind == "bool" else 6)
    if dtype.kind == "int":
        values = values - (2 if dtype.bits == 2 else 3)
        values = np.clip(values, -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1)
    array = values.astype(dtype.numpy)
    if raw:
        proto = numpy_helper.from_array(array, "t")
    else:
        proto = helper.make_tensor("t", number, [size], array.tolist() if dtype.bits >= 8 else array.astype(np.float32))
        assert not proto.raw_data
    ref = _read(proto)
    assert ref.shape == (size,) and ref.dtype is dtype
    want = numpy_helper.to_array(proto)
    got = ref.array()
    assert got.dtype == dtype.numpy
    np.testing.assert_array_equal(got.astype(np.complex128), want.astype(np.complex128))
    whole = [piece for _, piece in ref.chunks(3)]
    joined = np.concatenate(whole) if whole else got[:0]
    np.testing.assert_array_equal(joined.astype(np.complex128), want.astype(np.complex128))


@given(st.sampled_from([2, 4, 6]), st.lists(st.integers(0, 63), max_size=40))
@settings(max_examples=200, deadline=None)
def test_packing_round_trip(bits: int, values: list[int]) -> None:
    codes = np.array(values, np.uint8) & np.uint8((1 << bits) - 1)
    packed = pack_bits(codes, bits)
    assert packed.size == -(-len(values) * bits // 8)
    np.testing.assert_array_equal(unpack_bits(packed, bits, len(values)), codes)


@pytest.mark.parametrize("name", ["int4", "uint2", "float8e4m3fn", "float4e2m1", "bfloat16", "int16"])
def test_of_is_the_inverse_of_array(name: str) -> None:
    dtype = ELEMENT_TYPES[name]
    array = (np.arange(7) % 2).astype(dtype.numpy).reshape(7, 1)
    ref = TensorRef.of(array)
    assert ref.dtype is dtype and ref.nbytes == dtype.storage_bytes(7)
    np.testing.assert_array_equal(ref.array().astype(float), array.astype(float))
    assert not ref.array().flags.writeable or dtype.is_packed


def test_strings_are_left_alone(tmp_path: Path) -> None:
    words = helper.make_tensor("words", TensorProto.STRING, [2], [b"a", b"b"])
    node = helper.make_node("Relu", ["x"], ["y"])
    graph = open_model(save(model([node], [words]), tmp_path / "m.onnx"))
    const = graph.values[graph.by_key["words"]].const
    assert const is not None and const.dtype.name == "string" and const.shape == (2,) and const.nbytes == 0


def _graph(tmp_path: Path, *args: object, **kwargs: object) -> GraphView:
    return open_model(save(model(*args, **kwargs), tmp_path / "m.onnx"))  # type: ignore[arg-type]


def test_constants_are_values_and_initializers_listed_as_inputs_are_no_inputs(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value=tensor("v", np.float32([[1, 2, 3, 4]]))),
        helper.make_node("Constant", [], ["f"], value_float=2.5),
        helper.make_node("Constant", [], ["i"], value_ints=[1, 4]),
        helper.make_node("Add", ["x", "c"], ["a"]),
        helper.make_node("Mul", ["a", "w"], ["m"]),
        helper.make_node("Reshape", ["m", "i"], ["y"]),
    ]
    graph = _graph(tmp_path, nodes, [tensor("w", np.float32(3))], inputs=[("x", (1, 4)), ("w", ())])
    assert [n.op_type for n in graph.nodes] == ["Add", "Mul", "Reshape"]
    assert [graph.values[v].name for v in graph.inputs] == ["x"]
    for key, want in (("c", [[1, 2, 3, 4]]), ("f", 2.5), ("i", [1, 4]), ("w", 3)):
        const = graph.values[graph.by_key[key]].const
        assert const is not None
        np.testing.assert_array_equal(const.array(), want)


def test_sparse_initializer(tmp_path: Path) -> None:
    values, flat = tensor("w", np.float32([5, 7])), np.array([1, 6])
    sparse = helper.make_sparse_tensor(values, tensor("i", flat), [2, 4])
    graph = _graph(tmp_path, [helper.make_node("Mul", ["x", "w"], ["y"])], sparse=[sparse], inputs=[("x", (2, 4))])
    const = graph.values[graph.by_key["w"]].const
    assert const is not None and const.shape == (2, 4)
    np.testing.assert_array_equal(const.array(), [[0, 5, 0, 0], [0, 0, 7, 0]])


def test_unnamed_and_equally_named_nodes_have_ids_of_their_own(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"], name="same"),
        helper.make_node("Relu", ["b"], ["y"], name="same"),
    ]
    graph = _graph(tmp_path, nodes)
    assert [(n.id, n.name) for n in graph.nodes] == [(0, ""), (1, "same"), (2, "same")]


def test_file_order_need_not_be_topological(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["b"], ["y"], name="last"),
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="middle"),
    ]
    graph = _graph(tmp_path, nodes)
    assert [graph.nodes[n].name for n in graph.topological] == ["first", "middle", "last"]


def test_branches_capture_outer_values_and_have_scopes(tmp_path: Path) -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
        inner = tensor("inner", np.float32([1, 2, 3, 4]))
        nodes = [helper.make_node(op, ["x", "inner"], ["t"], name="op"), helper.make_node("Relu", ["t"], ["out"])]
        return helper.make_graph(nodes, name, [], [out], initializer=[inner])

    cond = helper.make_tensor("cond", TensorProto.BOOL, [], [True])
    bodies = {"then_branch": branch("t", "Add"), "else_branch": branch("e", "Mul")}
    graph = _graph(tmp_path, [helper.make_node("If", ["cond"], ["y"], name="if", **bodies)], [cond])
    found = {(n.op_type, n.scope, n.parent) for n in graph.nodes}
    assert {("If", "", None), ("Add", "if/then_branch", 0), ("Mul", "if/else_branch", 0)} < found
    assert len({v.key for v in graph.values}) == len(graph.values)
    x = graph.inputs[0]
    assert {n.op_type for n, _ in graph.readers_of(x)} == {"Add", "Mul"}
    assert {b.name for b in graph.nodes[0].bodies} == {"then_branch", "else_branch"}
    assert graph.topological.index(0) == len(graph.nodes) - 1


def test_each_call_of_a_function_has_nodes_of_its_own(tmp_path: Path) -> None:
    body = [helper.make_node("Mul", ["a", "b"], ["t"], name="mul"), helper.make_node("Elu", ["t"], ["o"], name="elu")]
    elu = body[1].attribute.add()
    elu.name, elu.ref_attr_name, elu.type = "alpha", "alpha", onnx.AttributeProto.FLOAT
    function = helper.make_function("f", "MulElu", ["a", "b"], ["o"], body, [helper.make_opsetid("", 21)], ["alpha"])
    nodes = [
        helper.make_node("MulElu", ["x", "w"], ["m"], name="one", domain="f", alpha=0.5),
        helper.make_node("MulElu", ["m", "w"], ["y"], name="two", domain="f", alpha=2.0),
    ]
    weight = [tensor("w", np.float32([1, 2, 3, 4]))]
    graph = _graph(tmp_path, nodes, weight, functions=[function], extra_opsets=[("f", 1)])
    assert [n.scope for n in graph.nodes] == ["", "", "one", "one", "two", "two"]
    assert [n.attributes.get("alpha") for n in graph.nodes if n.op_type == "Elu"] == [0.5, 2.0]
    w = graph.by_key["w"]
    assert [n.op_type for n, _ in graph.readers_of(w)] == ["MulElu", "MulElu", "Mul", "Mul"]
    made = graph.producer_of(graph.outputs[0])
    assert made is not None and made.op_type == "Elu" and made.scope == "two"


def test_shapes_are_inferred_where_the_file_does_not_state_them(tmp_path: Path) -> None:
    weight = tensor("w", np.zeros((4, 7), np.float32))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    graph = _graph(tmp_path, nodes, [weight], inputs=[("x", ("batch", 4))])
    value = graph.values[graph.by_key["m"]]
    assert value.shape == ("batch", 7) and value.dtype is ELEMENT_TYPES["float32"]


def test_content_decides_not_the_suffix(tmp_path: Path) -> None:
    path = save(model([helper.make_node("Relu", ["x"], ["y"])]), tmp_path / "weights.bin")
    assert [n.op_type for n in open_model(path).nodes] == ["Relu"]


def test_misaligned_external_data(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    (tmp_path / "w.data").write_bytes(b"abc" + values.tobytes())
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], [tensor("w", values)], inputs=[("x", (6,))])
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.data"), ("offset", "3")):
        weight.external_data.add(key=key, value=value)
    const = open_model(save(proto, tmp_path / "m.onnx")).values
    ref = next(v.const for v in const if v.name == "w")
    assert ref is not None
    np.testing.assert_array_equal(ref.array(), values)


def test_every_file_of_the_corpus_opens(corpus: Path) -> None:
    for path in sorted(corpus.glob("*/*.onnx")):
        graph = open_model(path)
        assert len(graph.topological) == len(graph.nodes) == len(set(graph.topological))
        seen: set[int] = set()
        for node_id in graph.topological:
            for value in graph.nodes[node_id].inputs:
                if value is not None and (made := graph.values[value].producer) is not None:
                    assert made in seen, (path.name, graph.nodes[node_id].name)
            seen.add(node_id)


def test_bfloat16_numbers() -> None:
    ref = TensorRef.of(np.array([1.5, -2], ml_dtypes.bfloat16))
    np.testing.assert_array_equal(ref.array().astype(np.float32), [1.5, -2])
