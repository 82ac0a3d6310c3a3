"""One series goes, from wherever it lies; the buckets of all others stay as they were, whatever dies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import ObjectId
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo.database import Database

from bucketwise.archivers.erasing.erasure import COUNTED, Erasures
from bucketwise.archivers.erasing.offline import CommitEraser
from bucketwise.archivers.moving import sweep
from bucketwise.archivers.records.receipts import COLLECTION
from bucketwise.archivers.stores import file
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.config.errors import BucketwiseError, LeaseLostError, UsageError
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Archive
from bucketwise.config.tables import Store
from bucketwise.rollups.holds import Hold, Holds
from tests.archivers.builders import (
    CODEC,
    DAY0,
    LATER,
    Case,
    encode,
    insert,
    raw_documents,
    reading,
    samples_overflow,
    slots,
)
from tests.archivers.faults import FEW_STEPS, Crash, DyingStore, Steps, deaths, die_in_transactions
from tests.archivers.harness import Cycle, Standing
from tests.archivers.moving.test_crash import World
from tests.archivers.states import States
from tests.conftest import REGION, S3Server, s3_client, use_test_credentials
from tests.examples import examples
from tests.jobs.counting import CountingStore
from tests.jobs.walker import in_files

Document = dict[str, Any]
HOUR = timedelta(hours=1)
AFTER = timedelta(days=30)
#: By case: what is erased, and whether a document is of that.
SERIES: dict[str, tuple[Callable[[], Case], dict[str, str], Callable[[Document], bool]]] = {
    "slots": (partial(slots, "minute"), {"meta.symbol": "ORCL"}, lambda it: it["meta"]["symbol"] == "ORCL"),
    "reading": (reading, {"symbol": "Ä"}, lambda it: it["symbol"] == "Ä"),
    "overflow": (samples_overflow, {"deviceid": "1001"}, lambda it: it["deviceid"] == 1001),
}


def online(case: Case) -> Case:
    archive = Archive(after=AFTER, to="online", collection="archive")
    return Case(
        case.name,
        case.policy.model_copy(update={"archive": archive}),
        case.documents,
        case.readings,
        case.overflow,
    )


def others(case: Case, is_erased: Callable[[Document], bool]) -> list[bytes]:
    """The buckets that stay, with their overflow."""
    stay = [it for it in case.documents if not is_erased(bson.decode(it, CODEC))]
    return with_overflow(stay, case.overflow)


def with_overflow(documents: list[bytes], overflow: list[bytes]) -> list[bytes]:
    more: dict[Any, list[tuple[Any, bytes]]] = {}
    for raw in overflow:
        document = bson.decode(raw, CODEC)
        more.setdefault(document["bucket_id"], []).append((document["_id"], raw))
    return sorted(
        raw + b"".join(it for _, it in sorted(more.get(bson.decode(raw, CODEC)["_id"], [])))
        if overflow
        else raw
        for raw in documents
    )


def held(world: World) -> list[bytes]:
    """The buckets that are live or archived, each once, with their overflow."""
    extra = world.cycle.live_overflow() if world.cycle.policy.overflow else []
    return sorted({*with_overflow(world.cycle.live(), extra), *world.archived()})


def half_merged(cycle: Cycle) -> None:
    """Half is archived, in small commits that were merged just now; the rest is live."""
    for hour in range(1, 30, 7):
        cycle.run(DAY0 + AFTER + hour * HOUR)
    if cycle.policy.archive and cycle.policy.archive.to == "offline":
        cycle.compact(LATER)


def world_of(prepared: States, case: Case) -> World:
    return World(prepared(case, half_merged), list(case.documents), list(case.overflow), len(case.documents))


@pytest.mark.parametrize("is_placed", [False, True])
def test_nothing_stays_of_what_a_killed_run_was_writing(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch, is_placed: bool
) -> None:
    """Right after it was killed, before its n-th file was in its place, or after."""
    world = World.make(database, slots("minute"), file_store)
    inner = file._place
    for at in (2, 3):  # after the file of the owner: a part, and the buckets file
        placed: list[Path] = []

        def place(temporary: Path, *given: Any, placed: list[Path] = placed, at: int = at) -> bool:
            placed.append(temporary)
            if len(placed) == at:
                temporary.with_name(f"{temporary.name}f").write_bytes(temporary.read_bytes())
                if is_placed:
                    inner(temporary.with_name(f"{temporary.name}f"), *given)
                raise Crash(temporary.name)
            return inner(temporary, *given)

        with monkeypatch.context() as patch, pytest.raises(Crash):
            patch.setattr(file, "_place", place)
            world.cycle.run()
        assert not world.cycle.erase({"meta.symbol": "ORCL"}).is_found
        assert in_files(world.cycle.root, "ORCL") == []
        assert not list((world.cycle.root / ".tmp").iterdir())
        gone = [it for it in world.cycle.case.documents if b"ORCL" in it]
        insert(database, world.cycle.policy.collection, gone)


def test_what_may_still_hold_the_series_is_told(database: Database[Document], file_store: Store) -> None:
    world = World.make(database, slots("minute"), file_store)
    world.cycle.run()
    (part,) = world.cycle.root.rglob("data/*/*.parquet")
    foreign = part.with_name(part.name.replace("_f000001_", "_f000999_"))
    foreign.write_bytes(part.read_bytes())
    (world.cycle.root / ".tmp" / "0123").write_bytes(b"of an older release")
    report = world.cycle.erase({"meta.symbol": "ORCL"})
    assert [it.place for it in report.remaining if it.found and "ORCL" not in it.why] == [
        f"{world.cycle.store.url}/{foreign.relative_to(world.cycle.root)}",
        (world.cycle.root / ".tmp" / "0123").as_uri(),
    ]


@pytest.mark.proof
@pytest.mark.in_turn(1)
@FEW_STEPS
@pytest.mark.parametrize("to", ["offline", "online"])
@pytest.mark.parametrize("name", SERIES)
def test_it_dies_at_each_step(
    prepared: States, monkeypatch: pytest.MonkeyPatch, name: str, to: str, few_steps: bool
) -> None:
    """At each name of a step in one of the cases; in the proofs at every step in each."""
    monkeypatch.setattr(sweep, "MAX_READINGS", 5000)
    make, series, is_erased = SERIES[name]
    case = make() if to == "offline" else online(make())
    expected = others(case, is_erased)
    world = world_of(prepared, case)
    standing = Standing(world.cycle)

    def erase(steps: Steps) -> None:
        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, steps)
            store = DyingStore(world.cycle.store, steps)
            world.cycle.erase(series, check=partial(steps.step, "check"), store=store)

    whole = Steps(5000)
    erase(whole)
    assert held(world) == expected
    turn = list(SERIES).index(name)
    for it in deaths(whole.passed, turn, of=3, few_steps=few_steps):
        standing.put_back(world.cycle)
        with pytest.raises(Crash):
            erase(Steps(*it))
        assert set(expected) <= set(held(world))
        report = world.cycle.erase(series)
        assert not report.is_found
        assert held(world) == expected
        world.cycle.run(LATER + HOUR)
        assert held(world) == expected
        assert world.cycle.verify().bad == []


def test_what_was_counted_is_not_counted_again(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buckets are live and archived; it is killed when it has erased those that are live."""
    case = slots("minute").with_archive(grace=timedelta(days=400))
    world = World.make(database, case, file_store)
    world.cycle.run()
    erased = sum(b"ORCL" in it for it in case.documents)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(CommitEraser, "run", lambda _self: Steps(1).step("commit"))
        world.cycle.erase({"meta.symbol": "ORCL"})
    assert not any(b"ORCL" in it for it in world.cycle.live())
    counts = world.cycle.erase({"meta.symbol": "ORCL"}).counts
    assert (counts["live"], counts["archived"], counts["buckets"]) == (erased, erased, erased)
    assert database[COLLECTION].count_documents({"kind": COUNTED}) == 0


@pytest.mark.proof
@pytest.mark.parametrize("name", SERIES)
def test_what_was_merged_goes_at_once(prepared: States, name: str) -> None:
    """The commits that a compaction has replaced stay for a while; not where they hold what is erased."""
    make, series, is_erased = SERIES[name]
    case = make()
    expected = others(case, is_erased)
    world = world_of(prepared, case)
    merged = len(world.cycle.archived())
    before = len(list(world.cycle.root.rglob("*.parquet")))
    report = world.cycle.erase(series)
    assert report.counts["buckets"] == len(case.documents) - len(expected)
    assert 0 < report.counts["commits_rewritten"] < merged
    assert len(list(world.cycle.root.rglob("*.parquet"))) < before
    assert held(world) == expected
    assert world.cycle.verify().bad == []
    again = world.cycle.erase(series)
    assert not any(again.counts.values())


@pytest.mark.proof
def test_who_has_lost_the_lease_erases_nothing(prepared: States) -> None:
    world = world_of(prepared, slots("minute"))
    before = held(world)

    def guard(_session: Any) -> None:
        raise LeaseLostError("another run holds the lease")

    with pytest.raises(LeaseLostError):
        world.cycle.erase({"meta.symbol": "ORCL"}, guard=guard)
    assert held(world) == before


@pytest.mark.proof
def test_other_arguments_wait_for_the_erasure_that_has_begun(prepared: States) -> None:
    world = world_of(prepared, slots("minute"))
    dying = Steps(45)
    with pytest.raises(Crash):
        world.cycle.erase({"meta.symbol": "ORCL"}, store=DyingStore(world.cycle.store, dying))
    assert Erasures(world.cycle.context().receipts).begun() is not None
    for series, within in (
        ({"meta.symbol": "MDB"}, TimeRange()),
        ({"meta.symbol": "ORCL"}, TimeRange(DAY0)),
    ):
        with pytest.raises(UsageError, match="another erasure was begun"):
            world.cycle.erase(series, within)
    world.cycle.erase({"meta.symbol": "ORCL"})
    assert Erasures(world.cycle.context().receipts).begun() is None
    world.cycle.erase({"meta.symbol": "MDB"})
    assert held(world) == []


POLICY = make_policy(
    name="it",
    collection="it",
    model="reading",
    time_field="d",
    series_fields=("who",),
    value_fields=("p",),
    archive=Archive(after=AFTER, to="offline"),
)
WHO = ["Anna", "Bert", "A nna", 7, 7.5, "7"]


@settings(max_examples=examples(10))
@given(
    rows=st.lists(st.tuples(st.sampled_from(WHO), st.integers(0, 4000)), min_size=1, max_size=60),
    asked=st.sampled_from(["Anna", "Bert", "7", "7.5", "nobody"]),
    ends=st.tuples(st.none() | st.integers(0, 4000), st.none() | st.integers(0, 4000)),
    archived_to=st.integers(0, 5000),
    is_kept=st.booleans(),
)
def test_any_series_any_range(
    database: Database[Document],
    file_store: Store,
    rows: list[tuple[Any, int]],
    asked: str,
    ends: tuple[int | None, int | None],
    archived_to: int,
    is_kept: bool,
) -> None:
    since, until = (None if it is None else DAY0 + it * timedelta(minutes=1) for it in ends)
    if since is not None and until is not None and since >= until:
        until = None
    documents = [
        encode({"_id": ObjectId(), "who": who, "d": DAY0 + at * timedelta(minutes=1), "p": 1.0 + at})
        for who, at in rows
    ]
    assert POLICY.archive is not None
    archive = POLICY.archive.model_copy(update={"delete": not is_kept})
    case = Case("it", POLICY.model_copy(update={"archive": archive}), documents, [])
    world = World.make(database, case, file_store)
    world.cycle.run(DAY0 + AFTER + archived_to * timedelta(minutes=1))

    def goes(document: Document) -> bool:
        at: datetime = document["d"]
        is_in = (since is None or at >= since) and (until is None or at < until)
        return is_in and str(document["who"]) == asked

    stay = sorted(it for it in documents if not goes(bson.decode(it, CODEC)))
    report = world.cycle.erase({"who": asked}, TimeRange(since, until))
    assert not report.is_found
    assert report.counts["buckets"] == len(documents) - len(stay)
    assert held(world) == stay
    assert world.cycle.verify().bad == []
    if since is None and until is None and asked in ("Anna", "Bert"):
        assert in_files(world.cycle.root / world.cycle.policy.name, asked) == []


def test_what_comes_in_meanwhile_goes_too(prepared: States) -> None:
    """While the application writes on: what is found in a further pass."""
    world = world_of(prepared, slots("minute"))
    database = world.cycle.database
    writes = iter(range(1000, 1003))

    def check() -> None:
        for number in writes:
            at = DAY0 + number * HOUR
            late = {"_id": number, "p": {"0": 1.5}, "meta": {"symbol": "ORCL"}, "d": at}
            insert(database, world.cycle.policy.collection, [encode(late)])
            break

    report = world.cycle.erase({"meta.symbol": "ORCL"}, check=check)
    assert not report.is_found
    assert not any(b"ORCL" in it for it in raw_documents(database, world.cycle.policy.collection))


def test_a_hold_that_is_placed_meanwhile_stops_it(prepared: States) -> None:
    world = world_of(prepared, slots("minute"))
    database = world.cycle.database
    holds = Holds(database, world.cycle.policy.name)
    hold = Hold("case-9", {"meta.symbol": "ORCL"}, TimeRange(), "a court", LATER, "me", False, bytes(32))
    placed: list[int] = []

    def guard(_session: Any) -> None:
        placed.append(1)
        if len(placed) == 2:  # the first one says that it begins
            with database.client.start_session() as session:
                holds.put(hold, session)

    before = held(world)
    with pytest.raises(BucketwiseError, match="is held"):
        world.cycle.erase({"meta.symbol": "ORCL"}, guard=guard)
    with pytest.raises(UsageError, match="is held"):
        world.cycle.erase({"meta.symbol": "ORCL"})
    assert held(world) == before, "what was being written is cleared"
    with database.client.start_session() as session:
        holds.remove("case-9", session)
    world.cycle.erase({"meta.symbol": "ORCL"})
    assert not any(b"ORCL" in it for it in held(world))


@pytest.fixture
def versioned_store(moto_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A bucket that keeps older versions, and locks each for a day."""
    use_test_credentials(monkeypatch)
    client = s3_client(moto_server.endpoint_url)
    client.create_bucket(
        Bucket="locked-archive",
        ObjectLockEnabledForBucket=True,
        CreateBucketConfiguration={"LocationConstraint": "eu-central-1"},
    )
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
    client.put_object_lock_configuration(
        Bucket="locked-archive",
        ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule},
    )
    return Store(url="s3://locked-archive/there", endpoint_url=moto_server.endpoint_url, region=REGION)


@pytest.mark.proof
def test_older_versions_of_files_are_told(database: Database[Document], versioned_store: Store) -> None:
    world = World.make(database, slots("minute"), versioned_store)
    world.cycle.run(DAY0 + AFTER + 15 * HOUR)
    report = world.cycle.erase({"meta.symbol": "ORCL"})
    assert not any(b"ORCL" in it for it in held(world))
    (told,) = [it for it in report.remaining if it.found]
    assert told.place == f"{versioned_store.url}/{world.cycle.policy.name}/"
    client = s3_client(str(versioned_store.endpoint_url))
    prefix = f"there/{world.cycle.policy.name}/"
    listed = client.list_object_versions(Bucket="locked-archive", Prefix=prefix)["Versions"]
    older = [it for it in listed if not it["IsLatest"]]
    assert (
        f"the store keeps {len(older)} older versions of files, and locks some of them until 20" in told.why
    )


@pytest.mark.proof
def test_a_plain_bucket_keeps_none(database: Database[Document], moto_store: Store) -> None:
    world = World.make(database, reading(), moto_store)
    world.cycle.run(DAY0 + AFTER + 15 * HOUR)
    assert not world.cycle.erase({"symbol": "Ä"}).is_found


@pytest.mark.proof
def test_a_range_reads_no_commits_beyond_it(database: Database[Document], file_store: Store) -> None:
    """However long the history is."""
    read = []
    for days in (3, 6):
        times = [DAY0 + hour * HOUR for hour in range(24 * days)]
        documents = [encode({"_id": i, "who": i % 2, "d": at, "p": 1.5}) for i, at in enumerate(times)]
        world = World.make(database, Case("it", POLICY, documents, []), file_store)
        for day in range(1, days + 1):
            world.cycle.run(DAY0 + AFTER + 24 * day * HOUR)
        store: Any = CountingStore(world.cycle.store)
        within = TimeRange(DAY0 + 24 * HOUR, DAY0 + 48 * HOUR)
        assert world.cycle.erase({"who": "1"}, within, store=store).counts["buckets"] == 12
        read.append((store.asked["get_bytes"], store.asked["put_bytes"], store.asked["head"]))
    assert read[0] == read[1]


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("to", ["offline", "online"])
def test_overflow_that_a_restore_has_put_back_goes_too(prepared: States, to: str) -> None:
    """It lies in the policy's collection of overflow, wherever its buckets were restored to."""
    make, series, is_erased = SERIES["overflow"]
    case = make() if to == "offline" else online(make())
    world = world_of(prepared, case)
    world.cycle.run(LATER)
    world.cycle.restore("back")
    assert sorted(world.cycle.live_overflow()) == sorted(case.overflow)
    world.cycle.erase(series)
    stay = {it["_id"] for raw in case.documents if not is_erased(it := bson.decode(raw, CODEC))}
    assert sorted(world.cycle.live_overflow()) == sorted(
        it for it in case.overflow if bson.decode(it, CODEC)["bucket_id"] in stay
    )
