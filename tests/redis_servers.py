"""Real Redis servers, each in memory alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import redis

from tests.conftest import free_port, missing
from tests.servers import running


@dataclass(frozen=True)
class RedisServer:
    """A running server, and a client of it."""

    port: int
    process: subprocess.Popen[bytes]
    client: redis.Redis

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


@contextmanager
def redis_server(*options: str, password: str | None = None) -> Iterator[RedisServer]:
    """Runs a server on a free port, with these options."""
    found = shutil.which("redis-server")
    if found is None:
        missing("the executable redis-server (Debian's package of this name)")
    port = free_port()
    command = [str(found), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    command += ["--set-proc-title", "no"]  # a title would lie over its environment, by which it is found
    command += [*options, *(["--requirepass", password] if password else [])]
    client = redis.Redis("127.0.0.1", port, password=password, decode_responses=True, protocol=2)

    def is_up() -> bool:
        with suppress(redis.ConnectionError):
            return bool(client.ping())
        return False

    with client, running(command, is_up) as process:
        yield RedisServer(port, process, client)
