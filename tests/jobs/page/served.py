"""The page of a service in this process, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from pymongo.database import Database

from bucketwise.config.cron import parse_cron
from bucketwise.config.load import load
from bucketwise.config.policies import Policy
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.ledger import Ledger
from bucketwise.jobs.core.metrics import Metrics
from bucketwise.jobs.core.runner import Runner
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.core.turn import RunOptions
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.run.verb import RUN
from bucketwise.jobs.schedule.board import Board, pages
from bucketwise.jobs.schedule.scheduler import Service, Task
from bucketwise.jobs.schedule.server import Hosts, served
from bucketwise.jobs.status import PLACE
from tests.jobs.place import Place

Document = dict[str, Any]


@dataclass
class Served:
    """`board` answers on `port`."""

    board: Board
    port: int

    def ask(self, path: str = "/", method: str = "GET") -> tuple[HTTPResponse, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request(method, path)
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return reply, text

    def page(self) -> str:
        """As it is when MongoDB has been asked anew, and all has been looked at."""
        self.board._asked = -1e9
        self.ask()
        if self.board._look is not None:
            self.board._look.join(60)
        reply, text = self.ask()
        assert reply.status == 200
        return text


def policies_of(place: Place) -> list[Policy]:
    return list(load(place.config, {"MONGODB_URI": place.uri}).policies.values())


@contextmanager
def serving(database: Database[Document], policies: list[Policy], **board: Any) -> Iterator[Served]:
    """A service that does not run; its page is served."""
    stop = Stop()

    def runner_at(now: datetime) -> Runner:
        return Runner("run", RUN, database, None, now, stop, ProgressDisplay(quiet=True))

    def look(policy: Policy) -> Result:
        dry = RunOptions(dry_run=True)
        now = clock.current()
        return Runner("status", [PLACE], database, None, now, stop, ProgressDisplay(quiet=True), dry).run_one(
            policy
        )

    tasks = [Task(it, parse_cron(it.schedule), runner_at, lambda _: None) for it in policies if it.schedule]
    service = Service(tasks, Ledger(database), stop, "db1:27017")
    given = {"config": None, "metrics_file": None, **board}
    it = Board(service, database, policies, look, **given)
    with served(pages(it, Metrics()), "127.0.0.1", 0, Hosts.of("127.0.0.1", ())) as port:
        yield Served(it, port)
