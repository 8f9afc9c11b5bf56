"""Ways to an agent: an address on this machine, TLS with token or certificate, or ssh."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import socket
import ssl
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc

from visualquant.core.text import safe_text
from visualquant.errors import DeviceError, UsageError
from visualquant_agent.auth import is_loopback
from visualquant_agent.client import CHANNEL_OPTIONS
from visualquant_agent.service_names import DEFAULT_PORT

SSH = "ssh://"
_SSH_WAIT_S = 30.0
_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_\[:][A-Za-z0-9_.:\[\]-]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """How to reach a device.

    Attributes:
        address: "HOST:PORT", "unix:PATH", or "ssh://USER@BOARD[:PORT]".
        token: sent with each call.
        ca: PEM file of who signed the agent's certificate; with it, or a fingerprint, the connection is encrypted.
        certificate, key: PEM files of this host, for mutual TLS.
        fingerprint: SHA-256 of the agent's own certificate, for self-made ones.
        insecure: send to another machine without encryption.
        agent_port: of the agent on the board, for ssh.
    """

    address: str
    token: str | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    fingerprint: str | None = None
    insecure: bool = False
    agent_port: int = DEFAULT_PORT

    @property
    def name(self) -> str:
        """For people."""
        return safe_text(self.address.removeprefix(SSH), 60)

    @property
    def encrypted(self) -> bool:
        """True with TLS."""
        return self.ca is not None or self.fingerprint is not None


def default_port() -> int:
    """The port on which agents listen unless told otherwise."""
    return DEFAULT_PORT


class Connection:
    """A channel to an agent, and the tunnel that it may need; use as a context.

    Attributes:
        access: how it was reached.
        channel: of gRPC, new after `reconnect`.
    """

    def __init__(self, access: Access) -> None:
        """Opens the tunnel and the channel; nothing is sent yet.

        Raises:
            UsageError: an address that is none, or an unprotected way to another machine.
            DeviceError: ssh does not get there.
        """
        self.access = access
        self._tunnel: Tunnel | None = None
        if access.address.startswith(SSH):
            self._tunnel = Tunnel(access)
        else:
            _check(access)
        try:
            self.channel = self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> grpc.Channel:
        access = self.access
        target = access.address if self._tunnel is None else self._tunnel.target
        options: list[tuple[str, Any]] = list(CHANNEL_OPTIONS)
        if access.encrypted:
            roots, name = _trusted(access)
            if name is not None:
                options.append(("grpc.ssl_target_name_override", name))
            credentials = grpc.ssl_channel_credentials(
                roots,
                None if access.key is None else _read(access.key),
                None if access.certificate is None else _read(access.certificate),
            )
            channel = grpc.secure_channel(target, credentials, options)
        else:
            channel = grpc.insecure_channel(target, options)
        return grpc.intercept_channel(channel, _WithToken(access.token)) if access.token else channel

    def reconnect(self) -> None:
        """A new channel, and a new tunnel where the old one is gone.

        Raises:
            DeviceError: ssh does not get there.
        """
        self.channel.close()
        if self._tunnel is not None and not self._tunnel.alive:
            self._tunnel.close()
            self._tunnel = Tunnel(self.access)
        self.channel = self._open()

    def close(self) -> None:
        """Ends channel and tunnel."""
        if hasattr(self, "channel"):
            self.channel.close()
        if self._tunnel is not None:
            self._tunnel.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class Tunnel:
    """The system's ssh with a forward from a socket in a private folder to the agent on the board."""

    def __init__(self, access: Access) -> None:
        """Starts ssh and waits until the forward stands.

        Raises:
            UsageError: an address that ssh could take for an option.
            DeviceError: ssh is missing, refuses, or takes too long.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="visualquant-ssh-")
        path = Path(self._folder.name) / "agent"
        self.target = f"unix:{path}"
        forward = ["-N", "-L", f"{path}:127.0.0.1:{access.agent_port}", "-o", "ExitOnForwardFailure=yes"]
        command = ssh_command(access.address, [*forward, "-o", "StreamLocalBindMask=0177"])
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        except OSError as error:
            self._folder.cleanup()
            raise DeviceError("The command ssh is not there: install OpenSSH, or name the device HOST:PORT.") from error
        deadline = time.monotonic() + _SSH_WAIT_S
        while not path.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self.close()
                raise DeviceError(
                    f"ssh does not reach {access.name}: {safe_text(said.strip()[-300:]) or 'no answer'}. Try "
                    f"`ssh {access.name}` by hand; it must work without a password (a key or an agent)."
                )
            time.sleep(0.05)

    @property
    def alive(self) -> bool:
        """True while ssh runs."""
        return self._process.poll() is None

    def close(self) -> str:
        """Ends ssh; what it said."""
        self._process.terminate()
        try:
            _, said = self._process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _, said = self._process.communicate()
        with contextlib.suppress(OSError):
            self._folder.cleanup()
        return said


def ssh_command(address: str, options: list[str], remote: str | None = None) -> list[str]:
    """The command line of the system's ssh for "ssh://USER@BOARD[:PORT]"; VISUALQUANT_SSH_OPTIONS adds options.

    Raises:
        UsageError: an address that is none.
    """
    place = address.removeprefix(SSH).rstrip("/")
    host, _, port = place.rpartition(":") if re.fullmatch(r"[^:]+:\d+|\[.*\]:\d+", place) else (place, "", "")
    if not _HOST.fullmatch(host):
        raise UsageError(f"{safe_text(address, 80)!r} is no address: write ssh://user@board or ssh://user@board:22.")
    more = os.environ.get("VISUALQUANT_SSH_OPTIONS", "").split()
    command = ["ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=2", *more]
    command += ["-p", port] if port else []
    return [*command, *options, "--", host.strip("[]"), *([] if remote is None else [remote])]


class _WithToken(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[type-arg]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamStreamClientInterceptor,  # type: ignore[type-arg]
):
    def __init__(self, token: str) -> None:
        self._extra = (("authorization", f"Bearer {token}"),)

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(_Details(client_call_details, self._extra), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(_Details(client_call_details, self._extra), request)

    def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return continuation(_Details(client_call_details, self._extra), request_iterator)

    def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return continuation(_Details(client_call_details, self._extra), request_iterator)


class _Details(grpc.ClientCallDetails):
    def __init__(self, old: Any, extra: tuple[tuple[str, str], ...]) -> None:
        self.method, self.timeout, self.credentials = old.method, old.timeout, old.credentials
        self.metadata = (*(old.metadata or ()), *extra)
        self.wait_for_ready = getattr(old, "wait_for_ready", None)
        self.compression = getattr(old, "compression", None)


def _check(access: Access) -> None:
    if not access.address.startswith("unix:") and not re.fullmatch(r"[^/\s]+:\d{1,5}", access.address):
        raise UsageError(f"{safe_text(access.address, 80)!r} is no device: write HOST:PORT or ssh://user@board.")
    if not is_loopback(access.address) and not access.encrypted and not access.insecure:
        raise UsageError(
            f"{access.name} is another machine, and nothing protects the way. Use ssh://user@board, give --tls-ca "
            "or --tls-fingerprint, or say --insecure."
        )
    if access.token and not access.encrypted and not is_loopback(access.address):
        raise UsageError(
            f"A token would travel to {access.name} without encryption: give --tls-ca or --tls-fingerprint."
        )


def _trusted(access: Access) -> tuple[bytes | None, str | None]:
    """Roots in PEM, and the name to expect where it is not that of the address."""
    if access.fingerprint is None:
        return (None if access.ca is None else _read(access.ca)), None
    wanted = access.fingerprint.replace(":", "").lower()
    host, _, port = access.address.rpartition(":")
    try:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if access.certificate is not None:
            context.load_cert_chain(access.certificate, access.key)
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=10) as plain,
            context.wrap_socket(plain) as wrapped,
        ):
            found = wrapped.getpeercert(binary_form=True) or b""
    except (OSError, ValueError) as error:
        raise DeviceError(f"No agent with TLS answers at {access.name}: {safe_text(str(error), 200)}.") from error
    have = hashlib.sha256(found).hexdigest()
    if have != wanted:
        raise DeviceError(
            f"The agent at {access.name} shows another certificate than the one pinned: its fingerprint is {have}. If "
            "the agent was set up anew, give that one; if not, somebody stands between."
        )
    pem = ssl.DER_cert_to_PEM_cert(found)
    return pem.encode(), _name_in(pem)


def _name_in(pem: str) -> str | None:
    """A name that the certificate is made out to."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(file.name)
        known = context.get_ca_certs()
    for entry in known:
        names: Any = entry.get("subjectAltName", ())
        for kind, value in names:
            if kind == "DNS":
                return str(value)
    return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path.name!r} can't be read: {error.strerror}.") from error
