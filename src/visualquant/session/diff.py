"""Encodings of two quantized files of one network, side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from visualquant.analysis.tap_plan import sites_behind, sites_by_value
from visualquant.core.model import Model
from visualquant.core.quant import QuantParams, QuantSite
from visualquant.core.report import EncodingRow
from visualquant.session.pipeline import align_models, load_model


def diff_encodings(first: Path | str, second: Path | str) -> tuple[EncodingRow, ...]:
    """A row for each tensor that either file quantizes, in dataflow order of the first.

    Raises:
        InputError: a file can't be read.
    """
    a, b = load_model(first), load_model(second)
    alignment = align_models(a, b)
    rows: list[EncodingRow] = []
    seen: set[int] = set()
    for pair in alignment.weights:
        if len(pair.floats) != 1:
            continue
        mine = a.site_at.get((pair.floats[0].node, pair.floats[0].slot))
        theirs = b.site_at.get(pair.quant)
        if mine is not None or theirs is not None:
            rows.append(_row(a, b, mine, theirs))
            seen.update(id(s) for s in (mine, theirs) if s is not None)
    sides = [sites_by_value(m) | sites_behind(m) for m in (a, b)]
    for tie in alignment.values:
        mine, theirs = sides[0].get(tie.float_value), sides[1].get(tie.quant_value)
        if (mine is None and theirs is None) or {id(s) for s in (mine, theirs) if s is not None} & seen:
            continue
        rows.append(_row(a, b, mine, theirs))
        seen.update(id(s) for s in (mine, theirs) if s is not None)
    for model, other_first in ((a, True), (b, False)):
        for site in model.sites:
            if id(site) not in seen:
                rows.append(_row(a, b, site if other_first else None, None if other_first else site))
    return tuple(sorted(rows, key=lambda r: {"weight": 0, "bias": 1, "activation": 2}[r.role]))


def _row(a: Model, b: Model, mine: QuantSite | None, theirs: QuantSite | None) -> EncodingRow:
    site = mine or theirs
    assert site is not None
    left, right = _encoding(mine), _encoding(theirs)
    return EncodingRow(
        role=site.role,
        first_value=None if mine is None else a.key(mine.value),
        second_value=None if theirs is None else b.key(theirs.value),
        first=left,
        second=right,
        changed=tuple(k for k in sorted(set(left) | set(right)) if left.get(k) != right.get(k)),
    )


def _encoding(site: QuantSite | None) -> dict[str, str]:
    params = None if site is None else site.params
    if params is None:
        return {}
    return {
        "code_type": params.code_type.name,
        "granularity": params.granularity + ("" if params.block_size is None else f" {params.block_size}"),
        "axis": "" if params.axis is None else str(params.axis),
        "scale": _spread(params.scale),
        "zero_point": _zero(params),
    }


def _zero(params: QuantParams) -> str:
    return "0" if params.zero_point is None else _spread(params.zero_point.astype(np.float64))


def _spread(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    if not values.size:
        return "none"
    low, high = float(values.min()), float(values.max())
    return f"{low:.5g}" if low == high else f"{low:.5g} … {high:.5g}"
