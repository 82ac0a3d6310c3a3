"""What Azurite does not have: versions of blobs, and immutability policies of these.

A stand-in before it, for what nothing that runs here has. It passes requests on, notes which versions there
would be, and answers as the manual says: of Put Blob, Delete Blob and Blob Batch, of Get Blob Properties, Get
Container Properties and List Blobs.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from itertools import count
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.faults.s3_proxy import Fault, Pass, Reply, Request, s3_proxy

UNTIL, MODE = "x-ms-immutability-policy-until-date", "x-ms-immutability-policy-mode"


@dataclass(frozen=True)
class Version:
    path: str  # of the blob
    id: str
    until: datetime | None
    mode: str | None

    @property
    def headers(self) -> list[tuple[str, str]]:
        if self.until is None:
            return []
        return [(UNTIL, format_datetime(self.until, usegmt=True)), (MODE, str(self.mode).lower())]

    @property
    def xml(self) -> str:
        """Its properties in a list."""
        if self.until is None:
            return ""
        until, mode = (value for _, value in self.headers)
        return (
            f"<ImmutabilityPolicyUntilDate>{until}</ImmutabilityPolicyUntilDate>"
            f"<ImmutabilityPolicyMode>{mode}</ImmutabilityPolicyMode>"
        )


def refusal(status: int, code: str) -> Reply:
    body = f"<Error><Code>{code}</Code><Message>This operation is not permitted.</Message></Error>".encode()
    return Reply(status, [("Content-Type", "application/xml"), ("x-ms-error-code", code)], body)


@dataclass
class VersionsAndLocks(Fault):
    """`enabled`: paths of the containers that have immutability for versions."""

    enabled: set[str] = field(default_factory=set)
    current: dict[str, Version] = field(default_factory=dict)
    older: list[Version] = field(default_factory=list)
    _ids: Iterator[int] = field(default_factory=count)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        url = urlsplit(request.target)
        path, query = unquote(url.path), dict(parse_qsl(url.query))
        container = "/".join(path.split("/")[:3])
        with self._turn:
            if query.get("comp") == "batch":
                return self._deleted(
                    re.findall(r"(?m)^DELETE (\S+)", request.body.decode()), request, pass_on
                )
            if container not in self.enabled and UNTIL in dict(request.headers):
                return refusal(409, "FeatureNotEnabled")  # no manual tells its code
            if query.get("comp") == "list":
                return self._listed(container, query, pass_on(request))
            if query.get("restype") == "container":
                told = (
                    "x-ms-immutable-storage-with-versioning-enabled",
                    str(container in self.enabled).lower(),
                )
                reply = pass_on(request)
                return replace(reply, headers=[*reply.headers, told])
            if request.method == "PUT":
                return self._put(path, request, pass_on(request))
            if request.method == "DELETE" and "versionid" in query:
                return self._removed(path, query["versionid"])
            if request.method == "DELETE":
                return self._deleted([url.path], request, pass_on)
            reply, there = pass_on(request), self.current.get(path)
            return replace(reply, headers=[*reply.headers, *(there.headers if there else [])])

    def _put(self, path: str, request: Request, reply: Reply) -> Reply:
        if reply.status == 201:
            asked = {key.lower(): value for key, value in request.headers}
            until = parsedate_to_datetime(asked[UNTIL]) if UNTIL in asked else None
            if path in self.current:
                self.older.append(self.current[path])
            self.current[path] = Version(
                path, f"2026-11-29T00:00:{next(self._ids):08}Z", until, asked.get(MODE)
            )
        return reply

    def _deleted(self, targets: list[str], request: Request, pass_on: Pass) -> Reply:
        """What becomes of a blob without the id of a version: the current one is one of the older ones."""
        reply = pass_on(request)
        for target in targets if reply.status == 202 else []:
            if there := self.current.pop(unquote(urlsplit(target).path), None):
                self.older.append(there)
        return reply

    def _removed(self, path: str, id: str) -> Reply:
        found = next((it for it in self.older if (it.path, it.id) == (path, id)), None)
        if found is None:
            return refusal(404, "BlobNotFound")
        if found.until is not None and found.until > datetime.now(UTC):
            return refusal(409, "BlobImmutableDueToPolicy")
        self.older.remove(found)
        return Reply(202, [], b"")

    def _listed(self, container: str, query: dict[str, str], reply: Reply) -> Reply:
        if "versions" not in query.get("include", "") or reply.status != 200:
            return reply
        text = reply.body.decode().replace("<Blobs/>", "<Blobs></Blobs>")
        for it in self.current.values():
            name = escape(it.path.removeprefix(f"{container}/"))
            text = text.replace(
                f"<Name>{name}</Name><Properties>",
                f"<Name>{name}</Name><VersionId>{it.id}</VersionId>"
                f"<IsCurrentVersion>true</IsCurrentVersion><Properties>{it.xml}",
            )
        more = "".join(
            f"<Blob><Name>{escape(name)}</Name><VersionId>{it.id}</VersionId><Properties>"
            f"<BlobType>BlockBlob</BlobType>{it.xml}</Properties></Blob>"
            for it in self.older
            for name in [it.path.removeprefix(f"{container}/")]
            if it.path.startswith(f"{container}/") and name.startswith(query.get("prefix", ""))
        )
        return replace(reply, body=text.replace("</Blobs>", f"{more}</Blobs>").encode())


@contextmanager
def versions_and_locks(upstream: str) -> Iterator[tuple[str, VersionsAndLocks]]:
    """The stand-in before a running Azurite, and where it is."""
    with s3_proxy(upstream) as proxy:
        proxy.fault = stand_in = VersionsAndLocks(lambda _: True, None)
        yield proxy.endpoint_url, stand_in
