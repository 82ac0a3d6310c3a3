"""Where the tests of publishing happen: readings of a few series, runs in this process, and what Redis should
hold by then, in plain Python."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy, Rollup, Settings
from bucketwise.config.tables import MongoDB, Publish, Redis, Throttle
from bucketwise.jobs.core.turn import Step, StepResult
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.publish.verb import Publishing
from bucketwise.jobs.rollup import ROLLUP
from tests.jobs.counting import Counts, run_counted

Document = dict[str, Any]
START = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
#: As keys have them.
_SYMBOLS: dict[Any, str] = {"MDB": "MDB", "7": '"7"', 7: "7"}
_EXCHANGES = {"NYSE": "NYSE", "X:{1}": "X%3A%7B1%7D"}


@dataclass(frozen=True)
class Stage:
    """A collection of readings, its policy, and a Redis. `now` is an hour and a half after the last one."""

    database: Database[Document]
    uri: str
    client: Any  # of Redis
    url: str
    said: Document = field(default_factory=lambda: {"latest_hours": 3, "latest_days": 2})
    window: str | None = None

    def saying(self, **said: Any) -> Stage:
        return replace(self, said={**self.said, **said})

    @property
    def policy(self) -> Policy:
        return make_policy(
            name="ticks",
            collection="ticks",
            model="reading",
            time_field="d",
            series_fields=("symbol", "exchange"),
            value_fields=("p", "v.size"),
            rollup=Rollup(hourly="hourly", daily="daily", percentiles=(50.0,)),
            throttle=Throttle(window=self.window),
        )

    @property
    def publishing(self) -> Publishing:
        redis = Redis(url=SecretStr(self.url), **self.said)
        mongodb = MongoDB(uri=SecretStr(self.uri), database=self.database.name)
        policies = {"ticks": self.policy}
        return Publishing(
            Settings(mongodb=mongodb, publish=Publish(redis=redis), policies=policies, path=Path("x"))
        )

    def add(self, symbol: Any, hour: int, *values: float, exchange: str = "NYSE") -> None:
        at = START + hour * HOUR
        self.database["ticks"].insert_many(
            {
                "symbol": symbol,
                "exchange": exchange,
                "d": at + timedelta(minutes=i),
                "p": it,
                "v": {"size": i},
            }
            for i, it in enumerate(values)
        )

    def run(
        self, hour: int = 200, steps: tuple[Step, ...] = (ROLLUP,), **options: Any
    ) -> tuple[Result, Counts]:
        """Rolls up, and publishes, as `bucketwise rollup` does."""
        now = START + hour * HOUR
        uri, name = self.uri, self.database.name
        options["followers"] = (self.publishing.follower(),) if steps[0] is ROLLUP else ()
        results, counts = run_counted(uri, name, steps, [self.policy], None, now, **options)
        return results[0], counts

    def well(self, **options: Any) -> int:
        """Returns how many keys a run has written."""
        result, _ = self.run(**options)
        assert (result.exit_code, result.error) == (0, None)
        keys: int = result.body["publish"]["keys"]
        return keys

    def publish(self, *, everything: bool = False) -> Result:
        """As `bucketwise publish` does."""
        return self.run(steps=(self.publishing.step(everything=everything),))[0]

    def behind(self) -> list[str]:
        """What an audit finds."""
        look = Step("look", lambda turn: StepResult({"found": self.publishing.findings(turn)}))
        found = self.run(steps=(look,))[0].body["found"]
        assert {(it.code, it.policy, it.severity) for it in found} <= {("publish-behind", "ticks", "warning")}
        return [it.message for it in found]

    def expected(self) -> Document:
        """What should be in Redis, but for expiry and the keys that are bucketwise's own."""
        found: Document = defaultdict(dict)
        series: set[str] = set()
        with MongoClient[Document](self.uri, tz_aware=True) as client:
            database = client[self.database.name]
            for level, count in (("hourly", self.said["latest_hours"]), ("daily", self.said["latest_days"])):
                of: dict[str, list[Document]] = defaultdict(list)
                for it in database[level].find(sort=[("start", 1)]):
                    of[f"{_SYMBOLS[it['symbol']]}:{_EXCHANGES[it['exchange']]}"].append(it)
                for member, them in of.items():
                    series.add(member)
                    if level == "hourly":
                        found[f"bw:ticks:last:{{{member}}}"] = _told(them[-1])
                    if count:
                        found[f"bw:ticks:{level}:{{{member}}}"] = list(map(_told, them[-count:]))
                    if self.said.get("secondary"):
                        key = f"bw:ticks:by:exchange:{_EXCHANGES[them[-1]['exchange']]}"
                        found[key] = {*found[key], member}
        return {**found, "bw:ticks:series": series} if series else {}

    def held(self) -> Document:
        """What is in Redis, as numbers and dates again."""
        found: Document = {}
        for key in self.client.scan_iter("bw:*", count=1000):
            kind = key.split(":")[2]
            assert self.client.pttl(key) > 0, key
            if kind == "last":
                found[key] = _read(self.client.hgetall(key))
            elif kind in ("hourly", "daily"):
                scored = self.client.zrange(key, 0, -1, withscores=True)
                found[key] = [_flat(json.loads(text)) for text, _ in scored]
                assert [score for _, score in scored] == [it["start_ms"] for it in found[key]]
            elif kind in ("by", "series"):
                found[key] = self.client.smembers(key)
        return found


def _told(summary: Document) -> Document:
    """A summary's head and statistics by their names in the hash."""
    told: Document = {}
    for key in ("start", "end", "count", "timezone"):
        told |= _instant(key, summary[key]) if key in summary else {}
    for name, statistics in (("p", summary["p"]), ("v.size", summary["v"]["size"])):
        for key, value in {"nonfinite": 0, "nonnumeric": 0, **statistics}.items():
            told |= _instant(f"{name}.{key}", value) if key != "state" and value is not None else {}
    return told


def _instant(key: str, value: Any) -> Document:
    if isinstance(value, datetime):
        ms = (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        return {key: value, f"{key}_ms": ms}
    return {key: str(value) if isinstance(value, float) and math.isinf(value) else value}


def _flat(document: Document) -> Document:
    """What JSON says, by the names of the hash."""
    head = {key: it for key, it in document.items() if key not in ("series", "values", "level", "hours")}
    values = ((name, key, it) for name, of in document["values"].items() for key, it in of.items())
    found = head | {f"{name}.{key}": it for name, key, it in values if it is not None}
    return {key: _date(it) for key, it in found.items()}


def _read(fields: dict[str, str]) -> Document:
    own = ("series", "level", "version")
    return {key: _date(_number(it)) for key, it in fields.items() if key not in own}


def _number(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _date(value: Any) -> Any:
    return datetime.fromisoformat(value) if isinstance(value, str) and value.endswith("Z") else value
