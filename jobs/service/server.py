"""The HTTP server of the service: GET only, each request in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from config.errors import UsageError
from jobs.failures import explain


class Response(NamedTuple):
    """The response of a path."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = {}


#: By path.
Pages = Mapping[str, Callable[[], Response]]
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Ignores errors of clients that have gone."""


@contextmanager
def served(pages: Pages, host: str, port: int) -> Iterator[int]:
    """Serves the pages inside the block. Yields the port, which is a free one where `port` is 0.

    Raises UsageError where the port can't be had."""
    try:
        server = _Server((host, port), _handler(pages))
    except OSError as error:
        raise UsageError(f"--metrics-port {port}: {host} can't be listened on: {error.strerror}") from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def _handler(pages: Pages) -> type[BaseHTTPRequestHandler]:
    """Returns a handler of requests that answers with the pages."""

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
            page = pages.get(self.path.partition("?")[0])
            if page is None:
                there = f"there are {', '.join(pages)}\n"
                return Response(there.encode(), status=HTTPStatus.NOT_FOUND)
            try:
                return page()
            except Exception as error:  # noqa: BLE001  # no traceback reaches a user
                text = f"{explain(error).message}\n"
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
