"""One call of the command line: what every verb is given."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from pymongo.database import Database

from archivers.keys import Keys
from archivers.stores import ObjectStore, open_store
from config.errors import UsageError
from config.load import load
from config.policies import Policy, Settings
from jobs import connect
from jobs.connect import Document
from jobs.progress import Progress
from jobs.stopping import Stop


@dataclass
class Call:
    """The common options, and what follows from them. Reads the config when it is first asked for."""

    command: str
    config: Path | None
    names: tuple[str, ...]  # --policy
    now: datetime
    is_now_given: bool
    json: bool
    quiet: bool
    yes: bool
    stop: Stop
    hosts: str = ""  # where MongoDB is, once that is known

    @cached_property
    def settings(self) -> Settings:
        """Raises ConfigError."""
        settings = load(self.config, os.environ)
        self.hosts = connect.hosts(settings.mongodb)
        return settings

    @cached_property
    def policies(self) -> list[Policy]:
        """Those named by --policy, else all, in the order of the file. Raises UsageError."""
        known = self.settings.policies
        for name in self.names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}"
                raise UsageError(f"--policy {name}: {self.settings.path} has no such policy. {hint}")
        return [policy for name, policy in known.items() if not self.names or name in self.names]

    @cached_property
    def store(self) -> ObjectStore | None:
        return None if self.settings.store is None else open_store(self.settings.store)

    @cached_property
    def keys(self) -> Keys:
        return Keys.of(self.settings.store)

    @property
    def progress(self) -> Progress:
        return Progress(quiet=self.quiet)

    @contextmanager
    def database(self) -> Iterator[Database[Document]]:
        with connect.connect(self.settings.mongodb) as client:
            yield client[self.settings.mongodb.database]
