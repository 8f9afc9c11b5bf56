"""`visualquant gui`: the window with both graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from visualquant.cli.data_options import data_options, options_of
from visualquant.cli.device_options import device_options, devices_of
from visualquant.errors import UsageError


@click.command(name="gui")
@click.argument("files", metavar="[FLOAT QUANT | F.vqz]", nargs=-1, type=click.Path(path_type=Path))
@click.option("--watch", is_flag=True, help="Open the files again when they change; the selection stays.")
@click.option("--scale", type=click.FloatRange(0.5, 4.0), help="Size of text and controls (default: by the screen).")
@click.option("--data-root", type=click.Path(path_type=Path), help="Folder of data files that are links elsewhere.")
@data_options
@device_options
def command(files: tuple[Path, ...], watch: bool, scale: float | None, data_root: Path | None, **given: Any) -> int:
    """Show FLOAT and QUANT, or a saved F.vqz, as two linked graphs.

    Exit codes: 0 done; 2 bad usage, bad input, or no display.
    """
    from visualquant.gui.display import require_display

    if len(files) > 2:
        raise UsageError("The window shows one pair: give FLOAT and QUANT, or one .vqz file.")
    if given["data"] is not None and len(files) != 2:
        raise UsageError("--data needs FLOAT and QUANT.")
    devices = devices_of(given)
    data = options_of(given)
    for path in files:
        if not path.is_file():
            raise UsageError(f"{str(path)!r} does not exist, or is no file.")
    if len(files) == 1 and files[0].suffix != ".vqz":
        raise UsageError(f"{files[0].name!r} is no .vqz file: give a float model and a quantized one, or a .vqz file.")
    height = require_display()
    from visualquant.gui.app import App

    app = App(files, data=data, devices=devices, watch=watch, scale=scale, screen_height=height, data_root=data_root)
    return app.run()
