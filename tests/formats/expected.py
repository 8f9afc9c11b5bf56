"""Holds sites against expected rows, without the alignment: the float tensor is named by the row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from visualquant.core.graph import GraphView
from visualquant.core.quant import QuantSite
from visualquant.formats.scheme import Sites


def sqnr_db(x: np.ndarray, y: np.ndarray) -> float:
    """10·log10(Σx² / Σ(x−y)²) over pairs that are both finite; +inf where they are equal, NaN where there are none."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    if not both.any():
        return math.nan
    noise, signal = float(((x - y)[both] ** 2).sum()), float((x[both] ** 2).sum())
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def dequantized(site: QuantSite) -> np.ndarray:
    """x̂ as the operand that the reader sees."""
    assert site.params is not None and site.codes is not None
    value = site.params.dequantize(site.codes.array())
    if site.pre_scale is not None:
        value = value / site.pre_scale
    for step in site.view:
        value = step.apply(value)
    return value


def like(float_value: np.ndarray, operand: np.ndarray) -> np.ndarray:
    """The float tensor in the operand's orientation: as it is, or with its last two axes swapped, whichever fits."""
    candidates = [float_value] + ([np.swapaxes(float_value, -1, -2)] if float_value.ndim > 1 else [])
    fitting = [c.reshape(operand.shape) for c in candidates if c.size == operand.size]
    return max(fitting, key=lambda c: sqnr_db(c, operand))


def find(sites: Sites, graph: GraphView, row: dict[str, Any]) -> QuantSite | None:
    """The site of a row of expect.json or weights.json."""
    named = row.get("also_named", [])
    names = {row["value"], *([named] if isinstance(named, str) else named)}
    role = row.get("role", "weight")
    found = [s for s in sites.sites if graph.values[s.value].key in names and s.role == role]
    by_node = [s for s in found if s.reader is not None and graph.nodes[s.reader].name == row.get("quant_node")]
    return next(iter(by_node or found), None)


def complaints(sites: Sites, graph: GraphView, partner: GraphView, row: dict[str, Any]) -> list[str]:
    """What of a row does not hold."""
    site = find(sites, graph, row)
    if site is None:
        return [f"no site for {row['value']}"]
    if site.params is None:
        return [f"{row['value']}: {site.problem}"]
    wrong = []
    for key, got in (
        ("granularity", site.params.granularity),
        ("axis", site.params.axis),
        ("block_size", site.params.block_size),
        ("code_type", site.params.code_type.name),
    ):
        if row.get(key) is not None and row[key] != got:
            wrong.append(f"{row['value']}: {key} {got}, expected {row[key]}")
    if row["float_value"] is None:
        return wrong
    operand = dequantized(site)
    names = row["float_value"] if isinstance(row["float_value"], list) else [row["float_value"]]
    parts = [ref.array() for name in names if (ref := partner.const(partner.by_key[name])) is not None]
    assert len(parts) == len(names)
    float_value = (
        parts[0] if len(parts) == 1 else np.concatenate(parts, axis=int(parts[0].shape[0] == operand.shape[0]))
    )
    if row.get("sqnr_db") is not None and operand.size:
        want = float(row["sqnr_db"])
        got_db = sqnr_db(like(float_value, operand), operand)
        if not (got_db == want or abs(got_db - want) <= row.get("tolerance_db", 0.0101)):
            wrong.append(f"{row['value']}: {got_db:.3f} dB, expected {want}")
    return wrong
