"""Progress on stderr: a moving bar on a terminal, now and then a line elsewhere, nothing where quiet.

Where log lines are JSON, so are these, on a terminal as well."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bucketwise.jobs.core import clock, logs
from bucketwise.jobs.core.logs import log
from bucketwise.jobs.output.text import duration, size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_SECONDS_BETWEEN_LINES = 10.0
#: An estimate from less would be a guess.
_LEAST_SECONDS, _LEAST_SHARE = 3.0, 0.005


class Estimate:
    """Estimates how long a run will take, by the share of it that is done, which never falls. Pure: `now` are
    seconds of a steady clock."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._share: float | None = None
        self._before, self._part = 0.0, 1.0

    def begin(self, before: float, part: float) -> None:
        """Begins a step: the share of the run that is done before it, and the share that it is itself."""
        self._before, self._part = before, part
        if before:
            self._raise(before)

    def update(self, share: float | None) -> None:
        """Takes the share of the step that is done, 0 to 1; None where it is not known."""
        if share is not None:
            self._raise(self._before + self._part * share)

    def _raise(self, share: float) -> None:
        self._share = max(share, self._share or 0.0)

    @property
    def share(self) -> float | None:
        """Returns the share of the run that is done, 0 to 1; None where it is not known."""
        return self._share

    def left(self, now: float) -> str | None:
        """Returns text such as "42 %, about 3 min left"; None while too little is known."""
        elapsed = now - self._began
        if self._share is None or not _LEAST_SHARE <= self._share < 1 or elapsed < _LEAST_SECONDS:
            return None
        seconds = elapsed * (1 - self._share) / self._share
        return f"{self._share:.0%}, about {duration(seconds)} left".replace("%", " %")


def _counted(what: str, count: int, seconds: float) -> str:
    """Returns a count as text: bytes in the unit that suits them, and of readings and bytes how many a
    second."""
    is_size = what.endswith("bytes")
    shown = f"{size(count)} of documents" if is_size else f"{count:,} {what}"
    if seconds < _LEAST_SECONDS or not (is_size or what.endswith("readings")):
        return shown
    rate = size(round(count / seconds)) if is_size else f"{count / seconds:,.0f}"
    return f"{shown} ({rate}/s)"


class ProgressDisplay:
    """Called by long work with what it did since the last call: `progress("archived readings", 5000)`.
    `among`: which of how many policies is worked on. `steps`: those of each policy, with the share of time
    that each takes beside the others."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._counts: Counter[str] = Counter()
        self._estimate = Estimate(clock.steady())
        self.among = (1, 1)
        self.steps: Mapping[str, float] = {}
        self._step_began = 0.0
        self._title = ""
        self._fields: dict[str, Any] = {}
        self._waits: str | None = None
        self._said_at = 0.0
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, what: str, count: int, share: float | None = None, /) -> None:
        """Adds to the count of what was done, and shows it. `share`: how much of all is done, 0 to 1."""
        self._counts[what] += count
        self._estimate.update(share)
        self._show()

    def wait(self, reason: str | None, /) -> None:
        """Shows why work waits; None: it goes on. Where quiet, logs it, if there are log lines."""
        if self._quiet and reason is not None and self._waits is None:
            log.info("run waits", **self._fields, reason=reason)
        self._waits = reason
        self._show()

    @contextmanager
    def step(self, title: str, policy: str | None = None) -> Iterator[None]:
        """Counts what is done inside the block for this step of a policy."""
        number, of = self.among
        self._fields = {"step": title}
        if policy is not None:
            place = {"policy_number": number, "policies": of} if of > 1 else {}
            self._fields = {"policy": policy, **place, "step": title}
            title = f"[{number}/{of}] {policy}: {title}" if of > 1 else f"{policy}: {title}"
        self._place(self._fields["step"])
        self._title, self._counts, self._step_began = title, Counter(), clock.steady()
        if not self._quiet and sys.stderr.isatty() and not logs.is_json():
            with self._moving(title):
                yield
            return
        self._say()
        yield
        if self._counts:
            self._say(is_done=True)

    def _place(self, step: str) -> None:
        """Tells the estimate where the run is. What follows the steps has no share of its own."""
        if step not in self.steps:
            if not self.steps:
                self._estimate = Estimate(clock.steady())
            return
        (number, of), names = self.among, list(self.steps)
        at = names.index(step)
        if number == 1 and at == 0:
            self._estimate = Estimate(clock.steady())
        whole = of * sum(self.steps.values())
        before = sum(self.steps[it] for it in names[:at])
        self._estimate.begin((number - 1) / of + before / whole, self.steps[step] / whole)

    def _show(self) -> None:
        share = self._estimate.share
        if self._bar is not None and self._task is not None:
            total = None if share is None else 1.0
            self._bar.update(self._task, counts=self._summary(), total=total, completed=share or 0.0)
        elif clock.steady() - self._said_at >= _SECONDS_BETWEEN_LINES:
            self._say()

    @contextmanager
    def _moving(self, title: str) -> Iterator[None]:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20))
        shown = TextColumn("{task.fields[counts]}")
        console = Console(stderr=True, markup=False)
        with Progress(*columns, shown, TimeElapsedColumn(), console=console, transient=True) as self._bar:
            self._task = self._bar.add_task(title, total=None, counts="")
            try:
                yield
            finally:
                self._bar = self._task = None

    def state(self) -> str:
        """Returns the step in hand, how much of it is done, and how long it will take. Safe to call from
        another thread."""
        return ": ".join(filter(None, (self._title, self._summary())))

    def _summary(self, *, is_done: bool = False) -> str:
        now = clock.steady()
        elapsed = now - self._step_began
        counts = ", ".join(_counted(what, count, elapsed) for what, count in dict(self._counts).items())
        waits = None if self._waits is None else f"waits: {self._waits}"
        left = None if is_done else self._estimate.left(now)
        return "; ".join(filter(None, (counts, left, waits)))

    def _say(self, *, is_done: bool = False) -> None:
        self._said_at = clock.steady()
        if self._quiet:
            return
        if logs.is_json():
            more = {"share": self._estimate.share, "left": self._estimate.left(clock.steady())}
            more["waits"] = self._waits
            known = {key: it for key, it in more.items() if it is not None}
            log.info("progress", **self._fields, counts=dict(self._counts), **known)
        else:
            summary = self._summary(is_done=is_done)
            sys.stderr.write(f"{self._title}: {summary}\n" if summary else f"{self._title}\n")
            sys.stderr.flush()
