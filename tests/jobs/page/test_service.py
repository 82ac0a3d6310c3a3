"""The page of the service: what it says, and that nobody who asks for it can hold anything up."""

from __future__ import annotations

import html
import itertools
import re
import shlex
import socket
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

import pytest
from pymongo import MongoClient
from selenium.webdriver.common.keys import Keys

from bucketwise.config.tables import Throttle
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.ledger import COLLECTION, Run
from bucketwise.jobs.core.metrics import Metrics
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.output.text import size
from bucketwise.jobs.schedule.board import EVERY, service_page
from bucketwise.jobs.schedule.scheduler import TaskRun
from bucketwise.jobs.schedule.troubles import PolicyState, chart, troubles, with_trends
from tests.jobs.counting import Counts, ticks_policy
from tests.jobs.page.browser import Browser
from tests.jobs.page.reports import HOSTILE, text_of
from tests.jobs.page.served import Served, policies_of, serving
from tests.jobs.page.test_in_a_browser import _BEYOND, _OVERLAPS, _contrast, _luminance
from tests.jobs.place import START, Place
from tests.jobs.processes import wait_until
from tests.jobs.running.test_failed import broken, commands
from tests.jobs.service.test_schedule import service
from tests.jobs.states import after

Document = dict[str, Any]
NOW = datetime(2018, 9, 1, 12, 30, tzinfo=UTC)
DAY = 86_400.0


@pytest.fixture
def it(place: Place) -> Iterator[Served]:
    with serving(place.database, policies_of(place)) as it:
        yield it


@pytest.fixture(scope="module")
def idle(client: MongoClient[Document]) -> Iterator[Served]:
    """Nothing has been run, and nothing is there."""
    policies = [ticks_policy(to="offline").model_copy(update={"schedule": "0 0 1 1 *"})]
    with serving(client["test_idle"], policies) as it:
        yield it


def run_now(place: Place) -> None:
    for policy in ("ticks", "iot"):
        assert place("run", "-p", policy, now=None).code == 0


def cells(page: str, table: str, policy: str) -> list[str]:
    """The row of a policy in a table."""
    (body,) = re.findall(f'<section aria-labelledby="{table}">(.*?)</section>', page, re.DOTALL)
    rows = re.findall("<tr><th scope=.row.*?</tr>", body, re.DOTALL)
    found = [[text_of(it) for it in re.split("<t[hd]", row)[1:]] for row in rows]
    return next(row for row in ([it.partition("> ")[2] for it in row] for row in found) if row[0] == policy)


def test_before_any_run(it: Served) -> None:
    page = it.page()
    assert "No errors, but 2 of 2 policies have warnings" in page
    assert "the roll-up is 3" in page and "never" in cells_text(page, "ticks")


def cells_text(page: str, policy: str) -> str:
    row = re.findall(f"<tr><th scope=.row. class=.code.><a[^>]*>{policy}</a></th>.*?</tr>", page, re.DOTALL)[
        0
    ]
    return text_of(row)


@after(run_now)
def test_where_each_policy_stands(place: Place, it: Served) -> None:
    page = it.page()
    assert "All is well" in page and "What needs a look" not in page
    status = place("status", "--json", now=None).json["policies"]
    for policy, found in zip(("ticks", "iot"), status, strict=True):
        told = text_of(page.partition('id="policies"')[2].partition('id="runs"')[0])
        for key in ("rolled_up_through", "archived_through"):
            assert found[key][:19].replace("T", " ") in told, (policy, key)
    assert page.count(">well</td>") == 2
    runs = text_of(page.partition('id="runs"')[2])
    assert runs.count("run") >= 2 and runs.count("done") == 2


@pytest.mark.proof
def test_what_failed_and_the_command_for_it(place: Place, it: Served) -> None:
    broken(place, "run", "-p", "ticks")
    place("run", "-p", "iot", now=None)
    page = it.page()
    top = text_of(page.partition('id="policies"')[0])
    assert "1 of 2 policies in trouble" in top
    (command,) = commands(place)
    assert f"<pre>{command}</pre>" in page and "ticks_daily is a view" in top
    assert place(*shlex.split(command)[1:], now=None).code == 0
    assert "All is well" in it.page()


@after(run_now)
def test_a_pause_and_how_it_ends(place: Place, it: Served) -> None:
    place("pause", "-p", "ticks", "--reason", HOSTILE)
    page = it.page()
    assert "<pre>bucketwise resume --policy ticks</pre>" in page and ">paused</td>" in page
    assert HOSTILE in text_of(page) or HOSTILE in html.unescape(page)
    assert "<script" not in page
    place("resume", "-p", "ticks")
    assert "All is well" in it.page()


@after(run_now)
def test_a_run_in_hand_here_and_elsewhere(place: Place, it: Served) -> None:
    progress, (task, *_) = ProgressDisplay(quiet=True), it.board.service.tasks
    it.board.service.running["ticks"] = TaskRun(task, NOW, progress)
    with progress.step("ticks: rollup"):
        progress("rolled-up readings", 3600, 0.5)
        page = it.page()
    assert "ticks: rollup: 3,600 rolled-up readings" in page
    assert page.count(">at work</td>") == 1
    del it.board.service.running["ticks"]
    place.database[COLLECTION].update_one(
        {"policy": "iot"}, {"$set": {"outcome": "running", "ended": None, "exit_code": None, "host": {}}}
    )
    entry = place.database[COLLECTION].find_one({"policy": "iot"}) or {}
    held = {
        "holder": entry["holder"],
        "fence": entry["fence"],
        "expires_at": datetime(2100, 1, 1, tzinfo=UTC),
    }
    place.database.bucketwise_lease.update_one({"_id": "iot"}, {"$set": held})
    page = it.page()
    assert "elsewhere: the process that runs it knows" in page and page.count(">at work</td>") == 1


@after(run_now)
def test_findings_of_the_last_audit(place: Place) -> None:
    file = place.folder / "bucketwise.prom"
    findings = [{"severity": it} for it in ("error", "warning", "warning")]
    metrics = Metrics()
    metrics.record("audit", Result("ticks", 4, {"findings": findings}))
    file.write_bytes(metrics.text())
    with serving(place.database, policies_of(place), metrics_file=file, config=place.config) as it:
        page = it.page()
    assert "1 error, 2 warnings" in page
    assert f"<pre>bucketwise audit --config {place.config} --policy ticks</pre>" in page
    with serving(place.database, policies_of(place), metrics_file=place.folder / "none.prom") as it:
        assert "All is well" in it.page()


def interrupted(why: str | None) -> Document:
    """As `status --failed` has it."""
    told = {"verb": "run", "started": NOW, "outcome": "interrupted", "error": why}
    return {**told, "command": "bucketwise run --policy ticks"}


def proofs(errors: int = 0, **days: int) -> dict[str, Run]:
    """The last audit and drill, so many days ago."""
    times = {verb: NOW - timedelta(days=it) for verb, it in days.items()}
    counts = {"errors": errors, "warnings": 0}
    return {
        verb: Run("r", verb, "ticks", at, at, 0, "done", counts, None, "1", 1, at)
        for verb, at in times.items()
    }


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, []),
        ({"place": {"archive_lag_seconds": 2 * DAY}}, []),
        ({"place": {"archive_lag_seconds": 3 * DAY}}, [("warning", "the archive is 3 d behind", "plan")]),
        ({"place": {"rollup_lag_seconds": 2 * DAY}}, [("warning", "the roll-up is 2 d behind", "plan")]),
        ({"place": {"rollup_lag_seconds": 2 * DAY}, "is_running": True}, []),
        ({"place": {"error": "away"}}, [("error", "away", "plan")]),
        ({"audit": {"error": 0.0, "warning": 2.0, "at": NOW.timestamp()}}, []),
        ({"proofs": proofs(audit=8, drill=35)}, []),
        (
            {"proofs": proofs(audit=9, drill=36)},
            [
                ("warning", "the last audit was 9 d ago", "audit"),
                ("warning", "no day has been proven restorable for 36 d", "drill"),
            ],
        ),
        (
            {"proofs": proofs(audit=1, errors=2), "audit": {"error": 0.0, "at": 1e9}},
            [("error", "the audit of 2018-08-31T12:30:00Z has 2 errors", "audit")],
        ),
        (
            {"ended": (NOW, Result("ticks", 1, error="why"))},
            [("error", "the run due at 2018-09-01T12:30:00Z: failed: why", "run")],
        ),
        ({"ended": (NOW, Result("ticks", 130, error="why"))}, []),
        (
            {"failed": [interrupted("window over")]},
            [("warning", "run of 2018-09-01T12:30:00Z: interrupted: window over", "run")],
        ),
        (
            {"failed": [interrupted(None)]},
            [("error", "run of 2018-09-01T12:30:00Z: interrupted: it never finished", "run")],
        ),
        ({"ended": (NOW, Result("ticks", 11, error="why"))}, []),
    ],
)
def test_what_is_trouble(told: Document, expected: list[tuple[str, str, str]]) -> None:
    found = troubles(ticks_policy(to="offline"), PolicyState(**told), NOW, None)
    assert [(it.severity, it.text, shlex.split(it.command or "")[1]) for it in found] == expected


@pytest.mark.parametrize(("hours", "is_late"), [(0, False), (1, False), (2, True), (40, True)])
@pytest.mark.parametrize("is_running", [False, True])
def test_a_run_is_late_when_two_firings_have_passed(hours: int, is_late: bool, is_running: bool) -> None:
    done = Run("r", "run", "ticks", NOW, NOW, 0, "done", {}, None, "0.1.0", 1, NOW)
    policy = ticks_policy(to="offline").model_copy(update={"schedule": "0 * * * *"})
    later = NOW.replace(minute=29) + timedelta(hours=hours)
    found = troubles(policy, PolicyState(runs=[done], is_running=is_running), later, None)
    assert [it.text for it in found] == [
        "late: no run was completed since it was due at 2018-09-01T13:00:00Z"
    ] * (is_late and not is_running)


@pytest.mark.parametrize(
    ("begun", "now", "expected"),
    [
        ("01T04:30", "01T23:00", []),  # all firings since are due at 1
        ("01T04:30", "02T01:30", []),
        (
            "01T04:30",
            "02T02:00",
            [("error", "late: no run was completed since it was due at 2018-09-02T01:00:00Z")],
        ),
        (
            "01T04:30",
            "02T05:00",
            [
                (
                    "warning",
                    "waits for its window, which opens at 2018-09-03T01:00:00Z: "
                    "no run was completed since it was due at 2018-09-02T01:00:00Z",
                )
            ],
        ),
    ],
)
def test_a_run_is_due_when_its_window_opens(begun: str, now: str, expected: list[tuple[str, str]]) -> None:
    at, later = (datetime.fromisoformat(f"2018-09-{it}:00Z") for it in (begun, now))
    done = Run("r", "run", "ticks", at, at, 0, "done", {}, None, "0.1.0", 1, at)
    said = {"schedule": "0 * * * *", "throttle": Throttle(window="01:00-05:00")}
    policy = ticks_policy(to="offline").model_copy(update=said)
    found = troubles(policy, PolicyState(runs=[done]), later, None)
    assert [(it.severity, it.text) for it in found] == expected
    assert all(("--no-throttle" in str(it.command)) == (it.severity == "warning") for it in found)


def test_only_what_is_there_can_be_read(idle: Served) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"):
        for path in ("/", "/metrics", "/else"):
            reply, text = idle.ask(path, method)
            assert (reply.status, reply.headers["Allow"], text) == (405, "GET, HEAD", "only GET\n")
    for path in ("/else", "/../etc/passwd", "/index.html"):
        reply, text = idle.ask(path)
        assert (reply.status, text) == (404, "there are /, /still, /metrics, /healthz\n")
    for path in ("/", "/?x=<script>", "/metrics", "/healthz"):
        reply, text = idle.ask(path)
        assert reply.status in (200, 503) and "<script>" not in text
        reply, text = idle.ask(path, "HEAD")
        assert int(reply.headers["Content-Length"]) > 0 and text == ""


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ("GET / HTTP/1.1\r\nHost: evil.example", 403),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example:PORT", 403),
        ("HEAD /metrics HTTP/1.0\r\nHost: evil.example", 403),
        ("GET /healthz HTTP/1.1\r\nHost: evil.example", 200),  # it says no more than that
        ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:PORT", 200),
        ("GET /metrics HTTP/1.1", 403),
        ("GET /metrics HTTP/1.0", 200),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example", 403),
        ("GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost", 404),
    ],
)
def test_it_answers_only_under_its_own_name(idle: Served, request_: str, status: int) -> None:
    with socket.create_connection(("127.0.0.1", idle.port), 60) as one:
        one.sendall(f"{request_.replace('PORT', str(idle.port))}\r\n\r\n".encode())
        reply = one.makefile("rb").read().decode()
    assert reply.split()[1] == str(status)
    assert ("--allow-host" in reply) == (status == 403 and "HEAD" not in request_)


def test_its_headers_forbid_what_it_does_not_need(idle: Served) -> None:
    reply, page = idle.ask()
    policy = reply.headers["Content-Security-Policy"]
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-\S{44}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'",
        policy,
    )
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Cache-Control"] == "no-store"
    assert "Python" not in str(reply.headers)
    assert reply.headers["Refresh"] == str(EVERY) and 'href="still"' in page
    still, page = idle.ask("/still")
    assert still.status == 200 and "Refresh" not in still.headers and 'href="./"' in page


@pytest.mark.proof
@pytest.mark.parametrize("many", [20, pytest.param(100, marks=pytest.mark.proof)])
@after(run_now)
def test_many_policies_take_few_commands(
    place: Place, mongodb_uri: str, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long their history is."""
    entry = place.database[COLLECTION].find_one({"policy": "iot"}) or {}
    assert entry.pop("_id")
    old = [{**entry, "fence": -n, "started": NOW - timedelta(minutes=n)} for n in range(3000)]
    place.database[COLLECTION].insert_many(old)
    one, _ = policies_of(place)
    policies = [one.model_copy(update={"name": f"p{n}"}) for n in range(many - 2)] + policies_of(place)
    counts = Counts()
    with MongoClient[Document](mongodb_uri, tz_aware=True, event_listeners=[counts]) as client:
        database = client[place.database.name]
        with serving(database, policies) as it:
            it.page()
            assert counts.commands.total() <= many * 17 + 4

            def looked_at() -> int:
                status = place.database.command("serverStatus")["metrics"]["queryExecutor"]
                return int(status["scannedObjects"] + status["scanned"])

            counts.commands.clear()
            before = looked_at()
            page = it.page()
            assert page.count('<th scope="row" class="code">p') == page.count('<a href="policy/p') == many - 2
            assert counts.commands == {"aggregate": 2, "find": 1}
            assert looked_at() - before < 5 * many
            counts.commands.clear()
            monkeypatch.setattr("bucketwise.jobs.schedule.board.FRESH", 1e6)
            for _ in range(20):
                it.ask()
            assert counts.commands.total() == 0
            place("run", "-p", "ticks", now=None)
            counts.commands.clear()
            it.page()
            assert 2 < counts.commands.total() <= 2 + 18


class Deaf:
    """Takes connections, and never answers."""

    def __enter__(self) -> str:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=100)
        return f"mongodb://me:hunter2@127.0.0.1:{self._socket.getsockname()[1]}/?directConnection=true"

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@after(run_now)
def test_a_server_that_does_not_answer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page comes all the same, with what is known and since when."""
    monkeypatch.setattr("bucketwise.jobs.schedule.board.WAIT", 0.1)
    monkeypatch.setattr("bucketwise.jobs.schedule.board.PATIENCE", 0.3)
    with (
        Deaf() as uri,
        MongoClient[Document](uri, tz_aware=True) as client,
        serving(place.database, policies_of(place)) as it,
    ):
        assert "All is well" in it.page()
        it.board.database = client[place.database.name]
        told = text_of(it.page())
        assert "MongoDB does not answer" in told and "Since 2" in told
        assert "What is below was so at 2" in told and "run: done" in told
        assert "hunter2" not in told
        since = told.partition("Since ")[2][:19]
        assert text_of(it.page()).partition("Since ")[2][:19] == since
        assert it.ask("/metrics")[0].status == 200
        it.board.database = place.database
        assert "All is well" in it.page()


def test_nothing_is_known_yet(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketwise.jobs.schedule.board.PATIENCE", 0.3)
    with (
        Deaf() as uri,
        MongoClient[Document](uri, tz_aware=True) as client,
        serving(client[place.database.name], policies_of(place)) as it,
    ):
        told = text_of(it.page())
        assert "MongoDB does not answer" in told and "Nothing is known yet." in told


def test_a_scheduler_that_stands_still(it: Served) -> None:
    it.board.service._beat -= 1000
    assert "The scheduler stands still" in it.page()
    assert it.ask("/healthz")[0].status == 503


def test_slow_clients_and_many_at_once(idle: Served) -> None:
    slow = [socket.create_connection(("127.0.0.1", idle.port)) for _ in range(30)]
    for one in slow:
        one.sendall(b"GET / HTTP/1.1\r\n")
    found: list[int] = []
    threads = [
        Thread(target=lambda path=path: found.append(idle.ask(path)[0].status))
        for path in ("/", "/metrics", "/healthz") * 8
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [200] * 24
    for one in slow:
        one.close()


def test_who_hangs_up_is_no_news(idle: Served, capfd: pytest.CaptureFixture[str]) -> None:
    for request in (b"", b"GET", b"\x00\xff\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 70_000):
        with socket.create_connection(("127.0.0.1", idle.port)) as one:
            one.sendall(request)
    assert idle.ask()[0].status == 200
    assert "Traceback" not in capfd.readouterr().err


def body_of(**more: Any) -> Document:
    """What a service tells, at its worst."""
    trouble = [{"severity": "error", "text": HOSTILE, "command": "x" * 300}]
    trouble += [{"severity": "warning", "text": "y" * 300, "command": "bucketwise plan --policy ticks"}]
    policy: Document = {
        "policy": "ticks",
        "troubles": [],
        "paused": False,
        "in_hand": None,
        "rolled_up_through": "2018-09-01T00:00:00Z",
        "archived_through": None,
        "lags": [0, 90_000.5],
        "waiting": 12_345,
        "schedule": "0 * * * *",
        "next": "2018-09-01T13:00:00.500Z",
        "sizes": [70_100_000.0, 4_300_000.0, 420_000_000.0, 4_100_000_000.0, None],
        "has_sizes": True,
        "last": None,
        "audit": {"errors": 1.0, "warnings": 2.0},
    }
    run: Document = {
        "policy": "ticks",
        "verb": "run",
        "started": "2018-09-01T12:00:00Z",
        "ended": None,
        "runs": 1200,
    }
    run |= {"took": 9.81, "trend": 1.5, "documents": 47_861, "removed": 31_200_000, "bytes": 4_100_000}
    runs = [{**run, "outcome": "done", "error": "", "good": True}]
    runs += [{**run, "outcome": "failed", "error": HOSTILE + "z" * 300, "good": False}]
    hand = {"verb": "run", "since": "2018-09-01T12:00:00Z", "progress": HOSTILE}
    return {
        "now": "2018-09-01T12:30:00Z",
        "version": "0.1.0",
        "database": HOSTILE,
        "hosts": "db1:27017",
        "looked": "2018-09-01T12:29:58.123Z",
        "failing": {"since": "2018-09-01T12:30:00Z", "why": HOSTILE},
        "alive": True,
        "states": [
            {**policy, "policy": "n" * 100, "troubles": trouble, "in_hand": hand, "last": runs[1]},
            {**policy, "paused": True, "troubles": trouble[1:], "last": runs[0]},
            {**policy, "audit": None, "schedule": None, "lags": [None, None]},
        ],
        "runs": runs,
        "stays": False,
        "audited": True,
        "has_audit": True,
        **more,
    }


@pytest.mark.proof
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_overlaps_and_the_page_is_as_wide_as_the_window(browser: Browser, width: int) -> None:
    browser.be(width=width)
    browser.show(service_page(body_of())[0])
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(_BEYOND) == []
    assert browser.ask(_OVERLAPS) == []
    assert browser.ask("document.querySelectorAll('script, img, iframe, object, link, form').length") == 0
    assert browser.ask("document.body.innerText").count(HOSTILE) == 6
    assert browser.complaints() == []


@pytest.mark.proof
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dark_and_light_can_be_read(browser: Browser, scheme: str) -> None:
    browser.be(width=390, scheme=scheme)
    browser.show(service_page(body_of())[0])
    paper = _luminance(browser.ask("getComputedStyle(document.documentElement).backgroundColor"))
    assert (paper > 0.9) == (scheme == "light")
    for css in ("body", "caption", "dt", ".error", ".warning", ".ok", "pre", "a", "thead th", "footer"):
        ink = _luminance(browser.ask(f"getComputedStyle(document.querySelector('{css}')).color"))
        assert _contrast(paper, ink) >= 4.5, css


@pytest.mark.proof
def test_keys_and_a_screen_reader_lead_through_it(browser: Browser) -> None:
    browser.show(service_page(body_of(failing=None))[0])
    tree = browser.tree()
    roles = [role for role, _ in tree]
    assert [roles.count(it) for it in ("banner", "main", "contentinfo")] == [1, 1, 1]
    for role in ("table", "region", "heading", "columnheader", "rowheader", "link"):
        names = [name for found, name in tree if found == role]
        assert names and all(names), role
    levels = browser.ask("[...document.querySelectorAll('h1, h2, h3')].map(it => +it.tagName[1])")
    assert levels[0] == 1 and all(b <= a + 1 for a, b in itertools.pairwise(levels))
    reached = []
    for _ in range(7):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(browser.ask("document.activeElement.className || document.activeElement.innerText"))
        assert browser.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert reached == ["scroll", "scroll", "n" * 100, "ticks", "ticks", "scroll", "scroll"]


@pytest.mark.proof
def test_it_loads_itself_anew(place: Place, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketwise.jobs.schedule.board.EVERY", 1)
    monkeypatch.setattr("bucketwise.jobs.schedule.board.FRESH", 0.0)
    place("run", now=None)
    text = "document.body ? document.body.innerText : ''"
    with serving(place.database, policies_of(place)) as it:
        it.page()
        browser.driver.get(f"http://127.0.0.1:{it.port}/")
        assert "All is well" in browser.ask("document.body.innerText")
        place("pause", "-p", "ticks", "--reason", "why")
        wait_until(lambda: "paused since" in browser.ask(text), "it stays as it was")
        assert browser.complaints() == []


@pytest.mark.proof
def test_from_outside(place: Place) -> None:
    with service(place, "--metrics-port", "0") as process:
        address = re.search(r"address=(\S+)/metrics", process.until("metrics are served"))
        assert address is not None
        process.until("run ended")

        def page() -> str:
            return urllib.request.urlopen(address[1]).read().decode()  # type: ignore[no-any-return]

        wait_until(lambda: "run: done" in text_of(page()), "its run is not told of")
        told = text_of(page())
        assert f"{clock.current().year + 1}-01-01 00:00:00" in told  # the next firing
        assert process.end() == 0


def test_trends_are_of_the_run_before() -> None:
    def run(policy: str, took: float | None) -> dict[str, Any]:
        return {"policy": policy, "verb": "run", "took": took}

    newest_first = [run("a", 3.0), run("b", 5.0), run("a", None), run("a", 2.0), run("b", 0.0)]
    assert [it["trend"] for it in with_trends(newest_first)] == [1.5, None, None, None, None]


def row_of(page: str, section: str, policy: str) -> list[str]:
    (body,) = re.findall(f'<section aria-labelledby="{section}">(.*?)</section>', page, re.DOTALL)
    rows = (re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall("<tr>.*?</tr>", body))
    return next(row for row in rows if row[0] == policy)


@after(run_now)
def test_what_a_run_did_and_what_there_is_are_told(it: Served, place: Place) -> None:
    place.database.client.admin.command("fsync")  # sizes of files change with checkpoints
    page = it.page()
    runs = place("history", "--json", "-p", "ticks", now=None).policy("ticks")["runs"]
    worth = place("stats", "--json", "-p", "ticks", now=None).policy("ticks")
    row = row_of(page, "runs", "ticks")
    assert row[6:9] == ["180", size(worth["removed_bytes"]), size(runs[0]["bytes"])]
    now = worth["now"]
    told = [now[it] for it in ("data_bytes", "index_bytes", "summary_bytes", "store_bytes")]
    assert row_of(page, "sizes", "ticks")[1:] == [*map(size, told), size(worth["removed_bytes"])]


@pytest.mark.proof
@after(run_now)
def test_nothing_is_clipped_at_a_desk(it: Served, browser: Browser) -> None:
    it.page()
    browser.driver.get(f"http://127.0.0.1:{it.port}/")
    clipped = "[...document.querySelectorAll('.scroll')].filter(it => it.scrollWidth > it.clientWidth).length"
    assert browser.ask(clipped) == 0


@pytest.mark.proof
@after(run_now)
def test_a_page_for_each_policy_and_the_last_audit(place: Place) -> None:
    late = place.database.ticks.find_one() or {"symbol": "MDB", "d": START, "p": {"0": 1.5}}
    place.database.ticks.insert_one({**late, "_id": "late", "d": START + timedelta(days=1)})
    assert place("run", "-p", "ticks", now=None).code == 0
    assert place("audit", "--html", "audit.html", now=None).code == 0
    with serving(place.database, policies_of(place), audit_page=place.folder / "audit.html") as it:
        page = it.page()
        assert 'href="policy/ticks"' in page and 'href="audit"' in page
        reply, own = it.ask("/policy/ticks")
        assert reply.status == 200
        assert "All is well" in own and 'href="../audit"' in own
        timeline = text_of(own.partition('id="runs"')[2])
        assert timeline.count("done") == 3 and "audit" in timeline
        assert "in MongoDB: " in text_of(own.partition('id="sizes"')[2])
        reply, audit = it.ask("/audit")
        assert (reply.status, audit) == (200, (place.folder / "audit.html").read_text())
        digest = re.findall("style-src '(sha256-[^']+)'", reply.headers["Content-Security-Policy"])
        assert len(digest) == 1
        (place.folder / "audit.html").unlink()
        assert it.ask("/audit")[0].status == 404
        assert it.ask("/policy/none")[0].status == 404


def test_sizes_over_time_are_steps_between_runs() -> None:
    def run(day: int, data: int, store: int, **more: Any) -> Run:
        at = NOW + timedelta(days=day)
        now = {"data_bytes": data, "index_bytes": 0, "summary_bytes": 0, "store_bytes": store}
        counts = {"worth": {"now": now}} | more
        return Run("r", "run", "p", at, at, 0, "done", counts, None, "1", 1, at)

    newest_first = [run(4, 50, 40), run(2, 80, 20), run(1, 0, 0, worth=None), run(0, 100, 0)]
    drawn = chart(newest_first)
    assert drawn is not None
    assert [(it["name"], it["path"], it["first"], it["last"]) for it in drawn["lines"]] == [
        ("in MongoDB", "M0 0H300V20H600V50", 100, 50),
        ("in the archive", "M0 100H300V80H600V60", 0, 40),
    ]
    assert (drawn["most"], drawn["since"], drawn["until"]) == (100, NOW, NOW + timedelta(days=4))
    assert chart(newest_first[:1]) is None
