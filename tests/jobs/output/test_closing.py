"""The last line of what a command prints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bucketwise.jobs.core.ledger import Run
from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.report import Measures, Result
from bucketwise.jobs.output.tables import (
    closing,
    counted,
    findings_table,
    in_future,
    leftover_lines,
    plan_closing,
    run_closing,
)
from bucketwise.jobs.plan.outcomes import Pace
from tests.jobs.place import MINUTES, Place

ROLLED = {"hourly": {"written": 3}, "daily": {}, "readings": 1200}
ARCHIVED = {
    "to": "offline",
    "buckets": 47_861,
    "readings": 9,
    "removed_bytes": 31_200_000,
    "bytes": 4_100_000,
}


def told(results: list[Result]) -> str:
    (line,) = run_closing(results)
    return line.plain


def test_a_run_tells_what_it_did_and_who_needs_attention() -> None:
    first = Result("a", 0, {"rollup": ROLLED, "archive": ARCHIVED, "expiry": {"hourly": 2, "daily": 0}})
    second = Result("b", 3, {"rollup": ROLLED, "archive": {"buckets": 0}, "expiry": {}})
    first.measures = Measures(seconds={"rollup": 4.0, "archive": 5.8})
    assert told([first, second]) == (
        "2 policies: 2,400 readings rolled up, 47,861 buckets archived, 31.2 MB removed, 4.1 MB added to the "
        "archive, 2 summaries expired; 9.8 s; 1 needs attention: b (left something)"
    )


def test_one_step_alone() -> None:
    assert told([Result("a", 0, dict(ROLLED))]) == "1 policy: 1,200 readings rolled up; 0.0 s"
    assert "47,861 buckets archived" in told([Result("a", 0, dict(ARCHIVED))])
    assert "rolled up" not in told([Result("a", 0, dict(ARCHIVED))])


def test_nothing_was_due() -> None:
    assert told([Result("a", 0, {"rollup": {}})]) == "1 policy: nothing was due; 0.0 s"
    assert told([Result("a", 1, error="no")]) == "1 policy: none was worked on; 1 needs attention: a (failed)"
    (planned,) = plan_closing([Result("a", 0, {"rollup": {}})])
    assert planned.plain == "1 policy: a run would find nothing to do. Nothing was changed"


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "policy", "1 policy"),
        (0, "part", "0 parts"),
        (1200, "summary", "1,200 summaries"),
        (2, "day", "2 days"),
    ],
)
def test_a_number_has_its_noun(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def test_who_is_paused_needs_attention() -> None:
    paused = Result("a", 0, {"x": 1}, paused={"reason": "why"})
    assert closing([paused], "done")[0].plain == "1 policy: done; 1 needs attention: a (paused)"


def test_a_plan_is_in_the_future() -> None:
    done = Grid("Archive", ("policy", "buckets", "size", "deleted", "hourly written", "parts", "outcome"))
    done.add_row("ticks", "7", "0 B", "5", "3", "0", "done")
    table = in_future(done)
    assert table.title == "Would be archived"
    assert list(table.heads) == ["policy", "buckets", "to delete", "hourly to write", "outcome"]
    assert [it.plain for it in table.rows[0]] == ["ticks", "7", "5", "3", "done"]


def test_a_plan_is_estimated_by_the_last_runs() -> None:
    at = datetime(2018, 9, 1, tzinfo=UTC)

    def run(seconds: int, code: int | None = 0, **counts: int) -> Run:
        ended = at + timedelta(seconds=seconds)
        steps = {"rollup": {"readings": counts["readings"]}, "archive": counts}
        return Run("r", "run", "p", at, ended, code, "done", steps, None, "1", 1, at)

    small = {"readings": 100, "buckets": 10, "deleted": 10, "bytes": 200, "removed_bytes": 5_000}
    much = {"readings": 900, "buckets": 90, "deleted": 90, "bytes": 1_800, "removed_bytes": 45_000}
    planned = {"rollup": {"readings": 0}, "archive": {"readings": 5_000, "buckets": 500, "deleted": 400}}
    pace = Pace.of([run(10, **small), run(90, **much), run(9_000, 1, **much)])
    assert pace.estimate(planned) == {"seconds": 250.0, "bytes": 10_000, "removed_bytes": 200_000}
    nothing = {"seconds": None, "bytes": None, "removed_bytes": None}
    assert Pace.of([run(10, **small)]).estimate(planned) == nothing  # too little to tell
    (line,) = plan_closing([Result("p", 0, {**planned, "estimate": pace.estimate(planned)})])
    assert line.plain == (
        "1 policy: a run would archive 500 buckets, delete 400 buckets; by the last runs about 10.0 kB added "
        "to the archive, about 200.0 kB removed, about 5 min. Nothing was changed"
    )
    (line,) = plan_closing([Result("p", 0, {**planned, "estimate": nothing})])
    assert "by the last runs" not in line.plain


@pytest.mark.proof
@pytest.mark.process
def test_every_verb_ends_with_its_line(place: Place) -> None:
    def last(*arguments: str) -> str:
        return place(*arguments).out.rstrip("\n").rpartition("\n")[2]

    planned = last("plan")
    assert planned.startswith("2 policies: a run would roll up ")
    assert planned.endswith(f"delete {MINUTES + 18} buckets. Nothing was changed")
    assert last("hold", "list") == "2 policies: no hold stands"
    assert f"{MINUTES:,} buckets archived" in last("run", "-p", "ticks")
    assert last("verify", "-p", "ticks") == (
        "1 policy: read 1 part with 10,800 readings; all are as they were written"
    )
    assert last("audit", "-p", "ticks") == "1 policy: every one is kept; 1 of 1 part read"
    assert last("drill", "-p", "ticks") == (
        f"1 policy: 1 day restored; {MINUTES} of {MINUTES} buckets equal byte for byte"
    )
    assert last("restore", "-p", "ticks", "--to", "back") == (
        f"1 policy: {MINUTES} buckets with 10,800 readings restored"
    )
    assert last("check").startswith("A run would work: ")
    assert "buckets were looked at" not in place("check").out
    assert "iot: " in place("check", "--verbose").out


def test_the_same_sentence_is_said_once_with_a_count() -> None:
    broken = [{"id": at, "field": "d", "reason": "no time"} for at in range(5)]
    other = {"id": "x", "field": "p", "reason": "no number"}
    result = Result("p", 3, {"quarantine": [*broken, other], "quarantined": 9})
    assert [str(it) for it in leftover_lines([result])] == [
        "p: 5 quarantined: _id 0, 1, 2, …, d: no time",
        'p: quarantined: _id "x", p: no number',
        "p: 3 more quarantined: see --json",
    ]
    same = {"severity": "error", "policy": "p", "code": "quarantined", "message": "no time"}
    table = findings_table("Audit", [{**same, "place": f"it, _id {at}"} for at in range(4)])
    assert [[cell.plain for cell in row] for row in table.rows] == [
        ["error", "p", "quarantined", "it, _id 0", "no time (so it is at 4 places; --json names them)"]
    ]
