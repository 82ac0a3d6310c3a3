"""The balance of an audit adds up, whatever has become of the buckets; and its history tells who did it."""

from __future__ import annotations

from typing import Any

import pytest

from bucketwise.jobs.audit.page import proof_in_words
from tests.jobs.place import MINUTES, NOW, POLICIES, Place
from tests.jobs.states import after

Body = dict[str, Any]
PARTS = ("in_archive", "online", "waiting", "restored", "erased", "ended")


def balance(place: Place, policy: str, now: str = NOW) -> Body:
    """With what has to hold of each."""
    ran = place("audit", "--json", "-p", policy, now=now)
    found: Body = ran.policy(policy)["balance"]
    assert found["archived"] == sum(found[it] for it in PARTS), found
    gone = found["in_archive"] + found["online"] + found["erased"] + found["ended"]
    assert found["deleted"] == gone + found["difference"], found
    assert found["live"] == place.database[policy].count_documents({})
    return found


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(
    ("policy", "kept", "count"), [("ticks", "in_archive", MINUTES), ("iot", "online", 18)]
)
@after("run")
def test_each_bucket_is_in_one_place(place: Place, policy: str, kept: str, count: int) -> None:
    nothing = dict.fromkeys(PARTS, 0)
    totals = {"archived": count, "difference": 0}
    assert balance(place, policy) == {**nothing, **totals, kept: count, "deleted": count, "live": 0}
    assert place("restore", "-p", policy, "--to", policy).code == 0
    assert balance(place, policy) == {**nothing, **totals, "restored": count, "deleted": 0, "live": count}
    assert place("unpin", "-p", policy).code == 0
    assert balance(place, policy)["waiting"] == count
    assert place("run", "-p", policy).code == 0
    assert balance(place, policy) == {**nothing, **totals, kept: count, "deleted": count, "live": 0}


@pytest.mark.proof
def test_what_waits_for_its_grace_is_archived_and_live(place: Place) -> None:
    place.write_config(POLICIES.replace('after = "30d"', 'after = "30d"\ngrace = "3d"'))
    assert place("run").code == 0
    for policy, count in (("ticks", MINUTES), ("iot", 18)):
        found = balance(place, policy)
        assert (found["archived"], found["waiting"], found["deleted"]) == (count, count, 0)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("policy", ["ticks", "iot"])
@after("run")
def test_what_is_erased_is_told_with_its_reason(place: Place, policy: str) -> None:
    count = balance(place, policy)["archived"]
    series = {"ticks": "symbol=MDB", "iot": "sensor=7"}[policy]
    erased = place("erase", "-p", policy, "--series", series, "--reason", "case 17", "--confirm", policy)
    assert erased.code == 0, erased
    found = balance(place, policy)
    assert (found["archived"], found["erased"], found["in_archive"], found["online"]) == (count, count, 0, 0)
    told = place("audit", "--json", "-p", policy).policy(policy)["history"]
    (event,) = [it for it in told["events"] if it["kind"] == "erase"]
    assert event["reason"] == "case 17" and event["host"] and event["user"] and event["done_at"]


@pytest.mark.proof
def test_what_has_ended_is_told(place: Place) -> None:
    place.write_config(POLICIES.replace('hourly = "365d"', 'archive = "31d"'))
    for now in ("2018-08-30T00:00:00Z", "2018-09-01T00:00:00Z", "2018-09-20T00:00:00Z"):
        assert place("run", "-p", "ticks", now=now).code == 0
    found = balance(place, "ticks", now="2018-09-20T00:00:00Z")
    assert (found["archived"], found["ended"], found["in_archive"]) == (MINUTES, MINUTES, 0)


@pytest.mark.proof
@after("run")
def test_who_did_what_is_told(place: Place) -> None:
    assert place("hold", "add", "case-17", "-p", "ticks", "--reason", "Litigation").code == 0
    assert place("hold", "release", "case-17", "-p", "ticks").code == 0
    assert place("drill", "-p", "ticks").code == 0
    assert place("verify", "-p", "ticks").code == 0
    assert place("audit", "-p", "ticks", "--html", "first.html").code == 0
    told = place("audit", "--json", "-p", "ticks").policy("ticks")["history"]
    assert [(it["kind"], it["hold"]) for it in told["events"]] == [
        ("release", "case-17"),
        ("hold", "case-17"),
    ]
    assert [(it["verb"], it["outcome"], proof_in_words(it)) for it in told["proofs"]] == [
        ("audit", "done", "0 errors, 0 warnings; 1 of 1 part read"),
        ("verify", "done", "1 part with 10,800 readings, 0 bad"),
        ("drill", "done", f"{MINUTES} of {MINUTES} buckets equal, of 1 day"),
    ]
    (commit,) = told["commits"]
    receipts = place("receipts", "--json", "-p", "ticks").policy("ticks")["deletes"]
    deletes = [it for it in receipts if it["kind"] == "delete"]
    assert commit["commit"] == deletes[0]["held_by"]["commit"]
    assert (commit["buckets"], commit["receipts"]) == (MINUTES, len(deletes))
    assert all(it["now_given"] == NOW for it in told["now_given"]) and told["now_given"]


@after("run")
def test_where_an_earlier_version_has_deleted_nothing_is_compared(place: Place) -> None:
    place.database.bucketwise_receipts.update_many({}, {"$unset": {"removed": ""}})
    found = place("audit", "--json", "-p", "ticks").policy("ticks")["balance"]
    assert (found["archived"], found["deleted"], found["difference"]) == (MINUTES, None, None)
