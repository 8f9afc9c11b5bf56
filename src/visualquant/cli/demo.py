"""`visualquant demo`: a real trained pair that travels with the package."""

from __future__ import annotations

from importlib.resources import as_file, files

import click

NEXT = """
What to try next
  visualquant compare float.onnx quantized.onnx               your own pair
  visualquant compare float.onnx quantized.onnx --save r.vqz  keep the answer; `visualquant report r.vqz` shows it again
  visualquant inspect model.onnx --what-if                    what int8 and int4 would make of a float model
  visualquant explain                                         every finding, and how to fix it
"""


@click.command(name="demo")
def command() -> None:
    """Compare a small convolutional net, trained on handwritten digits, with its int4 form."""
    from visualquant.cli.progress import Progressbar
    from visualquant.reports.terminal import render
    from visualquant.session.compare import compare

    folder = files("visualquant.cli") / "data"
    with (
        as_file(folder / "digits_float.onnx") as float_path,
        as_file(folder / "digits_int4.onnx") as quant_path,
        Progressbar() as bar,
    ):
        click.echo("A ResNet trained on handwritten digits, its convolutions stored as int4 with a scale per channel:")
        report = compare(float_path, quant_path, what_if=True, progress=bar.stage, command="demo")
    render(report, top=5)
    click.echo(NEXT)
