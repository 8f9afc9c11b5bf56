"""`visualquant compare FLOAT QUANT`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from visualquant.cli.device_options import access_options, take_access
from visualquant.core.report import Report
from visualquant.errors import UsageError

if TYPE_CHECKING:
    from visualquant.session.devices import DeviceOptions
    from visualquant.session.with_data import DataOptions

PARTIAL = 4

# Options without a default that say nothing without samples, and how users spell them where that differs.
_NEED_DATA = (
    *("calib", "limit", "constants", "sample_axis", "state", "step_axis", "map_input"),
    *("image_size", "mean", "std", "memory", "metric"),
)
_SPELLED = {"limit": "samples", "constants": "set"}


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
@click.option("--state", multiple=True, metavar="INPUT=OUTPUT", help="An output that the next step takes as input.")
@click.option("--step-axis", multiple=True, metavar="NAME=K", help="Axis of an input's array that counts steps.")
@click.option("--metric", metavar="MODULE:FUNCTION", help="A task metric of your own, e.g. metrics.py:score.")
@click.option("--map-input", multiple=True, metavar="FLOAT=QUANT", help="Inputs that differ in name.")
@click.option("--image-size", metavar="HxW", help="Resize images to this size.")
@click.option("--mean", metavar="R,G,B", help="Subtracted from pixels in [0, 1].")
@click.option("--std", metavar="R,G,B", help="Divides pixels after the mean.")
@click.option("--channel-order", type=click.Choice(["rgb", "bgr", "gray"]), default="rgb", show_default=True)
@click.option("--layout", type=click.Choice(["nchw", "nhwc"]), default="nchw", show_default=True)
@click.option("--memory", metavar="SIZE", help="Growth allowed for runs, e.g. 512MB.")
@click.option("--device", "device", multiple=True, metavar="WHERE", help="HOST:PORT or ssh://USER@BOARD; repeatable.")
@click.option("--fresh", is_flag=True, help="Do not go on from samples that an interrupted run on a device finished.")
@access_options
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
    devices = _devices(data_options)
    data = _data(data_options)
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


def _devices(given: dict[str, Any]) -> DeviceOptions | None:
    """Where the quantized model runs; the options are removed. None for this host alone."""
    access, where, fresh = take_access(given), given.pop("device"), given.pop("fresh")
    if not where:
        return None
    if given["data"] is None:
        raise UsageError("--device needs --data: samples to run there and here.")
    from visualquant.session.devices import DeviceOptions, spool_folder

    return DeviceOptions(tuple(access(w) for w in where), None if fresh else spool_folder())


def _data(given: dict[str, Any]) -> DataOptions | None:
    """The options that need samples, as one object; None without --data."""
    if given["data"] is None:
        for name in _NEED_DATA:
            if given[name]:
                raise UsageError(f"--{_SPELLED.get(name, name).replace('_', '-')} needs --data.")
        return None
    from visualquant.cli.units import parse_bytes, parse_floats, parse_size
    from visualquant.core.taps import RunOptions
    from visualquant.runtime.feeds import FeedOptions
    from visualquant.runtime.images import ImageOptions
    from visualquant.runtime.samples import parse_pairs
    from visualquant.session.with_data import DataOptions

    return DataOptions(
        data=given["data"],
        calibration=given["calib"],
        feeds=FeedOptions(
            constants=parse_pairs(given["constants"], "--set"),
            state=parse_pairs(given["state"], "--state"),
            sample_axis=_axes(given["sample_axis"], "--sample-axis"),
            step_axis=_axes(given["step_axis"], "--step-axis"),
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
        metric=given["metric"],
        quant=RunOptions(memory_bytes=parse_bytes(given["memory"])),
    )


def _axes(options: tuple[str, ...], option: str) -> dict[str, int]:
    from visualquant.runtime.samples import parse_pairs

    try:
        return {name: int(axis) for name, axis in parse_pairs(options, option).items()}
    except ValueError as error:
        raise UsageError(f"{option} wants NAME=K with a whole number K.") from error


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
