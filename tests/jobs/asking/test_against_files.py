"""`plan --against` from outside: what runs then do, what is refused, and what is said to be lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bucketwise.config.load import load
from bucketwise.jobs.plan.verb import against_step
from tests.jobs.command import Ran
from tests.jobs.counting import run_counted
from tests.jobs.place import MINUTES, NOW, POLICIES, START, Place
from tests.jobs.states import after

Document = dict[str, Any]
AFTER_90_DAYS = "2018-11-30T00:00:00Z"
DAY = timedelta(days=1)
#: Between the two cutoffs of the files here: expired after 30 days, and not after 90.
OLD_FILE = POLICIES.replace('after = "30d"', 'after = "90d"')


def write_new(place: Place, policies: str) -> None:
    """Writes a file of these policies beside the policy file."""
    text = place.config.read_text()
    place.write_config(policies)
    place.config.rename(place.folder / "new.toml")
    place.config.write_text(text)


def against(place: Place, policies: str, *arguments: str, now: str = NOW) -> Ran:
    """Compares the policy file with one of these policies."""
    write_new(place, policies)
    return place("plan", "--against", "new.toml", *arguments, now=now)


def compared(place: Place, policies: str, name: str = "ticks", now: str = NOW) -> Document:
    ran = against(place, policies, "--json", "-p", name, now=now)
    assert ran.code == 0, ran
    return ran.policy(name)


def run_new(place: Place, now: str, name: str = "ticks") -> Ran:
    return place("run", "--json", "--config", "new.toml", "-p", name, now=now)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("name", "grace"),
    [
        ("ticks", "2d"),
        ("iot", "0s"),
        pytest.param("ticks", "0s", marks=pytest.mark.proof),
        pytest.param("iot", "2d", marks=pytest.mark.proof),
    ],
)
def test_it_is_what_runs_of_that_file_then_do(place: Place, name: str, grace: str) -> None:
    place.write_config(OLD_FILE)
    place.database[name].insert_many(_later(name))
    said = compared(place, POLICIES.replace('to = "', f'grace = "{grace}"\nto = "'), name)
    assert said["now"]["today"]["archived"] == said["now"]["today"]["deleted"] == 0
    kept = place.database[name].count_documents({})
    for key, now in (("now", NOW), ("in_90_days", AFTER_90_DAYS)):
        at = datetime.fromisoformat(now)
        for earlier in () if key == "now" else (DAY * 10, DAY * 2):
            assert run_new(place, (at - earlier).isoformat(), name).code == 0
        archived = run_new(place, now, name).policy(name)["archive"]
        if key == "now":
            assert archived["buckets"] == said[key]["against"]["archived"] > 0
        assert place.database[name].count_documents({}) == said[key]["against"]["kept"]
        assert kept - said[key]["against"]["deleted"] == said[key]["against"]["kept"]


def _later(name: str) -> list[Document]:
    """A bucket every week, for three months from July on, and daily in the days where it ends."""
    days = [START + DAY * it for it in (*range(2, 86, 7), *range(86, 100, 2))]
    if name == "ticks":
        return [{"symbol": "MDB", "d": at, "p": {"0": 1.5}} for at in days]
    return [{"sensor": 7, "at": at, "t": 1.5} for at in days]


def copied(place: Place) -> None:
    place.write_config(POLICIES.replace('to = "', 'grace = "2d"\nto = "'))
    assert place("run", now="2018-08-30T00:00:00Z").code == 0


@pytest.mark.proof
@pytest.mark.parametrize("name", ["ticks", "iot"])
@after(copied)
def test_copies_whose_grace_is_over_count_as_deleted(place: Place, name: str) -> None:
    for grace, now, is_over in (("2d", "2018-08-31", False), ("1h", "2018-08-31", True), ("2d", NOW, True)):
        said = compared(place, POLICIES.replace('to = "', f'grace = "{grace}"\nto = "'), name, now=now)["now"]
        count = place.database[name].count_documents({})
        assert said["against"]["archived"] == count
        assert said["against"]["deleted"] == (count if is_over else 0), (grace, now)


@pytest.mark.proof
@after("run -p iot")
def test_it_changes_nothing(place: Place) -> None:
    stood = place.everything()
    against(place, OLD_FILE, "--json")
    there = place.everything()
    assert there.pop("new.toml")
    assert there == stood


@pytest.mark.proof
def test_delete_where_it_was_false(place: Place) -> None:
    place.write_config(POLICIES.replace('to = "offline"', 'to = "offline"\ndelete = false'))
    place("run", "-p", "ticks")
    said = compared(place, POLICIES)
    assert said["now"]["today"] | {"deleted": MINUTES, "kept": 0} == said["now"]["against"]
    assert said["irreversible"] == [
        f"policy ticks: archive.delete (false → not set): more buckets are deleted, {MINUTES} at once and "
        f"{MINUTES} within 90 days: only a restore brings them back"
    ]
    assert run_new(place, NOW).code == 0
    assert place.database.ticks.count_documents({}) == 0


@pytest.mark.proof
@after("run -p ticks")
def test_pinned_buckets_stay_until_their_time(place: Place) -> None:
    place("restore", "-p", "ticks", "--to", "ticks", "--keep-for", "30d")
    said = compared(place, OLD_FILE)
    assert said["now"]["today"]["deleted"] == 0
    assert said["in_90_days"]["today"]["deleted"] == said["in_90_days"]["against"]["deleted"] == MINUTES


@pytest.mark.proof
@after("run -p iot")
def test_what_a_hold_covers_stays(place: Place) -> None:
    held = (
        "--since",
        "2018-06-30",
        "--until",
        "2018-06-30T01:00:00Z",
        "--reason",
        "case 17",
        "--freeze",
        "-y",
    )
    for name, series in (("ticks", "symbol=MDB"), ("iot", "sensor=7")):
        assert place("hold", "add", f"{name}-17", "-p", name, "--series", series, *held).code == 0
    changed = POLICIES.replace(
        "[policies.iot.archive]", '[policies.iot.retain]\nhourly = "40d"\n[policies.iot.archive]'
    )
    said = compared(place, changed)
    for key in ("now", "in_90_days"):
        assert said[key]["today"]["archived"] == said[key]["against"]["deleted"] == MINUTES - 60
    assert compared(place, changed, "iot")["now"]["against"]["summaries"] == {"hourly": 2}


@pytest.mark.proof
def test_what_ends_at_the_cutoff_has_not_expired(place: Place) -> None:
    place.write_config(OLD_FILE)
    for second, archived in ((59, MINUTES - 1), (60, MINUTES)):
        now = START + timedelta(days=30, minutes=MINUTES - 1, seconds=second)
        policies = POLICIES.replace(
            '[policies.ticks.rollup]\nhourly = "ticks_hourly"\ndaily = "ticks_daily"\n', ""
        )
        policies = policies.replace('[policies.ticks.retain]\nhourly = "365d"\n', "")
        assert compared(place, policies, now=now.isoformat())["now"]["against"]["archived"] == archived


@pytest.mark.proof
@after("run")
def test_summaries_that_go_sooner(place: Place) -> None:
    said = compared(place, POLICIES.replace('hourly = "365d"', 'hourly = "40d"\ndaily = "120d"'))
    assert [said[key]["difference"]["summaries"] for key in ("now", "in_90_days")] == [
        {"hourly": 3, "daily": 0},
        {"hourly": 3, "daily": 1},
    ]
    after = (
        "once a tombstone has stood for retain.grace they are removed, and made again only of readings that "
        "are live or archived"
    )
    assert said["irreversible"] == [
        'policy ticks: retain.hourly ("1y" → "40d"): more hourly summaries are past it, 3 at once and 3 '
        f"within 90 days: {after}",
        'policy ticks: retain.daily (not set → "120d"): more daily summaries are past it, 1 within 90 days: '
        f"{after}",
    ]
    assert run_new(place, NOW).policy("ticks")["expiry"]["waiting"] == {"hourly": 3, "daily": 0}


@pytest.mark.proof
@after("run")
def test_what_is_rolled_up_anew(place: Place) -> None:
    place.database.ticks.insert_one(
        {"symbol": "MDB", "d": datetime(2018, 8, 31, tzinfo=UTC), "p": {"0": 1.5}}
    )
    changed = POLICIES.replace('daily = "ticks_daily"', 'daily = "ticks_daily"\npercentiles = [50]')
    said = compared(place, changed)["anew"]
    assert said["levels"] == ["hourly", "daily"]
    assert (said["live_buckets"], said["archived_buckets"]) == (1, MINUTES)
    assert said["archived_readings"] == MINUTES * 60
    assert said["archived_bytes"] > MINUTES * 60 * 8
    assert said["standing"] == {"hourly": 3, "daily": 1}
    assert said["lost"] == {"hourly": 0, "daily": 0}
    assert compared(place, changed, "iot")["anew"] is None


@pytest.mark.proof
def test_summaries_whose_readings_are_gone(place: Place) -> None:
    place.write_config(POLICIES.replace('to = "offline"', 'to = "none"'))
    place("rollup", "-p", "ticks")
    place.database.ticks.delete_many({"d": {"$lt": START + timedelta(hours=2)}})
    changed = POLICIES.replace("[policies.ticks.rollup]", '[policies.ticks.rollup]\ntimezone = "Asia/Tokyo"')
    said = compared(place, changed.replace('to = "offline"', 'to = "none"'))
    assert said["anew"]["lost"] == {"hourly": 2, "daily": 0}
    (sentence,) = said["irreversible"]
    assert (
        'rollup.timezone (not set → "Asia/Tokyo"): 2 hourly summaries before 2018-06-30T02:00:00Z' in sentence
    )


def test_levels_that_are_dropped_or_new(place: Place) -> None:
    level = '[[policies.iot.rollup.levels]]\nname = "{}"\ncollection = "iot_more"\n'
    place.write_config(POLICIES + level.format("15m"))
    place("run", "-p", "iot")
    said = compared(place, POLICIES + level.format("weekly"), "iot")
    assert said["anew"]["levels"] == ["weekly"]
    assert said["anew"]["everything"] is False
    assert said["anew"]["live_buckets"] == said["anew"]["archived_buckets"] == 0
    assert said["dropped"] == {"15m": 12}
    assert "12 15m summaries stay as they are: nothing updates or removes them" in said["irreversible"][0]


def test_fields_that_fit_no_more(place: Place) -> None:
    said = compared(place, POLICIES.replace('value_fields = ["p"]', 'value_fields = ["q"]'))
    assert "none has slots at `q`" in said["stops"]["against"][0]
    assert said["stops"]["today"] == []
    assert said["now"]["against"]["archived"] == said["in_90_days"]["against"]["archived"] == 0
    assert said["now"]["today"]["archived"] == MINUTES


def test_buckets_that_break_the_changed_model(place: Place) -> None:
    late = START + timedelta(hours=2)
    place.database.iot.update_many({"at": {"$lt": late}}, {"$set": {"room": "hall"}})
    changed = POLICIES.replace('series_fields = ["sensor"]', 'series_fields = ["sensor", "room"]')
    said = compared(place, changed, "iot")
    assert (said["now"]["today"]["quarantined"], said["now"]["against"]["quarantined"]) == (0, 6)
    assert (said["now"]["against"]["archived"], said["now"]["against"]["kept"]) == (12, 6)
    assert said["irreversible"] == [
        'policy iot: series_fields (["sensor"] → ["sensor", "room"]): 6 more buckets break their model: they '
        "are left out and stay"
    ]
    assert run_new(place, NOW, "iot").policy("iot")["archive"]["quarantined"] == 6


@pytest.mark.proof
@after("run")
def test_another_kind_of_archive(place: Place) -> None:
    said = compared(place, POLICIES.replace('to = "offline"', 'to = "none"'))
    assert "buckets lie in its offline archive" in said["stops"]["against"][0]
    assert run_new(place, NOW).policy("ticks")["exit_code"] == 1


def test_a_limit_that_stops(place: Place) -> None:
    said = compared(place, POLICIES.replace('to = "offline"', 'to = "offline"\nmax_delete = "20%"'))
    assert "it would delete 180 of the 180 buckets of ticks" in said["stops"]["against"][0]
    assert said["now"]["against"]["deleted"] == MINUTES
    assert run_new(place, NOW).policy("ticks")["exit_code"] == 5


def test_policies_of_one_file_alone(place: Place) -> None:
    renamed = POLICIES.replace("policies.iot", "policies.heat").replace("iot_hourly", "heat_hourly")
    ran = against(place, renamed, "--json")
    assert [it["policy"] for it in ran.json["policies"]] == ["ticks", "iot", "heat"]
    gone, new = ran.policy("iot"), ran.policy("heat")
    assert (gone["only_in"], new["only_in"], ran.policy("ticks")["only_in"]) == ("today", "against", None)
    assert gone["now"]["today"] == new["now"]["against"]
    nothing = gone["now"]["against"]
    assert nothing.pop("summaries") == {}
    assert set(nothing.values()) == {0}
    alone = place("plan", "--against", "new.toml", "--json", "-p", "heat")
    assert [it["policy"] for it in alone.json["policies"]] == ["heat"]


def test_the_table(place: Place) -> None:
    place.write_config(OLD_FILE)
    ran = against(place, POLICIES)
    assert ran.code == 0
    for text in (
        "Policy ticks",
        "today",
        "against",
        "difference",
        "in 90 days",
        f"+{MINUTES}",
        f"-{MINUTES}",
    ):
        assert text in ran.out, text
    assert 'cannot be undone: policy ticks: archive.after ("90d" → "30d")' in " ".join(ran.out.split())


BAD = {
    "none": (["--against", "none.toml"], "--against none.toml: there is no such file"),
    "itself": (["--against", "./bucketwise.toml"], "it is the policy file itself"),
    "policy": (["--against", "new.toml", "-p", "tick"], "no such policy. Did you mean ticks?"),
    "workers": (["--against", "new.toml", "--workers", "2"], "neither --workers nor --executor"),
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("case", BAD)
def test_bad_usage(place: Place, case: str) -> None:
    arguments, message = BAD[case]
    write_new(place, POLICIES)
    ran = place("plan", *arguments)
    assert ran.code == 2
    assert message in " ".join(ran.err.split())
    assert ran.connected == []


BAD_FILES = {
    "no TOML": ("[policies.ticks", "new.toml"),
    "a value": (POLICIES.replace('"30d"', '"30 days"'), "archive.after"),
    "a key": (POLICIES.replace("after =", "aftr ="), "after"),
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file(place: Place, case: str) -> None:
    policies, named = BAD_FILES[case]
    ran = against(place, policies, "--json")
    assert ran.code == 2
    assert {it["file"] for it in ran.json["problems"]} == {"new.toml"}
    assert named in ran.out
    assert ran.connected == []


def test_another_place(place: Place) -> None:
    write_new(place, POLICIES)
    other = place.folder / "new.toml"
    text = other.read_text()
    changes = {
        "mongodb.database": text.replace(place.database.name, "elsewhere"),
        "store.url": text.replace("/store", "/store2"),
        "mongodb.uri": text.replace("${MONGODB_URI}", "mongodb://me:secret@elsewhere:1/?replicaSet=rs0"),
    }
    for name, changed in changes.items():
        other.write_text(changed)
        ran = place("plan", "--against", "new.toml")
        assert ran.code == 2
        assert f"{name} is " in ran.err
        assert "elsewhere" in ran.err or "store2" in ran.err
        assert "secret" not in ran.err
        assert ran.connected == []


@pytest.mark.proof
@pytest.mark.parametrize("many", [5, pytest.param(12, marks=pytest.mark.proof)])
def test_it_costs_the_same_after_many_commits(place: Place, many: int) -> None:
    write_new(place, OLD_FILE)
    files = [load(place.folder / it, {"MONGODB_URI": place.uri}) for it in ("bucketwise.toml", "new.toml")]
    costs = []
    for days in (range(2), range(2, many)):
        for day in days:
            at = START + DAY * day
            place.database.ticks.insert_one({"symbol": "MDB", "d": at, "p": {"0": 1.5}})
            assert place("run", "-p", "ticks").code == 0
        policies, now = list(files[0].policies.values()), datetime.fromisoformat(NOW)
        step, name = against_step(*files), place.database.name
        results, counts = run_counted(place.uri, name, [step], policies, None, now, dry_run=True)
        assert [it.error for it in results] == [None, None]
        costs.append((counts.commands, counts.documents))
    assert place.database.bucketwise_receipts.count_documents({"kind": "offline"}) >= many
    assert costs[0] == costs[1]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("today", "new", "is_said"),
    [
        ("", 'archive = "2y"\n', True),
        ('archive = "3y"\n', 'archive = "2y"\n', True),
        ('archive = "2y"\n', 'archive = "3y"\n', False),
        ('archive = "2y"\n', "", False),
    ],
)
def test_an_earlier_end_of_the_archive_is_said_to_be_for_good(
    place: Place, today: str, new: str, is_said: bool
) -> None:
    retain = "[policies.ticks.retain]\n"
    place.write_config(POLICIES.replace(retain, retain + today))
    said = compared(place, POLICIES.replace(retain, retain + new))["irreversible"]
    assert any("what is archived longer is removed for good" in it for it in said) is is_said
