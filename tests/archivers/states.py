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


class _Made:
    """A cycle in a state, with what it takes to put that back."""

    def __init__(self, cycle: Cycle) -> None:
        self.cycle, self._standing, self._uuids = cycle, Standing(cycle), self._found(cycle)

    @staticmethod
    def _found(cycle: Cycle) -> dict[str, Any]:
        return {it["name"]: it["info"].get("uuid") for it in cycle.database.list_collections()}

    def stands(self) -> bool:
        """Whether the collections are those that the archive is bound to."""
        return self._uuids.items() <= self._found(self.cycle).items()

    def anew(self) -> Cycle:
        made = self.cycle
        cycle = Cycle(made.database, made.case, made.settings, keys=made.keys, memory=made.memory)
        for name in self._standing.names(cycle):
            if name not in self._uuids:
                cycle.database.drop_collection(name)
        self._standing.put_back(cycle)
        return cycle


class States:
    """Gives cycles in a state. It is made once, and put back for each test where it was made, so that the
    archive stays the one that its records name."""

    def __init__(self, client: MongoClient[Document], folder: Path) -> None:
        self._client, self._folder = client, folder
        self._made: dict[tuple[State, bytes], _Made] = {}

    def __call__(self, case: Case, state: State) -> Cycle:
        """`state`: a function of a module."""
        told = [case.policy.model_dump_json().encode(), *case.documents, *case.overflow]
        key = state, sha256(b"".join(told)).digest()
        if key not in self._made or not self._made[key].stands():
            self._made[key] = self._make(case, state)
        return self._made[key].anew()

    def _make(self, case: Case, state: State) -> _Made:
        name = f"test_{uuid.uuid4().hex[:12]}"
        (self._folder / name).mkdir()
        cycle = Cycle(self._client[name], case, Store(url=(self._folder / name).as_uri())).load()
        state(cycle)
        return _Made(cycle)

    def close(self) -> None:
        for it in self._made.values():
            self._client.drop_database(it.cycle.database.name)


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
