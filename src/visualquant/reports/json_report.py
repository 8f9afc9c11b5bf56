"""The report as JSON, and back; and the JSON Schema that both follow."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from visualquant.core.report import SCHEMA_VERSION, GroupRow, Inspection, NodeRow, Report, ValueRow
from visualquant.errors import InputError

Row = TypeVar("Row")
SCHEMA_PATH = Path(__file__).with_name("report.schema.json")
# Keys below which the texts "inf", "-inf" and "nan" stand for numbers.
_NUMERIC = frozenset(
    {"metrics", "quantiles", "numbers", "range", "what_if", "worst_channels", "measured_gain", "changed_value"}
    | {"sqnr_db_median", "sqnr_db_worst", "output_sqnr_db", "cumulative", "isolated", "range_float", "range_quant"}
    | {"range_calibration"}
    | {"float_margin", "quant_margin", "by_class", "by_group"}
)
# The bulk of a large report, without such texts. Converted in parts: one call would stop every other thread.
_BULK = ("nodes", "values", "alignment")
_PART = 2000
_NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def to_plain(report: Report) -> dict[str, Any]:
    """The report as dictionaries, lists, texts and numbers: what JSON holds.

    What was not measured is left out; non-finite numbers are "inf", "-inf" and "nan".
    """
    plain: dict[str, Any] = _clean(msgspec.to_builtins(_without_details(report)))
    return plain


def from_plain(plain: Mapping[str, Any]) -> Report:
    """The report of a parsed JSON object; unknown keys are ignored.

    Raises:
        InputError: a newer schema version, or an object of another shape.
    """
    version = plain.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise InputError(
            f"The report has schema version {version!r}; this visualquant reads up to {SCHEMA_VERSION}. Update it."
        )
    try:
        revived = {k: _revive(v, k in _NUMERIC) for k, v in plain.items() if k not in ("details", *_BULK)}
        small = msgspec.convert(revived | {"nodes": {}, "values": {}, "alignment": ()}, Report)
        return dataclasses.replace(
            small,
            nodes={side: _rows(rows, NodeRow) for side, rows in plain["nodes"].items()},
            values={
                side: dict(zip(rows, _rows(list(rows.values()), ValueRow), strict=True))
                for side, rows in plain["values"].items()
            },
            alignment=_rows(plain["alignment"], GroupRow),
        )
    except (KeyError, AttributeError, TypeError) as error:
        raise InputError(f"The report is damaged: {error!r}.") from error
    except msgspec.ValidationError as error:
        raise InputError(f"The report is damaged: {error}.") from error


def _rows(plain: Any, kind: type[Row]) -> tuple[Row, ...]:
    if not isinstance(plain, list | tuple):
        raise TypeError(f"a list of {kind.__name__} was expected")
    found: list[Row] = []
    for k in range(0, len(plain), _PART):
        found += msgspec.convert(plain[k : k + _PART], list[kind])  # type: ignore[valid-type]
    return tuple(found)


def dumps(report: Report) -> str:
    """The report as JSON text, two spaces a level, UTF-8 names as they are."""
    return _text(to_plain(report))


def dump_plain(inspection: Inspection) -> str:
    """An inspection as JSON text, by the same rules."""
    return _text(_clean(msgspec.to_builtins(inspection)))


def plain_text(plain: Any) -> str:
    """Plain objects as JSON text by the same rules."""
    return _text(_clean(plain))


def _text(plain: Any) -> str:
    return json.dumps(plain, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the report, made from the one definition of its types."""
    made: dict[str, Any] = msgspec.json.schema(Report, schema_hook=lambda _type: {"type": "array"})
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    made["title"] = f"visualquant report, schema version {SCHEMA_VERSION}"
    definition = made["$defs"]["Report"]
    definition["properties"].pop("details")
    made["$defs"].pop("WeightDetail", None)
    return made


def _without_details(report: Report) -> dict[str, Any]:
    return {name: getattr(report, name) for name in report.__dataclass_fields__ if name != "details"}


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _clean(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _revive(value: Any, numeric: bool) -> Any:
    if isinstance(value, dict):
        return {k: _revive(v, numeric or k in _NUMERIC) for k, v in value.items() if k != "details"}
    if isinstance(value, list):
        return [_revive(v, numeric) for v in value]
    if numeric and isinstance(value, str):
        return _NON_FINITE.get(value, value)
    return value


if __name__ == "__main__":
    SCHEMA_PATH.write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")
