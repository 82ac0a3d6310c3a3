"""What every act of the demo works with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast

import bson
import numpy as np
from numpy.typing import NDArray
from pymongo.database import Database

from buckets.bson.raw import Docs
from config.policies import Policy
from jobs.demo import oracle
from jobs.demo.checks import Checks
from jobs.demo.invent import Invented
from jobs.demo.place import DemoCall, Place
from jobs.demo.show import Show
from jobs.demo.sizes import Size
from jobs.output.report import Report, Result

Document = dict[str, Any]


def measurement(document: bytes) -> bytes:
    """With its fields by name: MongoDB gives them in any order, and another one next time."""
    return bson.encode(dict(sorted(bson.decode(document).items())))


@dataclass
class Stage:
    call: DemoCall
    place: Place
    database: Database[Document]
    made: dict[str, Invented]  # by policy
    show: Show
    checks: Checks
    before: dict[str, Size] = field(default_factory=dict)  # by policy: sizes after the load
    results: list[Result] = field(default_factory=list)  # of the first run, by policy
    sizes: list[Document] = field(default_factory=list)  # for --json, by policy

    @property
    def now(self) -> datetime:
        return self.call.now

    @property
    def policies(self) -> list[Policy]:
        return self.call.policies

    def command(self, name: str, *policies: str) -> DemoCall:
        """The call that `bucketwise NAME --policy …` would be."""
        return replace(self.call, command=name, names=policies)

    def expired(self, policy: Policy) -> NDArray[np.bool_]:
        """Which of the policy's buckets must be in the archive now."""
        assert policy.archive is not None and policy.archive.after is not None
        return oracle.expired(self.made[policy.name], self.now - policy.archive.after)

    def collections(self, policy: Policy) -> list[str]:
        """The policy's source: its collection, and that of its overflow."""
        return [policy.collection, *([policy.overflow.collection] if policy.overflow else [])]

    def documents(self, collection: str) -> list[bytes]:
        """Every document of a collection, as the server holds it. Measurements of a native time-series
        collection come as `measurement` gives them."""
        batches = self.database[collection].find_raw_batches({})
        found = [document for batch in batches for document in Docs.split(cast(bytes, batch))]
        return [measurement(it) for it in found] if self._is_native(collection) else found

    def _is_native(self, collection: str) -> bool:
        query = {"name": collection, "type": "timeseries"}
        return next(iter(self.database.list_collections(filter=query)), None) is not None

    def succeeded(self, report: Report) -> None:
        """Check that a command went well for every policy."""
        for result in report.results:
            self.checks.holds(
                f"{report.command}, policy {result.policy}: exit code {result.exit_code}, {result.error}",
                result.exit_code == 0,
            )
        self.call.stop.check()
