"""One read of the change stream for several policies tells each of them what it would read alone."""

from __future__ import annotations

import itertools
import time
from datetime import datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy
from bucketwise.rollups import progress
from bucketwise.rollups.changes import drain
from bucketwise.rollups.changes import drain as shared_changes
from bucketwise.rollups.changes.drain import SharedChanges, Stream, collections_of
from bucketwise.rollups.progress import Bookmark, Progress, load
from tests.examples import examples
from tests.rollups.changes.test_own_deletes import told
from tests.rollups.changes.test_stream import FIRST, HOUR, document_of, reading, readings
from tests.rollups.conftest import Bench, nothing

Document = dict[str, Any]
NAMES = ("a", "b", "c")
NUMBERS = itertools.count(1)
#: What is written, where, and in which hour: before the bookmark of `c`, or after all of them.
WRITES = st.lists(
    st.tuples(
        st.sampled_from(["insert", "update", "delete", "ours"]), st.sampled_from(NAMES), st.integers(0, 60)
    ),
    max_size=14,
)


def policies() -> list[Policy]:
    """Of three models, each in a collection of its own."""
    more: list[Document] = [
        {},
        {"model": "slots", "slot": "second"},
        {
            "model": "samples",
            "time_field": None,
            "samples_field": "samples",
            "sample_time_field": "time",
            "start_field": "first",
            "end_field": "last",
        },
    ]
    targets = [{"hourly": f"hourly_{name}", "daily": f"daily_{name}"} for name in NAMES]
    return [
        readings(name=name, collection=name, rollup=target, **it)
        for name, target, it in zip(NAMES, targets, more, strict=True)
    ]


def begin(bench: Bench, policy: Policy) -> Progress:
    """Has the policy be rolled up to some hour, from the present of the stream on."""
    source = Source(bench.database, policy)
    token = Stream(policy, source, "books").token_now()
    through = {"hourly": ms(FIRST + 30 * HOUR), "daily": ms(FIRST)}
    progress.store(bench.database, policy, Progress(through, Bookmark(token, collections_of(source), ())))  # type: ignore[arg-type]
    return load(bench.database, policy)


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def write(bench: Bench, policy: Policy, kind: str, hour: int) -> None:
    collection, books = bench.database[policy.collection], bench.database["books"]
    if kind == "insert":
        collection.insert_one(document_of(policy, next(NUMBERS), FIRST + hour * HOUR))
    elif kind == "update":
        collection.update_one({}, {"$set": {"extra": next(NUMBERS)}})
    elif kind == "delete":
        collection.delete_one({})
    else:
        with bench.database.client.start_session() as session, session.start_transaction():
            collection.delete_one({}, session=session)
            books.insert_one({"kind": "delete", "collection": policy.collection}, session=session)


def shared(bench: Bench, some: list[Policy], *, leaves_marks: bool = True) -> SharedChanges:
    return SharedChanges(bench.database, some, "books", leaves_marks=leaves_marks)


@pytest.mark.parametrize("leaves_marks", [True, False], ids=["a run", "a dry run"])
@given(early=WRITES, late=WRITES, later=WRITES, many=st.sampled_from([1, 1000]))
@example(early=[], late=[], later=[("insert", "a", 30)], many=1)
@settings(max_examples=examples(3))
def test_each_is_told_what_it_would_read_alone(
    bench: Bench, leaves_marks: bool, early: Any, late: Any, later: Any, many: int
) -> None:
    some = policies()
    by_name = {it.name: it for it in some}
    bench.database["books"].insert_one({})
    for policy in some:
        bench.database[policy.collection].insert_many(
            [document_of(policy, next(NUMBERS), FIRST + hour * HOUR) for hour in range(4)]
        )
    loaded = {it.name: begin(bench, it) for it in some[:2]}
    for kind, name, hour in early:
        write(bench, by_name[name], kind, hour)
    loaded |= {it.name: begin(bench, it) for it in some[2:]}
    together = shared(bench, some, leaves_marks=leaves_marks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drain, "MANY_DROPPED", many)
        for writes in (late, later):
            for kind, name, hour in writes:
                write(bench, by_name[name], kind, hour)
            together.read_on(nothing)
    for policy in some:
        known = loaded[policy.name]
        assert known.bookmark is not None
        found = together.take(policy, known)
        stream = Stream(policy, Source(bench.database, policy), "books", leaves_marks=leaves_marks)
        alone = stream.drain(known.bookmark.token, reached(known), nothing)
        assert found is not None
        some_spans, *counts = told(found)
        all_spans, *others = told(alone)
        assert counts == others
        # What has gone by now could still be looked up when it was read earlier.
        for kind, spans in all_spans.items():
            assert all(any(a <= start and end <= b for a, b in some_spans[kind]) for start, end in spans)
        if not later:
            assert some_spans == all_spans
        assert together.take(policy, known) is None  # it is told once
        # Read from there on there is nothing; but without a mark, what was left out at that very moment.
        left_out = None if leaves_marks else reached(known)
        assert not stream.drain(found.token, left_out, nothing).has_any_event
    for policy in some:
        bench.database[policy.collection].delete_many({})


def reached(known: Progress) -> int:
    """The end of what is rolled up, of hours or days, whichever is later."""
    return max(known.through["hourly"], known.through["daily"])


def started(bench: Bench, some: list[Policy]) -> dict[str, Progress]:
    for policy in some:
        bench.database[policy.collection].insert_one(document_of(policy, next(NUMBERS), FIRST))
    return {it.name: begin(bench, it) for it in some}


def second_of(known: Progress) -> int:
    """What the token of its bookmark tells: the seconds of the last write before it."""
    assert known.bookmark is not None
    return int.from_bytes(bytes.fromhex(known.bookmark.token["_data"])[1:5])


def test_what_was_rolled_up_meanwhile_reads_for_itself(bench: Bench) -> None:
    some = policies()
    loaded = started(bench, some)
    together = shared(bench, some)
    together.read_on(nothing)
    anew = begin(bench, some[0])
    assert together.take(some[0], anew) is None
    assert together.take(some[1], loaded["b"]) is not None


def test_marks_of_another_host_end_no_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each goes by its own, though all are one document: what came in before is told, the rest later."""
    some = policies()
    loaded, leave = started(bench, some), progress.leave_mark

    def beside(database: Any, marked: Any) -> str:
        leave(database, marked)
        bench.database["a"].insert_one(reading(next(NUMBERS), FIRST))
        mark = leave(database, marked)
        bench.database["b"].insert_one(document_of(some[1], next(NUMBERS), FIRST))
        leave(database, marked)
        return mark

    together = shared(bench, some)
    with monkeypatch.context() as patch:
        patch.setattr(progress, "leave_mark", beside)
        together.read_on(nothing)
    found = {it.name: together.take(it, loaded[it.name]) for it in some[:2]}
    assert [it and it.has_any_event for it in found.values()] == [True, False]
    assert found["b"] is not None
    later = Stream(some[1], Source(bench.database, some[1]), "books").drain(found["b"].token, None, nothing)
    assert later.events == 1


def test_nothing_is_read_for_whose_turn_is_over(bench: Bench) -> None:
    """Also where that was before the first read, as another run held its lease."""
    some = policies()
    loaded = started(bench, some)
    together = shared(bench, some)
    together.leave_out(some[0])
    together.read_on(nothing)
    assert [together.take(it, loaded[it.name]) is None for it in some] == [True, False, False]


def test_who_lost_a_collection_reads_for_itself(bench: Bench) -> None:
    some = policies()
    loaded = started(bench, some)
    bench.database["b"].drop()
    bench.database["a"].insert_one(reading(next(NUMBERS), FIRST))
    together = shared(bench, some)
    together.read_on(nothing)
    assert together.take(some[1], loaded["b"]) is None
    found = together.take(some[0], loaded["a"])
    assert found is not None and found.has_any_event


def test_policies_of_one_collection_read_for_themselves(bench: Bench) -> None:
    first, second, third = policies()
    twin = readings(name="twin", collection=first.collection, rollup={"hourly": "h", "daily": "d"})
    loaded = started(bench, [first, second, third, twin])
    together = shared(bench, [first, second, third, twin])
    together.read_on(nothing)
    assert [together.take(it, loaded[it.name]) is None for it in (first, twin, second, third)] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("is_told", [True, False])
def test_who_is_further_behind_than_the_others_reads_for_itself(
    bench: Bench, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = policies()
    behind = started(bench, some)["c"]
    until = int(time.time()) + 2
    while time.time() < until:
        time.sleep(0.05)
    bench.database["elsewhere"].insert_one({})  # a resume token tells the second of the last write
    near = {it.name: begin(bench, it) for it in some[:2]}
    a, b, c = map(second_of, (near["a"], near["b"], behind))
    monkeypatch.setattr(shared_changes, "MOST_BEHIND_S", max(a, b) - (c if is_told else min(a, b)))
    together = shared(bench, some)
    together.read_on(nothing)
    assert (together.take(some[2], behind) is not None) == is_told
    assert together.take(some[0], near["a"]) is not None


def test_who_is_days_behind_keeps_nobody_from_reading_together(bench: Bench) -> None:
    """The oplog need not reach back to where it would begin."""
    some = policies()
    loaded = started(bench, some)
    known = loaded["c"]
    assert known.bookmark is not None
    data = known.bookmark.token["_data"]
    seconds = int(data[2:10], 16) - 2 * 86_400
    old = Bookmark({"_data": f"{data[:2]}{seconds:08X}{data[10:]}"}, known.bookmark.collections, ())
    progress.store(bench.database, some[2], Progress(known.through, old))
    together = shared(bench, some)
    together.read_on(nothing)
    assert together.take(some[2], load(bench.database, some[2])) is None
    assert together.take(some[0], loaded["a"]) is not None
