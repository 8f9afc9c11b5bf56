"""`visualquant compare FLOAT QUANT`."""

from __future__ import annotations

import math
from pathlib import Path

import click

from visualquant.core.report import Report
from visualquant.errors import UsageError


@click.command(name="compare")
@click.argument("float_model", metavar="FLOAT", type=click.Path(path_type=Path))
@click.argument("quant_model", metavar="QUANT", type=click.Path(path_type=Path))
@click.option("--what-if", is_flag=True, help="Also measure what int8 and int4 in other forms would give.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the report as JSON (- for stdout).")
@click.option("--save", type=click.Path(path_type=Path), help="Write a .vqz that opens without the models.")
@click.option("--top", default=10, show_default=True, type=click.IntRange(0), help="Layers and findings to show.")
@click.option("--fail-below-sqnr", type=float, metavar="DB", help="Exit code 1 if a weight's SQNR is below DB.")
@click.option("--data-root", type=click.Path(path_type=Path), help="Folder of data files that are links elsewhere.")
@click.option("--threads", type=click.IntRange(1), help="Threads of the kernels (default: all cores).")
def command(
    float_model: Path,
    quant_model: Path,
    what_if: bool,
    json_path: Path | None,
    save: Path | None,
    top: int,
    fail_below_sqnr: float | None,
    data_root: Path | None,
    threads: int | None,
) -> int:
    """Compare a FLOAT model with its QUANT counterpart: aligned graphs, weight errors, findings.

    Exit codes: 0 done; 1 a threshold is not met; 2 bad usage or bad input; 130 interrupted.
    """
    from visualquant.cli.output import write_json
    from visualquant.cli.progress import Progressbar
    from visualquant.session.compare import compare

    if fail_below_sqnr is not None and math.isnan(fail_below_sqnr):
        raise UsageError("--fail-below-sqnr needs a number of decibels.")
    for path in (json_path, save):
        if path is not None and str(path) != "-" and not path.absolute().parent.is_dir():
            raise UsageError(f"The folder of {str(path)!r} does not exist.")
    with Progressbar() as bar:
        report = compare(
            float_model,
            quant_model,
            what_if=what_if,
            data_root=data_root,
            threads=threads,
            progress=bar.stage,
            command=f"compare {float_model.name} {quant_model.name}",
        )
    if save is not None:
        from visualquant.session.archive import save as save_archive

        save_archive(report, save)
    if not write_json(report, json_path):
        from visualquant.reports.terminal import render

        render(report, top=top)
    return _gate(report, fail_below_sqnr)


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
