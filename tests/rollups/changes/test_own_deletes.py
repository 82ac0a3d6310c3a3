"""Deletes of archive runs among those of others: many of them are left out by the server, and no other is."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo.client_session import ClientSession

from bucketwise.buckets.source import Source
from bucketwise.rollups.changes import drain as streams
from bucketwise.rollups.changes.collector import ChangeSet
from bucketwise.rollups.changes.drain import Stream
from tests.examples import examples
from tests.rollups.changes.test_stream import FIRST, HOUR, reading, readings
from tests.rollups.conftest import Bench

Document = dict[str, Any]
#: What each transaction, or write outside of one, is: by whom, and of how many buckets.
WRITES = st.lists(
    st.tuples(
        st.sampled_from(["ours", "of another collection", "theirs", "alone", "update"]), st.integers(1, 4)
    ),
    max_size=12,
)
NUMBERS = itertools.count()


def write(bench: Bench, session: ClientSession, kind: str, ids: list[int]) -> None:
    ticks, books = bench.database["ticks"], bench.database["books"]
    if kind == "update":
        ticks.update_many({"_id": {"$in": ids}}, {"$set": {"p": 2.0}}, session=session)
    elif kind == "alone":
        ticks.delete_many({"_id": {"$in": ids}}, session=session)
    else:
        with session.start_transaction():
            ticks.delete_many({"_id": {"$in": ids}}, session=session)
            if kind != "theirs":
                collection = "ticks" if kind == "ours" else "other"
                books.insert_one({"kind": "delete", "collection": collection}, session=session)


def told(changed: ChangeSet) -> Any:
    spans = {kind: some.spans for kind, some in changed.spans.items()}
    return spans, +changed.unknown, changed.events, changed.has_any_event


@pytest.mark.parametrize("leaves_marks", [True, False], ids=["a run", "a dry run"])
@given(writes=WRITES, ahead=st.integers(1, 3))
@settings(max_examples=examples(6))
def test_what_is_told_does_not_depend_on_what_is_left_out(
    bench: Bench, leaves_marks: bool, writes: list[tuple[str, int]], ahead: int
) -> None:
    policy, ticks = readings(), bench.database["ticks"]
    stream = Stream(policy, Source(bench.database, policy), "books", leaves_marks=leaves_marks)
    bench.database["books"].insert_one({})
    ids = [next(NUMBERS) for _ in range(sum(count for _, count in writes))]
    ticks.insert_many([reading(-1, FIRST), *(reading(it, FIRST + it * HOUR) for it in ids)])
    token, left = stream.token_now(), iter(ids)
    with bench.database.client.start_session() as session:
        for kind, count in writes:
            write(bench, session, kind, list(itertools.islice(left, count)))
    found = []
    for many in (10**6, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(streams, "MANY_DROPPED", many)
            patch.setattr(streams, "READ_AHEAD", ahead)
            patch.setattr(streams, "REPLY", ahead)
            found.append(told(stream.drain(token, None, lambda: None)))
    ticks.delete_many({})
    assert found[0] == found[1]
    counts = Counter[str]()
    for kind, count in writes:
        counts[kind] += count
    assert found[0][2] == sum(counts.values()) - counts["ours"]
    assert found[0][3] == bool(writes)
