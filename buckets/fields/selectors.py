"""Selectors of series as text, such as `--series symbol=MDB`; series and `_id`s as text."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from bson import json_util
from bson.binary import UuidRepresentation
from bson.decimal128 import Decimal128
from bson.errors import InvalidId
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument

from bucketwise.buckets.bson.types import DOCUMENT, decode_value
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bucketwise.buckets.columns import Series

#: For values that JSON has no form for.
EXTENDED_JSON = json_util.RELAXED_JSON_OPTIONS.with_options(uuid_representation=UuidRepresentation.STANDARD)
#: Series field -> the text of its value. Fields that are not named may have any.
Selector = Mapping[str, str]


def check_selector(policy: Policy, selector: Selector) -> None:
    """Raises UsageError where the policy has no such series field, or no series can have such a text."""
    for name in sorted(set(selector) - set(policy.series_names)):
        fields = ", ".join(policy.series_names) or "none"
        raise UsageError(f"--series {name}: policy {policy.name} has no such series field; it has {fields}")
    for name, text in selector.items():
        if any("\ud800" <= it <= "\udfff" for it in text):  # bytes of a command line that are no UTF-8
            raise UsageError(f"--series {name}={text!a}: it is not UTF-8, as all texts in MongoDB are")


def selects(series: Series, policy: Policy, selector: Selector) -> bool:
    """Returns whether a series has every value that the selector names, compared as text."""
    values = dict(zip(policy.series_names, series, strict=True))
    return all(series_text(values[name]) == text for name, text in selector.items())


def selected(series: Sequence[Series], policy: Policy, *selectors: Selector) -> NDArray[np.bool_]:
    """Returns which of these are asked for, by any of the selectors; without any, all are."""
    import numpy as np  # here, since each command imports this module

    if not all(selectors) or not selectors:
        return np.ones(len(series), dtype=np.bool_)
    chosen = [any(selects(one, policy, it) for it in selectors) for one in series]
    return np.array(chosen, dtype=np.bool_)


def selector_query(policy: Policy, *selectors: Selector) -> dict[str, Any]:
    """Returns a query that narrows buckets as far as MongoDB can: it finds all of those series, and maybe
    more."""
    found = [_stored_query(policy, it) for it in selectors]
    if not all(found) or not found:
        return {}
    return found[0] if len(found) == 1 else {"$or": found}


#: Flags of buckets that have no overflow.
_NO_FLAGS = [False, 0, None]


def _stored_query(policy: Policy, selector: Selector) -> dict[str, Any]:
    found, inside = dict[str, Any](), dict[str, Any]()
    for name, text in selector.items():
        if (named := candidates(text)) is not None:
            may_lack = name in policy.default_series and series_text(policy.default_series[name]) == text
            values = {"$in": [*named, *([None] if may_lack else [])]}
            (inside if name in policy.sample_series else found)[policy.stored_series[name]] = values
    if inside and policy.overflow is not None:  # the samples may lie there
        return {**found, "$or": [inside, {policy.overflow.flag_field: {"$nin": _NO_FLAGS}}]}
    return found | inside


def series_query(policy: Policy, series: Series) -> dict[str, Any]:
    """Returns a query for the buckets of one series, of a policy whose samples don't tell their own."""
    defaults = policy.default_series
    return {
        field: {"$in": [value, None]} if defaults.get(name) == value else {"$eq": value}
        for (name, field), value in zip(policy.stored_series.items(), series, strict=True)
    }


def summary_path(name: str) -> str:
    """Returns where summaries have a series field."""
    return "_id.series._id" if name == "_id" else name


def summary_query(selector: Selector) -> dict[str, Any]:
    """Returns a query that narrows summaries as far as MongoDB can: it finds all of those series, and maybe
    more."""
    named = {summary_path(name): text for name, text in selector.items()}
    found = {field: candidates(text) for field, text in named.items()}
    return {field: {"$in": values} for field, values in found.items() if values is not None}


def candidates(text: str) -> list[Any] | None:
    """Returns the values whose text it may be; None where these are too many to name."""
    if text[:1] in ("{", "[") or text[:2] in ("b'", 'b"') or text[-1:] == ")":
        return None  # documents, arrays and bytes; dates that Python has no type for
    found: list[Any] = [text]
    for parse in (int, float, Decimal128, ObjectId, UUID, _instant):
        with contextlib.suppress(ValueError, InvalidId, ArithmeticError):
            found.append(parse(text))
    found += [it for it in (True, False, None) if text == series_text(it)]
    return [it for it in found if not isinstance(it, int) or -(2**63) <= it < 2**63]


def _instant(text: str) -> datetime:
    if not text.endswith("+00:00"):
        raise ValueError("dates are told in UTC")
    return datetime.fromisoformat(text)


def series_text(value: Any) -> str:
    """Returns a string as it is, any other value as extended JSON or as its own text."""
    if isinstance(value, str):
        return value
    if type(value) is int:  # as below, and there may be very many
        return str(value)
    if isinstance(value, (dict, list, bool, int, float)):
        return json_util.dumps(value, json_options=EXTENDED_JSON, sort_keys=True)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def extended_json(value: Any) -> str:
    """Returns an `_id`, or a series' value, as messages show it: relaxed extended JSON, with escapes for what
    no terminal shows."""
    if isinstance(value, RawBSONDocument):
        value = decode_value(DOCUMENT, bytes(value.raw), legible=True)
    text = json_util.dumps(value, json_options=EXTENDED_JSON, ensure_ascii=False)
    return "".join(it if it.isprintable() else json.dumps(it)[1:-1] for it in text)


def id_as_json(value: Any) -> Any:
    """Returns an `_id` as reports in JSON have it: relaxed extended JSON, by which it can be asked for."""
    return json.loads(extended_json(value))


def series_order(series: Series) -> list[tuple[str, Any]]:
    """Sorts series of any values: numbers, words and bools by value; others by their text."""
    return [_order(value) for value in series]


def _order(value: Any) -> tuple[str, Any]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number", value
    return type(value).__name__, value if isinstance(value, str | bool) else repr(value)
