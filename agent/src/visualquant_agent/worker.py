"""What runs in the child process: one job, then the end. The server lives on whatever happens here."""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from concurrent import futures
from pathlib import Path
from typing import Any, Deque, Dict, Iterator, List, Mapping, Optional, Tuple

from visualquant_agent import device, engine, frames, memory, onnx_scan, profiling, summaries
from visualquant_agent.limits import PIECE_BYTES, Refused
from visualquant_agent.wire.v1 import agent_pb2

BIG_BYTES = 1 << 30
SUMMARY_THREADS = 4
SUMMARIES_A_MESSAGE = 32


def work(sock: socket.socket, *, alone: bool) -> None:
    """Does the job that comes over a socket.

    Args:
        sock: to the server.
        alone: this process exists for the job only (so it may be bounded and killed).
    """
    try:
        first = frames.receive(sock)
        if first is None or first[0] != frames.JOB:
            return
        job = json.loads(first[1])
        if alone:
            memory.first_to_die()
        Worker(sock, job, alone).run()
        frames.send(sock, frames.DONE)
    except Refused as error:
        _report(sock, error.code, str(error))
    except MemoryError:
        _report(sock, "RESOURCE_EXHAUSTED", "the run needs more memory than it may use")
    except OSError:
        return  # NOTE: the server is gone or has ended the call
    except Exception as error:  # NOTE: the runtime raises classes of its own without a common base
        text = engine.first_line(str(error))
        out_of_memory = "bad_alloc" in text or "Failed to allocate memory" in text or "bad allocation" in text
        code = "RESOURCE_EXHAUSTED" if out_of_memory else "FAILED_PRECONDITION"
        _report(sock, code, f"out of memory: {text}" if out_of_memory else text)
    finally:
        with contextlib.suppress(OSError):
            sock.close()


def _report(sock: socket.socket, code: str, message: str) -> None:
    with contextlib.suppress(OSError):
        frames.send(sock, frames.ERROR, json.dumps({"code": code, "message": message}).encode())


class Worker:
    """One job: optimise a model, run batches through it, or time its nodes."""

    def __init__(self, sock: socket.socket, job: Mapping[str, Any], alone: bool) -> None:
        """`job` is the JSON that `service` made: paths, settings, limits."""
        self.sock, self.job, self.alone = sock, job, alone
        self.bound: Optional[int] = job.get("memory_bytes")
        self.settings = dict(job["settings"], bounded=self.bound is not None)
        self._sessions: Dict[str, Any] = {}
        self._grown: Dict[str, int] = {}
        if alone:
            if self.bound is not None:
                memory.keep_no_spare()
            threads = int(self.settings.get("threads") or 0) or (os.cpu_count() or 1)
            limit = self.bound if self.bound is not None else int(device.memory_bytes() * 0.9)
            if limit:
                memory.bound(limit, threads)
        memory.reset_peak()
        self._start = memory.resident_bytes()

    def run(self) -> None:
        """Does it."""
        {"optimize": self._optimize, "run": self._run, "profile": self._profile}[self.job["kind"]]()

    # Optimise

    def _optimize(self) -> None:
        path = Path(self.job["model"])
        with self._scratch() as folder:
            target = folder / "optimised.onnx"
            size = sum(p.stat().st_size for p in path.parent.rglob("*") if p.is_file())
            data = "optimised.onnx.data" if size > BIG_BYTES else None
            with self._deadline():
                session = self._open(str(path), optimised_path=str(target), optimised_data=data)
            reply = agent_pb2.OptimizeReply(
                inputs=[_info(i) for i in session.get_inputs()],
                outputs=[_info(o) for o in session.get_outputs()],
                done=True,
            )
            del session
            if self.job["value_types"]:
                reply.values.extend(self._value_types(target))
            memory.give_back()
            for file in sorted(folder.iterdir()):
                with file.open("rb") as stream:
                    for chunk in iter(lambda: stream.read(PIECE_BYTES), b""):
                        message = agent_pb2.OptimizeReply(file=file.name, data=chunk)
                        frames.send(self.sock, frames.REPLY, message.SerializeToString())
        frames.send(self.sock, frames.REPLY, reply.SerializeToString())

    def _value_types(self, path: Path) -> List[agent_pb2.ValueInfo]:
        """The runtime's own type of every value of the optimised graph: its file does not state them all."""
        found = onnx_scan.scan_file(path)
        names = (n for n in found.made if n not in found.outputs)
        try:
            model = onnx_scan.with_outputs(path.read_bytes(), names)
            session = self._open(model, level="none")
        except Exception:  # NOTE: over 2 GB, or with data beside it; then the host cuts no pieces
            return []
        return [_info(o) for o in session.get_outputs()]

    # Run

    def _run(self) -> None:
        for number, feeds in enumerate(self._batches()):
            seconds = [0.0]
            values = self._values(feeds, seconds)
            if self.job["summary"]:
                self._summarize(number, values)
            else:
                for name, is_output, array in values:
                    self._emit(number, name, is_output, array)
                    del array
            reply = agent_pb2.RunReply(
                batch=number, end_of_batch=True, seconds=seconds[0], peak_bytes=self._peak()
            ).SerializeToString()
            frames.send(self.sock, frames.REPLY, reply)
            del feeds
            if self.bound is not None:
                memory.give_back()

    def _emit(self, number: int, name: str, is_output: bool, array: Any) -> None:
        for parts in frames.pieces(name, array, agent_pb2.RunReply, batch=number, output=is_output):
            frames.send(self.sock, frames.REPLY, *parts)

    def _summarize(self, number: int, values: Iterator[Tuple[str, bool, Any]]) -> None:
        """Numbers of taps, made beside the run on idle cores; few wait, so few arrays are held."""
        waiting: Deque[Tuple[str, futures.Future[Dict[str, Any]]]] = collections.deque()

        done: List[agent_pb2.TapSummary] = []

        def take_first() -> None:
            name, future = waiting.popleft()
            done.append(agent_pb2.TapSummary(name=name, **future.result()))
            if len(done) >= SUMMARIES_A_MESSAGE or not waiting:
                reply = agent_pb2.RunReply(batch=number, summary=done)
                frames.send(self.sock, frames.REPLY, reply.SerializeToString())
                done.clear()

        with futures.ThreadPoolExecutor(min(os.cpu_count() or 1, SUMMARY_THREADS)) as pool:
            for name, is_output, array in values:
                if is_output:
                    self._emit(number, name, True, array)
                else:
                    waiting.append((name, pool.submit(summaries.summarize, array, self.job["edges"].get(name))))
                del array
                if len(waiting) > 2 * SUMMARY_THREADS:
                    take_first()
            while waiting:
                take_first()

    def _values(self, feeds: Dict[str, Any], seconds: List[float]) -> Iterator[Tuple[str, bool, Any]]:
        outputs = self.job["outputs"]
        if not self.job["segments"]:
            session = self._session(self.job["model"], 0)
            found = self._call(session, outputs or None, feeds, seconds)
            for name in list(outputs or [o.name for o in session.get_outputs()])[::-1]:
                yield name, True, found.pop()
            return

        def run(segment: "_Piece", given: Dict[str, Any]) -> List[Any]:
            session = self._session(segment.file, segment.expected_bytes)
            return self._call(session, segment.outputs, given, seconds)

        pieces = [_Piece(s) for s in self.job["segments"]]
        yield from engine.run_pieces(pieces, run, feeds, outputs)

    def _call(self, session: Any, outputs: Any, feeds: Dict[str, Any], seconds: List[float]) -> List[Any]:
        start = time.perf_counter()
        with self._deadline():
            found = engine.call(session, outputs, feeds)
        seconds[0] += time.perf_counter() - start
        size = sum(getattr(a, "nbytes", 0) for a in found)
        if size > self.job["batch_bytes"]:
            raise Refused(
                "RESOURCE_EXHAUSTED", f"one call gives {size} bytes; the agent allows {self.job['batch_bytes']}"
            )
        if self.bound is not None and self.alone:
            peak = self._peak()
            if peak > self.bound + memory.SLACK_BYTES:
                raise Refused(
                    "RESOURCE_EXHAUSTED",
                    f"the run grew by {peak} bytes and may use {self.bound}: raise --memory or give smaller batches",
                )
        return found

    def _session(self, path: str, expected: int) -> Any:
        """The session of a file; where memory is bounded, others are closed until the expected growth fits."""
        if self.bound is not None and (expected or self._grown):
            while self._sessions and self._growth() + max(expected, self._grown.get(path, 0)) > self.bound:
                oldest = next((p for p in self._sessions if p != path), None)
                if oldest is None:
                    break
                del self._sessions[oldest]
                memory.give_back()
        if path not in self._sessions:
            with self._deadline():
                level = "none" if self.job["segments"] else self.settings["level"]
                self._sessions[path] = self._open(path, level=level)
            self._grown[path] = expected
        self._sessions[path] = self._sessions.pop(path)  # the last used stands last
        return self._sessions[path]

    def _open(self, source: Any, **more: Any) -> Any:
        return engine.open_session(source, **{**self.settings, **more})

    def _growth(self) -> int:
        return max(memory.resident_bytes() - self._start, 0)

    def _peak(self) -> int:
        return max(memory.peak_bytes() - self._start, 0)

    # Profile

    def _profile(self) -> None:
        feeds = next(self._batches(), None)
        if feeds is None:
            raise Refused("INVALID_ARGUMENT", "a profile needs one batch")
        warm_up, repeats = int(self.job["warm_up"]), int(self.job["repeats"])
        before = device.facts()
        counters = profiling.energy_counters()
        with self._scratch() as folder, self._deadline():
            session = self._open(self.job["model"])
            for _ in range(warm_up):
                engine.call(session, None, feeds)
            energy = profiling.read_energy(counters)
            plain = profiling.timed(functools.partial(engine.call, session, None, feeds), repeats)
            after_energy = profiling.read_energy(counters)
            del session
            traced = self._open(self.job["model"], profile_prefix=str(folder / "profile"))
            for _ in range(warm_up + repeats):
                engine.call(traced, None, feeds)
            nodes, totals = profiling.read_profile(traced.end_profiling(), warm_up)
        p50, p90, p99 = profiling.percentiles(totals)
        reply = agent_pb2.ProfileReply(
            nodes=[agent_pb2.NodeTime(**n) for n in nodes],
            total_p50_us=p50,
            total_p90_us=p90,
            total_p99_us=p99,
            repeats=len(totals),
            nodes_p50_us=sum(n["p50_us"] for n in nodes),
            plain_p50_us=profiling.percentiles(plain)[0],
            before=before,
            after=device.facts(),
        )
        spent = {n: after_energy[n] - e for n, e in energy.items() if after_energy.get(n, -1) > e}
        if spent:
            name = max(spent, key=lambda n: spent[n])
            reply.energy_joules, reply.energy_source = spent[name] / 1e6, name
        frames.send(self.sock, frames.REPLY, reply.SerializeToString())

    # What comes in, and bounds

    def _batches(self) -> Iterator[Dict[str, Any]]:
        assembler = frames.Assembler(self.job["batch_bytes"])
        feeds: Dict[str, Any] = {}
        while True:
            frame = frames.receive(self.sock)
            if frame is None:
                raise OSError("the server is gone")
            kind, content = frame
            if kind == frames.END:
                return
            try:
                data, rest = frames.split(content)
                request = agent_pb2.RunRequest.FromString(rest)
            except Exception as error:
                raise Refused("INVALID_ARGUMENT", f"a message is malformed: {engine.first_line(str(error))}") from error
            whole = assembler.add(request.tensor if request.HasField("tensor") else None, data)
            if whole is not None:
                feeds[whole[0]] = whole[1]
            if request.end_of_batch:
                if assembler.open:
                    raise Refused("INVALID_ARGUMENT", "a batch ends within a tensor")
                given, feeds = feeds, {}
                yield given
                del given
                assembler.reset()

    @contextlib.contextmanager
    def _deadline(self) -> Iterator[None]:
        """The system ends this process where one call of the runtime takes longer than allowed."""
        if not self.alone or threading.current_thread() is not threading.main_thread():
            yield
            return
        signal.setitimer(signal.ITIMER_REAL, float(self.job["seconds"]))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(dir=self.job["work"]))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class _Piece:
    """A segment as `engine.run_pieces` wants it."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.file: str = fields["file"]
        self.inputs: List[str] = fields["inputs"]
        self.outputs: List[str] = fields["outputs"]
        self.taps: List[str] = fields["taps"]
        self.drop: List[str] = fields["drop"]
        self.expected_bytes: int = fields["expected_bytes"]


def _info(arg: Any) -> agent_pb2.ValueInfo:
    shape = list(arg.shape or ())
    return agent_pb2.ValueInfo(
        name=arg.name,
        type=arg.type,
        shape=[n if isinstance(n, int) else -1 for n in shape],
        symbols=["" if isinstance(n, int) else str(n or "") for n in shape],
    )
