"""Properties of alignment over random networks and rewrites."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.align.build import Net
from tests.align.rewrites import damaged, f1, random_net, rewrite
from visualquant.align import align
from visualquant.core.alignment import Alignment
from visualquant.core.graph import GraphView

SEEDS = st.integers(0, 2**31)
SIZES = st.integers(3, 30)


def by_result(
    alignment: Alignment, float_graph: GraphView, quant_graph: GraphView, names: dict[str, str]
) -> set[object]:
    """Groups as sets of result names, so that node order and other spellings do not show."""

    def made(graph: GraphView, ids: tuple[int, ...], table: dict[str, str]) -> frozenset[str]:
        outs = [graph.values[graph.nodes[k].outputs[0] or 0].name for k in ids]
        return frozenset(table.get(o, o) for o in outs)

    return {(made(float_graph, g.float_nodes, {}), made(quant_graph, g.quant_nodes, names)) for g in alignment.groups}


def plain_names(net: Net, renamed: GraphView, order: random.Random) -> dict[str, str]:
    """New names to old ones, for a view that `view(order, rename=True)` made."""
    same = net.view(order, rename=False)
    return {renamed.values[v.id].name: v.name for v in same.values}


def names_of(graph: GraphView, table: dict[str, str]) -> dict[int, str]:
    outs = {n.id: graph.values[n.outputs[0] or 0].name for n in graph.nodes}
    return {k: table.get(o, o) for k, o in outs.items()}


@settings(max_examples=40, deadline=None)
@given(SEEDS, SIZES)
def test_groups_are_a_partition_and_kinds_fit(seed: int, size: int) -> None:
    net = random_net(seed, size)
    float_graph, quant_graph = net.view(), rewrite(net, seed + 1).net.view()
    alignment = align(float_graph, quant_graph)
    assert sorted(k for g in alignment.groups for k in g.float_nodes) == list(range(len(float_graph.nodes)))
    assert sorted(k for g in alignment.groups for k in g.quant_nodes) == list(range(len(quant_graph.nodes)))
    for group in alignment.groups:
        assert bool(group.reason) == (group.kind in ("inserted", "removed"))
        assert 0 <= group.confidence <= 1


@settings(max_examples=40, deadline=None)
@given(SEEDS, SIZES)
def test_a_model_against_itself_is_one_to_one(seed: int, size: int) -> None:
    graph = rewrite(random_net(seed, size), seed).net.view()
    for group in align(graph, graph).groups:
        assert len(group.float_nodes) == 1 and group.float_nodes == group.quant_nodes


@settings(max_examples=30, deadline=None)
@given(SEEDS, SIZES, SEEDS)
def test_names_and_order_do_not_matter(seed: int, size: int, shuffle: int) -> None:
    net = random_net(seed, size)
    other = rewrite(net, seed + 1).net
    float_graph, quant_graph = net.view(), other.view(random.Random(shuffle), rename=True)
    names = plain_names(other, quant_graph, random.Random(shuffle))
    second = other.view(random.Random(shuffle + 1), rename=True)
    more_names = plain_names(other, second, random.Random(shuffle + 1))
    first = by_result(align(float_graph, quant_graph), float_graph, quant_graph, names)
    assert first == by_result(align(float_graph, second), float_graph, second, more_names)


@settings(max_examples=30, deadline=None)
@given(SEEDS, SIZES)
def test_the_result_is_deterministic(seed: int, size: int) -> None:
    net = random_net(seed, size)
    quant = rewrite(net, seed + 1).net
    assert align(net.view(), quant.view()).groups == align(net.view(), quant.view()).groups


@settings(max_examples=30, deadline=None)
@given(SEEDS, SIZES)
def test_swapping_the_sides_mirrors_the_groups(seed: int, size: int) -> None:
    net = random_net(seed, size)
    float_graph, quant_graph = net.view(), rewrite(net, seed + 1).net.view()
    there = {(g.float_nodes, g.quant_nodes) for g in align(float_graph, quant_graph).groups}
    back = {(g.quant_nodes, g.float_nodes) for g in align(quant_graph, float_graph).groups}
    assert there == back


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(3, 60), SEEDS)
def test_random_rewrites_are_seen_through(seed: int, size: int, shuffle: int) -> None:
    net = random_net(seed, size)
    other = rewrite(net, seed + 1000)
    float_graph, quant_graph = net.view(), other.net.view(random.Random(shuffle), rename=True)
    names = names_of(quant_graph, plain_names(other.net, quant_graph, random.Random(shuffle)))
    assert f1(align(float_graph, quant_graph), float_graph, quant_graph, names, other.truth) >= 0.99


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(2, 20))
def test_damaged_graphs_still_give_a_partition(seed: int, size: int) -> None:
    net = random_net(seed, size)
    rng = random.Random(seed)
    good, bad = net.view(), damaged(rewrite(net, seed).net.view(), rng)
    for float_graph, quant_graph in ((good, bad), (bad, good), (bad, bad)):
        alignment = align(float_graph, quant_graph)
        assert sorted(k for g in alignment.groups for k in g.float_nodes) == list(range(len(float_graph.nodes)))
        assert sorted(k for g in alignment.groups for k in g.quant_nodes) == list(range(len(quant_graph.nodes)))
