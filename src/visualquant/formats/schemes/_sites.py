"""Sites from what a reader found: one for each compute node behind a dequantized tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from visualquant.core.graph import GraphView, NodeId, ValueId
from visualquant.core.quant import QuantParams, QuantSite, SiteRole, ViewStep
from visualquant.core.tensors import ElementType, TensorRef
from visualquant.core.trace import trace_operand
from visualquant.formats.schemes._affine import Array, Reading, Shape
from visualquant.formats.schemes._constants import constant
from visualquant.formats.schemes._flow import Flow, Use, is_bias
from visualquant.formats.schemes._qdq_ops import is_dequantize, is_quantize


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """A stored tensor and the layout steps from it to some operand.

    Attributes:
        value, stored: the tensor of the file.
        steps: to the operand.
        shape: of the operand.
        nodes: plumbing passed.
    """

    value: ValueId
    stored: TensorRef
    steps: tuple[ViewStep, ...]
    shape: Shape
    nodes: tuple[NodeId, ...]

    def operand(self) -> Array:
        """The elements as the operand has them."""
        array = self.stored.array()
        for step in self.steps:
            array = step.apply(array)
        return array


def shape_after(step: ViewStep, shape: Shape) -> Shape:
    """The shape of a tensor after a transpose or reshape."""
    return tuple(shape[k] for k in step.args) if step.kind == "transpose" else step.args


def origin_of(graph: GraphView, value: ValueId | None) -> Origin | None:
    """The stored tensor behind an operand; None where it is computed or a shape on the way is unknown."""
    if value is None:
        return None
    trace = trace_operand(graph, value)
    stored = graph.const(trace.source)
    if stored is None or not trace.exact:
        return None
    shape = stored.shape
    for step in trace.steps:
        shape = shape_after(step, shape)
    return Origin(trace.source, stored, trace.steps, shape, trace.nodes)


def weight_sites(
    flow: Flow,
    scheme: str,
    value: ValueId,
    codes: TensorRef,
    reading: Reading,
    made: ValueId | None,
    view: tuple[ViewStep, ...] = (),
    nodes: tuple[NodeId, ...] = (),
    *,
    at_run_time: bool = False,
) -> Iterator[QuantSite]:
    """One site for each compute node behind a dequantized tensor; one without a reader where there is none.

    Args:
        flow: walks of the graph.
        scheme: name of the reader.
        value: the tensor of the file.
        codes: its codes.
        reading: their parameters, or a problem.
        made: the dequantized tensor.
        view: from the codes to `made`.
        nodes: what stands between `value` and `made`.
        at_run_time: the file keeps `value` in float.
    """
    code_type = codes.dtype if reading.params is None else reading.params.code_type
    blank = QuantSite(
        value=value,
        scheme=scheme,
        role="weight",
        params=reading.params,
        codes=codes,
        reader=None,
        slot=0,
        view=view,
        nodes=nodes,
        dequantized=made,
        quantized_at_run_time=at_run_time,
        problem=reading.problem,
    )
    found = [] if made is None else _uses(flow, made)
    for use, between in found:
        site = dataclasses.replace(
            blank,
            role=role_of(use, code_type),
            reader=use.node.id,
            slot=use.slot,
            view=view + use.steps,
            nodes=tuple(dict.fromkeys((*nodes, *between, *use.passed))),
            pre_scale=_pre_scale(flow.graph, use),
        )
        if not use.exact:
            name = flow.graph.values[value].key
            why = f"A shape between {name!r} and its reader {use.node.name!r} is unknown."
            site = dataclasses.replace(site, params=None, view=(), problem=why)
        yield site
    if not found:
        yield blank


def _uses(flow: Flow, value: ValueId) -> list[tuple[Use, tuple[NodeId, ...]]]:
    """Readers of a dequantized tensor, and the nodes of a further Q/DQ pair on the way, which is looked through."""
    found: list[tuple[Use, tuple[NodeId, ...]]] = []
    for use in flow.uses(value):
        codes = use.node.output() if is_quantize(use.node) and use.slot == 0 else None
        inner = [] if codes is None else [u for u in flow.uses(codes) if is_dequantize(u.node)]
        for dequantize in inner:
            passed = (*use.passed, use.node.id, *dequantize.passed, dequantize.node.id)
            last_made = dequantize.node.output()
            for last in [] if last_made is None else flow.uses(last_made):
                exact = use.exact and dequantize.exact and last.exact
                steps = use.steps + dequantize.steps + last.steps
                found.append((Use(last.node, last.slot, steps, last.passed, exact), passed))
        if not inner:
            found.append((use, ()))
    return found


def role_of(use: Use, code_type: ElementType) -> SiteRole:
    """Weight or bias, by the slot; int32 codes that are added are a bias as well."""
    if is_bias(use.node, use.slot):
        return "bias"
    return "bias" if code_type.name == "int32" and use.node.op_type in ("Add", "Sum") else "weight"


def activation_site(
    flow: Flow,
    scheme: str,
    value: ValueId,
    params: QuantParams | None,
    *,
    nodes: Iterable[NodeId] = (),
    dequantized: ValueId | None = None,
    behind: ValueId | None = None,
    problem: str | None = None,
) -> QuantSite:
    """The site of a computed tensor; its reader is the first compute node behind `behind` (default: the value)."""
    uses = flow.uses(value if behind is None else behind)
    return QuantSite(
        value=value,
        scheme=scheme,
        role="activation",
        params=params,
        codes=None,
        reader=uses[0].node.id if uses else None,
        slot=uses[0].slot if uses else 0,
        nodes=tuple(dict.fromkeys(nodes)),
        dequantized=dequantized,
        problem=problem,
    )


def _pre_scale(graph: GraphView, use: Use) -> npt.NDArray[np.float64] | None:
    """What the float weight was multiplied by before quantizing, shaped to broadcast against the operand.

    ModelOpt's AWQ divides the data by the same factor in a Mul that it names "<weight>_PQS" (constant
    "<weight>_awq_scale", the reciprocal).
    """
    if use.node.op_type not in ("MatMul", "Gemm") or use.slot != 1:
        return None
    data = use.node.input(0)
    made = None if data is None else graph.producer_of(trace_operand(graph, data).source)
    if made is None or made.op_type != "Mul" or made.domain != "":
        return None
    for value in made.inputs:
        if value is None:
            continue
        named = graph.values[value].name.endswith(("_awq_scale", "pre_quant_scale"))
        factor = constant(graph, value) if named or made.name.endswith("_PQS") else None
        if factor is not None:
            with np.errstate(all="ignore"):
                reciprocal = 1.0 / factor.astype(np.float64).reshape(-1)
            turned = use.node.op_type == "Gemm" and use.node.int_attribute("transB", 0)
            return reciprocal.reshape((1, -1) if turned else (-1, 1))
    return None
