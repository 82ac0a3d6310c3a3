"""States that tests begin from: made once a process by the command line, then put back for each test.

An archive knows its database by name, collections by their UUIDs and its store by URL. All of these are put
back as they were (`tests/standing.py`). Change streams go on from where the state was put back, as if nothing
had happened since.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bucketwise.rollups import progress
from tests.jobs.place import NOW, Db, Place
from tests.standing import StandingDatabase


def _go_on_from_here(database: Db) -> None:
    """Moves what policies have read of their change streams up to now."""
    recorded = database[progress.COLLECTION]
    if recorded.count_documents({"stream": {"$exists": True}}):
        with database.watch() as stream:
            while stream.resume_token is None:
                stream.try_next()
            recorded.update_many(
                {"stream": {"$exists": True}}, {"$set": {"stream.token": stream.resume_token}}
            )


Step = str | Callable[[Place], object]


def after(*steps: Step) -> pytest.MarkDecorator:
    """Marks tests whose `place` is as it is after these steps."""
    return pytest.mark.after.with_args(*steps)


class States:
    """The states of one folder and one database: a policy file and its readings, after steps. A step is a
    command, which has to end with 0, or a function of tests that does something with the place."""

    def __init__(self, place: Place, kept: Path) -> None:
        self._place = place
        self._kept = kept
        self._known: dict[tuple[Step, ...], tuple[StandingDatabase, Path]] = {}

    def at(self, *steps: Step) -> Place:
        """Returns the place as it is after the steps."""
        if steps not in self._known:
            self._make(steps)
            files = self._kept / str(len(self._known))
            shutil.copytree(self._place.folder, files)
            self._known[steps] = StandingDatabase(self._place.database), files
        standing, files = self._known[steps]
        shutil.rmtree(self._place.folder, ignore_errors=True)
        shutil.copytree(files, self._place.folder)
        standing.put_back()
        _go_on_from_here(self._place.database)
        return self._place

    def _make(self, steps: tuple[Step, ...]) -> None:
        self.clear()
        self._place.folder.mkdir()
        self._place.write_config()
        self._place.load()
        for step in steps:
            if isinstance(step, str):
                ran = self._place(*step.split(), now=None if "--now" in step else NOW)
                assert ran.code == 0, (step, ran)
            else:
                step(self._place)

    def clear(self) -> None:
        """Removes what a test has left."""
        self._place.database.client.drop_database(self._place.database.name)
        shutil.rmtree(self._place.folder, ignore_errors=True)
