"""How far a policy is rolled up: one document a policy in `bucketwise_progress`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bson.codec_options import CodecOptions
from bson.datetime_ms import DatetimeMS
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.write_concern import WriteConcern

from config.fingerprint import fingerprint
from config.policies import Policy
from rollups.documents import milliseconds
from rollups.due import KindName, kinds_of

Document = dict[str, Any]
COLLECTION = "bucketwise_progress"
NO_GATE = 2**62  # later than every window


@dataclass(frozen=True)
class Progress:
    """Every due window of a kind that ends at or before its `through` (milliseconds) is rolled up."""

    through: dict[KindName, int] = field(default_factory=dict)


def load(database: Database[Document], policy: Policy) -> Progress:
    """Empty where nothing is rolled up yet, or was with settings that gave other summaries."""
    found = _collection(database).find_one({"_id": policy.name})
    if found is None or found.get("fingerprint") != fingerprint(policy):
        return Progress()
    kinds = [kind.name for kind in kinds_of(policy) if found.get(f"{kind.name}_through") is not None]
    return Progress({kind: milliseconds(found[f"{kind}_through"]) for kind in kinds})


def store(database: Database[Document], policy: Policy, progress: Progress) -> None:
    """Only to be called once the summaries' writes are acknowledged."""
    document: Document = {"_id": policy.name, "fingerprint": fingerprint(policy)}
    document |= {f"{kind}_through": DatetimeMS(ms) for kind, ms in progress.through.items()}
    _collection(database).replace_one({"_id": policy.name}, document, upsert=True)


def rolled_up_through(database: Database[Document], policy: Policy) -> int | None:
    """Every window, hourly and daily, with a reading before it (milliseconds) is rolled up.

    None: nothing is yet. NO_GATE: the policy rolls nothing up.
    """
    kinds = kinds_of(policy)
    if not kinds:
        return NO_GATE
    through = load(database, policy).through
    if len(through) < len(kinds):
        return None
    return min(through[kind.name] - kind.reach for kind in kinds)


def note_gone(database: Database[Document], policy: Policy, before: Mapping[KindName, int]) -> None:
    """Summaries of windows that ended before these instants (milliseconds) are gone, or were never made."""
    known = gone_before(database, policy)
    noted = known | {kind: max(ms, known.get(kind, ms)) for kind, ms in before.items()}
    if noted != known:
        document: Document = {"_id": {"gone": policy.name}, "fingerprint": fingerprint(policy)}
        document |= {kind: DatetimeMS(ms) for kind, ms in noted.items()}
        _collection(database).replace_one({"_id": document["_id"]}, document, upsert=True)


def gone_before(database: Database[Document], policy: Policy) -> dict[KindName, int]:
    """What `note_gone` was told. A `retain` that is longer now does not bring them back."""
    found = _collection(database).find_one({"_id": {"gone": policy.name}})
    if found is None or found.get("fingerprint") != fingerprint(policy):
        return {}
    return {kind.name: milliseconds(found[kind.name]) for kind in kinds_of(policy) if kind.name in found}


def _collection(database: Database[Document]) -> Collection[Document]:
    options: CodecOptions[Document] = CodecOptions(tz_aware=True)
    return database.get_collection(COLLECTION, codec_options=options, write_concern=WriteConcern("majority"))
