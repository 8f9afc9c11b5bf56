"""From two paths to a report: each step a pure function of the earlier results."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from visualquant._version import __version__
from visualquant.analysis import findings as findings_engine
from visualquant.analysis import storage as storage_analysis
from visualquant.analysis.findings.context import Context
from visualquant.analysis.findings.data import DataContext, diverging
from visualquant.analysis.summary import summarize
from visualquant.analysis.toolchain import guess_quantizer
from visualquant.analysis.weights import WeightOptions, measure_weights
from visualquant.core.alignment import Alignment
from visualquant.core.evidence import ActivationEvidence
from visualquant.core.graph import GraphView
from visualquant.core.model import Model
from visualquant.core.pins import Pins, parse_pins
from visualquant.core.report import EnvironmentRow, Finding, Report, ToolRow
from visualquant.core.tensors import FileSource
from visualquant.errors import UsageError
from visualquant.formats.container import open_model
from visualquant.formats.scheme import find_sites
from visualquant.session.data_sections import DataSections
from visualquant.session.rows import alignment_rows, fusion_rows, models_row, node_rows, value_rows

Stage = Callable[[str, int, int], None]
"""Called with a stage in words, what is done of it, and all of it (0 where unknown)."""

COMPILING = "compiling kernels (the first run only)"
SURE = 0.9
_DIGEST_CHUNK = 1 << 22


def load_model(path: Path | str, *, data_root: Path | str | None = None, encodings: Path | str | None = None) -> Model:
    """A model and the quantization in it; weights stay on disk. `encodings` is an AIMET file that belongs to it.

    Raises:
        ModelFileError, ExternalDataError: see `formats.container.open_model`.
    """
    path = Path(path)
    graph = open_model(path, data_root=data_root, encodings=encodings)
    found = find_sites(graph)
    return Model(
        name=path.name,
        graph=graph,
        sites=found.sites,
        schemes=found.schemes,
        unclaimed=found.unclaimed,
        conflicts=found.conflicts,
        unknown_operators=found.unknown_operators,
        not_encoded=found.not_encoded,
        bytes=path.stat().st_size,
        bytes_external=_external_bytes(graph),
        sha256=_digest(path),
        quantizer=guess_quantizer(graph, found.sites),
    )


def _external_bytes(graph: GraphView) -> int:
    pieces = {
        (v.const.source.path, v.const.source.offset): v.const.source.length
        for v in graph.values
        if v.const is not None and isinstance(v.const.source, FileSource)
    }
    return sum(pieces.values())


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_DIGEST_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def read_pins(path: Path | str, float_model: Model, quant_model: Model) -> Pins:
    """A user's word on the alignment, from a JSON file.

    Raises:
        UsageError: no JSON, another form, or nodes that are not there.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"The pins file {str(path)!r} can't be read: {error.strerror}.") from error
    except ValueError as error:
        raise UsageError(f"The pins file {Path(path).name!r} is no JSON: {error}.") from error
    return parse_pins(content, float_model.graph, quant_model.graph)


def align_models(
    float_model: Model,
    quant_model: Model,
    pins: Pins | None = None,
    activations: ActivationEvidence | None = None,
) -> Alignment:
    """Which nodes of the two models do the same thing."""
    from visualquant.align import align

    with np.errstate(all="ignore"):  # NOTE: weights may hold NaN and infinities; they are compared all the same
        return align(
            float_model.graph,
            quant_model.graph,
            float_sites=float_model.sites,
            quant_sites=quant_model.sites,
            pins=pins,
            activations=activations,
        )


class Samples(Protocol):
    """Both models on a user's samples."""

    def evidence(self, alignment: Alignment) -> ActivationEvidence:
        """Which values are measured to be the same, from a first run over a few samples."""

    def measure(self, alignment: Alignment) -> DataSections:
        """What the run over all samples gives."""


def compare_models(
    float_model: Model,
    quant_model: Model,
    *,
    options: WeightOptions | None = None,
    stage: Stage | None = None,
    command: str = "",
    timings: Mapping[str, float] | None = None,
    samples: Samples | None = None,
    pins: Pins | None = None,
) -> Report:
    """The report on two loaded models; with samples they are also run."""
    from visualquant.kernels._jit import on_compile

    options = options or WeightOptions()
    say = stage or (lambda _name, _done, _all: None)
    spent = dict(timings or {})
    with timed(spent, "align_s"):
        say("aligning", 0, 0)
        alignment = align_models(float_model, quant_model, pins)
        if samples is not None:
            alignment = _measured_alignment(float_model, quant_model, alignment, pins, samples)
    with timed(spent, "weights_s"), on_compile(lambda _kernel: say(COMPILING, 0, 0)):
        measured = measure_weights(float_model, quant_model, alignment, options)
    context = Context(float_model, quant_model, alignment, measured)
    if samples is None:
        with timed(spent, "findings_s"):
            say("looking for causes", 0, 0)
            found = findings_engine.find(context)
        return _report(context, found, command, spent)
    with timed(spent, "run_s"):
        sections = samples.measure(alignment)
    with timed(spent, "findings_s"):
        say("looking for causes", 0, 0)
        whole = DataContext(context, sections.run, sections.facts)
        found, first = findings_engine.find_with_data(whole), diverging(whole)
    report = _report(context, found, command, spent)
    return dataclasses.replace(
        report,
        summary=dataclasses.replace(report.summary, first_diverging=None if first is None else first.pair.group),
        runs=sections.runs,
        activations=sections.activations,
        outputs=sections.outputs,
        task=sections.task,
        latency=sections.latency,
        devices=sections.devices,
        status=sections.status,
        status_reason=sections.status_reason,
    )


def _measured_alignment(
    float_model: Model, quant_model: Model, alignment: Alignment, pins: Pins | None, samples: Samples
) -> Alignment:
    """The alignment with what a first run shows, where files alone leave a doubt (and only there)."""
    doubtful = [g for g in alignment.groups if g.confidence < SURE and g.float_nodes and g.quant_nodes]
    doubtful += [g for g in alignment.groups if not (g.float_nodes and g.quant_nodes)]
    nodes = {n for g in doubtful for n in g.float_nodes}, {n for g in doubtful for n in g.quant_nodes}
    if not nodes[0] or not nodes[1]:
        return alignment
    found = samples.evidence(alignment)
    makers = [[v.producer for v in model.graph.values] for model in (float_model, quant_model)]
    same = tuple(pair for pair in found.same if makers[0][pair[0]] in nodes[0] and makers[1][pair[1]] in nodes[1])
    if not same:
        return alignment
    return align_models(float_model, quant_model, pins, dataclasses.replace(found, same=same))


@contextlib.contextmanager
def timed(spent: dict[str, float], key: str) -> Iterator[None]:
    """Notes the seconds that a stage takes."""
    start = time.perf_counter()
    yield
    spent[key] = time.perf_counter() - start


def _report(context: Context, findings: tuple[Finding, ...], command: str, timings: Mapping[str, float]) -> Report:
    float_model, quant_model, alignment = context.float_model, context.quant_model, context.alignment
    weights = tuple(m.row for m in context.weights)
    coverage = storage_analysis.coverage(float_model, quant_model, alignment)
    return Report(
        tool=ToolRow("visualquant", __version__),
        environment=environment(command),
        summary=summarize(quant_model, alignment, coverage, weights, findings),
        models=models_row(float_model, quant_model),
        nodes={"float": node_rows(float_model.graph), "quant": node_rows(quant_model.graph)},
        values={"float": value_rows(float_model.graph), "quant": value_rows(quant_model.graph)},
        alignment=alignment_rows(alignment),
        fusions=fusion_rows(
            alignment,
            quant_model,
            frozenset(g for f in findings if f.code == "QDQ_BLOCKS_FUSION" for g in f.groups),
        ),
        weights=weights,
        findings=findings,
        timings={k: round(v, 4) for k, v in timings.items()},
        details=tuple(m.detail for m in context.weights),
    )


def environment(command: str) -> EnvironmentRow:
    """Where this runs; versions of packages without importing them."""
    from importlib import metadata

    packages = {}
    for name in ("numpy", "onnx", "numba", "onnxruntime"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return EnvironmentRow(
        python=platform.python_version(),
        platform=f"{sys.platform} {platform.machine()}",
        packages=packages,
        command=command,
    )
