"""`visualquant compare FLOAT QUANT`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from visualquant.core.report import Report
from visualquant.errors import UsageError

if TYPE_CHECKING:
    from visualquant.session.with_data import DataOptions


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
@click.option("--data", help="Samples: .npz, .npy, a folder of .npy or images, or `random`. Runs both models.")
@click.option("--map", "pins", type=click.Path(path_type=Path), help="JSON that fixes or forbids ties (see align).")
@click.option("--encodings", type=click.Path(path_type=Path), help="AIMET encodings that belong to QUANT.")
@click.option("--calib", help="Calibration samples when they stand in another file.")
@click.option("--samples", "limit", type=click.IntRange(1), help="Run at most so many samples.")
@click.option("--set", "constants", multiple=True, metavar="NAME=VALUE", help="One value for an input.")
@click.option("--sample-axis", multiple=True, metavar="NAME=K", help="Axis of an input's array that counts samples.")
@click.option("--map-input", multiple=True, metavar="FLOAT=QUANT", help="Inputs that differ in name.")
@click.option("--image-size", metavar="HxW", help="Resize images to this size.")
@click.option("--mean", metavar="R,G,B", help="Subtracted from pixels in [0, 1].")
@click.option("--std", metavar="R,G,B", help="Divides pixels after the mean.")
@click.option("--channel-order", type=click.Choice(["rgb", "bgr", "gray"]), default="rgb", show_default=True)
@click.option("--layout", type=click.Choice(["nchw", "nhwc"]), default="nchw", show_default=True)
@click.option("--memory", metavar="SIZE", help="Growth allowed for runs, e.g. 512MB.")
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
    **data_options: Any,
) -> int:
    """Compare a FLOAT model with its QUANT counterpart: aligned graphs, weight errors, findings.

    With several QUANT files one table holds them side by side, a row a toolchain.

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
    data = _data(data_options)
    if (pins is not None or encodings is not None) and len(quant_models) > 1:
        raise UsageError("--map and --encodings belong to one pair: name one QUANT file.")
    with Progressbar() as bar:
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
                pins=pins,
                encodings=encodings,
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
    return _gate(report, fail_below_sqnr)


def _data(given: dict[str, Any]) -> DataOptions | None:
    """The options that need samples, as one object; None without --data."""
    if given["data"] is None:
        options = {"limit": "samples", "constants": "set"}
        for name in ("calib", "limit", "constants", "sample_axis", "map_input", "image_size", "mean", "std", "memory"):
            if given[name]:
                raise UsageError(f"--{options.get(name, name).replace('_', '-')} needs --data.")
        return None
    from visualquant.cli.units import parse_bytes, parse_floats, parse_size
    from visualquant.core.taps import RunOptions
    from visualquant.runtime.feeds import FeedOptions
    from visualquant.runtime.images import ImageOptions
    from visualquant.runtime.samples import parse_pairs
    from visualquant.session.with_data import DataOptions

    axes = parse_pairs(given["sample_axis"], "--sample-axis")
    try:
        sample_axis = {name: int(axis) for name, axis in axes.items()}
    except ValueError as error:
        raise UsageError("--sample-axis wants NAME=K with a whole number K.") from error
    return DataOptions(
        data=given["data"],
        calibration=given["calib"],
        feeds=FeedOptions(
            constants=parse_pairs(given["constants"], "--set"),
            sample_axis=sample_axis,
            map_input=parse_pairs(given["map_input"], "--map-input"),
            limit=given["limit"] or 0,
        ),
        images=ImageOptions(
            size=parse_size(given["image_size"]),
            mean=parse_floats(given["mean"], "--mean") or (0.0,),
            std=parse_floats(given["std"], "--std") or (1.0,),
            channel_order=given["channel_order"],
            layout=given["layout"],
        ),
        quant=RunOptions(memory_bytes=parse_bytes(given["memory"])),
    )


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
