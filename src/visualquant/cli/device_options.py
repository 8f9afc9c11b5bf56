"""Options that say how devices are reached: the same for every command."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from visualquant.errors import UsageError

if TYPE_CHECKING:
    from visualquant.runtime.connect import Access
    from visualquant.session.devices import DeviceOptions

_NAMES = ("token_file", "tls_ca", "tls_cert", "tls_key", "tls_fingerprint", "insecure", "agent_port")
_FILE = click.Path(path_type=Path)


def access_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command; `take_access` takes them out of its keyword arguments."""
    for option in (
        click.option("--agent-port", type=click.IntRange(1, 65535), help="Port of the agent on the board, for ssh."),
        click.option("--insecure", is_flag=True, help="Reach another machine without encryption."),
        click.option("--tls-fingerprint", metavar="SHA256", help="Pins the agent's own certificate."),
        click.option("--tls-key", type=_FILE, help="Key of --tls-cert."),
        click.option("--tls-cert", type=_FILE, help="Certificate of this host (mutual TLS)."),
        click.option("--tls-ca", type=_FILE, help="Who signed the agent's certificate: turns encryption on."),
        click.option("--token-file", type=_FILE, help="Token of the agent (or VISUALQUANT_TOKEN)."),
    ):
        command = option(command)
    return command


def take_access(given: dict[str, Any]) -> Callable[[str], Access]:
    """How to reach an address, from a command's keyword arguments, which are removed."""
    taken = {name: given.pop(name) for name in _NAMES}
    if (taken["tls_cert"] is None) != (taken["tls_key"] is None):
        raise UsageError("--tls-cert and --tls-key belong together.")
    token = os.environ.get("VISUALQUANT_TOKEN") or None
    if taken["token_file"] is not None:
        token = _first_token(taken["token_file"])

    def access(address: str) -> Access:
        from visualquant.runtime.connect import Access, default_port

        return Access(
            address,
            token=token,
            ca=taken["tls_ca"],
            certificate=taken["tls_cert"],
            key=taken["tls_key"],
            fingerprint=taken["tls_fingerprint"],
            insecure=taken["insecure"],
            agent_port=taken["agent_port"] or default_port(),
        )

    return access


def _first_token(path: Path) -> str:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise UsageError(f"The token file {path.name!r} can't be read: {error}.") from error
    tokens = [line for line in lines if line and not line.startswith("#")]
    if not tokens:
        raise UsageError(f"The token file {path.name!r} holds no token.")
    return tokens[0]


def device_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of commands that run a model on devices; `devices_of` takes them out."""
    command = access_options(command)
    for option in (
        click.option("--fresh", is_flag=True, help="Do not go on from what an interrupted run on a device finished."),
        click.option("--provider", metavar="NAME", help="Provider on the devices, e.g. XnnpackExecutionProvider."),
        click.option("--device", multiple=True, metavar="WHERE", help="HOST:PORT or ssh://USER@BOARD; repeatable."),
    ):
        command = option(command)
    return command


def devices_of(given: dict[str, Any]) -> DeviceOptions | None:
    """Where the quantized model runs; the options are removed. None for this host alone."""
    access, where, fresh = take_access(given), given.pop("device"), given.pop("fresh")
    provider = given.pop("provider")
    if provider is not None and not where:
        raise UsageError("--provider needs --device.")
    if not where:
        return None
    if given["data"] is None:
        raise UsageError("--device needs --data: samples to run there and here.")
    from visualquant.session.devices import DeviceOptions, spool_folder

    addresses = tuple(access(w) for w in where)
    return DeviceOptions(addresses, None if fresh else spool_folder(), provider or "CPUExecutionProvider")
