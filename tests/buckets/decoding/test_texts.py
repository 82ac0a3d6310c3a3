"""Times as ISO 8601 text, found by a real mongod as they are decoded: with an offset from UTC or without."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo.database import Database

from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.source import Source
from bucketwise.config.models import make_policy
from bucketwise.rollups.changes.late import live_days
from tests.buckets.bad_documents import READING
from tests.buckets.strategies import FIRST, LAST
from tests.examples import examples

Mongo = Database[dict[str, Any]]
POLICY = make_policy(**{**READING, "time_unit": "iso"})
few = settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
DAY, MINUTE, NS = 86_400_000, 60_000, 1_000_000
#: Minutes ahead of UTC, and how that is written.
PLAIN = {"": 0, "Z": 0}
ZONES = {"+02:00": 120, "-0530": -330, "+14": 840, "+23:59": 1439, "-23:59": -1439}
#: 5 January 2026, and 1 January 1970.
DAYS = [20_458 * DAY, 0]


class Written(NamedTuple):
    text: str
    ms: int  # of its instant: whole microseconds, cut off towards 1970


def written(local_ns: int, zone: str, digits: int, between: str) -> Written:
    """What a clock shows that is so many nanoseconds behind 1970."""
    local_ns -= local_ns % 10 ** (9 - digits)
    days, rest = divmod(local_ns, DAY * NS)
    seconds, fraction = divmod(rest, 10**9)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    behind = f".{fraction:09}"[: digits + 1] if digits else ""
    instant = local_ns // 1000 * 1000 - (PLAIN | ZONES)[zone] * MINUTE * NS
    ms = instant // NS if instant >= 0 else -(-instant // NS)
    return Written(f"{date(1970, 1, 1) + timedelta(days)}{between}{clock}{behind}{zone}", ms)


@st.composite
def moments(draw: st.DrawFn) -> int:
    """Milliseconds near the rim of a day, or of a minute."""
    rim = draw(st.sampled_from(DAYS)) + draw(st.sampled_from([-DAY, 0, DAY, 2 * DAY]))
    later = draw(st.sampled_from([0, 0, 10 * MINUTE, DAY // 2]))
    return rim + later + draw(st.sampled_from([-1, 0, 0, 1, 999]))


@st.composite
def texts(draw: st.DrawFn) -> list[Written]:
    """Plain ones alone, or some with an offset among them."""
    zones = [*PLAIN, *(ZONES if draw(st.booleans()) else ())]
    local = st.tuples(moments(), st.sampled_from([0, 0, 999, 1000, 999_999]))
    one = st.builds(
        lambda at, zone, digits, between: written(at[0] * NS + at[1], zone, digits, between),
        local,
        st.sampled_from(zones),
        st.sampled_from([0, 1, 3, 9]),
        st.sampled_from("TTT "),
    )
    return draw(st.lists(one, min_size=1, max_size=12))


def fill(database: Mongo, found: Sequence[str]) -> None:
    collection = database[POLICY.collection]
    collection.delete_many({})
    collection.create_index("d")
    collection.insert_many([{"_id": i, "symbol": "x", "d": text, "p": i} for i, text in enumerate(found)])


def told(ms: int | None) -> int:
    assert ms is not None
    return ms


def ids(batches: Any) -> list[int]:
    return sorted(batch.main.decode_id(i) for batch in batches for i in range(len(batch)))


@few
@given(texts(), moments(), moments(), st.booleans())
def test_whatever_range_finds_the_texts_of_its_instants(
    database: Mongo, found: list[Written], one: int, other: int, looks: bool
) -> None:
    fill(database, [it.text for it in found])
    source = Source(database, POLICY)
    if looks:
        source.look_at_texts()
        assert source.looked.is_plain is not any(it.text.endswith(tuple(ZONES)) for it in found)
    for start, end in {tuple(sorted((one, other))), (FIRST, one), (one, LAST + 1), (FIRST, LAST + 1)}:
        expected = [i for i, it in enumerate(found) if start <= it.ms < end]
        assert ids(source.ending(start, end)) == ids(source.batches(start, end)) == expected
        assert source.count_ending(start, end) == len(expected)
    for at in (FIRST, one, other):
        later = [it.ms for it in found if it.ms >= at]
        for earliest in (source.earliest_ending(at), source.earliest(at)):
            assert (earliest is None) == (not later)
            assert earliest is None or max(at, min(later) - 3 * DAY) <= earliest <= min(later)
    last = max(it.ms for it in found)
    assert last <= told(source.latest()) <= last + 3 * DAY
    assert ids(source.untimed()) == []


@few
@given(texts())
def test_the_days_of_what_is_live_hold_each_text(database: Mongo, found: list[Written]) -> None:
    fill(database, [it.text for it in found])
    days = live_days(Source(database, POLICY))
    assert all(any(start <= it.ms < end for start, end in days) for it in found)


def test_one_text_with_an_offset_among_plain_ones_is_found_by_every_query(database: Mongo) -> None:
    """Its own clock shows another day."""
    fill(database, ["2026-01-04T12:00:00Z", "2026-01-05T01:00:00+02:00", "2026-01-05T12:00:00Z"])
    source, start = Source(database, POLICY), 20_457 * DAY
    for _ in range(2):
        assert ids(source.batches(start, start + DAY)) == ids(source.ending(start, start + DAY)) == [0, 1]
        assert ids(source.ending(start + DAY, start + 2 * DAY)) == [2]
        assert ids(source.ending(start + DAY - 2 * MINUTE * 60, start + DAY)) == [1]
        assert source.count_ending(start, start + DAY) == 2
        earliest = source.earliest_ending(start + DAY - 2 * MINUTE * 60)
        assert earliest == start + DAY - 2 * MINUTE * 60
        source.look_at_texts()
        assert not source.looked.is_plain


@pytest.mark.proof
@few
@given(texts(), texts())
def test_what_comes_in_once_the_texts_were_looked_at_is_found_by_the_next_and_not_twice(
    database: Mongo, found: list[Written], later: list[Written]
) -> None:
    """Day by day, as buckets go to the archive."""
    fill(database, [it.text for it in found])
    source = Source(database, POLICY)
    source.look_at_texts()
    more = [{"_id": len(found) + i, "symbol": "x", "d": it.text} for i, it in enumerate(later)]
    database[POLICY.collection].insert_many(more)
    days = sorted({day + offset * DAY for day in DAYS for offset in range(-4, 5)})
    seen = [it for day in days for it in ids(source.ending(day, day + DAY))]
    assert len(seen) == len(set(seen)) and set(range(len(found))) <= set(seen)
    after = Source(database, POLICY)
    after.look_at_texts()
    assert sorted(it for day in days for it in ids(after.ending(day, day + DAY))) == list(
        range(len(found) + len(later))
    )


def test_in_no_order_within_a_day_the_first_in_time_is_not_passed_by(database: Mongo) -> None:
    """A blank sorts before a T, and clocks are apart: the first text is three days behind the earliest."""
    fill(database, ["2026-01-05 23:59:00-23:59", "2026-01-05T00:00:00+23:59"])
    source = Source(database, POLICY)
    assert told(source.earliest_ending(FIRST)) <= 20_457 * DAY + MINUTE
    assert told(source.latest()) >= 20_460 * DAY - 2 * MINUTE


@pytest.mark.parametrize("offset", ["+24:00", "-24:00", "+48:00", "-4800", "+24", "+99:59", "+23:60"])
def test_an_offset_of_a_day_and_more_is_no_time(database: Mongo, offset: str) -> None:
    """Whatever MongoDB makes of it."""
    fill(database, ["2026-01-05T10:00:00Z", f"2026-01-05T10:00:00{offset}", "2026-01-06T10:00:00Z"])
    source, start = Source(database, POLICY), 20_458 * DAY
    for _ in range(2):
        assert ids(source.untimed()) == [1]
        assert source.earliest_ending(FIRST) in (start, start + 10 * 60 * MINUTE)
        assert source.earliest(start + 2 * DAY) is None
        assert ids(source.ending(start + DAY, start + 2 * DAY)) in ([2], [1, 2])
        found = [decode(batch, POLICY) for batch in source.batches(FIRST, LAST + 1)]
        assert sum(len(it.columns.time) for it in found) == 2
        assert {it.id for decoded in found for it in decoded.quarantined} <= {1}
        source.look_at_texts()
        assert not source.looked.is_plain


def is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("behind", ["", "T10:00:00Z", " 10:00+02:00"])
def test_a_day_that_its_month_does_not_have_is_no_time(database: Mongo, behind: str) -> None:
    """No range of time needs to hold it: it is found all the same."""
    years, months, days = (4, 1900, 2000, 2018, 2020, 9999), range(14), (0, 1, 28, 29, 30, 31, 32)
    dates = [f"{year:04}-{month:02}-{day:02}" for year in years for month in months for day in days]
    fill(database, [f"{it}{behind}" for it in dates])
    none = [i for i, it in enumerate(dates) if not is_day(it)]
    source = Source(database, POLICY)
    assert ids(source.untimed()) == none
    database[POLICY.collection].delete_many({"_id": {"$nin": none[-1:]}})
    source.look_at_texts()
    assert ids(source.untimed()) == none[-1:]


def test_an_offset_may_lead_out_of_the_years_that_count(database: Mongo) -> None:
    rims = ["0001-01-01T00:59:59", "0001-01-01 01:00", "9999-12-31T22:59:59.999", "9999-12-31T23:00:00"]
    fill(database, [f"{it}{zone}" for it in rims for zone in ("Z", "+01:00", "-0100")])
    source = Source(database, POLICY)
    assert ids(source.untimed()) == [1, 11]
    found = [decode(batch, POLICY) for batch in source.batches(FIRST, LAST + 1)]
    assert sum(len(it.columns.time) for it in found) == 10


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.parametrize(
    ("fraction", "ms"),
    [("999", -1), ("999000999", -1), ("999001", 0), ("9995", 0), ("999999999", 0), ("998001", -1)],
)
def test_just_before_1970_what_is_finer_is_cut_off_upwards(
    database: Mongo, fraction: str, ms: int, is_plain: bool
) -> None:
    """As the server cuts it: so it is found where it is decoded."""
    fill(database, [f"1969-12-31T23:59:59.{fraction}Z", "1969-12-31T12:00:00+02:00"][: 2 - is_plain])
    source = Source(database, POLICY)
    source.look_at_texts()
    assert source.looked.is_plain is is_plain
    (decoded,) = [decode(batch, POLICY) for batch in source.batches(ms, ms + 1)]
    assert decoded.columns.time.tolist() == [ms]
    assert 0 in ids(source.ending(ms // DAY * DAY, ms // DAY * DAY + DAY))
    assert 0 not in ids(source.ending(~(ms // DAY) * DAY, ~(ms // DAY) * DAY + DAY))
    assert [ids(source.ending(at, at + 1)) for at in (-1, 0)] == [[0] * (at == ms) for at in (-1, 0)]
    assert source.earliest_ending(0) == (0 if ms == 0 else None)
    assert told(source.latest()) >= ms
