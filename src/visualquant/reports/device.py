"""What `visualquant device` shows. Texts of a device arrive here escaped already."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from visualquant.core.device import DeviceInfo, DeviceModels
from visualquant.core.taps import Profile, TapNumbers
from visualquant.core.text import safe_text
from visualquant.reports.numbers import share, short, size

DIGEST_DIGITS = 12


def info_block(info: DeviceInfo) -> RenderableType:
    """Facts of a device, a line each; unknown ones are left out."""
    memory = size(info.memory_bytes)
    if info.memory_available_bytes:
        memory += f", {size(info.memory_available_bytes)} free"
    clock = ""
    if info.frequency_khz:
        clock = f"{info.frequency_khz / 1e6:.2f} GHz"
        clock += f" of {info.frequency_max_khz / 1e6:.2f}" if info.frequency_max_khz else ""
    rows = [
        ("machine", f"{info.machine}, {info.cores} cores, {info.processor}".rstrip(", ")),
        ("system", info.system),
        ("integer kernels", ", ".join(info.cpu_features) or "unknown"),
        ("memory", memory),
        ("a run may take", size(info.memory_limit_bytes) if info.memory_limit_bytes else "what there is"),
        ("room for models", size(info.store_free_bytes)),
        ("governor", info.governor),
        ("clock", clock),
        ("temperature", "" if info.temperature_celsius is None else f"{info.temperature_celsius:.0f} °C"),
        ("throttled", "" if info.throttle_count is None else f"{info.throttle_count} times since it started"),
        ("energy from", ", ".join(info.energy_sources)),
        ("runtime", f"ONNX Runtime {info.onnxruntime_version}, Python {info.python_version}"),
        ("providers", ", ".join(info.providers)),
        ("agent", info.agent_version),
        ("busy", info.busy),
    ]
    return _plain([row for row in rows if row[1]])


def models_table(found: DeviceModels) -> RenderableType:
    """A line a model."""
    table = _table("digest", "what", "size", "last used", "")
    for model in found.models:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(min(max(model.last_used, 0), 2**33)))
        state = "" if model.complete else "unfinished"
        table.add_row(Text(model.digest[:DIGEST_DIGITS]), Text(model.label), size(model.bytes), day, state)
    return Group(table, Text(f"{size(found.used_bytes)} of {size(found.quota_bytes)} used"))


def profile_table(profile: Profile, top: int) -> RenderableType:
    """The slowest nodes, and the whole."""
    total = sum(n.p50_us for n in profile.nodes)
    table = _table("node", "operator", "p50 µs", "p90 µs", "share", "provider")
    for node in sorted(profile.nodes, key=lambda n: -n.p50_us)[:top]:
        part = share(node.p50_us / total if total else 0.0)
        provider = safe_text(node.provider.removesuffix("ExecutionProvider"), 30)
        cells = (Text(safe_text(node.node, 50)), Text(safe_text(node.op_type, 30)))
        table.add_row(*cells, f"{node.p50_us:.0f}", f"{node.p90_us:.0f}", part, Text(provider))
    rows = [
        ("whole run", f"{profile.plain_p50_us:.0f} µs" if profile.plain_p50_us else ""),
        (
            "with the profiler",
            f"{profile.total_p50_us:.0f} µs (p90 {profile.total_p90_us:.0f}, p99 {profile.total_p99_us:.0f}); nodes "
            f"{total:.0f}, between them {max(profile.total_p50_us - total, 0):.0f}",
        ),
        ("repeats", str(profile.repeats)),
        (
            "energy",
            ""
            if profile.energy_joules is None
            else f"{profile.energy_joules / max(profile.repeats, 1) * 1e3:.2f} mJ a run ({profile.energy_source})",
        ),
        ("temperature", "" if profile.temperature_celsius is None else f"{profile.temperature_celsius:.0f} °C"),
        ("throttled", f"{profile.throttled} times: do not trust the times" if profile.throttled else ""),
    ]
    return Group(table, _plain([row for row in rows if row[1]]))


def taps_table(found: Mapping[str, TapNumbers]) -> RenderableType:
    """A line a value."""
    table = _table("value", "type", "shape", "min", "max", "mean", "std", "p99 |x|", "zeros", "NaN", "inf")
    for name, numbers in found.items():
        shape = "×".join(str(n) for n in numbers.shape)
        cells = (short(getattr(numbers, f)) for f in ("min", "max", "mean", "std", "p99"))
        zeros = share(numbers.zero_count / numbers.count if numbers.count else 0.0)
        counts = (str(numbers.nan_count or ""), str(numbers.inf_count or ""))
        table.add_row(Text(safe_text(name, 50)), numbers.dtype, shape, *cells, zeros, *counts)
    return table


def bench_table(seconds: Mapping[str, float], values: int, tensor_bytes: int) -> RenderableType:
    """Times as multiples of the plain run."""
    table = _table("run", "ms", "times the plain run", "")
    for name, spent in seconds.items():
        rate = (
            f"{values} values, {size(tensor_bytes)}, {tensor_bytes / spent / 1e9:.2f} GB/s"
            if name == "all tensors"
            else ""
        )
        table.add_row(name, f"{spent * 1e3:.2f}", f"{spent / seconds['plain']:.2f}", rate)
    return table


def _table(*titles: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        table.add_column(title)
    return table


def _plain(rows: list[tuple[str, str]]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for title, text in rows:
        table.add_row(title, Text(text))
    return table
