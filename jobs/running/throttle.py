"""Limits the load on the cluster: between pieces of work, a run waits or ends as the table `throttle` says.

It waits only where the run may stop, in the thread of the run, and never with an open transaction. The lease
is renewed in the background, and the prefetching reader keeps open cursors alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from time import sleep
from typing import NamedTuple

import structlog

from bucketwise.config.durations import format_duration
from bucketwise.config.errors import BucketwiseError, WindowOverError
from bucketwise.config.tables import Throttle as Limits
from bucketwise.config.throttling import Rate, Window, parse_rate, parse_window
from bucketwise.jobs import clock
from bucketwise.jobs.running.lag import Lag
from bucketwise.rollups.context import ProgressListener

#: Seconds between two queries of the lag, at least.
_BETWEEN_ASKS = 1.0
#: … and seconds of waiting for a secondary after which a run fails: somebody has to look.
LONGEST_WAIT = 900.0
_TICK = 0.2
log = structlog.get_logger()


class Wait(NamedTuple):
    """How long to wait before asking again, and why."""

    seconds: float
    reason: str


#: Takes the reason for which a run waits; None once it goes on.
OnWait = Callable[[str | None], None]


class Throttler:
    """Applies the limits of one policy to one run. `now` is seconds of a monotonic clock. The window
    may be over until `finish_by`."""

    def __init__(self, limits: Limits, ask: Callable[[], Lag | None], now: float) -> None:
        """`ask`: the largest lag of a secondary."""
        self._limits = limits
        self._rate: Rate | None = None if limits.max_rate is None else parse_rate(limits.max_rate)
        self._window: Window | None = None if limits.window is None else parse_window(limits.window)
        self._ask = ask
        self._has_worked = False  # since the lag was asked for
        self._asked_at = float("-inf")
        self._lag: Lag | None = None  # where it is too large
        self._lags_since = now
        self._begun = self._paid_at = now
        self._thread = threading.get_ident()
        self.finish_by = float("-inf")

    def spend(self, buckets: int, size: int) -> None:
        """Counts buckets and bytes that were read or deleted. Their time is counted from when the run
        last continued: time spent on other work is not credited."""
        self._has_worked = True
        if self._rate is not None:
            cost = (size if self._rate.is_bytes else buckets) / self._rate.amount
            self._paid_at = max(self._paid_at, self._begun) + cost

    def wait(self, now: float, at: datetime) -> Wait | None:
        """Returns how long to wait, and why; None: go on. `at`: the run's present. Raises WindowOverError,
        and BucketwiseError where a secondary stays behind for too long."""
        if now >= self.finish_by:
            self.check_window(at)
        if now < self._paid_at:
            return Wait(self._paid_at - now, f"max_rate is {self._limits.max_rate}")
        if (behind := self._wait_for_secondaries(now)) is not None:
            return behind
        self._begun = now
        return None

    def opens_at(self, at: datetime) -> datetime | None:
        """Returns when the window opens; None: it is open now."""
        return None if self._window is None else self._window.closed_until(at)

    def check_window(self, at: datetime) -> None:
        """Raises WindowOverError if the window is closed."""
        if (opens_at := self.opens_at(at)) is not None:
            raise WindowOverError(f"the window {self._limits.window} is over", opens_at)

    def _wait_for_secondaries(self, now: float) -> Wait | None:
        """Returns how long to wait for secondaries; None: no wait. Asks for the lag only where something was
        done since, and no more often than it has to."""
        most = self._limits.max_lag
        if most is None or not (self._has_worked or self._lag):
            return None
        if now >= self._asked_at + _BETWEEN_ASKS:
            lag, self._asked_at, self._has_worked = self._ask(), now, False
            if lag is None or not lag.exceeds(most.total_seconds()):
                self._lag = None
                return None
            self._lags_since = self._lags_since if self._lag else now
            self._lag = lag
        if self._lag is None:
            return None
        reason = f"{self._lag}, and max_lag is {format_duration(most)}"
        if now - self._lags_since >= LONGEST_WAIT:
            minutes = round(LONGEST_WAIT / 60)
            raise BucketwiseError(f"{reason}: waited for {minutes} minutes. It is safe to run again")
        return Wait(self._asked_at + _BETWEEN_ASKS - now, reason)

    def counting_progress(self, progress: ProgressListener) -> ProgressListener:
        """Returns a progress function that also counts progress as work."""

        def report(what: str, count: int, share: float | None = None, /) -> None:
            self.spend(0, 0)
            progress(what, count, share)

        return report

    def check(self, check_running: Callable[[], None], present: Callable[[], datetime], tell: OnWait) -> None:
        """Waits as long as the limits require. Calls `check_running` meanwhile, which raises if the run
        must stop. `present` returns the run's own now. `tell` is called with the reason for waiting.
        Raises the errors of `wait`."""
        if threading.get_ident() != self._thread:  # those that copy wait for the run in any case
            return
        waits = False
        while (wait := self.wait(clock.steady(), present())) is not None:
            waits = True
            tell(wait.reason)
            sleep(min(wait.seconds, _TICK))
            check_running()
        if waits:
            tell(None)
