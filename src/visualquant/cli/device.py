"""`visualquant device info|models|profile|taps|bench|install`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from visualquant.cli.device_options import access_options, take_access
from visualquant.cli.progress import Progressbar
from visualquant.errors import UsageError

if TYPE_CHECKING:
    from visualquant.runtime.feeds import Batch
    from visualquant.runtime.remote_runner import RemoteRunner

_WHERE = click.argument("where", metavar="WHERE")
_MODEL = click.argument("model", type=click.Path(path_type=Path))
_DATA = click.option("--data", default="random", show_default=True, help="Samples, as for compare.")
_BATCH = click.option("--batch", default=1, show_default=True, type=click.IntRange(1), help="Samples at once.")
_LEVEL = click.option(
    "--level", default="all", show_default=True, type=click.Choice(["none", "basic", "extended", "all"])
)
_THREADS = click.option(
    "--threads", default=0, type=click.IntRange(0), help="Of the runtime (default: its own choice)."
)
_PROVIDER = click.option("--provider", default="CPUExecutionProvider", show_default=True)
_MEMORY = click.option("--memory", metavar="SIZE", help="Growth allowed for the run on the device, e.g. 64MB.")
_JSON = click.option("--json", "as_json", is_flag=True, help="As JSON on standard output.")


@click.group(name="device")
def command() -> None:
    """A board that runs `visualquant-agent serve`; WHERE is HOST:PORT or ssh://USER@BOARD."""


@command.command()
@_WHERE
@_JSON
@access_options
def info(where: str, as_json: bool, **given: Any) -> None:
    """What the device is: processor, features, memory, runtime, temperature."""
    import dataclasses

    from visualquant.reports.device import info_block
    from visualquant.reports.terminal import page
    from visualquant.runtime.remote import Device

    with Device(take_access(given)(where)) as device:
        found = device.info()
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), indent=2))
        return
    with page() as console:
        console.print(info_block(found))


@command.command()
@_WHERE
@click.option("--delete", multiple=True, metavar="DIGEST", help="Remove a model, by the first digits of its digest.")
@access_options
def models(where: str, delete: tuple[str, ...], **given: Any) -> None:
    """What lies on the device: models, cached segments, unfinished uploads."""
    from visualquant.reports.device import models_table
    from visualquant.reports.terminal import page
    from visualquant.runtime.remote import Device

    with Device(take_access(given)(where)) as device:
        found = device.models()
        for start in delete:
            hit = [m.digest for m in found.models if m.digest.startswith(start)]
            if len(hit) != 1:
                raise UsageError(f"--delete {start}: {len(hit)} models begin so; name exactly one.")
            device.delete(hit[0])
        found = device.models() if delete else found
    with page() as console:
        console.print(models_table(found))


@command.command()
@_WHERE
@_MODEL
@_DATA
@_BATCH
@_LEVEL
@_THREADS
@_PROVIDER
@click.option("--warm-up", default=5, show_default=True, type=click.IntRange(0))
@click.option("--repeats", default=50, show_default=True, type=click.IntRange(1))
@click.option("--top", default=20, show_default=True, type=click.IntRange(0), help="Nodes to show.")
@_JSON
@access_options
def profile(where: str, model: Path, warm_up: int, repeats: int, top: int, as_json: bool, **given: Any) -> None:
    """Time of each node on the device, with energy and throttling where it tells."""
    import dataclasses

    from visualquant.reports.device import profile_table
    from visualquant.reports.terminal import page

    with _Run(where, model, given) as run:
        found = run.runner.profile(run.batch.quant_feeds, warm_up=warm_up, repeats=repeats)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), indent=2))
        return
    with page() as console:
        console.print(profile_table(found, top))


@command.command()
@_WHERE
@_MODEL
@_DATA
@_BATCH
@_LEVEL
@_THREADS
@_PROVIDER
@_MEMORY
@click.option("--tensor", metavar="NAME", help="Fetch one value whole, after the summaries showed which.")
@click.option("--out", type=click.Path(path_type=Path), help="Where --tensor goes, as .npy.")
@_JSON
@access_options
def taps(where: str, model: Path, tensor: str | None, out: Path | None, as_json: bool, **given: Any) -> None:
    """Thirteen numbers of every value, made on the device: little travels. Then one tensor on demand."""
    import dataclasses

    import numpy as np

    from visualquant.reports.device import taps_table
    from visualquant.reports.terminal import page

    if (tensor is None) != (out is None):
        raise UsageError("--tensor and --out belong together.")
    with _Run(where, model, given) as run:
        names = [n for node in run.runner.optimised().graph.node for n in node.output if n]
        if tensor is not None and out is not None:
            if tensor not in names:
                raise UsageError(f"No value {tensor!r} in the graph that runs: without --tensor all are listed.")
            event = next(iter(run.runner.tap([(run.batch.samples, run.batch.quant_feeds)], [tensor])))
            np.save(out, event.array)
            return
        found, _ = run.runner.summarise(run.batch.quant_feeds, names)
    if as_json:
        click.echo(json.dumps({n: dataclasses.asdict(v) for n, v in found.items()}, indent=2))
        return
    with page() as console:
        console.print(taps_table(found))


@command.command()
@_WHERE
@_MODEL
@_DATA
@_BATCH
@_LEVEL
@_THREADS
@_PROVIDER
@_MEMORY
@click.option("--repeats", default=10, show_default=True, type=click.IntRange(1))
@access_options
def bench(where: str, model: Path, repeats: int, **given: Any) -> None:
    """What looking costs: a plain run, one with summaries and one with all tensors, by the host's clock."""
    from visualquant.reports.device import bench_table
    from visualquant.reports.terminal import page

    with _Run(where, model, given) as run:
        feeds = run.batch.quant_feeds
        names = [n for node in run.runner.optimised().graph.node for n in node.output if n]
        size = [0]

        def whole() -> None:
            events = run.runner.tap([(run.batch.samples, feeds)], names)
            size[0] = sum(e.array.nbytes for e in events if e.value)

        seconds = {}
        for name, work in (
            ("plain", lambda: run.runner.run(feeds)),
            ("summaries", lambda: run.runner.summarise(feeds, names)),
            ("all tensors", whole),
        ):
            work()
            start = time.perf_counter()
            for _ in range(repeats):
                work()
            seconds[name] = (time.perf_counter() - start) / repeats
    with page() as console:
        console.print(bench_table(seconds, len(names), size[0]))


@command.command()
@_WHERE
@click.option("--python", default="python3", show_default=True, help="Python on the board, 3.9 or newer.")
@click.option("--folder", default="~/.local/share/visualquant-agent", show_default=True, help="On the board.")
@click.option("--wheelhouse", type=click.Path(path_type=Path, exists=True), help="Wheels for a board without network.")
@click.option("--service", default="systemd", show_default=True, type=click.Choice(["systemd", "background", "none"]))
@click.option("--serve-options", default="", metavar="TEXT", help="Further options of `visualquant-agent serve`.")
@access_options
def install(where: str, serve_options: str, **given: Any) -> None:
    """Set up the agent on an empty board that has Python: ssh://USER@BOARD."""
    from visualquant.reports.device import info_block
    from visualquant.reports.terminal import page
    from visualquant.runtime.install import InstallOptions
    from visualquant.runtime.install import install as set_up

    access = take_access(given)(where)
    with Progressbar() as bar:
        found = set_up(access, InstallOptions(options=serve_options, **given), bar.stage)
    if not found.agent_version:
        click.echo(f"The agent is installed on {access.name} and was not started (--service none).")
        return
    with page() as console:
        console.print(info_block(found))


class _Run:
    """A model on a device with one batch of samples."""

    runner: RemoteRunner
    batch: Batch

    def __init__(self, where: str, model: Path, given: dict[str, Any]) -> None:
        self._access = take_access(given)(where)
        self._model, self._given = model, given

    def __enter__(self) -> _Run:
        import contextlib

        from visualquant.cli.units import parse_bytes
        from visualquant.core.taps import RunOptions
        from visualquant.runtime.feeds import Feeder, FeedOptions
        from visualquant.runtime.remote import Device
        from visualquant.runtime.remote_runner import RemoteRunner
        from visualquant.runtime.samples import RANDOM, random_samples, read_samples

        given = self._given
        options = RunOptions(
            level=given["level"],
            threads=given["threads"],
            provider=given["provider"],
            memory_bytes=parse_bytes(given.get("memory")),
        )
        with contextlib.ExitStack() as stack:
            bar = stack.enter_context(Progressbar())
            device = stack.enter_context(Device(self._access))
            self.runner = stack.enter_context(RemoteRunner(self._model, options, device, progress=bar.stage))
            inputs = self.runner.inputs
            if given["data"] == RANDOM:
                shapes = {n: (i.shape, self.runner.input_dtype(n)) for n, i in inputs.items()}
                file = random_samples(shapes, given["batch"])
            else:
                file = read_samples(given["data"])
            feed = FeedOptions(batch=given["batch"], limit=given["batch"])
            self.batch = next(Feeder(file, self.runner, self.runner, feed).batches())
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._opened.close()
