"""Documents written as they are."""

from __future__ import annotations

from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.database import Database

from buckets.raw import LOSSLESS, Docs
from rollups.guarded import majority

Document = dict[str, Any]


def insert_raw(
    database: Database[Document], collection: str, documents: Docs, session: ClientSession | None = None
) -> None:
    """Insert documents as they are; outside a transaction w: majority. Raises pymongo's errors."""
    concern = None if session else majority(database)
    target = database.get_collection(collection, codec_options=LOSSLESS, write_concern=concern)
    if len(documents):
        raw = [RawBSONDocument(document, LOSSLESS) for document in documents]
        target.insert_many(raw, ordered=False, session=session)
