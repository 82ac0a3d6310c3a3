"""Times as text of strptime formats, in one field or several, as ObjectIds and Timestamps: read as Python's
`strptime` and `zoneinfo` read them one by one, and found by a real mongod as they are decoded."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import bson
import pytest
from bson import Int64, ObjectId, Timestamp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pymongo.database import Database

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding.decode import BucketSet, Decoded, decode
from bucketwise.buckets.fields.textforms import form_of
from bucketwise.buckets.packing import Readings, pack, unpack
from bucketwise.buckets.source import Source
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from bucketwise.rollups.changes.late import live_days
from tests.buckets.bad_documents import READING
from tests.buckets.strategies import FIRST, LAST
from tests.examples import examples

Mongo = Database[dict[str, Any]]
few = settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
many = settings(max_examples=examples(300))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400_000
#: Those that sort as time does, and others.
SORTED = [
    *("%Y-%m-%d %H:%M:%S", "%Y%m%d%H%M%S", "%Y,%m,%d,%H,%M,%S,%f", "%Y/%m/%dT%H:%M", "%Y-%m-%d", "%Y.%m"),
    *("%Y %m %d %H", "%Y-%m-%dT%H:%M:%S.%f"),
]
OTHERS = [
    *("%d.%m.%Y %H:%M:%S", "%d.%m.%y %H:%M", "%m/%d/%Y %I:%M:%S %p", "%b %d %Y %H:%M", "%d %B %Y, %H h"),
    *("%a, %d %b %Y %H:%M:%S %z", "%A %d/%m/%Y %H:%M", "%Y-%j %H:%M", "%H:%M:%S %d.%m.%Y", "%d-%b-%y"),
    *("%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d %H:%M:%S.%f %z", "%d%m%Y%H%M", "100%% %d.%m.%Y".replace("100", "x")),
    *("%Y-%m-%d %H:%M:%S UTC", "%G-W%V-%u", "%GW%V.%u %H:%M:%S", "%G-W%V-%uT%H:%M%z"),
]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]
OFFSETS = [timedelta(0), timedelta(hours=2), timedelta(hours=-5, minutes=-30), timedelta(hours=14)]
#: Around changes of clocks, a leap day, the rim of a year, and 1970.
DAYS = ["2025-03-30", "2025-10-26", "2025-11-02", "2024-02-29", "2025-12-31", "1970-01-01"]
moments = st.builds(
    lambda day, seconds, micros: (
        datetime.fromisoformat(day) + timedelta(seconds=seconds, microseconds=micros)
    ),
    st.sampled_from(DAYS),
    st.integers(-86_400, 2 * 86_400) | st.integers(-96, 192).map(lambda it: it * 900),
    st.sampled_from([0, 0, 1, 999, 500_000, 999_999]),
)


@st.composite
def texts_of(draw: st.DrawFn, format: str) -> str:
    """What a writer makes of a moment: with all digits, without leading zeros, in other letters, or wrong."""
    at = draw(moments).replace(tzinfo=UTC)
    text = at.astimezone(bson.tz_util.FixedOffset(draw(st.sampled_from(OFFSETS)), "x")).strftime(format)
    change = draw(st.sampled_from(["", "", "", "bare", "letters", "wrong"]))
    if change == "bare" and not re.search("%[a-zA-Z]%[a-zA-Z]", format):
        text = re.sub(r"(?<![0-9+.,-])0([0-9])(?![0-9])", r"\1", text)
    if change == "letters":
        text = draw(st.sampled_from([text.upper(), text.lower()]))
    if change == "wrong":
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.sampled_from(["", "9", "0", " ", "x", "-"])) + text[place + 1 :]
    return text


def instant(text: str, format: str, zone: str) -> int | None:
    """Milliseconds by Python's own reading; None where it reads none, or the clock skipped it."""
    if "%f" in format:  # Python reads six digits; those beyond tell less than a millisecond
        text = re.sub("([0-9]{6})[0-9]{1,3}(?![0-9])", r"\1", text)
    try:
        found = datetime.strptime(text, format)  # noqa: DTZ007
    except ValueError:
        return None
    if found.tzinfo is None:
        clock = ZoneInfo(zone)
        shown = found.replace(tzinfo=clock)
        found = shown.astimezone(UTC)
        if found.astimezone(clock).replace(tzinfo=None) != shown.replace(tzinfo=None):
            return None
    ms = (found - _EPOCH) // timedelta(milliseconds=1)
    return ms if FIRST <= ms <= LAST else None


def _is_week_beyond(text: str, format: str) -> bool:
    """Whether the text names week 0, or 53 of a year that has 52: Python counts on."""
    told = re.match("([0-9]{4})-?w([0-9]+)", text.lower()) if "%V" in format else None
    if told is None or int(told[1]) == 0:
        return False
    return not 1 <= int(told[2]) <= date(int(told[1]), 12, 28).isocalendar().week


def test_a_seventh_digit_is_read_by_the_oracle_too() -> None:
    format, text = "%Y,%m,%d,%H,%M,%S,%f", "2025,03,30,00,00,00,0010009"
    assert instant(text, format, "UTC") == form_of("date", format, "UTC").milliseconds(text) == 1743292800001


@many
@given(st.data(), st.sampled_from([*SORTED, *OTHERS]), st.sampled_from(ZONES))
def test_reads_what_strptime_reads(data: st.DataObject, format: str, zone: str) -> None:
    text = data.draw(texts_of(format))
    expected, found = instant(text, format, zone), form_of("date", format, zone).milliseconds(text)
    if ("%j" in format and text[5:8] == "366" and found is None) or _is_week_beyond(text, format):
        return  # Python rolls over to the next year
    if len(text) < {"%Y%m%d%H%M%S": 14, "%d%m%Y%H%M": 12}.get(format, 0):
        expected = None  # numbers side by side need all their digits
    assert found == expected, text


@pytest.mark.parametrize(
    ("format", "text", "expected"),
    [
        ("%d.%m.%Y", "5.1.2025", "2025-01-05T00:00:00"),
        ("%b %d %Y", "Jan  5 2025", "2025-01-05T00:00:00"),
        ("%Y-%m-%d %H:%M:%S.%f", "2025-01-05 10:00:00.1234567", "2025-01-05T10:00:00.123"),
        ("%y%m%d", "690101", "1969-01-01T00:00:00"),
        ("%y%m%d", "680101", "2068-01-01T00:00:00"),
        ("%I %p %d.%m.%Y", "12 am 05.01.2025", "2025-01-05T00:00:00"),
        ("%I %p %d.%m.%Y", "12 PM 05.01.2025", "2025-01-05T12:00:00"),
        ("%Y%m%d", "2025111", None),  # the eleventh of January, or the first of November
        ("%Y-%j", "2025-366", None),
        ("%G-W%V-%u", "2025-W01-1", "2024-12-30T00:00:00"),
        ("%G-W%V-%u", "2020-W53-7", "2021-01-03T00:00:00"),
        ("%G-W%V-%u", "2025-W53-1", None),
        ("%G-W%V-%u", "2025-W07-8", None),
        ("%d.%m.%Y", "29.02.2025", None),
        ("%d.%m.%Y", "05.01.2025\n", None),
        ("%s", "1736071200", "2025-01-05T10:00:00"),
        ("%s", "-1", "1969-12-31T23:59:59"),
        ("%s", "1736071200.5", None),
        ("%s", "", None),
    ],
)
def test_texts(database: Mongo, format: str, text: str, expected: str | None) -> None:
    wanted = None
    if expected is not None:
        wanted = (datetime.fromisoformat(expected).replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
    assert form_of("date", format).milliseconds(text) == wanted
    policy = make_policy(**{**READING, "time_format": format})
    fill(database, policy, [{"d": text}])
    source = Source(database, policy)
    assert ids(source.untimed()) == ([0] if wanted is None else [])
    assert ids(source.ending(FIRST, LAST + 1)) == ([] if wanted is None else [0])


@pytest.mark.parametrize(
    ("zone", "day", "starts"),
    [
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04T03:00:00"),  # midnight is skipped
        ("America/Havana", "2025-11-02", "2025-11-02T04:00:00"),  # and is shown twice
        ("Pacific/Apia", "2011-12-30", None),  # the whole day is skipped
    ],
)
@pytest.mark.parametrize("keys", [{"time_unit": "iso"}, {"time_format": "%Y-%m-%d"}])
def test_a_day_begins_where_its_clock_does(
    database: Mongo, zone: str, day: str, starts: str | None, keys: dict[str, str]
) -> None:
    policy = make_policy(**{**READING, **keys, "timezone": zone})
    fill(database, policy, [{"d": day}])
    (decoded,) = [decode(it, policy) for it in Source(database, policy).batches(FIRST, LAST + 1)]
    if starts is None:
        assert not len(decoded.columns.time) and zone in decoded.quarantined[0].reason
        return
    (at,) = decoded.columns.time.tolist()
    assert datetime.fromtimestamp(at / 1000, UTC) == datetime.fromisoformat(starts).replace(tzinfo=UTC)
    assert ids(Source(database, policy).ending(at, at + 1)) == [0]


def fill(database: Mongo, policy: Policy, found: list[dict[str, Any]]) -> None:
    collection = database[policy.collection]
    collection.delete_many({})
    collection.create_index("d")
    if found:
        collection.insert_many([{"_id": i, "symbol": "x", "p": float(i), **it} for i, it in enumerate(found)])


def ids(batches: Any) -> list[int]:
    return sorted(batch.main.decode_id(i) for batch in batches for i in range(len(batch)))


def readings(decoded: list[Decoded]) -> dict[int, int]:
    """The time of each sound document, by its number."""
    return {
        int(value): time
        for it in decoded
        for time, value in zip(it.columns.time.tolist(), it.columns.values["p"].tolist(), strict=True)
    }


def compared(database: Mongo, policy: Policy, times: list[int | None]) -> None:
    """Holds what a source finds against the documents' times; None where it has none."""
    expected = {i: it for i, it in enumerate(times) if it is not None}
    source = Source(database, policy)
    live = live_days(source)
    assert all(any(start <= it < end for start, end in live) for it in expected.values())
    assert sum(end - start for start, end in live) <= 5 * DAY * len(times), "no days far from any"
    for _ in range(2):
        whole = [decode(it, policy) for it in source.batches(FIRST, LAST + 1)]
        assert readings(whole) == expected
        assert all(it.id not in expected for decoded in whole for it in decoded.quarantined)
        found = ids(source.untimed())
        assert not set(found) & expected.keys()
        seen = {it.id for decoded in whole for it in decoded.quarantined}
        assert seen | set(found) >= {i for i, it in enumerate(times) if it is None}
        rims = sorted({*(it // DAY * DAY for it in expected.values()), *expected.values()})
        edges = sorted({FIRST, *(it + step for it in rims[:6] for step in (0, 1)), LAST + 1})
        parts = {both: ids(source.ending(*both)) for both in pairwise(edges)}
        together = [it for part in parts.values() for it in part]
        assert len(together) == len(set(together)), "each is in one of the ranges"
        for (start, end), part in parts.items():
            held = {i for i, it in expected.items() if start <= it < end}
            assert set(part) & expected.keys() == held
        if expected and len(expected) == len(times):
            first, last = min(expected.values()), max(expected.values())
            assert (source.earliest(), source.latest()) == (first, last)
            assert source.earliest_ending(first + 1) == min(
                (it for it in expected.values() if it > first), default=None
            )
        source.look_at_texts()


@pytest.mark.proof
@few
@given(st.data(), st.sampled_from([*SORTED, *OTHERS]), st.sampled_from(ZONES))
def test_a_source_finds_texts_at_their_times(
    database: Mongo, data: st.DataObject, format: str, zone: str
) -> None:
    found = data.draw(st.lists(texts_of(format), min_size=1, max_size=10))
    policy = make_policy(**{**READING, "time_format": format, "timezone": zone})
    form = form_of("date", format, zone)
    fill(database, policy, [{"d": it} for it in found])
    compared(database, policy, [form.milliseconds(it) for it in found])


@few
@given(st.lists(moments, min_size=1, max_size=10), st.sampled_from(ZONES), st.sampled_from(["T", " "]))
def test_iso_text_without_offset_is_of_the_clock(
    database: Mongo, found: list[datetime], zone: str, between: str
) -> None:
    texts = [it.isoformat(between) for it in found]
    times = [instant(it.isoformat(timespec="microseconds"), "%Y-%m-%dT%H:%M:%S.%f", zone) for it in found]
    policy = make_policy(**{**READING, "time_unit": "iso", "timezone": zone})
    fill(database, policy, [{"d": it} for it in texts])
    source = Source(database, policy)
    for _ in range(2):
        decoded = [decode(it, policy) for it in source.batches(FIRST, LAST + 1)]
        # Before 1970 digits beyond milliseconds are rounded up.
        after_1970 = {i: it for i, it in enumerate(times) if it is not None and it > DAY}
        assert {i: it for i, it in readings(decoded).items() if it > DAY} == after_1970
        for at in after_1970.values():
            expected = [i for i, it in after_1970.items() if it == at]
            assert [it for it in ids(source.ending(at, at + 1)) if it in after_1970] == expected
        source.look_at_texts()


def wrapped(value: int) -> st.SearchStrategy[Any]:
    """A whole number as writers store it."""
    return st.sampled_from([value, Int64(value), float(value), str(value), f"{value:02}"])


@st.composite
def parts(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """Year, month, day and hour in fields of their own, some of them wrong, and the text that they make."""
    at = draw(moments)
    fields = {name: draw(wrapped(it)) for name, it in zip("ymdh", at.timetuple()[:4], strict=True)}
    if draw(st.integers(0, 5)) == 0:
        wrong = draw(st.sampled_from([None, 1.5, float("nan"), "", "x", 99, -1]))
        fields[draw(st.sampled_from("ymdh"))] = wrong
    texts = [str(int(it)) if isinstance(it, float) and it.is_integer() else str(it) for it in fields.values()]
    return fields, " ".join(texts)


@pytest.mark.proof
@few
@given(st.lists(parts(), min_size=1, max_size=10), st.sampled_from(ZONES))
def test_a_source_finds_times_in_several_fields(
    database: Mongo, found: list[tuple[dict[str, Any], str]], zone: str
) -> None:
    policy = make_policy(
        **{**READING, "time_field": ["y", "m", "d", "h"], "time_format": "%Y %m %d %H", "timezone": zone}
    )
    fill(database, policy, [fields for fields, _ in found])
    compared(database, policy, [instant(text, "%Y %m %d %H", zone) for _, text in found])


@pytest.mark.proof
@few
@given(st.lists(moments, min_size=1, max_size=8), st.data(), st.sampled_from(ZONES))
def test_whole_numbers_are_read_by_their_digits(
    database: Mongo, found: list[datetime], data: st.DataObject, zone: str
) -> None:
    format = data.draw(st.sampled_from(["%Y%m%d", "%Y%m%d%H%M", "%Y%m%d%H%M%S"]))
    wrong = st.sampled_from([5, 20251399, 2025.5, float("nan"), -20250101, 10**17, True, "x", None])
    written = [data.draw(wrapped(int(f"{it.year:04}{it.strftime(format[2:])}"))) for it in found]
    written += data.draw(st.lists(wrong, max_size=2))
    policy = make_policy(**{**READING, "time_format": format, "timezone": zone})
    fill(database, policy, [{"d": it} for it in written])
    texts = [str(int(it)) if isinstance(it, float) and it.is_integer() else str(it) for it in written]
    digits = {"%Y%m%d": 8, "%Y%m%d%H%M": 12, "%Y%m%d%H%M%S": 14}[format]
    compared(database, policy, [instant(it, format, zone) if len(it) == digits else None for it in texts])


@pytest.mark.proof
@few
@given(st.data(), st.booleans(), st.sampled_from(ZONES))
def test_a_day_in_one_field_narrows_times_down(
    database: Mongo, data: st.DataObject, has_numbers: bool, zone: str
) -> None:
    dates = "%Y%m%d" if has_numbers else "%Y-%m-%d"
    policy = make_policy(
        **{**READING, "time_field": ["hour", "day"], "time_format": f"%H:%M {dates}", "timezone": zone}
    )
    found = []
    for at in data.draw(st.lists(moments, min_size=1, max_size=10)):
        day = f"{at.year:04}{at:-%m-%d}".replace("-", "" if has_numbers else "-")
        written = data.draw(wrapped(int(day))) if has_numbers else day
        wrong = data.draw(st.sampled_from([None, "x", f" {day}", f"{day} ", at])) if at.day < 5 else None
        found.append({"hour": f"{at:%H:%M}", "day": written if wrong is None else wrong})
    expected = [_joined_time(it, dates, zone) for it in found]
    fill(database, policy, found)
    compared(database, policy, expected)


def _joined_time(document: dict[str, Any], dates: str, zone: str) -> int | None:
    day = document["day"]
    day = str(int(day)) if isinstance(day, float) else str(day)
    return instant(f"{document['hour']} {day}", f"%H:%M {dates}", zone)


def test_days_of_several_fields_are_found_by_an_index(database: Mongo) -> None:
    policy = make_policy(**{**READING, "time_field": ["day", "hour"], "time_format": "%Y-%m-%d %H:%M"})
    fill(database, policy, [{"day": f"2025-03-{1 + i // 24:02}", "hour": f"{i % 24}:00"} for i in range(480)])
    database[policy.collection].create_index("day")
    source = Source(database, policy)
    source.look_at_texts()
    start = round(datetime(2025, 3, 7, 6, tzinfo=UTC).timestamp() * 1000)
    assert ids(source.batches(start, start + 3 * 3_600_000)) == [150, 151, 152]
    query = source.model.range_query(source.model.own_form.plain, start, start + 1)
    told = database.command(
        "explain", {"find": policy.collection, "filter": query}, verbosity="executionStats"
    )
    assert told["executionStats"]["totalDocsExamined"] == 24


seconds = st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1]) | st.integers(0, 2**32 - 1)


@few
@given(st.lists(seconds, min_size=1, max_size=8), st.booleans())
@example([0], True).via("the first second")
def test_a_source_finds_object_ids_and_timestamps(database: Mongo, found: list[int], are_ids: bool) -> None:
    unit = "objectid" if are_ids else "timestamp"
    values = [
        ObjectId(it.to_bytes(4, "big") + bytes([i] * 8)) if are_ids else Timestamp(it, i + 1)
        for i, it in enumerate(found)
    ]
    policy = make_policy(**{**READING, "time_unit": unit})
    odd = [{"d": it} for it in (None, "2025-01-01", 5, 1.5)] + [{}]
    fill(database, policy, [*({"d": it} for it in values), *odd])
    times: list[int | None] = [it * 1000 for it in found]
    compared(database, policy, [*times, *[None] * len(odd)])


@pytest.mark.parametrize(
    ("keys", "documents"),
    [
        ({"time_format": "%d.%m.%Y %H:%M"}, [{"d": "5.1.2025 7:00"}, {"d": "05.01.2025 07:00"}]),
        ({"time_unit": "objectid"}, [{"d": ObjectId("6790431c32953922983a6663")}]),
        ({"time_unit": "timestamp"}, [{"d": Timestamp(1738800052, 7)}]),
        (
            {"time_field": ["d", "t"], "time_format": "%Y %j"},
            [{"d": 2025, "t": Int64(5)}, {"d": 2025.0, "t": "6"}, {"d": Int64(2025), "t": 7.0}],
        ),
    ],
)
def test_documents_come_back_bit_for_bit(keys: dict[str, Any], documents: list[dict[str, Any]]) -> None:
    policy = make_policy(**{**READING, **keys})
    held = [bson.encode({"_id": i, "symbol": "x", **it, "p": 1.5}) for i, it in enumerate(documents)]
    buckets = BucketSet(Batch.of(Docs.of(held)), policy)
    assert buckets.readings == len(documents)
    packed = pack(buckets)
    again = unpack(
        Readings(packed.rows.time, list(packed.rows.values.values())), packed.groups, buckets.batch.size
    )
    assert sorted(again.main) == sorted(held)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("has_end", [False, True])
@pytest.mark.parametrize("format", ["%H:%M:%S %d.%m.%Y", "%Y-%m-%d %H:%M:%S"])
def test_a_source_finds_samples_by_text(database: Mongo, format: str, has_end: bool, pairs: bool) -> None:
    """Buckets of an hour, from one day to the next."""
    zone = ZoneInfo("Europe/Berlin")
    starts = [
        datetime(2025, 1, 31, 20 + hour // 24, tzinfo=zone) + timedelta(hours=hour) for hour in range(8)
    ]
    documents, times = [], []
    for start in starts:
        held = [start + timedelta(minutes=at) for at in (0, 20, 59)]
        written = [it.strftime(format) for it in held]
        samples = [[text, 1.5] if pairs else {"t": text, "v": 1.5} for text in written]
        end = {"e": written[-1]} if has_end else {}
        documents.append({"s": written[0], **end, "held": samples})
        times.append([(it - _EPOCH) // timedelta(milliseconds=1) for it in held])
    keys: dict[str, Any] = {"samples_as": "pairs"} if pairs else {"sample_time_field": "t"}
    keys |= {"end_field": "e"} if has_end else {}
    policy = make_policy(
        name="x",
        collection="held",
        model="samples",
        series_fields=["symbol"],
        value_fields=["v"],
        samples_field="held",
        start_field="s",
        time_format=format,
        sample_time_format=format,
        timezone="Europe/Berlin",
        **keys,
    )
    fill(database, policy, documents)
    source = Source(database, policy)
    for _ in range(2):
        for at in (times[0][0], times[3][1], times[4][0], times[7][2]):
            holding = [i for i, it in enumerate(times) if it[0] <= at <= it[-1]]
            assert set(ids(source.batches(at, at + 1))) >= set(holding)
            assert source.earliest(at) == at
        decoded = [decode(it, policy) for it in source.batches(FIRST, LAST + 1)]
        assert sorted(it for one in decoded for it in one.columns.time.tolist()) == [
            at for it in times for at in it
        ]
        latest = source.latest()
        assert latest is not None and times[-1][-1] <= latest <= times[-1][-1] + 3 * DAY
        source.look_at_texts()
