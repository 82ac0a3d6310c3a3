"""A proxy before a server of S3, Azure or Google that breaks one thing. Each fault is a class named for
what it does.

Azure's signatures cover conditions and the length of a body, so that no fault can change these there.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class Request:
    method: str
    target: str  # path and query
    headers: Headers
    body: bytes
    until_client_goes: Callable[[], None]

    @property
    def key(self) -> str:
        """The target as it reads; some clients encode each `/` of a key."""
        return unquote(self.target)

    @property
    def is_delete(self) -> bool:
        posted = self.method == "POST" and self.target.endswith(("?delete", "&comp=batch"))
        return self.method == "DELETE" or posted

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and ("list-type=2" in self.target or "comp=list" in self.target)

    @property
    def is_get(self) -> bool:
        return self.method == "GET" and not self.is_list

    @property
    def is_put(self) -> bool:
        return self.method == "PUT"

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Headers
    body: bytes
    cut_at: int | None = None  # send only so many bytes of the body, then close


Matches = Callable[[Request], bool]
Pass = Callable[[Request], Reply]


@dataclass
class Fault:
    """Strikes the first `times` requests that `on` matches (None: all of them), and lets the rest through."""

    on: Matches
    times: int | None = 1
    struck: int = field(default=0, init=False)
    #: Seconds that a client waits for an answer.
    patience: ClassVar[float] = 30.0
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def handle(self, request: Request, pass_on: Pass) -> Reply | None:
        with self._lock:
            strikes = self.on(request) and (self.times is None or self.struck < self.times)
            self.struck += strikes
        return self.strike(request, pass_on) if strikes else pass_on(request)

    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        """The reply to give, or None to close the connection without one."""
        raise NotImplementedError


class ReplyLost(Fault):
    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        pass_on(request)
        return None


class RequestLost(Fault):
    def strike(self, request: Request, pass_on: Pass) -> Reply | None:  # noqa: ARG002
        return None


class BodyCutShort(Fault):
    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        reply = pass_on(request)
        return replace(reply, cut_at=len(reply.body) // 2)


class BitFlippedInDownload(Fault):
    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        reply = pass_on(request)
        return replace(reply, body=_flip(reply.body))


class BitFlippedInUpload(Fault):
    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        return pass_on(replace(request, body=_flip(request.body)))


class UploadCutShort(Fault):
    """The server takes half of it for the whole."""

    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        half = request.body[: len(request.body) // 2]
        return pass_on(replace(request, body=half, headers=_with_length(request.headers, len(half))))


class Silent(Fault):
    """Takes the request, and never answers."""

    patience = 2.0

    def strike(self, request: Request, pass_on: Pass) -> Reply | None:  # noqa: ARG002
        request.until_client_goes()
        return None


class RefusedThoughDone(Fault):
    """Does it, and says 412: as to a second try of a put whose first reply was lost on its way."""

    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        pass_on(request)
        return _refusal(412, "PreconditionFailed")


class ConditionIgnored(Fault):
    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        kept = [(key, value) for key, value in request.headers if key.lower() != "if-none-match"]
        return pass_on(replace(request, headers=kept))


@dataclass
class Refused(Fault):
    """Answers with an S3 error and passes nothing on."""

    status: int = 500
    code: str = "InternalError"
    more: Headers = field(default_factory=list)

    def strike(self, request: Request, pass_on: Pass) -> Reply | None:  # noqa: ARG002
        return _refusal(self.status, self.code, self.more)


@dataclass
class RivalComesFirst(Fault):
    """Another writer's object takes the key, and the request is lost."""

    data: bytes = b"the rival's"

    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        kept = [
            (key, value) for key, value in request.headers if not key.lower().startswith("x-amz-checksum")
        ]
        pass_on(replace(request, body=self.data, headers=_with_length(kept, len(self.data))))
        return None


@dataclass
class HeldBack(Fault):
    """Passes the requests on only once `release` is set, long after the client has given up.

    One after the other: what a server makes of puts of one key at the same moment is not asked here.
    """

    release: threading.Event = field(default_factory=threading.Event)
    landed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    turn: threading.Lock = field(default_factory=threading.Lock)

    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        self.release.wait(60)
        with self.turn:
            pass_on(request)
        self.landed.release()
        return None


def _refusal(status: int, code: str, more: Headers | None = None) -> Reply:
    body = f"<Error><Code>{code}</Code><Message>refused by the test</Message></Error>".encode()
    return Reply(status, [("Content-Type", "application/xml"), *(more or [])], body)


def _flip(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]


def _with_length(headers: Headers, length: int) -> Headers:
    return [(key, str(length) if key.lower() == "content-length" else value) for key, value in headers]


@dataclass
class S3Proxy:
    endpoint_url: str
    fault: Fault | None = None
    requests: list[Request] = field(default_factory=list)

    def count(self, matches: Matches) -> int:
        return sum(1 for request in self.requests if matches(request))


@contextmanager
def s3_proxy(upstream: str) -> Iterator[S3Proxy]:
    """A proxy on a free port of the loopback, without a fault yet."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.upstream = urlsplit(upstream).netloc  # type: ignore[attr-defined]
    server.proxy = S3Proxy(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.proxy  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        server: Any = self.server
        proxy: S3Proxy = server.proxy
        assert "chunked" not in self.headers.get("Transfer-Encoding", ""), "this proxy reads bodies by length"
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the client gave up in the middle of it
            self.close_connection = True
            return
        request = Request(self.command, self.path, self.headers.items(), body, self._until_client_goes)
        proxy.requests.append(request)
        fault = proxy.fault
        reply = fault.handle(request, self._pass_on) if fault else self._pass_on(request)
        self.close_connection = True
        if reply is not None:
            self._answer(reply)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _until_client_goes(self) -> None:
        self.connection.settimeout(60)
        assert not self.connection.recv(1), "the client asks for more before it has an answer"

    def _pass_on(self, request: Request) -> Reply:
        server: Any = self.server
        connection = http.client.HTTPConnection(server.upstream, timeout=300)
        try:
            # Host goes on as the client sent it: the signature covers it.
            connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for key, value in request.headers:
                if key.lower() not in ("expect", "connection"):
                    connection.putheader(key, value)
            connection.endheaders(request.body)
            answer = connection.getresponse()
            return Reply(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()

    def _answer(self, reply: Reply) -> None:
        self.send_response_only(reply.status)
        dropped = {"transfer-encoding", "connection"}
        if self.command != "HEAD":
            dropped.add("content-length")
            self.send_header("Content-Length", str(len(reply.body)))
        for key, value in reply.headers:
            if key.lower() not in dropped:
                self.send_header(key, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(reply.body[: reply.cut_at])

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: the tests look at `requests`."""
