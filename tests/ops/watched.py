"""A real Prometheus, and what it scrapes: the file that runs write, and the service."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.conftest import free_port
from tests.docs.pages import ROOT
from tests.ops.debian import program
from tests.servers import answers, running

ALERTS = ROOT / "ops" / "alerts.yml"
_CONFIG = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%(rules)s]
scrape_configs:
  - job_name: file
    static_configs: [{targets: ["127.0.0.1:%(file)d"]}]
  - job_name: service
    static_configs: [{targets: ["127.0.0.1:%(service)d"]}]
"""


@dataclass(frozen=True)
class Prometheus:
    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that a query gives now: `metric` are its labels, `value` has time and text."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def ask(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as reply:
            said = json.load(reply)
        assert said["status"] == "success", said
        return said["data"]

    def until(self, expression: str) -> None:
        """Waits until a query gives something."""
        wait(lambda: bool(self.query(expression)), expression)


def wait(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, f"not in a minute: {what}"
        time.sleep(0.1)


@contextmanager
def served(file: Path) -> Iterator[int]:
    """As node_exporter does it, its text at /metrics; gives the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = file.read_bytes() if file.exists() else b""
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def prometheus(folder: Path, file_port: int, service_port: int) -> Iterator[Prometheus]:
    config = folder / "prometheus.yml"
    config.write_text(_CONFIG % {"rules": ALERTS, "file": file_port, "service": service_port})
    port = free_port()
    command = [program("prometheus", "prometheus"), f"--config.file={config}", "--log.level=warn"]
    command += [f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}"]
    url = f"http://127.0.0.1:{port}"
    with (
        (folder / "prometheus.log").open("wb") as log,
        running(command, lambda: answers(f"{url}/-/ready"), stdout=log, stderr=log),
    ):
        yield Prometheus(url)


def names(expression: str) -> set[str]:
    """The metrics that an expression asks for."""
    return set(re.findall(r"\bbucketwise_\w+", expression))
