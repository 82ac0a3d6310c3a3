"""The one way to a MongoDB client: what every read and write of the suite may rely on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from threading import Lock
from typing import Any, Self, cast

from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import ConfigurationError
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent
from pymongo.read_concern import ReadConcern

from bucketwise.config.tables import MongoDB

Document = dict[str, Any]

APPLICATION = "bucketwise"
#: Where the URI does not say. Milliseconds: no run waits for ever for a primary, or for a majority that takes
#: what it writes. And a server is asked how it is, now and then and where a command fails: to be told of each
#: change as it happens takes one more connection and thread for each, and a fifth of the time of a run that
#: finds nothing new.
_USUAL = {"serverSelectionTimeoutMS": 10_000, "wTimeoutMS": 60_000, "serverMonitoringMode": "poll"}
#: Options that would weaken these settings, or contradict them, and that no argument can override.
_LEFT_OUT = {"j", "journal", "fsync", "readpreferencetags", "maxstalenessseconds"}


class Seen(CommandListener):
    """Up to which operation time a client has read from a majority, or written to one.

    A new primary takes a moment to learn what a majority holds. Until then it reads what was there before,
    and that may be less than its predecessor has told."""

    def __init__(self, time: Timestamp | None = None, cluster_time: Mapping[str, Any] | None = None) -> None:
        """`cluster_time`: that of the cluster by then, as servers sign it."""
        self.time, self.cluster_time = time, cluster_time
        self._majority_requests = set[int]()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[Self], tuple[Timestamp | None, Mapping[str, Any] | None]]:
        """Goes to another process as it is now."""
        return type(self), (self.time, self.cluster_time)

    def advance(self, time: Timestamp | None, cluster_time: Mapping[str, Any] | None) -> None:
        """Takes an operation time, unless a later one is known."""
        with self._lock:
            if time is not None and (self.time is None or self.time < time):
                self.time, self.cluster_time = time, cluster_time

    def started(self, event: CommandStartedEvent) -> None:
        """Notes what a majority answers. In a transaction only the commit is acknowledged by one."""
        command, name = event.command, event.command_name
        reads, writes = command.get("readConcern", {}).get("level"), command.get("writeConcern", {}).get("w")
        is_asked = name == "getMore" or reads in ("majority", "snapshot") or writes == "majority"
        if is_asked and ("autocommit" not in command or name == "commitTransaction"):
            self._majority_requests.add(event.request_id)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Takes the time of the answer; a server that is no member of a set tells none."""
        if event.request_id in self._majority_requests:
            self._majority_requests.discard(event.request_id)
            time = _time_of(event.command_name, event.reply)
            self.advance(time, event.reply.get("$clusterTime"))

    def failed(self, event: CommandFailedEvent) -> None:
        """Forgets the request."""
        self._majority_requests.discard(event.request_id)


def _time_of(name: str, reply: Mapping[str, Any]) -> Timestamp | None:
    """Returns the time up to which a reply shows what a majority holds; None where it does not tell."""
    cursor = reply.get("cursor", {})
    if at := cursor.get("atClusterTime", reply.get("atClusterTime")):
        return cast(Timestamp, at)  # of a snapshot, whose operation time is that of the node
    # A write that no majority took in time counts as a success. Of cursors that go on, only those of change
    # streams are of a majority for sure.
    if "writeConcernError" in reply or (name == "getMore" and "postBatchResumeToken" not in cursor):
        return None
    return cast(Timestamp | None, reply.get("operationTime"))


class _Concern(Document):
    """A read concern as a command names it. pymongo sets what the session says by item: `atClusterTime`, of
    all reads of a snapshot but the first, replaces `afterClusterTime`. MongoDB refuses a command with
    both."""

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

    def __init__(self, *given: Any, **options: Any) -> None:
        self.seen = Seen()
        super().__init__(*given, event_listeners=[self.seen], **options)

    @property
    def read_concern(self) -> ReadConcern:
        """Returns what databases of this client read with."""
        return _SinceSeen(self.seen)


def seen_by(database: Database[Document] | None) -> Seen:
    """Returns what the client of a database has seen; of none, or of one that was not connected here, nothing
    is known."""
    client = None if database is None else database.client
    return client.seen if isinstance(client, Client) else Seen()


def read_on(database: Database[Document], seen: Seen) -> None:
    """Has the client of a database read nothing older than what another client has seen."""
    own = seen_by(database)
    if seen.time is None or (own.time is not None and seen.time <= own.time):
        return
    if seen.cluster_time is not None:  # the server need not know that it is so late
        with database.client.start_session() as session:
            session.advance_cluster_time(seen.cluster_time)
            database.client.admin.command("ping", session=session)
    own.advance(seen.time, seen.cluster_time)


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
