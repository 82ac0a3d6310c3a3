"""What gets a tombstone, what goes under one, and what stays: of an archive of either kind, without a command
line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from bucketwise.archivers.expiring.offline import unfounded_tombstones
from bucketwise.archivers.expiring.rule import Amount, ExpiryReport
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.records.holds import HoldFiles, HoldWriter
from bucketwise.buckets.fields.times import EVER, TimeRange
from bucketwise.config.errors import HaltedError
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Retain, Rule, RuleRetain
from bucketwise.jobs.undelete import lift_archived
from bucketwise.rollups.holds import Hold
from bucketwise.rollups.progress import ended_before
from tests.archivers.builders import DAY0, Case, encode, offline
from tests.archivers.harness import Cycle, nothing
from tests.archivers.states import States

Document = dict[str, Any]
DAY, HOUR, MS = timedelta(days=1), timedelta(hours=1), timedelta(milliseconds=1)
#: Kept for sixty days, and archived ten days after all could be: forty days after the first was taken.
RETAIN = Retain(archive=60 * DAY, archive_grace=DAY)
ARCHIVED, PAST = DAY0 + 40 * DAY, DAY0 + 70 * DAY
KIND = pytest.mark.parametrize("to", ["offline", "online"])


def two_days(to: str, **more: Any) -> Case:
    """A reading an hour of one series, on two days."""
    policy = make_policy(
        name="ticks", collection="ticks", model="reading", time_field="d", series_fields=("symbol",),
        value_fields=("p",), archive=offline(), retain=RETAIN, **more,
    )  # fmt: skip
    times = [DAY0 + hour * HOUR for hour in range(48)]
    documents = [encode({"_id": i, "symbol": "MDB", "d": at, "p": i / 8}) for i, at in enumerate(times)]
    case = Case("two days", policy, documents, [(("MDB",), at, 0.0) for at in times])
    return case.online() if to == "online" else case


def archived(cycle: Cycle) -> None:
    assert cycle.run(ARCHIVED).deleted == 48


def under_tombstones(cycle: Cycle) -> None:
    archived(cycle)
    assert told(expire(cycle, PAST)) == {"tombstoned": 48}


def expire(cycle: Cycle, now: datetime, *, plan: bool = False, **given: Any) -> ExpiryReport:
    cycle.fence += 1
    cycle.runs.add((cycle.fence, now))
    archive = archive_of(cycle.context(now, fence=cycle.fence, **given))
    return archive.plan_expiry() if plan else archive.expire()


def told(report: ExpiryReport) -> dict[str, Any]:
    """What is not nothing: counts of buckets, by what became of them."""
    amounts = {name: it.buckets for name, it in vars(report).items() if isinstance(it, Amount)}
    counts = {**amounts, "live": report.live, **dict(report.held)}
    return {name: it for name, it in counts.items() if it}


def both(cycle: Cycle, now: datetime) -> dict[str, Any]:
    """What a plan tells, which is what a run then does."""
    planned = told(expire(cycle, now, plan=True))
    assert told(expire(cycle, now)) == planned
    return planned


def with_policy(cycle: Cycle, **changes: Any) -> Cycle:
    """The same archive under another policy."""
    case = replace(cycle.case, policy=cycle.policy.model_copy(update=changes))
    return Cycle(cycle.database, case, cycle.settings, cycle.fence, runs=cycle.runs)


@KIND
def test_what_is_past_gets_a_tombstone_and_goes_when_that_has_stood(prepared: States, to: str) -> None:
    cycle = prepared(two_days(to), archived)
    assert both(cycle, PAST - MS) == {}, "archived too short a time ago"
    assert both(cycle, PAST) == {"tombstoned": 48}
    assert both(cycle, PAST + DAY - MS) == {"standing": 48}
    before = len(cycle.archived())
    assert told(expire(cycle, PAST + DAY, plan=True)) == {"expired": 48}
    assert (before, len(cycle.archived())) == (48, 48)
    assert ended_before(cycle.database, cycle.policy) is None
    assert told(expire(cycle, PAST + DAY)) == {"expired": 48}
    assert (cycle.archived(), cycle.verify().bad) == ([], [])
    assert ended_before(cycle.database, cycle.policy) is not None
    assert both(cycle, PAST + 2 * DAY) == {}
    receipts = cycle.database["bucketwise_receipts"]
    ended = list(receipts.find({"kind": "expire"}))
    assert sum(it["buckets"] for it in ended) == 48
    assert receipts.count_documents({"kind": {"$in": ["tombstone", "offline"]}, "state": {"$ne": None}}) == 0
    if to == "online":
        assert receipts.count_documents({"kind": "tombstone"}) == 0
        assert len(cycle.verify().bad) == 0


def keeping(cycle: Cycle, days: int) -> Cycle:
    """The same archive under a policy that keeps for so many days, of which fifty in the archive."""
    assert cycle.policy.archive is not None
    archive = cycle.policy.archive.model_copy(update={"after": (days - 50) * DAY})
    return with_policy(cycle, archive=archive, retain=RETAIN.model_copy(update={"archive": days * DAY}))


@KIND
def test_readings_are_past_by_whole_days(prepared: States, to: str) -> None:
    """An online archive by the day of the last reading, an offline one by the last day of a commit."""
    cycle = keeping(prepared(two_days(to), archived), 200)
    first, second = DAY0 + 201 * DAY, DAY0 + 202 * DAY
    assert both(cycle, first - MS) == {}
    assert told(expire(cycle, first, plan=True)) == ({"tombstoned": 24} if to == "online" else {})
    assert told(expire(cycle, second - MS, plan=True)) == ({"tombstoned": 24} if to == "online" else {})
    assert told(expire(cycle, second, plan=True)) == {"tombstoned": 48}


@KIND
def test_without_an_end_nothing_is_looked_at(prepared: States, to: str) -> None:
    cycle = with_policy(prepared(two_days(to), archived), retain=None)
    assert both(cycle, PAST + 999 * DAY) == {}


@KIND
def test_what_was_lifted_stays(prepared: States, to: str) -> None:
    cycle = prepared(two_days(to), under_tombstones)
    context = cycle.context(PAST + DAY, fence=99)
    assert len(lift_archived(context, TimeRange(PAST, None))) == 0
    assert len(lift_archived(context, EVER)) == 2
    assert both(cycle, PAST + 31 * DAY - MS) == {"lifted": 48}
    assert both(cycle, PAST + 31 * DAY) == {"tombstoned": 48}
    assert both(cycle, PAST + 32 * DAY) == {"expired": 48}


def test_a_lift_of_a_day_holds_for_a_rule_that_comes_later(prepared: States) -> None:
    cycle = prepared(two_days("online"), under_tombstones)
    lift_archived(cycle.context(PAST, fence=99))
    rule = Rule(match={"symbol": ("MDB",)}, retain=RuleRetain(archive=60 * DAY))
    ruled = with_policy(cycle, rules=(rule,))
    assert both(ruled, PAST + 30 * DAY - MS) == {}
    assert both(ruled, PAST + 30 * DAY) == {"tombstoned": 48}


def test_a_day_of_which_nothing_tells_when_it_was_archived_stays_as_long_as_a_new_one(
    prepared: States,
) -> None:
    cycle = prepared(two_days("online"), archived)
    known = cycle.database["bucketwise_receipts"]
    assert known.delete_many({"kind": "archived"}).deleted_count == 2
    assert told(expire(cycle, PAST, plan=True)) == {}
    assert known.count_documents({"kind": "archived"}) == 0
    assert told(expire(cycle, PAST)) == {}
    assert known.count_documents({"kind": "archived"}) == 2
    assert both(cycle, PAST + 30 * DAY - MS) == {}
    assert both(cycle, PAST + 30 * DAY) == {"tombstoned": 48}


@KIND
def test_a_lift_in_the_middle_of_a_run_keeps_what_was_due(prepared: States, to: str) -> None:
    """The transaction looks at the tombstone again."""
    cycle, calls = prepared(two_days(to), under_tombstones), list[int]()
    before_the_delete = {"offline": 3, "online": 2}[to]

    def guard(_session: object) -> None:
        calls.append(1)
        if len(calls) == before_the_delete:
            lift_archived(cycle.context(PAST + DAY, fence=99))

    assert told(expire(cycle, PAST + DAY, guard=guard)) == {}
    assert len(cycle.archived()) == 48


@KIND
def test_tombstones_stay_void_when_the_length_that_placed_them_comes_back(prepared: States, to: str) -> None:
    cycle = prepared(two_days(to), under_tombstones)
    longer = with_policy(cycle, retain=RETAIN.model_copy(update={"archive": 999 * DAY}))
    assert both(longer, PAST + 2 * DAY) == {}
    assert both(with_policy(longer, retain=RETAIN), PAST + 2 * DAY) == {"tombstoned": 48}


def writer(cycle: Cycle, now: datetime) -> HoldWriter:
    context = cycle.context(now, fence=98)
    files = HoldFiles(context.connections.store, cycle.policy.identity, context.keys)
    return HoldWriter(cycle.database, cycle.policy.identity, context.deletions, nothing, files)


def hold(symbol: str, within: TimeRange = EVER) -> Hold:
    return Hold("case-9", {"symbol": symbol}, within, "a court", PAST, "ann", freeze=False, salt=bytes(32))


@KIND
def test_a_hold_keeps_what_it_covers_until_it_is_released(prepared: States, to: str) -> None:
    """An online archive bucket by bucket, an offline one the whole commit."""
    cycle, due = prepared(two_days(to), under_tombstones), PAST + DAY
    assert writer(cycle, due).place(hold("MDB", TimeRange(None, DAY0 + 6 * HOUR)))
    kept = 6 if to == "online" else 48
    expected = {"case-9": kept, **({"expired": 42} if to == "online" else {})}
    assert both(cycle, due) == expected
    for days in (0, 1):
        assert both(cycle, due + days * DAY) == {"case-9": kept}
    assert len(cycle.archived()) == kept
    assert writer(cycle, due + DAY).release("case-9", "ann")
    assert both(cycle, due + DAY) == {"expired": kept}
    assert cycle.archived() == []


@pytest.mark.parametrize("is_placed_again", [False, True], ids=["gone", "another of its name"])
def test_a_hold_that_is_released_before_its_day_is_settled_keeps_nothing(
    prepared: States, is_placed_again: bool
) -> None:
    """The transaction that notes what a hold keeps looks at the hold again."""
    cycle, due, calls = prepared(two_days("online"), under_tombstones), PAST + DAY, list[int]()
    assert writer(cycle, due).place(hold("MDB", TimeRange(None, DAY0 + 6 * HOUR)))

    def guard(_session: object) -> None:
        calls.append(1)
        if len(calls) == 3:  # after the end is noted, and buckets are deleted
            assert writer(cycle, due).release("case-9", "ann")
            assert not is_placed_again or writer(cycle, due).place(hold("ORCL"))

    assert told(expire(cycle, due, guard=guard)) == {"case-9": 6, "expired": 42}
    assert both(cycle, due) == {"expired": 6}


@KIND
def test_a_hold_on_others_keeps_nothing(prepared: States, to: str) -> None:
    cycle = prepared(two_days(to), under_tombstones)
    assert writer(cycle, PAST).place(hold("ORCL"))
    assert both(cycle, PAST + DAY) == {"expired": 48}


def put_back(cycle: Cycle) -> None:
    """Six buckets were restored, and are pinned."""
    under_tombstones(cycle)
    assert cycle.restore("ticks", until=DAY0 + 6 * HOUR).buckets == 6


@KIND
def test_what_is_live_as_well_stays(prepared: States, to: str) -> None:
    cycle, live = prepared(two_days(to), put_back), {"offline": 48, "online": 6}[to]
    assert both(cycle, PAST + DAY) == {"live": live, **({"expired": 42} if to == "online" else {})}
    assert both(cycle, PAST + DAY) == {"live": live}
    assert len(cycle.archived()) == live
    if to == "online":
        assert cycle.database["bucketwise_receipts"].count_documents({"kind": "tombstone"}) == 1


def kept(cycle: Cycle) -> None:
    assert cycle.run(ARCHIVED).deleted == 0


@KIND
def test_where_originals_stay_the_archive_ends_before_the_first(prepared: States, to: str) -> None:
    case = two_days(to)
    cycle = prepared(case.with_archive(delete=False), kept)
    assert both(cycle, PAST) == {}
    cycle.database["ticks"].delete_many({"d": {"$lt": DAY0 + 30 * HOUR}})
    assert told(expire(cycle, PAST, plan=True)) == ({"tombstoned": 24} if to == "online" else {})
    cycle.database["ticks"].delete_many({})
    assert both(cycle, PAST) == {"tombstoned": 48}
    assert both(cycle, PAST + DAY) == {"expired": 48}
    assert cycle.archived() == []


def change(field: str, value: object, kind: str) -> Callable[[Cycle], None]:
    def apply(cycle: Cycle) -> None:
        receipts = cycle.database["bucketwise_receipts"]
        assert receipts.update_many(
            {"kind": kind, field: {"$exists": True}}, {"$set": {field: value}}
        ).modified_count

    return apply


def other_receipt(cycle: Cycle) -> None:
    """The tombstone names a receipt that names others."""
    receipts = cycle.database["bucketwise_receipts"]
    receipts.update_many({"kind": "tombstones"}, {"$set": {"of": ["another"]}})


MEDDLED: dict[str, tuple[str, Callable[[Cycle], None]]] = {
    "due earlier": ("its tombstone is not", change("tombstone.due", PAST, "offline")),
    "due earlier, of a day": ("its tombstone is not", change("tombstone.due", PAST, "tombstone")),
    "of another receipt": ("its tombstone is not", other_receipt),
}


@pytest.mark.parametrize("name", MEDDLED)
def test_a_tombstone_counts_as_far_as_a_receipt_says_so(prepared: States, name: str) -> None:
    match, meddle = MEDDLED[name]
    cycle = prepared(two_days("online" if "day" in name else "offline"), under_tombstones)
    meddle(cycle)
    with pytest.raises(HaltedError, match=match):
        expire(cycle, PAST + DAY)
    assert len(cycle.archived()) == 48


@KIND
def test_what_was_lifted_is_so_for_as_long_as_its_receipt_says(prepared: States, to: str) -> None:
    cycle = prepared(two_days(to), under_tombstones)
    receipts, keys = cycle.context().receipts, cycle.keys
    lift_archived(cycle.context(PAST, fence=99))
    assert list(unfounded_tombstones(receipts, keys)) == []
    change("tombstone.until", PAST + 99 * DAY, "offline" if to == "offline" else "tombstone")(cycle)
    found = [str(it) for it in unfounded_tombstones(receipts, keys)]
    assert len(found) == (1 if to == "offline" else 2)
    assert all("its tombstone is not what the receipt says" in it for it in found)


@KIND
def test_an_earlier_tombstone_does_not_count_again(prepared: States, to: str) -> None:
    """One that was lifted, and is written back as it was."""
    cycle = prepared(two_days(to), under_tombstones)
    receipts = cycle.database["bucketwise_receipts"]
    before = list(receipts.find({"tombstone": {"$exists": True}}))
    lift_archived(cycle.context(PAST, fence=99))
    for it in before:
        receipts.update_one({"_id": it["_id"]}, {"$set": {"tombstone": it["tombstone"]}})
    with pytest.raises(HaltedError, match="an earlier one than the last"):
        expire(cycle, PAST + DAY)
    assert len(cycle.archived()) == 48


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [("last", DAY0 - DAY, "ends earlier than"), ("copied", DAY0, "archived earlier than")],
)
def test_a_commit_goes_as_late_as_its_manifest_says(
    prepared: States, field: str, value: datetime, match: str
) -> None:
    """Whatever its receipt says."""
    cycle = prepared(two_days("offline"), archived)
    if field == "last":
        cycle = keeping(cycle, 300)
    now = DAY0 + (300 if field == "last" else 65) * DAY
    change(field, value, "offline")(cycle)
    expire(cycle, now)
    with pytest.raises(HaltedError, match=match):
        expire(cycle, now + DAY)
    assert len(cycle.archived()) == 48


def ruled(to: str) -> Case:
    """What begins with an M stays longer than the rest, which is half of it."""
    case = two_days(to, rules=(Rule(match={"symbol": ("M*",)}, retain=RuleRetain(archive=400 * DAY)),))
    more = [
        encode({"_id": 100 + i, "symbol": "FOO", "d": at, "p": 1.0})
        for i, (_, at, _) in enumerate(case.readings)
    ]
    return replace(case, documents=[*case.documents, *more])


def both_archived(cycle: Cycle) -> None:
    assert cycle.run(ARCHIVED).deleted == 96


def test_buckets_of_an_online_archive_go_by_their_own_rules(prepared: States) -> None:
    cycle = prepared(ruled("online"), both_archived)
    assert both(cycle, PAST) == {"tombstoned": 48}
    assert both(cycle, PAST + DAY) == {"expired": 48}
    assert all(b"MDB" in it for it in cycle.archived())
    days = cycle.database["bucketwise_receipts"].count_documents({"kind": "archived"})
    assert days == 2, "others of these days are archived still"
    assert both(cycle, DAY0 + 410 * DAY) == {"tombstoned": 48}
    assert both(cycle, DAY0 + 411 * DAY) == {"expired": 48}
    assert cycle.database["bucketwise_receipts"].count_documents({"kind": "archived"}) == 0
