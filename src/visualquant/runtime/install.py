"""Sets up the agent on a board that has ssh and Python: wheel, virtual environment, service."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import json
import shlex
import subprocess
import tarfile
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Literal

from visualquant.core.device import DeviceInfo
from visualquant.core.text import safe_text
from visualquant.errors import DeviceError, UsageError
from visualquant.runtime.connect import SSH, Access, ssh_command
from visualquant.runtime.remote import Device, Progress

DISTRIBUTION = "visualquant-agent"
FOLDER = "~/.local/share/visualquant-agent"
Service = Literal["systemd", "background", "none"]
_INSTALL_S = 1800.0
_ASK_S = 60.0
_WHEEL = b"Wheel-Version: 1.0\nGenerator: visualquant\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_MACHINES = ("x86_64", "aarch64")
_LOOK = "import json,platform,sys;print(json.dumps([list(sys.version_info[:2]),platform.machine(),platform.system()]))"


@dataclasses.dataclass(frozen=True, slots=True)
class InstallOptions:
    """How the board is set up.

    Attributes:
        python: command of Python there.
        folder: on the board; "~" is the user's home.
        wheelhouse: folder of wheels to install from, for boards without a network.
        service: systemd of the user, a process in the background, or nothing.
        options: further options of `visualquant-agent serve`.
    """

    python: str = "python3"
    folder: str = FOLDER
    wheelhouse: Path | None = None
    service: Service = "systemd"
    options: str = ""


def install(access: Access, options: InstallOptions, progress: Progress) -> DeviceInfo:
    """Sets up the agent of this very version; what it then says of itself.

    Raises:
        UsageError: an address that is none of ssh.
        DeviceError: ssh, pip or the agent fails; the message has their words.
    """
    if not access.address.startswith(SSH):
        raise UsageError("`device install` wants ssh://user@board.")
    board = _Board(access)
    progress("looking at the board", 0, 0)
    _check(board, options)
    progress("sending the agent", 0, 0)
    wheel_name, wheel = agent_wheel()
    files = [(wheel_name, wheel)]
    if options.wheelhouse is not None:
        files += [(p.name, p.read_bytes()) for p in sorted(options.wheelhouse.glob("*.whl"))]
    folder = _quoted(options.folder)
    board.run(f"umask 077; mkdir -p {folder}/wheels && tar -xf - -C {folder}/wheels", _tar(files))
    progress("installing (pip on the board)", 0, 0)
    source = f"--no-index --find-links {folder}/wheels" if options.wheelhouse is not None else ""
    board.run(
        f"cd {folder} && {shlex.quote(options.python)} -m venv venv && venv/bin/python -m pip install --quiet "
        f"--disable-pip-version-check {source} --force-reinstall --no-deps wheels/{shlex.quote(wheel_name)} && "
        f"venv/bin/python -m pip install --quiet --disable-pip-version-check {source} "
        f"wheels/{shlex.quote(wheel_name)}",
        timeout_s=_INSTALL_S,
    )
    progress("starting the agent", 0, 0)
    _start(board, folder, access, options)
    if options.service == "none":
        return _nothing()
    with Device(access) as device:
        info: DeviceInfo = device.ask(lambda: device.info(20.0))
        return info


def agent_wheel() -> tuple[str, bytes]:
    """(name, bytes) of a wheel of the installed agent: board and host then have the same version.

    Raises:
        UsageError: the agent's distribution is not installed here.
    """
    import visualquant_agent

    try:
        found = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError as error:
        raise UsageError(f"{DISTRIBUTION} is not installed on this host: pip install {DISTRIBUTION}") from error
    root = Path(visualquant_agent.__file__).parent
    files = {
        f"visualquant_agent/{p.relative_to(root).as_posix()}": p.read_bytes()
        for p in sorted(root.rglob("*"))
        if p.is_file() and "__pycache__" not in p.parts
    }
    stem = f"visualquant_agent-{found.version}"
    files[f"{stem}.dist-info/METADATA"] = (found.read_text("METADATA") or "").encode()
    files[f"{stem}.dist-info/entry_points.txt"] = (found.read_text("entry_points.txt") or "").encode()
    files[f"{stem}.dist-info/WHEEL"] = _WHEEL
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{stem}.dist-info/RECORD"] = (record + f"{stem}.dist-info/RECORD,,\n").encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return f"{stem}-py3-none-any.whl", out.getvalue()


class _Board:
    """Commands over ssh."""

    def __init__(self, access: Access) -> None:
        self.access = access

    def run(self, command: str, data: bytes = b"", timeout_s: float = _ASK_S) -> str:
        """Standard output of a command of the board's shell.

        Raises:
            DeviceError: it fails, or takes too long.
        """
        try:
            done = subprocess.run(
                ssh_command(self.access.address, [], command), input=data, capture_output=True, timeout=timeout_s
            )
        except subprocess.TimeoutExpired as error:
            raise DeviceError(f"{self.access.name} did not answer within {timeout_s:g} seconds.") from error
        except OSError as error:
            raise DeviceError("The command ssh is not there: install OpenSSH.") from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip() or done.stdout.decode("utf-8", "replace").strip()
            raise DeviceError(f"On {self.access.name}: {safe_text(said[-400:]) or f'exit code {done.returncode}'}")
        return done.stdout.decode("utf-8", "replace")


def _check(board: _Board, options: InstallOptions) -> None:
    said = board.run(f"{shlex.quote(options.python)} -c {shlex.quote(_LOOK)}")
    try:
        version, machine, system = json.loads(said.strip().splitlines()[-1])
        version = tuple(int(n) for n in version)
    except (ValueError, IndexError, TypeError) as error:
        raise DeviceError(f"{board.access.name} has no working {options.python}: name one with --python.") from error
    if version < (3, 9):
        raise DeviceError(f"{board.access.name} has Python {version[0]}.{version[1]}; the agent needs 3.9 or newer.")
    if system != "Linux" or machine not in _MACHINES:
        what = safe_text(f"{system} on {machine}", 60)
        raise DeviceError(
            f"{board.access.name} is {what}; there are wheels of ONNX Runtime for Linux on {' and '.join(_MACHINES)}."
        )


def _start(board: _Board, folder: str, access: Access, options: InstallOptions) -> None:
    serve = f"--listen 127.0.0.1:{access.agent_port} {options.options}".strip()
    if options.service == "systemd":
        unit = "~/.config/systemd/user/visualquant-agent.service"
        board.run(
            f"mkdir -p ~/.config/systemd/user && cd {folder} && venv/bin/visualquant-agent unit --user --options "
            f"{shlex.quote(serve)} > {unit} && systemctl --user daemon-reload && "
            "systemctl --user enable --quiet visualquant-agent && systemctl --user restart visualquant-agent && "
            "(loginctl enable-linger 2>/dev/null || true)"
        )
    elif options.service == "background":
        board.run(
            f"cd {folder} && (test ! -f agent.pid || kill $(cat agent.pid) 2>/dev/null || true) && "
            f"(nohup venv/bin/visualquant-agent serve {serve} --store {folder}/store >agent.log 2>&1 </dev/null & "
            "echo $! >agent.pid)"
        )


def _quoted(folder: str) -> str:
    """Quoted for the board's shell; a leading "~/" stays its home."""
    return f"~/{shlex.quote(folder[2:])}" if folder.startswith("~/") else shlex.quote(folder)


def _tar(files: Sequence[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _nothing() -> DeviceInfo:
    return DeviceInfo("", "", "", (), (), "", "", "", 0, 0, ())
