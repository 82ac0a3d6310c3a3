"""Where a demo happens: a folder of its own, with an embedded mongod, a local store and a policy file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from config.loading.load import load
from config.policies import Settings
from jobs import connect
from jobs.call import Call
from jobs.embedded import Mongod, start_mongod


@dataclass(frozen=True)
class Place:
    folder: Path
    mongod: Mongod
    config: Path
    store: Path


@contextmanager
def place(*, keep: bool) -> Iterator[Place]:
    """Is there inside the block; with `keep` also after it, unless the block raised."""
    folder = Path(tempfile.mkdtemp(prefix="bucketwise-demo-"))
    mongod: Mongod | None = None
    kept = False
    try:
        mongod = start_mongod(folder / "mongod")
        store, config = folder / "store", folder / "bucketwise.toml"
        written = files("jobs.demo").joinpath("bucketwise.toml").read_text(encoding="utf-8")
        config.write_text(written.replace("<uri>", mongod.uri).replace("<store>", store.as_uri()))
        yield Place(folder, mongod, config, store)
        kept = keep
    finally:
        if not kept:
            if mongod is not None:
                mongod.stop()
            shutil.rmtree(folder, ignore_errors=True)


class DemoCall(Call):
    """A call that takes nothing from the environment: BUCKETWISE_MONGODB_URI must not lead the demo to a
    database of somebody's own."""

    @cached_property
    def settings(self) -> Settings:
        settings = load(self.config, {})
        self.hosts = connect.hosts(settings.mongodb)
        return settings
