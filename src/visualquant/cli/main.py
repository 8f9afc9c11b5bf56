"""The entry point: sub-commands are imported only when used, and exceptions become exit codes here, once."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from visualquant._version import __version__
from visualquant.errors import CancelledError, VisualQuantError

# Name, module, and the line that `--help` shows: known without importing the module.
COMMANDS: dict[str, tuple[str, str]] = {
    "compare": ("visualquant.cli.compare", "Compare a float model with its quantized counterpart."),
    "gui": ("visualquant.cli.gui", "Show both graphs, linked, in a window; or a saved .vqz."),
    "inspect": ("visualquant.cli.inspect", "Say what is in one model: schemes, storage, what stays in float."),
    "align": ("visualquant.cli.align", "Write the alignment of two models as a pins file to correct."),
    "diff": ("visualquant.cli.diff", "Encodings of two quantized files of one network, side by side."),
    "device": ("visualquant.cli.device", "A board with the agent: facts, models, node times, install."),
    "report": ("visualquant.cli.report", "Show a saved .vqz again, without the models."),
    "explain": ("visualquant.cli.explain", "Explain a code that a finding carries."),
    "demo": ("visualquant.cli.demo", "Compare an embedded pair: no files, no network."),
    "doctor": ("visualquant.cli.doctor", "Check this installation."),
    "bench": ("visualquant.cli.bench", "Measure this machine: kernels, other tools, a whole compare."),
}
INTERNAL_ERROR = 70


class LazyGroup(click.Group):
    """A group whose commands live in modules of their own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order in which a newcomer needs them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `--help`, from the table: no module is imported."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(__version__, prog_name="visualquant")
def cli() -> None:
    """Why did my model get worse when it was quantized, where, and what do I change?"""


def main(argv: list[str] | None = None) -> None:
    """Runs a command and leaves with its exit code (see the README)."""
    sys.exit(run(argv))


def run(argv: list[str] | None = None) -> int:
    """Runs a command and gives its exit code; every exception ends here, as one paragraph on standard error."""
    try:
        result: Any = cli.main(args=argv, prog_name="visualquant", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        _say("Interrupted.")
        return CancelledError.exit_code
    except VisualQuantError as error:
        _say(str(error))
        return error.exit_code
    except MemoryError:
        if os.environ.get("VISUALQUANT_DEBUG"):
            raise
        _say("Not enough memory for this. Close other programs, or compare on a larger machine.")
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("VISUALQUANT_DEBUG"):
            raise
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = "" if trace is None else f" at {trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"
        _say(
            f"This is a fault of visualquant {__version__} itself, not of your files: {type(error).__name__}{place}: "
            f"{error}. Run again with VISUALQUANT_DEBUG=1 for the details, and report it with the command."
        )
        return INTERNAL_ERROR


def _say(message: str) -> None:
    from visualquant.core.text import safe_text

    click.echo("visualquant: " + "\n".join(safe_text(line) for line in message.splitlines()), err=True)
