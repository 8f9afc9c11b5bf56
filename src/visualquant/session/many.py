"""Several quantized files of one float model in one report: a row a toolchain."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from visualquant.core.report import ComparedRow, ModelRow, ModelsRow, Report

_ROWS = ("alignment", "fusions", "weights", "findings", "activations")


def join(reports: Sequence[Report]) -> Report:
    """One report of several on the same float model.

    The first file keeps the key "quant"; further ones are "q2", "q3", ...: their rows carry `model`, and their group
    ids begin with it ("q2/g7"), so that ids stay unique.
    """
    first = reports[0]
    others: dict[str, ModelRow] = {}
    rows: dict[str, list[Any]] = {name: list(getattr(first, name)) for name in _ROWS}
    nodes, values = dict(first.nodes), dict(first.values)
    compared = [_compared("quant", first)]
    details = list(first.details)
    outputs, task = list(first.outputs), list(first.task)
    runs, latency = list(first.runs), list(first.latency)
    for number, report in enumerate(reports[1:], start=2):
        key = f"q{number}"
        if report.models.quant is not None:
            others[key] = report.models.quant
        nodes[key], values[key] = report.nodes["quant"], report.values["quant"]
        for name in _ROWS:
            rows[name] += [_marked(row, key) for row in getattr(report, name)]
        details += report.details
        runs += [dataclasses.replace(r, id=f"{key}/{r.id}") for r in report.runs if r.model == "quant"]
        outputs += [dataclasses.replace(o, run=f"{key}/{o.run}") for o in report.outputs]
        task += [dataclasses.replace(t, run=f"{key}/{t.run}") for t in report.task]
        latency += [dataclasses.replace(t, run=f"{key}/{t.run}") for t in report.latency if t.run != "r0"]
        compared.append(_compared(key, report))
    return dataclasses.replace(
        first,
        models=ModelsRow(first.models.float, first.models.quant, others),
        nodes=nodes,
        values=values,
        details=tuple(details),
        outputs=tuple(outputs),
        task=tuple(task),
        runs=tuple(runs),
        latency=tuple(latency),
        compared=tuple(compared),
        alignment=tuple(rows["alignment"]),
        fusions=tuple(rows["fusions"]),
        weights=tuple(rows["weights"]),
        findings=tuple(rows["findings"]),
        activations=tuple(rows["activations"]),
    )


def _marked(row: Any, key: str) -> Any:
    changes: dict[str, Any] = {}
    names = {f.name for f in dataclasses.fields(row)}
    if "model" in names:
        changes["model"] = key
    if "group" in names and row.group is not None:
        changes["group"] = f"{key}/{row.group}"
    if "groups" in names and row.groups:
        changes["groups"] = tuple(f"{key}/{g}" for g in row.groups)
    if "run" in names:
        changes["run"] = f"{key}/{row.run}"
    return dataclasses.replace(row, **changes)


def _compared(key: str, report: Report) -> ComparedRow:
    model = report.models.quant
    output = next((o.metrics.get("sqnr_db") for o in report.outputs if "sqnr_db" in o.metrics), None)
    task = report.task[0] if report.task else None
    assert model is not None
    return ComparedRow(
        model=key,
        name=model.name,
        quantizer=model.quantizer,
        schemes=model.schemes,
        bytes=model.bytes + model.bytes_external,
        bits_per_weight=None if model.storage is None else model.storage.bits_per_weight,
        coverage=report.summary.coverage.parameters,
        sqnr_db_worst=report.summary.sqnr_db_worst,
        sqnr_db_median=report.summary.sqnr_db_median,
        output_sqnr_db=output,
        metric=None if task is None else task.metric,
        value=None if task is None else task.quant,
        errors=sum(f.severity == "error" for f in report.findings),
        first_finding=report.findings[0].code if report.findings else None,
    )
