"""Files in the shapes that TensorRT's guide and its engine explorer document; the tool itself does not run here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from visualquant.errors import ModelFileError
from visualquant.formats.container import open_model
from visualquant.formats.scheme import find_sites
from visualquant.formats.tensorrt_json import members_of

FP16 = "Channel major FP16 format where channel % 8 == 0"
INT8 = "Four wide channel vectorized row major Int8 format"


def _tensor(name: str, sizes: list[int], kind: str) -> dict[str, object]:
    return {"Name": name, "Location": "Device", "Dimensions": sizes, "Format/Datatype": kind}


LAYERS = {
    "Layers": [
        {
            "Name": "Reformatting CopyNode for Input Tensor 0 to conv1 + relu1",
            "LayerType": "Reformat",
            "Inputs": [_tensor("image", [1, 3, 8, 8], "Row major linear FP32")],
            "Outputs": [_tensor("image reformatted", [1, 3, 8, 8], INT8)],
            "ParameterType": "Reformat",
            "TacticName": "",
        },
        {
            "Name": "conv1 + relu1",
            "LayerType": "CaskConvolution",
            "Inputs": [_tensor("image reformatted", [1, 3, 8, 8], INT8)],
            "Outputs": [_tensor("act", [1, 16, 8, 8], INT8)],
            "ParameterType": "Convolution",
            "Kernel": [3, 3],
            "Stride": [1, 1],
            "Weights": {"Type": "Int8", "Count": 432},
            "Activation": "RELU",
            "TacticName": "sm80_xmma_fprop_implicit_gemm",
            "Metadata": "[ONNX Layer: /stem/Conv]\x1e[ONNX Layer: /stem/Relu]",
        },
        {
            "Name": "deconv",
            "LayerType": "CaskDeconvolutionV2",
            "ParameterType": "Convolution",
            "Inputs": [_tensor("act", [1, 16, 8, 8], INT8)],
            "Outputs": [_tensor("up", [1, 8, 16, 16], FP16)],
        },
        {
            "Name": "PWN(PWN(sigmoid), mul)",
            "LayerType": "PointWiseV2",
            "ParameterType": "PointWise",
            "Inputs": [_tensor("up", [1, 8, 16, 16], FP16)],
            "Outputs": [_tensor("scores", [1, 8, 16, 16], FP16)],
        },
    ],
    "Bindings": ["image", "scores"],
}
PROFILE = [
    {"count": 321},
    {"name": "conv1 + relu1", "timeMs": 12.5, "averageMs": 0.039, "medianMs": 0.038, "percentage": 61.5},
    {"name": "deconv", "timeMs": 5.0, "averageMs": 0.0155, "medianMs": 0.0151, "percentage": 24.0},
]


def test_layers_and_times(tmp_path: Path) -> None:
    (tmp_path / "engine.graph.json").write_text(json.dumps(LAYERS))
    (tmp_path / "engine.profile.json").write_text(json.dumps(PROFILE))
    graph = open_model(tmp_path / "engine.graph.json")
    assert graph.container == "tensorrt"
    assert [(n.domain, n.op_type) for n in graph.nodes] == [
        ("tensorrt", "Reformat"),
        ("", "Conv"),
        ("", "ConvTranspose"),
        ("tensorrt", "PointWiseV2"),
    ]
    conv = graph.nodes[1]
    assert conv.attributes["members"] == ("conv1", "relu1")
    assert conv.attributes["onnx_names"] == ("/stem/Conv", "/stem/Relu")
    assert (conv.attributes["weights_type"], conv.attributes["weights_count"]) == ("Int8", 432)
    assert float(conv.metadata["latency_median_us"]) == pytest.approx(38)
    assert float(conv.metadata["latency_percent"]) == 61.5 and graph.nodes[0].metadata == {}
    by_name = {v.name: v for v in graph.values}
    assert [str(by_name[n].dtype) for n in ("image", "act", "up")] == ["float32", "int8", "float16"]
    assert (by_name["image"].role, by_name["scores"].role) == ("input", "output")
    assert by_name["act"].producer == 1 and by_name["act"].shape == (1, 16, 8, 8)
    assert find_sites(graph).sites == () and find_sites(graph).unknown_operators == ()


def test_names_only_and_profile_only(tmp_path: Path) -> None:
    (tmp_path / "layers.json").write_text(json.dumps({"Layers": ["conv1 + relu1", "deconv"], "Bindings": ["x", "y"]}))
    (tmp_path / "profile.json").write_text(json.dumps(PROFILE))
    names = open_model(tmp_path / "layers.json")
    assert [n.name for n in names.nodes] == ["conv1 + relu1", "deconv"]
    assert "detailed" in names.notes[0]
    assert float(names.nodes[1].metadata["latency_average_us"]) == pytest.approx(15.5)
    alone = open_model(tmp_path / "profile.json")
    assert [n.name for n in alone.nodes] == ["conv1 + relu1", "deconv"]
    assert float(alone.nodes[0].metadata["latency_average_us"]) == pytest.approx(39)


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("conv1", ("conv1",)),
        ("conv1 + relu1", ("conv1", "relu1")),
        ("conv1 || conv2", ("conv1", "conv2")),
        ("PWN(sigmoid, mul)", ("sigmoid", "mul")),
        ("conv1 + PWN(PWN(sigmoid), mul)", ("conv1", "sigmoid", "mul")),
        ("{ForeignNode[/a/MatMul.../b/Add]}", ("/a/MatMul", "/b/Add")),
        ("a\x1eb", ("a", "b")),
        ("PWN(a) + PWN(b)", ("a", "b")),
        ("f(x + y)", ("f(x + y)",)),
        ("", ()),
    ],
)
def test_members(name: str, members: tuple[str, ...]) -> None:
    assert members_of(name) == members


@pytest.mark.parametrize(
    "text",
    ['{"Layers": [', '{"Layers": []}', '{"Layers": {}}', '{"Layers": [{"LayerType": "x"}]}', '{"Layers": [3]}'],
)
def test_bad_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "layers.json").write_text(text)
    with pytest.raises(ModelFileError, match=r"layers\.json"):
        open_model(tmp_path / "layers.json")


def test_odd_fields_are_left_out(tmp_path: Path) -> None:
    odd = {
        "Name": "a",
        "LayerType": 3,
        "Inputs": "none",
        "Outputs": [{"Dimensions": [1]}, {"Name": "t"}],
        "Kernel": ["x"],
    }
    (tmp_path / "layers.json").write_text(json.dumps({"Layers": [odd]}))
    (node,) = open_model(tmp_path / "layers.json").nodes
    assert node.op_type == "Layer" and len(node.outputs) == 1
