"""Notifies others how runs end: a POST of the report where something is wrong, pings for a dead man's switch.

A receiver that is down, slow or wrong holds nothing up and changes no exit code: it is reported as a
complaint.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from bucketwise.config import VERSION
from bucketwise.config.errors import HaltedError
from bucketwise.config.tables import Notify
from bucketwise.jobs.core import clock
from bucketwise.jobs.output.report import Report, Result

#: Exit codes of runs that are done, and of those that somebody must look at. Of the others it is not known
#: whether the work was done: another run had the lease, or this one was interrupted.
DONE, FAILED = (0, 3), (1, 2, 4, 5)
_SECONDS = 5.0  # for one try
_TRIES = 2
#: Seconds that notifications under way at the end may take: two pings one after another.
_PATIENCE = 2 * _TRIES * _SECONDS + 1


def events_of(exit_code: int, results: Iterable[Result]) -> list[str]:
    """Returns the events that happened, of those that `notify.on` may name."""
    found = {
        "failed": exit_code in FAILED and exit_code != HaltedError.exit_code,
        "halted": exit_code == HaltedError.exit_code,
        "late": any(it.late_since is not None and not it.is_idle for it in results),
    }
    return [name for name, happened in found.items() if happened]


class Notifier:
    """Sends notifications in threads of its own. `complain` takes what could not be delivered."""

    def __init__(self, notify: Notify, complain: Callable[[str], None]) -> None:
        self._urls = {key: url.get_secret_value() for key, url in notify.urls.items()}
        self._on = notify.on
        self._complain = complain
        self._sending: list[threading.Thread] = []
        self._last_ping: threading.Thread | None = None

    def started(self) -> None:
        """Announces that a run begins."""
        self._ping("ping_start")

    def ended(self, report: Report) -> None:
        """Announces how a run has ended."""
        code = report.exit_code
        if code in DONE:
            self._ping("ping_success")
        elif code in FAILED:
            self._ping("ping_fail")
        events = [it for it in events_of(code, report.results) if it in self._on]
        if events and "url" in self._urls:
            told = replace(report, extra={**report.extra, "events": events})
            self._send("url", told.as_json().encode(), None)

    def wait(self) -> None:
        """Waits until all is delivered or given up, 21 seconds at most."""
        deadline = clock.steady() + _PATIENCE
        for thread in self._sending:
            thread.join(max(0.0, deadline - clock.steady()))
            if thread.is_alive():
                self._complain(f"{thread.name}: no answer in time")

    def _ping(self, key: str) -> None:
        if key in self._urls:
            self._last_ping = self._send(key, None, self._last_ping)

    def _send(self, key: str, body: bytes | None, before: threading.Thread | None) -> threading.Thread:
        """Sends in a thread. `before`: the thread that has to end first."""
        url = self._urls[key]

        def deliver() -> None:
            if before is not None:
                before.join(_TRIES * _SECONDS)
            if failure := _deliver(url, body):
                self._complain(f"{thread.name}: {failure}")

        thread = threading.Thread(target=deliver, name=f"notify.{key}: {_shown(url)}", daemon=True)
        thread.start()
        self._sending = [*(it for it in self._sending if it.is_alive()), thread]
        return thread


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirects: they would take the report to a place that nobody named."""

    def redirect_request(self, *_: Any) -> None:
        return None


_open = build_opener(_NoRedirects).open


def _deliver(url: str, body: bytes | None) -> str | None:
    """Returns why it could not be delivered; None where it was."""
    failure = None
    for _ in range(_TRIES):
        try:
            with _open(_request(url, body), timeout=_SECONDS):
                return None
        except HTTPError as error:
            error.close()
            failure = f"it answered {error.code}"
            if error.code < 500:  # it would answer the same
                break
        except (OSError, HTTPException, ValueError) as error:
            failure = _reason(error)
    return failure


def _request(url: str, body: bytes | None) -> Request:
    """Returns a request with user and password in a header: urllib takes none in a URL."""
    parts = urlsplit(url)
    user_info, _, place = parts.netloc.rpartition("@")
    request = Request(parts._replace(netloc=place, fragment="").geturl(), data=body)
    request.add_header("User-Agent", f"bucketwise/{VERSION}")
    if body is not None:
        request.add_header("Content-Type", "application/json")
    if user_info:
        credentials = base64.b64encode(unquote(user_info).encode()).decode()
        request.add_header("Authorization", f"Basic {credentials}")
    return request


def _reason(error: Exception) -> str:
    """Returns the reason of an error without parts that may quote the URL."""
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return f"no answer within {_SECONDS:.0f} seconds"
    return getattr(cause, "strerror", None) or type(error).__name__


def _shown(url: str) -> str:
    """Returns the host of a URL, without the rest: paths of such URLs are secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
