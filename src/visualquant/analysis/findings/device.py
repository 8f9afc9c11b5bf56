"""DEVICE_DIFFERS: what this host computes is not what the device computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from visualquant.analysis.findings.context import Draft
from visualquant.core.device import DeviceComparison

if TYPE_CHECKING:
    from visualquant.analysis.findings.data import DataContext

# Rounding alone moves well below this share of the codes (0.25 % measured with 7-bit weights, x86 against aarch64).
BEYOND_ROUNDING = 0.01
VNNI = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})


def device_differs(context: DataContext) -> Iterator[Draft]:
    """One for each device of which more than a rounding's share of the activation codes differs from the host's."""
    for found in context.facts.devices:
        first = found.first(BEYOND_ROUNDING)
        if first is None or found.share <= BEYOND_ROUNDING / 10:
            continue
        counts = found.off_by
        by = f"off by 1: {int(counts[0])}, by 2: {int(counts[1])}, by more: {int(counts[2:].sum())}"
        mixed = _mixed(context)
        cause, settings = likely_cause(found, mixed)
        yield Draft(
            "DEVICE_DIFFERS",
            "warning",
            f"{found.share:.2%} of the activation codes on {found.name} are not those of this host ({by}; at most "
            f"{found.largest}), first at {first.value!r}. Likely cause: {cause}.",
            effect=30 + 100 * min(found.share, 0.5),
            value=first.value,
            where={"device": found.name, "value": first.value},
            numbers={
                "share": found.share,
                "largest": found.largest,
                "off_by_1": int(counts[0]),
                "off_by_2": int(counts[1]),
                "off_by_more": int(counts[2:].sum()),
            },
            settings=settings,
        )


def saturates(machine: str, features: tuple[str, ...]) -> bool:
    """True for x86 without VNNI: it sums pairs of uint8·int8 products in saturating 16 bits."""
    return machine.lower() in ("x86_64", "amd64") and not VNNI & set(features)


def likely_cause(found: DeviceComparison, mixed: bool) -> tuple[str, str | None]:
    """(the likely kernel in words, a setting that avoids it).

    Args:
        found: what differs where.
        mixed: the model has uint8 activations and int8 weights.
    """
    host = saturates(found.host_machine, found.host_features)
    board = saturates(found.info.machine, found.info.cpu_features)
    if mixed and host != board:
        which, other = ("this host", found.name) if host else (found.name, "this host")
        return (
            f"{which} is an x86 without VNNI, which sums pairs of products of uint8 activations and int8 weights in "
            f"saturating 16 bits, and {other} sums them in 32",
            "reduce_range=True",
        )
    if found.host_runtime != found.info.onnxruntime_version:
        return (
            f"the runtimes differ (ONNX Runtime {found.host_runtime} here, {found.info.onnxruntime_version} there)",
            None,
        )
    if found.host_machine != found.info.machine:
        return f"the kernels of {found.host_machine} and {found.info.machine} add and round in another order", None
    return "the processors' features choose other kernels", None


def _mixed(context: DataContext) -> bool:
    sites = context.files.quant_model.sites
    kinds = {(s.role, s.params.code_type.name) for s in sites if s.params is not None}
    return ("weight", "int8") in kinds and ("activation", "uint8") in kinds
