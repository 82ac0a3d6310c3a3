"""Numbers for Prometheus about the service's runs, and its health, over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest

from config.errors import UsageError
from jobs import clock
from jobs.failures import OUTCOMES
from jobs.output.report import Result

_SUCCESSES = (0, 3)


class Metrics:
    """The numbers, by policy. A registry of its own: nothing of this process itself is told."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._runs = self._counter("runs", "Runs by outcome", "outcome")
        self._rolled_up = self._counter("rolled_up_readings", "Readings rolled up")
        self._archived = self._counter("archived_buckets", "Buckets copied to the archive and verified")
        self._deleted = self._counter("deleted_buckets", "Buckets deleted after a verified copy")
        self._left = self._gauge("left_buckets", "Expired buckets that the last run left")
        self._quarantined = self._gauge("quarantined_buckets", "Buckets that break their model, last run")
        self._drills = self._counter("drills", "Restore drills by outcome", "outcome")
        self._last_success = self._gauge("last_success_timestamp_seconds", "End of the last good run")

    def record(self, result: Result) -> None:
        """Count one turn of one policy."""
        policy = result.policy
        self._runs.labels(policy, OUTCOMES[result.exit_code]).inc()
        if "rollup" in result.body:
            self._rolled_up.labels(policy).inc(result.body["rollup"]["readings"])
        if "archive" in result.body:
            archive = result.body["archive"]
            self._archived.labels(policy).inc(archive["buckets"])
            self._deleted.labels(policy).inc(archive["deleted"])
            self._left.labels(policy).set(archive["left"])
            self._quarantined.labels(policy).set(archive["quarantined"])
        if result.exit_code in _SUCCESSES:
            self._last_success.labels(policy).set(clock.current().timestamp())

    def record_drill(self, result: Result) -> None:
        """Counts one drill of one policy."""
        self._drills.labels(result.policy, OUTCOMES[result.exit_code]).inc()

    def text(self) -> bytes:
        """The numbers in Prometheus' text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"bucketwise_{name}", help_text, ["policy", *labels], registry=self._registry)

    def _gauge(self, name: str, help_text: str) -> Gauge:
        return Gauge(f"bucketwise_{name}", help_text, ["policy"], registry=self._registry)


@contextmanager
def served(metrics: Metrics, is_alive: Callable[[], bool], host: str, port: int) -> Iterator[int]:
    """In the block, /metrics and /healthz answer; gives the port, which is a free one where `port` is 0.

    Raises UsageError where the port can't be had.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, metrics.text())
            elif path == "/healthz":
                alive = is_alive()
                status = HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE
                self._answer(status, "text/plain", b"ok\n" if alive else b"the scheduler stands still\n")
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there are /metrics and /healthz\n")

        def log_message(self, *_: Any) -> None:
            """A scrape is no news."""

        def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise UsageError(f"--metrics-port {port}: {host} can't be listened on: {error.strerror}") from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
