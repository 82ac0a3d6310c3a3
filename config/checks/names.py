"""Checks names, those that MongoDB, the ledger and the store can take; and that no two policies conflict in
the collections which they read, write and delete from."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bucketwise.config.policies import Policy
from bucketwise.config.problems import Fault, Key, ProblemReport, dotted

_LONGEST_NAMESPACE = 255  # bytes, MongoDB's limit on "database.collection"
_OPERATOR = Fault(
    "a name that starts with `$` is an operator to MongoDB, such as `$where` or `$function`",
    "name the field or collection itself, without `$`",
)


def policy_fault(name: str) -> Fault | None:
    """Returns why a policy can't have this name; None where it can."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        return None
    return Fault("a policy's name is a folder in the store", "use 1 to 64 letters, digits, `_` and `-`")


def database_fault(name: str) -> Fault | None:
    """Returns why MongoDB or bucketwise can't use a database of this name; None where they can."""
    if name in ("admin", "local", "config"):
        return Fault("this database is MongoDB's own", "name the database that holds the collections")
    if re.fullmatch(r"[^\x00-\x20/\\.\"$*<>:|?]+", name) and len(name.encode()) <= 63:
        return None
    remedy = 'use 1 to 63 bytes without blanks and without / \\ . " $ * < > : | ?'
    return Fault("it is not a valid MongoDB database name", remedy)


def collection_fault(name: str, database: str) -> Fault | None:
    """Returns why a policy can't use a collection of this name in that database; None where it can."""
    if not name:
        return Fault("it is empty", "name a collection")
    if any(part.startswith("$") for part in name.split(".")):
        return _OPERATOR
    if "$" in name or "\x00" in name:
        return Fault("a collection name cannot contain `$` or NUL", "remove that character")
    if name.startswith(".") or name.endswith(".") or ".." in name:
        return Fault("a collection's name has text on both sides of each dot", "remove the stray dot")
    if name.startswith("system."):
        return Fault("`system.` collections are MongoDB's own", "name another collection")
    if name.startswith("bucketwise_"):
        return Fault(
            "`bucketwise_` collections are reserved for bucketwise's own records", "name another collection"
        )
    if len(f"{database}.{name}".encode()) > _LONGEST_NAMESPACE:
        remedy = f"keep database and collection within {_LONGEST_NAMESPACE} bytes together"
        return Fault("the name is too long for MongoDB", remedy)
    return None


def field_fault(path: str) -> Fault | None:
    """Returns why this dotted path names no field; None where it can name one."""
    parts = path.split(".")
    if not all(parts):
        return Fault("a part of the field's path is empty", "write a name on each side of every dot")
    if "\x00" in path:
        return Fault("a field name cannot contain NUL", "remove that character")
    if any(part.startswith("$") for part in parts):
        return _OPERATOR
    return None


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
    if archive is None or not archive.delete:
        return False
    return any(it.archive is not None and it.archive.after is not None for it in policy.lives)
