"""`visualquant-agent serve`: listens until it is told to stop."""

from __future__ import annotations

import argparse
import logging
import os
import pkgutil
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Optional, Sequence

from visualquant_agent._version import __version__
from visualquant_agent.limits import Limits
from visualquant_agent.service_names import DEFAULT_PORT

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}
GRACE_S = 2.0


def size(text: str) -> int:
    """Bytes of "512MB" or "1.5GiB"."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kKmMgG][iI]?)?[bB]?", text.strip())
    if not found or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write 512MB or 1.5GiB")
    return int(float(found[1]) * _UNITS[(found[2] or "").upper()])


def default_store() -> Path:
    """Where models lie unless told: systemd's state folder, or the user's."""
    state = os.environ.get("STATE_DIRECTORY") or os.environ.get("XDG_STATE_HOME") or ""
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base if os.environ.get("STATE_DIRECTORY") else base / "visualquant-agent"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="visualquant-agent", description="Runs models on this device for visualquant.")
    top.add_argument("--version", action="version", version=f"visualquant-agent {__version__}")
    commands = top.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="listen for a host")
    add = serve.add_argument
    add("--listen", default=f"127.0.0.1:{DEFAULT_PORT}", help="HOST:PORT or unix:PATH (default: %(default)s)")
    add("--store", type=Path, metavar="DIR", help="folder of the models (default: the user's state folder)")
    add("--quota", type=size, default=16 << 30, metavar="SIZE", help="bytes of the store (default: 16GiB)")
    add(
        "--memory", type=size, metavar="SIZE", help="growth of a run over the idle agent (default: 90 %% of the memory)"
    )
    add("--max-batch", type=size, default=8 << 30, metavar="SIZE", help="tensors of one batch (default: 8GiB)")
    add("--max-seconds", type=float, default=600.0, metavar="S", help="one call of the runtime (default: %(default)s)")
    add("--token-file", type=Path, metavar="FILE", help="tokens that open the agent, one a line")
    add("--tls-cert", type=Path, metavar="PEM", help="certificate of this agent")
    add("--tls-key", type=Path, metavar="PEM", help="its key")
    add("--client-ca", type=Path, metavar="PEM", help="hosts need a certificate signed by this (mutual TLS)")
    add("--insecure", action="store_true", help="allow an address that other machines reach, without protection")
    add("--allow-domain", action="append", default=[], metavar="NAME", help="operator domain that may load")
    add("--allow-ep-context", action="store_true", help="allow EPContext nodes, which load compiled code")
    add("--reflection", action="store_true", help="tell what services there are (needs grpcio-reflection)")
    add("--log-level", choices=["debug", "info", "warning", "error"], default="info", help="default: %(default)s")
    unit = commands.add_parser("unit", help="print a systemd unit that starts the agent")
    unit.add_argument("--user", action="store_true", help="for `systemctl --user`: without what needs root")
    unit.add_argument("--options", default="", metavar="TEXT", help="further options of serve")
    return top


def unit_text(executable: str, options: str = "", user: bool = False) -> str:
    """The systemd unit. A user's unit keeps only what a user's manager can do."""
    text = pkgutil.get_data("visualquant_agent", "visualquant-agent.service") or b""
    lines = text.decode("utf-8").replace("@EXECUTABLE@ serve", f"{executable} serve {options}".strip()).splitlines()
    if user:
        keep = (
            "ExecStart",
            "Restart",
            "TimeoutStop",
            "KillSignal",
            "NoNewPrivileges",
            "UMask",
            "LimitCORE",
            "OOMPolicy",
        )
        start = lines.index("[Service]")
        stop = lines.index("[Install]")
        service = [line for line in lines[start + 1 : stop] if line.startswith(keep)]
        lines = [*lines[:start], "[Service]", *service, "", "[Install]", "WantedBy=default.target"]
        lines = [line for line in lines if not line.startswith("#")]
    return "\n".join(lines) + "\n"


def security_of(args: argparse.Namespace) -> Any:
    """Tokens and certificates.

    Raises:
        ValueError: options that do not fit together, or a file with the wrong content.
        OSError: a file can't be read.
    """
    from visualquant_agent.auth import Security, read_tokens

    if (args.tls_cert is None) != (args.tls_key is None):
        raise ValueError("--tls-cert and --tls-key belong together")
    if args.client_ca is not None and args.tls_cert is None:
        raise ValueError("--client-ca needs --tls-cert and --tls-key")
    return Security(
        tokens=() if args.token_file is None else read_tokens(args.token_file),
        certificate=None if args.tls_cert is None else args.tls_cert.read_bytes(),
        key=None if args.tls_key is None else args.tls_key.read_bytes(),
        client_ca=None if args.client_ca is None else args.client_ca.read_bytes(),
    )


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Serves until SIGTERM or SIGINT. Exit codes: 0 stopped, 2 bad usage, 3 the address can't be used."""
    args = parser().parse_args(argv)
    if args.command == "unit":
        executable = f"{sys.executable} -m visualquant_agent"
        print(unit_text(executable, args.options, args.user), end="")
        return 0
    from visualquant_agent.auth import refusal

    try:
        security = security_of(args)
        why = refusal(args.listen, security, args.insecure)
        if why is None:
            args.store = (args.store or default_store()).absolute()
            args.store.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, ValueError) as error:
        why = f"{error}."
    if why is not None:
        print(f"visualquant-agent: {why}", file=sys.stderr)
        return 2
    # NOTE: numpy's own threads would make forking unsound, and nothing here needs them
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from visualquant_agent.workers import supervise

    return supervise(lambda workers: serve(args, security, workers))


def serve(args: argparse.Namespace, security: Any, workers: Any) -> int:
    """The server's process."""
    from visualquant_agent.logs import event, to_stderr
    from visualquant_agent.service import make_server

    to_stderr(getattr(logging, args.log_level.upper()))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    limits = Limits(
        memory_bytes=args.memory,
        quota_bytes=args.quota,
        batch_bytes=args.max_batch,
        seconds=args.max_seconds,
        foreign=tuple(args.allow_domain),
        ep_context=args.allow_ep_context,
    )
    try:
        served = make_server(
            args.listen,
            root=args.store,
            limits=limits,
            security=security,
            workers=workers,
            reflection=args.reflection,
        )
    except (RuntimeError, ImportError, OSError) as error:
        print(f"visualquant-agent: {error}: is the address taken, are the files right?", file=sys.stderr)
        return 3
    served.start()
    event("listening", address=args.listen, port=served.port, tls=security.encrypted, store=args.store)
    stop.wait()
    event("stopping")
    served.stop(GRACE_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
