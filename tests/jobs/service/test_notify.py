"""Whoever is to be told how runs end is told; a receiver that is down, slow or wrong changes nothing else."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.config.cron import missed_since
from bucketwise.jobs.core.lease import Lease
from bucketwise.jobs.core.ledger import COLLECTION as RUNS
from tests.conftest import free_port
from tests.jobs.command import Ran, started
from tests.jobs.place import NOW, Place
from tests.jobs.service.test_schedule import Watched
from tests.jobs.states import after

TOKEN = "Zq7Path"
USER = "bob:Zq7%40Word"


@dataclass
class Receiver:
    """A real HTTP server. The first part of a path says what it does; it keeps all that came."""

    port: int = 0
    got: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    let_go: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str, user: str = "") -> str:
        return f"http://{user}127.0.0.1:{self.port}/{path}/{TOKEN}?key={TOKEN}"

    @property
    def pings(self) -> list[str]:
        return [path for method, path in self.got if method == "GET"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    it = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            what = self.path.split("/")[1]
            it.got.append((self.command, what))
            it.headers.append(dict(self.headers))
            if self.command == "POST":
                it.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if what == "hang":
                it.let_go.wait(60)
            answers = {"broken": 500, "moved": 302, "gone": 404}
            is_better = what == "flaky" and it.got.count((self.command, what)) > 1
            self.send_response(503 if what == "flaky" and not is_better else answers.get(what, 200))
            self.send_header("Location", it.url("elsewhere"))
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            """Tests look at `got`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    it.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield it
    it.let_go.set()
    server.shutdown()
    server.server_close()


def notified(place: Place, **keys: Any) -> None:
    """The policy file, with this table."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    text = place.config.read_text().partition("[notify]")[0]
    place.config.write_text("\n".join([text, "[notify]", *lines, ""]))


def pinged(place: Place, receiver: Receiver) -> None:
    urls = {key: receiver.url(key) for key in ("ping_start", "ping_success", "ping_fail")}
    notified(place, url=receiver.url("hook"), **urls)


def tells_no_secret(ran: Ran) -> bool:
    return "Zq7" not in ran.out + ran.err and "Traceback" not in ran.err


def fail(place: Place) -> None:
    """A view where summaries go."""
    place.database.command("create", "ticks_daily", viewOn="iot", pipeline=[])


@pytest.mark.proof
@after("run -p ticks")
def test_a_run_that_is_done_pings(place: Place, receiver: Receiver) -> None:
    pinged(place, receiver)
    for verb in ("run", "rollup", "archive", "compact", "audit", "verify", "drill"):
        ran = place(verb, "-p", "ticks")
        assert (ran.code, tells_no_secret(ran)) == (0, True)
        assert receiver.got == [("GET", "ping_start"), ("GET", "ping_success")], verb
        receiver.got.clear()
    assert receiver.headers[0]["User-Agent"].startswith("bucketwise/")


@pytest.mark.proof
def test_what_changes_nothing_pings_nobody(place: Place, receiver: Receiver) -> None:
    pinged(place, receiver)
    for verb in ("plan", "status", "check", "archive --dry-run", "compact --dry-run", "unpin"):
        assert place(*verb.split(), "-p", "ticks").code == 0
        assert receiver.got == [], verb


def test_a_run_that_failed_is_told_with_its_report(place: Place, receiver: Receiver) -> None:
    fail(place)
    pinged(place, receiver)
    ran = place("run", "-p", "ticks", "--json")
    assert ran.code == 1
    assert receiver.pings == ["ping_start", "ping_fail"]
    (body,) = receiver.bodies
    assert body == {**ran.json, "events": ["failed"]}
    assert ("POST", "hook") in receiver.got


@pytest.mark.proof
def test_a_run_that_halted_and_an_audit_that_found_something(place: Place, receiver: Receiver) -> None:
    pinged(place, receiver)
    assert place("audit", "-p", "ticks").code == 4  # nothing is rolled up yet
    notified(place)
    place("run", "-p", "ticks")
    for part in place.folder.rglob("data/*/*.parquet"):
        part.write_bytes(b"x")
    pinged(place, receiver)
    assert place("verify", "-p", "ticks").code == 5
    assert [it["events"] for it in receiver.bodies] == [["failed"], ["halted"]]
    assert receiver.pings == ["ping_start", "ping_fail"] * 2
    notified(place, url=receiver.url("hook"), on=["failed"])
    assert place("verify", "-p", "ticks").code == 5
    assert len(receiver.bodies) == 2


def test_bad_usage_and_no_server_are_failures_too(place: Place, receiver: Receiver) -> None:
    pinged(place, receiver)
    assert place("rollup", "--since", "x").code == 2
    text = place.config.read_text()
    place.config.write_text(
        text.replace("${MONGODB_URI}", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50")
    )
    assert place("run").code == 1
    assert [it["exit_code"] for it in receiver.bodies] == [2, 1]
    assert receiver.pings == ["ping_start", "ping_fail"] * 2


def test_held_elsewhere_is_neither_good_nor_bad(place: Place, receiver: Receiver) -> None:
    pinged(place, receiver)
    with Lease(place.database, "ticks"):
        assert place("run", "-p", "ticks").code == 11
    assert receiver.got == [("GET", "ping_start")]


def test_a_paused_policy_is_no_failure(place: Place, receiver: Receiver) -> None:
    place("pause", "--reason", "why")
    pinged(place, receiver)
    assert place("run").code == 0
    assert receiver.got == [("GET", "ping_start"), ("GET", "ping_success")]


@pytest.mark.proof
def test_a_late_run_is_told(place: Place, receiver: Receiver) -> None:
    place.config.write_text(place.config.read_text().replace("0 0 1 1 *", "*/10 * * * *"))
    notified(place, url=receiver.url("hook"))
    assert place("run", "-p", "ticks", now=None).code == 0  # the first of all
    assert place("run", "-p", "ticks", now=None).code == 0
    assert receiver.got == []
    earlier = datetime.now(UTC) - timedelta(hours=2)
    place.database[RUNS].update_many({}, {"$set": {"started": earlier}})
    ran = place("run", "-p", "ticks", "--json", now=None)
    assert ran.code == 0
    (body,) = receiver.bodies
    assert body["events"] == ["late"]
    since = datetime.fromisoformat(body["policies"][0]["late_since"])
    assert timedelta(0) < since - earlier <= timedelta(minutes=10)
    assert ran.policy("ticks")["late_since"] == body["policies"][0]["late_since"]
    assert place("run", "-p", "ticks", now=None).code == 0
    assert len(receiver.bodies) == 1


minutes = st.integers(0, 60 * 24 * 400).map(
    lambda it: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=it)
)


#: Whether each fires at a minute.
FIRES: dict[str, Callable[[datetime], bool]] = {
    "*/7 * * * *": lambda at: at.minute % 7 == 0,
    "15 * * * *": lambda at: at.minute == 15,
    "0 4 * * *": lambda at: (at.hour, at.minute) == (4, 0),
    "0 0 * * 1": lambda at: (at.weekday(), at.hour, at.minute) == (0, 0, 0),
}


@given(st.sampled_from(sorted(FIRES)), minutes, st.integers(0, 15_000))
def test_late_is_when_a_second_firing_has_passed(text: str, completed: datetime, later: int) -> None:
    now, seconds = completed + timedelta(minutes=later), timedelta(seconds=7)
    ahead = (completed + timedelta(minutes=it) for it in range(1, later + 1))
    fired = list(islice(filter(FIRES[text], ahead), 2))
    assert missed_since(text, completed + seconds, now) == (fired[0] if len(fired) > 1 else None)
    assert missed_since(text, None, now) is None


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("path", "requests", "complaint"),
    [
        ("broken", 2, "it answered 500"),
        ("gone", 1, "it answered 404"),
        ("moved", 1, "it answered 302"),
        ("flaky", 2, None),
        ("down", 0, "Connection refused"),
    ],
)
def test_what_a_receiver_answers_changes_nothing_else(
    place: Place, receiver: Receiver, path: str, requests: int, complaint: str | None
) -> None:
    fail(place)
    url = receiver.url(path, f"{USER}@")
    if path == "down":
        url = url.replace(f":{receiver.port}", f":{free_port()}")
    notified(place, url=url, ping_fail=url)
    ran = place("run", "-p", "ticks")
    assert (ran.code, tells_no_secret(ran)) == (1, True)
    assert receiver.got.count(("POST", path)) == receiver.got.count(("GET", path)) == requests
    assert {path for _, path in receiver.got} <= {path}  # no redirect is followed
    told = base64.b64encode(b"bob:Zq7@Word").decode()
    assert {it["Authorization"] for it in receiver.headers} <= {f"Basic {told}"}
    lines = [line for line in ran.err.splitlines() if "notify." in line]
    assert len(lines) == (0 if complaint is None else 2)
    for line in lines:
        assert line.startswith(
            ("bucketwise: notify.url: http://127.", "bucketwise: notify.ping_fail: http://127.")
        )
        assert str(complaint) in line


def test_one_that_never_answers_is_told(place: Place, receiver: Receiver) -> None:
    notified(place, ping_start=receiver.url("hang"), ping_success=receiver.url("hang"))
    soon = ("tests.jobs.altered", {"values": {"bucketwise.jobs.core.notify._SECONDS": 1.0}})
    given = ("run", "-q", "-p", "ticks", "--now", NOW)
    ran = place.command.meddled(soon, *given, cwd=place.folder, MONGODB_URI=place.uri)
    assert (ran.code, ran.err.count("no answer within 1 seconds"), "Zq7" in ran.err) == (0, 2, False)
    assert place.database.ticks.count_documents({}) == 0


@pytest.mark.proof
def test_one_that_never_answers_holds_no_data_up(place: Place, receiver: Receiver) -> None:
    notified(place, ping_start=receiver.url("hang"), ping_success=receiver.url("hang"))
    with started("run", "-p", "ticks", cwd=place.folder, MONGODB_URI=place.uri) as process:
        assert process.stdout is not None
        assert "Roll-up" in process.stdout.readline()  # all is done and told before it is given up
        assert place.database.ticks.count_documents({}) == 0
        assert place.database.bucketwise_lease.find_one({"_id": "ticks", "holder": None}) is not None
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    lines = [line for line in errors.splitlines() if "notify." in line]
    assert len(lines) == 2
    assert all("no answer within 5 seconds" in line for line in lines)
    assert "Zq7" not in errors


@pytest.mark.proof
def test_each_turn_of_the_service_is_told(place: Place, receiver: Receiver) -> None:
    """And it goes on past a receiver that is down."""
    fail(place)
    urls = {key: receiver.url(key) for key in ("ping_start", "ping_fail")}
    notified(place, url=f"http://127.0.0.1:{free_port()}/{TOKEN}", **urls)
    with started("schedule", "-p", "ticks", cwd=place.folder, MONGODB_URI=place.uri) as process:
        service = Watched(process)
        service.until("run failed")
        assert service.end() == 0
    assert receiver.pings == ["ping_start", "ping_fail"]
    (line,) = [it for it in service.lines if "notify.url" in it]
    assert "Connection refused" in line
    assert "Zq7" not in "".join(service.lines)


@pytest.mark.proof
def test_what_is_not_asked_for_costs_no_question(place: Place, receiver: Receiver) -> None:
    """The ledger is asked whether a run is late only where somebody wants to know."""
    notified(place, ping_success=receiver.url("ok"))
    place("run", "-p", "ticks", now=None)
    place.database[RUNS].update_many({}, {"$set": {"started": datetime(2018, 1, 1, tzinfo=UTC)}})
    assert "late_since" not in place("run", "-p", "ticks", "--json", now=None).policy("ticks")
