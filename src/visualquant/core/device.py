"""What a device says of itself."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceInfo:
    """The answer to `Hello`. Every text comes from the device: escape it before a person sees it.

    Attributes:
        agent_version, onnxruntime_version, python_version: of the agent.
        providers: execution providers of its ONNX Runtime.
        capabilities: what the agent can do.
        machine, system, processor: as the device names them.
        cores: logical cores.
        memory_bytes: physical memory, 0 where unknown.
        cpu_features: features that decide which integer kernels run.
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
