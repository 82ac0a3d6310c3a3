"""What befalls a command at random: a signal, a server that dies, a store that fails."""

from __future__ import annotations

import math
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.faults import s3_proxy
from tests.faults.meddling import hook
from tests.faults.mongods import Node
from tests.faults.s3_proxy import Request, S3Proxy
from tests.jobs.command import Meddle


@dataclass(frozen=True)
class Servers:
    """What may be made to fail."""

    mongod: Node
    proxy: S3Proxy


@dataclass(frozen=True)
class Fault:
    """`meddle`: what is done in the command's process. `spares_writers`: the application can go on."""

    name: str
    meddle: Meddle | None = None
    store: s3_proxy.Fault | None = None
    spares_writers: bool = True


@contextmanager
def befallen(servers: Servers, fault: Fault) -> Iterator[None]:
    """The fault, for the block; all is well after it."""
    servers.proxy.fault = fault.store
    over = threading.Event()
    watch = threading.Thread(target=_restart, args=(servers.mongod, over))
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()
        servers.proxy.fault = None
        servers.proxy.requests.clear()
        servers.mongod.await_(lambda hello: bool(hello.get("isWritablePrimary")))
        with servers.mongod.client() as client:
            client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})


def _restart(mongod: Node, over: threading.Event) -> None:
    """Starts a server that has died again, two seconds later, as systemd does."""
    while not over.wait(0.2):
        if mongod.process.poll() is not None:
            over.wait(2)
            mongod.start()
    if mongod.process.poll() is not None:
        mongod.start()


def some_fault(chance: random.Random, servers: Servers) -> Fault:
    return chance.choice((_signal, _signal, _signal, _server, _answers, _store, _store))(chance, servers)


def _signal(chance: random.Random, servers: Servers) -> Fault:  # noqa: ARG001
    number = chance.choice(
        (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    )
    at, answered = _moment(chance), chance.random() < 0.5
    meddle = hook(at_command={"at": at, "answered": answered, "signal": number})
    return Fault(f"{number.name} at command {at}{' once answered' if answered else ''}", meddle)


def _server(chance: random.Random, servers: Servers) -> Fault:
    at = _moment(chance)
    if chance.random() < 0.4:
        return Fault(
            f"step-down at command {at}", hook(at_command={"at": at, "depose": True}), spares_writers=False
        )
    given = {"at": at, "signal": signal.SIGKILL, "to": servers.mongod.process.pid}
    return Fault(f"mongod killed at command {at}", hook(at_command=given), spares_writers=False)


def _answers(chance: random.Random, servers: Servers) -> Fault:  # noqa: ARG001
    at, times = _moment(chance), chance.choice((1, 1, 0))
    fail: dict[str, Any] = chance.choice(
        (
            {"closeConnection": True},
            {"errorCode": 112, "errorLabels": ["TransientTransactionError"]},
            {"errorCode": 189, "errorLabels": ["RetryableWriteError"]},
            {"errorCode": 43},
            {"errorCode": 50},
        )
    )
    return Fault(
        f"{fail} at command {at}, times {times}", hook(at_command={"at": at, "fail": fail, "times": times})
    )


def _store(chance: random.Random, servers: Servers) -> Fault:  # noqa: ARG001
    kind, on = chance.choice(_STORE_FAULTS)
    what, after = chance.choice(on), chance.randrange(12)
    seen = count(1)

    def strikes(request: Request) -> bool:
        return _REQUESTS[what](request) and next(seen) > after

    fault = kind(strikes)
    meddle = hook(store_timeout={"seconds": fault.patience}, waits_noted={"file": "/dev/null"})
    return Fault(f"{type(fault).__name__} at {what} {after + 1}", meddle, fault)


_REQUESTS: dict[str, s3_proxy.Matches] = {
    "put": lambda it: it.is_put,
    "get": lambda it: it.is_get and it.method == "GET",
    "list": lambda it: it.is_list,
    "delete": lambda it: it.is_delete,
}
_ALL = tuple(_REQUESTS)
_STORE_FAULTS: tuple[tuple[Callable[[s3_proxy.Matches], s3_proxy.Fault], tuple[str, ...]], ...] = (
    (s3_proxy.ReplyLost, _ALL),
    (s3_proxy.RequestLost, _ALL),
    (s3_proxy.BodyCutShort, ("get", "list")),
    (s3_proxy.BitFlippedInDownload, ("get",)),
    (s3_proxy.BitFlippedInUpload, ("put",)),
    (lambda on: s3_proxy.Refused(on, times=None, status=503, code="SlowDown"), _ALL),
    (lambda on: s3_proxy.Refused(on, status=500), _ALL),
    (lambda on: s3_proxy.Refused(on, times=None, status=403, code="AccessDenied"), _ALL),
)


def _moment(chance: random.Random) -> int:
    """The number of a command; most are early ones, of runs with little to do."""
    return round(math.exp(chance.uniform(0, 6.5)))
