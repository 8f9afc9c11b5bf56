"""The gRPC service, and a server that carries it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import platform
import shutil
import signal
import tempfile
import threading
import time
from concurrent import futures
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional

import grpc
import onnxruntime
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from visualquant_agent import device, frames, jobs
from visualquant_agent._version import __version__
from visualquant_agent.auth import DEFAULT_NAMESPACE, Security, namespace_of, token_in
from visualquant_agent.limits import MESSAGE_BYTES, Limits, Refused
from visualquant_agent.logs import event
from visualquant_agent.protection import TokenCheck, credentials
from visualquant_agent.service_names import PROTOCOL_VERSION, SERVICE_NAME
from visualquant_agent.store import File, Store
from visualquant_agent.wire.v1 import agent_pb2
from visualquant_agent.workers import ThreadWorkers, Worker

CAPABILITIES = ("hello", "models", "optimize", "run", "summary", "profile")
BUSY_WAIT_S = 3.0
MAX_CALLS = 32
SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.max_concurrent_streams", 64),
    # A host that is gone is noticed within half a minute, and its run is ended.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.max_connection_idle_ms", 3_600_000),
    # What an upload has on its way when it is cut is sent again: keep it small, whatever the link.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1 << 20),
)


def _same(data: bytes) -> bytes:
    return data


class AgentService:
    """Answers the RPCs of agent.proto."""

    def __init__(self, root: Path, limits: Limits, workers: Any) -> None:
        """`workers` starts workers: `ThreadWorkers` or `ForkedWorkers`."""
        self.root, self.limits, self.workers = root, limits, workers
        self.providers = list(onnxruntime.get_available_providers())
        self._device_lock = threading.Lock()
        self._doing = ""
        self._running: Dict[int, Worker] = {}
        shutil.rmtree(root / "work", ignore_errors=True)
        Store(root, limits)

    def handlers(self) -> Any:
        """For a server. Streams of tensors pass through as bytes: only the worker takes them apart."""
        pb = agent_pb2
        unary: Dict[str, Any] = {
            "Hello": (self.Hello, pb.HelloRequest),
            "BeginUpload": (self.BeginUpload, pb.Manifest),
            "FinishUpload": (self.FinishUpload, pb.ModelRef),
            "ListModels": (self.ListModels, pb.ListModelsRequest),
            "DeleteModel": (self.DeleteModel, pb.ModelRef),
        }
        found: Dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(_said(method), kind.FromString, _serialized)
            for name, (method, kind) in unary.items()
        }
        found["Upload"] = grpc.stream_unary_rpc_method_handler(
            _said(self.Upload), pb.UploadPiece.FromString, _serialized
        )
        found["Optimize"] = grpc.unary_stream_rpc_method_handler(
            _said_stream(self.Optimize), pb.OptimizeRequest.FromString, _same
        )
        found["Run"] = grpc.stream_stream_rpc_method_handler(_said_stream(self.Run), _same, _same)
        found["Profile"] = grpc.stream_unary_rpc_method_handler(_said(self.Profile), _same, _same)
        return grpc.method_handlers_generic_handler(SERVICE_NAME, found)

    def close(self) -> None:
        """Ends what runs."""
        for worker in list(self._running.values()):
            worker.end()

    # Facts

    def Hello(  # noqa: N802  (gRPC names methods as the schema does)
        self, request: agent_pb2.HelloRequest, context: grpc.ServicerContext
    ) -> agent_pb2.HelloReply:
        """Versions and device facts; FAILED_PRECONDITION where the host speaks another protocol."""
        event("hello", client=request.client, protocol=request.protocol_version, peer=context.peer())
        if request.protocol_version != PROTOCOL_VERSION:
            raise Refused(
                "FAILED_PRECONDITION",
                f"the agent speaks protocol {PROTOCOL_VERSION}, the host {request.protocol_version}: "
                "install the same release of visualquant and visualquant-agent on both",
            )
        store = self._store(context)
        return agent_pb2.HelloReply(
            protocol_version=PROTOCOL_VERSION,
            agent_version=__version__,
            onnxruntime_version=onnxruntime.__version__,
            python_version=platform.python_version(),
            providers=self.providers,
            capabilities=CAPABILITIES,
            device=device.facts(),
            memory_limit_bytes=self.limits.memory_bytes or 0,
            store_free_bytes=max(store.free_bytes(), 0),
            busy=self._doing,
        )

    # Models

    def BeginUpload(self, request: agent_pb2.Manifest, context: grpc.ServicerContext) -> agent_pb2.UploadState:  # noqa: N802
        """What of the files is here already."""
        files = [File(f.name, f.bytes, f.sha256) for f in request.files]
        digest, complete, received = self._store(context).begin(files, request.label)
        return agent_pb2.UploadState(digest=digest, complete=complete, received=received)

    def Upload(self, requests: Iterator[agent_pb2.UploadPiece], context: grpc.ServicerContext) -> agent_pb2.UploadState:  # noqa: N802
        """Appends pieces until the host stops sending."""
        store = self._store(context)
        digest = ""
        with _Watch(self.limits.idle_seconds, context.cancel) as watch:
            for piece in requests:
                watch.moved()
                digest = piece.digest
                store.write(digest, piece.file, piece.offset, piece.data)
        return agent_pb2.UploadState(digest=digest)

    def FinishUpload(self, request: agent_pb2.ModelRef, context: grpc.ServicerContext) -> agent_pb2.UploadState:  # noqa: N802
        """Checks and renames."""
        self._store(context).finish(request.digest)
        event("model", digest=request.digest)
        return agent_pb2.UploadState(digest=request.digest, complete=True)

    def ListModels(  # noqa: N802
        self, _request: agent_pb2.ListModelsRequest, context: grpc.ServicerContext
    ) -> agent_pb2.ListModelsReply:
        """Of this token's namespace."""
        store = self._store(context)
        reply = agent_pb2.ListModelsReply(used_bytes=store.used_bytes(), quota_bytes=self.limits.quota_bytes)
        for entry in store.entries():
            files = [agent_pb2.FileEntry(name=f.name, bytes=f.bytes, sha256=f.sha256) for f in entry.files[:100]]
            reply.models.add(
                digest=entry.digest, label=entry.label, files=files, complete=entry.complete, last_used=entry.last_used
            )
        return reply

    def DeleteModel(self, request: agent_pb2.ModelRef, context: grpc.ServicerContext) -> agent_pb2.DeleteModelReply:  # noqa: N802
        """Removes a model or an upload."""
        return agent_pb2.DeleteModelReply(freed_bytes=self._store(context).delete(request.digest))

    # Runs

    def Optimize(self, request: agent_pb2.OptimizeRequest, context: grpc.ServicerContext) -> Iterator[bytes]:  # noqa: N802
        """The graph that the device's runtime makes."""
        job = jobs.optimize_job(request, self._store(context), self.limits, self.providers)
        yield from self._do(job, iter(()), context)

    def Run(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:  # noqa: N802
        """Batches in, tensors out, as they come to exist."""
        start = _start(requests)
        job = jobs.run_job(start, self._store(context), self.limits, self.providers)
        yield from self._do(job, requests, context)

    def Profile(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:  # noqa: N802
        """Node times."""
        start = _start(requests)
        job = jobs.run_job(start, self._store(context), self.limits, self.providers, kind="profile")
        return b"".join(self._do(job, requests, context))

    def _do(self, job: Dict[str, Any], requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Runs a job in a worker: one at a time, ended when the call ends."""
        with self._device(f"{job['kind']} for {context.peer()}"):
            begun = time.monotonic()
            try:
                worker = self.workers.start()
            except OSError as error:
                raise Refused("RESOURCE_EXHAUSTED", f"no process could be started: {error}") from error
            self._running[id(worker)] = worker
            context.add_callback(worker.end)
            outcome = "cancelled"
            try:
                with _Watch(self.limits.idle_seconds, worker.end) as watch:
                    frames.send(worker.sock, frames.JOB, json.dumps(job).encode())
                    threading.Thread(target=_feed, args=(worker, requests, watch), daemon=True, name="feed").start()
                    while True:
                        frame = frames.receive(worker.sock)
                        watch.moved()
                        if frame is None:
                            outcome = "died" if context.is_active() else "cancelled"
                            raise self._death(worker, context, job)
                        kind, content = frame
                        if kind == frames.DONE:
                            outcome = "done"
                            return
                        if kind == frames.ERROR:
                            said = json.loads(content)
                            outcome = said["code"]
                            raise Refused(outcome, jobs.without_places(said["message"], self.root))
                        yield content
            except OSError as error:
                raise self._death(worker, context, job) from error
            finally:
                worker.close()
                self._running.pop(id(worker), None)
                shutil.rmtree(self.root / "work", ignore_errors=True)  # what a killed worker left
                event(job["kind"], outcome=outcome, seconds=time.monotonic() - begun, peer=context.peer())

    def _death(self, worker: Worker, context: grpc.ServicerContext, job: Dict[str, Any]) -> Refused:
        """Why a worker ended without a word."""
        number = worker.end(dying=True)
        if not context.is_active():
            return Refused("CANCELLED", "the host ended the run")
        if number is None:
            return Refused(
                "ABORTED", "the run was ended: the host sent and took nothing for too long, or the agent stops"
            )
        if number == signal.SIGALRM:
            return Refused("DEADLINE_EXCEEDED", f"one call of the runtime took longer than {job['seconds']:g} seconds")
        if number == signal.SIGKILL:
            return Refused("RESOURCE_EXHAUSTED", "the system ended the run: the device has too little memory for it")
        name = signal.Signals(number).name
        return Refused("INTERNAL", f"a fault inside ONNX Runtime ended the run ({name}); the agent serves on")

    @contextlib.contextmanager
    def _device(self, doing: str) -> Iterator[None]:
        """One run at a time; a short wait lets the run before it end."""
        if not self._device_lock.acquire(timeout=BUSY_WAIT_S):
            raise Refused(
                "RESOURCE_EXHAUSTED", f"busy: the device does one run at a time, now {self._doing}; try later"
            )
        self._doing = doing
        try:
            yield
        finally:
            self._doing = ""
            self._device_lock.release()

    def _store(self, context: grpc.ServicerContext) -> Store:
        token = token_in(context.invocation_metadata())
        return Store(self.root, self.limits, namespace_of(token) if token else DEFAULT_NAMESPACE)


class _Watch:
    """Calls `end` where nothing has moved for a while."""

    def __init__(self, idle_seconds: float, end: Callable[[], Any]) -> None:
        self._idle, self._end = idle_seconds, end
        self._last = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="watch")

    def moved(self) -> None:
        """Something came or went."""
        self._last = time.monotonic()

    def _look(self) -> None:
        while not self._over.wait(min(self._idle / 4, 5.0)):
            if time.monotonic() - self._last > self._idle:
                self._end()
                return

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()


def _feed(worker: Worker, requests: Iterator[bytes], watch: _Watch) -> None:
    """Passes on what the host sends; the worker's socket holds it back."""
    try:
        for request in requests:
            watch.moved()
            frames.send(worker.sock, frames.FEED, request)
        frames.send(worker.sock, frames.END)
    except Exception:  # NOTE: a cancelled call raises a class without a name here, a worker that is gone OSError
        with contextlib.suppress(OSError):
            frames.send(worker.sock, frames.END)


def _start(requests: Iterator[bytes]) -> agent_pb2.RunStart:
    try:
        request = agent_pb2.RunRequest.FromString(next(requests))
    except StopIteration:
        raise Refused("INVALID_ARGUMENT", "the call has no first message") from None
    except Exception as error:
        raise Refused("INVALID_ARGUMENT", "the first message is malformed") from error
    if not request.HasField("start"):
        raise Refused("INVALID_ARGUMENT", "the first message must be `start`")
    return request.start


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _said(method: Callable[..., Any]) -> Callable[..., Any]:
    """Refusals as statuses; anything else is logged, and the host learns no more than that."""

    def call(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(request, context)
        except Refused as error:
            _abort(context, error, method.__name__)
        except Exception as error:
            _fault(context, error, method.__name__)

    return call


def _said_stream(method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def call(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            yield from method(request, context)
        except Refused as error:
            _abort(context, error, method.__name__)
        except Exception as error:
            _fault(context, error, method.__name__)

    return call


def _abort(context: grpc.ServicerContext, error: Refused, method: str) -> None:
    event("refused", method=method, code=error.code, why=str(error), peer=context.peer())
    context.abort(getattr(grpc.StatusCode, error.code, grpc.StatusCode.INTERNAL), str(error)[:2000])


def _fault(context: grpc.ServicerContext, error: Exception, method: str) -> None:
    if not context.is_active():
        event("ended", method=method, peer=context.peer())
        context.abort(grpc.StatusCode.CANCELLED, "the host ended the call")
    event("fault", level=logging.ERROR, method=method, kind=type(error).__name__, what=str(error))
    context.abort(grpc.StatusCode.INTERNAL, f"a fault of the agent itself ({type(error).__name__}): see its log")


@dataclasses.dataclass
class Served:
    """A server that is not started yet.

    Attributes:
        server: of gRPC.
        port: chosen by the system for port 0.
        service: what it carries.
    """

    server: grpc.Server
    port: int
    service: AgentService
    _pool: futures.ThreadPoolExecutor
    _folder: Optional["tempfile.TemporaryDirectory[str]"] = None

    def start(self) -> None:
        """Begins to serve."""
        self.server.start()

    def stop(self, grace: float = 0.0) -> None:
        """Takes no more calls, lets short ones end, ends what still runs after `grace` seconds."""
        stopped = self.server.stop(grace or None)
        if not stopped.wait(grace + 0.1):
            self.service.close()
        stopped.wait(3)
        self.service.close()
        self._pool.shutdown(wait=False)
        if self._folder is not None:
            self._folder.cleanup()


def make_server(
    listen: str,
    *,
    root: Optional[Path] = None,
    limits: Optional[Limits] = None,
    security: Optional[Security] = None,
    workers: Any = None,
    reflection: bool = False,
) -> Served:
    """A server that is not started yet.

    Args:
        listen: "HOST:PORT" or "unix:PATH".
        root: folder of the models; a temporary one by default.
        limits: of runs and uploads.
        security: tokens and certificates.
        workers: where jobs run; threads of this process by default.
        reflection: answer what services there are (needs the package grpcio-reflection).

    Raises:
        RuntimeError: the address is taken or malformed, or the certificates are unusable.
    """
    folder = tempfile.TemporaryDirectory(prefix="visualquant-agent-") if root is None else None
    security = security or Security()
    pool = futures.ThreadPoolExecutor(max_workers=MAX_CALLS, thread_name_prefix="rpc")
    server = grpc.server(
        pool,
        interceptors=[TokenCheck(security.tokens)] if security.tokens else [],
        options=list(SERVER_OPTIONS),
        maximum_concurrent_rpcs=MAX_CALLS,
    )
    service = AgentService(root or Path(folder.name if folder else ""), limits or Limits(), workers or ThreadWorkers())
    server.add_generic_rpc_handlers((service.handlers(),))
    status = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    for name in ("", SERVICE_NAME):
        status.set(name, health_pb2.HealthCheckResponse.SERVING)
    if reflection:
        from grpc_reflection.v1alpha import reflection as reflected

        reflected.enable_server_reflection((SERVICE_NAME, reflected.SERVICE_NAME), server)
    if security.encrypted:
        port = server.add_secure_port(listen, credentials(security))
    else:
        port = server.add_insecure_port(listen)
    if port == 0:
        raise RuntimeError(f"can't listen on {listen}")
    return Served(server, port, service, pool, folder)
