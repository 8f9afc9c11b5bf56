"""What a device says of itself, and what lies on it. Texts from a device are made safe where they arrive."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

OFF_BY = 8


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceInfo:
    """The answer to `Hello`.

    Attributes:
        agent_version, onnxruntime_version, python_version: of the agent.
        providers: execution providers of its ONNX Runtime.
        capabilities: what the agent can do.
        machine, system, processor: as the device names them.
        cores: logical cores.
        memory_bytes: physical memory, 0 where unknown; memory_available_bytes: what programs can still take.
        cpu_features: features that decide which integer kernels run.
        governor: frequency governor, or empty.
        frequency_khz, frequency_max_khz: of the first core, 0 where unknown.
        temperature_celsius: hottest zone; throttle_count: events since the start; None where unknown.
        energy_sources: what energy can be read from.
        memory_limit_bytes: growth that a run may cause; 0 where the agent has no bound.
        store_free_bytes: left for models.
        busy: what runs now, or empty.
    """

    agent_version: str
    onnxruntime_version: str
    python_version: str
    providers: tuple[str, ...]
    capabilities: tuple[str, ...]
    machine: str
    system: str
    processor: str
    cores: int
    memory_bytes: int
    cpu_features: tuple[str, ...]
    memory_available_bytes: int = 0
    governor: str = ""
    frequency_khz: int = 0
    frequency_max_khz: int = 0
    temperature_celsius: float | None = None
    throttle_count: int | None = None
    energy_sources: tuple[str, ...] = ()
    memory_limit_bytes: int = 0
    store_free_bytes: int = 0
    busy: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceModel:
    """A model, a set of segments, or an unfinished upload on a device.

    Attributes:
        digest: SHA-256 of its manifest.
        label: for people.
        bytes: of all files.
        complete: False for an upload that was cut.
        last_used: seconds since 1970.
    """

    digest: str
    label: str
    bytes: int
    complete: bool
    last_used: float


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceModels:
    """What lies on a device."""

    models: tuple[DeviceModel, ...]
    used_bytes: int
    quota_bytes: int


@dataclasses.dataclass(slots=True, eq=False)
class CodeDifference:
    """One value's integer codes on host and device, element by element; sums, so batches do not matter.

    Attributes:
        value: name in the graph that ran.
        elements: compared.
        off_by: [OFF_BY] counts of distance 1, 2, ...; the last counts everything beyond.
        largest: distance in codes.
    """

    value: str
    elements: int = 0
    off_by: npt.NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.zeros(OFF_BY, np.int64))
    largest: int = 0

    def update(self, host: npt.NDArray[Any], device: npt.NDArray[Any]) -> None:
        """Adds one batch; both have one integer type and shape."""
        self.elements += host.size
        unlike = host != device
        if not unlike.any():
            return
        distance = np.abs(host[unlike].astype(np.int64) - device[unlike].astype(np.int64))
        self.largest = max(self.largest, int(distance.max()))
        self.off_by += np.bincount(np.minimum(distance, OFF_BY) - 1, minlength=OFF_BY)

    @property
    def differing(self) -> int:
        """Elements that differ."""
        return int(self.off_by.sum())

    @property
    def share(self) -> float:
        """Share of elements that differ."""
        return self.differing / self.elements if self.elements else 0.0


@dataclasses.dataclass(slots=True, eq=False)
class DeviceComparison:
    """This host and one device on the same inputs.

    Attributes:
        name: as the device was addressed.
        host_machine, host_features, host_runtime: of this host.
        info: of the device.
        differences: by value, in the order of the graph; integer codes only.
        why_not: why nothing could be compared, or empty.
    """

    name: str
    host_machine: str
    host_features: tuple[str, ...]
    host_runtime: str
    info: DeviceInfo
    differences: dict[str, CodeDifference] = dataclasses.field(default_factory=dict)
    why_not: str = ""

    @property
    def elements(self) -> int:
        """Codes compared."""
        return sum(d.elements for d in self.differences.values())

    @property
    def off_by(self) -> npt.NDArray[np.int64]:
        """Counts over all values."""
        total = np.zeros(OFF_BY, np.int64)
        for item in self.differences.values():
            total += item.off_by
        return total

    @property
    def share(self) -> float:
        """Share of all codes that differ."""
        return int(self.off_by.sum()) / self.elements if self.elements else 0.0

    @property
    def largest(self) -> int:
        """Largest distance in codes."""
        return max((d.largest for d in self.differences.values()), default=0)

    def first(self, share: float) -> CodeDifference | None:
        """The first value of which more than a share differs."""
        return next((d for d in self.differences.values() if d.share > share), None)
