"""Checks that a secondary can ever be within the lag that a run waits for."""

from __future__ import annotations

from datetime import timedelta

from config.problems import Fault, Key, Report
from config.tables import Throttle

#: MongoDB tells the times of members in whole seconds.
_LEAST_LAG = timedelta(seconds=1)


def check_throttle(throttle: Throttle, at: Key, report: Report) -> None:
    """Reports a `max_lag` shorter than secondaries normally are behind. `at`: the key of the table."""
    if throttle.max_lag is not None and throttle.max_lag < _LEAST_LAG:
        fault = Fault("replication lag is rarely that low", 'write "1s" or more, such as "10s", or "forever"')
        report.add((*at, "max_lag"), fault)
