"""How far the secondaries of the replica set are behind its primary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from pymongo.database import Database
from pymongo.errors import ConnectionFailure, OperationFailure

from bucketwise.archivers.proof.findings import Finding
from bucketwise.config.durations import format_duration
from bucketwise.config.errors import BucketwiseError
from bucketwise.jobs.running.turn import Turn

Document = dict[str, Any]
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
