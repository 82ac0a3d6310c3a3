"""Late upserts under a `_id` that is in the online archive: merged there, the versions kept beside."""

from __future__ import annotations

import hashlib
from typing import Any

import bson
import pytest
from pymongo.database import Database

from archivers.standing import How, Mode
from config.errors import UsageError
from config.policies import Store
from tests.archivers.builders import CODEC, Case, encode, insert, raw_documents, slots
from tests.archivers.harness import Cycle
from tests.archivers.test_late_versions import archive, hours, original, versioned

Document = dict[str, Any]


@pytest.fixture
def cycle(database: Database[Document], file_store: Store) -> Cycle:
    base = slots("minute")
    return Cycle(database, Case(base.name, base.policy, [], []).online(), file_store)


def kept(cycle: Cycle) -> list[bytes]:
    """What lies beside the archive, in the order of versions, each proven by its SHA-256."""
    found = list(cycle.database["slots_archive_versions"].find().sort("_id", 1))
    for it in found:
        assert it["sha256"] == hashlib.sha256(it["document"]).hexdigest()
    return [it["document"] for it in found]


def test_the_archived_document_becomes_the_merged_one(cycle: Cycle) -> None:
    raw = archive(cycle, hours({3: 1.0, 5: 2.5}, unit="C"), hours({5: 7, 9: 4.0}), hours({0: 0.5}, note="x"))
    wanted = {**hours({3: 1.0, 5: 7, 9: 4.0, 0: 0.5}, unit="C"), "note": "x"}
    assert cycle.archived() == [encode(wanted)]
    assert kept(cycle) == raw
    report = cycle.run()
    assert (report.buckets, report.deleted, report.left, report.quarantined) == (0, 0, 0, [])


def test_restores_of_what_was_merged(cycle: Cycle) -> None:
    raw = archive(cycle, hours({3: 1.0}), hours({1: 1.0}, hour=4), hours({3: 7}))
    merged, other = encode(hours({3: 7})), raw[1]
    report = cycle.restore("back")
    assert raw_documents(cycle.database, "back") == sorted([merged, other])
    assert (report.buckets, report.readings, report.versions) == (2, 2, 0)
    for mode in (Mode.latest, Mode.merged, Mode.latest):
        report = cycle.restore("back", how=How(mode))
        assert raw_documents(cycle.database, "back") == sorted([raw[2], other])
        assert report.buckets == 2
    report = cycle.restore("again", how=How(Mode.all, "older"))
    assert (report.buckets, report.versions) == (2, 1)
    assert raw_documents(cycle.database, "again") == sorted([raw[2], other])
    assert [original(it) for it in sorted(raw_documents(cycle.database, "older"), key=versioned)] == raw[:1]
    with pytest.raises(UsageError, match="--versions latest"):
        cycle.restore("slots", how=How(Mode.latest))


def test_a_stranger_in_the_archive_is_never_changed(cycle: Cycle) -> None:
    stranger = encode(hours({3: 1.0}))
    insert(cycle.database, "slots_archive", [stranger])
    insert(cycle.database, "slots", [encode(hours({5: 7}))])
    for _ in range(2):
        report = cycle.run()
        assert [it.id for it in report.quarantined] == [hours({})["_id"]]
        assert "no receipt" in report.quarantined[0].reason
        assert cycle.archived() == [stranger]
        assert len(cycle.live()) == 1
    assert "slots_archive_versions" not in cycle.database.list_collection_names()


def test_other_series_are_not_merged(cycle: Cycle) -> None:
    (raw,) = archive(cycle, hours({3: 1.0}))
    late = hours({5: 7}) | {"meta": {"symbol": "y"}}
    insert(cycle.database, "slots", [encode(late)])
    report = cycle.run()
    assert "different series" in report.quarantined[0].reason
    assert (cycle.archived(), cycle.live()) == ([raw], [encode(late)])


def test_what_was_restored_and_changed_takes_the_place_of_all_versions(cycle: Cycle) -> None:
    archive(cycle, hours({3: 1.0}), hours({3: 7}))
    cycle.restore("slots")
    cycle.unpin()
    cycle.database["slots"].update_one({}, {"$set": {"p.8": 1.5}})
    mended = cycle.live()
    assert cycle.run().deleted == 1
    assert cycle.archived() == mended
    assert kept(cycle) == []
    archive(cycle, hours({9: 2.0}))
    assert kept(cycle) == [*mended, encode(hours({9: 2.0}))]
    assert bson.decode(cycle.archived()[0], CODEC)["p"] == {"3": 7, "8": 1.5, "9": 2.0}
