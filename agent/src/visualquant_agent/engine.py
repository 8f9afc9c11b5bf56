"""ONNX Runtime: how sessions are opened and called, and how pieces of a graph run one after the other.

Host and device use the same functions, so that a local run and a run on the device differ in nothing but the machine.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import onnxruntime as ort

from visualquant_agent.limits import Refused

LEVELS: Dict[str, Any] = {
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
QUIET = 4  # NOTE: the runtime's own log goes to standard error; refusals come back as exceptions anyway
# Element numbers of onnx.proto for types that numpy lacks: they come and go as integers.
_NOT_IN_NUMPY = {
    "bfloat16": 16,
    "float8e4m3fn": 17,
    "float8e4m3fnuz": 18,
    "float8e5m2": 19,
    "float8e5m2fnuz": 20,
}
CONFIG_NAMES = frozenset(
    {
        "session.disable_prepacking",
        "session.disable_quant_qdq",
        "session.enable_quant_qdq_cleanup",
        "session.intra_op.allow_spinning",
        "session.qdq_matmulnbits_accuracy_level",
        "session.set_denormal_as_zero",
        "session.x64quantprecision",
    }
)
PROVIDER_OPTION_NAMES = frozenset({"device_id", "intra_op_num_threads", "arena_extend_strategy", "gpu_mem_limit"})
_PLAIN_VALUE = re.compile(r"[0-9A-Za-z_.+-]{1,40}")

Array = Any
Feeds = Mapping[str, Array]


def check_options(config: Mapping[str, str], provider_options: Mapping[str, str]) -> None:
    """Refuses every session or provider option that is not on the list, and values that could be a path."""
    for kind, given, known in (
        ("session option", config, CONFIG_NAMES),
        ("provider option", provider_options, PROVIDER_OPTION_NAMES),
    ):
        for name, value in given.items():
            if name not in known:
                raise Refused("PERMISSION_DENIED", f"{kind} {name[:60]!a} may not be set from the host")
            if not _PLAIN_VALUE.fullmatch(value):
                raise Refused("PERMISSION_DENIED", f"{kind} {name!r} takes a plain word or number")


def open_session(
    source: Union[str, bytes],
    *,
    level: str = "all",
    threads: int = 0,
    provider: str = "CPUExecutionProvider",
    config: Optional[Mapping[str, str]] = None,
    provider_options: Optional[Mapping[str, str]] = None,
    optimised_path: Optional[str] = None,
    optimised_data: Optional[str] = None,
    profile_prefix: Optional[str] = None,
    bounded: bool = False,
) -> Any:
    """A session.

    Args:
        source: path, or a serialized ModelProto without external data.
        level: a key of `LEVELS`.
        threads: intra-operator threads; 0 leaves it to the runtime.
        provider: execution provider.
        config: session configuration by name.
        provider_options: of the provider.
        optimised_path: also write the optimised graph there.
        optimised_data: name of the file beside it for its large tensors.
        profile_prefix: profile node times into a file that starts so.
        bounded: give memory back after each run instead of keeping an arena; changes no number.

    Raises:
        Exception: whatever the runtime raises; its classes have no common base.
    """
    settings = ort.SessionOptions()
    settings.graph_optimization_level = LEVELS[level]
    settings.log_severity_level = QUIET
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    if bounded:
        settings.enable_cpu_mem_arena = False
        settings.enable_mem_pattern = False
    if optimised_path is not None:
        settings.optimized_model_filepath = optimised_path
        if optimised_data is not None:
            settings.add_session_config_entry("session.optimized_model_external_initializers_file_name", optimised_data)
    if profile_prefix is not None:
        settings.enable_profiling = True
        settings.profile_file_prefix = profile_prefix
    for name, value in (config or {}).items():
        settings.add_session_config_entry(name, value)
    if isinstance(source, str):
        settings.add_session_config_entry("session.load_model_format", "ONNX")
    given = [dict(provider_options)] if provider_options else None
    return ort.InferenceSession(source, settings, providers=[provider], provider_options=given)


def call(session: Any, outputs: Optional[Sequence[str]], feeds: Feeds) -> List[Array]:
    """Runs a session; 8-bit floats and bfloat16 go in as the integers that hold them.

    Raises:
        Exception: whatever the runtime raises.
    """
    wanted = {i.name: i.type for i in session.get_inputs()}
    values = {n: _as_value(a, wanted.get(n, "")) for n, a in feeds.items()}
    if all(isinstance(v, np.ndarray) for v in values.values()):
        found: List[Array] = session.run(outputs, values)
        return found
    plain = {n: ort.OrtValue.ortvalue_from_numpy(v) if isinstance(v, np.ndarray) else v for n, v in values.items()}
    names = outputs or [o.name for o in session.get_outputs()]
    return [v.numpy() for v in session.run_with_ort_values(names, plain)]


def _as_value(array: Array, kind: str) -> Any:
    number = _NOT_IN_NUMPY.get(kind[len("tensor(") : -1]) if kind.startswith("tensor(") else None
    if number is None:
        return array
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(array), number)


def run_pieces(
    pieces: Iterable[Any],
    run: Callable[[Any, Dict[str, Array]], List[Array]],
    feeds: Feeds,
    outputs: Sequence[str],
) -> Iterator[Tuple[str, bool, Array]]:
    """Runs pieces in order and frees what no later piece needs.

    Args:
        pieces: have `inputs`, `outputs`, `taps` and `drop`, which are names.
        run: gives the outputs of a piece.
        feeds: inputs of the graph.
        outputs: names of the graph's outputs.

    Yields:
        (name, whether it is an output, array): each tap as soon as it exists, outputs at the end.
    """
    held: Dict[str, Array] = dict(feeds)
    final: Dict[str, Array] = {}
    for piece in pieces:
        found = run(piece, {n: held[n] for n in piece.inputs})
        taps, drop = set(piece.taps), set(piece.drop)
        found.reverse()
        for name in piece.outputs:
            array = found.pop()  # NOTE: popped, so that each is freed as soon as nobody needs it
            if name in outputs:
                final[name] = array
            if name not in drop:
                held[name] = array
            if name in taps:
                yield name, False, array
            del array
        for name in piece.drop:
            held.pop(name, None)
    for name in outputs:  # an output that is an input needs no piece
        if name in final or name in held:
            yield name, True, final[name] if name in final else held[name]


def first_line(message: str, limit: int = 300) -> str:
    """The telling part of the runtime's message."""
    text = " ".join(message.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
