"""A device's runner with this host's beside it: the same inputs go through both, and codes are compared."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx
import onnxruntime

from visualquant.core.device import CodeDifference, DeviceComparison
from visualquant.core.taps import Level, Profile, TapEvent
from visualquant.runtime.local import LocalRunner
from visualquant.runtime.remote_runner import RemoteRunner
from visualquant.runtime.runner import Array, Feeds, Runner
from visualquant_agent.device import cpu_features


class PairedRunner(Runner):
    """Emits what the device computes.

    Attributes:
        comparison: what differed on the host so far.
    """

    kind = "device"

    def __init__(self, remote: RemoteRunner, host: LocalRunner | None, why_not: str = "") -> None:
        """Takes both over; without `host` nothing is compared (`why_not` says why)."""
        # NOTE: no call of the base: the device's runner has the folder and the graph
        self._remote, self._host = remote, host
        self.path, self.options, self.level, self.notes = remote.path, remote.options, remote.level, remote.notes
        self.inputs, self.outputs = remote.inputs, remote.outputs
        info = remote.device.info()
        self.comparison = DeviceComparison(
            remote.device.name,
            platform.machine(),
            tuple(cpu_features()),
            onnxruntime.__version__,
            info,
            why_not=why_not,
        )

    @property
    def optimised_path(self) -> Path:
        """Of the device's graph."""
        return self._remote.optimised_path

    def optimised(self) -> onnx.ModelProto:
        """The graph that runs on the device."""
        return self._remote.optimised()

    def _types(self) -> Mapping[str, str]:
        return self._remote._types()

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Outputs of the device."""
        return self._remote.run(feeds)

    def taps_are_neutral(self, feeds: Feeds, taps: Collection[str]) -> bool:
        """On the device."""
        return self._remote.taps_are_neutral(feeds, taps)

    def profile(self, feeds: Feeds, *, level: Level | None = None, warm_up: int = 3, repeats: int = 20) -> Profile:
        """Of the device."""
        return self._remote.profile(feeds, level=level, warm_up=warm_up, repeats=repeats)

    def tap(self, batches: Iterable[tuple[Sequence[int], Feeds]], taps: Collection[str]) -> Iterator[TapEvent]:
        """The device's events; integer codes are compared with the host's as they arrive."""
        for number, (samples, feeds) in enumerate(batches):
            ours = self._on_host(feeds, taps)
            for event in self._remote.tap([(samples, feeds)], taps):
                array = ours.pop(event.value, None)
                if array is not None and array.dtype == event.array.dtype and array.shape == event.array.shape:
                    found = self.comparison.differences.setdefault(event.value, CodeDifference(event.value))
                    found.update(array, event.array)
                yield TapEvent(number, event.samples, event.value, event.array, event.outputs)

    def _on_host(self, feeds: Feeds, taps: Collection[str]) -> dict[str, Array]:
        """The host's codes by the names that both graphs have."""
        if self._host is None:
            return {}
        made = {out for n in self._host.optimised().graph.node for out in n.output}
        events = self._host.tap([((0,), feeds)], made.intersection(taps))
        return {e.value: e.array for e in events if e.value and e.array.dtype.kind in "iu"}

    def close(self) -> None:
        """Closes both."""
        self._remote.close()
        if self._host is not None:
            self._host.close()
