"""The door to numba: caches, first runs, and the kernels as plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def python(code: str, **environment: str) -> str:
    """Standard output of a fresh interpreter."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env=env, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_importing_is_cheap() -> None:
    code = """
        import sys
        import visualquant.kernels
        from visualquant.kernels import BlockSource, MeasureOptions, fake_quantize, measure, what_if
        print([name for name in ("numba", "llvmlite", "onnx", "onnxruntime") if name in sys.modules])
    """
    assert python(code).strip() == "[]"


SMALL = """
    import numpy as np
    from tests.kernels.samples import make_case
    from tests.kernels.test_measure import agree
    from tests.reference import naive
    from visualquant.core.tensors import TensorRef
    from visualquant.kernels import MeasureOptions, what_if
    from visualquant.kernels.measuring import measure
    count = 0
    with np.errstate(all="ignore"):
        for name in ("int8", "uint8", "int4", "uint2", "int16", "int32", "float8e4m3fn", "nf4"):
            for granularity, axis, channel in (("per_tensor", 0, 1), ("per_channel", 1, 0), ("blocked", 1, 0)):
                x, codes, params = make_case((6, 70), name, granularity, axis=axis, block=32)
                x[0, 0] = np.nan
                options = MeasureOptions(channel_axis=channel, histogram_bins=32, quantiles=(0.5,))
                for fast_from in (0, 1 << 60):
                    stats = measure(x, TensorRef.of(codes, params.code_type), params, options, fast_from)
                    agree(stats.metrics(), naive.weight_metrics(x, codes, params, channel), 1e-6)
                    count += 1
        rows = what_if(x, channel_axis=0)
    print(count, len(rows))
"""


def test_without_compilation() -> None:
    """The same kernels as plain Python: what is compiled is what is written."""
    assert python(SMALL, NUMBA_DISABLE_JIT="1").strip() == "48 32"


CACHE = """
    import numpy as np
    from visualquant.kernels import _jit, measure, MeasureOptions
    compiled = []
    with _jit.on_compile(compiled.append):
        measure(np.ones((4, 8), np.float32), None, None, MeasureOptions(outliers=False))
    print(repr(_jit.CACHE), sorted(compiled))
"""


def test_cache_folder_is_used(tmp_path: Path) -> None:
    """NUMBA_CACHE_DIR is honoured; the second run compiles nothing, and the first one says what it compiles."""
    first = python(CACHE, NUMBA_CACHE_DIR=str(tmp_path))
    assert first.strip() == "'' ['fold', 'measure64']"
    assert any(tmp_path.rglob("*.nbi"))
    assert python(CACHE, NUMBA_CACHE_DIR=str(tmp_path)).strip() == "'' []"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX users")
def test_cache_falls_back(tmp_path: Path) -> None:
    """Where neither package nor home can be written: a temporary folder, and without that no cache at all."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    code = """
        import numba.core.caching as caching
        names = ("InTreeCacheLocator", "InTreeCacheLocatorFsAgnostic", "UserWideCacheLocator")
        for locator in [value for name, value in vars(caching).items() if name.lstrip("_") in names]:
            locator.ensure_cache_path = lambda self: (_ for _ in ()).throw(OSError("read-only"))
        from visualquant.kernels import _jit
        from visualquant.kernels.merge import fold
        import numpy as np
        fold(np.zeros((1, _FIELDS)), np.zeros((1, 1, _FIELDS)), 0, 1)
        print(_jit.CACHE)
    """.replace("_FIELDS", "36")
    assert python(code, TMPDIR=str(tmp_path)).strip().startswith(str(tmp_path))
    assert any((tmp_path).rglob("*.nbi"))
    hide = f"import tempfile; tempfile.tempdir = {str(blocked)!r}; from visualquant.kernels import _jit"
    nowhere = code.replace("from visualquant.kernels import _jit", hide)
    assert python(nowhere).strip() == "None"


def test_read_only_and_writable_arrays_share_one_kernel() -> None:
    from visualquant.kernels.merge import fold
    from visualquant.kernels.records import identity

    records = identity(3).reshape(3, 1, -1)
    records.flags.writeable = False
    total = identity(3)
    fold(total, records, 0, 1)
    fold(total, identity(3).reshape(3, 1, -1), 0, 1)
    assert fold.seconds is not None


def test_float16_and_bfloat16_widen_exactly() -> None:
    import ml_dtypes

    from visualquant.kernels.partner import as_float32

    patterns = np.arange(65_536, dtype=np.uint16)
    for kind in (np.float16, ml_dtypes.bfloat16):
        values = patterns.view(kind)
        with np.errstate(invalid="ignore"):
            want = values.astype(np.float32)
        got = as_float32(values)
        finite = ~np.isnan(want)
        np.testing.assert_array_equal(got[finite].view(np.uint32), want[finite].view(np.uint32))
        assert np.isnan(got[~finite]).all()


def test_threads_that_need_a_kernel_at_once_wait_for_it(tmp_path: Path) -> None:
    code = """
        import threading
        import numpy as np
        from visualquant.kernels.merge import fold
        failures = []
        def use():
            try:
                fold(np.zeros((1, 36)), np.zeros((1, 1, 36)), 0, 1)
            except Exception as error:
                failures.append(error)
        threads = [threading.Thread(target=use) for _ in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print(failures)
    """
    assert python(code, NUMBA_CACHE_DIR=str(tmp_path)).strip() == "[]"
