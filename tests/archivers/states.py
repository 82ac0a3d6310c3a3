"""States of an archive that many tests begin from, each made once."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, LATER, Case
from tests.archivers.harness import Cycle, Standing

Document = dict[str, Any]
#: About half of what the builders make has expired by then.
MIDWAY = DAY0 + timedelta(days=31)
#: What happens to what is loaded.
State = Callable[[Cycle], object]


class States:
    """Gives cycles in a state. It is made once, and put back for each test where it was made, so that the
    archive stays the one that its records name."""

    def __init__(self, client: MongoClient[Document], folder: Path) -> None:
        self._client, self._folder = client, folder
        self._made: dict[tuple[State, bytes], tuple[Cycle, Standing]] = {}

    def __call__(self, case: Case, state: State) -> Cycle:
        """`state`: a function of a module."""
        told = [case.policy.model_dump_json().encode(), *case.documents, *case.overflow]
        key = state, sha256(b"".join(told)).digest()
        if key not in self._made:
            made = self._make(case, state)
            self._made[key] = made, Standing(made)
        made, standing = self._made[key]
        cycle = Cycle(made.database, made.case, made.settings, keys=made.keys, memory=made.memory)
        standing.put_back(cycle)
        return cycle

    def _make(self, case: Case, state: State) -> Cycle:
        name = f"test_{uuid.uuid4().hex[:12]}"
        (self._folder / name).mkdir()
        cycle = Cycle(self._client[name], case, Store(url=(self._folder / name).as_uri())).load()
        state(cycle)
        return cycle

    def close(self) -> None:
        for cycle, _ in self._made.values():
            self._client.drop_database(cycle.database.name)


class Halt(Exception):
    """What ends a run in the middle."""


def halt(*_: object) -> None:
    raise Halt


def nothing_archived(cycle: Cycle) -> None:
    del cycle


def half_archived(cycle: Cycle) -> None:
    cycle.run(MIDWAY)


def all_archived(cycle: Cycle) -> None:
    cycle.run()


def archived_in_two_runs(cycle: Cycle) -> None:
    cycle.run(MIDWAY)
    cycle.run()


def cut_off_before_the_delete(cycle: Cycle) -> None:
    if cycle.policy.model == "timeseries":  # nothing is ever deleted there
        cycle.run()
        return
    with pytest.raises(Halt):
        cycle.run(guard=halt)


def restored(cycle: Cycle) -> None:
    cycle.run()
    cycle.restore(cycle.policy.collection, until=MIDWAY - timedelta(days=30))


def archived_every_few_hours(cycle: Cycle) -> None:
    """From the first bucket on."""
    for hour in range(1, 61, 8):
        cycle.run(DAY0 + timedelta(days=30, hours=hour))
    cycle.run(LATER)
