"""The acts about evidence: where each day is, a hold, an erasure that waits for the hold to be released, a
drill; and the audit."""

from __future__ import annotations

from collections import Counter

import bson
import numpy as np

from jobs.demo.stage import Stage
from jobs.output.report import Result
from jobs.verbs.asking.coverage import By, coverage
from jobs.verbs.keeping.hold import Action, hold
from jobs.verbs.proving.audit import audit
from jobs.verbs.proving.drill import drill
from jobs.verbs.working.erase import erase

_POLICY, _SYMBOL, _HOLD = "ticks", "ACME", "case-17"
_SERIES = [f"symbol={_SYMBOL}"]
_WHY = "A customer has asked for it."
#: More days than the demo has.
_ALL_DAYS = 100
_LETTERS = {"live": "L", "archived": "A", "both": "B", "gap": "·"}


def evidence(stage: Stage) -> None:
    """Covers, holds and erases one series, then drills, and shows what each did."""
    stage.show.act(
        "bucketwise coverage, hold, erase, drill",
        "Where each day of ACME is; a hold on it; its erasure; and a drill of the rest.",
    )
    made, show = stage.made[_POLICY], stage.show
    expired = stage.expired(stage.call.settings.policies[_POLICY])
    mine = [bson.decode(it)["symbol"] == _SYMBOL for it in made.documents]
    _cover(stage, int((made.of == 0).sum()))

    stage.succeeded(
        hold(stage.command("hold", _POLICY), Action.add, _HOLD, series=_SERIES, reason="Litigation")
    )
    show.line(f"hold      {_HOLD} is placed on {_SERIES[0]}")
    refused = _erased(stage, _POLICY)
    show.equal("the erasure of what is held: exit code", refused.exit_code, 2)
    show.holds("the refusal does not name the hold", _HOLD in (refused.error or ""))
    show.line(f"erase     is refused: {_HOLD} stands")
    stage.succeeded(hold(stage.command("hold", _POLICY), Action.release, _HOLD))
    show.line(f"hold      {_HOLD} is released")

    planned, done = _erased(stage, None), _erased(stage, _POLICY)
    for what, result in {"would be": planned, "were": done}.items():
        show.equal(f"{_SYMBOL}: buckets that {what} erased", result.body["buckets"], sum(mine))
        show.equal(f"{_SYMBOL}: erase, exit code", result.exit_code, 0)
    body = done.body
    went = f"{body['buckets']:,} buckets and {body['summaries']:,} summaries are gone"
    show.line(f"erase     {went}, {body['commits_rewritten']} commit was rewritten without them")
    same = stage.documents(_POLICY) == made.some(~expired & ~np.array(mine))
    show.holds(f"{_POLICY} does not hold exactly the other series", same)

    report = stage.succeeded(drill(stage.command("drill", _POLICY), days=_ALL_DAYS, seed=1))
    body = report.results[0].body
    others = int((expired & ~np.array(mine)).sum())
    show.equal("drill: buckets, and equal ones", (body["buckets"], body["equal"]), (others, others))
    show.line(f"drill     {body['equal']:,} of {body['buckets']:,} buckets came back byte for byte")
    stage.show.verdict("ACME is gone from everywhere, and all others are as they were")


def _cover(stage: Stage, readings: int) -> None:
    report = stage.succeeded(coverage(stage.command("coverage", _POLICY), series=_SERIES, by=By.day))
    days = report.results[0].body["days"]
    strip = "".join(_LETTERS[day["state"]] for day in days)
    stage.show.line(f"{days[0]['day']}  {strip}  {days[-1]['day']}")
    stage.show.equal("coverage: readings of the series", sum(day["readings"] for day in days), readings)
    states = Counter(day["state"] for day in days)
    counts = ", ".join(f"{count} days {state}" for state, count in states.items())
    stage.show.line(f"coverage  {counts}: {readings:,} readings")


def _erased(stage: Stage, confirm: str | None) -> Result:
    report = erase(stage.command("erase", _POLICY), reason=_WHY, series=_SERIES, confirm=confirm)
    return report.results[0]


def audited(stage: Stage) -> None:
    """Audits all policies, and shows that there are no findings."""
    stage.show.act(
        "bucketwise audit", "Re-reads every part, recomputes every summary, looks for what is overdue."
    )
    report = stage.succeeded(audit(stage.command("audit"), html=stage.folder / "audit.html"))
    findings = [it for result in report.results for it in result.body.get("findings", [])]
    for it in findings:
        stage.show.line(f"{it['severity']}: {it['policy']}, {it['place']}: {it['message']}")
    stage.show.equal("findings of the audit", len(findings), 0)
    stage.show.line(f"{len(report.results)} policies, {len(findings) or 'no'} findings.")
    stage.show.verdict("Every policy is kept")
