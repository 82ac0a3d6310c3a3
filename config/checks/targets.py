"""Checks which policies read, write and delete in which collections: no two may conflict."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bucketwise.config.checks.names import collection_fault
from bucketwise.config.policies import Policy
from bucketwise.config.problems import Fault, Key, ProblemReport, dotted


class _Use(NamedTuple):
    """The use of a collection by a policy."""

    key: Key
    collection: str
    policy: Policy


def check_targets(policies: Iterable[Policy], database: str, report: ProblemReport) -> None:
    """Reports invalid collection names, and collections that policies would use in conflicting ways."""
    policies = list(policies)
    sources = [use for policy in policies for use in _sources(policy)]
    targets = [use for policy in policies for use in _targets(policy)]
    for key, collection in {use.key: use.collection for use in (*targets, *sources)[::-1]}.items():
        if fault := collection_fault(collection, database):
            report.add(key, fault)
    for use, earlier in _clashes(targets):
        message = f"{dotted(earlier.key)} already writes this collection"
        report.add(use.key, Fault(message, "give each target a collection of its own"))
    for target in targets:
        for source in (it for it in sources if it.collection == target.collection != ""):
            message = f"{dotted(source.key)} is this collection: it would be both read and written"
            report.add(target.key, Fault(message, "write to a collection that no policy reads"))
    for use, earlier in _clashes(sources):
        if use.policy is earlier.policy:
            message = f"{dotted(earlier.key)} is this collection: overflow and buckets must be apart"
            report.add(use.key, Fault(message, "name the collection of the overflow"))
        elif _deletes(use.policy) and _deletes(earlier.policy):
            message = f"{dotted(earlier.key)} is this collection too, and both policies delete from it"
            fault = Fault(message, "let one policy archive it, or write archive.delete = false in one")
            at = [("policies", it.policy.name, "archive") for it in (use, earlier)]
            report.add(use.key, fault, rests_on=[(*it, key) for it in at for key in ("to", "delete")])


def check_identities(policies: Iterable[Policy], report: ProblemReport) -> None:
    """Reports an `id` that is the name or the `id` of another policy: both would keep their records and
    archives under it."""
    for earlier, policy in itertools.permutations(policies, 2):
        if policy.id in (earlier.name, earlier.id) and policy.id is not None:
            message = f"policy {earlier.name} has this name or id: their archives would be one"
            remedy = "write the name that this policy had before it was renamed; no other may have it"
            report.add(("policies", policy.name, "id"), Fault(message, remedy))


def reserved(policies: Iterable[Policy]) -> dict[str, str]:
    """Returns the collections that policies write, or that hold the overflow of their buckets: name, and the
    key that says so."""
    uses = [use for policy in policies for use in (*_targets(policy), *list(_sources(policy))[1:])]
    return {use.collection: dotted(use.key) for use in uses}


def _sources(policy: Policy) -> Iterator[_Use]:
    at: Key = ("policies", policy.name)
    yield _Use((*at, "collection"), policy.collection, policy)
    if policy.overflow is not None:
        yield _Use((*at, "overflow", "collection"), policy.overflow.collection, policy)


def _targets(policy: Policy) -> Iterator[_Use]:
    at: Key = ("policies", policy.name)
    if policy.rollup is not None:
        for name, collection in (("hourly", policy.rollup.hourly), ("daily", policy.rollup.daily)):
            if collection is not None:
                yield _Use((*at, "rollup", name), collection, policy)
        for number, level in enumerate(policy.rollup.levels, start=1):
            yield _Use((*at, "rollup", "levels", str(number), "collection"), level.collection, policy)
    # Offline archives do not use theirs, but it may stay in the file; a wrong one would wait to do harm.
    if policy.archive is not None and policy.archive.collection is not None:
        key: Key = (*at, "archive", "collection")
        names = [policy.archive.collection]
        if (archived := policy.archive_collections) is not None:
            names = [archived.buckets, archived.versions, *archived.copies[1:]]
        yield from (_Use(key, name, policy) for name in names)


def _clashes(uses: list[_Use]) -> Iterator[tuple[_Use, _Use]]:
    """Yields each two uses of one collection, the later first. An empty name is no collection."""
    for earlier, use in itertools.combinations(uses, 2):
        if use.collection == earlier.collection != "":
            yield use, earlier


def _deletes(policy: Policy) -> bool:
    archive = policy.archiving
    return archive is not None and archive.delete and archive.after is not None
