"""Encodings files in the shapes of AIMET's three schemas; the tool itself does not run here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visualquant.core.graph import GraphView
from visualquant.core.quant import QuantSite
from visualquant.errors import ModelFileError
from visualquant.formats.container import open_model
from visualquant.formats.scheme import find_sites
from visualquant.testing.conformance import dequantized
from visualquant.testing.models import model, node, tensor, value

RNG = np.random.default_rng(0)
CONV = RNG.normal(0, 1, (4, 3, 1, 1)).astype(np.float32)
GEMM = RNG.normal(0, 1, (5, 8)).astype(np.float32)
MATMUL = RNG.normal(0, 1, (8, 6)).astype(np.float32)


def _graph(folder: Path, encodings: dict[str, Any], beside: bool = True) -> GraphView:
    nodes = [
        node("Conv", ["x", "conv.w"], ["c"], "conv"),
        node("Relu", ["c"], ["a"], "relu"),
        node("Gemm", ["v", "gemm.w"], ["g"], "gemm", transB=1),
        node("MatMul", ["v", "mm.w"], ["m"], "mm"),
    ]
    tensors = [tensor("conv.w", CONV), tensor("gemm.w", GEMM), tensor("mm.w", MATMUL)]
    inputs = [value("x", shape=[1, 3, 4, 4]), value("v", shape=[1, 8])]
    proto = model(nodes, tensors, inputs, [value("a"), value("g"), value("m")])
    (folder / "net.onnx").write_bytes(proto.SerializeToString())
    name = "net.encodings" if beside else "other.json"
    (folder / name).write_text(json.dumps(encodings))
    return open_model(folder / "net.onnx", encodings=None if beside else folder / name)


def _sites(graph: GraphView) -> dict[str, QuantSite]:
    sites = find_sites(graph)
    assert sites.schemes in (("aimet",), ()) and sites.conflicts == ()
    return {graph.values[s.value].key: s for s in sites.sites}


def _grid(w: np.ndarray, scale: np.ndarray, low: int, high: int, zero: np.ndarray | int = 0) -> np.ndarray:
    steps = np.rint((w / scale.astype(np.float32)).astype(np.float64)) + zero
    return (np.clip(steps, low, high) - zero) * scale


def test_schema_06(tmp_path: Path) -> None:
    rows = [
        {"bitwidth": 8, "dtype": "int", "is_symmetric": "True", "scale": 0.01 * (k + 1), "offset": -128}
        for k in range(4)
    ]
    wide = [{"bitwidth": 8, "dtype": "int", "is_symmetric": "False", "scale": 0.02, "offset": -120}]
    found = {
        "version": "0.6.1",
        "param_encodings": {"conv.w": rows, "gemm.w": wide},
        "activation_encodings": {"a": wide},
    }
    sites = _sites(_graph(tmp_path, found))
    scale = np.array([0.01, 0.02, 0.03, 0.04]).reshape(4, 1, 1, 1)
    np.testing.assert_array_equal(dequantized(sites["conv.w"]), _grid(CONV, scale, -128, 127))
    np.testing.assert_array_equal(dequantized(sites["gemm.w"]), _grid(GEMM, np.array(0.02), 0, 255, 120))
    conv, gemm, act = (sites[n].params for n in ("conv.w", "gemm.w", "a"))
    assert conv is not None and gemm is not None and act is not None
    assert (conv.code_type.name, conv.axis, gemm.code_type.name, act.code_type.name) == ("int8", 0, "uint8", "uint8")
    assert sites["a"].role == "activation" and sites["conv.w"].quantized_at_run_time


def test_schema_1(tmp_path: Path) -> None:
    """Per tensor with a strict range, per channel, per block and LPBQ (integer block scales of a channel's scale)."""
    block = np.arange(1, 1 + 5 * 2).reshape(5, 2) * 0.01
    steps = np.arange(1, 1 + 6 * 2).reshape(6, 2)
    channel = np.arange(1, 7) * 0.001
    found = {
        "version": "1.0.0",
        "activation_encodings": [],
        "param_encodings": [
            {
                "name": "conv.w",
                "dtype": "INT",
                "bw": 8,
                "enc_type": "PER_TENSOR",
                "is_sym": True,
                "scale": [0.02],
                "offset": [-127],
            },
            {
                "name": "gemm.w",
                "dtype": "INT",
                "bw": 4,
                "enc_type": "PER_BLOCK",
                "is_sym": True,
                "block_size": 4,
                "scale": block.reshape(-1).tolist(),
                "offset": [-8] * 10,
            },
            {
                "name": "mm.w",
                "dtype": "INT",
                "bw": 8,
                "compressed_bw": 4,
                "enc_type": "LPBQ",
                "is_sym": True,
                "block_size": 4,
                "scale": channel.tolist(),
                "offset": [-128] * 6,
                "per_block_int_scale": steps.reshape(-1).tolist(),
            },
        ],
    }
    sites = _sites(_graph(tmp_path, found, beside=False))
    np.testing.assert_array_equal(dequantized(sites["conv.w"]), _grid(CONV, np.array(0.02), -127, 127))
    want = _grid(GEMM, np.repeat(block, 4, axis=1), -8, 7)
    np.testing.assert_array_equal(dequantized(sites["gemm.w"]), want)
    scale = np.repeat((channel[:, None] * steps).T, 4, axis=0)
    np.testing.assert_array_equal(dequantized(sites["mm.w"]), _grid(MATMUL, scale, -8, 7))
    params = sites["mm.w"].params
    assert params is not None and (params.axis, params.block_size, params.code_type.name) == (0, 4, "int4")


def test_schema_2(tmp_path: Path) -> None:
    block = (np.arange(1, 11).reshape(5, 2) * 0.01).tolist()
    found = {
        "version": "2.0.0",
        "encodings": [
            {
                "name": "conv.w",
                "output_dtype": "int8",
                "axis": 0,
                "y_scale": [0.01, 0.02, 0.03, 0.04],
                "y_zero_point": [1] * 4,
            },
            {
                "name": "gemm.w",
                "output_dtype": "uint4",
                "axis": 1,
                "block_size": 4,
                "y_scale": block,
                "y_zero_point": [[8, 7]] * 5,
            },
            {
                "name": "mm.w",
                "output_dtype": "int4",
                "axis": 0,
                "block_size": 4,
                "per_channel_float_scale": [[0.01, 0.02, 0.03, 0.04, 0.05, 0.06]],
                "per_block_int_scale": [[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]],
            },
            {"name": "a", "output_dtype": "uint8", "y_scale": 0.5, "y_zero_point": 3},
            {"name": "v", "output_dtype": "float16"},
        ],
    }
    sites = _sites(_graph(tmp_path, found))
    scale = np.array([0.01, 0.02, 0.03, 0.04]).reshape(4, 1, 1, 1)
    np.testing.assert_array_equal(dequantized(sites["conv.w"]), _grid(CONV, scale, -128, 127, 1))
    zero = np.repeat(np.array([[8, 7]] * 5), 4, axis=1)
    np.testing.assert_array_equal(
        dequantized(sites["gemm.w"]), _grid(GEMM, np.repeat(np.array(block), 4, axis=1), 0, 15, zero)
    )
    two = np.array([[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]]) * np.array([[0.01, 0.02, 0.03, 0.04, 0.05, 0.06]])
    np.testing.assert_array_equal(dequantized(sites["mm.w"]), _grid(MATMUL, np.repeat(two, 4, axis=0), -8, 7))
    act, half = sites["a"].params, sites["v"].params
    assert act is not None and half is not None
    assert float(act.scale) == 0.5 and int(act.zero_point) == 3  # type: ignore[arg-type]
    assert half.code_type.name == "float16"


def test_names_that_the_model_lacks_are_said(tmp_path: Path) -> None:
    entry = {"name": "nobody", "output_dtype": "int8", "y_scale": 0.1}
    graph = _graph(tmp_path, {"version": "2.0.0", "encodings": [entry]})
    assert any("nobody" in note for note in graph.notes) and find_sites(graph).sites == ()


def test_scales_that_do_not_fit_are_said(tmp_path: Path) -> None:
    entry = {"name": "conv.w", "output_dtype": "int8", "axis": 0, "y_scale": [0.1, 0.2, 0.3]}
    sites = _sites(_graph(tmp_path, {"version": "2.0.0", "encodings": [entry]}))
    assert sites["conv.w"].problem is not None and "3 scales" in sites["conv.w"].problem


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"a": 1}', '{"encodings": [{"name": "x"}]}', '{"param_encodings": {"w": []}}']
)
def test_bad_files(tmp_path: Path, text: str) -> None:
    _graph(tmp_path, {"encodings": []})
    (tmp_path / "net.encodings").write_text(text)
    with pytest.raises(ModelFileError, match=r"net\.encodings"):
        open_model(tmp_path / "net.onnx")


def test_operands_left_out_are_named(cases: Path, tmp_path: Path) -> None:
    """A layer whose weight is encoded and whose data is not; nothing is said of files without encodings."""
    graph = open_model(cases / "aimet-encodings" / "quant.onnx")
    assert [graph.values[v].key for v in find_sites(graph).not_encoded] == ["vector"]
    assert find_sites(open_model(cases / "aimet-encodings" / "float.onnx")).not_encoded == ()
    both = [{"name": n, "output_dtype": "int8", "y_scale": 0.1} for n in ("gemm.w", "v")]
    assert find_sites(_graph(tmp_path, {"version": "2.0.0", "encodings": both})).not_encoded == (
        open_model(tmp_path / "net.onnx").by_key["mm.w"],
    )
