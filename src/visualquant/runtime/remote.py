"""Talks to an agent on a device: facts, models, graphs. Every text that comes from there is made safe here."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from visualquant._version import __version__
from visualquant.core.device import DeviceInfo, DeviceModel, DeviceModels
from visualquant.core.text import safe_text
from visualquant.errors import CancelledError, DeviceError, InputError
from visualquant.runtime.connect import Access, Connection
from visualquant_agent import client
from visualquant_agent.limits import PIECE_BYTES
from visualquant_agent.store import File, file_digest, manifest_digest
from visualquant_agent.wire.v1 import agent_pb2

Progress = Callable[[str, int, int], None]
TIMEOUT_S = 30.0
LONG_S = 3600.0
RETRY_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
MAX_GRAPH_BYTES = 64 << 30
_MAX_NAMES = 1 << 20
# NOTE: OUT_OF_RANGE is an upload whose other end has moved: the next attempt asks where it stands
_LOST = frozenset({"UNAVAILABLE", "CANCELLED", "UNKNOWN", "ABORTED", "DATA_LOSS", "OUT_OF_RANGE"})


class LostError(DeviceError):
    """The connection broke: trying again may help."""


class BusyError(LostError):
    """The device does another run now."""


class DeviceRefusal(InputError):
    """The device refuses what was asked; the message is its own.

    Attributes:
        code: name of the gRPC status.
    """

    def __init__(self, message: str, code: str) -> None:
        """The message names the device."""
        super().__init__(message)
        self.code = code


def device_error(name: str, error: grpc.RpcError) -> DeviceError | DeviceRefusal:
    """What a failed call means for a person."""
    code = error.code().name if hasattr(error, "code") and error.code() is not None else "UNKNOWN"
    said = safe_text(str((error.details() if hasattr(error, "details") else str(error)) or ""), 600).rstrip(".")
    if code == "UNAVAILABLE":
        return LostError(
            f"No agent answers at {name}. Is `visualquant-agent serve` running there, and is the port right? ({said})"
        )
    if code == "DEADLINE_EXCEEDED" and said.startswith("Deadline"):
        return LostError(f"No agent answers at {name} in time.")
    if code == "UNAUTHENTICATED":
        return DeviceError(f"The agent at {name} wants a token: {said}. Give --token-file.")
    if code == "RESOURCE_EXHAUSTED" and said.startswith("busy"):
        return BusyError(f"The device {name} is {said}.")
    if code in _LOST:
        return LostError(f"The connection to {name} broke: {said or code}.")
    if code == "INTERNAL":
        return DeviceError(f"On {name}: {said}.")
    return DeviceRefusal(f"The agent at {name} refused: {said}.", code)


class Device:
    """A connected agent; use as a context. Safe to use from one thread at a time.

    Attributes:
        access: how it is reached.
        connection: channel and tunnel.
    """

    def __init__(self, access: Access) -> None:
        """Connects; nothing is sent yet.

        Raises:
            UsageError, DeviceError: see `Connection`.
        """
        self.access = access
        self.connection = Connection(access)
        self._info: DeviceInfo | None = None

    @property
    def name(self) -> str:
        """For people."""
        return self.access.name

    def close(self) -> None:
        """Ends the connection."""
        self.connection.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def stub(self) -> Any:
        """The generated client on the present channel."""
        return client.stub(self.connection.channel)

    def info(self, timeout_s: float = TIMEOUT_S, *, again: bool = False) -> DeviceInfo:
        """What the device is; asked once unless `again`.

        Raises:
            DeviceError: nobody answers there in time, or the agent speaks another protocol.
        """
        if self._info is None or again:
            try:
                reply = client.hello(self.connection.channel, f"visualquant {__version__}", timeout_s)
            except grpc.RpcError as error:
                problem = device_error(self.name, error)
                raise problem if isinstance(problem, DeviceError) else DeviceError(str(problem)) from error
            self._info = info_of(reply)
        return self._info

    def ask(self, call: Callable[[], Any], *, cancel: Callable[[], bool] | None = None) -> Any:
        """Calls, and again where the connection broke or the device is busy; a new channel each time.

        Raises:
            DeviceError: it stays broken.
            DeviceRefusal: the device refuses.
            CancelledError: `cancel` said so.
        """
        for wait in (*RETRY_S, None):
            try:
                return call()
            except grpc.RpcError as error:
                problem = device_error(self.name, error)
                if wait is None or not isinstance(problem, LostError):
                    raise problem from error
            except LostError:
                if wait is None:
                    raise
            self.again(wait, cancel)
        raise AssertionError("unreachable")

    def again(self, wait_s: float, cancel: Callable[[], bool] | None = None) -> None:
        """Waits and opens a new channel."""
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            if cancel is not None and cancel():
                raise CancelledError("Stopped.")
            time.sleep(min(0.1, wait_s))
        self.connection.reconnect()

    # Models

    def upload(
        self,
        files: Sequence[tuple[str, Path | bytes]],
        label: str,
        *,
        progress: Progress | None = None,
        cancel: Callable[[], bool] | None = None,
    ) -> str:
        """Puts files on the device unless they are there; resumes where it was cut; the digest.

        Args:
            files: (name on the device, path or content); the first is the model.
            label: for people.
            progress: called with a stage, bytes done and all.
            cancel: asked for each piece.

        Raises:
            DeviceError: the connection stays broken; what was received stays there.
            DeviceRefusal: no room, or unsafe names.
        """
        entries = [_entry(name, content) for name, content in files]
        digest = manifest_digest(entries)
        manifest = agent_pb2.Manifest(
            files=[agent_pb2.FileEntry(name=e.name, bytes=e.bytes, sha256=e.sha256) for e in entries], label=label
        )
        total = sum(e.bytes for e in entries)

        def attempt() -> None:
            state = self.stub.BeginUpload(manifest, timeout=TIMEOUT_S)
            if state.complete:
                return
            received = list(state.received)
            pieces = _pieces(files, received, digest, total, progress or (lambda *_: None), cancel)
            self.stub.Upload(pieces, timeout=LONG_S)
            if cancel is not None and cancel():
                raise CancelledError("Stopped while the model was sent; it will be resumed where it was.")
            self.stub.FinishUpload(agent_pb2.ModelRef(digest=digest), timeout=LONG_S)

        self.ask(attempt, cancel=cancel)
        return digest

    def models(self) -> DeviceModels:
        """What is on the device, in this token's namespace."""
        reply = self.ask(lambda: self.stub.ListModels(agent_pb2.ListModelsRequest(), timeout=TIMEOUT_S))
        return DeviceModels(
            tuple(
                DeviceModel(
                    safe_text(m.digest, 64),
                    safe_text(m.label, 200),
                    sum(f.bytes for f in m.files),
                    m.complete,
                    float(m.last_used),
                )
                for m in reply.models
            ),
            reply.used_bytes,
            reply.quota_bytes,
        )

    def delete(self, digest: str) -> int:
        """Removes a model or an upload; bytes freed."""
        reply = self.ask(lambda: self.stub.DeleteModel(agent_pb2.ModelRef(digest=digest), timeout=TIMEOUT_S))
        return int(reply.freed_bytes)

    def optimise(
        self, digest: str, settings: agent_pb2.SessionSettings, folder: Path, *, value_types: bool = False
    ) -> agent_pb2.OptimizeReply:
        """The device's own optimised graph, written into a folder; the last reply.

        Raises:
            DeviceError: the connection broke, or the device sends nonsense.
            DeviceRefusal: the device's runtime refuses the model.
        """
        request = agent_pb2.OptimizeRequest(
            model=agent_pb2.ModelRef(digest=digest), settings=settings, value_types=value_types
        )

        def attempt() -> agent_pb2.OptimizeReply:
            for old in folder.glob("optimised.onnx*"):
                old.unlink()
            total = 0
            for reply in self.stub.Optimize(request, timeout=LONG_S):
                if reply.done:
                    if max(len(reply.inputs), len(reply.outputs), len(reply.values)) > _MAX_NAMES:
                        raise DeviceError(
                            f"The agent at {self.name} names over a million values: it is no agent of ours."
                        )
                    last: agent_pb2.OptimizeReply = reply
                    return last
                total += len(reply.data)
                if reply.file not in ("optimised.onnx", "optimised.onnx.data") or total > MAX_GRAPH_BYTES:
                    raise DeviceError(f"The agent at {self.name} sends files that nobody asked for.")
                with (folder / reply.file).open("ab") as out:
                    out.write(reply.data)
            raise LostError(f"The agent at {self.name} stopped before the graph was whole.")

        found: agent_pb2.OptimizeReply = self.ask(attempt)
        return found


def hello(address: str, timeout_s: float = 10.0) -> DeviceInfo:
    """What the agent at HOST:PORT is.

    Raises:
        DeviceError: nobody answers there in time, or the agent speaks another protocol.
    """
    with Device(Access(address)) as device:
        return device.info(timeout_s)


def info_of(reply: agent_pb2.HelloReply) -> DeviceInfo:
    """The answer to `Hello`, every text made safe."""
    facts = reply.device
    return DeviceInfo(
        agent_version=safe_text(reply.agent_version, 40),
        onnxruntime_version=safe_text(reply.onnxruntime_version, 40),
        python_version=safe_text(reply.python_version, 40),
        providers=tuple(safe_text(p, 60) for p in reply.providers[:64]),
        capabilities=tuple(safe_text(c, 60) for c in reply.capabilities[:64]),
        machine=safe_text(facts.machine, 40),
        system=safe_text(facts.system, 100),
        processor=safe_text(facts.processor, 100),
        cores=facts.cores,
        memory_bytes=facts.memory_bytes,
        cpu_features=tuple(safe_text(f, 40) for f in facts.cpu_features[:64]),
        memory_available_bytes=facts.memory_available_bytes,
        governor=safe_text(facts.governor, 40),
        frequency_khz=facts.frequency_khz,
        frequency_max_khz=facts.frequency_max_khz,
        temperature_celsius=facts.temperature_celsius if facts.HasField("temperature_celsius") else None,
        throttle_count=facts.throttle_count if facts.HasField("throttle_count") else None,
        energy_sources=tuple(safe_text(s, 60) for s in facts.energy_sources[:64]),
        memory_limit_bytes=reply.memory_limit_bytes,
        store_free_bytes=reply.store_free_bytes,
        busy=safe_text(reply.busy, 100),
    )


def model_files(path: Path) -> list[tuple[str, Path | bytes]]:
    """A model and the files with its external data, by their names beside it.

    Raises:
        InputError: external data that lies elsewhere.
    """
    from visualquant_agent.limits import Refused
    from visualquant_agent.onnx_scan import scan_file

    try:
        locations = sorted(scan_file(path).locations)
    except Refused as error:
        raise InputError(f"{path.name!r} is no ONNX model that a device could run: {error}.") from error
    root = path.parent.resolve()
    files: list[tuple[str, Path | bytes]] = [(path.name, path)]
    for location in locations:
        target = path.parent / location
        if Path(location).is_absolute() or root not in target.resolve().parents or not target.is_file():
            raise InputError(f"The external data {safe_text(location, 80)!r} of {path.name!r} is not beside it.")
        files.append((Path(location).as_posix(), target))
    return files


def _entry(name: str, content: Path | bytes) -> File:
    if isinstance(content, bytes):
        return File(name, len(content), hashlib.sha256(content).hexdigest())
    return File(name, content.stat().st_size, file_digest(content))


def _pieces(
    files: Sequence[tuple[str, Path | bytes]],
    received: Sequence[int],
    digest: str,
    total: int,
    progress: Progress,
    cancel: Callable[[], bool] | None,
) -> Iterator[agent_pb2.UploadPiece]:
    done = sum(received)
    for number, (_, content) in enumerate(files):
        offset = received[number] if number < len(received) else 0
        for data in _from(content, offset):
            if cancel is not None and cancel():
                return  # NOTE: an exception would be swallowed here; the caller asks `cancel` again
            yield agent_pb2.UploadPiece(data=data, digest=digest, file=number, offset=offset)
            offset += len(data)
            done += len(data)
            progress("sending the model", done, total)


def _from(content: Path | bytes, offset: int) -> Iterator[bytes]:
    if isinstance(content, bytes):
        for start in range(offset, len(content), PIECE_BYTES):
            yield content[start : start + PIECE_BYTES]
        return
    with content.open("rb") as file:
        file.seek(offset)
        while chunk := file.read(PIECE_BYTES):
            yield chunk
