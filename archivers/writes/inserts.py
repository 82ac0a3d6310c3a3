"""Documents written as they are, and collections for them."""

from __future__ import annotations

import contextlib
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import CollectionInvalid

from bucketwise.buckets.bson.raw import LOSSLESS, Docs
from bucketwise.rollups.guarded import majority

Document = dict[str, Any]


def make_packed(database: Database[Document], collection: str) -> None:
    """Creates a collection with zstd blocks, unless there is one of the name."""
    engine = {"wiredTiger": {"configString": "block_compressor=zstd"}}
    with contextlib.suppress(CollectionInvalid):  # it is there, or another run has just made it
        database.create_collection(collection, storageEngine=engine)


def insert_raw(
    database: Database[Document], collection: str, documents: Docs, session: ClientSession | None = None
) -> None:
    """Inserts documents as they are; outside a transaction, with majority concern. Raises pymongo's
    errors."""
    concern = None if session else majority(database)
    target = database.get_collection(collection, codec_options=LOSSLESS, write_concern=concern)
    if len(documents):
        raw = [RawBSONDocument(document, LOSSLESS) for document in documents]
        target.insert_many(raw, ordered=False, session=session)
