"""The end of an archive: tombstones, what goes after them, and what stays."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.clock import iso
from tests.jobs.place import NOW, POLICIES, START, Place

Document = dict[str, Any]
#: Two years after the readings, and two weeks more.
PAST = datetime.fromisoformat("2020-06-30T12:00:00Z")
DAY = timedelta(days=1)
ENDING = POLICIES.replace('[policies.ticks.retain]\nhourly = "365d"\n', "") + (
    '[policies.iot.retain]\narchive = "2y"\n[policies.ticks.retain]\narchive = "2y"\n'
)
NONE = {"days": 0, "buckets": 0, "bytes": 0}


@pytest.fixture
def ending(place: Place) -> Place:
    """Three hours of a day of each policy are archived."""
    place.write_config(ENDING)
    assert place("run", "--json").code == 0
    return place


def run(place: Place, now: datetime, policy: str = "ticks", verb: str = "run") -> Document:
    ran = place(verb, "-p", policy, "--json", now=iso(now))
    assert ran.code == 0, ran
    return dict(ran.policy(policy)["archive_expiry"])


def amounts(body: Document) -> dict[str, int]:
    return {name: it["buckets"] for name, it in body.items() if isinstance(it, dict) and it.get("buckets")}


def audited(place: Place, now: datetime) -> None:
    ran = place("audit", "--json", now=iso(now))
    assert ran.code == 0, ran
    assert place("verify", now=iso(now)).code == 0


def files(place: Place) -> set[str]:
    """What the store holds of commits, without links."""
    root = place.folder / "store" / "ticks"
    found = (it for it in root.rglob("*") if it.is_file())
    names = {str(it.relative_to(root)) for it in found}
    return {it for it in names if it.startswith(("data/", "meta/buckets", "meta/manifests", "meta/versions"))}


@pytest.mark.parametrize(("policy", "buckets"), [("ticks", 180), ("iot", 18)])
def test_what_is_past_gets_a_tombstone_and_goes_when_it_has_stood(
    ending: Place, policy: str, buckets: int
) -> None:
    summaries = {it["_id"]["start"]: it for it in ending.database[f"{policy}_hourly"].find()}
    assert amounts(run(ending, PAST - DAY, policy)) == {}
    assert amounts(run(ending, PAST + DAY, policy, "plan")) == {"tombstoned": buckets}
    assert amounts(run(ending, PAST + DAY, policy)) == {"tombstoned": buckets}
    assert amounts(run(ending, PAST + 7 * DAY, policy)) == {"standing": buckets}
    audited(ending, PAST + 7 * DAY)
    due = PAST + 8 * DAY
    assert amounts(run(ending, due, policy, "plan")) == {"expired": buckets}
    body = run(ending, due, policy)
    assert amounts(body) == {"expired": buckets}
    assert (body["expired"]["days"], body["expired"]["bytes"] > 0) == (1, True)
    assert amounts(run(ending, due, policy)) == {}
    audited(ending, due)
    assert {it["_id"]["start"]: it for it in ending.database[f"{policy}_hourly"].find()} == summaries
    assert len(ending("readings", "-p", policy, now=iso(due)).out.splitlines()) == 1
    (receipt,) = [it for it in receipts(ending, policy) if it["kind"] == "expire"]
    assert (receipt["buckets"], receipt["first"]) == (buckets, iso(START))
    rows = ending("coverage", "-p", policy, "--json", now=iso(due)).policy(policy)["days"]
    assert [it["state"] for it in rows] == ["summarised"]
    if policy == "ticks":
        assert files(ending) == set()
    else:
        assert ending.database["iot_archive"].count_documents({}) == 0
        assert ending.database["bucketwise_receipts"].count_documents({"kind": "tombstone"}) == 0


def receipts(place: Place, policy: str) -> list[Document]:
    return list(place("receipts", "--json", "-p", policy).policy(policy)["deletes"])
