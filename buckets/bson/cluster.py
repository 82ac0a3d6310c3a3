"""What collections are to the server: their UUIDs, and what is different through a mongos: on a sharded
cluster, or on one behind a load balancer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pymongo.database import Database
from pymongo.errors import OperationFailure
from pymongo.topology_description import TOPOLOGY_TYPE

Document = dict[str, Any]


def uuid_of(listed: Mapping[str, Any]) -> str | None:
    """Returns the UUID of a collection as people write it, from what MongoDB lists of it; None for a view."""
    found = listed["info"].get("uuid")
    return None if found is None else str(found if isinstance(found, UUID) else UUID(bytes=bytes(found)))


def is_sharded(database: Database[Any]) -> bool:
    """Returns whether the database is reached through a mongos. Sends no command if the client has sent
    one before."""
    found = database.client.topology_description.topology_type
    return found in (TOPOLOGY_TYPE.Sharded, TOPOLOGY_TYPE.LoadBalanced)


def shard_key(database: Database[Document], collection: str) -> Document | None:
    """Returns the shard key of a collection; None if it is not sharded, or if the user may not ask."""
    try:
        found = database.client["config"]["collections"].find_one({"_id": f"{database.name}.{collection}"})
    except OperationFailure:
        return None
    return None if found is None or found.get("unsplittable") else dict(found["key"])


def keeps_ids_unique(key: Document) -> bool:
    """Returns whether documents with one `_id` always lie on one shard, which lets in one of them: where all
    fields of the shard key are of the `_id`."""
    return all(path.split(".")[0] == "_id" for path in key)
