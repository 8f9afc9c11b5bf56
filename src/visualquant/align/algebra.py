"""Recognises formulas in a graph, however an exporter spelled them.

Products, quotients, roots and powers are one thing here: a coefficient and factors with exponents. Sums and
differences are a constant and terms with coefficients. So x/sqrt(v), x·(1/sqrt(v)) and x·v**-0.5 are equal, and
the order and bracketing of a product does not matter.
"""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import cache

from visualquant.align.side import Side
from visualquant.core.graph import NodeId, NodeView, ValueId

_TOLERANCE = 0.01  # constants of half precision differ in the fourth digit


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """A name in a formula: data (x, y, z), a constant tensor (w, b), or a constant scalar (c)."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """An operator and its data arguments."""

    op: str
    args: tuple[Pattern, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
    """coefficient · Π factor**exponent."""

    coefficient: float
    factors: tuple[tuple[Pattern, float], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Sum:
    """constant + Σ coefficient·term; the constant is None where any will do (an epsilon)."""

    constant: float | None
    terms: tuple[tuple[Pattern, float], ...]


Pattern = Variable | Call | Product | Sum


@cache
def parse(formula: str) -> Pattern:
    """The pattern that a formula in Python's syntax describes."""
    return _build(ast.parse(formula, mode="eval").body)


def _build(node: ast.expr) -> Pattern:
    if isinstance(node, ast.Name):
        return Variable(node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return Call(node.func.id, tuple(_build(a) for a in node.args))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.Pow):
        coefficient, factors = _product(node)
        return Product(coefficient, tuple(factors))
    if isinstance(node, ast.BinOp):
        constant, terms = _sum(node)
        return Sum(constant, tuple(terms))
    raise ValueError(f"no formula: {ast.dump(node)}")


def _number(node: ast.expr) -> float | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    return None


def _product(node: ast.expr) -> tuple[float, list[tuple[Pattern, float]]]:
    if (number := _number(node)) is not None:
        return number, []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        ca, fa = _product(node.left)
        cb, fb = _product(node.right)
        if isinstance(node.op, ast.Div):
            cb, fb = 1 / cb, [(p, -e) for p, e in fb]
        return ca * cb, fa + fb
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        exponent = _number(node.right)
        assert exponent is not None
        coefficient, factors = _product(node.left)
        return coefficient**exponent, [(p, e * exponent) for p, e in factors]
    return 1.0, [(_build(node), 1.0)]


def _sum(node: ast.expr) -> tuple[float | None, list[tuple[Pattern, float]]]:
    if (number := _number(node)) is not None:
        return number, []
    if isinstance(node, ast.Name) and node.id == "c":
        return None, []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        ca, ta = _sum(node.left)
        cb, tb = _sum(node.right)
        sign = 1.0 if isinstance(node.op, ast.Add) else -1.0
        constant = None if ca is None or cb is None else ca + sign * cb
        return constant, ta + [(p, sign * c) for p, c in tb]
    return 0.0, [(_build(node), 1.0)]


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """One place where a formula stands.

    Attributes:
        bound: value of each variable.
        nodes: compute nodes that make it up.
        constants: (node, slot) of each constant operand met.
    """

    bound: dict[str, ValueId]
    nodes: frozenset[NodeId]
    constants: frozenset[tuple[NodeId, int]]


_EMPTY = Found({}, frozenset(), frozenset())


class Recognizer:
    """Finds formulas in one graph."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self._uses: dict[ValueId, int] = {}
        self._products: dict[ValueId, _Flat] = {}
        self._sums: dict[ValueId, _Flat] = {}
        for args in (side.args[k] for k in side.compute):
            for arg in args:
                root = arg.root
                self._uses[root] = self._uses.get(root, 0) + 1
        for out in side.graph.outputs:
            root = side.root(out)
            self._uses[root] = self._uses.get(root, 0) + 1

    def find(self, formula: str, value: ValueId) -> Found | None:
        """The first way in which a formula makes a value, None where it does not."""
        return next(self._match(parse(formula), value, _EMPTY), None)

    def uses(self, value: ValueId) -> int:
        """How often compute nodes and graph outputs read a value, plumbing looked through."""
        return self._uses.get(value, 0)

    # -- matching

    def _match(self, pattern: Pattern, value: ValueId, so_far: Found) -> Iterator[Found]:
        value = self.side.root(value)
        if isinstance(pattern, Variable):
            yield from self._variable(pattern.name, value, so_far)
        elif isinstance(pattern, Call):
            yield from self._call(pattern, value, so_far)
        elif isinstance(pattern, Product):
            yield from self._many(self._factors, pattern.factors, pattern.coefficient, value, so_far)
        else:
            yield from self._many(self._terms, pattern.terms, pattern.constant, value, so_far)

    def _variable(self, name: str, value: ValueId, so_far: Found) -> Iterator[Found]:
        live = bool(self.side.live[value])
        if live != (name in ("x", "y", "z")):
            return
        if name in so_far.bound:
            if so_far.bound[name] == value:
                yield so_far
            return
        yield dataclasses.replace(so_far, bound={**so_far.bound, name: value})

    def _call(self, pattern: Call, value: ValueId, so_far: Found) -> Iterator[Found]:
        made = self.side.producer(value)
        if made is None or self.side.kinds[made] != "compute" or self.side.families[made] != pattern.op:
            return
        args = self.side.args[made]
        if len(args) != len(pattern.args):
            return
        states = [dataclasses.replace(so_far, nodes=so_far.nodes | {made})]
        for inner, arg in zip(pattern.args, args, strict=True):
            states = [after for state in states for after in self._match(inner, arg.value, state)]
        yield from states

    def _many(
        self,
        flatten: Callable[[ValueId], _Flat],
        wanted: tuple[tuple[Pattern, float], ...],
        constant: float | None,
        value: ValueId,
        so_far: Found,
    ) -> Iterator[Found]:
        flat = flatten(value)
        if not flat.nodes:
            return
        if constant is not None and not math.isclose(constant, flat.constant, rel_tol=_TOLERANCE, abs_tol=1e-9):
            return
        parts = [(v, n) for v, n in flat.parts.items() if n]
        if len(parts) != len(wanted):
            return
        start = dataclasses.replace(
            so_far, nodes=so_far.nodes | flat.nodes, constants=so_far.constants | flat.constants
        )
        yield from self._assign(wanted, parts, start)

    def _assign(
        self, wanted: tuple[tuple[Pattern, float], ...], parts: list[tuple[ValueId, float]], so_far: Found
    ) -> Iterator[Found]:
        if not wanted:
            yield so_far
            return
        pattern, number = wanted[0]
        for k, (value, have) in enumerate(parts):
            if math.isclose(number, have, rel_tol=_TOLERANCE):
                for after in self._match(pattern, value, so_far):
                    yield from self._assign(wanted[1:], parts[:k] + parts[k + 1 :], after)

    # -- flattening

    def _operands(self, node: NodeView) -> tuple[int, ...]:
        """Slots of what a node computes with: of integer operators without their scales and zero points."""
        if node.op_type.startswith("QLinear"):
            return (0,) if len(node.inputs) < 6 else (0, 3)
        return tuple(k for k, v in enumerate(node.inputs) if v is not None)

    def _scalar(self, node: NodeView, slot: int) -> float | None:
        value = node.input(slot)
        if value is None or self.side.live[value]:
            return None
        return self.side.operands.scalar(node, slot)

    def _inside(self, value: ValueId, top: bool) -> NodeId | None:
        """The compute node that makes a value, where the formula may go on into it."""
        made = self.side.producer(value)
        if made is None or self.side.kinds[made] != "compute" or not self.side.live[value]:
            return None
        return made if top or self.uses(value) == 1 else None

    def _factors(self, value: ValueId) -> _Flat:
        if value not in self._products:
            flat = self._products[value] = _Flat(1.0)
            self._multiply(value, 1.0, flat, top=True)
        return self._products[value]

    def _multiply(self, value: ValueId, exponent: float, flat: _Flat, top: bool = False) -> None:
        value = self.side.root(value)
        made = self._inside(value, top)
        node = None if made is None else self.side.graph.nodes[made]
        op = "" if made is None else self.side.families[made]
        slots = () if node is None else self._operands(node)
        if node is not None and op == "Mul" and len(slots) == 2:
            exponents = [exponent, exponent]
        elif node is not None and op == "Div" and len(slots) == 2:
            exponents = [exponent, -exponent]
        elif node is not None and op in ("Sqrt", "Reciprocal", "Neg") and len(slots) == 1:
            exponents = [exponent * {"Sqrt": 0.5, "Reciprocal": -1.0, "Neg": 1.0}[op]]
            flat.constant *= -1.0 if op == "Neg" else 1.0
        elif (
            node is not None and op == "Pow" and len(slots) == 2 and (power := self._scalar(node, slots[1])) is not None
        ):
            exponents = [exponent * power]
        else:
            flat.parts[value] = flat.parts.get(value, 0.0) + exponent
            return
        flat.nodes |= {node.id}
        for slot, power in zip(slots, exponents, strict=False):
            part = node.inputs[slot]
            assert part is not None
            scalar = self._scalar(node, slot)
            if scalar is not None:
                flat.constant *= scalar**power if scalar > 0 or power == 1 else math.nan
                continue
            if not self.side.live[part]:
                flat.constants |= {(node.id, slot)}
            self._multiply(part, power, flat)

    def _terms(self, value: ValueId) -> _Flat:
        if value not in self._sums:
            flat = self._sums[value] = _Flat(0.0)
            self._add(value, 1.0, flat, top=True)
        return self._sums[value]

    def _add(self, value: ValueId, sign: float, flat: _Flat, top: bool = False) -> None:
        value = self.side.root(value)
        made = self._inside(value, top)
        node = None if made is None else self.side.graph.nodes[made]
        op = "" if made is None else self.side.families[made]
        slots = () if node is None else self._operands(node)
        if node is not None and op == "Add" and len(slots) == 2:
            signs = [sign, sign]
        elif node is not None and op == "Sub" and len(slots) == 2:
            signs = [sign, -sign]
        elif node is not None and op == "Neg" and not top:
            signs = [-sign]
        else:
            flat.parts[value] = flat.parts.get(value, 0.0) + sign
            return
        flat.nodes |= {node.id}
        for slot, sign in zip(slots, signs, strict=False):
            part = node.inputs[slot]
            assert part is not None
            scalar = self._scalar(node, slot)
            if scalar is not None:
                flat.constant += sign * scalar
                continue
            if not self.side.live[part]:
                flat.constants |= {(node.id, slot)}
            self._add(part, sign, flat)


@dataclasses.dataclass(slots=True)
class _Flat:
    """A product or a sum taken apart: its constant, its parts with their exponents or coefficients, its nodes."""

    constant: float
    parts: dict[ValueId, float] = dataclasses.field(default_factory=dict)
    nodes: frozenset[NodeId] = frozenset()
    constants: frozenset[tuple[NodeId, int]] = frozenset()
