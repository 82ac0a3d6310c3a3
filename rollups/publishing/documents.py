"""Summaries as applications read them in Redis: JSON, and the fields of a hash. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from bson import json_util
from bson.datetime_ms import DatetimeMS

from bucketwise.buckets.fields.selectors import EXTENDED_JSON
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.tiling import instant
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.summaries.documents import series_of, value_at

Document = dict[str, Any]
#: Fields of a summary that are published beside series and values.
_HEAD = (
    "start", "end", "timezone", "hours", "count", "expected", "missing", "longest_hole", "longest_hole_at",
)  # fmt: skip


def published(policy: Policy, summary: Mapping[str, Any]) -> Document:
    """Returns a summary in the words of `summarize`: plain JSON. Each instant is there as ISO 8601 and, with
    `_ms` behind its name, as milliseconds since 1970."""
    series = dict(zip(policy.series_names, series_of(policy, summary), strict=True))
    values = {name: value_at(summary, name) or {} for name in policy.value_names}
    return {
        "series": {name: _plain(value) for name, value in series.items()},
        **dict(_instants({key: summary[key] for key in _HEAD if key in summary})),
        "values": {name: dict(_instants(value)) for name, value in values.items()},
    }


def as_json(document: Document) -> str:
    """Returns the document as one line of JSON; doubles read back to the same bits."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def as_fields(document: Document) -> dict[str, str]:
    """Returns the document as the fields of a hash: statistics as `p.avg`. Nulls are left out."""
    values = document["values"].items()
    flat = {key: value for key, value in document.items() if key not in ("series", "values")}
    flat |= {f"{name}.{key}": it for name, statistics in values for key, it in statistics.items()}
    fields = {key: _text(value) for key, value in flat.items() if value is not None}
    return {"series": as_json(document["series"]), **fields}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _instants(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, datetime | DatetimeMS):
            yield key, instant(to_ms(value))
            yield f"{key}_ms", to_ms(value)
        elif key not in ("state", "coverage"):
            yield key, _plain(value)


def _plain(value: Any) -> Any:
    """Returns a value as the JSON of all commands has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, datetime):
        return instant(to_ms(value))
    return json.loads(json_util.dumps(value, json_options=EXTENDED_JSON))
