"""A mongod that says it is a mongos: a driver then does as with a sharded cluster, and every command is
answered.

It stands between the two, and changes nothing but what `hello` says of the server.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import bson

_HEADER = struct.Struct("<iiii")
_REPLY, _MESSAGE = 1, 2013
#: Of a reply, what stands before its document: flags, cursor, and the like; of a message flags and a kind.
_BEFORE = {_REPLY: 20, _MESSAGE: 5}
_OF_SETS = (
    "setName", "setVersion", "hosts", "primary", "me", "electionId", "topologyVersion", "secondary",
    "lastWrite",
)  # fmt: skip


@contextmanager
def mongos(address: tuple[str, int]) -> Iterator[int]:
    """Gives the port of a mongos before the mongod at an address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_accept, args=(server, address), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def _accept(server: socket.socket, address: tuple[str, int]) -> None:
    with suppress(OSError):
        while True:
            client, _ = server.accept()
            mongod = socket.create_connection(address)
            for one, other, change in ((client, mongod, False), (mongod, client, True)):
                threading.Thread(target=_pass_on, args=(one, other, change), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket, change: bool) -> None:
    with suppress(OSError, EOFError):
        while True:
            head = _read(one, _HEADER.size)
            length, request, to, kind = _HEADER.unpack(head)
            body = _read(one, length - _HEADER.size)
            if change and kind in _BEFORE:
                body = _as_mongos(body, _BEFORE[kind])
            other.sendall(_HEADER.pack(_HEADER.size + len(body), request, to, kind) + body)
    for it in (one, other):
        with suppress(OSError):
            it.shutdown(socket.SHUT_RDWR)


def _read(one: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := one.recv(size - len(data))):
            raise EOFError
        data += more
    return data


def _as_mongos(body: bytes, before: int) -> bytes:
    if b"maxWireVersion" not in body or b"setName" not in body:
        return body
    told: dict[str, Any] = bson.decode(body[before:])
    kept = {name: it for name, it in told.items() if name not in _OF_SETS}
    return body[:before] + bson.encode({**kept, "msg": "isdbgrid"})
