"""Agents as tests need them: a process of its own, with or without TLS, on another processor."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from visualquant.runtime.connect import Access


def haswell() -> tuple[str, ...]:
    """What makes a command run on an emulated x86 processor without VNNI; skips the test where there is no qemu."""
    if shutil.which("qemu-x86_64-static") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no qemu-x86_64-static: install qemu-user-static")
        pytest.skip("no qemu-x86_64-static (Debian package qemu-user-static)")
    return "qemu-x86_64-static", "-cpu", "Haswell"


class AgentProcess:
    """`visualquant-agent serve` in a process of its own; use as a context.

    Attributes:
        address: where it listens.
        process: the supervisor.
        log: its last lines.
    """

    def __init__(
        self,
        store: Path,
        *options: str,
        before: Sequence[str] = (),
        listen: str = "127.0.0.1:0",
        python: str = "",
        command: Sequence[str] = (),
    ) -> None:
        start = command or [*before, python or sys.executable, "-m", "visualquant_agent", "serve"]
        self.process = subprocess.Popen(
            [*start, "--listen", listen, "--store", str(store), *options],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self.log: deque[str] = deque(maxlen=2000)
        assert self.process.stderr is not None
        port = 0
        for line in self.process.stderr:
            self.log.append(line)
            if "event=listening" in line:
                port = int(line.split("port=")[1].split()[0])
                break
        if not port:
            self.process.kill()
            self.process.wait()
            self.process.stderr.close()
            raise RuntimeError("the agent did not start:\n" + "".join(self.log))
        self.address = f"127.0.0.1:{port}" if listen.startswith("127.") else listen
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with contextlib.suppress(ValueError):
            for line in self.process.stderr:
                self.log.append(line)

    def tree(self) -> list[psutil.Process]:
        """Supervisor, server and workers."""
        main = psutil.Process(self.process.pid)
        return [main, *main.children(recursive=True)]

    def __enter__(self) -> AgentProcess:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self._reader.join(timeout=10)
        assert self.process.stderr is not None
        self.process.stderr.close()


class Certificates:
    """A certificate authority, a server and a client, made by openssl.

    Attributes:
        ca, client_certificate, client_key: PEM files.
        fingerprint: SHA-256 of the server's certificate.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.ca = self._self_signed("ca")
        self.server_certificate, self.server_key = self._signed("server"), folder / "server.key"
        self.client_certificate, self.client_key = self._signed("client"), folder / "client.key"
        der = ssl.PEM_cert_to_DER_cert(self.server_certificate.read_text())
        self.fingerprint = hashlib.sha256(der).hexdigest()
        self.server_options = (
            *("--tls-cert", str(self.server_certificate), "--tls-key", str(self.server_key)),
            *("--client-ca", str(self.ca)),
        )

    def access(self, address: str) -> Access:
        return Access(address, ca=self.ca, certificate=self.client_certificate, key=self.client_key)

    def _self_signed(self, name: str) -> Path:
        self._openssl("req", "-x509", "-days", "2", "-subj", f"/CN={name}", *self._new_key(name), "-out", f"{name}.pem")
        return self._folder / f"{name}.pem"

    def _signed(self, name: str) -> Path:
        (self._folder / f"{name}.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self._openssl("req", "-subj", f"/CN={name}", *self._new_key(name), "-out", f"{name}.csr")
        by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.ext")
        self._openssl("x509", "-req", "-days", "2", "-in", f"{name}.csr", *by, "-out", f"{name}.pem")
        return self._folder / f"{name}.pem"

    def _new_key(self, name: str) -> tuple[str, ...]:
        return "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key"

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True)
