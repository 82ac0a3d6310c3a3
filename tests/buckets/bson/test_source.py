"""Reading buckets from a real mongod, against all of its documents and plain loops."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any, cast

import bson
import pytest
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.raw_bson import RawBSONDocument
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo.database import Database

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.collations import find_by_ids
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.source import Source
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Overflow
from tests.buckets import handmade as bson_of
from tests.buckets import oracle
from tests.buckets.bad_documents import BAD_DOCUMENTS, READING, SAMPLES, SECONDS
from tests.buckets.bson.test_raw import buckets_of
from tests.buckets.odd_documents import IDS
from tests.buckets.oracle import Bucket
from tests.buckets.strategies import FIRST, LAST, Case, cases
from tests.examples import examples

pytestmark = pytest.mark.filterwarnings("error")
Mongo = Database[dict[str, Any]]
MONTH = {"slot": "day", "span": "month"}
BERLIN = {"slot": "30m", "span": "day", "timezone": "Europe/Berlin"}
few = settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))


def store(database: Mongo, policy: Any, found: Iterable[Bucket]) -> list[Bucket]:
    """The buckets as the server holds them: it moves `_id` to the front."""
    found = list(found)
    names = [policy.collection, *([policy.overflow.collection] if policy.overflow else [])]
    stored: list[dict[str, bytes]] = []
    for name, documents in zip(
        names, ([b.main for b in found], [e for b in found for e in b.extras]), strict=False
    ):
        collection = database.get_collection(name, codec_options=oracle.OPTIONS)
        collection.delete_many({})
        if documents:
            collection.insert_many([cast(Any, RawBSONDocument(document)) for document in documents])
        held = Docs.split(b"".join(cast(Any, collection.find_raw_batches())))
        stored.append({held.raw_id(i).hex(): held[i] for i in range(len(held))})

    def as_stored(document: bytes, at: int) -> bytes:
        return stored[at][Docs.of([document]).raw_id(0).hex()]

    return [Bucket(as_stored(b.main, 0), tuple(as_stored(e, 1) for e in b.extras)) for b in found]


def units(batches: Iterable[Batch]) -> list[Bucket]:
    return sorted(bucket for batch in batches for bucket in buckets_of(batch))


def told(policy: Any, bucket: Bucket) -> tuple[int, int, int]:
    """First and last time that a bucket says it covers, and its last time as `ending` takes it."""
    document = oracle.decoded(bucket.main)
    if policy.model == "samples":
        times = [it.time for it in oracle.readings(policy, bucket)]
        if policy.start_field is None and policy.end_field is None:
            return min(times), max(times), max(times)
        if policy.end_field is None:
            first = oracle.own_time(policy, document, "first")
            return first, max([first, *times]), first
        end = oracle.own_time(policy, document, policy.end_field)
        if policy.start_field is None:
            first = min(times, default=end)
        else:
            first = oracle.own_time(policy, document, "first")
        last = oracle.at(document, policy.end_field)
        whole = isinstance(last, int) and policy.time_unit in (None, "s")
        return first, end + (999 if whole else 0), end
    start = oracle.own_time(policy, document, str(policy.time_field))
    if policy.model != "slots":
        return start, start, start
    return start, start + oracle.span_of(policy) * 1000 - 1, start


def near(policy: Any, found: int | None, expected: int | None, direction: int) -> bool:
    """Whether it is the expected instant; where times are text, at most three days before (or after)."""
    if (
        found is None
        or expected is None
        or "iso" not in (policy.time_unit, getattr(policy, "sample_time_unit", None))
    ):
        return found == expected
    return 0 <= (expected - found) * direction <= 3 * DAY_MS


@st.composite
def moments(draw: st.DrawFn, case: Case) -> int:
    """A point of time near one that matters."""
    points = {FIRST, LAST, 0}
    for bucket in case.buckets:
        points |= {*told(case.policy, bucket), *(r.time for r in oracle.readings(case.policy, bucket))}
    found = draw(st.sampled_from(sorted(points))) + draw(st.sampled_from([-1, 0, 0, 1, 1000]))
    return found // 1000 * 1000 if draw(st.booleans()) else found


@few
@given(cases(), st.data())
def test_finds_what_plain_loops_find(database: Mongo, case: Case, data: st.DataObject) -> None:
    policy = case.policy
    found = store(database, policy, case.buckets)
    source = Source(database, policy)
    start, end = sorted(data.draw(st.tuples(moments(case), moments(case))))
    start, end = max(start, FIRST), min(end, LAST + 1)
    covers = {bucket: told(policy, bucket) for bucket in found}

    held = units(source.batches(start, end))
    needed = [b for b in found if any(start <= r.time < end for r in oracle.readings(policy, b))]
    since = start // 1000 * 1000 if policy.model == "samples" else start  # seconds are asked for whole
    allowed = [b for b, (first, last, _) in covers.items() if first < end and last >= since]
    unended = policy.model == "samples" and policy.end_field is None
    is_sampled = policy.model == "samples" and None in (policy.start_field, policy.end_field)
    if is_sampled and policy.sample_time_unit == "iso":
        allowed = found
    assert set(needed) <= set(held) <= set(allowed) and len(held) == len(set(held))

    ending = sorted(b for b, (_, _, last) in covers.items() if start <= last < end)
    assert units(source.ending(start, end)) == ending
    assert source.count_ending(start, end) == len(ending)
    later = [last for _, _, last in covers.values() if last >= start]
    assert near(policy, source.earliest_ending(start), min(later, default=None), 1)
    latest = max(covered if unended else last for _, covered, last in covers.values())
    assert near(policy, source.latest(), latest, -1)
    start = start // 1000 * 1000
    covered = [max(first, start) for first, last, _ in covers.values() if last >= start]
    assert near(policy, source.earliest(start), min(covered, default=None), 1)
    assert near(policy, source.earliest(), max(FIRST, min(first for first, _, _ in covers.values())), 1)

    assert units(source.untimed()) == []
    ids = [Docs.of([b.main]).decode_id(0) for b in found]
    assert units(source.by_ids(ids)) == sorted(found)
    assert source.present(ids[:1]) == {Docs.of([found[0].main]).raw_id(0)}


@few
@given(cases())
def test_hopping_from_end_to_end_meets_every_bucket_once(database: Mongo, case: Case) -> None:
    found = store(database, case.policy, case.buckets)
    source = Source(database, case.policy)
    ended: list[Bucket] = []
    at = source.earliest_ending(FIRST)
    by_samples = case.policy.model == "samples" and not (case.policy.start_field or case.policy.end_field)
    unit = case.policy.sample_time_unit if by_samples else case.policy.time_unit
    step = 3 * DAY_MS + 1 if unit == "iso" else 1
    while at is not None:
        here = units(source.ending(at, at + step))
        assert here
        ended += here
        at = source.earliest_ending(at + step)
    assert sorted(ended) == sorted(found)


def usable(time: Any, *, seconds: bool) -> bool:
    if isinstance(time, datetime | DatetimeMS):
        return FIRST <= oracle.milliseconds(time) <= LAST
    if not seconds or isinstance(time, bool) or not isinstance(time, int | float | Decimal128):
        return False
    number = float(str(time))
    return math.isfinite(number) and FIRST <= number * 1000 < LAST + 0.5


@pytest.mark.parametrize("model", ["reading", "slots", "samples"])
def test_strays_are_all_documents_without_usable_time_and_only_those(database: Mongo, model: str) -> None:
    options = {"reading": READING, "slots": SECONDS, "samples": SAMPLES}[model]
    policy = make_policy(**options)
    fields = ["first", "last"] if model == "samples" else ["d"]
    odd = ("UTF-8", "time twice,")  # the oracle reads the last of two, MongoDB the first
    chosen = [it for it in BAD_DOCUMENTS if it.options == options and not any(o in it.id for o in odd)]
    strays = 0
    for bad in chosen:
        (bucket,) = store(database, policy, [bad.bucket])
        document = oracle.decoded(bucket.main)
        is_stray = not all(usable(document.get(field), seconds=model == "samples") for field in fields)
        assert units(Source(database, policy).untimed()) == ([bucket] if is_stray else []), bad.id
        strays += is_stray
        if is_stray:
            (batch,) = Source(database, policy).untimed()
            assert len(decode(batch, policy).quarantined) == 1
    assert 0 < strays < len(chosen)


@pytest.mark.parametrize("model", ["reading", "slots", "samples"])
def test_bad_times_do_not_stop_the_search_for_the_first_and_last(database: Mongo, model: str) -> None:
    """Arrays sort by what is in them, decimals by their number; neither is a time."""
    policy = make_policy(**{"reading": READING, "slots": SECONDS, "samples": SAMPLES}[model])
    fields = ("first", "last") if model == "samples" else ("d",)
    good, early = datetime(2020, 1, 1, tzinfo=UTC), datetime(2010, 1, 1, tzinfo=UTC)
    odd: list[Any] = [
        [early],
        [[early]],
        [1, early],
        "x",
        None,
        {"a": early},
        float("nan"),
        DatetimeMS(LAST + 1),
    ]
    odd += [[5], DatetimeMS(FIRST - 1), 1e300, -(2**63)]
    collection = database.get_collection(policy.collection, codec_options=oracle.OPTIONS)
    collection.insert_many([dict.fromkeys(fields, time) for time in [*odd, good]])
    source = Source(database, policy)
    at = oracle.milliseconds(good)
    assert source.earliest() == source.earliest_ending(FIRST) == source.latest() == at
    assert sum(len(batch) for batch in source.untimed()) == len(odd)
    assert source.earliest(at + 3_600_000) is None


@pytest.mark.parametrize(
    ("keys", "starts", "at", "earliest"),
    [
        # A month ends with its last day, whatever others have.
        (MONTH, ("2025-02-01T00:00", "2025-04-01T00:00"), "2025-02-28T23:59", "2025-02-28T23:59"),
        (MONTH, ("2025-02-01T00:00", "2025-04-01T00:00"), "2025-03-01T00:00", "2025-04-01T00:00"),
        (BERLIN, ("2025-03-29T23:00", "2025-04-01T22:00"), "2025-03-30T21:30", "2025-03-30T21:30"),
        (BERLIN, ("2025-03-29T23:00", "2025-04-01T22:00"), "2025-03-30T22:00", "2025-04-01T22:00"),
        (BERLIN, ("2025-10-25T22:00", "2025-10-28T23:00"), "2025-10-26T22:30", "2025-10-26T22:30"),
        (BERLIN, ("2025-10-25T22:00", "2025-10-28T23:00"), "2025-10-26T23:00", "2025-10-28T23:00"),
    ],
)
def test_days_and_months_are_as_long_as_they_are(
    database: Mongo, keys: dict[str, Any], starts: tuple[str, ...], at: str, earliest: str
) -> None:
    policy = make_policy(**{**SECONDS, **keys})
    dates = [datetime.fromisoformat(f"{it}+00:00") for it in (*starts, at, earliest)]
    database[policy.collection].insert_many({"d": it, "symbol": "x", "p": {"1": 1}} for it in dates[:-2])
    source, (start, found) = Source(database, policy), map(oracle.milliseconds, dates[-2:])
    assert source.earliest(start) == found
    assert len(units(source.batches(start, start + 1))) >= (start == found)


def test_a_decimal_bound_is_found_and_quarantined(database: Mongo) -> None:
    policy = make_policy(**SAMPLES)
    database[policy.collection].insert_one({"first": Decimal128("1.001"), "last": Decimal128("5")})
    source = Source(database, policy)
    assert (source.earliest(), source.latest()) == (1001, 5000)
    (batch,) = source.batches(4000, 4001)
    assert [quarantined.field for quarantined in decode(batch, policy).quarantined] == ["first"]


def test_times_under_an_array_are_strays(database: Mongo) -> None:
    policy = make_policy(**{**READING, "time_field": "at.d"})
    now = datetime(2020, 1, 1, tzinfo=UTC)
    database[policy.collection].insert_many([{"_id": 1, "at": [{"d": now}]}, {"_id": 2, "at": {"d": now}}])
    source = Source(database, policy)
    assert source.earliest() == source.latest() == oracle.milliseconds(now)
    assert [bucket.id for bucket in units(source.untimed())] == [1]


def test_no_bucket_at_all(database: Mongo) -> None:
    for options in (READING, SECONDS, SAMPLES):
        source = Source(database, make_policy(**options))
        assert source.earliest() is source.earliest(5) is source.earliest_ending(0) is source.latest() is None
        assert list(source.batches(FIRST, LAST + 1)) == list(source.untimed()) == []


def test_the_very_first_and_last_instant_can_be_had(database: Mongo) -> None:
    policy = make_policy(**READING)
    dates = [DatetimeMS(FIRST), DatetimeMS(LAST)]
    database[policy.collection].insert_many([{"_id": i, "symbol": "x", "d": d} for i, d in enumerate(dates)])
    source = Source(database, policy)
    assert [b.id for b in units(source.batches(FIRST, LAST + 1))] == [0, 1]
    assert [b.id for b in units(source.batches(LAST, LAST + 1))] == [1]
    assert [b.id for b in units(source.ending(FIRST, FIRST + 1))] == [0]
    assert (source.earliest(), source.latest(), source.earliest(LAST + 1)) == (FIRST, LAST, None)


@pytest.mark.parametrize("seconds", [1.001, 1535530412.123, 0.9996, 4.35, 1.0049999])
def test_times_in_fractions_of_a_second_never_step_back(database: Mongo, seconds: float) -> None:
    policy = make_policy(**SAMPLES)
    database[policy.collection].insert_one({"first": seconds, "last": seconds})
    source, at = Source(database, policy), math.floor(seconds * 1000 + 0.5)
    assert source.earliest(at - 500) == source.earliest(at) == source.earliest_ending(at) == at
    assert source.earliest(at + 1000) is source.earliest_ending(at + 1) is None
    for search in (source.batches, source.ending):
        found = [
            sum(len(b) for b in search(*span)) for span in ((at - 1, at), (at, at + 1), (at + 1, at + 2))
        ]
        assert found[1] == 1 and (search == source.batches or found == [0, 1, 0])


def test_a_bound_in_whole_seconds_stands_for_its_whole_second(database: Mongo) -> None:
    policy = make_policy(**SAMPLES)
    sample = {"time": 7.75, "p": 1}
    database[policy.collection].insert_many(
        [
            {"_id": i, "symbol": "x", "first": 5, "last": last, "n": 1, "sum": 1, "samples": [sample]}
            for i, last in enumerate([7, bson.Int64(7)])
        ]
    )
    source = Source(database, policy)
    found = [bucket for batch in source.batches(7700, 7800) for bucket in buckets_of(batch)]
    assert sorted(bucket.id for bucket in found) == [0, 1]
    (batch,) = source.batches(7750, 7751)
    assert decode(batch, policy).columns.time.tolist() == [7750, 7750]
    assert list(source.batches(8000, 9000)) == []


MORE = Overflow(flag_field="has_more", collection="it_more", ref_field="bucket", samples_field="more")


def test_overflow_goes_with_its_bucket_in_id_order(database: Mongo) -> None:
    """Whatever type the `_id`s have; the client here knows no UUIDs."""
    policy = make_policy(**{**SECONDS, "overflow": MORE})
    keys: list[Any] = [
        *(2, 7.0, bson.Int64(9), "a", "a\0", b"a", b"a\0", uuid.UUID(int=0), True),
        *(datetime(2020, 1, 1, tzinfo=UTC), Decimal128("0.1"), 0.1, bson.ObjectId(bytes(12))),
        *({"a": 1, "b": "x"}, {"b": "x", "a": 1}),
    ]  # fmt: skip
    main = database.get_collection(policy.collection, codec_options=oracle.OPTIONS)
    extra = database.get_collection(MORE.collection, codec_options=oracle.OPTIONS)
    start = datetime(2020, 1, 1, tzinfo=UTC)
    main.insert_many(
        [{"_id": key, "symbol": "x", "d": start, "has_more": i != 3} for i, key in enumerate(keys)]
    )
    for number in (3, 1, 2):
        references = [int(key) if key == 7.0 else key for key in keys]  # equal, of another type
        extra.insert_many(
            [
                {"_id": 100 * i + number, "bucket": key, "more": {str(number): i}}
                for i, key in enumerate(references)
            ]
        )
    extra.insert_many([{"bucket": "nobody", "more": {}}, {"more": {}}, {"bucket": [2], "more": {}}])
    (batch,) = Source(database, policy).batches(FIRST, LAST)
    for i, bucket in enumerate(buckets_of(batch)):
        expected = [100 * i + number for number in (1, 2, 3)] if i != 3 else []
        assert [oracle.decoded(e)["_id"] for e in bucket.extras] == expected, keys[i]
    decoded = decode(batch, policy)
    assert decoded.quarantined == [] and len(decoded.columns.time) == 3 * (len(keys) - 1)


def test_overflow_of_more_buckets_than_one_look_up_takes(database: Mongo) -> None:
    policy = make_policy(**{**SECONDS, "overflow": MORE})
    start = datetime(2020, 1, 1, tzinfo=UTC)
    number = 2345
    database["it"].insert_many(
        [
            {"_id": i, "symbol": "x", "d": start + timedelta(minutes=i), "has_more": True}
            for i in range(number)
        ]
    )
    database["it_more"].insert_many([{"bucket": i, "more": {"5": i}} for i in reversed(range(number))])
    found = [
        bucket for batch in Source(database, policy).batches(FIRST, LAST) for bucket in buckets_of(batch)
    ]
    assert [oracle.decoded(extra)["bucket"] for bucket in found for extra in bucket.extras] == list(
        range(number)
    )


def test_other_collections_of_the_same_layout(database: Mongo) -> None:
    policy = make_policy(**{**SECONDS, "overflow": MORE})
    start = datetime(2020, 1, 1, tzinfo=UTC)
    database["a"].insert_one({"_id": 1, "symbol": "x", "d": start, "has_more": True})
    database["b"].insert_one({"bucket": 1, "more": {"5": 1}})
    (bucket,) = units(Source(database, policy, "a", "b").batches(FIRST, LAST))
    assert len(bucket.extras) == 1


def raw_id_of(value: bson_of.Value) -> bytes:
    return Docs.of([bson_of.document(("_id", value))]).raw_id(0)


def test_documents_are_found_by_an_id_of_any_type(database: Mongo) -> None:
    documents = {name: bson_of.document(("_id", value)) for name, value in IDS.items()}
    database["it"].insert_many([cast(Any, RawBSONDocument(it)) for it in documents.values()])
    for name, value in IDS.items():
        (found,) = find_by_ids(database["it"], [raw_id_of(value)])
        assert list(found) == [documents[name]]
    every = find_by_ids(database["it"], [raw_id_of(value) for value in IDS.values()])
    assert sorted(it for some in every for it in some) == sorted(documents.values())
    assert not list(find_by_ids(database["it"], []))


@few
@given(there=st.sets(st.integers(0, 40)), wanted=st.lists(st.integers(0, 40), unique=True))
def test_object_ids_that_lie_together_or_apart(database: Mongo, there: set[int], wanted: list[int]) -> None:
    """Of some that are there, and others between them."""
    documents = {i: bson_of.document(("_id", bson_of.object_id(bytes([i] * 12)))) for i in range(41)}
    database["it"].delete_many({})
    if there:
        database["it"].insert_many([cast(Any, RawBSONDocument(documents[i])) for i in there])
    raw_ids = [Docs.of([documents[i]]).raw_id(0) for i in wanted]
    found = [it for some in find_by_ids(database["it"], raw_ids) for it in some]
    assert sorted(found) == sorted(documents[i] for i in there & set(wanted))


@pytest.fixture
def native(database: Mongo) -> Iterator[Mongo]:
    database.create_collection("it", timeseries={"timeField": "d", "metaField": "meta"})
    yield database


def test_a_native_time_series_collection(native: Mongo) -> None:
    policy = make_policy(
        **{**READING, "model": "timeseries", "series_fields": ("meta.device",), "value_fields": ("p", "q")}
    )
    start = datetime(2020, 1, 1, tzinfo=UTC)
    times = [oracle.milliseconds(start) + 1000 * i for i in range(500)]
    values: list[Any] = [1.5, 3, bson.Int64(2**60), None, "x", Decimal128("1.1"), float("nan"), -0.0]
    native["it"].insert_many(
        [{"meta": {"device": i % 3}, "p": values[i % 8], "d": DatetimeMS(ms)} for i, ms in enumerate(times)]
    )
    source = Source(native, policy)
    found = [bucket for batch in source.batches(times[100], times[200]) for bucket in buckets_of(batch)]
    assert sorted(r.time for bucket in found for r in oracle.readings(policy, bucket)) == times[100:200]
    assert (source.earliest(), source.latest()) == (times[0], times[-1])
    assert source.earliest(times[7] + 1) == times[8] == source.earliest_ending(times[8])
    assert len(units(source.ending(times[3], times[5]))) == 2
    assert units(source.untimed()) == []
    ids = [bucket.id for bucket in found[:3]]
    assert None not in ids and len(units(source.by_ids(ids))) == 3
    for batch in source.batches(FIRST, LAST):
        decoded = decode(batch, policy)
        assert decoded.quarantined == []
        ordered = oracle.in_order(buckets_of(batch))
        expected = [r for bucket in ordered for r in oracle.readings(policy, bucket)]
        assert decoded.columns.time.tolist() == [r.time for r in expected]
        assert [oracle.decoded(batch.main[unit])["_id"] for unit in decoded.units] == [b.id for b in ordered]


@pytest.mark.parametrize("years", [(1960, 2200), (1975,), (2009, 2017), (2018, 2037)], ids=str)
def test_measurements_of_every_year_are_found(native: Mongo, years: tuple[int, ...]) -> None:
    """MongoDB 6.0 itself finds nothing where a range begins before 1970 and all measurements are of 2017 or
    before, or where it ends after 2106."""
    policy = make_policy(**{**READING, "model": "timeseries"})
    times = [oracle.milliseconds(datetime(year, 7, 1, tzinfo=UTC)) for year in years]
    native["it"].insert_many([{"meta": {}, "symbol": "x", "d": DatetimeMS(ms)} for ms in times])
    source = Source(native, policy)
    assert (source.earliest(), source.latest()) == (times[0], times[-1])
    starts = (1, 1969, 1970, 1990, 2010, 2018, 2050, 2107, 2300)
    bounds = [oracle.milliseconds(datetime(year, 1, 1, tzinfo=UTC)) for year in starts]
    for start, end in combinations(bounds, 2):
        inside = [at for at in times if start <= at < end]
        assert sum(len(batch) for batch in source.batches(start, end)) == len(inside)
        assert sum(len(batch) for batch in source.ending(start, end)) == len(inside)
        assert source.count_ending(start, end) == len(inside)
        after = [at for at in times if at >= start]
        assert source.earliest(start) == source.earliest_ending(start) == (after[0] if after else None)


def test_the_latest_of_samples_goes_by_the_form_of_their_own_times(database: Mongo) -> None:
    """The later one sorts before the other as text; the buckets' own times are dates."""
    policy = make_policy(
        name="it", collection="it", model="samples", series_fields=(), value_fields=("p",),
        start_field="first", samples_field="held", sample_time_field="t", sample_time_unit="iso",
    )  # fmt: skip
    start = datetime(2026, 1, 5, tzinfo=UTC)
    for text in ("2026-01-05T23:00:00+14:00", "2026-01-05T22:00:00-12:00"):
        database["it"].insert_one({"first": start, "held": [{"t": text, "p": 1}]})
    latest = Source(database, policy).latest()
    assert latest is not None and latest >= oracle.milliseconds("2026-01-05T22:00:00-12:00")


def test_a_bucket_that_covers_years_hides_no_later_sample(database: Mongo) -> None:
    """Its clock began in 1971. Once it is known as broken, the search goes on behind it."""
    policy = make_policy(
        name="it", collection="it", model="samples", series_fields=("a",), value_fields=("v",),
        samples_field="samples", sample_time_field="time",
    )  # fmt: skip
    first, second, third = 40_000_000, 1_700_000_000, 1_700_009_000
    for name, times in (("broken", [first, third]), ("Broken", [second])):
        samples = [{"time": at, "v": 1} for at in times]
        database["it"].insert_one({"_id": name, "a": 1, "samples": samples})
    source = Source(database, policy)
    assert source.earliest() == first * 1000
    assert source.earliest(first * 2000) == first * 2000
    assert source.earliest(first * 2000, ["broken"]) == second * 1000
    found = source.earliest(second * 1000 + 1, ["broken"])
    assert found is not None and third * 1000 - 3_600_000 <= found <= third * 1000
    assert source.earliest(third * 1000 + 1, ["broken"]) is None


def test_the_latest_of_samples_is_not_hidden_by_one_of_another_type(database: Mongo) -> None:
    """An index has all numbers before all dates, also where a number is the later time."""
    policy = make_policy(
        name="it", collection="it", model="samples", series_fields=("a",), value_fields=("v",),
        start_field="first", samples_field="samples", sample_time_field="time",
    )  # fmt: skip
    both = [{"time": datetime(1970, 1, 1, tzinfo=UTC), "v": 1}, {"time": 5, "v": 1}]
    buckets = [both, [{"time": 1000, "v": 1}]]
    database["it"].insert_many([{"a": 1, "first": 0, "samples": samples} for samples in buckets])
    for indexed in (False, True):
        if indexed:
            database["it"].create_index("samples.time")
        assert Source(database, policy).latest() == 1_000_000


@pytest.mark.parametrize(
    "collation",
    [
        {"locale": "en", "strength": 1},
        {"locale": "en", "strength": 2},
        {"locale": "en", "numericOrdering": True},
    ],
)
def test_an_id_is_found_by_its_bytes_whatever_the_collation(
    database: Mongo, collation: dict[str, Any]
) -> None:
    """Texts that a collation takes for equal are not, nor `_id`s that hold them; numbers of two types are."""
    overflow = Overflow(flag_field="more", collection="extra", ref_field="of", samples_field="samples")
    policy = make_policy(**{**SAMPLES, "overflow": overflow})
    held: list[Any] = ["a", {"k": "b", "n": 1}, 7]
    others: list[Any] = ["A", {"k": "B", "n": 1}, {"k": "b", "n": 2}]
    for name in (policy.collection, "extra"):
        database.create_collection(name, collation=collation)
    database[policy.collection].insert_many([{"_id": it, "first": 1} for it in held])
    database["extra"].insert_many(
        [{"_id": f"x{i}", "of": it} for i, it in enumerate([*held, *others, ["a", 5]])]
    )
    source = Source(database, policy)
    assert sum(map(len, source.by_ids([*held[:1], {"k": "b", "n": 1.0}, 7.0]))) == 3
    assert sum(map(len, source.by_ids(others))) == 0
    assert source.present(others) == set()
    assert len(source.present(held)) == 3
    raw = [Docs.of([bson.encode({"_id": it})]).raw_id(0) for it in others]
    assert sum(map(len, source.by_raw_ids(raw))) == 0
    assert source.owners(["X1"]) == []
    assert [docs.decode_id(i) for docs in source.orphans() for i in range(len(docs))] == ["x3", "x4", "x5"]
