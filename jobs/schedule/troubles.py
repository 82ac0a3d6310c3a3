"""What is wrong with a policy, as far as its records tell: for the page of the service. The alerts of
`ops/alerts.yml` that these tell of are met at the same limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from bucketwise.config.cron import missed_since, parse_window
from bucketwise.config.policies import Policy
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.ledger import COMPLETED, RUNNING, SCHEDULED, Run
from bucketwise.jobs.core.runner import WINDOW_OVER
from bucketwise.jobs.core.turn import pick
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.output.tables import counted
from bucketwise.jobs.status import UNTOLD, command

Body = dict[str, Any]

#: So many runs are on the page; those that did nothing are one.
MOST_RUNS = 60
#: Of the drawing, in its own units.
WIDTH, HEIGHT = 600, 100


def chart(runs: Sequence[Run]) -> Body | None:
    """Returns the sizes over time that runs recorded, the newest run first, as lines of a drawing; None where
    there are fewer than two. `most`: the bytes at the top."""
    told = ((it.ended, it.counts.get("worth")) for it in reversed(runs))
    found = [(ended, worth["now"]) for ended, worth in told if ended and worth]
    if len(found) < 2:
        return None
    since, until = found[0][0], found[-1][0]
    series = {
        ("in MongoDB", "live"): [sum(now[key] for key in _IN_MONGODB) for _, now in found],
        ("in the archive", "archived"): [now["store_bytes"] for _, now in found],
    }
    most = max(1, *(max(it) for it in series.values()))
    span = (until - since).total_seconds() or 1.0
    places = [round((at - since).total_seconds() / span * WIDTH) for at, _ in found]
    lines = [
        {
            "name": name,
            "colour": colour,
            "path": "".join(_path(places, sizes, most)),
            "first": sizes[0],
            "last": sizes[-1],
        }
        for (name, colour), sizes in series.items()
    ]
    return {"lines": lines, "most": most, "since": since, "until": until}


_IN_MONGODB = ("data_bytes", "index_bytes", "summary_bytes")


def _path(places: Sequence[int], sizes: Sequence[int], most: int) -> Iterator[str]:
    """Yields the steps of a line: a size holds until the next one is known."""
    for at, (place, count) in enumerate(zip(places, sizes, strict=True)):
        height = HEIGHT - round(HEIGHT * count / most)
        yield f"H{place}V{height}" if at else f"M{place} {height}"


def run_body(run: Run) -> Body:
    """Returns a run as the pages show it."""
    archived = run.counts.get("archive", run.counts if run.verb == "archive" else {})
    done = archived if isinstance(archived, Mapping) else {}
    return {
        **pick(run, "policy", "verb", "started", "ended", "outcome", "runs"),
        "took": None if run.ended is None else (run.ended - run.started).total_seconds(),
        "documents": done.get("buckets"),
        "removed": done.get("removed_bytes"),
        "bytes": done.get("bytes"),
        "error": (run.error or "").partition("\n")[0],
        "good": run.exit_code in (None, 0, 3),
    }


def with_trends(runs: Sequence[Body]) -> list[Body]:
    """Returns runs, the newest first, each with how many times as long it took as the one before of its
    policy and verb; None where there is none."""
    found: list[Body] = []
    before: dict[tuple[str, str], float] = {}
    for it in reversed(runs):
        kind, took = (it["policy"], it["verb"]), it["took"]
        known = before.get(kind)
        found.append({**it, "trend": took / known if took and known else None})
        if took:
            before[kind] = took
    return found[::-1]


#: How far each may be behind, and how old the last one may be, before an alert is met.
MOST_LAG = {"rollup": timedelta(hours=6), "archive": timedelta(days=2)}
MOST_AGE = {"audit": timedelta(days=8), "drill": timedelta(days=35)}
_FAILED = (1, 2, 5)


@dataclass(frozen=True)
class PolicyState:
    """The state of a policy. `place`: the JSON of how far it is. `failed`: as `status --failed` lists it.
    `audit`: findings by severity of the last one in the metrics. `proofs`: the last audit and drill in the
    ledger. `ended`: its last turn here, and when that was."""

    paused: Body | None = None
    runs: Sequence[Run] = ()
    place: Body = field(default_factory=dict)
    failed: Sequence[Body] = ()
    audit: Mapping[str, float] = field(default_factory=dict)
    ended: tuple[datetime, Result] | None = None
    is_running: bool = False
    proofs: Mapping[str, Run] = field(default_factory=dict)

    @property
    def last_audit(self) -> Mapping[str, float]:
        """Returns how many errors and warnings the last audit had, and when it was (`at`, in seconds); empty
        where none is known."""
        noted = self.proofs.get("audit")
        if noted is None or noted.started.timestamp() <= self.audit.get("at", 0):
            return self.audit
        counts = noted.counts
        found = {"error": counts.get("errors", 0), "warning": counts.get("warnings", 0)}
        return {**found, "at": noted.started.timestamp()}


class Trouble(NamedTuple):
    """Something that is wrong. `command`: what to type; None where that is not known."""

    severity: str
    text: str
    command: str | None


def troubles(policy: Policy, state: PolicyState, now: datetime, config: Path | None) -> list[Trouble]:
    """Returns what is wrong, errors first. `config`: that of --config, which the suggested commands
    repeat."""

    def command_line(verb: str) -> str:
        return command(verb, policy.name, (), config)

    found = [*_of_runs(state, command_line("run")), *_of_place(state, command_line("plan"))]
    found += _of_proofs(state, now, command_line)
    if count := int(state.last_audit.get("error", 0)):
        at = clock.iso(datetime.fromtimestamp(int(state.last_audit["at"]), UTC))
        text = f"the audit of {at} has {counted(count, 'error')}"
        found.append(Trouble("error", text, command_line("audit")))
    if state.paused:
        it = state.paused
        text = f"paused since {clock.iso(it['since'])} by {it['by']}: {it['reason']}"
        found.append(Trouble("warning", text, command_line("resume")))
    elif policy.schedule is not None and not state.is_running:
        completed = next(
            (it.started for it in state.runs if it.verb == SCHEDULED and it.exit_code in COMPLETED), None
        )
        if late := missed_since(policy.schedule, completed, now, policy.throttle.window):
            found.append(
                _late(policy, f"no run was completed since it was due at {clock.iso(late)}", now, config)
            )
    return sorted(found, key=lambda it: it.severity)


def _late(policy: Policy, text: str, now: datetime, config: Path | None) -> Trouble:
    window = parse_window(policy.throttle.window or "always")
    opens = None if window is None else window.closed_until(now)
    if opens is None:
        return Trouble("error", f"late: {text}", command("run", policy.name, (), config))
    anyway = command("run", policy.name, ["--no-throttle"], config)
    return Trouble("warning", f"waits for its window, which opens at {clock.iso(opens)}: {text}", anyway)


def _of_runs(state: PolicyState, again: str) -> Iterator[Trouble]:
    for it in state.failed:
        why = (it["error"] or "it never finished").partition("\n")[0]
        text = f"{it['verb']} of {clock.iso(it['started'])}: {it['outcome']}: {why}"
        severity = "warning" if it["error"] == WINDOW_OVER else "error"  # as it was asked to
        yield Trouble(severity, text, it["command"] or UNTOLD)
    if state.ended and not state.failed:
        at, result = state.ended
        if result.exit_code in _FAILED and not any(it.started > at for it in state.runs):
            yield Trouble("error", f"the run due at {clock.iso(at)}: {result.outcome}: {result.error}", again)
    counts = (it.counts for it in state.runs if it.verb == SCHEDULED and it.outcome != RUNNING)
    steps = next(counts, {}).values()
    if broken := max((it.get("quarantined", 0) for it in steps if isinstance(it, Mapping)), default=0):
        yield Trouble("warning", f"{broken:,} buckets are quarantined", again.replace(" run ", " plan "))


def _of_place(state: PolicyState, why: str) -> Iterator[Trouble]:
    if error := state.place.get("error"):
        yield Trouble("error", error, why)
    for what, key in (("roll-up", "rollup"), ("archive", "archive")):
        lag = timedelta(seconds=state.place.get(f"{key}_lag_seconds", 0))
        if lag > MOST_LAG[key] and not (state.paused or state.failed or state.is_running):
            yield Trouble("warning", f"the {what} is {span(lag.total_seconds())} behind", why)


def _of_proofs(state: PolicyState, now: datetime, again: Callable[[str], str]) -> Iterator[Trouble]:
    """Yields proofs that are too old. What was never audited or drilled has no date to go by."""
    times = {verb: it.started for verb, it in state.proofs.items()}
    if "at" in state.last_audit:
        times["audit"] = datetime.fromtimestamp(state.last_audit["at"], UTC)
    said = {
        "audit": "the last audit was {} ago",
        "drill": "no day has been proven restorable for {}",
    }
    for verb, at in times.items():
        if now - at > MOST_AGE[verb]:
            yield Trouble("warning", said[verb].format(span((now - at).total_seconds())), again(verb))


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def span(seconds: float | None) -> str:
    """Returns a length of time as text, in the largest unit that it fills."""
    if seconds is None:
        return "–"
    size, unit = next((one for one in _UNITS if seconds >= one[0]), (1, "s"))
    return f"{int(seconds // size)} {unit}" if seconds else "none"
