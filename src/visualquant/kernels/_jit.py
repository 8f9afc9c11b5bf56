"""The one door to Numba: flags, cache and signatures are decided here, once.

Importing this module imports numba (about 0.8 s); nothing but kernel modules may do so, and they only when called.

Flags of fast kernels: `reassoc`, `contract`, `nsz` and `arcp`; of strict kernels: none. No flag that assumes finite
values, because NaN and infinity have to be seen. `reassoc` lets sums run in vector lanes; the order is fixed at
compile time, so one machine gives the same bits every time. Where a product must be rounded once, `fma` says so
explicitly instead of hoping for `contract`; where it must be rounded before it is used, the kernel is strict.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import ir as _ir
from numba.core import cgutils as _cgutils
from numba.core import event, types
from numba.extending import intrinsic

# NOTE: what _simd.py needs to build vector code
cgutils: Any = _cgutils
ir: Any = _ir
numba_types: Any = types
numba_intrinsic: Any = intrinsic

config: Any = numba.config
FLAGS = {"reassoc", "contract", "nsz", "arcp"}
JIT = not config.DISABLE_JIT

f32, f64, i8, u8, u16, u32, i32, i64, u64 = (
    types.float32,
    types.float64,
    types.int8,
    types.uint8,
    types.uint16,
    types.uint32,
    types.int32,
    types.int64,
    types.uint64,
)


def read(dtype: Any, rank: int = 1) -> Any:
    """Type of a C-contiguous array that a kernel only reads; read-only and writable arrays both fit."""
    return types.Array(dtype, rank, "C", readonly=True)


def write(dtype: Any, rank: int = 1) -> Any:
    """Type of a C-contiguous array that a kernel writes."""
    return types.Array(dtype, rank, "C")


def _has_fma() -> bool:
    if not JIT:
        return True
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return bool(features.get("fma")) or "aarch64" in llvm.get_process_triple()


# NOTE: without a fused multiply-add in hardware llvm.fma is a slow call for every element, so the float32 kernels are
# not used there and everything runs in float64.
HAS_FMA = _has_fma()


def _sources() -> str:
    """A digest of all kernel sources, made once: part of the name under which compiled code is kept."""
    global _digest
    if not _digest:
        files = sorted(Path(__file__).parent.glob("*.py"))
        _digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    return _digest


_digest = ""


def _cache_folder() -> str | None:
    """Where compiled kernels are kept: "" for numba's own choice, a temporary folder, or None for nowhere."""
    if not JIT:
        return None
    probe = compile("def probe():\n    return None\n", __file__, "exec")
    space: dict[str, Any] = {}
    exec(probe, space)
    try:
        numba.njit(cache=True)(space["probe"])
        return ""
    except Exception:  # NOTE: numba raises RuntimeError, and OSError from some file systems; both mean "not here"
        pass
    owner = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"visualquant-numba-{owner}"
    with contextlib.suppress(Exception):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not hasattr(os, "getuid") or folder.stat().st_uid == owner:
            config.CACHE_DIR = str(folder)
            numba.njit(cache=True)(space["probe"])
            return str(folder)
    return None


CACHE = _cache_folder()
_listeners: list[Callable[[str], None]] = []


@contextlib.contextmanager
def on_compile(listener: Callable[[str], None]) -> Iterator[None]:
    """Calls `listener` with a kernel's name when it is compiled (not when it is loaded from the cache)."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class Kernel:
    """A compiled function with fixed signatures, made on its first call.

    Attributes:
        seconds: time that compiling or loading took; None before the first call.
        from_cache: whether it was loaded; None before the first call.
    """

    def __init__(self, function: Callable[..., Any], signatures: tuple[Any, ...], strict: bool) -> None:
        # NOTE: numba keys its cache by the file of the kernel alone; helpers and constants live in other files too
        function.__qualname__ = f"{function.__qualname__}_{_sources()}"
        self._plain = function
        self._flags = False if strict else FLAGS
        # NOTE: a dispatcher for each element type of the first argument: numba's switch that allows compiling is one
        # for all signatures of a dispatcher, and a call in another thread must not meet it half-way
        self._signatures: dict[Any, list[Any]] = {}
        for signature in signatures:
            self._signatures.setdefault(_key(signature), []).append(signature)
        self._ready: dict[Any, Callable[..., Any]] = {} if JIT else dict.fromkeys(self._signatures, function)
        self._lock = threading.Lock()
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.seconds: float | None = None
        self.from_cache: bool | None = None

    def __call__(self, *args: Any) -> Any:
        """Run the kernel; the arguments must fit one of the signatures."""
        key = getattr(args[0], "dtype", None)
        function = self._ready.get(key)
        return (self._made(key) if function is None else function)(*args)

    def interpreted(self, *args: Any) -> Any:
        """Run it as plain Python, compiled or not: for work too small to wait for a compiler."""
        return self._plain(*args)

    def prepare(self) -> None:
        """Compile or load every signature now."""
        for key in self._signatures:
            self._made(key)

    def _made(self, key: Any) -> Callable[..., Any]:
        """The function for a first argument of this type; threads that come at the same time wait for the first."""
        with self._lock:
            if key not in self._ready:
                if key not in self._signatures:
                    raise TypeError(f"{self.__name__} takes no first argument of type {key}")
                self._ready[key] = self._make(self._signatures[key])
            return self._ready[key]

    def _make(self, signatures: list[Any]) -> Callable[..., Any]:
        start = time.perf_counter()
        watcher = _CompileWatcher(self.__name__)
        made: Any = numba.njit(nogil=True, fastmath=self._flags, error_model="numpy", cache=CACHE is not None)(
            self._plain
        )
        with event.install_listener("numba:compile", watcher):
            for signature in signatures:
                made.compile(signature)
        made.disable_compile()  # an array with gaps is a mistake, not a reason to compile for seconds
        self.seconds = (self.seconds or 0.0) + time.perf_counter() - start
        self.from_cache = not watcher.seen and self.from_cache is not False
        return made  # type: ignore[no-any-return]


def _key(signature: tuple[Any, ...]) -> Any:
    """The numpy type of the first argument's elements; None for a number."""
    element = getattr(signature[0], "dtype", None)
    return None if element is None else numba.np.numpy_support.as_dtype(element)


class _CompileWatcher(event.Listener):
    """Tells the listeners of `on_compile` once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen = False

    def on_start(self, event: Any) -> None:
        """Numba begins to compile the kernel or one of its helpers."""
        del event
        if not self.seen:
            self.seen = True
            for listener in _listeners:
                listener(self.name)

    def on_end(self, event: Any) -> None:
        """Nothing to do."""


def kernel(*signatures: Any, strict: bool = False) -> Callable[[Callable[..., Any]], Kernel]:
    """Decorator: a function called from Python, compiled for exactly these argument types."""
    return lambda function: Kernel(function, signatures, strict)


def inline(function: Callable[..., Any]) -> Any:
    """Decorator: a fast function that only kernels of the same module call."""
    return numba.njit(nogil=True, fastmath=FLAGS, error_model="numpy")(function)


def strict_inline(function: Callable[..., Any]) -> Any:
    """Decorator: a strict function that only kernels of the same module call."""
    return numba.njit(nogil=True, error_model="numpy")(function)


def _comparison(operator: str) -> Any:
    @intrinsic
    def pick(typing: Any, a: Any, b: Any) -> Any:
        del typing

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            del context, signature
            flags = ("nnan", "nsz")
            return builder.select(builder.fcmp_ordered(operator, *args, flags=flags), *args, flags=flags)

        return a(a, b), generate

    return pick


@intrinsic
def _fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    del typing

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        return builder.fma(*args)

    return a(a, b, c), generate


@intrinsic
def _count16(typing: Any, total: Any, flag: Any) -> Any:
    del typing, total, flag

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        return builder.add(args[0], builder.zext(args[1], args[0].type))

    return types.int16(types.int16, types.boolean), generate


def _plain_fma(a: Any, b: Any, c: Any) -> Any:
    return type(a)(float(a) * float(b) + float(c))


def _plain_count16(total: Any, flag: Any) -> Any:
    return np.int16(total + bool(flag))


# larger and smaller of two floats; NaN gives either operand, so callers look for NaN elsewhere (in their sums).
# NOTE: only these two operations carry `nnan`; without it LLVM does not turn the loop into vector code.
larger: Any = _comparison(">") if JIT else max
smaller: Any = _comparison("<") if JIT else min
# a·b + c, rounded once
fma: Any = _fma if JIT else _plain_fma
# int16 total + (1 where flag): narrow counters keep 32 lanes busy; at most 32,767 a loop
count16: Any = _count16 if JIT else _plain_count16
