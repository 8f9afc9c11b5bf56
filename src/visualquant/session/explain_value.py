"""`explain FLOAT QUANT --value NAME`: finds the number, then walks it through the quantizer."""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from visualquant.analysis.walk import walk
from visualquant.analysis.weights import paired_arrays
from visualquant.core.quant import QuantParams
from visualquant.core.walk import Walk
from visualquant.errors import UsageError
from visualquant.session.pipeline import align_models, load_model

if TYPE_CHECKING:
    from visualquant.session.with_data import DataOptions

Array = npt.NDArray[Any]
Index = tuple[int, ...] | None


def explain_value(
    float_path: Path | str,
    quant_path: Path | str,
    name: str,
    *,
    index: Index = None,
    data: DataOptions | None = None,
) -> Walk:
    """The walk of one number of a weight, a bias, or (with samples) an activation.

    Args:
        float_path: the reference.
        quant_path: its counterpart.
        name: of the tensor, in either model.
        index: of the element, in the layout of the codes; without it the one with the largest error.
        data: samples; the first one is run for an activation.

    Raises:
        UsageError: no quantized tensor has that name, or the index lies outside.
        InputError: a file can't be read or run.
    """
    float_model, quant_model = load_model(float_path), load_model(quant_path)
    alignment = align_models(float_model, quant_model)
    known: list[str] = []
    for pair in paired_arrays(float_model, quant_model, alignment):
        known += [pair.value, *pair.float_values]
        if name in (pair.value, *pair.float_values):
            x, codes, params, problem = pair.arrays()
            if x is None or codes is None or params is None:
                raise UsageError(f"{name!r} can't be walked through: {problem or 'it is not quantized'}.")
            floats = ", ".join(pair.float_values)
            return _walked(name, x, params, codes, index, value=pair.value, float_value=floats, role=pair.role)
    activations = [quant_model.key(s.value) for s in quant_model.activation_sites]
    if data is None:
        hint = " Activations need --data." if activations else ""
        raise UsageError(f"No weight or bias with a counterpart is named {name!r}.{hint}{_near(name, known)}")
    from visualquant.session.with_data import DataRun

    first = dataclasses.replace(data, feeds=dataclasses.replace(data.feeds, limit=1), profile=False)
    with DataRun((Path(float_path), Path(quant_path)), (float_model, quant_model), first) as run:
        sections = run.measure(alignment)
    for row, item in zip(sections.activations, sections.run.activations, strict=True):
        site = item.pair.site
        if site is None:
            known.append(row.float_value)
            continue
        names = {row.float_value, row.quant_value, quant_model.key(site.value), quant_model.key(item.pair.quant_value)}
        known += names
        if name in names and site.params is not None and item.sample is not None:
            both = {"value": row.quant_value, "float_value": row.float_value}
            return _walked(name, item.sample, site.params, None, index, **both, role="activation")
    raise UsageError(
        f"No quantized value is named {name!r}, or its parameters exist only at run time.{_near(name, known)}"
    )


def _near(name: str, known: list[str]) -> str:
    found = difflib.get_close_matches(name, dict.fromkeys(known), n=3, cutoff=0.5)
    return f" Did you mean {', '.join(map(repr, found))}?" if found else ""


def _walked(name: str, x: Array, params: QuantParams, codes: Array | None, index: Index, **names: Any) -> Walk:
    try:
        return walk(x, params, codes, index, **names)
    except (IndexError, ValueError) as error:
        raise UsageError(f"{name!r}: {error}.") from error
