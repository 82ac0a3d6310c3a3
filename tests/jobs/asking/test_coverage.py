"""Coverage says of real readings what counting them in plain Python says, wherever they are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from tests.acceptance.readings import NAB, as_slots
from tests.jobs.place import Place

Document = dict[str, Any]
Key = tuple[str, int, str]  # day, hour, series
CPU, NETWORK = "ec2_cpu_utilization_24ae8d", "ec2_network_in_257a54"
#: Readings of these days are there: the second series begins two months later.
FIRST, LAST = datetime(2014, 2, 14, tzinfo=UTC), datetime(2014, 4, 13, tzinfo=UTC)
ROLLED = "2014-02-20T00:00:00Z"
DUE = datetime(2014, 3, 18, 5, tzinfo=UTC)
GRACE = timedelta(days=2)
POLICY = """
[policies.metrics]
collection = "metrics"
model = "slots"
time_field = "at"
series_fields = ["rig"]
value_fields = ["value"]
slot = "minute"
[policies.metrics.rollup]
hourly = "metrics_hourly"
daily = "metrics_daily"
[policies.metrics.archive]
after = "30d"
"""
OFFLINE = 'to = "offline"\n'
ONLINE = 'to = "online"\ncollection = "metrics_archive"\n'


def _documents() -> list[Document]:
    some = [list(islice((it for it in NAB.read() if it.series == name), 1200)) for name in (CPU, NETWORK)]
    readings = [*some[0], *some[1]]
    return [it | {"_id": number} for number, it in enumerate(as_slots(readings, "minute"))]


DOCUMENTS = _documents()


def counted(documents: Iterable[Document]) -> Counter[Key]:
    """Readings by day, hour and series."""
    found: Counter[Key] = Counter()
    for it in documents:
        at = it["at"].replace(tzinfo=UTC)
        found[f"{at:%Y-%m-%d}", at.hour, it["rig"]] += sum(
            value is not None for value in it["value"].values()
        )
    return found


def summed(counts: Counter[Key], row: Document, series: str | None) -> int:
    return sum(
        count
        for (day, hour, rig), count in counts.items()
        if (day, row.get("hour", hour), series or rig) == (row["day"], hour, rig)
    )


def expired(now: datetime) -> list[Document]:
    """What is due: the last reading lies before now − 30 days."""
    cutoff = now - timedelta(days=30)
    return [it for it in DOCUMENTS if it["at"] + timedelta(minutes=max(map(int, it["value"]))) < cutoff]


#: Days or hours; of all series, or of one.
Question = tuple[str, str | None]
QUESTIONS: list[Question] = [("day", None), ("day", CPU), ("hour", None), ("hour", NETWORK)]


class Counted:
    """A place whose coverage is held against counts, for days and hours, all series and each."""

    def __init__(self, place: Place, archive: str, asked: Sequence[Question] = QUESTIONS) -> None:
        self.place, self.asked = place, asked
        self.kind = "archived" if archive.startswith(OFFLINE) else "online"
        place.write_config(POLICY + archive)
        place.database.drop_collection("metrics")
        place.database.metrics.create_index("at")
        place.database.metrics.insert_many(DOCUMENTS)

    def rows(self, *arguments: str) -> list[Document]:
        ran = self.place("coverage", "--json", *arguments)
        assert ran.code == 0, ran
        found = ran.policy("metrics")["days"]
        assert isinstance(found, list)
        return found

    def check(self, copied: Iterable[Document], may_lack: str = "") -> None:
        """`copied`: what has been archived. `may_lack`: what an hour, or a series, may not be told of."""
        live = counted(self.place.database.metrics.find({"broken": None}))
        held = counted(copied)
        every = live | held  # a copy of what is live is equal here
        for by, series in self.asked:
            asked = ["--by", by, *([] if series is None else ["--series", f"rig={series}"])]
            is_exact = by == "day" and series is None
            rows = self.rows(*asked)
            assert sum(row["live"] for row in rows) == sum(live.values() if not series else _of(live, series))
            for row in rows:
                wanted = {"live": live, self.kind: held, "readings": every}
                for name, counts in wanted.items():
                    if row[name] is not None or is_exact or name not in may_lack:
                        assert row[name] == summed(counts, row, series), (name, series, row)
                self.see_state(row)

    def see_state(self, row: Document) -> None:
        """The state follows from the numbers."""
        copies = row[self.kind] if row[self.kind] is not None else len(row["commits"])
        expected = {(True, True): "both", (True, False): "live", (False, True): self.kind}
        wanted = expected.get((row["live"] > 0, copies > 0), "gap")
        assert row["state"] == wanted, row


def _of(counts: Counter[Key], series: str) -> list[int]:
    return [count for (_, _, rig), count in counts.items() if rig == series]


def _at(now: datetime) -> str:
    return now.isoformat()


@pytest.mark.proof
@pytest.mark.parametrize(
    ("archive", "asked"),
    [
        pytest.param(OFFLINE, QUESTIONS[::3], id="offline"),
        pytest.param(ONLINE, QUESTIONS[1:3], id="online"),
        pytest.param(OFFLINE, QUESTIONS[1:3], id="offline, in another way", marks=pytest.mark.proof),
        pytest.param(ONLINE, QUESTIONS[::3], id="online, in another way", marks=pytest.mark.proof),
    ],
)
def test_numbers_are_those_of_plain_counting_in_every_state(
    place: Place, archive: str, asked: Sequence[Question]
) -> None:
    it = Counted(place, f'{archive}grace = "2d"\n', asked)
    it.check([])
    assert place("rollup", now=ROLLED).code == 0
    it.check([])
    due = expired(DUE)
    assert 0 < len(due) < len(DOCUMENTS)
    assert place("run", now=_at(DUE)).code == 0
    assert place.database.metrics.count_documents({}) == len(DOCUMENTS), "they wait for their grace"
    it.check(due, may_lack="archived")
    assert place("run", now=_at(DUE + GRACE)).code == 0
    due = expired(DUE + GRACE)
    it.check(due, may_lack="archived readings")
    assert place("run", now=_at(LAST + 90 * GRACE)).code == 0
    assert place("run", now=_at(LAST + 91 * GRACE)).code == 0
    assert place.database.metrics.count_documents({}) == 0
    it.check(DOCUMENTS)
    restored = ("restore", "--yes", "-p", "metrics", "--to", "metrics", "--since", "2014-02-15", "--until")
    assert place(*restored, "2014-02-15T12:00").code == 0
    it.check(DOCUMENTS)
    assert sum(row["pinned"] for row in it.rows()) == place.database.metrics.count_documents({}) > 0


@pytest.mark.proof
@pytest.mark.parametrize("archive", [OFFLINE, ONLINE], ids=["offline", "online"])
def test_late_readings_count_before_they_are_rolled_up(place: Place, archive: str) -> None:
    it = Counted(place, archive)
    assert place("run", now=_at(LAST + 90 * GRACE)).code == 0
    late = {
        "_id": "late",
        "rig": CPU,
        "at": FIRST + timedelta(days=1, hours=3, minutes=60),
        "value": {"1": 1.5},
    }
    place.database.metrics.insert_one(late)
    row = next(row for row in it.rows() if row["day"] == "2014-02-15")
    whole = sum(count for (day, _, _), count in counted(DOCUMENTS).items() if day == "2014-02-15")
    assert (row["state"], row["live"], row[it.kind], row["readings"]) == ("both", 1, whole, whole + 1)
    assert row["summarised"] == whole
    assert place("rollup", now=_at(LAST + 90 * GRACE)).code == 0
    hours = {
        row["hour"]: row for row in it.rows("--by", "hour", "--since", "2014-02-15", "--until", "2014-02-16")
    }
    in_hour = sum(
        count for (day, hour, _), count in counted(DOCUMENTS).items() if (day, hour) == ("2014-02-15", 4)
    )
    assert (hours[4]["live"], hours[4][it.kind], hours[4]["readings"]) == (1, in_hour, in_hour + 1)


@pytest.mark.proof
def test_a_compaction_changes_no_number(place: Place) -> None:
    it = Counted(place, OFFLINE, QUESTIONS[1:])
    place("rollup", now=_at(LAST + 90 * GRACE))
    for hour in (6, 18):
        place("archive", "--until", f"2014-02-15T{hour:02}:00", now=_at(LAST + 90 * GRACE))
    place("archive", now=_at(LAST + 90 * GRACE))
    it.check(DOCUMENTS)
    before = next(row for row in it.rows() if row["day"] == "2014-02-15")
    assert place("compact", now=_at(LAST + 91 * GRACE)).code == 0
    it.check(DOCUMENTS)
    after = next(row for row in it.rows() if row["day"] == "2014-02-15")
    assert 1 <= len(after["commits"]) < len(before["commits"])
    assert after | {"commits": 0} == before | {"commits": 0}


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_days_of_another_zone_tell_that_there_was_something(place: Place, zone: str) -> None:
    """Their summaries make up no UTC day: how many readings it had they don't tell."""
    it = Counted(place, OFFLINE)
    daily = f'daily = "metrics_daily"\ntimezone = "{zone}"\n'
    without = POLICY.replace('hourly = "metrics_hourly"\n', "").replace('daily = "metrics_daily"\n', daily)
    place.write_config(f'{without}to = "none"\n')
    assert place("run", now=_at(LAST + 90 * GRACE)).code == 0
    assert {row["summarised"] for row in it.rows("--until", "2014-02-18")} == {None}
    place.database.metrics.delete_many({"rig": CPU})
    rows = it.rows("--since", "2014-02-15", "--until", "2014-02-18")
    assert {(row["state"], row["summarised"]) for row in rows} == {("summarised", None)}
    assert {row["state"] for row in it.rows("--since", "2014-02-25", "--until", "2014-02-28")} == {"gap"}


@pytest.mark.proof
def test_broken_buckets_are_counted_where_they_lie(place: Place) -> None:
    it = Counted(place, OFFLINE)
    broken = {"rig": CPU, "at": FIRST + timedelta(days=1), "value": {"60": 1.5}, "broken": True}
    place.database.metrics.insert_many([broken | {"_id": "b1"}, broken | {"_id": "b2", "rig": NETWORK}])
    assert place("run", now=_at(LAST + 90 * GRACE)).code == 3
    it.asked = QUESTIONS[::3]
    it.check(DOCUMENTS)
    rows = {row["day"]: row for row in it.rows()}
    assert rows["2014-02-15"]["quarantined"] == 2
    assert rows["2014-02-15"]["state"] == "archived"
    (of_cpu,) = it.rows("--since", "2014-02-15", "--until", "2014-02-16", "--series", f"rig={CPU}")
    assert of_cpu["quarantined"] == 1


@pytest.mark.proof
def test_what_is_only_summarised_expired_or_missing(place: Place) -> None:
    retain = '[policies.metrics.retain]\nhourly = "60d"\ndaily = "90d"\ngrace = "0s"\n'
    it = Counted(place, f'to = "none"\n{retain}')
    assert place("run", now="2014-03-10T00:00:00Z").code == 0
    place.database.metrics.delete_many({"rig": CPU})
    states = {row["day"]: row["state"] for row in it.rows("--until", "2014-03-01")}
    days = {day for day, _, rig in counted(DOCUMENTS) if rig == CPU}
    assert {day: states[day] for day in days} == dict.fromkeys(days, "summarised")
    assert states["2014-02-25"] == "gap"
    counts = counted(DOCUMENTS)
    for row in it.rows("--until", "2014-03-01", "--by", "hour"):
        assert row["summarised"] == summed(counts, row, None)
        assert row["readings"] == row["live"] == 0
    assert place("run", now="2014-05-01T00:00:00Z").code == 0
    by_hour = it.rows("--until", "2014-02-18", "--by", "hour")
    assert {(row["state"], row["summarised"]) for row in by_hour} == {("summarised", None)}, "by days alone"
    assert place("run", now="2014-06-10T00:00:00Z").code == 0
    assert {row["state"] for row in it.rows("--since", "2014-02-14", "--until", "2014-02-20")} == {"expired"}


def test_rows_are_whole_and_those_asked_for(place: Place) -> None:
    it = Counted(place, OFFLINE)
    asked = it.rows("--since", "2014-02-13T12:00", "--until", "2014-02-15T00:00:01")
    assert [row["day"] for row in asked] == ["2014-02-13", "2014-02-14", "2014-02-15"]
    assert asked[0]["state"] == "gap"
    hours = it.rows("--since", "2014-02-14T22:30", "--until", "2014-02-15T01:00", "--by", "hour")
    assert [(row["day"], row["hour"]) for row in hours] == [
        ("2014-02-14", 22), ("2014-02-14", 23), ("2014-02-15", 0),
    ]  # fmt: skip
    whole = it.rows()
    assert {row["state"] for row in (whole[0], whole[-1])} == {"live"}, "gaps at the ends are left out"
    ran = place("coverage", "--series", "rig=nobody")
    assert (ran.code, "rig=nobody" in ran.err) == (2, True), ran


@pytest.mark.proof
def test_a_commit_without_the_series_is_none_of_its(place: Place) -> None:
    """Manifests tell which series a commit may hold, so that nothing has to be rolled up to know."""
    it = Counted(place, OFFLINE)
    place("run", now=_at(DUE))
    late = {"_id": "late", "rig": NETWORK, "at": FIRST + timedelta(days=1), "value": {"1": 1.5}}
    place.database.metrics.insert_one(late)
    (row,) = it.rows("--series", f"rig={NETWORK}", "--since", "2014-02-15", "--until", "2014-02-16")
    assert (row["state"], row["live"], row["archived"], row["readings"]) == ("live", 1, 0, 1)
    assert row["commits"] == []
    (other,) = it.rows("--series", f"rig={CPU}", "--since", "2014-02-15", "--until", "2014-02-16")
    assert (other["state"], other["live"], len(other["commits"])) == ("archived", 0, 1)


@pytest.mark.proof
def test_what_people_see(place: Place) -> None:
    it = Counted(place, OFFLINE)
    place("run", now=_at(DUE))
    shown = place("coverage").out
    assert "Coverage of metrics" in shown
    strip = next(line for line in shown.splitlines() if line.startswith("2014-02  "))
    assert len(strip.removeprefix("2014-02  ")) == 28
    by_state = {"live": "L", "archived": "A", "gap": ".", "both": "B"}
    february = [by_state[row["state"]] for row in it.rows() if row["day"].startswith("2014-02")]
    assert strip.split()[1] == "".join(february)
    lines = place("coverage", "--format", "csv").out.splitlines()
    assert lines[0] == (
        "policy,day,state,readings,live,archived,online,summarised,live_buckets,pinned,held,quarantined,"
        "commits,expires_at"
    )
    rows = it.rows()
    assert len(lines) == len(rows) + 1
    for line, row in zip(lines[1:], rows, strict=True):
        cells = line.split(",")
        assert cells[:6] == [
            "metrics",
            row["day"],
            row["state"],
            *(str(row[key]) for key in ("readings", "live", "archived")),
        ]
        assert cells[-2].split() == [commit["commit"] for commit in row["commits"]]
        assert cells[-1] == ""
    day = ("--by", "hour", "--since", "2014-02-14", "--until", "2014-02-15")
    assert "2014-02-14 22h" in place("coverage", "--full", *day).out
    ranges = place("coverage", *day).out
    assert "2014-02-14 23h" in ranges and "2014-02-14 22h" not in ranges
    assert shown.count("\n") < len(rows)


@pytest.mark.proof
def test_commits_are_those_whose_manifests_hold_the_day(place: Place) -> None:
    it = Counted(place, OFFLINE)
    place("run", now=_at(DUE))
    told: dict[tuple[str, str], int] = {}
    for path in (place.folder / "store" / "metrics" / "meta" / "manifests").glob("*.json"):
        manifest = json.loads(path.read_text())
        told |= {(part["dt"], manifest["commit"]): part["rows"] for part in manifest["parts"]}
    rows = it.rows()
    found = {(row["day"], one["commit"]): one["readings"] for row in rows for one in row["commits"]}
    assert found == told != {}
    first = next(one for row in rows for one in row["commits"])
    assert (first["committed_at"], first["verified_at"], first["drilled_at"]) == (
        "2014-03-18T05:00:00Z",
        "2014-03-18T05:00:00Z",
        None,
    )
    later = "2014-03-21T05:00:00Z"
    assert place("drill", "--days", "99", now=later).code == 0
    proven = [one for row in it.rows() for one in row["commits"]]
    assert {(one["verified_at"], one["drilled_at"]) for one in proven} == {(later, later)}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["--by", "week"], ["--by", "week"]),
        (["--series", "symbol"], ["--series symbol", "FIELD=VALUE"]),
        (["--since", "noon"], ["--since", "'noon'"]),
        (["--since", "2014-02-15", "--until", "2014-02-15"], ["not before"]),
        (["--format", "parquet"], ["--format", "parquet"]),
        (["--format", "csv", "--json"], ["--json", "--format csv"]),
        (["--series", "sym=1"], ["--series sym", "no such series field", "symbol"]),
        (["--since", "0001-01-01", "--until", "9999-01-01"], ["3,651,694 rows", "50,000 at most", "--since"]),
    ],
    ids=" ".join,
)
def test_bad_input_is_refused(untouched: Place, arguments: list[str], fragments: list[str]) -> None:
    ran = untouched("coverage", "-p", "ticks", *arguments)
    assert ran.code == 2
    for fragment in fragments:
        assert fragment in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.proof
def test_the_ends_of_the_calendar(place: Place) -> None:
    it = Counted(place, OFFLINE)
    place("run", now=_at(DUE))
    for day in ("0001-01-01", "0001-01-08", "9999-12-24", "9999-12-31"):
        for by, count in (("day", 1), ("hour", 24)):
            rows = it.rows("--since", day, "--until", f"{day}T23:59:59", "--by", by)
            assert [row["day"] for row in rows] == [day] * count
            assert {row["state"] for row in rows} == {"gap"}


def test_nothing_at_all(place: Place) -> None:
    it = Counted(place, OFFLINE)
    place.database.drop_collection("metrics")
    assert it.rows() == []
    assert "metrics: nothing is known about this range" in place("coverage").out
