"""The one way to a MongoDB client: what every read and write of the suite may rely on."""

from __future__ import annotations

import re
from typing import Any

from pymongo import MongoClient
from pymongo.errors import ConfigurationError

from bucketwise.config.tables import MongoDB

Document = dict[str, Any]

APPLICATION = "bucketwise"
#: Where the URI does not say. Milliseconds: no run waits for ever for a primary, or for a majority. And a
#: server is asked how it is, now and then and where a command fails: to be told of each change as it happens
#: takes one more connection and thread for each, and a fifth of the time of a run that finds nothing new.
_USUAL = {"serverSelectionTimeoutMS": 10_000, "wTimeoutMS": 60_000, "serverMonitoringMode": "poll"}
#: Options that would weaken these settings, or contradict them, and that no argument can override.
_LEFT_OUT = {"j", "journal", "fsync", "readpreferencetags", "maxstalenessseconds"}


def connect(settings: MongoDB) -> MongoClient[Document]:
    """Returns a client that reads what a majority holds, from the primary, and writes to a majority.

    These settings override options of the URI: a delete that rests on a read must not rest on a stale one.
    Nothing is connected to before the first command; but a node that the URI alone names is asked whether it
    is primary, since pymongo would read from it whatever it is. Raises ConfigurationError."""
    uri = _sound(settings.uri.get_secret_value())
    usual = {name: value for name, value in _USUAL.items() if name.lower() not in uri.lower()}
    client = MongoClient[Document](
        uri,
        w="majority",
        retryWrites=True,
        retryReads=True,
        readConcernLevel="majority",
        readPreference="primary",
        appname=APPLICATION,
        tz_aware=True,
        uuidRepresentation="standard",
        **usual,  # type: ignore[arg-type]
    )
    if re.search("[?&;]directconnection=true", uri, re.IGNORECASE):
        _check_primary(client)
    return client


def _sound(uri: str) -> str:
    base, mark, options = uri.partition("?")
    kept = [it for it in re.split("[&;]", options) if it.partition("=")[0].lower() not in _LEFT_OUT]
    return f"{base}{mark}{'&'.join(kept)}"


def _check_primary(client: MongoClient[Document]) -> None:
    hello = client.admin.command("hello")
    if not hello["isWritablePrimary"]:
        client.close()
        raise ConfigurationError(
            "the URI has directConnection=true, and this node is not the primary: what it holds may be old, "
            f"and it takes no writes. Name the replica set instead: replicaSet={hello.get('setName', 'NAME')}"
        )


def hosts(settings: MongoDB) -> str:
    """Returns the hosts that the URI names, without the credentials and options around them."""
    rest = settings.uri.get_secret_value().partition("://")[2]
    return rest.partition("?")[0].partition("/")[0].rpartition("@")[2]
