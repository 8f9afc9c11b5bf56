"""Float reduction: constants stored in float16, bfloat16 or float64 instead of float32."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from visualquant.core.graph import GraphView
from visualquant.core.quant import QuantParams, QuantSite
from visualquant.formats.operators import is_quantized_operator
from visualquant.formats.schemes._flow import Flow, place
from visualquant.formats.schemes._sites import role_of

NAME = "float_reduction"
_REDUCED = ("float16", "bfloat16")
# Sizes, bounds and the like: floats that are settings of an operator, not operands.
_SETTINGS = {"Resize": (1, 2), "Upsample": (1,), "NonMaxSuppression": (3, 4), "OneHot": (2,), "Range": (0, 1, 2)}


def find(graph: GraphView) -> Iterable[QuantSite]:
    """One site for each half-precision constant and compute node; the scheme is named by the type.

    float64 counts only where most of the file's floats are float64: single constants of that type are an
    exporter's habit, not a choice.
    """
    types = _REDUCED + (("float64",) if _mostly_double(graph) else ())
    flow = Flow(graph)
    for value in graph.values:
        stored = value.const
        if stored is None or stored.dtype.name not in types:
            continue
        for use in flow.uses(value.id):
            if is_quantized_operator(use.node) or use.slot in _SETTINGS.get(use.node.op_type, ()):
                continue
            why = None if use.exact else f"A shape between {value.key!r} and {place(use.node)} is unknown."
            yield QuantSite(
                value=value.id,
                scheme=stored.dtype.name,
                role=role_of(use, stored.dtype),
                params=QuantParams(stored.dtype, np.array(1.0)) if use.exact else None,
                codes=stored,
                reader=use.node.id,
                slot=use.slot,
                view=use.steps,
                nodes=use.passed,
                problem=why,
            )


def _mostly_double(graph: GraphView) -> bool:
    floats = [v.const for v in graph.values if v.const is not None and v.const.dtype.is_float]
    double = sum(c.size for c in floats if c.dtype.name == "float64")
    return 2 * double > sum(c.size for c in floats)
