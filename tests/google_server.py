"""A server of Google Cloud Storage, as far as stores need it: `python -m tests.google_server PORT`.

Objects lie in memory. It was made from Google's references. Of the XML API: preconditions on generations,
which grow; listings in the order of names, with pages and a start; 404 for what is not there; 401 without a
bearer token; versions; the retention of objects, whose versions nobody removes before its time. Of the JSON
API: what a bucket is set up to do, the retention of an object, and listings of versions and of what is
soft-deleted. A bucket is made by a PUT of its name.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, islice
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000  # objects at most in one reply to a list
JSON_API = "/storage/v1/b/"
Answer = tuple[int, dict[str, str], bytes]


def now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Stored:
    data: bytes
    generation: int
    at: datetime = field(default_factory=now)
    mode: str = ""  # of its retention, as the XML API calls it
    until: datetime | None = None
    gone_at: datetime | None = None

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'

    def refuse_removal(self) -> None:
        if self.until is not None and self.until > now():
            raise Refused(403, "RetentionPolicyNotMet", "not allowed due to retention policy.")

    def as_json(self, name: str) -> dict[str, Any]:
        told: dict[str, Any] = {"name": name, "generation": str(self.generation)}
        if self.until is not None:
            mode = {"GOVERNANCE": "Unlocked", "COMPLIANCE": "Locked"}[self.mode]
            told["retention"] = {"mode": mode, "retainUntilTime": as_instant(self.until)}
        return told | ({} if self.gone_at is None else {"timeDeleted": as_instant(self.gone_at)})


@dataclass
class Bucket:
    has_retention: bool = False
    keeps_versions: bool = False
    soft_seconds: int = 0
    live: dict[str, Stored] = field(default_factory=dict)
    older: list[tuple[str, Stored]] = field(default_factory=list)
    soft_deleted: list[tuple[str, Stored]] = field(default_factory=list)

    def remove(self, name: str) -> None:
        """What a DELETE without a generation does, and a PUT to what was there."""
        there = self.live[name]
        if not self.keeps_versions:
            there.refuse_removal()
        kept = self.older if self.keeps_versions else self.soft_deleted if self.soft_seconds else []
        kept.append((name, replace(self.live.pop(name), gone_at=now())))

    def remove_version(self, name: str, generation: int) -> None:
        everything = [*self.older, *self.live.items()]
        found = next((it for it in everything if (it[0], it[1].generation) == (name, generation)), None)
        if found is None:
            raise NO_KEY
        found[1].refuse_removal()
        self.older = [it for it in self.older if it != found]
        if self.live.get(name) == found[1]:
            del self.live[name]


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


NO_BUCKET = Refused(404, "NoSuchBucket", "The specified bucket does not exist.")
NO_KEY = Refused(404, "NoSuchKey", "The specified key does not exist.")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    buckets: dict[str, Bucket] = {}  # noqa: RUF012 - the server's memory
    generations = count(1_700_000_000_000_000)
    lock = threading.Lock()

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
        is_json = url.path.startswith(JSON_API)
        bucket, _, name = url.path.removeprefix(JSON_API).lstrip("/").partition("/")
        act = self.answered if is_json else self.done
        try:
            with self.lock:
                status, headers, answer = act(unquote(bucket), unquote(name), query, body)
        except Refused as refused:
            status, headers, answer = refused.status, {}, self.refusal(refused, is_json=is_json)
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(answer))} | headers).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_HEAD = do_PUT = do_DELETE = do_PATCH = handle_any

    def refusal(self, refused: Refused, *, is_json: bool) -> bytes:
        if is_json:
            told = {"message": refused.message, "errors": [{"reason": refused.code}]}
            return json.dumps({"error": {"code": refused.status, **told}}).encode()
        return f"<Error><Code>{refused.code}</Code><Message>{refused.message}</Message></Error>".encode()

    def authorise(self) -> None:
        if not re.fullmatch("Bearer .+", self.headers.get("Authorization", "")):
            raise Refused(401, "AuthenticationRequired", "Authentication required.")

    def done(self, bucket: str, name: str, query: dict[str, str], body: bytes) -> Answer:
        """The answer to a request of the XML API."""
        if not bucket:
            return 200, {}, b""
        self.authorise()
        if not name and self.command == "PUT":
            there = self.buckets.setdefault(bucket, Bucket())
            there.has_retention |= self.headers.get("x-goog-bucket-object-lock-enabled") == "true"
            if "versioning" in query:
                there.keeps_versions = b"<Status>Enabled</Status>" in body
            return 200, {}, b""
        if (found := self.buckets.get(bucket)) is None:
            raise NO_BUCKET
        if not name:
            return 200, {"Content-Type": "application/xml"}, listing(bucket, found.live, query)
        if self.command == "PUT":
            return 200, described(self.put(found, name, body)), b""
        if self.command == "DELETE" and "generation" in query:
            found.remove_version(name, int(query["generation"]))
            return 204, {}, b""
        if (stored := found.live.get(name)) is None:
            raise NO_KEY
        if self.command == "DELETE":
            found.remove(name)
            return 204, {}, b""
        headers = described(stored) | {"Content-Length": str(len(stored.data))}
        return 200, headers, stored.data if self.command == "GET" else b""

    def put(self, bucket: Bucket, name: str, body: bytes) -> Stored:
        there = bucket.live.get(name)
        expected = self.headers.get("x-goog-if-generation-match")
        if expected is not None and int(expected) != (there.generation if there else 0):
            message = "At least one of the pre-conditions you specified did not hold."
            raise Refused(412, "PreconditionFailed", message)
        mode, until = self.retention(bucket)
        if there is not None:
            bucket.remove(name)
        bucket.live[name] = Stored(body, next(self.generations), mode=mode, until=until)
        return bucket.live[name]

    def retention(self, bucket: Bucket) -> tuple[str, datetime | None]:
        """What the headers of a PUT ask for."""
        mode = self.headers.get("x-goog-object-lock-mode", "")
        date = self.headers.get("x-goog-object-lock-retain-until-date")
        if not mode and date is None:
            return "", None
        until = datetime.fromisoformat(date or "1970-01-01T00:00:00Z")
        if not bucket.has_retention:
            raise Refused(400, "InvalidArgument", "Object retention is not enabled on the bucket.")
        if mode not in ("GOVERNANCE", "COMPLIANCE") or until <= now():
            raise Refused(400, "InvalidArgument", "Retain until time cannot be in the past.")
        return mode, until

    def answered(self, bucket: str, rest: str, query: dict[str, str], body: bytes) -> Answer:
        """The answer to a request of the JSON API."""
        self.authorise()
        if (found := self.buckets.get(bucket)) is None:
            raise NO_BUCKET
        if self.command == "PATCH":
            found.soft_seconds = int(json.loads(body)["softDeletePolicy"]["retentionDurationSeconds"])
        if not rest:
            told: dict[str, Any] = {"softDeletePolicy": {"retentionDurationSeconds": str(found.soft_seconds)}}
            told["versioning"] = {"enabled": found.keeps_versions}
            told |= {"objectRetention": {"mode": "Enabled"}} if found.has_retention else {}
        elif rest == "o":
            told = page(found, query)
        elif (stored := found.live.get(rest.removeprefix("o/"))) is None:
            raise Refused(404, "notFound", f"No such object: {bucket}/{rest}")
        else:
            told = stored.as_json(rest.removeprefix("o/"))
        return 200, {"Content-Type": "application/json"}, json.dumps(told).encode()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def as_instant(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def described(stored: Stored) -> dict[str, str]:
    digest = b64encode(hashlib.md5(stored.data, usedforsecurity=False).digest()).decode()
    return {
        "ETag": stored.etag,
        "Last-Modified": format_datetime(stored.at, usegmt=True),
        "x-goog-generation": str(stored.generation),
        "x-goog-hash": f"md5={digest}",
        "x-goog-stored-content-length": str(len(stored.data)),
    }


def page(bucket: Bucket, query: dict[str, str]) -> dict[str, Any]:
    """A page of the JSON API: a token is the place of the next one."""
    kept = bucket.soft_deleted if "softDeleted" in query else [*bucket.older, *bucket.live.items()]
    wanted = query.get("prefix", "")

    def matching() -> Iterator[dict[str, Any]]:
        for name, stored in sorted(kept, key=lambda it: (it[0], it[1].generation)):
            if name.startswith(wanted):
                yield stored.as_json(name)

    start = int(query.get("pageToken", "0"))
    items = list(islice(matching(), start, start + PAGE + 1))
    more = {"nextPageToken": str(start + PAGE)} if len(items) > PAGE else {}
    return {"items": items[:PAGE]} | more


def listing(bucket: str, objects: dict[str, Stored], query: dict[str, str]) -> bytes:
    """A page of objects in the order of their names; a continuation token is the name before the next one."""
    names = sorted(objects, key=str.encode)
    start = query.get("continuation-token") or query.get("start-after", "")
    behind = names[bisect_right(names, start.encode(), key=str.encode) :]
    matching = (it for it in behind if it.startswith(query.get("prefix", "")))
    page = list(islice(matching, min(PAGE, int(query.get("max-keys", PAGE)))))
    more = next(matching, None) is not None
    contents = "".join(
        f"<Contents><Key>{escape(name)}</Key><Generation>{it.generation}</Generation><Size>{len(it.data)}</Size>"
        f"<LastModified>{as_instant(it.at)}</LastModified>"
        f"<ETag>{escape(it.etag)}</ETag></Contents>"
        for name in page
        for it in [objects[name]]
    )
    token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
    return (
        f"<?xml version='1.0' encoding='UTF-8'?><ListBucketResult><Name>{escape(bucket)}</Name>"
        f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{contents}</ListBucketResult>"
    ).encode()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
