"""`visualquant compare FLOAT QUANT`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from visualquant.cli.data_options import data_options, options_of
from visualquant.cli.device_options import device_options, devices_of
from visualquant.core.report import Report
from visualquant.errors import UsageError

PARTIAL = 4


@click.command(name="compare")
@click.argument("float_model", metavar="FLOAT", type=click.Path(path_type=Path))
@click.argument("quant_models", metavar="QUANT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--what-if", is_flag=True, help="Also measure what int8 and int4 in other forms would give.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the report as JSON (- for stdout).")
@click.option("--save", type=click.Path(path_type=Path), help="Write a .vqz that opens without the models.")
@click.option("--top", default=10, show_default=True, type=click.IntRange(0), help="Layers and findings to show.")
@click.option("--fail-below-sqnr", type=float, metavar="DB", help="Exit code 1 if a weight's SQNR is below DB.")
@click.option("--data-root", type=click.Path(path_type=Path), help="Folder of data files that are links elsewhere.")
@click.option("--fusions", is_flag=True, help="List what was fused: before, after, and what is quantized there.")
@click.option("--map", "pins", type=click.Path(path_type=Path), help="JSON that fixes or forbids ties (see align).")
@click.option("--encodings", type=click.Path(path_type=Path), help="AIMET encodings that belong to QUANT.")
@data_options
@device_options
@click.option("--threads", type=click.IntRange(1), help="Threads of the kernels (default: all cores).")
def command(
    float_model: Path,
    quant_models: tuple[Path, ...],
    what_if: bool,
    json_path: Path | None,
    save: Path | None,
    top: int,
    fail_below_sqnr: float | None,
    data_root: Path | None,
    threads: int | None,
    fusions: bool,
    pins: Path | None,
    encodings: Path | None,
    **given: Any,
) -> int:
    """Compare a FLOAT model with its QUANT counterpart: aligned graphs, weight errors, findings.

    With several QUANT files one table holds them side by side, a row a toolchain.

    With --device the quantized model runs on a board (see `visualquant device`), beside this host's own run.

    Exit codes: 0 done; 1 a threshold is not met; 2 bad usage or bad input; 3 device or network failure; 4 partial;
    130 interrupted.
    """
    from visualquant.cli.output import write_json
    from visualquant.cli.progress import Progressbar
    from visualquant.session.compare import compare
    from visualquant.session.pipeline import load_model

    if fail_below_sqnr is not None and math.isnan(fail_below_sqnr):
        raise UsageError("--fail-below-sqnr needs a number of decibels.")
    for path in (json_path, save):
        if path is not None and str(path) != "-" and not path.absolute().parent.is_dir():
            raise UsageError(f"The folder of {str(path)!r} does not exist.")
    devices = devices_of(given)
    data = options_of(given)
    if (pins is not None or encodings is not None) and len(quant_models) > 1:
        raise UsageError("--map and --encodings belong to one pair: name one QUANT file.")
    with Progressbar() as bar:
        bar.stage(f"reading {float_model.name}", 0, 0)
        loaded = load_model(float_model, data_root=data_root)
        reports = [
            compare(
                float_model,
                quant_model,
                what_if=what_if,
                data_root=data_root,
                threads=threads,
                progress=bar.stage,
                command=f"compare {float_model.name} {' '.join(p.name for p in quant_models)}",
                data=data,
                devices=devices,
                pins=pins,
                encodings=encodings,
                float_model=loaded,
            )
            for quant_model in quant_models
        ]
    report = reports[0]
    if len(reports) > 1:
        from visualquant.session.many import join

        report = join(reports)
    if save is not None:
        from visualquant.session.archive import save as save_archive

        save_archive(report, save)
    if not write_json(report, json_path):
        from visualquant.reports.terminal import render

        render(report, top=top, fusions=fusions)
    return PARTIAL if report.status == "partial" else _gate(report, fail_below_sqnr)


def _gate(report: Report, fail_below_sqnr: float | None) -> int:
    if fail_below_sqnr is None:
        return 0
    below = [
        w for w in report.weights if w.role == "weight" and float(w.metrics.get("sqnr_db", math.inf)) < fail_below_sqnr
    ]
    if below:
        worst = min(below, key=lambda w: float(w.metrics["sqnr_db"]))
        click.echo(
            f"{len(below)} weights are below {fail_below_sqnr:g} dB, the worst {worst.value!r} with "
            f"{float(worst.metrics['sqnr_db']):.2f} dB.",
            err=True,
        )
        return 1
    return 0
