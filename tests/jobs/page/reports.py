"""Reports of audits, as their JSON tells them."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from itertools import groupby
from typing import Any

Body = dict[str, Any]
HOSTILE = "</script><script>document.title = 'ran'</script><img src=x onerror=\"document.title='ran'\">"


def runs_of(states: dict[date, str]) -> list[Body]:
    """The runs of days that follow one another."""
    found = []
    for state, same in groupby(states, states.__getitem__):
        days = list(same)
        first, last = days[0].isoformat(), days[-1].isoformat()
        found.append(
            {"first": first, "last": last, "days": len(days), "state": state, "readings": 5 * len(days)}
        )
    return found


def month_of(month: str, **readings: int) -> Body:
    """A thousand bytes a reading."""
    volumes = {it: {"readings": readings.get(it, 0)} for it in ("live", "archived", "online")}
    told = {**volumes, "summaries": {"count": readings.get("summaries", 0)}}
    return {
        "month": month,
        **{kind: {**it, "bytes": 1000 * sum(it.values())} for kind, it in told.items()},
    }


def event_of(kind: str, number: int, **more: Any) -> Body:
    """One of a receipt other than of a delete."""
    who = {"host": "db1", "user": "ann", "at": "2018-08-30T00:00:00Z", "done_at": "2018-08-30T00:00:01Z"}
    facts = dict.fromkeys(("buckets", "reason", "hold", "by", "commit", "into", "series", "since", "until"))
    return {"number": number, "kind": kind, **who, **facts, **more}


def proof_of(verb: str, counts: dict[str, int]) -> dict[str, Any]:
    return {
        **{"verb": verb, "started": "2018-08-01T00:00:00Z", "ended": "2018-08-01T00:00:09Z"},
        **{"outcome": "done", "exit_code": 0, "error": None, "host": "db1", "user": "ann", "counts": counts},
    }


def policy_of(name: str, states: dict[date, str], **more: Any) -> Body:
    """One that is kept."""
    months = sorted({f"{day:%Y-%m}" for day in states})
    seal = "5d0c" * 16
    return {
        "policy": name,
        "exit_code": 0,
        "words": f"raw 30 days in {name}, then Parquet in s3://acme-archive/market/{name} forever; "
        "hourly summaries 2 years; daily summaries forever",
        "settings": f'[policies.{name}]\ncollection = "{name}"\n' + 'value_fields = ["p"]\n' * 20,
        "policy_sha256": seal,
        "findings": [],
        "parts": 1826,
        "parts_read": 180,
        "days": 11,
        "coverage": {"states": dict(Counter(states.values())), "runs": runs_of(states)},
        "months": [month_of(it, archived=1_296_000, summaries=7440) for it in months],
        "deleted_by_month": [
            {"month": it, "receipts": 720, "buckets": 21_600, "first": 720 * n + 1, "last": 720 * (n + 1)}
            for n, it in enumerate(months)
        ],
        "balance": {
            **{
                "archived": 39_450_000,
                "in_archive": 39_400_000,
                "online": 0,
                "waiting": 43_200,
                "restored": 1_440,
            },
            **{"erased": 5_360, "ended": 0, "deleted": 39_405_360, "difference": 0, "live": 86_400},
        },
        "worth": {
            "before": {
                **{"data_bytes": 31_200_000_000, "index_bytes": 1_900_000_000},
                **{"summary_bytes": 0, "store_bytes": 0},
            },
            "now": {
                **{"data_bytes": 70_100_000, "index_bytes": 4_300_000},
                **{"summary_bytes": 420_000_000, "store_bytes": 4_100_000_000},
            },
            **{"removed_bytes": 31_129_900_000, "forecast": {"with": 75_000_000, "without": 560_000_000}},
        },
        "history": {
            "events": [
                event_of("hold", 43_100, hold="case-17", reason="Litigation 17/2018"),
                event_of("erase", 42_000, reason="Request 311 of a customer"),
            ],
            "commits": [
                {
                    **{
                        "commit": f"2018-06-{day:02}_2018-06-{day:02}_f000001_b69a81a9edc2f0d8",
                        "buckets": 1440,
                    },
                    **{"receipts": 3, "first": day, "last": day + 2},
                }
                for day in range(30, 0, -1)
            ],
            "commits_in_all": 1826,
            "now_given": [
                {
                    **{
                        "run": "4a66b66e",
                        "now_given": "2018-08-30T00:00:00Z",
                        "done_at": "2018-08-31T00:00:01Z",
                    },
                    **{"host": "db1", "user": "ann", "first": 43_000, "last": 43_010},
                }
            ],
            "proofs": [
                proof_of("audit", {"errors": 0, "warnings": 1, "parts": 1826, "parts_read": 166}),
                proof_of("verify", {"parts": 1826, "readings": 157_766_400, "bad": 0}),
                proof_of("drill", {"days": 3, "buckets": 4320, "equal": 4320, "differing": 0}),
            ],
        },
        "proof": {
            "heads": [
                {"sequence": 1826, "commit": "2018-06-30_2018-06-30_f000001_b69a81a9edc2f0d8", "sha256": seal}
            ],
            "checkpoint": {"sequence": 1800, "sha256": seal, "commits": 60},
            "receipt": {
                "sequence": 43_200,
                "sha256": seal,
                "at": "2018-08-31T00:00:00Z",
                "done_at": "2018-08-31T00:00:01Z",
                "host": "db1",
                "user": "ann",
            },
            "events": [],
            "ownership": {
                "owner": "database market of rs0 (db1:27017)",
                "since": "2018-01-01T00:00:00Z",
                "baseline": True,
                "lineage": 43_200,
            },
            "key": "8a41c2a9",
            "drills": {
                "days": 1796,
                "drilled": 100,
                "oldest": "2018-07-01T00:00:00Z",
                "last": "2018-08-01T00:00:00Z",
            },
        },
        "untold": [],
        **more,
    }


def finding_of(code: str, severity: str, text: str) -> Body:
    """One whose place and message are the text."""
    told = {"code": code, "policy": "ticks", "place": text, "severity": severity, "message": text}
    return {**told, "remedy": "Run `bucketwise run`."}


def report_of(*policies: Body) -> Body:
    """At the end of August 2018."""
    return {
        "schema": 1,
        "command": "audit",
        "exit_code": max((it["exit_code"] for it in policies), default=0),
        "now": "2018-09-01T00:00:00Z",
        "policies": list(policies),
        "by": "auditor@example",
        "version": "0.1.0",
        "hosts": "db1:27017,db2:27017",
        "database": "market",
        "config": "/etc/bucketwise.toml",
    }


def days(first: date, count: int, state: Callable[[date], str]) -> dict[date, str]:
    """So many days, each in a state."""
    every = (first + timedelta(days=number) for number in range(count))
    return {day: state(day) for day in every}


def mixed() -> Body:
    """Policies that are kept, not kept and not audited, with hostile texts and long words."""
    every = ["live", "archived", "both", "online", "summarised", "expired", "gap"]
    some = days(date(2018, 6, 5), 50, lambda day: every[day.toordinal() // 4 % len(every)])
    years = days(date(2014, 2, 1), 1500, lambda day: "archived" if day.weekday() < 5 else "gap")
    long = "x" * 300
    found = [
        finding_of("hole", "warning", HOSTILE),
        finding_of("overdue", "error", long),
        finding_of("quarantined", "error", "p.60: slot `60` is not one of `0` to `59`"),
    ]
    hold: Body = {
        "name": "case-17",
        "series": {"symbol": HOSTILE},
        "since": None,
        "until": "2018-07-01T00:00:00Z",
    }
    hold |= {"reason": long, "placed_at": "2018-09-01T00:00:00Z", "by": "ann@db1", "freeze": True}
    months = [month_of("2018-06", live=40, archived=7, online=3, summaries=2), month_of("2018-07", live=9)]
    return report_of(
        policy_of("ticks", some, exit_code=4, findings=found, months=months, holds=[hold]),
        policy_of("trades", years),
        {"policy": "iot", "exit_code": 5, "words": HOSTILE, "error": HOSTILE},
        policy_of("empty", {}, coverage=None, months=None, deleted_by_month=None, untold=[HOSTILE, long]),
    )


def text_of(page: str) -> str:
    """What a page says, without its elements."""
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", page)).split())
