"""What a shell completes: names of policies, and of collections. A shell has no place for an error."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from bucketwise.config import DEFAULT_PATH, PATH_VARIABLE

#: A shell waits so long for MongoDB.
_PATIENCE_MS = 1000


def _config(ctx: typer.Context) -> Path:
    return Path(ctx.params.get("config") or os.environ.get(PATH_VARIABLE) or DEFAULT_PATH)


def policy_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns the names of policies that begin so: those of the policy file, if it can be read as TOML."""
    import tomllib

    try:
        names = tomllib.loads(_config(ctx).read_text("utf-8")).get("policies", {})
    except (OSError, ValueError):
        return []
    return [it for it in names if it.startswith(incomplete)]


def collection_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns the names of collections that begin so, of the database that the URI of the command line names,
    else the policy file; none where MongoDB does not answer at once."""
    from pymongo import MongoClient

    try:
        uri, database = _database(ctx)
        with MongoClient[dict[str, object]](uri, serverSelectionTimeoutMS=_PATIENCE_MS) as client:
            source = client.get_default_database(database)
            found = source.list_collection_names(maxTimeMS=_PATIENCE_MS)
    except Exception:  # noqa: BLE001  # whatever it is, there is nothing to complete
        return []
    taken = ctx.params.get("collections") or ()
    own = ("system.", "bucketwise_")
    return sorted(
        it for it in found if it.startswith(incomplete) and not it.startswith(own) and it not in taken
    )


def _database(ctx: typer.Context) -> tuple[str, str | None]:
    """Returns a URI, and the name of the database if the URI does not have it."""
    if given := ctx.params.get("uri"):
        return os.path.expandvars(given), None
    from bucketwise.config.load import load

    mongodb = load(_config(ctx), os.environ, needs_policies=False).mongodb
    return mongodb.uri.get_secret_value(), mongodb.database
