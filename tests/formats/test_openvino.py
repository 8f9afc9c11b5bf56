from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.formats.expected import like, sqnr_db
from tests.formats.ir_writer import IrWriter
from visualquant.errors import ExternalDataError, ModelFileError
from visualquant.formats.container import open_model
from visualquant.formats.scheme import find_sites
from visualquant.testing.conformance import dequantized


def _compressed(folder: Path, dtype: str = "int8", shape: tuple[int, ...] = (6, 32)) -> Path:
    """Parameter → MatMul with a weight of codes, Convert and Multiply (and Subtract where it is unsigned)."""
    rng = np.random.default_rng(0)
    low, high = {"int8": (-128, 128), "uint8": (0, 256), "int4": (-8, 8), "uint4": (0, 16)}[dtype]
    ir = IrWriter()
    x = ir.parameter("x", (1, 32))
    w = ir.const("w", rng.integers(low, high, shape), dtype)
    value = ir.layer("Convert", "convert", [w], shape, {"destination_type": "f32"})
    if dtype.startswith("u"):
        zero = ir.const("zp", rng.integers(low, high, (*shape[:-1], 1)), dtype)
        zero = ir.layer("Convert", "convert_zp", [zero], (*shape[:-1], 1), {"destination_type": "f32"})
        value = ir.layer("Subtract", "sub", [value, zero], shape)
    scale = ir.const("scale", rng.uniform(0.1, 1, (*shape[:-1], 1)).astype(np.float32))
    value = ir.layer("Multiply", "mul", [value, scale], shape)
    if len(shape) == 3:
        target = ir.const("target", np.array([6, 32], np.int64))
        value = ir.layer("Reshape", "reshape", [value, target], (6, 32), {"special_zero": "false"})
    y = ir.layer("MatMul", "mm", [x, value], (1, 6), {"transpose_a": "false", "transpose_b": "true"}, names="y")
    ir.result(y)
    return ir.save(folder / "model.xml")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int4", "uint4"])
@pytest.mark.parametrize("shape", [(6, 32), (6, 2, 16)])
def test_compressed_weights(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    """Codes, scales and zero points of plain and grouped compression. (OpenVINO's own runtime agreed to 5e-8.)"""
    graph = open_model(_compressed(tmp_path, dtype, shape))
    sites = find_sites(graph)
    (site,) = sites.sites
    assert (site.scheme, site.slot, site.problem) == ("arithmetic", 1, None)
    const = graph.values[graph.by_key["w"]].const
    scale = graph.values[graph.by_key["scale"]].const
    assert const is not None and scale is not None and site.params is not None
    zero = graph.values[graph.by_key["zp"]].const.array().astype(np.float64) if "zp" in graph.by_key else 0  # type: ignore[union-attr]
    want = (const.array().astype(np.float64) - zero) * scale.array().astype(np.float64)
    np.testing.assert_array_equal(dequantized(site), want.reshape(6, 32))
    assert site.params.block_size == (16 if len(shape) == 3 else None)
    assert sites.unclaimed == () and sites.unknown_operators == ()


def test_graph_in_words_of_onnx(tmp_path: Path) -> None:
    ir = IrWriter()
    x = ir.parameter("image", (1, 4, 8, 8))
    w = ir.const("w", np.ones((4, 1, 1, 3, 3), np.float32))
    attributes = {"strides": "1, 1", "pads_begin": "1, 1", "pads_end": "1, 1", "dilations": "1, 1"}
    conv = ir.layer("GroupConvolution", "conv", [x, w], (1, 4, 8, 8), attributes, names="conv_out")
    axes = ir.const("axes", np.array([2, 3], np.int64))
    pool = ir.layer("ReduceMean", "pool", [conv, axes], (1, 4, 1, 1), {"keep_dims": "true"})
    order = ir.const("order", np.array([0, 2, 3, 1], np.int64))
    turned = ir.layer("Transpose", "turn", [pool, order], (1, 1, 1, 4))
    odd = ir.layer("ExperimentalDetectronROIFeatureExtractor", "odd", [turned], (1, 1, 1, 4))
    ir.result(odd)
    graph = open_model(ir.save(tmp_path / "model.xml"))
    kinds = [(n.name, n.domain, n.op_type) for n in graph.nodes]
    assert kinds == [
        ("conv", "", "Conv"),
        ("pool", "", "GlobalAveragePool"),
        ("turn", "", "Transpose"),
        ("odd", "openvino", "ExperimentalDetectronROIFeatureExtractor"),
        ("conv/onnx_weight", "", "Reshape"),
    ]
    assert graph.nodes[0].attributes["group"] == 4 and graph.nodes[0].attributes["pads"] == (1, 1, 1, 1)
    assert graph.nodes[2].attributes["perm"] == (0, 2, 3, 1)
    weight = graph.nodes[0].inputs[1]
    assert weight is not None and graph.values[weight].shape == (4, 1, 3, 3)
    assert [graph.values[v].name for v in (*graph.inputs, *graph.outputs)] == ["image", "odd"]
    assert graph.by_key["conv_out"] is not None and graph.producer.startswith("openvino")
    assert graph.topological[0] == 4


def test_attributes_in_words_of_onnx(tmp_path: Path) -> None:
    ir = IrWriter()
    x = ir.parameter("image", (1, 4, 8, 8))
    pads = {"strides": "2, 2", "pads_begin": "0, 1", "pads_end": "1, 0"}
    average = {**pads, "kernel": "2, 2", "exclude-pad": "true", "rounding_type": "ceil", "auto_pad": "explicit"}
    pool = ir.layer("AvgPool", "pool", [x], (1, 4, 4, 4), average)
    gelu = ir.layer("Gelu", "gelu", [pool], (1, 4, 4, 4), {"approximation_mode": "TANH"})
    rows, axis = ir.const("rows", np.array([0], np.int64)), ir.const("axis", np.array(1, np.int64))
    gather = ir.layer("Gather", "gather", [gelu, rows, axis], (1, 1, 4, 4), {"batch_dims": "0"})
    ir.result(ir.layer("Convert", "half", [gather], (1, 1, 4, 4), {"destination_type": "f16"}))
    graph = open_model(ir.save(tmp_path / "model.xml"))
    by_name = {n.name: n for n in graph.nodes}
    assert by_name["pool"].attributes == {
        "strides": (2, 2),
        "pads": (0, 1, 1, 0),
        "kernel_shape": (2, 2),
        "auto_pad": "NOTSET",
        "ceil_mode": 1,
        "count_include_pad": 0,
    }
    assert by_name["gelu"].attributes == {"approximate": "tanh"}
    assert by_name["gather"].attributes == {"axis": 1} and len(by_name["gather"].inputs) == 2
    assert (by_name["half"].op_type, by_name["half"].attributes) == ("Cast", {"to": 10})


def test_quantized_files_of_the_corpus(corpus: Path) -> None:
    """The same layers as in NNCF's ONNX file give the same error, and every weight has a figure."""
    folder = corpus / "digits_resnet"
    partner = open_model(folder / "fp32.onnx")
    weights = [v.const.array() for v in partner.values if v.const is not None and v.const.size > 64]
    for name, schemes, lowest in (
        ("ov_nncf_int8", ("arithmetic", "fake_quantize"), 41),
        ("ov_nncf_w8", ("arithmetic",), 42),
        ("ov_nncf_w4", ("arithmetic",), 24),
        ("ov_fp16", ("float16",), 73),
    ):
        sites = find_sites(open_model(folder / f"{name}.xml"))
        assert sites.schemes == schemes and sites.unclaimed == ()
        found = [s for s in sites.sites if s.role == "weight" and s.codes is not None and s.codes.size > 64]
        assert len(found) == 10
        for site in found:
            operand = dequantized(site)
            best = max(sqnr_db(like(w, operand), operand) for w in weights if w.size == operand.size)
            assert best > lowest


def test_body_is_left_alone_and_said(tmp_path: Path) -> None:
    ir = IrWriter()
    x = ir.parameter("x", (1, 4))
    inner = '<port_map/><body><layers><layer id="0" name="inner" type="Parameter"/></layers><edges/></body>'
    ir.result(ir.layer("TensorIterator", "loop", [x], (1, 4), inside=inner))
    graph = open_model(ir.save(tmp_path / "model.xml"))
    assert [n.op_type for n in graph.nodes] == ["TensorIterator"]
    assert any("loop" in note for note in graph.notes)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("short bin", ["model.bin", "cut short"]),
        ("no bin", ["model.bin", "missing", "--data-root"]),
        ("cut xml", ["model.xml", "OpenVINO IR"]),
        ("doctype", ["entities"]),
        ("unknown type", ["element type 'q3'"]),
        ("negative size", ["damaged"]),
        ("no layers", ["no layers"]),
    ],
)
def test_bad_files(tmp_path: Path, what: str, words: list[str]) -> None:
    path = _compressed(tmp_path)
    text = path.read_text()
    if what == "short bin":
        path.with_suffix(".bin").write_bytes(b"123")
    elif what == "no bin":
        path.with_suffix(".bin").unlink()
    elif what == "cut xml":
        path.write_text(text[: len(text) // 2])
    elif what == "doctype":
        bomb = '<!DOCTYPE net [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>'
        path.write_text(text.replace("?>\n", f"?>\n{bomb}\n", 1))
    elif what == "unknown type":
        path.write_text(text.replace('element_type="i8"', 'element_type="q3"'))
    elif what == "negative size":
        path.write_text(text.replace('shape="6, 32"', 'shape="-6, 32"'))
    else:
        path.write_text('<?xml version="1.0"?><net name="m" version="11"></net>')
    with pytest.raises((ModelFileError, ExternalDataError)) as error:
        find_sites(open_model(path))
    assert all(word in str(error.value) for word in words), str(error.value)


def test_weights_in_another_folder(tmp_path: Path) -> None:
    path = _compressed(tmp_path)
    (tmp_path / "data").mkdir()
    path.with_suffix(".bin").rename(tmp_path / "data" / "model.bin")
    assert len(find_sites(open_model(path, data_root=tmp_path / "data")).sites) == 1
