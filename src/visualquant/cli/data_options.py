"""Options of every command that runs samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from visualquant.errors import UsageError

if TYPE_CHECKING:
    from visualquant.session.with_data import DataOptions

# Options without a default that say nothing without samples, and how users spell them where that differs.
_NEED_DATA = (
    *("calib", "limit", "constants", "sample_axis", "state", "step_axis", "map_input"),
    *("image_size", "mean", "std", "memory", "metric"),
)
_SPELLED = {"limit": "samples", "constants": "set"}
_OPTIONS = (
    click.option("--data", help="Samples: .npz, .npy, a folder of .npy or images, or `random`. Runs both models."),
    click.option("--calib", help="Calibration samples when they stand in another file."),
    click.option("--samples", "limit", type=click.IntRange(1), help="Run at most so many samples."),
    click.option("--set", "constants", multiple=True, metavar="NAME=VALUE", help="One value for an input."),
    click.option("--sample-axis", multiple=True, metavar="NAME=K", help="Axis of an input's array for samples."),
    click.option("--state", multiple=True, metavar="INPUT=OUTPUT", help="An output that the next step takes."),
    click.option("--step-axis", multiple=True, metavar="NAME=K", help="Axis of an input's array for steps."),
    click.option("--metric", metavar="MODULE:FUNCTION", help="A task metric of your own, e.g. metrics.py:score."),
    click.option("--map-input", multiple=True, metavar="FLOAT=QUANT", help="Inputs that differ in name."),
    click.option("--image-size", metavar="HxW", help="Resize images to this size."),
    click.option("--mean", metavar="R,G,B", help="Subtracted from pixels in [0, 1]."),
    click.option("--std", metavar="R,G,B", help="Divides pixels after the mean."),
    click.option("--channel-order", type=click.Choice(["rgb", "bgr", "gray"]), default="rgb", show_default=True),
    click.option("--layout", type=click.Choice(["nchw", "nhwc"]), default="nchw", show_default=True),
    click.option("--memory", metavar="SIZE", help="Growth allowed for runs, e.g. 512MB."),
)


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: adds the options; `options_of` reads them from the command's keyword arguments."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def options_of(given: dict[str, Any]) -> DataOptions | None:
    """What the user gave, as one object; None without --data.

    Raises:
        UsageError: a value in another form, or one that says nothing without --data.
    """
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
