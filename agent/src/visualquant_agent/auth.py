"""Who may talk to the agent: tokens, TLS, and where it may listen."""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
from pathlib import Path
from typing import Any, Optional, Sequence, Tuple

DEFAULT_NAMESPACE = "default"
_SCHEME = "Bearer "
_MIN_TOKEN_CHARS = 16


@dataclasses.dataclass(frozen=True)
class Security:
    """How connections are protected.

    Attributes:
        tokens: any of them opens the agent; each has a namespace of its own in the store.
        certificate, key: PEM of the server; both or none.
        client_ca: PEM; clients need a certificate signed by it.
    """

    tokens: Tuple[str, ...] = ()
    certificate: Optional[bytes] = None
    key: Optional[bytes] = None
    client_ca: Optional[bytes] = None

    @property
    def encrypted(self) -> bool:
        """True with TLS."""
        return self.certificate is not None


def is_loopback(listen: str) -> bool:
    """True where an address can be reached from this device only."""
    host = listen.rpartition(":")[0].strip("[]")
    if listen.startswith("unix:") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refusal(listen: str, security: Security, insecure: bool) -> Optional[str]:
    """Why an agent must not listen so, or None."""
    if is_loopback(listen):
        return None
    if not security.encrypted:
        if security.tokens:
            return (
                f"A token without TLS on {listen} can be read by everybody on the way: give --tls-cert and --tls-key, "
                "or listen on 127.0.0.1 and let the host tunnel through ssh."
            )
        if not insecure:
            return (
                f"{listen} can be reached by other machines without encryption or a password. Listen on 127.0.0.1 "
                "and let the host tunnel through ssh, give --tls-cert and --tls-key with --token-file or --client-ca, "
                "or say --insecure."
            )
    elif not security.tokens and security.client_ca is None and not insecure:
        return f"{listen} is encrypted, but anybody may use it: give --token-file or --client-ca, or say --insecure."
    return None


def read_tokens(path: Path) -> Tuple[str, ...]:
    """Tokens of a file, one a line; "#" begins a comment.

    Raises:
        ValueError: no token, or one that is too short.
        OSError: the file can't be read.
    """
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens:
        raise ValueError(f"{path.name!r} holds no token: one a line")
    if any(len(t) < _MIN_TOKEN_CHARS or not t.isascii() or not t.isprintable() for t in tokens):
        raise ValueError(f"{path.name!r}: a token has at least {_MIN_TOKEN_CHARS} plain characters")
    return tokens


def namespace_of(token: str) -> str:
    """The folder of a token's models; tells nothing of the token."""
    return "t" + hashlib.sha256(b"visualquant namespace " + token.encode()).hexdigest()[:32]


def token_in(metadata: Optional[Sequence[Any]]) -> str:
    """The token that a call brings, or an empty string."""
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str) and value.startswith(_SCHEME):
            return value[len(_SCHEME) :]
    return ""
