"""`visualquant align FLOAT QUANT -o map.json`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command(name="align")
@click.argument("float_model", metavar="FLOAT", type=click.Path(path_type=Path))
@click.argument("quant_model", metavar="QUANT", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; standard output by default.")
@click.option("--map", "pins_path", type=click.Path(path_type=Path), help="A pins file to start from.")
def command(float_model: Path, quant_model: Path, output: Path | None, pins_path: Path | None) -> None:
    """Write which nodes belong together, in the form that `compare --map` reads.

    Correct the file by hand: entries under "together" fix groups, entries under "apart" forbid ties.
    """
    from visualquant.cli.output import write_text
    from visualquant.core.pins import pins_of
    from visualquant.session.pipeline import align_models, load_model, read_pins

    models = load_model(float_model), load_model(quant_model)
    pins = None if pins_path is None else read_pins(pins_path, *models)
    text = json.dumps(pins_of(align_models(*models, pins)), indent=1) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)
