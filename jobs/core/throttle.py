"""Limits the load on the cluster: between pieces of work, a run waits or ends as the table `throttle` says.

It waits only where the run may stop, in the thread of the run, and never with an open transaction. The lease
is renewed in the background, and the prefetching reader keeps open cursors alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import sleep
from typing import Any, NamedTuple

from pymongo.database import Database
from pymongo.errors import ConnectionFailure, OperationFailure

from bucketwise.config.cron import Rate, Window, parse_rate, parse_window
from bucketwise.config.errors import BucketwiseError, WindowOverError
from bucketwise.config.tables import Throttle as Limits
from bucketwise.config.times import format_duration
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.turn import Finding, Turn
from bucketwise.rollups.context import ProgressListener

Document = dict[str, Any]

#: Seconds between two queries of the lag, at least.
_BETWEEN_ASKS = 1.0
#: … and seconds of waiting for a secondary after which a run fails: somebody has to look.
LONGEST_WAIT = 900.0
_TICK = 0.2


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


_PRIMARY, _UNAUTHORIZED = 1, 13

_NEEDS = (
    "the actions replSetGetStatus and replSetGetConfig on the cluster, such as the role clusterMonitor has"
)


class Lag(NamedTuple):
    """The member that is the furthest behind. `seconds` is None where the primary can't reach it."""

    member: str
    seconds: float | None

    def exceeds(self, most: float) -> bool:
        """Returns whether the lag is longer than so many seconds, or not known."""
        return self.seconds is None or self.seconds > most

    def __str__(self) -> str:
        behind = "cannot be reached" if self.seconds is None else f"is {self.seconds:.0f} s behind"
        return f"{self.member} {behind}"


def furthest(status: Sequence[Document], config: Mapping[int, Document]) -> Lag | None:
    """Returns the member that is the furthest behind, of those that hold data, the primary aside; None where
    there is none. `status`: what `replSetGetStatus` says of members; `config`: what `replSetGetConfig` does,
    by id.

    A delayed member is behind by what goes beyond its delay.
    """
    applied = [it["optimeDate"] for it in status if it["state"] == _PRIMARY]
    found = []
    for it in status:
        known = config.get(it["_id"], {})
        if it["state"] == _PRIMARY or known.get("arbiterOnly") or not applied:
            continue
        at: datetime | None = it.get("optimeDate") if it.get("health") else None
        delay = known.get("secondaryDelaySecs", known.get("slaveDelay", 0))
        behind = None if at is None else max(0.0, (max(applied) - at).total_seconds() - delay)
        found.append(Lag(it["name"], behind))
    return max(found, key=lambda it: float("inf") if it.seconds is None else it.seconds, default=None)


@dataclass
class Members:
    """Asks the server for the lag."""

    database: Database[Document]
    _config: dict[int, Document] = field(default_factory=dict)

    def lag(self) -> Lag | None:
        """Returns the largest lag of a secondary; None where there is no secondary. A primary that gives no
        answer, as during an election, counts as one that cannot be reached. Raises BucketwiseError where the
        user may not ask, or this is no replica set."""
        admin = self.database.client.admin
        try:
            status = admin.command("replSetGetStatus")["members"]
            if not {it["_id"] for it in status} <= self._config.keys():  # at first, or one has been added
                members = admin.command("replSetGetConfig")["config"]["members"]
                self._config = {it["_id"]: it for it in members}
        except ConnectionFailure:
            return Lag("the primary", None)
        except OperationFailure as error:
            said = str((error.details or {}).get("errmsg", error))
            if error.code == _UNAUTHORIZED:
                said = f"the user lacks {_NEEDS}"
            message = (
                f"the replication lag cannot be determined: {said}. Fix that, or remove throttle.max_lag"
            )
            raise BucketwiseError(message) from error
        return furthest(status, self._config)


def lag_findings(turn: Turn) -> list[Finding]:
    """Returns why the lag can't be told, or that it is too large, where the policy has a limit."""
    most = turn.policy.throttle.max_lag
    if most is None:
        return []
    try:
        lag = Members(turn.context.database).lag()
    except BucketwiseError as error:
        return [Finding("lag-unreadable", turn.policy.name, "throttle.max_lag", "error", str(error))]
    if lag is None or not lag.exceeds(most.total_seconds()):
        return []
    message = f"{lag}, and max_lag is {format_duration(most)}: runs wait until that has changed"
    return [Finding("lag", turn.policy.name, lag.member, "warning", message)]
