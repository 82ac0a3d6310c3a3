"""Checks names: those that MongoDB, the ledger and the store can take."""

from __future__ import annotations

import re

from bucketwise.config.problems import Fault

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
