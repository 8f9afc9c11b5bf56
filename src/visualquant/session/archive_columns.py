"""Rows to columns and back, for the archive: text columns are NUL-joined, numbers are .npy, the rest is JSON."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from visualquant.core.report import GroupRow, NodeRow, ValueRow, WeightDetail

Members = Mapping[str, bytes]
_ESCAPED = re.compile(r"\\(.)")


def text_column(texts: Sequence[str]) -> bytes:
    """Texts joined by NUL; a NUL or backslash inside a text is escaped. Empty for no text at all."""
    if not texts:
        return b""
    return (
        "\0".join(t.replace("\\", "\\\\").replace("\0", "\\0") for t in texts).encode("utf-8", "surrogatepass") + b"\0"
    )


def read_text_column(data: bytes) -> list[str]:
    """The inverse of `text_column`."""
    if not data:
        return []
    texts = data[:-1].decode("utf-8", "surrogatepass").split("\0")
    return [_ESCAPED.sub(lambda found: "\0" if found[1] == "0" else found[1], t) if "\\" in t else t for t in texts]


def read_json(data: bytes) -> Any:
    """Parsed JSON, by the fast parser; by the standard one where NaN stands among attributes (ValueError if broken)."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json.loads(data)


def npy(array: npt.NDArray[Any]) -> bytes:
    """The bytes of a .npy file."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def read_npy(data: bytes) -> npt.NDArray[Any]:
    """The array of a .npy file; object arrays are refused (ValueError)."""
    array: npt.NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    return array


def pack_nodes(nodes: Sequence[NodeRow], values: Mapping[str, ValueRow], at: str) -> Iterable[tuple[str, bytes]]:
    """Columns of the nodes of one side; inputs and outputs are [2, E] of (node, value) indices, −1 where left out."""
    index = {name: k for k, name in enumerate(values)}
    yield f"{at}/ids.txt", text_column([n.id for n in nodes])
    yield f"{at}/names.txt", text_column([n.name for n in nodes])
    yield f"{at}/ops.txt", text_column([n.op_type for n in nodes])
    yield f"{at}/domains.txt", text_column([n.domain for n in nodes])
    yield f"{at}/scopes.txt", text_column([n.scope for n in nodes])
    for field in ("inputs", "outputs"):
        pairs = [(k, index[v] if v else -1) for k, n in enumerate(nodes) for v in getattr(n, field)]
        yield f"{at}/{field}.npy", npy(np.array(pairs, np.int32).reshape(-1, 2).T)
    attributes = {str(k): dict(n.attributes) for k, n in enumerate(nodes) if n.attributes}
    yield f"{at}/attrs.json", json.dumps(attributes, ensure_ascii=False).encode()


def unpack_nodes(members: Members, at: str) -> list[dict[str, Any]]:
    """The node rows of one side, as plain objects."""
    columns = {f: read_text_column(members[f"{at}/{f}.txt"]) for f in ("ids", "names", "ops", "domains", "scopes")}
    values = read_text_column(members[f"{at}/values.txt"])
    attributes = read_json(members[f"{at}/attrs.json"])
    wires: dict[str, list[list[str]]] = {}
    for field in ("inputs", "outputs"):
        found: list[list[str]] = [[] for _ in columns["ids"]]
        places, read = read_npy(members[f"{at}/{field}.npy"]).tolist()
        for node, value in zip(places, read, strict=True):
            found[node].append(values[value] if value >= 0 else "")
        wires[field] = found
    return [
        {
            "id": columns["ids"][k],
            "name": columns["names"][k],
            "op_type": columns["ops"][k],
            "domain": columns["domains"][k],
            "scope": columns["scopes"][k],
            "inputs": wires["inputs"][k],
            "outputs": wires["outputs"][k],
            "attributes": attributes.get(str(k), {}),
        }
        for k in range(len(columns["ids"]))
    ]


def pack_values(values: Mapping[str, ValueRow], at: str) -> Iterable[tuple[str, bytes]]:
    """Columns of the values of one side."""
    yield f"{at}/values.txt", text_column(list(values))
    yield f"{at}/value_roles.txt", text_column([v.role for v in values.values()])
    yield f"{at}/value_dtypes.txt", text_column([v.dtype or "" for v in values.values()])
    shapes = [None if v.shape is None else list(v.shape) for v in values.values()]
    yield f"{at}/value_shapes.json", json.dumps(shapes, ensure_ascii=False).encode()


def unpack_values(members: Members, at: str) -> dict[str, dict[str, Any]]:
    """The value rows of one side, as plain objects."""
    columns = zip(
        read_text_column(members[f"{at}/values.txt"]),
        read_text_column(members[f"{at}/value_roles.txt"]),
        read_text_column(members[f"{at}/value_dtypes.txt"]),
        read_json(members[f"{at}/value_shapes.json"]),
        strict=True,
    )
    return {name: {"role": role, "dtype": dtype or None, "shape": shape} for name, role, dtype, shape in columns}


def pack_groups(groups: Sequence[GroupRow], at: str) -> Iterable[tuple[str, bytes]]:
    """The alignment: node ids by group as text, confidence as numbers, the rest as JSON."""
    yield f"{at}/groups.txt", text_column([g.group for g in groups])
    yield f"{at}/kinds.txt", text_column([g.kind for g in groups])
    yield f"{at}/confidence.npy", npy(np.array([g.confidence for g in groups], np.float64))
    for side in ("float", "quant"):
        members: list[tuple[str, ...]] = [getattr(g, side) for g in groups]
        yield f"{at}/{side}.txt", text_column([node for m in members for node in m])
        yield f"{at}/{side}_counts.npy", npy(np.array([len(m) for m in members], np.int32))
    rest = [{"evidence": list(g.evidence), "reason": g.reason, "model": g.model} for g in groups]
    yield f"{at}/evidence.json", json.dumps(rest, ensure_ascii=False).encode()


def unpack_groups(members: Members, at: str) -> list[dict[str, Any]]:
    """The group rows, as plain objects."""
    names, kinds = read_text_column(members[f"{at}/groups.txt"]), read_text_column(members[f"{at}/kinds.txt"])
    confidence = read_npy(members[f"{at}/confidence.npy"]).tolist()
    rest = read_json(members[f"{at}/evidence.json"])
    sides: dict[str, list[list[str]]] = {}
    for side in ("float", "quant"):
        ids = iter(read_text_column(members[f"{at}/{side}.txt"]))
        counts = read_npy(members[f"{at}/{side}_counts.npy"]).tolist()
        sides[side] = [[next(ids) for _ in range(n)] for n in counts]
    return [
        {"group": names[k], "kind": kinds[k], "confidence": confidence[k]}
        | {"float": sides["float"][k], "quant": sides["quant"][k]}
        | rest[k]
        for k in range(len(names))
    ]


_FIELDS = tuple(f.name for f in dataclasses.fields(WeightDetail))


def pack_details(details: Sequence[WeightDetail], at: str) -> Iterable[tuple[str, bytes]]:
    """Each array field of all weights as one array of values, and offsets [W + 1]; an absent array has length 0."""
    for field in _FIELDS:
        arrays = [getattr(d, field) for d in details]
        dtype = next((a.dtype for a in arrays if a is not None), np.dtype(np.float64))
        parts = [np.empty(0, dtype) if a is None else a for a in arrays]
        yield f"{at}/{field}.npy", npy(np.concatenate(parts) if parts else np.empty(0, dtype))
        yield f"{at}/{field}_offsets.npy", npy(np.cumsum([0] + [p.size for p in parts], dtype=np.int64))


def unpack_details(members: Members, at: str, count: int) -> tuple[WeightDetail, ...]:
    """The details of `count` weight rows."""
    columns: dict[str, list[npt.NDArray[Any] | None]] = {}
    for field in _FIELDS:
        if f"{at}/{field}.npy" not in members:
            columns[field] = [None] * count
            continue
        values, offsets = read_npy(members[f"{at}/{field}.npy"]), read_npy(members[f"{at}/{field}_offsets.npy"])
        if offsets.size != count + 1:
            return ()
        pieces = [values[offsets[k] : offsets[k + 1]] for k in range(count)]
        columns[field] = [p if p.size else None for p in pieces]
    return tuple(WeightDetail(**{f: columns[f][k] for f in _FIELDS}) for k in range(count))
