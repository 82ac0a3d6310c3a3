"""Answers from summaries alone: equal to what plain Python makes of the readings, and honest about gaps."""

from __future__ import annotations

import math
import random
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from bson.int64 import Int64
from bson.objectid import ObjectId
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.source import Source
from bucketwise.config.errors import BucketwiseError, InterruptedRun, UsageError
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy, Retain
from bucketwise.rollups.answers import Answer, Question, summarize
from bucketwise.rollups.calendar.tiling import NOT_ROLLED_UP, PAST_RETENTION
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.rolling.expiry import expire_summaries
from bucketwise.rollups.statistics import statistics_of
from bucketwise.rollups.summaries.documents import OPTIONS
from bucketwise.rollups.summaries.summary import State, aggregate
from tests.examples import examples
from tests.rollups.conftest import Bench
from tests.rollups.samples import Reading, plain_deviation, plain_summary
from tests.tiers import tier

Document = dict[str, Any]
FIRST = datetime(2021, 3, 26, tzinfo=UTC)  # two days before clocks change in Berlin
NOW = datetime(2021, 4, 2, 6, 5, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
PERCENTS = (0, 12.5, 50, 99.9, 100)


def policy_of(zone: str = "UTC", **more: Any) -> Policy:
    said: dict[str, Any] = {
        "name": "ticks",
        "collection": "ticks",
        "model": "reading",
        "time_field": "d",
        "series_fields": ("symbol",),
        "value_fields": ("p", "book.depth"),
        "rollup": {"hourly": "hourly", "daily": "daily", "timezone": zone, "percentiles": (50,)},
    }
    return make_policy(**(said | more))


def ticks(count: int, days: int = 7) -> list[Document]:
    """Prices of every size and sign, some no numbers; times that tie."""
    source = random.Random(count)
    odd = [None, "text", math.nan, -math.inf, 0.0, -0.0, 1e300, 5e-324]
    found = []
    for number in range(count):
        at = FIRST + timedelta(minutes=10 * source.randrange(days * 144))
        price = (
            odd[number % 80] if number % 80 < len(odd) else source.gauss(0, 10.0 ** source.randrange(-3, 4))
        )
        document = {"_id": number, "symbol": f"S{number % 3}", "d": at, "p": price}
        found.append(document | ({"book": {"depth": number % 7}} if number % 4 else {}))
    return found


def plain(found: list[Document]) -> list[Reading]:
    return [
        Reading(one["_id"], 0, to_ms(one["d"]), (one["p"], _double(one.get("book", {}).get("depth"))))
        for one in found
    ]


def _double(value: int | None) -> float | None:
    return None if value is None else float(value)


def check_told(told: Document, found: list[Document]) -> None:
    """Against plain Python; percentiles by the nearest rank in the sorted numbers."""
    assert told["count"] == len(found)
    readings = plain(found)
    for at, name in enumerate(("p", "book.depth")):
        wanted = plain_summary(readings, at)
        values = told["values"][name]
        assert {key: values[key] for key in wanted} == wanted
        numbers = [one.values[at] for one in readings if isinstance(one.values[at], float)]
        numbers = sorted(value for value in numbers if math.isfinite(value))
        if numbers and max(map(abs, numbers)) < 1e150:
            assert values["stddev"] == pytest.approx(plain_deviation(numbers), rel=1e-12)
        for percent in PERCENTS if numbers else ():
            rank = max(1, math.ceil(percent * len(numbers) / 100))
            key = "p" + str(percent).replace(".", "_")
            assert values[key] == pytest.approx(numbers[rank - 1], rel=0.01, abs=0)


def recomputed(bench: Bench, policy: Policy, start: datetime, end: datetime) -> list[tuple[Any, State]]:
    """The states of the range as one window, from the readings."""
    edges = np.array([to_ms(start), to_ms(end)], dtype=np.int64)
    batches = list(Source(bench.database, policy).batches(*edges.tolist()))
    if not batches:
        return []
    columns = decode(Batch.concat(batches), policy).columns
    return sorted(
        (columns.series[series], state)
        for series, _, state in aggregate(columns, edges, statistics_of(policy))
    )


@pytest.mark.in_turn(1)
@pytest.mark.parametrize(
    "zone",
    [
        pytest.param(zone, marks=tier(is_first=zone in ("UTC", "Australia/Lord_Howe"), is_proof=True))
        for zone in ("UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe")
    ],
)
def test_any_range_equals_its_readings_to_the_bit(bench: Bench, zone: str) -> None:
    found, policy = ticks(900), policy_of(zone)
    bench.database["ticks"].insert_many(found)
    bench.roll_up(policy, NOW)
    midnight = FIRST.astimezone(ZoneInfo(zone)).replace(hour=0, minute=0)
    days = [(midnight + count * DAY).replace(fold=0).astimezone(UTC) for count in range(1, 7)]

    hours = [FIRST + count * HOUR for count in range(7 * 24 + 6)]  # the last one is over and settled

    @settings(max_examples=examples(15))
    @given(
        st.one_of(
            *(st.lists(st.sampled_from(it), min_size=2, max_size=2, unique=True) for it in (hours, days))
        )
    )
    def check(chosen: list[datetime]) -> None:
        since, until = sorted(chosen)
        answer = summarize(bench.database, policy, Question(since=since, until=until, percentiles=PERCENTS))
        assert answer.is_complete
        inside = [one for one in found if since <= one["d"] < until]
        assert list(answer.states) == recomputed(bench, policy, since, until)
        assert [series for (series,), _ in answer.states] == sorted({one["symbol"] for one in inside})
        for (series,), state in answer.states:
            check_told(answer.statistics(state), [one for one in inside if one["symbol"] == series])

    check()


def test_raw_readings_are_not_needed(bench: Bench) -> None:
    found, policy = ticks(300), policy_of()
    bench.database["ticks"].insert_many(found)
    bench.roll_up(policy, NOW)
    bench.database["ticks"].drop()
    answer = summarize(
        bench.database,
        policy,
        Question(since=FIRST, until=FIRST + 6 * DAY + 7 * HOUR, percentiles=PERCENTS),
    )
    assert (answer.tiling.windows("daily"), answer.tiling.windows("hourly")) == (6, 7)
    inside = [one for one in found if one["d"] < FIRST + 6 * DAY + 7 * HOUR]
    for (series,), state in answer.states:
        check_told(answer.statistics(state), [one for one in inside if one["symbol"] == series])


def test_all_series_as_one(bench: Bench) -> None:
    found, policy = ticks(300), policy_of()
    bench.database["ticks"].insert_many(found)
    bench.roll_up(policy, NOW)
    answer = summarize(
        bench.database,
        policy,
        Question(since=FIRST, until=FIRST + 3 * DAY, percentiles=PERCENTS, by_series=False),
    )
    ((series, state),) = answer.states
    assert series == ()
    check_told(answer.statistics(state), [one for one in found if one["d"] < FIRST + 3 * DAY])


def test_a_range_without_readings_is_an_answer(bench: Bench) -> None:
    bench.database["ticks"].insert_many(ticks(20, days=1))
    policy = policy_of()
    bench.roll_up(policy, NOW)
    answer = summarize(bench.database, policy, Question(since=FIRST + 3 * DAY, until=FIRST + 4 * DAY))
    assert (answer.is_complete, answer.summaries, list(answer.states)) == (True, 0, [])


def gaps(answer: Answer) -> list[tuple[datetime, datetime, str | None]]:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return [
        (epoch + timedelta(milliseconds=it.start), epoch + timedelta(milliseconds=it.end), it.reason)
        for it in answer.tiling.missing
    ]


def test_what_is_not_rolled_up_is_missing_and_never_a_low_count(bench: Bench) -> None:
    found, policy = ticks(300, days=8), policy_of()
    bench.database["ticks"].insert_many(found)
    nothing = summarize(bench.database, policy, Question(since=FIRST, until=FIRST + DAY))
    assert gaps(nothing) == [(FIRST, FIRST + DAY, NOT_ROLLED_UP)]
    bench.roll_up(policy, NOW)  # settles 10 minutes: 05:00 is the last hour that is over
    answer = summarize(bench.database, policy, Question(since=FIRST, until=FIRST + 8 * DAY))
    through = NOW.replace(hour=5, minute=0)
    assert gaps(answer) == [(through, FIRST + 8 * DAY, NOT_ROLLED_UP)]
    assert sum(state.count for _, state in answer.states) == sum(one["d"] < through for one in found)
    # Summaries of other settings count for nothing until they are made anew.
    changed = policy_of("Europe/Berlin")
    assert not summarize(bench.database, changed, Question(since=FIRST, until=FIRST + 6 * HOUR)).is_complete


SHORT = Retain(hourly=2 * DAY, daily=5 * DAY, grace=timedelta(0))


def test_what_is_past_retention_is_missing(bench: Bench) -> None:
    found, policy = ticks(300), policy_of(retain=Retain(hourly=2 * DAY, daily=5 * DAY))
    bench.database["ticks"].insert_many(found)
    bench.roll_up(policy, FIRST + DAY)
    bench.roll_up(policy, NOW)
    late = NOW.replace(hour=0, minute=0)
    expire_summaries(bench.context(policy, NOW))
    answer = summarize(bench.database, policy, Question(since=FIRST, until=late))
    assert answer.is_complete  # what waits under a tombstone answers
    expire_summaries(bench.context(policy.model_copy(update={"retain": SHORT}), NOW))
    answer = summarize(bench.database, policy, Question(since=FIRST, until=late))
    assert gaps(answer) == [(FIRST, FIRST + 2 * DAY, PAST_RETENTION)]
    inside = [one for one in found if FIRST + 2 * DAY <= one["d"] < late]
    assert sum(state.count for _, state in answer.states) == len(inside)
    answer = summarize(bench.database, policy, Question(since=FIRST + 4 * DAY - HOUR, until=late))
    assert gaps(answer) == [(FIRST + 4 * DAY - HOUR, FIRST + 4 * DAY, PAST_RETENTION)]


def test_a_longer_retention_brings_back_what_readings_give(bench: Bench) -> None:
    found, policy = ticks(300), policy_of(retain=SHORT)
    bench.database["ticks"].insert_many(found)
    bench.roll_up(policy, NOW)
    longer = policy_of(retain=Retain(hourly=60 * DAY, daily=60 * DAY))
    day, hour = (FIRST, FIRST + DAY), (FIRST + 3 * DAY, FIRST + 3 * DAY + HOUR)
    expire_summaries(bench.context(policy, NOW))
    expire_summaries(bench.context(policy, NOW - DAY))  # an earlier instant tells of no less
    for since, until in (day, hour):
        answer = summarize(bench.database, longer, Question(since=since, until=until))
        assert gaps(answer) == [(since, until, PAST_RETENTION)]
    bench.database["ticks"].delete_one({"_id": found[0]["_id"]})
    first = min(it["d"] for it in found[1:])
    bench.roll_up(longer, NOW)
    answer = summarize(bench.database, longer, Question(since=FIRST, until=FIRST + 5 * DAY))
    begins = first.replace(minute=0, second=0, microsecond=0) + HOUR
    assert gaps(answer) == [(FIRST, begins, PAST_RETENTION)]  # of its hour, something may have been purged
    inside = [it for it in found[1:] if begins <= it["d"] < FIRST + 5 * DAY]
    assert sum(state.count for _, state in answer.states) == len(inside)


@pytest.mark.parametrize("daily", ["daily", None])
def test_days_by_the_readings_own_clocks_do_not_meet_hours(bench: Bench, daily: str | None) -> None:
    """So the hours answer; where there are only such days, the range is by those clocks too."""
    documents: list[Document] = [
        {"_id": number, "symbol": "S", "d": FIRST + number * HOUR, "p": 1.0, "offset": -330}
        for number in range(72)
    ]
    bench.database["ticks"].insert_many(documents)
    rollup = {"hourly": "hourly", "daily": "daily", "percentiles": (50,)} if daily else {"daily": "daily"}
    policy = policy_of(rollup=rollup, local_offset_field="offset", value_fields=("p",))
    bench.roll_up(policy, NOW)
    answer = summarize(bench.database, policy, Question(since=FIRST + DAY, until=FIRST + 2 * DAY))
    ((_, state),) = answer.states
    assert (answer.tiling.windows("hourly"), answer.tiling.windows("daily")) == ((24, 0) if daily else (0, 1))
    shift = timedelta(0) if daily else timedelta(minutes=330)
    assert state.count == sum(FIRST + DAY <= one["d"] + shift < FIRST + 2 * DAY for one in documents)
    assert answer.statistics(state)["values"]["p"]["first_at"] == FIRST + (24 if daily else 19) * HOUR


def test_what_is_missing_is_told_where_an_interval_is_expected(bench: Bench) -> None:
    documents = [
        {"_id": number, "symbol": "S", "d": FIRST + number * timedelta(minutes=10), "p": 1.0}
        for number in range(144 * 2)
        if not 30 <= number < 37 and number != 144
    ]
    bench.database["ticks"].insert_many(documents)
    policy = policy_of(expected_interval=timedelta(minutes=10), value_fields=("p",))
    bench.roll_up(policy, NOW)
    answer = summarize(bench.database, policy, Question(since=FIRST + HOUR, until=FIRST + 2 * DAY))
    ((_, state),) = answer.states
    told = answer.statistics(state)
    assert (told["expected"], told["missing"], told["longest_hole"]) == (144 * 2 - 6, 8, 7 * 600)
    assert told["longest_hole_at"] == FIRST + 5 * HOUR
    # What is not rolled up yet is no hole.
    answer = summarize(
        bench.database, policy, Question(since=FIRST + HOUR, until=NOW.replace(minute=0) + DAY)
    )
    assert "missing" not in answer.statistics(answer.states[0][1])


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("MDB", "MDB"), ("7", "7"), (7, "7"), (7.5, "7.5"), (True, "true"), (FIRST, FIRST.isoformat()),
        (ObjectId("64f0c0ffee64f0c0ffee64f0"), "64f0c0ffee64f0c0ffee64f0"),
        ({"b": 1, "a": [2]}, '{"a": [2], "b": 1}'), (b"ab", "b'ab'"), (1e20, "1e+20"),
        (Int64(2**53 + 1), "9007199254740993"), (7.0, "7"), (UUID(int=9), str(UUID(int=9))), ("true", "true"),
    ],
)  # fmt: skip
def test_series_are_named_by_their_text(bench: Bench, value: Any, text: str) -> None:
    policy = policy_of(series_fields=("symbol", "meta.unit"))
    others = ["MDBX", 8, 7.25, False, {"a": 1}]
    documents = [
        {"_id": at, "symbol": symbol, "meta": {"unit": unit}, "d": FIRST + at * HOUR, "p": 1.0}
        for at, (symbol, unit) in enumerate(
            (symbol, unit) for symbol in [value, *others] for unit in (1, "b")
        )
    ]
    bench.database.get_collection("ticks", codec_options=OPTIONS).insert_many(documents)
    bench.roll_up(policy, NOW)

    def counts(**asked: str) -> dict[Any, int]:
        named = {name.replace("_", "."): wanted for name, wanted in asked.items()}
        answer = summarize(bench.database, policy, Question(since=FIRST, until=FIRST + DAY, series=named))
        return {str(series): state.count for series, state in answer.states}

    assert len(counts(symbol=text)) == 2
    assert list(counts(symbol=text, meta_unit="b").values()) == [1]
    assert len(counts(meta_unit="1")) == 6
    assert counts(symbol="nobody") == {}


def test_bad_questions_are_refused(bench: Bench) -> None:
    policy = policy_of()
    day: dict[str, Any] = {"since": FIRST, "until": FIRST + DAY}
    bare = policy_of(rollup={"hourly": "hourly", "daily": "daily"})
    questions: list[tuple[Document, str]] = [
        ({"percentiles": [101]}, "no percentile 101: write numbers from 0 to 100, both included"),
        ({"percentiles": [math.nan]}, "no percentile nan"),
        ({"series": {"symbl": "x"}}, "has no such series field; it has symbol"),
        ({"until": FIRST}, "the range is empty"),
        ({"since": FIRST + HOUR / 2}, "no whole windows make up"),
    ]
    for wrong, fragment in questions:
        with pytest.raises(UsageError, match=fragment):
            summarize(bench.database, policy, Question(**(day | wrong)))
    with pytest.raises(UsageError, match=r"keeps no percentiles. Add `percentiles"):
        summarize(bench.database, bare, Question(**day, percentiles=[50]))
    with pytest.raises(UsageError, match="makes no summaries"):
        summarize(bench.database, policy_of(rollup=None), Question(**day))


def test_without_percentiles_all_else_is_told(bench: Bench) -> None:
    policy = policy_of(rollup={"hourly": "hourly", "daily": "daily"})
    bench.database["ticks"].insert_many(ticks(50))
    bench.roll_up(policy, NOW)
    answer = summarize(bench.database, policy, Question(since=FIRST, until=FIRST + 5 * DAY))
    values = answer.statistics(answer.states[0][1])["values"]["p"]
    assert values["count"] > 0
    assert not [key for key in values if key[0] == "p"]


def test_a_summary_that_cant_be_used_is_an_error(bench: Bench) -> None:
    policy = policy_of()
    bench.database["ticks"].insert_many(ticks(100))
    bench.roll_up(policy, NOW)
    day: dict[str, Any] = {"since": FIRST, "until": FIRST + DAY}
    hourly, daily = bench.database["hourly"], bench.database["daily"]
    updates: list[tuple[Document, str]] = [
        ({"$unset": {"p.state": 1}}, "no state for 'p'"),
        ({"$set": {"end": FIRST + 25 * HOUR}}, "its window is not one of this policy's"),
    ]
    for update, fragment in updates:
        before = daily.find_one({"start": FIRST})
        assert before is not None
        daily.update_one({"_id": before["_id"]}, update)
        with pytest.raises(BucketwiseError, match=fragment) as raised:
            summarize(bench.database, policy, Question(**day))
        assert "rollup --since 2021-03-26T00:00:00Z" in str(raised.value)
        daily.replace_one({"_id": before["_id"]}, before)
    assert summarize(bench.database, policy, Question(**day)).is_complete
    # Somebody else's document in the collection is no summary.
    hourly.insert_one({"start": FIRST, "note": "ours"})
    assert summarize(bench.database, policy, Question(since=FIRST, until=FIRST + HOUR)).is_complete


@pytest.mark.proof
def test_it_stops_where_it_is_asked_to(bench: Bench) -> None:
    policy = policy_of()
    bench.database["ticks"].insert_many(ticks(3000))
    bench.roll_up(policy, NOW)

    def stop() -> None:
        raise InterruptedRun("enough")

    only_hours = policy.model_copy(update={"rollup": policy.rollup.model_copy(update={"daily": None})})  # type: ignore[union-attr]
    bench.roll_up(only_hours, NOW)
    with pytest.raises(InterruptedRun):
        summarize(bench.database, only_hours, Question(since=FIRST, until=FIRST + 7 * DAY), check=stop)


@pytest.mark.proof
def test_memory_does_not_grow_with_the_windows(bench: Bench) -> None:
    """Six times the windows: far from six times the memory."""
    policy = policy_of(rollup={"hourly": "hourly", "percentiles": (50,)})
    start = datetime(2020, 1, 1, tzinfo=UTC)
    documents = [
        {"_id": at, "symbol": "S", "d": start + at * HOUR, "p": float(at % 50)} for at in range(6 * 500)
    ]
    bench.database["ticks"].insert_many(documents)
    bench.roll_up(policy, NOW)
    peaks = []
    for hours in (500, 500, 6 * 500):  # the first one fills caches
        tracemalloc.start()
        answer = summarize(bench.database, policy, Question(since=start, until=start + hours * HOUR))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert answer.states[0][1].count == hours
    assert peaks[2] < 2 * peaks[1]
