"""`archive.batch`: what has expired waits until a whole UTC day, or whatever the batch is, has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo.database import Database

from bucketwise.archivers.moving import sweep
from bucketwise.buckets.fields.times import as_ms
from bucketwise.config.models import make_policy
from bucketwise.config.tables import Store
from bucketwise.jobs.audit.audit import audit_policy
from tests.archivers.builders import DAY0, Case, encode, offline
from tests.archivers.harness import EPOCH, Cycle

Document = dict[str, Any]
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
AFTER = timedelta(days=30)


def every(step: timedelta, until: timedelta, **archive: Any) -> Case:
    """A reading each `step` from DAY0 on."""
    policy = make_policy(
        name="ticks", collection="ticks", model="reading", time_field="d", series_fields=("symbol",),
        value_fields=("p",), archive=offline(),
    )  # fmt: skip
    moments = [DAY0 + i * step for i in range(until // step)]
    documents = [encode({"_id": i, "symbol": "MDB", "d": at, "p": i / 8}) for i, at in enumerate(moments)]
    readings = [(("MDB",), at, i / 8) for i, at in enumerate(moments)]
    return Case("every", policy, documents, readings).with_archive(**archive)  # type: ignore[arg-type]


def spans(cycle: Cycle) -> list[tuple[datetime, datetime]]:
    """Of each commit its first and last reading."""
    archive = cycle.as_stored()
    found = [archive.manifest(it) for it in archive.commits()]
    return sorted((it.first, it.last) for it in found)


@given(
    st.timedeltas(timedelta(days=-3_000), timedelta(days=30_000)),
    st.integers(0, 800 * 86_400),
    st.integers(1, 31 * 86_400),
    st.timedeltas(timedelta(days=-70), timedelta(days=70)),
)
def test_a_bucket_goes_once_the_whole_of_its_period_has_expired(
    database: Database[Document], since_epoch: timedelta, after_s: int, batch_s: int, near: timedelta
) -> None:
    after, batch = timedelta(seconds=after_s), timedelta(seconds=batch_s)
    now = EPOCH + since_epoch
    last = now - after + near
    last -= timedelta(microseconds=last.microsecond % 1000)
    number = (last - EPOCH) // batch  # periods are whole multiples of the batch since 1970
    ends = EPOCH + (number + 1) * batch
    cycle = Cycle(database, every(DAY, DAY, batch=batch, after=after), Store(url="file:///nowhere"))
    assert (as_ms(last) < cycle.context(now).cutoffs[0]) == (ends <= now - after)
    whole = cycle.context(now).batch_whole_at(0)
    assert whole is not None
    assert cycle.context(now).cutoffs[0] < cycle.context(EPOCH + timedelta(milliseconds=whole)).cutoffs[0]
    assert whole > as_ms(now)


@pytest.mark.proof
@pytest.mark.parametrize(("batch", "commits"), [(None, 12), (timedelta(hours=12), 6), (DAY, 3), (2 * DAY, 2)])
def test_runs_every_few_hours_make_a_commit_a_batch(
    database: Database[Document], file_store: Store, batch: timedelta | None, commits: int
) -> None:
    case = every(6 * HOUR, 3 * DAY, batch=batch)
    cycle = Cycle(database, case, file_store).load()
    for hours in range(0, 4 * 24 + 1, 6):
        cycle.run(DAY0 + AFTER + hours * HOUR)
    assert cycle.live() == []
    assert cycle.archived() == sorted(case.documents)
    found = spans(cycle)
    assert len(found) == commits
    if batch is not None:
        assert all((first - EPOCH) // batch == (last - EPOCH) // batch for first, last in found)


def test_online_as_well(database: Database[Document], file_store: Store) -> None:
    case = every(6 * HOUR, 2 * DAY, batch=DAY).online()
    cycle = Cycle(database, case, file_store).load()
    for hours in (6, 12, 23):
        assert cycle.run(DAY0 + AFTER + hours * HOUR).buckets == 0
    assert cycle.run(DAY0 + AFTER + DAY).deleted == 4
    assert cycle.archived() == sorted(case.documents[:4])


def test_a_batch_that_is_more_than_a_commit_holds_makes_several(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits takes no memory: it is read once it may go, and cut as ever."""
    case = every(HOUR, DAY, batch=DAY)
    monkeypatch.setattr("bucketwise.buckets.bson.cursor.MOST_DOCUMENTS", 8)
    monkeypatch.setattr(sweep, "MAX_BYTES", 8 * len(case.documents[0]))
    cycle = Cycle(database, case, file_store).load()
    assert cycle.run(DAY0 + AFTER + DAY).deleted == 24
    assert len(spans(cycle)) == 3


def test_a_plan_says_what_waits_for_its_batch_and_until_when(
    database: Database[Document], file_store: Store
) -> None:
    cycle = Cycle(database, every(6 * HOUR, 4 * DAY, batch=DAY), file_store).load()
    now = DAY0 + AFTER + DAY + 13 * HOUR  # one day is whole, three more buckets have expired
    plan = cycle.run(now, dry_run=True)
    assert (plan.buckets, plan.left) == (4, 0)
    assert plan.reasons == {
        "waits until its batch of 1d is whole: after 2018-08-01T00:00:00Z": 3,
        "not expired: the last reading is not before 2018-07-01T13:00:00Z": 9,
    }
    done = cycle.run(now)
    assert (done.buckets, done.left, done.reasons) == (4, 0, {})
    until = cycle.run(now, dry_run=True, until=DAY0 + DAY + 7 * HOUR)
    assert until.reasons["waits until its batch of 1d is whole: after 2018-08-01T00:00:00Z"] == 2
    assert cycle.run(datetime(2018, 8, 1, tzinfo=UTC), dry_run=True).buckets == 4


def test_an_audit_complains_of_no_batch_that_is_not_whole(
    database: Database[Document], file_store: Store
) -> None:
    """A day after the batch was whole it does, as ever."""
    cycle = Cycle(database, every(6 * HOUR, 4 * DAY, batch=DAY), file_store).load()
    for hours in range(0, 2 * 24, 6):  # two days late, and nothing has run
        assert (hours, codes(cycle, DAY0 + AFTER + hours * HOUR)) == (hours, set())
    assert codes(cycle, DAY0 + AFTER + 2 * DAY) == {"overdue"}
    cycle.run(DAY0 + AFTER + 2 * DAY)
    assert codes(cycle, DAY0 + AFTER + 2 * DAY) == set()
    assert codes(cycle, DAY0 + AFTER + 4 * DAY - HOUR) == set()
    assert codes(cycle, DAY0 + AFTER + 4 * DAY) == {"overdue"}


def codes(cycle: Cycle, now: datetime) -> set[str]:
    return {it.code for it in audit_policy(cycle.context(now)).findings}
