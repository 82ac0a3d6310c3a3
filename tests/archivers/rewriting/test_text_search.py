"""Where a value of an erased series still stands: in whose documents."""

from __future__ import annotations

import zlib
from typing import Any

import bson
from pymongo.database import Database

from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.erasing.kind import TextSearch
from bucketwise.buckets.fields.times import EVER
from bucketwise.config.tables import Store
from tests.archivers.builders import reading
from tests.archivers.harness import Cycle

Document = dict[str, Any]
NAME = "Erika Mustermann"


def search(database: Database[Document], file_store: Store) -> TextSearch:
    cycle = Cycle(database, reading(), file_store)
    return TextSearch(cycle.context(), Erasure(cycle.policy, {"symbol": NAME}, EVER, "case 17"))


def test_documents_of_another_policy_are_its_own_matter(
    database: Database[Document], file_store: Store
) -> None:
    """A document says whose it is in a field or in its `_id`; one that does not may be of this policy. Packed
    `_id`s are looked into."""
    database["bucketwise_runs"].insert_many(
        [
            {"_id": 1, "policy": "ticks", "error": f"of {NAME}."},
            {"_id": 2, "policy": "another", "error": f"of {NAME}."},
            {"_id": {"policy": "ticks"}, "error": NAME},
            {"_id": {"policy": "another"}, "error": NAME},
            {"_id": {"name": 1}, "error": NAME},
            {"_id": "told", "error": NAME},
            {"_id": "packed", "ids": zlib.compress(bson.encode({"0": NAME}))},
            {"_id": "other bytes", "ids": b"\0" + zlib.compress(bson.encode({"0": NAME}))},
            {"_id": "not told", "error": "nobody"},
        ]
    )
    database["bucketwise_empty"].insert_one({"_id": 1, "policy": "another", "error": NAME})
    database["others"].insert_one({"_id": 1, "policy": "ticks", "error": NAME})
    (found,) = search(database, file_store).own()
    assert (found.place, found.found, found.why.split()[0]) == ("bucketwise_runs", True, "5")


def test_a_collection_is_told_once_with_how_many_documents_name_it(
    database: Database[Document], file_store: Store
) -> None:
    database["others"].insert_many(
        [{"_id": 1, "by": NAME}, {"_id": 2, "to": [NAME]}, {"_id": 3, "by": "ann"}]
    )
    database["empty"].insert_one({"_id": 1, "by": "ann"})
    found = search(database, file_store).collections(["others", None, "empty", "others"])
    assert [(it.place, it.why.split()[0]) for it in found] == [("others", "2")]
