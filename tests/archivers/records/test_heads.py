"""The record of the heads, as the server sums it up when a commit is registered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pymongo.database import Database

from bucketwise.archivers.format.manifest import Link
from bucketwise.archivers.format.names import commit_at, commit_name
from bucketwise.archivers.records.heads import Heads, heads_update, read_heads
from bucketwise.archivers.records.receipts import Receipts
from bucketwise.archivers.records.registry import Registry

Document = dict[str, Any]


def link(number: int) -> Link:
    name = commit_name(number, number, number, f"{number:064x}")
    return Link(sequence=number, commit=name, sha256=f"{number:064x}")


OLD, OTHER, THIRD, NEW = map(link, range(1, 5))


def there(sequence: int, *links: Link, **more: Any) -> Document:
    return {"kind": "heads", "sequence": sequence, "commits": [it.model_dump() for it in links], **more}


def other_order(sequence: int, *links: Link) -> Document:
    """As somebody may have put them back by hand."""
    found = there(sequence, *links)
    return found | {"commits": [dict(reversed(it.items())) for it in found["commits"]]}


CASES: dict[str, tuple[Document | None, int, tuple[Link, ...], Heads]] = {
    "the first": (None, 1, (), Heads(1, (NEW,), frozenset())),
    "receipts were lost": (None, 7, (OLD,), Heads(7, (NEW,), frozenset())),
    "after one": (there(1, OLD), 2, (OLD,), Heads(2, (NEW,), frozenset())),
    "after two": (there(2, OLD, OTHER), 3, (OTHER, OLD), Heads(3, (NEW,), frozenset())),
    "beside some": (there(2, OLD, OTHER, THIRD), 3, (OTHER,), Heads(3, (OLD, THIRD, NEW), frozenset())),
    "an older one, late": (there(9, OTHER), 2, (OLD,), Heads(9, (OTHER, NEW), frozenset())),
    "after a lost one": (there(2, OLD, lost=["77"]), 3, (OLD,), Heads(3, (NEW,), frozenset(["77"]))),
    "of fields in another order": (
        other_order(2, OLD, OTHER),
        3,
        (OLD,),
        Heads(3, (OTHER, NEW), frozenset()),
    ),
}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("name", CASES)
def test_a_commit_takes_the_place_of_those_it_names(database: Database[Document], name: str) -> None:
    before, sequence, previous, expected = CASES[name]
    receipts, other = Receipts(database, "it"), Receipts(database, "other")
    for policy in (receipts, other):
        if before is not None:
            policy.collection.insert_one({"_id": policy.identity("heads"), **before})
    untouched = read_heads(other)
    types = {"b": "int64", "a": "string"}
    manifest: Any = SimpleNamespace(sequence=sequence, previous=previous, link=NEW, series_types=types)
    receipts.prepare()
    with database.client.start_session() as session, session.start_transaction():
        live = np.ones(3, dtype=np.bool_)
        facts = {"seal": NEW.sha256, "sequence": sequence}
        receipts.set_live(NEW.commit, live, facts, session, also=[heads_update(receipts, manifest)])
    assert read_heads(receipts) == expected
    registered = commit_at(NEW.commit, sequence, NEW.sha256)
    assert receipts.all_registered() == {NEW.commit: registered}
    assert Registry(receipts).types(["a", "b"]) == {"a": "string", "b": "int64"}
    assert Registry(receipts).types(["a"]) is None
    assert read_heads(other) == untouched
    found = database["bucketwise_receipts"].find_one({"_id": {"policy": "it", "name": "heads"}})
    assert found is not None and found["kind"] == "heads"
    assert [list(it) for it in found["commits"]][-1] == ["sequence", "commit", "sha256"]


def test_what_a_transaction_wrote_is_seen_inside_it_alone(database: Database[Document]) -> None:
    receipts = Receipts(database, "it")
    receipts.prepare()
    with database.client.start_session() as session, session.start_transaction():
        receipts.update("a", {"$set": {"kind": "none"}}, session)
        assert receipts.get("a") is None
        assert set(receipts.get_all(["a", "b"], session)) == {"a"}
    assert set(receipts.get_all(["a", "b"])) == {"a"}
