"""The one way to a MongoDB client: what every read and write of the suite may rely on."""

from __future__ import annotations

import re
from threading import Lock
from typing import Any, Self

from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import ConfigurationError
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent
from pymongo.read_concern import ReadConcern

from bucketwise.config.tables import MongoDB

Document = dict[str, Any]

APPLICATION = "bucketwise"
#: Where the URI does not say. Milliseconds: no run waits for ever for a primary, or for a majority. And a
#: server is asked how it is, now and then and where a command fails: to be told of each change as it happens
#: takes one more connection and thread for each, and a fifth of the time of a run that finds nothing new.
_USUAL = {"serverSelectionTimeoutMS": 10_000, "wTimeoutMS": 60_000, "serverMonitoringMode": "poll"}
#: Options that would weaken these settings, or contradict them, and that no argument can override.
_LEFT_OUT = {"j", "journal", "fsync", "readpreferencetags", "maxstalenessseconds"}


class Seen(CommandListener):
    """The operation time of the last that a client has read from a majority, or written to one.

    A new primary takes a moment to learn what a majority holds. Until then it reads what was there before,
    and that may be less than its predecessor has told."""

    def __init__(self, time: Timestamp | None = None) -> None:
        self.time = time
        self._asked = set[int]()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[Self], tuple[Timestamp | None]]:
        """Goes to another process as it is now."""
        return type(self), (self.time,)

    def advance(self, time: Timestamp | None) -> None:
        """Takes what another client has seen."""
        with self._lock:
            self.time = max(filter(None, (self.time, time)), default=None)

    def started(self, event: CommandStartedEvent) -> None:
        """Notes what a majority is asked. Statements of a transaction are answered by one node."""
        command, name = event.command, event.command_name
        concerns = command.get("readConcern", {}).get("level"), command.get("writeConcern", {}).get("w")
        is_of_majority = name == "getMore" or "majority" in concerns
        if is_of_majority and ("autocommit" not in command or name == "commitTransaction"):
            self._asked.add(event.request_id)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Takes the time of its answer; a server that is no member of a set tells none."""
        if event.request_id in self._asked:
            self._asked.discard(event.request_id)
            self.advance(event.reply.get("operationTime"))

    def failed(self, event: CommandFailedEvent) -> None:
        """Forgets the question."""
        self._asked.discard(event.request_id)


class _Concern(Document):
    """A read concern as a command names it. All reads of a snapshot but the first name its instant, and then
    nothing else: MongoDB refuses both."""

    def __setitem__(self, name: str, value: Any) -> None:
        """Sets what the session of the command says."""
        super().__setitem__(name, value)
        if name == "atClusterTime":
            self.pop("afterClusterTime", None)


class _SinceSeen(ReadConcern):
    """Reads what a majority holds, no older than what was seen."""

    def __init__(self, seen: Seen) -> None:
        super().__init__("majority")
        self._seen = seen

    @property
    def document(self) -> Document:
        """Returns it as the next command is to name it."""
        time = self._seen.time
        return _Concern(super().document, **({} if time is None else {"afterClusterTime": time}))


class Client(MongoClient[Document]):
    """A client of which no read is older than what it has read or written before."""

    def __init__(self, *given: Any, seen: Seen, **options: Any) -> None:
        self.seen = seen
        super().__init__(*given, event_listeners=[seen], **options)

    @property
    def read_concern(self) -> ReadConcern:
        """Returns what databases of this client read with."""
        return _SinceSeen(self.seen)


def seen_by(database: Database[Document]) -> Seen:
    """Returns what the client of a database has seen; of one that was not connected here nothing is known."""
    return database.client.seen if isinstance(database.client, Client) else Seen()


def connect(settings: MongoDB) -> Client:
    """Returns a client that reads what a majority holds, from the primary, and writes to a majority. It reads
    what it has written, and nothing older than what it has read, also where the primary changes.

    These settings override options of the URI: a delete that rests on a read must not rest on a stale one.
    Nothing is connected to before the first command; but a node that the URI alone names is asked whether it
    is primary, since pymongo would read from it whatever it is. Raises ConfigurationError."""
    uri = _sound(settings.uri.get_secret_value())
    usual = {name: value for name, value in _USUAL.items() if name.lower() not in uri.lower()}
    client = Client(
        uri,
        seen=Seen(),
        w="majority",
        retryWrites=True,
        retryReads=True,
        readPreference="primary",
        appname=APPLICATION,
        tz_aware=True,
        uuidRepresentation="standard",
        **usual,
    )
    if re.search("[?&;]directconnection=true", uri, re.IGNORECASE):
        _check_primary(client)
    return client


def _sound(uri: str) -> str:
    base, mark, options = uri.partition("?")
    kept = [it for it in re.split("[&;]", options) if it.partition("=")[0].lower() not in _LEFT_OUT]
    return f"{base}{mark}{'&'.join(kept)}"


def _check_primary(client: Client) -> None:
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
