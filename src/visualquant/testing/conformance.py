"""Conformance classes: what every scheme reader has to pass. Subclass one in the tests of a reader.

    class TestMyScheme(SchemeConformance):
        scheme = "my_scheme"

        def samples(self):
            return st.builds(my_sample, ...)

        def malformed(self):
            yield "scale missing", my_model_without_scale()

Needs `hypothesis` (and `onnxruntime` for oracles), which the package itself does not.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

from visualquant.core.graph import GraphView
from visualquant.core.quant import QuantSite
from visualquant.errors import VisualQuantError
from visualquant.formats.container import open_model, probe_file
from visualquant.formats.scheme import Sites, find_sites
from visualquant.testing.models import graph_of

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """One small model with one quantized tensor, and what a reader must make of it.

    Attributes:
        model: the model.
        value: name of the stored tensor.
        reader, slot: name of the compute node that uses it, and its input slot.
        operand: x̂ as that node reads it, float64, by the specification's own formula.
        code_type, granularity, axis, block_size: of the stored codes; axis and block size as the reader reports them.
        role: weight or bias.
        scheme: where a sample belongs to another scheme than the class says.
        feeds: inputs for an oracle, whose first output then is the operand (see `run_oracle`).
    """

    model: onnx.ModelProto
    value: str
    reader: str
    slot: int
    operand: Array
    code_type: str
    granularity: str | None = None
    axis: int | None = None
    block_size: int | None = None
    role: str = "weight"
    scheme: str | None = None
    feeds: Mapping[str, Array] | None = None


def dequantized(site: QuantSite) -> Array:
    """x̂ of a site as its reader reads it, float64, put back into the order and size of the float weight."""
    if site.params is None or site.codes is None:
        raise ValueError(f"the site has no codes or parameters: {site.problem}")
    value = site.params.dequantize(site.codes.array())
    if site.permutation is not None and site.params.axis is not None:
        back = np.empty_like(value)
        at: list[Any] = [slice(None)] * value.ndim
        at[site.params.axis] = site.permutation
        back[tuple(at)] = value
        value = back
    for step in site.view:
        value = step.apply(value)
    return value if site.pre_scale is None else value / site.pre_scale


class SchemeConformance:
    """The suite for one scheme reader.

    Attributes:
        scheme: name in the sites.
        examples: models that hypothesis builds for each test.
        oracle: who computes the operand for `test_oracle_agrees`; "" where nobody does.
        oracle_tolerance: relative, since oracles compute in float32.
    """

    scheme: ClassVar[str] = ""
    examples: ClassVar[int] = 40
    oracle: ClassVar[str] = ""
    oracle_tolerance: ClassVar[float] = 2e-6

    def samples(self) -> SearchStrategy[Sample]:
        """A strategy of models over all parameters of the scheme."""
        raise NotImplementedError

    def malformed(self) -> Iterator[tuple[str, onnx.ModelProto]]:
        """(what is wrong, model): each must give a `VisualQuantError`, or a site with a problem."""
        return iter(())

    def run_oracle(self, sample: Sample) -> Array:
        """The operand as an independent program computes it."""
        raise NotImplementedError

    def site_of(self, sample: Sample) -> tuple[QuantSite, Sites, GraphView]:
        """The one site of the sample's tensor and reader."""
        graph = graph_of(sample.model)
        sites = find_sites(graph)
        found = [
            s
            for s in sites.sites
            if graph.values[s.value].name == sample.value
            and s.reader is not None
            and graph.nodes[s.reader].name == sample.reader
            and s.role != "activation"
        ]
        assert len(found) == 1, f"{len(found)} sites for {sample.value}"
        return found[0], sites, graph

    def test_values_equal_the_formula(self) -> None:
        """Dequantized values equal the specification's formula exactly, in float64."""

        def check(sample: Sample) -> None:
            site, _, _ = self.site_of(sample)
            assert site.problem is None
            got = dequantized(site)
            assert got.shape == sample.operand.shape
            np.testing.assert_array_equal(got, sample.operand)

        self._for_all(check)

    def test_site_is_described(self) -> None:
        """Scheme, slot, role, type, granularity, axis, block size; nothing unclaimed, unknown or claimed twice."""

        def check(sample: Sample) -> None:
            site, sites, graph = self.site_of(sample)
            assert site.params is not None and site.codes is not None
            site.params.validate(site.codes.shape)
            assert site.scheme == (sample.scheme or self.scheme)
            assert (site.slot, site.role) == (sample.slot, sample.role)
            assert site.params.code_type.name == sample.code_type
            if sample.granularity is not None:
                assert site.params.granularity == sample.granularity
                assert (site.params.axis, site.params.block_size) == (sample.axis, sample.block_size)
            assert [graph.values[v].name for v in sites.unclaimed] == []
            assert sites.conflicts == () and sites.unknown_operators == ()

        self._for_all(check)

    def test_codes_stay_in_their_range(self) -> None:
        """Codes lie between qmin and qmax; chunks are the whole."""

        def check(sample: Sample) -> None:
            site, _, _ = self.site_of(sample)
            assert site.params is not None and site.codes is not None
            codes = site.codes.array()
            if site.params.qmin is not None and site.params.qmax is not None and codes.size:
                whole = codes.astype(np.int64)
                assert whole.min() >= site.params.qmin and whole.max() <= site.params.qmax
            pieces = [c for _, c in site.codes.chunks(16)]
            np.testing.assert_array_equal(np.concatenate(pieces) if pieces else codes.reshape(-1), codes.reshape(-1))

        self._for_all(check)

    def test_oracle_agrees(self) -> None:
        """An independent program computes the same operand."""
        if not self.oracle:
            return

        def check(sample: Sample) -> None:
            if sample.feeds is None:
                return
            want = self.run_oracle(sample)
            got = dequantized(self.site_of(sample)[0])
            scale = float(np.abs(want[np.isfinite(want)]).max(initial=0.0)) or 1.0
            np.testing.assert_allclose(got, want.reshape(got.shape), rtol=0, atol=self.oracle_tolerance * scale)

        self._for_all(check)

    def test_malformed_is_said(self) -> None:
        """A clear error, or a site with a problem; never an exception of another kind."""
        for what, proto in self.malformed():
            try:
                sites = find_sites(graph_of(proto))
            except VisualQuantError as error:
                assert len(str(error)) > 20, what
                continue
            problems = [s.problem for s in sites.sites if s.problem is not None]
            assert problems, f"{what}: no problem is named"
            assert all(len(p) > 20 for p in problems), what

    def test_damaged_tensors_never_raise(self) -> None:
        """Each stored tensor of a sample lost, cut, lengthened or emptied: a result or a `VisualQuantError`."""

        def check(sample: Sample) -> None:
            for proto in damaged(sample.model):
                try:
                    sites = find_sites(graph_of(proto))
                    for site in sites.sites:
                        if site.params is not None and site.codes is not None and site.codes.size:
                            site.params.validate(site.codes.shape)
                            dequantized(site)
                except VisualQuantError:
                    pass

        self._for_all(check, self.examples // 4)

    def _for_all(self, check: Any, examples: int | None = None) -> None:
        quick = settings(
            max_examples=max(examples or self.examples, 5),
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        quick(given(self.samples())(check))()


def damaged(proto: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Variants of a model with one initializer gone, cut to half its bytes, one element longer, or empty."""
    for index, original in enumerate(proto.graph.initializer):
        gone = copy.deepcopy(proto)
        del gone.graph.initializer[index]
        yield gone
        cut = copy.deepcopy(proto)
        cut.graph.initializer[index].raw_data = original.raw_data[: len(original.raw_data) // 2]
        yield cut
        for extra in (1, -1):
            other = copy.deepcopy(proto)
            changed = other.graph.initializer[index]
            sizes = list(original.dims) or [1]
            sizes[-1] = max(sizes[-1] + extra, 0)
            del changed.dims[:]
            changed.dims.extend(sizes)
            changed.raw_data = (original.raw_data * 3)[: len(original.raw_data) * 2 + 16]
            yield other


class ContainerConformance:
    """The suite for one container reader.

    Attributes:
        reader: the reader's module.
        examples: damaged variants of each file.
    """

    reader: ClassVar[Any] = None
    examples: ClassVar[int] = 60

    def files(self, folder: Path) -> Iterator[Path]:
        """Sound files of this kind, written into a folder."""
        raise NotImplementedError

    def test_claims_its_own_and_no_other(self, tmp_path: Path) -> None:
        """Content decides, not the suffix."""
        for path in self.files(tmp_path):
            probe = probe_file(path)
            assert self.reader.probe(probe) is not None
            renamed = dataclasses.replace(probe, path=path.with_suffix(".dat"))
            assert self.reader.probe(renamed) is not None
        others = {
            "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            "zip": b"PK\x03\x04" + bytes(100),
            "page": b"<!DOCTYPE html><html></html>",
            "text": b"hello there\n" * 9,
        }
        for name, data in others.items():
            (tmp_path / name).write_bytes(data)
            assert self.reader.probe(probe_file(tmp_path / name)) is None, name

    def test_graph_is_consistent(self, tmp_path: Path) -> None:
        """Ids are indices, producers and consumers agree, keys are unique, order is topological."""
        for path in self.files(tmp_path):
            graph = self.reader.read(path)
            assert [n.id for n in graph.nodes] == list(range(len(graph.nodes)))
            assert [v.id for v in graph.values] == list(range(len(graph.values)))
            assert len(graph.by_key) == len(graph.values)
            for node in graph.nodes:
                for value in node.outputs:
                    assert value is None or graph.values[value].producer == node.id
                assert all(v is None or 0 <= v < len(graph.values) for v in node.inputs)
            assert sorted(graph.topological) == list(range(len(graph.nodes)))
            for value_view in graph.values:
                if value_view.const is not None and value_view.const.dtype.kind != "string":
                    assert value_view.const.array().shape == value_view.const.shape

    def test_damaged_files_never_raise(self, tmp_path: Path) -> None:
        """Cut short, with bytes changed or swapped: a graph, or a `VisualQuantError`."""
        rng = np.random.default_rng(0)
        for path in list(self.files(tmp_path)):
            data = path.read_bytes()
            for k in range(self.examples):
                changed = bytearray(data[: rng.integers(1, len(data))] if k % 3 == 0 else data)
                for at in rng.integers(0, len(changed), rng.integers(1, 8)):
                    changed[at] = rng.integers(0, 256)
                path.write_bytes(bytes(changed))
                try:
                    find_sites(open_model(path))
                except VisualQuantError as error:
                    assert len(str(error)) > 20
            path.write_bytes(data)
