"""`visualquant-agent serve`: listens until it is told to stop."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import signal
import sys
import threading
from typing import Optional, Sequence

from visualquant_agent._version import __version__
from visualquant_agent.service_names import DEFAULT_PORT


def is_loopback(listen: str) -> bool:
    """True where an address can be reached from this device only."""
    host = listen.rpartition(":")[0].strip("[]")
    if listen.startswith("unix:") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="visualquant-agent", description="Runs models on this device for visualquant.")
    top.add_argument("--version", action="version", version=f"visualquant-agent {__version__}")
    commands = top.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="listen for a host")
    serve.add_argument("--listen", default=f"127.0.0.1:{DEFAULT_PORT}", help="HOST:PORT (default: %(default)s)")
    serve.add_argument(
        "--insecure", action="store_true", help="allow an address that other machines reach, without encryption"
    )
    return top


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Serves until SIGTERM or SIGINT. Exit codes: 0 stopped, 2 bad usage, 3 the address can't be used."""
    args = parser().parse_args(argv)
    if not is_loopback(args.listen) and not args.insecure:
        print(
            f"{args.listen} can be reached by other machines without encryption or a password. Listen on 127.0.0.1 "
            "and let the host tunnel through ssh, or say --insecure.",
            file=sys.stderr,
        )
        return 2
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    from visualquant_agent.service import make_server  # NOTE: onnxruntime loads here, not for --help

    try:
        server, port = make_server(args.listen)
    except RuntimeError as error:
        print(f"{error}: is the port taken?", file=sys.stderr)
        return 3
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server.start()
    logging.getLogger("visualquant_agent").info("listening on %s (port %d)", args.listen, port)
    stop.wait()
    server.stop(grace=2.0).wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
