"""What a database and a store have recorded of an archive's binding."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from pymongo.client_session import ClientSession

from bucketwise.archivers.binding.deployment import Deployment
from bucketwise.archivers.binding.markers import record_name
from bucketwise.archivers.format.names import DIGITS
from bucketwise.archivers.records.faults import reading
from bucketwise.archivers.records.receipts import CODEC, Receipts
from bucketwise.config.errors import HaltedError

Document = dict[str, Any]
#: Steps that are remembered though their objects are not in the store: those of so many runs that crashed.
MOST_BEGUN = 16
_KEY = re.compile(rf"([0-9]{{{DIGITS}}})-([0-9a-z]+)\.json")


class Step(NamedTuple):
    """One step: its number, and the run that made it."""

    number: int
    run: str


@dataclass(frozen=True)
class Lineage:
    """What a database has recorded. `begun`: its last steps, and the one that the store had when the last of
    them began. `done`: the number of the last one that was in the store; 0 before the first."""

    begun: tuple[Step, ...] = ()
    done: int = 0

    @classmethod
    def of(cls, told: Document | None) -> Lineage:
        """Returns the lineage that a record tells of; an empty one without a record."""
        if told is None:
            return cls()
        return cls(tuple(Step(it["number"], it["run"]) for it in told["begun"]), told["done"])

    @property
    def body(self) -> Document:
        """Returns the fields of a record."""
        return {"begun": [it._asdict() for it in self.begun], "done": self.done}

    def is_behind(self, listed: Iterable[Step]) -> bool:
        """Returns whether the store lacks the last step that was in it."""
        return self.done > max((it.number for it in listed), default=0)

    def foreign(self, listed: Iterable[Step]) -> list[Step]:
        """Returns the steps in the store that this database has not begun. Of those before the oldest that it
        remembers, nothing is known: they were its own when it went on from them."""
        oldest = min((it.number for it in self.begun), default=0) if self.done else 0
        return sorted(it for it in listed if it not in self.begun and it.number >= oldest)

    def next(self, listed: Iterable[Step], run: str) -> Step:
        """Returns the step that comes after all others."""
        return Step(max((it.number for it in (*listed, *self.begun)), default=0) + 1, run)

    def begin(self, step: Step, there: Sequence[Step] = ()) -> Lineage:
        """Returns the lineage with a step begun. `there`: its own in the store, which stay known."""
        others = [it for it in self.begun if it not in there]
        return Lineage((*sorted({*there, *others[-MOST_BEGUN:]}), step), self.done)

    def finish(self, step: Step) -> Lineage:
        """Returns the lineage once a step's object is in the store."""
        return Lineage(self.begun, step.number)


def lineage_prefix(policy: str) -> str:
    """Returns the prefix of the keys of all steps."""
    return f"{policy}/meta/lineage/"


def step_key(policy: str, step: Step) -> str:
    """Returns the key of a step's object."""
    return f"{lineage_prefix(policy)}{step.number:0{DIGITS}d}-{step.run}.json"


def step_of(policy: str, key: str) -> Step | None:
    """Returns the step that a key is of; None where no run has put such an object."""
    match = _KEY.fullmatch(key.removeprefix(lineage_prefix(policy)))
    return Step(int(match[1]), match[2]) if match else None


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
