"""Loops in explicit vector code, where the compiler's own vectorizer gives up or changes its mind.

`block_tile`: a block of 32 elements needs two horizontal sums, which cost more than all other work on it. 16 blocks are
kept as 16 vectors and summed by a tree of 15 pairwise shuffles instead of 16 times four steps each.

`row_tile`: one scale for a whole tile. `count_bytes`, `count_shorts`: counting into a table.
"""

from __future__ import annotations

from typing import Any

from visualquant.kernels._jit import JIT, cgutils, ir
from visualquant.kernels._jit import numba_intrinsic as intrinsic
from visualquant.kernels._jit import numba_types as types
from visualquant.kernels._vectors import BYTES, INT, INTS, LANES, LONG, VECTOR, Emitter, Sums

PIECE = 32  # elements of one straight run: two vectors
GROUP = 16  # pieces of one call of the tree
# Where the figures of a tile stand in `totals`.
X_SUM, E_SUM, E_ABS, CROSS, X_MIN, X_MAX, Y_MIN, Y_MAX, X_ZEROS, Y_ZEROS, D_MIN, D_MAX = range(12)
X_SQ, E_SQ, SCALED, E_MAX, EXCESS, D_SQ = range(12, 18)
TOTALS = 18
_ADD, _LOW, _HIGH, _COUNT = "add", "min", "max", "count"
_SHARED = {
    X_SUM: _ADD, E_SUM: _ADD, E_ABS: _ADD, X_SQ: _ADD, E_SQ: _ADD, X_MIN: _LOW, X_MAX: _HIGH, E_MAX: _HIGH,
    X_ZEROS: _COUNT, Y_ZEROS: _COUNT, D_MIN: "code_min", D_MAX: "code_max",
}  # fmt: skip
_OF_BLOCKS = _SHARED | {CROSS: _ADD, Y_MIN: _LOW, Y_MAX: _HIGH, SCALED: _ADD, EXCESS: _HIGH}
_OF_ROWS = _SHARED | {D_SQ: _ADD}


def _views(context: Any, builder: Any, signature: Any, args: Any) -> list[Any]:
    return [
        context.make_array(kind)(context, builder, value) if isinstance(kind, types.Array) else value
        for kind, value in zip(signature.args, args, strict=True)
    ]


def _half(e: Emitter, sums: Sums, x: Any, d: Any, s: Any, z: Any) -> tuple[Any, Any, Any, Any, Any]:
    """16 elements: updates what rows and blocks share; returns x, code − zero point, e, |e| and the codes."""
    b = e.b
    v = e.load(x, VECTOR, 4)
    if sums.from_bytes:
        code = e.load(d, BYTES, 1)
        value = b.sitofp(b.sext(code, INTS), VECTOR)
    else:
        code = value = e.load(d, VECTOR, 4)
    sums.update(D_MIN, code)
    sums.update(D_MAX, code)
    back = e.subtract(value, z)
    error = e.fma(b.fneg(back), s, v)
    size = e.magnitude(error)
    sums.update(X_SUM, v)
    sums.update(E_SUM, error)
    sums.update(E_ABS, size)
    sums.update(X_MIN, v)
    sums.update(X_MAX, v)
    sums.update(X_ZEROS, e.zeros(v))
    return v, back, error, size, code


def _emit_blocks(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    e, b = Emitter(builder), builder
    x, first, d, first_code, s, z, limits, groups, out, first_out, totals = _views(context, builder, signature, args)
    x_data, d_data = b.gep(x.data, [first]), b.gep(d.data, [first_code])
    sums = Sums(e, _OF_BLOCKS, signature.args[2].dtype == types.int8)
    rows = [cgutils.alloca_once(b, VECTOR, size=GROUP) for _ in range(2)]
    out_row = b.sdiv(b.extract_value(out.strides, 0), LONG(4))
    with cgutils.for_range(b, groups) as outer:
        base = b.mul(outer.index, LONG(GROUP))
        with cgutils.for_range(b, LONG(GROUP)) as inner:
            piece = b.add(base, inner.index)
            start = b.mul(piece, LONG(PIECE))
            scale = e.splat(b.load(b.gep(s.data, [piece])))
            zero = e.splat(b.load(b.gep(z.data, [piece])))
            halves = []
            for half in (0, LANES):
                at = b.add(start, LONG(half))
                v, back, error, size, _ = _half(e, sums, b.gep(x_data, [at]), b.gep(d_data, [at]), scale, zero)
                y = b.fmul(back, scale)
                sums.multiply_add(CROSS, v, error)
                sums.update(Y_MIN, y)
                sums.update(Y_MAX, y)
                sums.update(Y_ZEROS, e.zeros(y))
                halves.append((v, error, size))
            (v0, e0, m0), (v1, e1, m1) = halves
            worst = e.larger(m0, m1)
            sums.update(E_MAX, worst)
            sums.update(EXCESS, b.fsub(worst, e.splat(b.load(b.gep(limits.data, [piece])))))
            squares = e.fma(v1, v1, b.fmul(v0, v0)), e.fma(e1, e1, b.fmul(e0, e0))
            for row, value in zip(rows, squares, strict=True):
                b.store(value, b.gep(row, [inner.index]))
        results = []
        for k, row in enumerate(rows):
            results.append(e.tree(e.add, [b.load(b.gep(row, [LONG(i)])) for i in range(GROUP)]))
            place = b.add(b.add(b.mul(out_row, LONG(k)), first_out), base)
            e.store(results[k], b.gep(out.data, [place]))
        scales = e.load(b.gep(s.data, [base]), VECTOR, 4)
        sums.update(X_SQ, results[0])
        sums.update(E_SQ, results[1])
        sums.update(SCALED, b.fdiv(results[1], b.fmul(scales, scales)))
    sums.write(totals.data)
    return context.get_dummy_value()


def _typed_blocks(
    typing: Any,
    x: Any,
    first: Any,
    d: Any,
    first_code: Any,
    s: Any,
    z: Any,
    limits: Any,
    groups: Any,
    out: Any,
    first_out: Any,
    totals: Any,
) -> Any:
    del typing
    return types.void(x, first, d, first_code, s, z, limits, groups, out, first_out, totals), _emit_blocks


def _emit_rows(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    e, b = Emitter(builder), builder
    x, d, first_code, s, z, z_code, pieces, totals = _views(context, builder, signature, args)
    d_data = b.gep(d.data, [first_code])
    from_bytes = signature.args[1].dtype == types.int8
    even, odd = Sums(e, _OF_ROWS, from_bytes), Sums(e, _OF_ROWS, from_bytes)
    scale, zero = e.splat(s), e.splat(z)
    code_of_zero = e.splat_bytes(z_code)
    with cgutils.for_range(b, pieces) as loop:
        for half, sums in ((0, even), (LANES, odd)):
            at = b.add(b.mul(loop.index, LONG(PIECE)), LONG(half))
            # NOTE: two sets of sums, so that each lane adds half as many terms
            v, back, error, size, code = _half(e, sums, b.gep(x.data, [at]), b.gep(d_data, [at]), scale, zero)
            sums.multiply_add(X_SQ, v, v)
            sums.multiply_add(E_SQ, error, error)
            sums.multiply_add(D_SQ, back, back)
            sums.update(E_MAX, size)
            equal = b.icmp_signed("==", code, code_of_zero) if from_bytes else None
            sums.update(Y_ZEROS, e.zeros(back) if equal is None else e.count(equal))
    even.absorb(odd)
    even.write(totals.data)
    return context.get_dummy_value()


def _typed_rows(
    typing: Any, x: Any, d: Any, first_code: Any, s: Any, z: Any, z_code: Any, pieces: Any, totals: Any
) -> Any:
    del typing
    return types.void(x, d, first_code, s, z, z_code, pieces, totals), _emit_rows


def _emit_counts(bits: int) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        b = builder
        places, first, words, table = _views(context, builder, signature, args)
        source = b.bitcast(b.gep(places.data, [first]), ir.PointerType(LONG))
        mask = LONG((1 << bits) - 1)
        with cgutils.for_range(b, words) as loop:
            word = b.load(b.gep(source, [loop.index]), align=1)
            for shift in range(0, 64, bits):
                slot = b.gep(table.data, [b.and_(b.lshr(word, LONG(shift)), mask)])
                b.store(b.add(b.load(slot), INT(1)), slot)
        return context.get_dummy_value()

    return emit


def _typed_bytes(typing: Any, places: Any, first: Any, words: Any, table: Any) -> Any:
    del typing
    return types.void(places, first, words, table), _emit_counts(8)


def _typed_shorts(typing: Any, places: Any, first: Any, words: Any, table: Any) -> Any:
    del typing
    return types.void(places, first, words, table), _emit_counts(16)


def _emit_transpose(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    b = builder
    source, first, distance, out, row, column = _views(context, builder, signature, args)
    element = context.get_data_type(signature.args[0].dtype)
    vector = ir.VectorType(element, LANES)
    size = LONG(signature.args[0].dtype.bitwidth // 8)
    lanes = []
    for k in range(LANES):
        at = b.gep(source.data, [b.add(first, b.mul(distance, LONG(k)))])
        lanes.append(b.load(b.bitcast(at, ir.PointerType(vector)), align=1))
    half = LANES // 2
    pairs = [[v for k in range(half) for v in (k + off, LANES + k + off)] for off in (0, half)]
    low, high = (ir.Constant(INTS, pattern) for pattern in pairs)
    # NOTE: interleaving vector k with vector k + 8 four times over turns rows into columns
    for _ in range(4):
        lanes = [b.shuffle_vector(lanes[k], lanes[k + half], order) for k in range(half) for order in (low, high)]
    stride = b.sdiv(b.extract_value(out.strides, 0), size)
    for k, lane in enumerate(lanes):
        place = b.add(b.mul(stride, b.add(row, LONG(k))), column)
        b.store(lane, b.bitcast(b.gep(out.data, [place]), ir.PointerType(vector)), align=1)
    return context.get_dummy_value()


def _typed_transpose(typing: Any, source: Any, first: Any, distance: Any, out: Any, row: Any, column: Any) -> Any:
    del typing
    return types.void(source, first, distance, out, row, column), _emit_transpose


def _no_tile(*args: Any) -> None:
    del args
    raise AssertionError("without compilation there are no vector tiles: see HAS_TILES")


# block_tile(x, first, d, first_code, s, z, limits, groups, out, first_out, totals): sums of 16·groups pieces of 32
# elements of x from x[first] against d from d[first_code], each piece with its scale s, zero point z and limit of
# |e| (float32 [pieces]). out[0..1, first_out + piece] = Σx², Σe² (float32 [2, n], rows contiguous); totals = figures
# of the whole tile by the names above, float32; EXCESS is the largest |e| − limit.
block_tile: Any = intrinsic(_typed_blocks) if JIT else _no_tile
# row_tile(x, d, first_code, s, z, z_code, pieces, totals): the figures of 32·pieces elements under one scale; zeros of
# x̂ are codes equal to z_code (int8) where codes are bytes.
row_tile: Any = intrinsic(_typed_rows) if JIT else _no_tile
# count_bytes(bytes, first, words, table), count_shorts(shorts, first, words, table): table[place] += 1 for 8·words
# bytes (4·words uint16) from place `first` on; table is uint32. One store each: a core stores once a cycle.
count_bytes: Any = intrinsic(_typed_bytes) if JIT else _no_tile
count_shorts: Any = intrinsic(_typed_shorts) if JIT else _no_tile
# transpose_16(source, first, distance, out, row, column): out[row + i, column + k] = source[first + k·distance + i]
# for i and k below 16.
transpose_16: Any = intrinsic(_typed_transpose) if JIT else _no_tile
HAS_TILES = JIT
