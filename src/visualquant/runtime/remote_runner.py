"""A runner whose model runs on a device; what it emits equals what `LocalRunner` emits there."""

from __future__ import annotations

import dataclasses
import queue
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import psutil

from visualquant.core.taps import Level, NodeTime, Profile, RunOptions, TapEvent, TapNumbers
from visualquant.core.text import safe_text
from visualquant.errors import CancelledError, DeviceError
from visualquant.runtime.remote import (
    RETRY_S,
    Device,
    DeviceRefusal,
    LostError,
    Progress,
    device_error,
    model_files,
)
from visualquant.runtime.runner import Array, Feeds, InputInfo, Runner
from visualquant.runtime.segments import WEIGHT_COPIES, Segment
from visualquant.runtime.sessions import FailedRunError, RefusedError
from visualquant.runtime.spool import Spool
from visualquant_agent import client
from visualquant_agent.frames import Assembler
from visualquant_agent.limits import Refused
from visualquant_agent.store import CACHE_LABEL
from visualquant_agent.wire.v1 import agent_pb2

MAX_BATCH_BYTES = 8 << 30
# What the runtime takes for itself once it runs: code, threads, scratch of its kernels (measured: 6 to 14 MB).
RUNTIME_BYTES = 16 << 20
PROFILE_TIMEOUT_S = 3600.0
CANCEL_POLL_S = 0.2
# What the runtime itself says of a model or its inputs; anything else is the agent's own refusal.
RUNTIME_REFUSES = frozenset({"FAILED_PRECONDITION", "INVALID_ARGUMENT", "UNIMPLEMENTED"})


class RemoteRunner(Runner):
    """One model on a device's ONNX Runtime.

    The device optimises the model, the host cuts the optimised graph into segments, and the device runs them. A batch
    that a broken connection cut short is run again; what had arrived of it is not emitted twice.
    """

    kind = "device"

    def __init__(
        self,
        path: Path,
        options: RunOptions,
        device: Device,
        *,
        spool: Spool | None = None,
        progress: Progress | None = None,
        cancel: Callable[[], bool] | None = None,
    ) -> None:
        """Sends the model and has it optimised.

        Args:
            path: the model file.
            options: how it runs; without a bound of memory the agent's own holds.
            device: where; stays open.
            spool: keeps finished batches for a later run.
            progress: called with a stage, what is done and all of it.
            cancel: asked often; True stops with `CancelledError`.

        Raises:
            RefusedError: the device's runtime refuses the file at every level.
            DeviceError: the connection stays broken.
        """
        self.device, self._spool, self._cancel = device, spool, cancel
        self._progress = progress or (lambda *_: None)
        info = device.info()
        if options.memory_bytes is None and info.memory_limit_bytes:
            options = dataclasses.replace(options, memory_bytes=info.memory_limit_bytes)
        super().__init__(path, options)
        self._stream: _Stream | None = None
        self._programs: dict[tuple[str, ...], agent_pb2.RunStart] = {}
        try:
            self._digest = device.upload(model_files(path), path.name, progress=progress, cancel=cancel)
            self._progress("optimising on the device", 0, 0)
            graph = self._optimise()
        except BaseException:
            self._folder.cleanup()
            raise
        self.inputs = {i.name: _input(i) for i in graph.inputs}
        self.outputs = tuple(o.name for o in graph.outputs)
        self._value_types: dict[str, str] | None = None

    def close(self) -> None:
        """Ends what runs on the device; the device stays connected."""
        self._drop_stream()
        super().close()

    def _optimise(self) -> agent_pb2.OptimizeReply:
        folder = self.optimised_path.parent
        try:
            return self.device.optimise(self._digest, self._settings(), folder)
        except DeviceRefusal as refusal:
            if refusal.code not in RUNTIME_REFUSES:
                raise
            if self.level == "none":
                raise RefusedError(str(refusal)) from refusal
            self.level = "none"
            self.notes.append(
                f"The device's runtime refuses it optimised ({refusal}); it was run without optimisation."
            )
        try:
            return self.device.optimise(self._digest, self._settings(), folder)
        except DeviceRefusal as refusal:
            raise RefusedError(str(refusal)) from refusal

    def _settings(self, level: Level | None = None) -> agent_pb2.SessionSettings:
        return agent_pb2.SessionSettings(
            level=(level or self.level).upper(), threads=self.options.threads, provider=self.options.provider
        )

    def _types(self) -> Mapping[str, str]:
        if self._value_types is None:
            with tempfile.TemporaryDirectory(prefix="visualquant-") as folder:
                graph = self.device.optimise(self._digest, self._settings(), Path(folder), value_types=True)
            self._value_types = {v.name: v.type for v in graph.values}
        return self._value_types

    def _budget(self) -> tuple[int | None, bool]:
        """A quarter of what the run may take: the device loads and drops pieces as it goes."""
        return None if self.options.memory_bytes is None else max(self.options.memory_bytes // 4, 1 << 20), True

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """All graph outputs of one batch, without taps.

        Raises:
            FailedRunError: the device's runtime fails on these samples.
            DeviceError: the connection stays broken.
        """
        outputs = {name: array for name, is_output, array in self._arrays((), feeds, None) if is_output}
        return self._in_order(outputs)

    def tap(self, batches: Iterable[tuple[Sequence[int], Feeds]], taps: Collection[str]) -> Iterator[TapEvent]:
        """Runs batches and emits each tapped tensor as it arrives, then the outputs.

        Args:
            batches: (sample indices, feeds).
            taps: names of values in `optimised()`.
        """
        names = tuple(sorted(taps))
        for number, (samples, feeds) in enumerate(batches):
            key = None if self._spool is None else self._spool.key(self._identity(), names, feeds)
            outputs: dict[str, Array] = {}
            for name, is_output, array in self._kept(key, names, feeds):
                if is_output:
                    outputs[name] = array
                else:
                    yield TapEvent(number, samples, name, array)
            if len(outputs) < len(self.outputs):  # an output that is a constant comes out of no segment
                outputs = self.run(feeds) | outputs
            yield TapEvent(number, samples, outputs=self._in_order(outputs))

    def summarise(
        self, feeds: Feeds, taps: Collection[str], edges: Mapping[str, Sequence[float]] | None = None
    ) -> tuple[dict[str, TapNumbers], dict[str, Array]]:
        """Thirteen numbers a tap, made on the device, and the outputs: for slow links.

        Args:
            feeds: one batch.
            taps: names of values in `optimised()`; fetch a suspicious one whole with `tap`.
            edges: of a histogram, by tap.
        """
        found: dict[str, TapNumbers] = {}
        outputs: dict[str, Array] = {}
        for name, is_output, value in self._arrays(tuple(sorted(taps)), feeds, edges or {}):
            if is_output:
                outputs[name] = value
            else:
                found[name] = value
        return found, outputs

    def profile(self, feeds: Feeds, *, level: Level | None = None, warm_up: int = 3, repeats: int = 20) -> Profile:
        """Node times by the device's own profiler, at the runner's level or another one."""
        self._drop_stream()
        start = self._start(agent_pb2.RunStart(warm_up=warm_up, repeats=repeats))
        start.settings.CopyFrom(self._settings(level))

        def requests() -> Iterator[bytes]:
            yield agent_pb2.RunRequest(start=start).SerializeToString()
            yield from _batch(feeds)

        try:
            reply = self.device.ask(
                lambda: client.profile(self.device.connection.channel, requests(), PROFILE_TIMEOUT_S),
                cancel=self._cancel,
            )
        except DeviceRefusal as refusal:
            raise FailedRunError(self.path, str(refusal)) from refusal
        return _profile(reply)

    # Programs and streams

    def _identity(self) -> tuple[str, ...]:
        info = self.device.info()
        return (self._digest, self.level, self.options.provider, info.machine, info.processor, info.onnxruntime_version)

    def _in_order(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        missing = [n for n in self.outputs if n not in outputs]
        if missing:
            raise DeviceError(f"The agent at {self.device.name} gave no output {safe_text(missing[0], 60)!r}.")
        return {n: outputs[n] for n in self.outputs}

    def _start(self, start: agent_pb2.RunStart) -> agent_pb2.RunStart:
        start.settings.CopyFrom(self._settings())
        start.outputs.extend(self.outputs)
        start.memory_bytes = self.options.memory_bytes or 0
        start.model.digest = self._digest
        return start

    def _program(self, taps: tuple[str, ...], feeds: Feeds) -> agent_pb2.RunStart:
        """What to run for these taps: the model as it is for none of them, else its segments, sent once."""
        if taps not in self._programs:
            start = self._start(agent_pb2.RunStart())
            if taps:
                segments = self._segments_of(taps, feeds)
                files: list[tuple[str, Path | bytes]] = [(f"{k}.onnx", s.model) for k, s in enumerate(segments)]
                label = f"{CACHE_LABEL}{self.path.name} ({len(taps)} taps)"
                start.model.digest = self.device.upload(files, label, progress=self._progress, cancel=self._cancel)
                for k, segment in enumerate(segments):
                    start.segments.add(
                        file=f"{k}.onnx",
                        inputs=segment.inputs,
                        outputs=segment.outputs,
                        taps=segment.taps,
                        drop=segment.drop,
                    )
                if self.options.memory_bytes is not None:
                    self._reckon(start, segments, feeds)
            self._programs[taps] = start
        return self._programs[taps]

    def _reckon(self, start: agent_pb2.RunStart, segments: Sequence[Segment], feeds: Feeds) -> None:
        """What each segment needs, and the floor: the largest of them and the largest tap."""
        _, sizes = self._described(feeds)
        for message, segment in zip(start.segments, segments, strict=True):
            values = sum(sizes.get(n, 0) for n in (*segment.inputs, *segment.outputs))
            message.expected_bytes = WEIGHT_COPIES * len(segment.model) + values
        largest = max((sizes.get(n, 0) for s in segments for n in s.taps), default=0)
        start.floor_bytes = max(m.expected_bytes for m in start.segments) + largest + RUNTIME_BYTES

    def _drop_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _kept(self, key: str | None, taps: tuple[str, ...], feeds: Feeds) -> Iterator[tuple[str, bool, Any]]:
        """A batch from the spool, or from the device and into the spool."""
        if self._spool is None or key is None:
            yield from self._arrays(taps, feeds, None)
        elif (kept := self._spool.read(key)) is not None:
            yield from kept
        else:
            yield from self._spool.write(key, self._arrays(taps, feeds, None))

    def _arrays(
        self, taps: tuple[str, ...], feeds: Feeds, edges: Mapping[str, Sequence[float]] | None
    ) -> Iterator[tuple[str, bool, Any]]:
        """(name, is output, array or numbers) of one batch; resumed on a new connection where the old one broke."""
        seen: set[tuple[str, bool]] = set()
        waits = iter(RETRY_S)
        while True:
            try:
                for name, is_output, value in self._attempt(taps, feeds, edges):
                    if (name, is_output) not in seen:
                        seen.add((name, is_output))
                        waits = iter(RETRY_S)
                        yield name, is_output, value
                return
            except LostError:
                self._drop_stream()
                wait = next(waits, None)
                if wait is None:
                    raise
                self.device.again(wait, self._cancel)
            except GeneratorExit:
                self._drop_stream()  # the rest of the batch is still on its way
                raise
            except BaseException:
                self._drop_stream()
                raise

    def _attempt(
        self, taps: tuple[str, ...], feeds: Feeds, edges: Mapping[str, Sequence[float]] | None
    ) -> Iterator[tuple[str, bool, Any]]:
        program = self._program(taps, feeds)
        key = (taps, None if edges is None else repr(sorted(edges.items())))
        if self._stream is None or self._stream.key != key:
            self._drop_stream()
            start = agent_pb2.RunStart()
            start.CopyFrom(program)
            if edges is not None:
                start.taps = agent_pb2.RunStart.SUMMARY
                for name, values in edges.items():
                    start.edges[name].edges.extend(values)
            self._stream = _Stream(self.device, start, key, self._cancel)
        try:
            yield from self._stream.batch(feeds, frozenset(taps), frozenset(self.outputs))
        except DeviceRefusal as refusal:
            if refusal.code not in RUNTIME_REFUSES:
                raise
            raise FailedRunError(self.path, str(refusal)) from refusal


class _Stream:
    """One call of `Run`, open over many batches."""

    def __init__(
        self, device: Device, start: agent_pb2.RunStart, key: object, cancel: Callable[[], bool] | None
    ) -> None:
        self.key = key
        self._cancel = cancel or (lambda: False)
        self._closed = threading.Event()
        self._name = device.name
        self._batches: queue.SimpleQueue[Iterable[bytes] | None] = queue.SimpleQueue()
        self._batches.put([agent_pb2.RunRequest(start=start).SerializeToString()])
        self._limit = min(MAX_BATCH_BYTES, psutil.virtual_memory().available // 2)
        self._call = client.run(device.connection.channel, self._requests())
        if cancel is not None:
            threading.Thread(target=self._watch, daemon=True, name="cancel").start()

    def _watch(self) -> None:
        """Ends the call as soon as the user says so, also while the device computes and sends nothing."""
        while not self._closed.wait(CANCEL_POLL_S):
            if self._cancel():
                self._call.cancel()
                return

    def _requests(self) -> Iterator[bytes]:
        while (batch := self._batches.get()) is not None:
            yield from batch

    def close(self) -> None:
        """Ends the run on the device."""
        self._closed.set()
        self._batches.put(None)
        self._call.cancel()

    def batch(self, feeds: Feeds, taps: frozenset[str], outputs: frozenset[str]) -> Iterator[tuple[str, bool, Any]]:
        """(name, is output, array or numbers) as they arrive; nothing that was not asked for."""
        self._batches.put(_batch(feeds))
        assembler = Assembler(self._limit)
        due = {(n, False) for n in taps} | {(n, True) for n in outputs}
        is_output = False
        try:
            for message in self._call:
                if self._cancel():
                    raise CancelledError("Stopped before all samples were run.")
                data, reply = client.split_reply(message)
                if reply.end_of_batch:
                    return
                for summary in reply.summary:
                    self._take(due, summary.name, False)
                    yield summary.name, False, _numbers(summary)
                if reply.summary:
                    continue
                if reply.HasField("tensor"):
                    is_output = reply.output
                    self._take(due, reply.tensor.name, is_output)
                elif not len(data):
                    raise DeviceError(f"The agent at {self._name} sends empty messages: it is no agent of ours.")
                whole = assembler.add(reply.tensor if reply.HasField("tensor") else None, data)
                if whole is not None:
                    yield whole[0], is_output, whole[1]
        except grpc.RpcError as error:
            if self._cancel():
                raise CancelledError("Stopped before all samples were run.") from error
            raise device_error(self._name, error) from error
        except (ValueError, Refused) as error:
            if isinstance(error, Refused) and error.code == "DATA_LOSS":
                raise LostError(f"What {self._name} sent was damaged on its way: {error}.") from error
            raise DeviceError(
                f"The agent at {self._name} sends what can't be right: {safe_text(str(error), 300)}."
            ) from error
        raise LostError(f"The agent at {self._name} stopped in the middle of a batch.")

    def _take(self, due: set[tuple[str, bool]], name: str, is_output: bool) -> None:
        if (name, is_output) not in due:
            raise DeviceError(f"The agent at {self._name} sends {safe_text(name, 60)!r}, which nobody asked for.")
        due.remove((name, is_output))


def _batch(feeds: Feeds) -> Iterator[bytes]:
    for name, array in feeds.items():
        yield from client.tensor_requests(name, array)
    yield agent_pb2.RunRequest(end_of_batch=True).SerializeToString()


def _input(info: agent_pb2.ValueInfo) -> InputInfo:
    symbols = list(info.symbols) + [""] * len(info.shape)
    shape = tuple(n if n >= 0 else (s or None) for n, s in zip(info.shape, symbols, strict=False))
    return InputInfo(info.name, info.type, shape)


def _numbers(summary: agent_pb2.TapSummary) -> TapNumbers:
    fields: dict[str, Any] = {f.name: getattr(summary, f.name) for f in dataclasses.fields(TapNumbers)}
    shown = {
        "shape": tuple(summary.shape),
        "histogram": tuple(summary.histogram),
        "dtype": safe_text(summary.dtype, 40),
    }
    return TapNumbers(**(fields | shown))


def _profile(reply: agent_pb2.ProfileReply) -> Profile:
    nodes = tuple(
        NodeTime(safe_text(n.node), safe_text(n.op_type, 100), safe_text(n.provider, 100), n.p50_us, n.p90_us)
        for n in reply.nodes
    )
    before, after = reply.before, reply.after
    hot = after.temperature_celsius if after.HasField("temperature_celsius") else None
    counted = before.HasField("throttle_count") and after.HasField("throttle_count")
    return Profile(
        nodes,
        reply.total_p50_us,
        reply.repeats,
        total_p90_us=reply.total_p90_us,
        total_p99_us=reply.total_p99_us,
        plain_p50_us=reply.plain_p50_us,
        energy_joules=reply.energy_joules if reply.HasField("energy_joules") else None,
        energy_source=safe_text(reply.energy_source, 60),
        temperature_celsius=hot,
        throttled=after.throttle_count - before.throttle_count if counted else None,
    )
