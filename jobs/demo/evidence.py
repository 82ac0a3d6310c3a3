"""The act about evidence: where each day is, a hold, an erasure that waits for the hold to be released, and a
drill."""

from __future__ import annotations

from collections import Counter

import bson
import numpy as np
from numpy.typing import NDArray

from jobs.demo.show import number
from jobs.demo.stage import Stage
from jobs.output.report import Result
from jobs.verbs.asking.coverage import By, coverage
from jobs.verbs.keeping.hold import Action, hold
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
    about = f"Where each day of {_SYMBOL} is; a hold on it; its erasure; and a drill of the rest."
    stage.show.act("bucketwise coverage, hold, erase, drill", about)
    _cover(stage)
    _hold(stage)
    _erase(stage)
    _drill(stage)
    stage.show.verdict(f"{_SYMBOL} is gone from everywhere, and all others are as they were")


def _cover(stage: Stage) -> None:
    report = coverage(stage.command("coverage", _POLICY), series=_SERIES, by=By.day)
    stage.succeeded(report)
    days = report.results[0].body["days"]
    strip = "".join(_LETTERS[day["state"]] for day in days)
    stage.show.line(f"{days[0]['day']}  {strip}  {days[-1]['day']}")
    made = stage.made[_POLICY]
    readings = sum(len(bson.decode(it)["p"]) for it in made.documents if _is_mine(it))
    stage.show.equal("coverage: readings of the series", sum(day["readings"] for day in days), readings)
    states = Counter(day["state"] for day in days)
    told = ", ".join(f"{count} days {state}" for state, count in states.items())
    stage.show.line(f"coverage  {told}: {number(readings)} readings")


def _hold(stage: Stage) -> None:
    report = hold(stage.command("hold", _POLICY), Action.add, _HOLD, series=_SERIES, reason="Litigation")
    stage.succeeded(report)
    stage.show.line(f"hold      {_HOLD} is placed on {_SERIES[0]}")
    refused = _erased(stage, confirm=_POLICY)
    stage.show.equal("the erasure of what is held: exit code", refused.exit_code, 2)
    stage.show.holds("the refusal does not name the hold", _HOLD in (refused.error or ""))
    stage.show.line(f"erase     is refused: {_HOLD} stands")
    stage.succeeded(hold(stage.command("hold", _POLICY), Action.release, _HOLD))
    stage.show.line(f"hold      {_HOLD} is released")


def _erased(stage: Stage, confirm: str | None) -> Result:
    report = erase(stage.command("erase", _POLICY), reason=_WHY, series=_SERIES, confirm=confirm)
    return report.results[0]


def _erase(stage: Stage) -> None:
    mine = sum(map(_is_mine, stage.made[_POLICY].documents))
    planned, done = _erased(stage, None), _erased(stage, _POLICY)
    for what, result in {"would be": planned, "were": done}.items():
        stage.show.equal(f"{_SYMBOL}: buckets that {what} erased", result.body["buckets"], mine)
        stage.show.equal(f"{_SYMBOL}: erase, exit code", result.exit_code, 0)
    told = f"{number(mine)} buckets and {number(done.body['summaries'])} summaries are gone"
    stage.show.line(f"erase     {told}, {done.body['commits_rewritten']} commit was rewritten without them")
    others = [it for it in stage.made[_POLICY].some(~_expired(stage)) if not _is_mine(it)]
    same = sorted(stage.documents(_POLICY)) == sorted(others)
    stage.show.holds(f"{_POLICY} does not hold exactly the other series", same)
    import duckdb  # an extra; whether it is there was seen at the start

    parts = f"{stage.place.store}/{_POLICY}/data/**/*.parquet"
    with duckdb.connect() as connection:
        query = f"SELECT count(*) FILTER (symbol = '{_SYMBOL}'), count(*) FROM read_parquet('{parts}')"
        (left, all_left), *_ = connection.execute(query).fetchall()
    stage.show.equal(f"{_SYMBOL}: readings left in the archive", left, 0)
    gone = stage.made[_POLICY].some(_expired(stage))
    wanted = sum(len(bson.decode(it)["p"]) for it in gone if not _is_mine(it))
    stage.show.equal("other series: readings in the archive", all_left, wanted)


def _drill(stage: Stage) -> None:
    report = drill(stage.command("drill", _POLICY), days=_ALL_DAYS, seed=1)
    stage.succeeded(report)
    body = report.results[0].body
    gone = stage.made[_POLICY].some(_expired(stage))
    stage.show.equal("drill: buckets", body["buckets"], sum(not _is_mine(it) for it in gone))
    stage.show.equal("drill: equal buckets", body["equal"], body["buckets"])
    told = f"{number(body['equal'])} of {number(body['buckets'])} buckets came back byte for byte"
    stage.show.line(f"drill     {told}")


def _expired(stage: Stage) -> NDArray[np.bool_]:
    return stage.expired(stage.call.settings.policies[_POLICY])


def _is_mine(document: bytes) -> bool:
    return bool(bson.decode(document)["symbol"] == _SYMBOL)
