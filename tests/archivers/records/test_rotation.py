"""Whose turn it is in an audit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.archivers.format.names import Commit, day_number
from bucketwise.archivers.verifying.report import Piece
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.jobs.audit.audit import ALL, rotation_of, sample

TODAY = datetime(2026, 11, 25, 3, 30, tzinfo=UTC)
FIRST = datetime(2021, 3, 20, tzinfo=UTC)
shares = st.floats(0.001, 0.999)


def commit(begins: int, days: int) -> Commit:
    first, last = (f"{FIRST + it * timedelta(days=1):%Y-%m-%d}" for it in (begins, begins + days))
    return Commit(f"{first}_{last}_f000001_{begins:016x}", first, last, 1, begins + 1, None)


@given(shares, st.integers(0, 30_000))
def test_nightly_audits_come_to_all_and_say_within_how_many_days(share: float, today: int) -> None:
    turns = rotation_of(share)
    for day in range(turns.number):
        assert any(turns.has(day, today + night) for night in range(turns.days))


@given(shares, st.integers(1, 10), st.integers(0, 30_000))
def test_audits_at_any_interval_up_to_ten_days_come_to_all(share: float, interval: int, today: int) -> None:
    turns = rotation_of(share)
    for day in range(turns.number):
        assert any(turns.has(day, today + interval * it) for it in range(turns.number))


@given(shares)
def test_an_audit_reads_about_the_share(share: float) -> None:
    turns = rotation_of(share)
    read = sum(turns.has(day, 20_000) for day in range(turns.number)) / turns.number
    assert abs(read - share) <= max(0.05, 0.0011), turns
    assert 0.6 < read / share < 1.6 or share < 0.1


SOME = {0.1: (11, 1), 1 / 30: (31, 1), 0.5: (11, 6), 0.01: (101, 1)}


@pytest.mark.parametrize("share", SOME)
def test_some_shares(share: float) -> None:
    assert rotation_of(share) == SOME[share]


def test_all_is_read_without_a_share() -> None:
    assert rotation_of(None) == rotation_of(1.0) == ALL
    found = sample([commit(0, 3), commit(5, 0)], ALL, TODAY)
    assert len(found.pieces) == 2
    assert found.unread == []


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5)), max_size=30), shares)
def test_what_rests_is_archived_and_of_no_commit_that_is_read(
    given_: list[tuple[int, int]], share: float
) -> None:
    """Day by day. And each day on which something is archived has its turn."""
    commits, turns = [commit(*it) for it in given_], rotation_of(share)
    days: dict[Piece, set[int]] = {
        it: set(range(day_number(it.first), day_number(it.last) + 1)) for it in commits
    }
    archived = set[int]().union(*days.values())
    for night in range(turns.days):
        found = sample(commits, turns, TODAY + night * timedelta(days=1))
        read = set[int]().union(*(days[it] for it in found.pieces))
        resting = {day for start, end in found.unread for day in range(start // DAY_MS, end // DAY_MS)}
        assert resting == set[int]().union(*days.values()) - read
        archived -= read
    assert not archived
