"""OpenVINO operators in the words of ONNX, so that one alignment serves both."""

from __future__ import annotations

from collections.abc import Mapping

from visualquant.core.graph import Attribute
from visualquant.formats.openvino_xml import Layer

DOMAIN = "openvino"
_MICROSOFT = "com.microsoft"

_SAME = (
    "Abs Acos Acosh Add Asin Asinh Atan Atanh BitwiseAnd Concat Cos Cosh CumSum DepthToSpace Einsum Elu Equal Erf "
    "Exp Floor Gather GatherElements GatherND Gelu Greater HardSigmoid If IsInf IsNaN Less Log LogSoftmax Loop "
    "MatMul MaxPool Mish Mod NonMaxSuppression NonZero OneHot Pad Range ReduceL1 ReduceL2 ReduceMax ReduceMean "
    "ReduceMin ReduceProd ReduceSum Reshape Round  Selu Sigmoid Sign Sin "
    "Sinh SpaceToDepth Split Sqrt Squeeze Swish Tan Tanh Tile TopK Transpose Unique Unsqueeze"
)

# Operators whose ONNX counterpart only has another name. What is missing here keeps its name in the domain "openvino".
_NAMES: dict[str, str] = {
    **{name: name for name in _SAME.split()},
    "Convolution": "Conv",
    "GroupConvolution": "Conv",
    "ConvolutionBackpropData": "ConvTranspose",
    "GroupConvolutionBackpropData": "ConvTranspose",
    "DeformableConvolution": "DeformConv",
    "Multiply": "Mul",
    "Subtract": "Sub",
    "Divide": "Div",
    "Power": "Pow",
    "Maximum": "Max",
    "Minimum": "Min",
    "Negative": "Neg",
    "Ceiling": "Ceil",
    "FloorMod": "Mod",
    "ReLU": "Relu",
    "PReLU": "PRelu",
    "PRelu": "PRelu",
    "SoftMax": "Softmax",
    "Softmax": "Softmax",
    "SoftPlus": "Softplus",
    "SoftSign": "Softsign",
    "HSwish": "HardSwish",
    "Clamp": "Clip",
    "Convert": "Cast",
    "ConvertLike": "CastLike",
    "AvgPool": "AveragePool",
    "Interpolate": "Resize",
    "VariadicSplit": "Split",
    "StridedSlice": "Slice",
    "Slice": "Slice",
    "ShapeOf": "Shape",
    "Broadcast": "Expand",
    "Select": "Where",
    "ScatterElementsUpdate": "ScatterElements",
    "ScatterNDUpdate": "ScatterND",
    "GreaterEqual": "GreaterOrEqual",
    "LessEqual": "LessOrEqual",
    "LogicalAnd": "And",
    "LogicalOr": "Or",
    "LogicalNot": "Not",
    "LogicalXor": "Xor",
    "LSTMSequence": "LSTM",
    "LSTMCell": "LSTM",
    "GRUSequence": "GRU",
    "GRUCell": "GRU",
    "RNNSequence": "RNN",
    "RNNCell": "RNN",
    "BatchNormInference": "BatchNormalization",
    "GroupNormalization": "GroupNormalization",
    "LRN": "LRN",
    "ROIAlign": "RoiAlign",
    "ScaledDotProductAttention": "Attention",
    "RMS": "RMSNormalization",
}


def operator_of(layer: Layer) -> tuple[str, str]:
    """(domain, operator type) of a layer."""
    if layer.type == "MatMul" and "true" in (layer.data.get("transpose_a"), layer.data.get("transpose_b")):
        return _MICROSOFT, "FusedMatMul"
    name = _NAMES.get(layer.type)
    return (DOMAIN, layer.type) if name is None else ("", name)


def attributes_of(layer: Layer, cast_to: int | None) -> dict[str, Attribute]:
    """Attributes in ONNX's names and words where they are one and the same, else as in the file."""
    data = layer.data
    found: dict[str, Attribute] = {_RENAMED.get(key, key): _value(text) for key, text in data.items()}
    found.pop("auto_broadcast", None)
    _, op_type = operator_of(layer)
    if op_type in ("Conv", "ConvTranspose", "MaxPool", "AveragePool"):
        _convolution(found, data)
    elif op_type == "FusedMatMul":
        found = {"transA": _flag(data, "transpose_a"), "transB": _flag(data, "transpose_b")}
    elif op_type == "MatMul":
        found = {}
    elif op_type == "Cast" and cast_to is not None:
        found = {"to": cast_to}
    elif op_type.startswith("Reduce"):
        found["keepdims"] = _flag(data, "keep_dims")
        found.pop("keep_dims", None)
    elif op_type == "Reshape":
        found = {"allowzero": 1 - _flag(data, "special_zero")}
    elif op_type == "Gelu":
        found = {"approximate": "tanh" if data.get("approximation_mode", "").lower() == "tanh" else "none"}
    return found


_RENAMED = {"epsilon_value": "epsilon", "eps": "epsilon", "cube_coeff": "cubic_coeff_a"}
_AUTO_PADS = {"explicit": "NOTSET", "notset": "NOTSET"}


def _convolution(found: dict[str, Attribute], data: Mapping[str, str]) -> None:
    begin, end = found.pop("pads_begin", None), found.pop("pads_end", None)
    if isinstance(begin, tuple | int) and isinstance(end, tuple | int):
        found["pads"] = _ints(begin) + _ints(end)
    for key in ("strides", "dilations", "kernel", "output_padding"):
        value = found.get(key)
        if isinstance(value, tuple | int):
            found["kernel_shape" if key == "kernel" else key] = _ints(value)
    for key in ("kernel", "auto_pad", "rounding_type", "exclude-pad"):
        found.pop(key, None)
    if "auto_pad" in data:
        pads = data["auto_pad"].lower()
        found["auto_pad"] = _AUTO_PADS.get(pads, pads.upper())
    if data.get("rounding_type", "").startswith("ceil"):
        found["ceil_mode"] = 1
    if "exclude-pad" in data:
        found["count_include_pad"] = 1 - _flag(data, "exclude-pad")


def _ints(value: Attribute) -> tuple[int, ...]:
    whole = value if isinstance(value, tuple) else (value,)
    return tuple(int(x) for x in whole if isinstance(x, int))


def _flag(data: Mapping[str, str], key: str) -> int:
    return int(data.get(key, "false").lower() in ("true", "1"))


def _value(text: str) -> Attribute:
    """An integer, a tuple of integers, a number, or the text itself; booleans as 0 and 1."""
    if text.lower() in ("true", "false"):
        return int(text.lower() == "true")
    parts = [p.strip() for p in text.split(",")]
    try:
        whole = tuple(int(p) for p in parts)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text
    return whole[0] if len(whole) == 1 else whole
