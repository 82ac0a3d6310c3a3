"""What a database and a store have recorded of an archive's binding."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pymongo.client_session import ClientSession

from bucketwise.archivers.binding.deployment import Deployment
from bucketwise.archivers.binding.lineage import Lineage
from bucketwise.archivers.binding.markers import record_name
from bucketwise.archivers.records.faults import reading
from bucketwise.archivers.records.receipts import CODEC, Receipts
from bucketwise.config.errors import HaltedError

Document = dict[str, Any]
OWNER = "owner"
_FIELDS = ("owner", "deployment", "lineage", "marker", "adopting")


@dataclass(frozen=True)
class BindingRecord:
    """What the database has recorded. `owner`: the random id that the archive knows it by. `marker`: of the
    store that the policy has used; `known`: of the store that any policy has used at this URL. `adopting`:
    an adoption that has not ended. `time`: the server's, where there was a record."""

    owner: str | None = None
    deployment: Deployment | None = None
    lineage: Lineage = field(default_factory=Lineage)
    marker: str | None = None
    known: str | None = None
    adopting: Document | None = None
    time: datetime | None = None


def read_record(receipts: Receipts, url: str | None, session: ClientSession | None = None) -> BindingRecord:
    """Returns what the database has recorded of a policy and of the store at a URL, with one query."""
    own = receipts.identity(OWNER)
    of_store = Document(policy="", name=record_name(url or ""))
    wanted = {**dict.fromkeys(_FIELDS, 1), "time": "$$NOW"}
    collection = receipts.collection.with_options(codec_options=CODEC)
    found = {
        it["_id"]["name"]: it
        for it in collection.find({"_id": {"$in": [own, of_store]}}, wanted, session=session)
    }
    mine, store = found.get(OWNER, {}), found.get(of_store["name"], {})
    with reading(OWNER):
        told = mine.get("deployment")
        return BindingRecord(
            mine.get("owner"),
            None if told is None else Deployment.of(told),
            Lineage.of(mine.get("lineage")),
            mine.get("marker"),
            store.get("marker"),
            mine.get("adopting"),
            mine.get("time"),
        )


@dataclass(frozen=True)
class OwnerFile:
    """The file `meta/owner.json`. `deployment`: None where it was written before there was more than an
    owner. `text`: what it says, for people."""

    owner: str
    deployment: Deployment | None
    text: str

    @classmethod
    def of(cls, data: bytes, place: str) -> OwnerFile:
        """Returns what the bytes of the file say. Raises HaltedError where they are no such file's."""
        try:
            told = json.loads(data)
            deployment = Deployment.of(told["deployment"]) if "deployment" in told else None
            name = deployment.name if deployment else f"database {told['database']}"
            by = f", written by {told['user']} on {told['host']} at {told['at']}" if "at" in told else ""
            return cls(str(told["owner"]), deployment, f"{name}{by}"[:400])
        except (ValueError, RecursionError, TypeError, KeyError):
            raise HaltedError(
                f"{place} does not say whose archive this is: {data[:80]!r}. Nothing was changed. Restore it "
                "from a backup; or, if this database alone archives here, take it over: bucketwise adopt "
                "--reason TEXT"
            ) from None
