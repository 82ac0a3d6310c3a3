"""Counts the requests to a store."""

from __future__ import annotations

from collections import Counter
from threading import Lock


class Requests:
    """Counts requests by operation, and how many of them were retries. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sent = Counter[str]()
        self._retries = 0

    def count(self, operation: str) -> None:
        """Counts a request as it is sent."""
        with self._lock:
            self._sent[operation] += 1

    def count_retry(self) -> None:
        """Counts one of the requests as a retry, as well."""
        with self._lock:
            self._retries += 1

    def take(self) -> tuple[dict[str, int], int]:
        """Returns the requests by operation, and the retries among them, since this was last asked."""
        with self._lock:
            taken = dict(self._sent), self._retries
            self._sent, self._retries = Counter(), 0
        return taken
