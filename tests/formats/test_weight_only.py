"""Weight-only operators of com.microsoft; onnxruntime multiplies the identity by each weight."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from hypothesis import strategies as st

from tests.formats.oracles import by_onnxruntime
from visualquant.core.tensors import ELEMENT_TYPES, pack_bits
from visualquant.formats.element_types import FP4_BNB_TABLE, NF4_TABLE
from visualquant.formats.scheme import find_sites
from visualquant.testing.conformance import Sample, SchemeConformance, dequantized
from visualquant.testing.models import graph_of, model, node, tensor, value
from visualquant.testing.strategies import codes, generators, scales


def _packed_rows(rows: np.ndarray, bits: int) -> np.ndarray:
    """Each row of codes as bytes of its own, first code in the lowest bits."""
    return np.stack([pack_bits(row.astype(np.uint8), bits) for row in rows.reshape(-1, rows.shape[-1])])


@st.composite
def _nbits(draw: st.DrawFn) -> Sample:
    rng = draw(generators())
    bits, block = draw(st.sampled_from([2, 4, 8])), draw(st.sampled_from([16, 32]))
    n, k = draw(st.integers(1, 5)), draw(st.integers(1, 3 * block))
    blocks = -(-k // block)
    q = rng.integers(0, 1 << bits, (n, blocks, block))
    scale = scales(rng, (n, blocks))
    kind = draw(st.sampled_from(["none", "packed", "float"]))
    zero = np.full((n, blocks), float(1 << (bits - 1)))
    blob = np.stack([_packed_rows(row, bits) for row in q])
    held = scale.reshape(-1) if draw(st.booleans()) else scale
    tensors = [tensor("w", blob), tensor("s", held)]
    inputs = ["x", "w", "s"]
    if kind == "packed":
        zero = rng.integers(0, 1 << bits, (n, blocks))
        packed = _packed_rows(zero, bits)
        tensors.append(tensor("z", packed.reshape(-1) if draw(st.booleans()) else packed))
        inputs.append("z")
    elif kind == "float":
        zero = rng.uniform(0, 1 << bits, (n, blocks)).astype(np.float32)
        tensors.append(tensor("z", zero))
        inputs.append("z")
    rows = np.repeat(zero.astype(np.float64), block, axis=1), np.repeat(scale.astype(np.float64), block, axis=1)
    full = (q.reshape(n, -1).astype(np.float64) - rows[0]) * rows[1]
    nodes = [node("MatMulNBits", inputs, ["y"], "mm", "com.microsoft", K=k, N=n, bits=bits, block_size=block)]
    proto = model(nodes, tensors, [value("x", shape=[k, k])], [value("y")])
    runs = bits == 4 or kind != "float"  # what the CPU kernels take
    feeds = {"x": np.eye(k, dtype=np.float32)} if runs else None
    return Sample(proto, "w", "mm", 1, full[:, :k].T, f"uint{bits}", "blocked", 1, block, feeds=feeds)


class TestMatMulNBits(SchemeConformance):
    scheme = "matmul_nbits"
    examples = 60
    oracle = "onnxruntime"
    oracle_tolerance = 2e-5

    def samples(self) -> st.SearchStrategy[Sample]:
        return _nbits()

    def run_oracle(self, sample: Sample) -> np.ndarray:
        return by_onnxruntime(sample.model, sample.feeds or {})

    def malformed(self) -> Iterator[tuple[str, onnx.ModelProto]]:
        good = {"K": 32, "N": 3, "bits": 4, "block_size": 16}
        blob, scale = np.zeros((3, 2, 8), np.uint8), np.ones((3, 2), np.float32)

        def nbits(
            blob: np.ndarray, scale: np.ndarray | None, zero: np.ndarray | None = None, **changed: int
        ) -> onnx.ModelProto:
            tensors = [tensor("w", blob), *([] if scale is None else [tensor("s", scale)])]
            tensors += [] if zero is None else [tensor("z", zero)]
            inputs = ["x", "w", "s", *([] if zero is None else ["z"])]
            nodes = [node("MatMulNBits", inputs, ["y"], "mm", "com.microsoft", **{**good, **changed})]
            return model(nodes, tensors, [value("x", shape=[1, 32])], [value("y")])

        yield "no scale", nbits(blob, None)
        yield "short blob", nbits(blob[:, :, :7], scale)
        yield "wrong block count", nbits(blob, np.ones((3, 3), np.float32))
        yield "wrong block size", nbits(blob, scale, block_size=32 * 2)
        yield "no block size", nbits(blob, scale, block_size=0)
        yield "wrong bits", nbits(blob, scale, bits=8)
        yield "zero points of another length", nbits(blob, scale, np.zeros((3, 2), np.uint8))
        yield "float zero points of another length", nbits(blob, scale, np.zeros((3, 3), np.float32))
        yield "prepacked for a GPU", nbits(blob, scale, weight_prepacked=1)


@pytest.mark.parametrize("balanced", [True, False])
def test_group_index(balanced: bool) -> None:
    """g_idx gives each input channel a group: its scale and zero point. onnxruntime agrees."""
    rng = np.random.default_rng(5)
    n, k, block = 3, 32, 16
    groups = rng.permutation(np.arange(k) // block) if balanced else rng.integers(0, 2, k)
    groups = groups.astype(np.int32)
    q, scale, zero = rng.integers(0, 16, (n, k)), scales(rng, (n, 2)), rng.integers(0, 16, (n, 2))
    tensors = [
        tensor("w", np.stack([_packed_rows(row, 4) for row in q.reshape(n, 2, block)])),
        tensor("s", scale),
        tensor("z", _packed_rows(zero, 4)),
        tensor("g", groups),
    ]
    nodes = [
        node("MatMulNBits", ["x", "w", "s", "z", "g"], ["y"], "mm", "com.microsoft", K=k, N=n, bits=4, block_size=16)
    ]
    proto = model(nodes, tensors, [value("x", shape=[k, k])], [value("y")])
    (site,) = find_sites(graph_of(proto)).sites
    want = ((q - zero[:, groups]) * scale[:, groups].astype(np.float64)).T
    np.testing.assert_array_equal(dequantized(site), want)
    assert site.params is not None and site.params.block_size == (block if balanced else 1)
    assert (site.permutation is not None) is balanced
    # NOTE: onnxruntime 1.32 takes 8 for every zero point where there is a g_idx, so it is asked without
    plain = model([_without_zero_points(nodes[0])], tensors, [value("x", shape=[k, k])], [value("y")])
    got = by_onnxruntime(plain, {"x": np.eye(k, dtype=np.float32)})
    (site,) = find_sites(graph_of(plain)).sites
    np.testing.assert_allclose(got, dequantized(site), rtol=1e-5, atol=1e-5)


def _without_zero_points(proto: onnx.NodeProto) -> onnx.NodeProto:
    other = onnx.NodeProto()
    other.CopyFrom(proto)
    other.input[3] = ""
    return other


@pytest.mark.parametrize("bits", [3, 5, 6, 7])
def test_other_widths_are_one_bit_stream(bits: int) -> None:
    q = np.random.default_rng(bits).integers(0, 1 << bits, (2, 1, 16))
    tensors = [tensor("w", np.stack([_packed_rows(row, bits) for row in q])), tensor("s", np.ones((2, 1), np.float32))]
    nodes = [node("MatMulNBits", ["x", "w", "s"], ["y"], "mm", "com.microsoft", K=16, N=2, bits=bits, block_size=16)]
    (site,) = find_sites(graph_of(model(nodes, tensors, [value("x", shape=[1, 16])], [value("y")]))).sites
    assert site.params is not None and site.params.code_type.name == f"uint{bits}"
    np.testing.assert_array_equal(dequantized(site), (q.reshape(2, 16) - (1 << (bits - 1))).T)


@pytest.mark.parametrize(
    ("op_type", "inputs", "slots"),
    [
        ("MatMulNBitsMlp", ["x", "", "", "w", "s", "", "w2", "s", ""], (3, 6)),
        ("MatMulNBitsQkv", ["x", "", "n", "w", "s", "", "w2", "s", "", "w3", "s", ""], (3, 6, 9)),
        ("MatMulNBitsQLoRA", ["x", "w", "s"], (1,)),
    ],
)
def test_fused_operators(op_type: str, inputs: list[str], slots: tuple[int, ...]) -> None:
    blobs = [np.random.default_rng(k).integers(0, 256, (2, 1, 16), dtype=np.uint8) for k in range(3)]
    tensors = [tensor(n, b) for n, b in zip(("w", "w2", "w3"), blobs, strict=True)]
    tensors += [tensor("s", np.ones((2, 1), np.float32)), tensor("n", np.ones(32, np.float32))]
    attributes = {"K": 32, "N": 2, "Nq": 2, "Nkv": 2, "bits": 4, "block_size": 32}
    nodes = [node(op_type, inputs, ["y"], "mm", "com.microsoft", **attributes)]
    sites = find_sites(graph_of(model(nodes, tensors, [value("x", shape=[1, 32])], [value("y")]))).sites
    assert tuple(s.slot for s in sites) == slots and all(s.problem is None for s in sites)


@st.composite
def _gathered(draw: st.DrawFn) -> Sample:
    rng = draw(generators())
    rows, blocks, block = draw(st.integers(1, 5)), draw(st.integers(1, 3)), 16
    dtype = draw(st.sampled_from(["uint8", "int4", "uint4"]))
    bits = draw(st.sampled_from([2, 4, 8])) if dtype == "uint8" else 4
    shape = (rows, blocks * block)
    q = rng.integers(0, 1 << bits, shape) if dtype == "uint8" else codes(rng, dtype, shape).astype(np.int64)
    scale, given = scales(rng, (rows, blocks)), draw(st.booleans())
    zero = np.full((rows, blocks), (1 << (bits - 1)) if dtype == "uint8" else 0)
    if given:
        zero = rng.integers(0, 1 << bits, (rows, blocks)) if dtype != "int4" else rng.integers(-8, 8, (rows, blocks))
    stored = _packed_rows(q, bits) if dtype == "uint8" else q
    tensors = [tensor("w", stored, dtype), tensor("s", scale)]
    if given:
        tensors.append(tensor("z", _packed_rows(zero, bits) if dtype == "uint8" else zero, dtype))
    full = [np.repeat(a.astype(np.float64), block, axis=1) for a in (zero, scale)]
    inputs = ["w", "ids", "s", *(["z"] if given else [])]
    attributes = {"block_size": block, "quantize_axis": draw(st.sampled_from([1, -1])), "gather_axis": 0}
    if dtype == "uint8":
        attributes["bits"] = bits
    nodes = [node("GatherBlockQuantized", inputs, ["y"], "gather", "com.microsoft", **attributes)]
    proto = model(nodes, tensors, [value("ids", "int64", [rows])], [value("y")])
    name = f"uint{bits}" if dtype == "uint8" else dtype
    feeds = {"ids": np.arange(rows)}
    return Sample(proto, "w", "gather", 0, (q - full[0]) * full[1], name, "blocked", 1, block, feeds=feeds)


class TestGatherBlockQuantized(SchemeConformance):
    scheme = "gather_block_quantized"
    oracle = "onnxruntime"

    def samples(self) -> st.SearchStrategy[Sample]:
        return _gathered()

    def run_oracle(self, sample: Sample) -> np.ndarray:
        return by_onnxruntime(sample.model, sample.feeds or {})

    def malformed(self) -> Iterator[tuple[str, onnx.ModelProto]]:
        def gather(scale: np.ndarray, zero: np.ndarray | None = None, **attributes: int) -> onnx.ModelProto:
            tensors = [tensor("w", np.zeros((3, 16), np.uint8)), tensor("s", scale)]
            tensors += [] if zero is None else [tensor("z", zero)]
            inputs = ["w", "ids", "s", *([] if zero is None else ["z"])]
            nodes = [
                node("GatherBlockQuantized", inputs, ["y"], "g", "com.microsoft", **{"block_size": 16, **attributes})
            ]
            return model(nodes, tensors, [value("ids", "int64", [1])], [value("y")])

        yield "wrong block count", gather(np.ones((3, 3), np.float32))
        yield "zero points of another length", gather(np.ones((3, 2), np.float32), np.zeros((3, 2), np.uint8))
        yield "an axis that is not there", gather(np.ones((3, 2), np.float32), quantize_axis=5)
        yield "bits that do not exist", gather(np.ones((3, 2), np.float32), bits=5)


@st.composite
def _bnb4(draw: st.DrawFn) -> Sample:
    rng = draw(generators())
    n, k, block = draw(st.integers(1, 5)), draw(st.integers(1, 40)), 16
    nf4 = draw(st.booleans())
    turned = True
    q = rng.integers(0, 16, n * k)
    padded = np.append(q, 0) if q.size % 2 else q
    blob = ((padded[0::2] << 4) | padded[1::2]).astype(np.uint8)
    scale = scales(rng, (-(-n * k // block),))
    table = NF4_TABLE if nf4 else FP4_BNB_TABLE
    flat = table.astype(np.float64)[q] * np.repeat(scale.astype(np.float64), block)[: n * k]
    tensors = [tensor("w", blob), tensor("s", scale)]
    attributes = {"K": k, "N": n, "block_size": block, "quant_type": int(nf4)}
    nodes = [node("MatMulBnb4", ["x", "w", "s"], ["y"], "mm", "com.microsoft", **attributes)]
    proto = model(nodes, tensors, [value("x", shape=[k, k])], [value("y")])
    rows = k % block == 0
    return Sample(
        proto,
        "w",
        "mm",
        1,
        flat.reshape(n, k).T if turned else flat.reshape(n, k),
        "nf4" if nf4 else "fp4",
        "blocked",
        1 if rows else 0,
        block,
        feeds={"x": np.eye(k, dtype=np.float32)},
    )


class TestMatMulBnb4(SchemeConformance):
    scheme = "matmul_bnb4"
    oracle = "onnxruntime"

    def samples(self) -> st.SearchStrategy[Sample]:
        return _bnb4()

    def run_oracle(self, sample: Sample) -> np.ndarray:
        return by_onnxruntime(sample.model, sample.feeds or {})

    def malformed(self) -> Iterator[tuple[str, onnx.ModelProto]]:
        for what, blob, scale, kind in (
            ("short blob", np.zeros(7, np.uint8), np.ones(1, np.float32), 1),
            ("wrong block count", np.zeros(8, np.uint8), np.ones(2, np.float32), 1),
            ("a type that does not exist", np.zeros(8, np.uint8), np.ones(1, np.float32), 2),
        ):
            attributes = {"K": 4, "N": 4, "block_size": 16, "quant_type": kind}
            nodes = [node("MatMulBnb4", ["x", "w", "s"], ["y"], "mm", "com.microsoft", **attributes)]
            yield what, model(nodes, [tensor("w", blob), tensor("s", scale)], [value("x", shape=[1, 4])], [value("y")])


@st.composite
def _experts(draw: st.DrawFn) -> Sample:
    """Integer weights of QMoE: [E, N, K] codes with a scale a row, or a block."""
    rng = draw(generators())
    bits, block = draw(st.sampled_from([2, 4, 8])), draw(st.sampled_from([0, 16]))
    experts, rows, columns = 2, draw(st.integers(1, 3)), 32
    q = rng.integers(0, 1 << bits, (experts, rows, columns))
    counts = (experts, rows, columns // block) if block else (experts, rows)
    scale = scales(rng, counts)
    zero = np.full(counts, 1 << (bits - 1))
    tensors = [tensor("w", _packed_rows(q, bits).reshape(experts, rows, -1)), tensor("s", scale)]
    inputs = ["x", "p", "w", "s", "", "w", "s"] + [""] * 4
    if draw(st.booleans()):
        zero = rng.integers(0, 1 << bits, counts)
        shape = (experts, rows, -1) if block else (experts, -1)
        tensors.append(tensor("z", _packed_rows(zero, bits).reshape(shape)))
        inputs.append("z")
    full = [np.repeat(a.astype(float), block, 2) if block else a.astype(float)[..., None] for a in (zero, scale)]
    attributes = {"k": 1, "expert_weight_bits": bits, **({"block_size": block} if block else {})}
    nodes = [node("QMoE", inputs, ["y"], "moe", "com.microsoft", **attributes)]
    proto = model(nodes, tensors, [value("x", shape=[1, 32]), value("p", shape=[1, 2])], [value("y")])
    operand = (q - full[0]) * full[1]
    return Sample(
        proto, "w", "moe", 2, operand, f"uint{bits}", "blocked" if block else None, 2 if block else None, block or None
    )


class TestQMoE(SchemeConformance):
    scheme = "qmoe"

    def samples(self) -> st.SearchStrategy[Sample]:
        return _experts()

    def site_of(self, sample: Sample):  # type: ignore[no-untyped-def]
        """The tensor serves both layers of the sample; the first is looked at."""
        graph = graph_of(sample.model)
        sites = find_sites(graph)
        return next(s for s in sites.sites if s.slot == 2), sites, graph


def test_qmoe_runs_as_read() -> None:
    """One expert, identity activation: onnxruntime's output is W₂·W₁·x of the weights as read."""
    rng = np.random.default_rng(0)
    size, inner = 32, 64
    q1, q2 = rng.integers(0, 256, (1, inner, size)), rng.integers(0, 256, (1, size, inner))
    s1, s2 = scales(rng, (1, inner)), scales(rng, (1, size))
    tensors = [tensor("w1", q1.astype(np.uint8)), tensor("s1", s1), tensor("w2", q2.astype(np.uint8)), tensor("s2", s2)]
    inputs = ["x", "p", "w1", "s1", "", "w2", "s2"]
    attributes = {"k": 1, "expert_weight_bits": 8, "activation_type": "identity", "normalize_routing_weights": 1}
    nodes = [node("QMoE", inputs, ["y"], "moe", "com.microsoft", **attributes)]
    proto = model(nodes, tensors, [value("x", shape=["n", size]), value("p", shape=["n", 1])], [value("y")])
    first, second = find_sites(graph_of(proto)).sites
    x = np.eye(size, dtype=np.float32)
    want = (dequantized(second)[0] @ dequantized(first)[0]).T
    got = by_onnxruntime(proto, {"x": x, "p": np.ones((size, 1), np.float32)})
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


def test_float_weights() -> None:
    """Block-scaled float8, NVFP4 with its two scales, and GemmFloat8."""
    rng = np.random.default_rng(4)
    q8, q4 = codes(rng, "float8e4m3fn", (3, 32)), codes(rng, "float4e2m1", (3, 32))
    inner, outer, flat = codes(rng, "float8e4m3fn", (3, 2)), scales(rng, ()), scales(rng, (3, 2))
    tensors = [
        tensor("w8", q8, "float8e4m3fn"),
        tensor("w4", pack_bits(q4.view(np.uint8), 4).reshape(3, 16)),
        tensor("inner", inner.view(np.uint8)),
        tensor("outer", outer),
        tensor("flat", flat),
        tensor("one", np.array(0.5, np.float32)),
    ]
    nodes = [
        node("MatMulBlockQuantizedFp8Weight", ["x", "w8", "flat"], ["a"], "fp8", "com.microsoft", block_size=16),
        node(
            "MatMulBlockQuantizedFp4Weight", ["x", "w4", "inner", "outer"], ["b"], "fp4", "com.microsoft", block_size=16
        ),
        node("GemmFloat8", ["x8", "w8", "", "one", "one", ""], ["c"], "gemm", "com.microsoft", transB=1),
    ]
    inputs = [value("x", "float16", [1, 32]), value("x8", "float8e4m3fn", [1, 32])]
    graph = graph_of(model(nodes, tensors, inputs, [value("a"), value("b"), value("c")]))
    by_name = {graph.nodes[s.reader or 0].name: dequantized(s) for s in find_sites(graph).sites}
    spread = [np.repeat(a.astype(np.float64), 16, axis=1) for a in (flat, inner)]
    np.testing.assert_array_equal(by_name["fp8"], (q8.astype(np.float64) * spread[0]).T)
    np.testing.assert_array_equal(by_name["fp4"], (q4.astype(np.float64) * (spread[1] * np.float64(outer))).T)
    np.testing.assert_array_equal(by_name["gemm"], q8.astype(np.float64) * 0.5)
    assert ELEMENT_TYPES["float4e2m1"].bits == 4


def test_embedding_and_head_share_one_blob() -> None:
    """A model builder's tied table: GatherBlockQuantized reads the head's packed weight through a Reshape."""
    rng = np.random.default_rng(6)
    q, scale = rng.integers(0, 16, (5, 2, 16)), scales(rng, (5, 2))
    tensors = [
        tensor("w", np.stack([_packed_rows(row, 4) for row in q])),
        tensor("s", scale.reshape(-1)),
        tensor("table_shape", np.array([5, 16], np.int64)),
        tensor("scale_shape", np.array([5, 2], np.int64)),
    ]
    nodes = [
        node("Reshape", ["w", "table_shape"], ["table"], "r1"),
        node("Reshape", ["s", "scale_shape"], ["table_scales"], "r2"),
        node(
            "GatherBlockQuantized",
            ["table", "ids", "table_scales"],
            ["h"],
            "embed",
            "com.microsoft",
            block_size=16,
            bits=4,
        ),
        node("MatMulNBits", ["h", "w", "s"], ["y"], "head", "com.microsoft", K=32, N=5, bits=4, block_size=16),
    ]
    graph = graph_of(model(nodes, tensors, [value("ids", "int64", [2])], [value("y")]))
    sites = find_sites(graph)
    embed, head = sites.sites
    assert embed.value == head.value and (embed.problem, head.problem) == (None, None)
    np.testing.assert_array_equal(dequantized(embed), dequantized(head).T)
