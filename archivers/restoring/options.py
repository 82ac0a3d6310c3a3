"""The options of a restore, and whether it can be done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.records.policies import PolicyRecords
from bucketwise.archivers.versions.history import History
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.fields.selectors import check_selector
from bucketwise.buckets.fields.times import EVER, TimeRange
from bucketwise.buckets.models import model_of
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy
from bucketwise.rollups.context import Guard

Document = dict[str, Any]


class Mode(StrEnum):
    """The choice between several versions of a bucket."""

    latest = "latest"
    all = "all"
    merged = "merged"


class VersionHandling(NamedTuple):
    """The choice between several versions of a bucket, and where the older ones go."""

    mode: Mode = Mode.merged
    aside: str | None = None  # the collection of older ones; None: that of the others


MERGED = VersionHandling()


@dataclass(frozen=True)
class Target:
    """The collection that buckets go to. `note` records them, in the transaction that puts them."""

    database: Database[Document]
    policy: Policy
    collection: str
    guard: Guard
    how: VersionHandling
    note: Callable[[list[Plan], ClientSession], None]

    @property
    def aside(self) -> str:
        """Returns the collection that older versions go to."""
        return self.how.aside or self.collection

    @property
    def is_source(self) -> bool:
        """Returns whether buckets go back into the source."""
        return self.collection == self.policy.collection


class Plan(NamedTuple):
    """The documents to put for one bucket, and those that may be there now."""

    history: History
    final: Batch  # of one
    aside: list[bytes]  # documents of older versions
    known: list[Batch]  # all versions, and what they are merged


@dataclass(frozen=True)
class RestoreOptions:
    """The options of a restore.

    `within`: every bucket with a reading in it. `series`: only those of these series, fields as text. `to`:
    the collection that they go to. `how`: what to do with several versions of a bucket. `pinned_until`: in
    the source they are pinned, so that no run deletes or archives them before then; None: until they are
    released. `skip_damaged`: to leave out what the archive can't give. `dry_run`: to count what would be
    restored, whatever is in the target."""

    to: str
    within: TimeRange = EVER
    series: Mapping[str, str] = field(default_factory=dict)
    how: VersionHandling = MERGED
    pinned_until: datetime | None = None
    skip_damaged: bool = False
    dry_run: bool = False


def check_request(context: ArchiveContext, options: RestoreOptions) -> None:
    """Raises UsageError where a restore is not possible with these options. Changes nothing."""
    policy, how = context.policy, options.how
    check_selector(policy, options.series)
    if policy.archiving is None:
        raise UsageError(f"policy {policy.name} archives nothing, so there is nothing to restore")
    _check_collection(context, "--to", options.to)
    _check_versions(policy, options.to, how)
    if how.aside is not None:
        _check_collection(context, "--versions-to", how.aside)


def _check_versions(policy: Policy, to: str, how: VersionHandling) -> None:
    if how.aside is not None and how.mode != Mode.all:
        raise UsageError(f"--versions-to {how.aside}: older versions are put there with --versions all alone")
    if how.aside == policy.collection:
        raise UsageError(f"--versions-to {how.aside}: older versions would be live there; name another one")
    if to != policy.collection or how.mode == Mode.merged:
        return
    if how.mode == Mode.all and how.aside is None:
        raise UsageError(
            f"--versions all: in {to} the older versions would be live buckets of their own. Name another "
            "collection for them: --versions-to"
        )


def _check_collection(context: ArchiveContext, option: str, to: str) -> None:
    database, policy = context.database, context.policy
    if to in _written(policy) or to.startswith(("system.", "bucketwise_")) or not to or "$" in to:
        remedy = "name the source or a new collection"
        raise UsageError(f"{option} {to}: buckets can't be restored there; {remedy}")
    if to != policy.collection:
        _check_not_anothers(context, option, to)
    found = next(iter(database.list_collections(filter={"name": to})), None)
    wanted = model_of(policy).collection_type
    if found is not None and found["type"] != wanted:
        needed = "a native time-series collection" if wanted == "timeseries" else "an ordinary collection"
        raise UsageError(f"{option} {to}: it is a {found['type']}; this policy's buckets need {needed}")


def _written(policy: Policy) -> list[str | None]:
    """Returns the collections of a policy other than its source."""
    targets = list(policy.rollup.targets.values()) if policy.rollup else []
    overflow = [policy.overflow.collection] if policy.overflow is not None else []
    return [*targets, *(policy.archive_collections or ()), *overflow]


def _check_not_anothers(context: ArchiveContext, option: str, to: str) -> None:
    """Raises UsageError where a collection is another policy's, of this file or as records tell: it would
    count, archive and delete what is restored there."""
    recorded = PolicyRecords(context.database, context.store, context.keys).standing()
    for other in (*context.known, *recorded):
        if other.identity != context.policy.identity and to in (other.collection, *_written(other)):
            raise UsageError(
                f"{option} {to}: policy {other.name} works on this collection, and would take what is "
                "restored there for its own. Name a new collection, or the source of this policy"
            )
