"""A server of Google Cloud Storage's XML API, as far as stores need it: `python -m tests.google_server PORT`.

Objects lie in memory. It was made from Google's reference of that API: preconditions on generations, which
grow; listings in the order of names, with pages and a start; 404 for what is not there; 401 without a bearer
token. A bucket is made by a PUT of its name.
"""

from __future__ import annotations

import hashlib
import re
import sys
import threading
from base64 import b64encode
from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, islice
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000  # objects at most in one reply to a list


@dataclass(frozen=True)
class Stored:
    data: bytes
    generation: int
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


NO_BUCKET = Refused(404, "NoSuchBucket", "The specified bucket does not exist.")
NO_KEY = Refused(404, "NoSuchKey", "The specified key does not exist.")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    buckets: dict[str, dict[str, Stored]] = {}  # noqa: RUF012 - the server's memory
    generations = count(1_700_000_000_000_000)
    lock = threading.Lock()

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        bucket, _, name = url.path.lstrip("/").partition("/")
        query = {key: values[0] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
        try:
            with self.lock:
                status, headers, answer = self.done(unquote(bucket), unquote(name), query, body)
        except Refused as refused:
            status, headers = refused.status, {"Content-Type": "application/xml"}
            answer = (
                f"<Error><Code>{refused.code}</Code><Message>{refused.message}</Message></Error>".encode()
            )
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(answer))} | headers).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_HEAD = do_PUT = do_DELETE = handle_any

    def done(
        self, bucket: str, name: str, query: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """The answer to a request."""
        if not bucket:
            return 200, {}, b""
        if not re.fullmatch("Bearer .+", self.headers.get("Authorization", "")):
            raise Refused(401, "AuthenticationRequired", "Authentication required.")
        if not name and self.command == "PUT":
            self.buckets.setdefault(bucket, {})
            return 200, {}, b""
        if (objects := self.buckets.get(bucket)) is None:
            raise NO_BUCKET
        if not name:
            return 200, {"Content-Type": "application/xml"}, listing(bucket, objects, query)
        there = objects.get(name)
        if self.command == "PUT":
            return 200, described(self.put(objects, name, body)), b""
        if there is None:
            raise NO_KEY
        if self.command == "DELETE":
            del objects[name]
            return 204, {}, b""
        headers = described(there) | {"Content-Length": str(len(there.data))}
        return 200, headers, there.data if self.command == "GET" else b""

    def put(self, objects: dict[str, Stored], name: str, body: bytes) -> Stored:
        there = objects.get(name)
        expected = self.headers.get("x-goog-if-generation-match")
        if expected is not None and int(expected) != (there.generation if there else 0):
            message = "At least one of the pre-conditions you specified did not hold."
            raise Refused(412, "PreconditionFailed", message)
        objects[name] = Stored(body, next(self.generations))
        return objects[name]

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def described(stored: Stored) -> dict[str, str]:
    digest = b64encode(hashlib.md5(stored.data, usedforsecurity=False).digest()).decode()
    return {
        "ETag": stored.etag,
        "Last-Modified": format_datetime(stored.at, usegmt=True),
        "x-goog-generation": str(stored.generation),
        "x-goog-hash": f"md5={digest}",
        "x-goog-stored-content-length": str(len(stored.data)),
    }


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
        f"<LastModified>{it.at.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}</LastModified>"
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
