"""The collections of an online archive: where they are, and how copies come into them and leave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.archivers.writes.inserts import insert_raw
from bucketwise.buckets.bson.raw import LOSSLESS, Batch
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy

Document = dict[str, Any]


def archive_collections(policy: Policy) -> tuple[str, str | None]:
    """Returns the collections of an online archive: of buckets, and of their overflow (None without any)."""
    archived = policy.archive_collections
    assert archived is not None
    return archived.buckets, archived.overflow


def archived_source(
    database: Database[Document], policy: Policy, session: ClientSession | None = None
) -> Source:
    """Returns the source that reads the policy's online archive, within a session if one is given."""
    target, overflow = archive_collections(policy)
    return Source(database, policy, target, overflow, session)


def put_copies(database: Database[Document], policy: Policy, copies: Batch, session: ClientSession) -> None:
    """Inserts buckets with their overflow into the archive, in a transaction."""
    target, overflow = archive_collections(policy)
    insert_raw(database, target, copies.main, session)
    if overflow is not None:
        insert_raw(database, overflow, copies.extra, session)


def take_back(
    database: Database[Document], policy: Policy, ids: Sequence[Any], session: ClientSession
) -> None:
    """Deletes the buckets with these `_id`s, and their overflow, from the archive, in a transaction."""
    target, overflow = archive_collections(policy)
    if overflow is not None and policy.overflow is not None:
        extra = database.get_collection(overflow, codec_options=LOSSLESS)
        extra.delete_many({policy.overflow.ref_field: {"$in": list(ids)}}, session=session)
    main = database.get_collection(target, codec_options=LOSSLESS)
    main.delete_many({"_id": {"$in": list(ids)}}, session=session)
