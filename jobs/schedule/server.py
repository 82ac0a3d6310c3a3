"""The HTTP server of the service: GET only, each request in a thread of its own."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, NamedTuple

from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.failures import failure_of

_HEADER = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{0,5})?", re.IGNORECASE)


@dataclass(frozen=True)
class Hosts:
    """Names and addresses under which the service is read, as `_plain` writes them."""

    names: frozenset[str]

    @classmethod
    def of(cls, listening: str, allowed: Sequence[str]) -> Hosts:
        """Returns the hosts of a service that listens there. Raises UsageError where one that is allowed is
        no host."""
        return cls(frozenset(["localhost", _plain(listening), *map(_checked_host, allowed)]))

    def admit(self, header: str, reached: str) -> bool:
        """Returns whether a request may have this header. `reached`: the address at which it came in."""
        found = _HEADER.fullmatch(header.strip())
        if found is None:
            return False
        host = _plain(found[1])
        address = _address(host)
        return host in self.names or host == _plain(reached) or (address is not None and address.is_loopback)


def in_url(host: str) -> str:
    """Returns a host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def _checked_host(said: str) -> str:
    """Returns a value of `--allow-host`, plain. Raises UsageError where it is no name or address."""
    host = said.strip()
    if _address(_plain(host)) is None and not re.fullmatch(r"[A-Za-z0-9._-]+", host):
        raise UsageError(
            f"--allow-host {said}: it is no name or address of a host. Write it without scheme and port: "
            "--allow-host metrics.example.com"
        )
    return _plain(host)


def _plain(host: str) -> str:
    """Returns a host in small letters, without brackets and last dot; an address in its short form."""
    plain = host.lower().strip("[]").removesuffix(".")
    address = _address(plain)
    return plain if address is None else str(address)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(host)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


class Response(NamedTuple):
    """The response of a path."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = {}


#: What says nothing but that the service is alive; probes may ask for it under any name.
HEALTH = "/healthz"

_FORBIDDEN = Response(
    b"the Host header of this request is neither a loopback address, nor the one that is listened on, nor "
    b"named by --allow-host\n",
    status=HTTPStatus.FORBIDDEN,
)

#: By path.
Pages = Mapping[str, Callable[[], Response]]

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class _Server(ThreadingHTTPServer):
    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)

    def handle_error(self, *_: Any) -> None:
        """Ignores errors of clients that have gone."""


@contextmanager
def served(pages: Pages, host: str, port: int, hosts: Hosts) -> Iterator[int]:
    """Serves the pages inside the block. `hosts`: under which they may be asked for. Yields the port, which
    is a free one where `port` is 0.

    Raises UsageError where the port can't be had."""
    try:
        server = _Server(host, port, _handler(pages, hosts))
    except OSError as error:
        raise UsageError(f"--metrics-port {port}: {host} can't be listened on: {error.strerror}") from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def _handler(pages: Pages, hosts: Hosts) -> type[BaseHTTPRequestHandler]:
    """Returns a handler of requests that answers with the pages, where one of the hosts is asked."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds: one that says nothing does not stay
        server_version, sys_version = "bucketwise", ""

        def do_GET(self) -> None:
            self._answer(self._found())

        def do_HEAD(self) -> None:
            self.do_GET()

        def __getattr__(self, name: str) -> Callable[[], None]:
            """Returns what refuses a method, whatever it is called."""
            if not name.startswith("do_"):
                raise AttributeError(name)
            status = HTTPStatus.METHOD_NOT_ALLOWED
            return lambda: self._answer(
                Response(b"only GET\n", status=status, headers={"Allow": "GET, HEAD"})
            )

        def log_message(self, *_: Any) -> None:
            """A scrape is no news."""

        def _found(self) -> Response:
            path = self.path.partition("?")[0]
            page = pages.get(path)
            if path != HEALTH and not _is_meant(self, hosts):
                return _FORBIDDEN
            if page is None:
                there = f"there are {', '.join(it for it in pages if it.count('/') == 1)}\n"
                return Response(there.encode(), status=HTTPStatus.NOT_FOUND)
            try:
                return page()
            except Exception as error:  # noqa: BLE001  # no traceback reaches a user
                text = f"{failure_of(error).message}\n"
                return Response(text.encode(), status=HTTPStatus.INTERNAL_SERVER_ERROR)

        def _answer(self, answer: Response) -> None:
            self.send_response(answer.status)
            about = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body))}
            for name, value in {**_HEADERS, **about, **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

    return Handler


def _is_meant(request: BaseHTTPRequestHandler, hosts: Hosts) -> bool:
    """Returns whether the request has one Host header, of one of the hosts. HTTP/1.0 needs none: no browser
    leaves it out."""
    found = request.headers.get_all("Host", [])
    if not found:
        return request.request_version < "HTTP/1.1"
    reached = request.connection.getsockname()[0]
    return len(found) == 1 and hosts.admit(found[0], reached)
