"""Progress on stderr: a moving bar on a terminal, now and then a line elsewhere, nothing where quiet."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from jobs import clock

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Called by long work with what it did since the last call: `progress("archived readings", 5000)`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._counts: Counter[str] = Counter()
        self._title = ""
        self._said_at = 0.0
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __call__(self, what: str, count: int) -> None:
        self._counts[what] += count
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, counts=self._summary())
        elif clock.steady() - self._said_at >= _SECONDS_BETWEEN_LINES:
            self._say(f"{self._title}: {self._summary()}")

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """What is counted inside the block belongs to `title`."""
        self._title, self._counts = title, Counter()
        if not self._quiet and sys.stderr.isatty():
            with self._moving(title):
                yield
            return
        self._say(title)
        yield
        if self._counts:
            self._say(f"{title}: {self._summary()}")

    @contextmanager
    def _moving(self, title: str) -> Iterator[None]:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20))
        shown = TextColumn("{task.fields[counts]}")
        console = Console(stderr=True, markup=False)
        with Bar(*columns, shown, TimeElapsedColumn(), console=console, transient=True) as self._bar:
            self._task = self._bar.add_task(title, total=None, counts="")
            try:
                yield
            finally:
                self._bar = self._task = None

    def _summary(self) -> str:
        return ", ".join(f"{count:,} {what}" for what, count in self._counts.items())

    def _say(self, line: str) -> None:
        self._said_at = clock.steady()
        if not self._quiet:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
