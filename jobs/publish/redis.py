"""The connection to Redis: requests with time limits, and errors that say where."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from bucketwise.jobs.core import clock
from bucketwise.jobs.publish.publisher import PublishError
from bucketwise.jobs.publish.writer import Command

#: For a connection, and for each reply.
_SECONDS = 5


_OLDEST = 6


class LinkError(PublishError):
    """Redis can't be reached, takes too long, or refuses."""


class Link:
    """Connects with the first request. `patience`: seconds that all requests may take; None: any."""

    def __init__(self, url: str, patience: float | None = None) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError:
            install = "pip install 'bucketwise[redis]'"
            raise LinkError(f"the Python package redis is missing: {install}") from None
        self._errors = (redis.RedisError, OSError)
        self._refused = redis.ResponseError
        limits = {"socket_timeout": _SECONDS, "socket_connect_timeout": _SECONDS}
        never = Retry(NoBackoff(), 0)
        self._pool = redis.ConnectionPool.from_url(
            url, decode_responses=True, encoding_errors="replace", protocol=2, retry=never, **limits
        )
        self._place = shown(url)
        self._patience = patience
        self._waited = self._begun = 0.0
        self._connection: Any = None

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._pool.disconnect()

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Sends the commands at once and returns their replies. Raises LinkError."""
        self._begun = clock.steady()
        try:
            if self._connection is None:
                self._connection = self._pool.get_connection()
                self._check(self._send([("INFO", "server")])[0])
            replies = self._send(commands)
        except self._errors as error:
            self._pool.disconnect()
            raise LinkError(f"Redis at {self._place}: {' '.join(str(error).split())}") from error
        self._waited += clock.steady() - self._begun
        return replies

    def _send(self, commands: Sequence[Command]) -> list[Any]:
        self._connection.send_packed_command(self._connection.pack_commands(commands), check_health=False)
        replies = [self._reply() for _ in commands]
        inner = [it for reply in replies if isinstance(reply, list) for it in reply]
        refusals = [it for it in (*replies, *inner) if isinstance(it, self._refused)]
        if refusals:  # the first is the cause
            raise refusals[0]
        return replies

    def _reply(self) -> Any:
        try:
            reply = self._connection.read_response()
        except self._refused as error:
            reply = error
        waited = self._waited + clock.steady() - self._begun
        if self._patience is not None and waited > self._patience:
            self._pool.disconnect()
            raise LinkError(f"Redis at {self._place}: it is slow. The next run continues")
        return reply

    def _check(self, info: str) -> None:
        lines = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
        version = lines.get("redis_version", "0")
        if int(version.partition(".")[0]) < _OLDEST:
            raise LinkError(f"Redis at {self._place} is {version}; {_OLDEST}.0 or later is needed")


def shown(url: str) -> str:
    """Returns where a URL goes, without user, password and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
