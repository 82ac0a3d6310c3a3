"""Documents as people spell them, each with the policy that was meant: it is what is guessed, or among what
is shown."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.inferring.guess import Guess, guess
from bucketwise.config.models import make_policy
from tests.buckets.inferring.test_variants import read

Document = dict[str, Any]
MONTHS = [(datetime(2024, it, 1, tzinfo=UTC), monthrange(2024, it)[1]) for it in range(1, 9)]
DAYS = [datetime(2025, 6, 3, tzinfo=UTC) + it * timedelta(days=1) for it in range(5)]
HOURS = [DAYS[0] + it * timedelta(hours=1) for it in range(24)]


def _slots(count: int, key: Callable[[int], str] = str, first: int = 0) -> Document:
    return {key(it): (it * 37 % 101) / 4 for it in range(first, count + first)}


def _of(keys: Document, **more: Any) -> Document:
    return {"model": "slots", "series_fields": ("pump",), "value_fields": ("l",), **keys, **more}


def _reading(**more: Any) -> Document:
    return {
        "model": "reading",
        "time_field": "at",
        "series_fields": ("host",),
        "value_fields": ("v",),
        **more,
    }


_MONTH = {"slot": "day", "span": "month", "first_slot": 1}
_YMDHM = {"YY": "%Y", "MM": "%m", "DD": "%d", "hh": "%H", "mm": "%M"}
SPELLED: dict[str, tuple[list[Document], Document]] = {
    "four quarters of an hour from 1": (
        [{"h": it, "l": _slots(4, first=1)} for it in HOURS],
        _of({"slot": "15m", "span": "hour", "first_slot": 1}, time_field="h"),
    ),
    "ten minutes of a day under padded keys": (
        [{"d": it, "l": _slots(144, "{:03}".format)} for it in DAYS],
        _of({"slot": "10m", "span": "day"}, time_field="d"),
    ),
    "days of a month that is text": (
        [{"m": f"{it:%Y-%m}", "l": _slots(days, "{:02}".format, 1)} for it, days in MONTHS],
        _of(_MONTH, time_field="m", time_format="%Y-%m"),
    ),
    "days of a month, and its year beside it": (
        [{"year": it.year, "month": it.month, "l": _slots(days, first=1)} for it, days in MONTHS],
        _of(_MONTH, time_field=("year", "month"), time_format="%Y %m"),
    ),
    "minutes in hours, both from 1": (
        [{"d": it, "l": {str(hour): _slots(60, first=1) for hour in range(1, 25)}} for it in DAYS],
        _of({"slot_levels": ("hour", "minute"), "first_slot": 1}, time_field="d"),
    ),
    "year to minute as numbers": (
        [
            {**{name: int(it.strftime(form)) for name, form in _YMDHM.items()}, "l": it.hour / 4}
            for hour in HOURS
            for it in (hour, hour + timedelta(minutes=20))
        ],
        _of({"model": "reading"}, time_field=tuple(_YMDHM), time_format=" ".join(_YMDHM.values())),
    ),
}


def guessed(documents: list[Document]) -> tuple[Guess, Docs]:
    docs = Docs.of([bson.encode({"_id": number, **it}) for number, it in enumerate(documents)])
    return guess("it", "it", docs, [], None), docs


@pytest.mark.parametrize("name", SPELLED)
def test_it_is_read_as_it_was_meant(name: str) -> None:
    documents, keys = SPELLED[name]
    found, docs = guessed([{"pump": pump, **it} for it in documents for pump in ("p1", "p2")])
    wanted = read(make_policy(name="it", collection="it", **keys), docs)
    assert any(read(it.policy, docs) == wanted for it in found.ways), found
    assert found.asked == ("time_format" in keys)  # in which zone, nobody knows


@pytest.mark.parametrize("lacking", ["missing", "null", "later"])
def test_documents_without_their_series_have_a_default(lacking: str) -> None:
    documents = [{"at": it, "metric": "cpu", "host": "web", "v": it.hour / 4} for it in HOURS]
    for it in documents[: 12 if lacking == "later" else 2]:
        it.pop("host") if lacking != "null" else it.update(host=None)
    found, docs = guessed(documents)
    keys = _reading(series_fields=("metric", "host"), series_defaults={"host": "unknown"})
    assert found.policy is not None
    assert read(found.policy, docs) == read(make_policy(name="it", collection="it", **keys), docs)
    assert "series_defaults" in found.notes.questions


def test_a_clock_that_was_never_set_is_left_out() -> None:
    documents = [{"at": it, "host": "web", "v": it.hour / 4} for day in DAYS for it in (day, *HOURS)]
    documents[3]["at"] = datetime(2106, 2, 7, tzinfo=UTC)
    found, _ = guessed(documents)
    assert found.policy is not None
    assert str(found.policy.latest) == "2d"
    assert "2106-02-07" in found.notes.evidence["latest"][0]


@pytest.mark.parametrize(
    ("value", "kind", "why"),
    [
        (lambda it: it * 500 % 30_000, {"kind": "counter"}, "it never falls but to near zero, 3 times"),
        (lambda it: it // 7 % 2 == 0, {"kind": "state", "max_gap": "10m"}, "it has 2 values that last"),
        (lambda it: it * 37 % 101, None, ""),
    ],
)
def test_kinds_are_told_with_what_speaks_for_them(
    value: Callable[[int], Any], kind: Document | None, why: str
) -> None:
    at = [DAYS[0] + it * timedelta(minutes=1) for it in range(200)]
    found, _ = guessed([{"at": it, "host": "web", "v": value(number)} for number, it in enumerate(at)])
    assert found.kinds == ({} if kind is None else {"v": (kind, f"{why}: a {kind['kind']}?")})
