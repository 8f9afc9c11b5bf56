"""What a device says of itself, and what lies on it. Texts from a device are made safe where they arrive."""

from __future__ import annotations

import dataclasses


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
