"""The page of the service: the state of each policy here and in MongoDB. A page never waits long."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymongo
from prometheus_client import CONTENT_TYPE_LATEST
from pymongo.database import Database

from bucketwise.config import VERSION
from bucketwise.config.policies import Policy
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.failures import failure_of
from bucketwise.jobs.core.ledger import RUNNING, Ledger, Run
from bucketwise.jobs.core.metrics import Metrics
from bucketwise.jobs.core.turn import Document
from bucketwise.jobs.output.page import instant, render
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.text import size
from bucketwise.jobs.schedule.scheduler import Service
from bucketwise.jobs.schedule.server import HEALTH, Pages, Response
from bucketwise.jobs.schedule.troubles import (
    HEIGHT,
    MOST_RUNS,
    WIDTH,
    PolicyState,
    chart,
    run_body,
    span,
    troubles,
    with_trends,
)
from bucketwise.jobs.status import failed

Body = dict[str, Any]

#: Seconds: a page that is asked for more often shows the same; it waits so long for what is new; and so long
#: MongoDB may take.
FRESH, WAIT, PATIENCE = 5.0, 2.0, 5.0
#: A policy is looked at again when a run has ended, and after this long.
_PLACE_LASTS = timedelta(minutes=5)
_RUNS_OF_EACH, _RUNS_SHOWN = 5, 20


@dataclass
class LastAnswer:
    """The last answer of MongoDB, and its time. `failing`: since when it has not answered, and why."""

    at: datetime | None = None
    latest: Mapping[str, tuple[Document | None, list[Run]]] = field(default_factory=dict)
    failed: Mapping[str, list[Body]] = field(default_factory=dict)
    audits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    proofs: Mapping[str, Mapping[str, Run]] = field(default_factory=dict)
    failing: tuple[datetime, str] | None = None


@dataclass
class Board:
    """The page of the service. `place` returns how far a policy is and never raises. `config`: the path
    given by --config. `audit_page`: what `audit --html` writes."""

    service: Service
    database: Database[Document]
    policies: Sequence[Policy]
    place: Callable[[Policy], Result]
    config: Path | None
    metrics_file: Path | None
    audit_page: Path | None = None
    _last_answer: LastAnswer = field(default_factory=LastAnswer)
    #: By policy: when it was looked at, after which run, and what was seen.
    _places: dict[str, tuple[datetime, str | None, Body]] = field(default_factory=dict)
    _look: threading.Thread | None = None
    _asked: float = -FRESH
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, *, stays: bool = False) -> Response:
        """Returns the page. `stays`: a browser does not load it anew by itself."""
        page, policy = self._page(stays=stays)
        return _html(page.encode(), policy, {} if stays else {"Refresh": str(EVERY)})

    def answer_of(self, policy: Policy) -> Response:
        """Returns the page of one policy. MongoDB is asked for its runs with one command."""
        self._refresh()
        last_answer, now, runs = self._last_answer, clock.current(), list[Run]()
        failing = last_answer.failing and last_answer.failing[1]
        if failing is None:
            try:
                with pymongo.timeout(WAIT):
                    runs = Ledger(self.database).last_runs(policy.identity, MOST_RUNS)
            except Exception as error:  # noqa: BLE001  # the page says so
                failing = failure_of(error, self.service.hosts).message
        body = {
            "failing": failing,
            "state": self._policy(policy, self._state_of(policy, last_answer), now),
            "runs": with_trends([run_body(it) for it in runs]),
            "chart": chart(runs),
            "has_audit": self.audit_page is not None,
        }
        report = Report("schedule", now, extra=body).plain()
        page, security = render("policy.html", _FILTERS, it=report, width=WIDTH, height=HEIGHT)
        return _html(page.encode(), security, {})

    def audit(self) -> Response:
        """Returns the page of the last audit, as it lies in its file."""
        assert self.audit_page is not None
        try:
            page = self.audit_page.read_bytes()
        except OSError as error:
            text = f"{self.audit_page}: {error.strerror}; `bucketwise audit --html` writes it\n"
            return Response(text.encode(), status=HTTPStatus.NOT_FOUND)
        told = _POLICY.search(page)
        return _html(page, told[1].decode() if told else "default-src 'none'", {})

    def _page(self, *, stays: bool) -> tuple[str, str]:
        self._refresh()
        last_answer, now = self._last_answer, clock.current()
        seen = {it.name: self._state_of(it, last_answer) for it in self.policies}
        policies = [self._policy(it, seen[it.name], now) for it in self.policies]
        runs = sorted(
            (run for _, runs in last_answer.latest.values() for run in runs), key=lambda it: it.started
        )
        body = {
            "version": VERSION,
            "database": self.database.name,
            "hosts": self.service.hosts,
            "looked": last_answer.at,
            "failing": last_answer.failing
            and {"since": last_answer.failing[0], "why": last_answer.failing[1]},
            "alive": self.service.is_alive(),
            "states": sorted(
                policies, key=lambda it: [one["severity"] for one in it["troubles"]][:1] or ["z"]
            ),
            "runs": with_trends([run_body(it) for it in reversed(runs)])[:_RUNS_SHOWN],
            "stays": stays,
            "audited": self.metrics_file is not None,
            "has_audit": self.audit_page is not None,
        }
        return service_page(Report("schedule", now, extra=body).plain())

    def _refresh(self) -> None:
        """Asks MongoDB again, unless it was asked a moment ago. Only one thread asks at a time."""
        with self._lock:
            is_idle = self._look is None or not self._look.is_alive()
            if is_idle and clock.steady() - self._asked >= FRESH:
                self._asked = clock.steady()
                self._look = threading.Thread(target=self._ask_mongodb, name="page", daemon=True)
                self._look.start()
            look = self._look
        if look is not None and self._last_answer.failing is None:
            look.join(WAIT)

    def _ask_mongodb(self) -> None:
        names = [it.identity for it in self.policies]
        try:
            with pymongo.timeout(PATIENCE):
                latest = Ledger(self.database).latest(names, _RUNS_OF_EACH)
                repeats = failed(self.database, self.policies, self.config)
                proofs = Ledger(self.database).last_proofs(names)
            self._last_answer = LastAnswer(clock.current(), latest, repeats, self._audits(), proofs)
        except Exception as error:  # noqa: BLE001  # the page says so
            since = self._last_answer.failing[0] if self._last_answer.failing else clock.current()
            why = failure_of(error, self.service.hosts).message
            self._last_answer = replace(self._last_answer, failing=(since, why))
            return
        for policy in self.policies:
            self._look_at(
                policy, next((it.run for it in latest.get(policy.identity, (None, []))[1] if it.ended), None)
            )

    def _look_at(self, policy: Policy, last: str | None) -> None:
        """Looks up where a policy stands, unless that is known: it takes some commands."""
        known = self._places.get(policy.name)
        if known is None or known[1] != last or clock.current() - known[0] > _PLACE_LASTS:
            result = self.place(policy)
            body = result.body if result.error is None else {"error": result.error}
            self._places[policy.name] = clock.current(), last, body

    def _audits(self) -> Mapping[str, Mapping[str, float]]:
        """Returns what the last audits found, where they leave metrics."""
        metrics = Metrics()
        if self.metrics_file is not None and self.metrics_file.is_file():
            metrics.restore(self.metrics_file.read_text(encoding="utf-8"))
        return metrics.audits()

    def _state_of(self, policy: Policy, last_answer: LastAnswer) -> PolicyState:
        paused, runs = last_answer.latest.get(policy.identity, (None, []))
        place = self._places[policy.name][2] if policy.name in self._places else {}
        is_running = policy.name in self.service.running or any(it.outcome == RUNNING for it in runs)
        return PolicyState(
            paused,
            runs,
            place,
            last_answer.failed.get(policy.name, ()),
            last_answer.audits.get(policy.name, {}),
            self.service.ended.get(policy.name),
            is_running,
            last_answer.proofs.get(policy.identity, {}),
        )

    def _policy(self, policy: Policy, seen: PolicyState, now: datetime) -> Body:
        hand = self.service.running.get(policy.name)
        left = (_expired_left(it) for it in seen.runs if it.ended)
        elsewhere = next((it for it in seen.runs if it.outcome == RUNNING), None)
        place, audit = seen.place, seen.last_audit
        in_hand: Body | None = None
        if hand is not None:
            in_hand = {"verb": hand.task.verb, "since": hand.since, "progress": hand.progress.state()}
        elif elsewhere is not None:
            in_hand = {"verb": elsewhere.verb, "since": elsewhere.started, "progress": None}
        return {
            "policy": policy.name,
            "troubles": [it._asdict() for it in troubles(policy, seen, now, self.config)],
            "paused": seen.paused is not None,
            "in_hand": in_hand,
            "rolled_up_through": place.get("rolled_up_through"),
            "archived_through": place.get("archived_through"),
            "lags": [place.get(it) for it in ("rollup_lag_seconds", "archive_lag_seconds")],
            "sizes": [place.get(it) for it in _SIZES],
            "has_sizes": place.get(_SIZES[0]) is not None,
            "waiting": next((it for it in left if it is not None), None),
            "schedule": policy.schedule,
            "next": self.service.next_of(policy.name),
            "last": run_body(seen.runs[0]) if seen.runs else None,
            "audit": {"errors": audit.get("error", 0), "warnings": audit.get("warning", 0)}
            if audit
            else None,
        }


#: The page that a browser does not load anew by itself, as who reads it with a screen reader may want.
STILL = "/still"

#: The page that the last audit wrote.
AUDIT = "/audit"

#: The content security policy of a page, in the page itself: no script, and no style but its own.
_POLICY = re.compile(rb'<meta http-equiv="Content-Security-Policy" content="(default-src [^"]{1,300})"')


def _html(page: bytes, policy: str, headers: Mapping[str, str]) -> Response:
    """Returns a page that nothing may frame."""
    security = {"Content-Security-Policy": f"{html.unescape(policy)}; frame-ancestors 'none'"}
    return Response(page, "text/html; charset=utf-8", headers={**security, **headers})


def pages(board: Board, metrics: Metrics) -> Pages:
    """Returns the pages that the service serves."""

    def health() -> Response:
        if board.service.is_alive():
            return Response(b"ok\n")
        return Response(b"the scheduler stands still\n", status=HTTPStatus.SERVICE_UNAVAILABLE)

    return {
        "/": board.answer,
        **{f"/policy/{quote(it.name)}": partial(board.answer_of, it) for it in board.policies},
        **({AUDIT: board.audit} if board.audit_page else {}),
        STILL: partial(board.answer, stays=True),
        "/metrics": lambda: Response(metrics.text(), CONTENT_TYPE_LATEST),
        HEALTH: health,
    }


def _expired_left(run: Run) -> int | None:
    """Returns how many expired buckets a run of the archive left in the source."""
    counts = run.counts.get("archive", run.counts)
    left = counts.get("left") if isinstance(counts, Mapping) else None
    return left if isinstance(left, int) else None


_SIZES = ("live_bytes", "index_bytes", "summary_bytes", "store_bytes", "removed_bytes")
#: Seconds.
EVERY = 10


def service_page(state: dict[str, Any]) -> tuple[str, str]:
    """Returns the page of the service, and its content security policy."""
    broken = [it for it in state["states"] if any(one["severity"] == "error" for one in it["troubles"])]
    return render(
        "service.html",
        _FILTERS,
        it=state,
        broken=broken,
        every=EVERY,
    )


def took(seconds: float | None) -> str:
    """Returns how long a run took as text."""
    if seconds is None:
        return "–"
    return f"{seconds:.1f} s" if seconds < 100 else span(seconds)


_FILTERS: dict[str, Callable[..., Any]] = {"span": span, "instant": instant, "size": size, "took": took}
