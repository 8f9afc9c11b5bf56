"""Which operators quantize and dequantize, and how each states its codes."""

from __future__ import annotations

import dataclasses
from typing import Literal

from visualquant.core.graph import GraphView, NodeView
from visualquant.core.tensors import ELEMENT_TYPES, ElementType
from visualquant.formats.onnx_types import BY_NUMBER


@dataclasses.dataclass(frozen=True, slots=True)
class QdqOp:
    """One operator of the Q/DQ family.

    Attributes:
        kind: "q" or "dq".
        code_type: what the codes are whatever the file says (vendor operators), or None.
        default_axis, default_block: what left-out attributes mean.
        scale_is_exponent: an integer scale is the exponent byte of float8e8m0.
    """

    kind: Literal["q", "dq"]
    code_type: str | None = None
    default_axis: int = 1
    default_block: int = 0
    scale_is_exponent: bool = False


_NAMES: dict[tuple[str, str], QdqOp] = {
    ("", "QuantizeLinear"): QdqOp("q"),
    ("", "DequantizeLinear"): QdqOp("dq"),
    ("com.microsoft", "QuantizeLinear"): QdqOp("q"),
    ("com.microsoft", "DequantizeLinear"): QdqOp("dq"),
    ("com.amd.quark", "ExtendedQuantizeLinear"): QdqOp("q"),
    ("com.amd.quark", "ExtendedDequantizeLinear"): QdqOp("dq"),
    ("com.vai.quantize", "VitisQuantizeLinear"): QdqOp("q"),
    ("com.vai.quantize", "VitisDequantizeLinear"): QdqOp("dq"),
    ("trt", "TRT_INT8QuantizeLinear"): QdqOp("q", "int8"),
    ("trt", "TRT_INT8DequantizeLinear"): QdqOp("dq", "int8"),
    ("trt", "TRT_FP8QuantizeLinear"): QdqOp("q", "float8e4m3fn"),
    ("trt", "TRT_FP8DequantizeLinear"): QdqOp("dq", "float8e4m3fn"),
    ("trt", "TRT_INT4QuantizeLinear"): QdqOp("q", "int4"),
    ("trt", "TRT_INT4DequantizeLinear"): QdqOp("dq", "int4"),
    ("trt", "TRT_MXFP8DequantizeLinear"): QdqOp("dq", "float8e4m3fn", -1, 32, True),
}


def qdq_op(node: NodeView | None) -> QdqOp | None:
    """The Q/DQ operator that a node is, or None."""
    return None if node is None else _NAMES.get((node.domain, node.op_type))


def is_quantize(node: NodeView | None) -> bool:
    """True for every operator that turns values into codes with a given scale."""
    op = qdq_op(node)
    return op is not None and op.kind == "q"


def is_dequantize(node: NodeView | None) -> bool:
    """True for every operator that turns codes into values."""
    op = qdq_op(node)
    return op is not None and op.kind == "dq"


def quantized_type(graph: GraphView, node: NodeView) -> ElementType:
    """The code type of a quantize node: zero point, output_dtype, inferred output, else uint8."""
    op = qdq_op(node)
    if op is not None and op.code_type is not None:
        return ELEMENT_TYPES[op.code_type]
    zero = node.input(2)
    if zero is not None and (stated := graph.values[zero].dtype) is not None:
        return stated
    number = node.int_attribute("output_dtype", 0)
    if number in BY_NUMBER:
        return BY_NUMBER[number]
    made = node.output()
    inferred = graph.values[made].dtype if made is not None else None
    return inferred or ELEMENT_TYPES["uint8"]
