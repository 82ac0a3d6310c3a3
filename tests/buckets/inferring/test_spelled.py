"""Documents as people spell them, each with the policy that was meant: it is what is guessed, or among what
is shown."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from bson import ObjectId

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.inferring.guess import Guess, guess
from bucketwise.config.models import make_policy
from tests.buckets.inferring.test_variants import read

Document = dict[str, Any]
MONTHS = [(datetime(2024, it, 1, tzinfo=UTC), monthrange(2024, it)[1]) for it in range(1, 9)]
DAYS = [datetime(2025, 6, 3, tzinfo=UTC) + it * timedelta(days=1) for it in range(5)]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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
    "the time of day before the day": (
        [{"wann": f"{it:%H:%M} Uhr {it:%d.%m.%Y}", "l": it.hour / 4} for it in HOURS],
        _of({"model": "reading"}, time_field="wann", time_format="%H:%M Uhr %d.%m.%Y"),
    ),
    "a date and a time of day, in digits under short names": (
        [{"dt": f"{it:%Y%m%d}", "tm": f"{it:%H%M%S}", "l": it.hour / 4} for it in HOURS],
        _of({"model": "reading"}, time_field=("dt", "tm"), time_format="%Y%m%d %H%M%S"),
    ),
    "and as whole numbers": (
        [{"dt": int(f"{it:%Y%m%d}"), "tm": int(f"{it:%H%M%S}"), "l": it.hour / 4} for it in HOURS[10:]],
        _of({"model": "reading"}, time_field=("dt", "tm"), time_format="%Y%m%d %H%M%S"),
    ),
    "days of ISO weeks": (
        [{"wann": f"{it:%G-W%V-%u}", "l": it.day / 4} for it in DAYS],
        _of({"model": "reading"}, time_field="wann", time_format="%G-W%V-%u"),
    ),
    "days of a year, and the time of day": (
        [{"wann": f"{it:%Y-%j %H:%M}", "l": it.hour / 4} for it in HOURS],
        _of({"model": "reading"}, time_field="wann", time_format="%Y-%j %H:%M"),
    ),
    "hours of a day whose numbers are text": (
        [{"d": it, "l": {key: f"{v:.2f}".replace(".", ",") for key, v in _slots(24).items()}} for it in DAYS],
        _of({"slot_levels": ("hour",), "values": {"l": {"text": True, "decimal": ","}}}, time_field="d"),
    ),
    "words for 1 and 0 beside booleans and numbers": (
        [{"d": it, "l": ("ON", 40.5, True, "OFF")[it.hour % 4]} for it in HOURS],
        _of({"model": "reading", "values": {"l": {"map": {"ON": 1, "OFF": 0, "true": 1}}}}, time_field="d"),
    ),
    "minutes of an hour that say whether": (
        [{"d": it, "l": {str(i): (it.hour + i) % 7 < 3 for i in range(60)}} for it in HOURS],
        _of({"slot": "minute", "values": {"l": {"map": {"true": 1, "false": 0}}}}, time_field="d"),
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


def test_one_document_of_a_series_does_not_tell_hours_from_minutes() -> None:
    documents = [{"d": DAYS[0], "pump": f"p{i}", "l": list(_slots(24).values())} for i in range(5)]
    found, _ = guessed(documents)
    assert [
        it.policy.model_dump(include={"slot", "slot_levels"}, exclude_unset=True) for it in found.ways
    ] == [
        {"slot_levels": ("hour",)},
        {"slot": "minute"},
        {"slot": "second"},
    ]


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


def test_clocks_are_wrong_either_way() -> None:
    """ObjectIds of 1970 and of 2106: the question comes once, whatever zones there may be."""
    seconds = [int(it.timestamp()) for it in HOURS for _ in range(4)]
    ids = [
        ObjectId((0 if i == 7 else 2**32 - 1 if i == 9 else at + i).to_bytes(4, "big") + bytes(8))
        for i, at in enumerate(seconds)
    ]
    found, _ = guessed([{"_id": it, "host": "web", "v": i / 7} for i, it in enumerate(ids)])
    assert found.policy is not None
    assert found.policy.time_field == "_id"
    assert str(found.policy.latest) == "2d"
    assert len(found.notes.questions["model"]) == 1
    texts = [f"{it:%Y-%m-%d %H:%M}" for it in (*HOURS, EPOCH)]
    found, _ = guessed([{"at": it, "host": "web", "v": i / 7} for i, it in enumerate(texts)])
    assert len(found.ways) > 1
    assert len(found.notes.questions["model"]) == 1


_PUMPS = [
    {"at": at, "pump": pump, "mode": ("heat", "on-site", "off")[at.hour // 5 % 3]}
    for at in HOURS
    for pump in "ab"
]


@pytest.mark.parametrize(
    ("documents", "ways"),
    [
        (_PUMPS, [(("pump",), ("mode",))]),
        ([{"at": it["at"], "mode": it["mode"]} for it in _PUMPS[::2]], [((), ("mode",))]),
        ([{"at": it["at"], "pump": it["pump"], "x": it["mode"]} for it in _PUMPS], [(("pump",), ("x",))]),
        (
            [{"at": it["at"], "who": "ab"[i // 7 % 2], "x": it["mode"]} for i, it in enumerate(_PUMPS[::2])],
            [(("x",), ("who",)), (("who",), ("x",))],
        ),
        (
            [{"pump": it["pump"], "s": [{"at": it["at"], "mode": it["mode"]}]} for it in _PUMPS],
            [(("pump",), ("mode",))],
        ),
    ],
)
def test_texts_that_come_and_go_are_states(documents: list[Document], ways: list[Any]) -> None:
    found, _ = guessed(documents)
    assert [(it.policy.series_fields, it.policy.value_fields) for it in found.ways] == ways
    for it in found.ways:
        assert it.policy.text_states == it.policy.value_fields == it.policy.nonnumeric_ok
        assert isinstance(next(iter(it.first[0].values.values())), str)


def test_a_log_holds_no_states() -> None:
    found, _ = guessed([{**it, "level": it["mode"], "msg": f"line {i}"} for i, it in enumerate(_PUMPS)])
    assert found.policy is None


def test_series_are_told_apart_where_samples_count_from_the_start_of_their_bucket() -> None:
    documents = [
        {
            "from": at,
            "door": door,
            "ev": [{"o": o % 5 + i * 40 + door, "open": i % 2 == 0} for i in range(o % 7 + 1)],
        }
        for o, at in enumerate(HOURS)
        for door in (1, 2, 3)
    ]
    found, _ = guessed(documents)
    assert found.policy is not None
    assert (found.policy.series_fields, found.policy.value_fields) == (("door",), ("open",))


def test_a_text_is_no_sum() -> None:
    samples = [{"at": HOURS[0] + i * timedelta(minutes=1), "v": i - 2} for i in range(5)]
    found, _ = guessed([{"name": f"x{i}", "s": samples} for i in range(4)])
    assert "model" not in found.notes.questions


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
