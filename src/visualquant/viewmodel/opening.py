"""A report made ready for the window, off the main thread."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from visualquant.core.report import Report, WeightRow
from visualquant.errors import UsageError
from visualquant.viewmodel import tables
from visualquant.viewmodel.colours import METRICS, Coloured, MetricName, colour_by
from visualquant.viewmodel.details import ChannelChart
from visualquant.viewmodel.sides import Pair, read_pair
from visualquant.viewmodel.tables import Table

if TYPE_CHECKING:
    from visualquant.session.channel_map import ChannelMap
    from visualquant.session.with_data import DataOptions

MOST_CHANNELS = 128
Job = Callable[[Callable[[str, int, int], None], Callable[[], bool]], Report]
"""Makes or reads a report; gets a way to say progress and a question whether to stop."""


@dataclasses.dataclass(frozen=True)
class Message:
    """A line for the status bar; errors stay until the next action."""

    text: str
    error: bool = False


@dataclasses.dataclass(frozen=True)
class Walked:
    """One number of a group on its way through the quantizer: (station, number, what happens there)."""

    group: int
    title: str
    stations: tuple[tuple[str, str, str], ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Opened:
    """A report with what would take long on the main thread."""

    source: str
    pair: Pair
    coloured: dict[MetricName, Coloured]
    layers: Table


def prepare(report: Report, source: str) -> Opened:
    """Everything of a report that is the same however it is shown; run off the main thread."""
    pair = read_pair(report)
    coloured = {m.name: colour_by(pair, m.name) for m in METRICS}
    return Opened(source, pair, coloured, tables.layers(pair, {name: c.values for name, c in coloured.items()}))


def walk_number(group: int, files: tuple[Path, ...], value: str) -> Walked:
    """One number of a weight on its way through the quantizer.

    Raises:
        VisualQuantError: the files can't be read, or hold no such weight.
    """
    from visualquant.core.walk import stations
    from visualquant.session.explain_value import explain_value

    walk = explain_value(files[0], files[1], value)
    place = ", ".join(map(str, walk.index))
    return Walked(group, f"{value}[{place}], the element with the largest error", tuple(stations(walk)))


@dataclasses.dataclass(frozen=True, eq=False)
class HeatMap:
    """Channel × bin of the weight of a group, the worst channel on top."""

    group: int
    map: ChannelMap


def map_channels(
    group: int, files: tuple[Path, ...], weight: WeightRow, chart: ChannelChart, cancel: Callable[[], bool]
) -> HeatMap:
    """The values of the worst channels of a weight.

    Raises:
        VisualQuantError: the files can't be read, or hold no such weight; or `cancel` said so.
    """
    from visualquant.session.channel_map import channel_map

    worst = chart.channel[:MOST_CHANNELS]
    return HeatMap(group, channel_map(files[0], files[1], weight.value, weight.channel_axis or 0, worst, cancel))


@dataclasses.dataclass(frozen=True, eq=False)
class SamplePicture:
    """A sample of the user's data; pixels are float32 [H, W, 3] in 0..1."""

    sample: int
    pixels: npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True, eq=False)
class Extras:
    """What the user asked to look into; each stays until the next of its kind."""

    walked: Walked | None = None
    heat_map: HeatMap | None = None
    sample: SamplePicture | None = None

    def title(self, name: str) -> str:
        """What the status bar says when one of them has come."""
        if name == "walked" and self.walked is not None:
            return self.walked.title
        if name == "sample" and self.sample is not None:
            return f"Sample {self.sample.sample} as a picture"
        return "" if self.heat_map is None else f"{self.heat_map.map.value}: {self.heat_map.map.channels.size} channels"


def picture_of(data: DataOptions | str, pair: Pair, sample: int) -> SamplePicture:
    """One sample as a picture.

    Raises:
        VisualQuantError: the data can't be read, or the sample is no picture.
    """
    from visualquant.session.sample_picture import sample_picture

    inputs = [v for v, row in pair.report.values["float"].items() if row.role == "input"]
    return SamplePicture(sample, sample_picture(data, inputs, sample))


def keep(report: Report, path: Path) -> Message:
    """Writes a report as .vqz, or as .json.

    Raises:
        VisualQuantError: the file can't be written.
    """
    if path.suffix == ".json":
        from visualquant.reports.json_report import dumps

        try:
            path.write_text(dumps(report), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{str(path)!r} can't be written: {error.strerror}.") from error
    else:
        from visualquant.session.archive import save

        save(report, path)
    return Message(f"{path.name} is saved.")
