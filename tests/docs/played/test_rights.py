"""The roles that rights.md shows are enough, and nothing in them is too much, on a server that asks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from bucketwise.jobs.check.verb import OWN_COLLECTIONS
from bucketwise.jobs.suite import all_jobs
from tests.docs.pages import ROOT, blocks
from tests.docs.rights import (
    DATABASE,
    FRESH,
    MORE,
    READING,
    READINGS,
    RIGHTS,
    START,
    Client,
    Market,
    Right,
    rights,
    role,
    whole_cycle,
)
from tests.jobs.command import CommandLine, Ran, started
from tests.tiers import tier

STREAM = rights("stream")
FULL = {"ticks": rights("restore"), "iot": rights("restore_online")}
READ = rights("read")


@pytest.fixture
def market(asking_mongod: Client, tmp_path: Path, bucketwise: CommandLine) -> Iterator[Market]:
    database = asking_mongod[DATABASE]
    database.command({"createRole": "granted", "privileges": [], "roles": []})
    database.command("createUser", "bucketwise", pwd="s3cret", roles=["granted"])
    (policies,) = [it for it in blocks(ROOT / "README.md") if it.language == "toml"]
    scheduled = policies.text.replace("[policies.ticks]\n", '[policies.ticks]\nschedule = "15 * * * *"\n')
    (tmp_path / "bucketwise.toml").write_text(
        scheduled.replace('slot = "second"', 'slot = "second"\nsparse_ok = true') + MORE
    )
    assert asking_mongod.address is not None
    host, port = asking_mongod.address
    environment = {
        "MONGODB_URI": f"mongodb://bucketwise:s3cret@{host}:{port}/?replicaSet=rs0&authSource=market",
        "BUCKETWISE_STORE_URL": (tmp_path / "store").as_uri(),
    }
    it = Market(asking_mongod, tmp_path, bucketwise, environment)
    it.lay_out()
    yield it
    database.command("dropAllUsersFromDatabase")
    database.command("dropAllRolesFromDatabase")
    asking_mongod.drop_database(DATABASE)


def for_weather(granted: list[Right]) -> list[Right]:
    """What the page says of a native time-series collection: as for ticks, without the delete."""
    renamed = [Right(it.collection.replace("ticks", "weather"), it.action) for it in granted]
    return [it for it in renamed if it != Right("weather", "remove")]


@pytest.mark.proof
def test_the_page_shows_roles_that_the_server_takes(market: Market) -> None:
    database = market.database
    for name in (
        "read_books",
        "books",
        "read",
        "run",
        "stream",
        "restore",
        "online",
        "restore_online",
        "hold",
        "pause",
        "advise",
        "remodel",
    ):
        shown = role(name)
        database.command(
            {"createRole": shown["role"], "privileges": shown["privileges"], "roles": shown["roles"]}
        )


@pytest.mark.proof
@pytest.mark.parametrize("policy", ["ticks", "iot", "weather"])
def test_they_are_enough(market: Market, policy: str) -> None:
    full = for_weather(FULL["ticks"]) if policy == "weather" else FULL[policy]
    market.allow([*full, *STREAM] if policy != "iot" else full)
    for ran in whole_cycle(market, policy):
        assert ran.code in (0, 3), ran
        if ran.json["command"] == "check":
            severities = {it["severity"] for it in [*ran.json["findings"], *ran.policy(policy)["findings"]]}
            assert severities <= {"ok", "warning"}, ran
            assert "privilege-missing" not in str(ran)
    assert ran.code == 0
    assert readings(market, policy) == READINGS[policy]


def readings(market: Market, policy: str) -> int:
    ran = market("readings", "-p", policy, *READING["readings"])
    assert ran.code in (0, 3), ran
    found = ran.policy(policy)["readings"]
    assert isinstance(found, int)
    return found


@pytest.mark.proof
@pytest.mark.parametrize(("policy", "series"), [("ticks", "symbol=MDB"), ("iot", "sensor=7")])
def test_they_are_enough_to_erase(market: Market, policy: str, series: str) -> None:
    market.allow(rights("run") if policy == "ticks" else rights("online"))
    assert market("run", "-p", policy).code == 3  # it finds the bad bucket
    ran = market("erase", "-p", policy, "--series", series, "--reason", "why", "--confirm", policy)
    assert ran.code == 0, ran
    assert ran.policy(policy)["buckets"] == 5
    assert market("readings", "-p", policy, *READING["readings"]).policy(policy)["readings"] == 0


@pytest.mark.proof
def test_the_service_needs_no_more(market: Market) -> None:
    market.allow([*rights("run"), *STREAM])
    market.database.ticks.delete_one({"_id": "bad"})
    with started("schedule", "-p", "ticks", cwd=market.folder, **market.environment) as service:
        assert service.stderr is not None
        (ended,) = [next(line for line in service.stderr if "run ended" in line or "run failed" in line)]
        assert "outcome=done" in ended
    assert market.database.ticks.count_documents({}) == 0


@pytest.mark.proof
def test_who_limits_the_lag_may_ask_for_it(market: Market) -> None:
    """Without that right `check` says so, and a run changes nothing."""
    file = market.folder / "bucketwise.toml"
    file.write_text(file.read_text() + '[throttle]\nmax_lag = "10s"\n')
    market.allow([*rights("run"), *STREAM])
    told = [it for it in market("check").policy("ticks")["findings"] if it["code"] == "lag-unreadable"]
    assert [(it["severity"], "replSetGetStatus" in it["message"]) for it in told] == [("error", True)]
    ran = market("run", "-p", "ticks")
    assert (ran.code, "replSetGetStatus" in ran.policy("ticks")["error"]) == (1, True)
    assert market.database.ticks.count_documents({}) == 5
    assert market.database.ticks_hourly.count_documents({}) == 0
    assert market("run", "-p", "ticks", "--no-throttle").code == 3  # there is a bad bucket
    market.lay_out()
    (block,) = [it for it in blocks(RIGHTS) if "bucketwise_lag" in it.text]
    shown = re.search(r"createRole\((.*)\)", block.text, re.DOTALL)
    assert shown
    admin, granted = market.client.admin, json.loads(shown[1])
    admin.command({"createRole": granted.pop("role"), **granted})
    try:
        role = {"role": "bucketwise_lag", "db": "admin"}
        market.database.command({"grantRolesToUser": "bucketwise", "roles": [role]})
        assert "lag-unreadable" not in market("check").out
        assert market("run", "-p", "ticks").code == 3
        assert market.database.ticks.count_documents({}) == 1
    finally:
        admin.command("dropRole", "bucketwise_lag")


NEEDED = [(policy, right) for policy, granted in FULL.items() for right in granted]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("policy", "right"),
    [pytest.param(*it, marks=tier(is_first=at == 0, is_proof=True)) for at, it in enumerate(NEEDED)],
)
def test_none_is_too_much(market: Market, policy: str, right: Right) -> None:
    """Without this right something fails and says so; nothing is lost, and with it all is done."""
    full = FULL[policy]
    market.allow([it for it in full if it != right])
    run_needs = rights("run") if policy == "ticks" else rights("online")
    for ran in whole_cycle(market, policy):
        if ran.json["command"] == "check":
            findings = ran.policy(policy)["findings"]
            told = {it["place"]: it["message"] for it in findings if it["code"] == "privilege-missing"}
            if right in run_needs and right.action != "collStats":  # without it a run tells no sizes
                assert ran.code == 1 and f"lacks {right.action} " in told[right.collection or DATABASE], ran
            else:
                assert "privilege-missing" not in str(ran)
        elif ran.code not in (0, 3):
            check_refused(ran, right)
            break
    else:
        # Of an online archive only `check` asks which indexes it has.
        assert right.action == "listIndexes" and "archive" in str(right.collection), f"nothing needs {right}"
    market.allow(full)
    assert market("run", "-p", policy, now=ran.json["now"]).code in (0, 3)
    assert readings(market, policy) == READINGS[policy]
    assert market("verify", "-p", policy).code == 0


def check_refused(ran: Ran, right: Right) -> None:
    said = ran.json["policies"][0]["error"]
    place = f"{DATABASE}.{right.collection}" if right.collection else DATABASE
    assert ran.code == 1 and "the user may not " in said and f" in {place}" in said, ran
    assert "bucketwise check" in said and len(said) < 250
    assert "Traceback" not in ran.err and "s3cret" not in ran.out + ran.err


@pytest.mark.proof
def test_who_reads_needs_these_rights_and_no_others(market: Market) -> None:
    market.allow(FULL["ticks"])
    market.database.ticks.delete_one({"_id": "bad"})
    assert market("run", "-p", "ticks").code == 0
    running: dict[str, object] = {
        "ended": None,
        "outcome": "running",
        "host": {},
    }  # does it live? The lease knows
    market.database.bucketwise_runs.update_one({}, {"$set": running})
    for right in [None, *READ]:
        market.allow([it for it in READ if it != right])
        for verb, arguments in READING.items():
            ran = market(verb, "-p", "ticks", *(it.format(policy="ticks") for it in arguments))
            if right is None:
                assert ran.code == 0, ran
            elif ran.code != 0:
                check_refused(ran, right)
                break
        else:
            assert right is None, f"nothing needs {right}"
    market.allow(READ)
    assert market("run", "-p", "ticks").code == 1
    assert market.database.bucketwise_lease.count_documents({"holder": {"$ne": None}}) == 0


HOLD, UNDELETE = rights("hold"), rights("undelete")


@pytest.mark.proof
@pytest.mark.parametrize("right", [None, *(it for it in HOLD if it not in rights("read_books"))])
def test_who_places_holds_needs_these_rights_and_no_others(market: Market, right: Right | None) -> None:
    market.allow([it for it in HOLD if it != right])
    for arguments in (("add", "case-17", "--reason", "why"), ("list",), ("release", "case-17")):
        ran = market("hold", *arguments, "-p", "ticks")
        if ran.code != 0:
            assert right is not None
            check_refused(ran, right)
            break
    else:
        assert right is None, f"nothing needs {right}"
    market.allow(HOLD)
    assert market("run", "-p", "ticks").code == 1


@pytest.mark.proof
def test_who_lifts_tombstones_needs_no_right_to_place_holds(market: Market) -> None:
    config = market.folder / "bucketwise.toml"
    config.write_text(config.read_text().replace('hourly = "730d"', 'archive = "31d"\nhourly = "63d"'))
    market.allow(FULL["ticks"])
    for now in ("2018-08-30", "2018-09-01"):
        assert market("run", "-p", "ticks", now=now).code == 3  # something is quarantined
    market.database.bucketwise_progress.update_one(
        {"_id": {"summaries": "ticks"}}, {"$set": {"tombstones.hourly.placed.0.before": FRESH}}
    )
    market.allow([it for it in UNDELETE if it.collection != "bucketwise_holds"])
    ran = market("undelete", "-p", "ticks", now="2018-09-03")
    lifted = ran.policy("ticks")
    assert ran.code == 0, ran
    assert (lifted["days"], lifted["summaries"] > 0) == (1, True)


PAUSE = rights("pause")


@pytest.mark.proof
def test_who_pauses_policies_needs_these_rights_and_no_others(market: Market) -> None:
    pause = ("pause", "--reason", "why", "-p", "ticks")
    for right in (it for it in PAUSE if it not in rights("read_books")):
        market.allow([it for it in PAUSE if it != right])
        check_refused(market(*pause), right)
    market.allow(PAUSE)
    assert (market(*pause).code, market("resume", "-p", "ticks").code) == (0, 0)
    assert market("run", "-p", "ticks").code == 1


RETIRE = rights("retire")


@pytest.mark.proof
def test_who_retires_policies_needs_these_rights_and_no_others(market: Market) -> None:
    market.allow(FULL["ticks"])
    assert market("run", "-p", "ticks").code == 3  # something is quarantined
    config = market.folder / "bucketwise.toml"
    config.write_text(config.read_text().replace("policies.ticks", "policies.prices"))
    for right in (it for it in RETIRE if it not in rights("read_books")):
        market.allow([it for it in RETIRE if it != right])
        check_refused(market("retire", "ticks", "--reason", "why"), right)
    market.allow(RETIRE)
    assert market("retire", "ticks", "--reason", "why").code == 0


@pytest.mark.proof
def test_who_advises_needs_these_rights_and_no_others(market: Market) -> None:
    def advise(policy: str, granted: list[Right]) -> list[Ran]:
        market.allow(granted)
        asked = (("--no-candidates",), ("--shard-keys", "place"))
        return [market("advise", policy, *it, now=None) for it in asked]

    market.database.ticks.create_index("note")
    full = rights("advise")
    native = [*for_weather(full), Right("system.buckets.weather", "collStats")]
    assert [it.code for it in advise("weather", native)] == [0, 0]
    market.database.loose.insert_many(
        {"_id": it, "d": START + timedelta(minutes=it), "s": "a", "p": it / 2} for it in range(90)
    )
    loose = [Right(it.collection.replace("ticks", "loose"), it.action) for it in full]
    ran, keys = advise("loose", loose)
    assert (ran.code, keys.code) == (0, 0)  # though others might hold its overflow
    assert "the user may not read it" in ran.json["arrival"]["told"]
    for right in [None, *full]:
        ran, keys = advise("ticks", [it for it in full if it != right])
        if right is None or right.action == "indexStats":
            assert (ran.code, keys.code) == (0, 0), (ran, keys)
            assert ("index-unused" in ran.out) == (right is None)
        else:
            assert ran.code == 1 and f"the user may not {right.action}" in ran.err, (right, ran)


@pytest.mark.proof
def test_who_remodels_needs_these_rights_and_no_others(market: Market) -> None:
    def remodel(granted: list[Right], model: str) -> Ran:
        """Writes, and compares; gives the first that fails."""
        for name in ("ticks_by_hour", "bucketwise_remodel", "bucketwise_lease"):
            market.database[name].drop()
        market.allow(granted)
        call = ("remodel", "ticks", "--to", model, "--into", "ticks_by_hour")
        ran = market(*call, now=None)
        return ran if ran.code else market(*call, now=None)

    market.database.ticks.delete_one({"_id": "bad"})
    full = rights("remodel")
    for model in ("reading", "timeseries"):
        assert remodel(full, model).json["equal"] is True
    for right in set(full) - {Right("ticks", "listIndexes")}:
        ran = remodel([it for it in full if it != right], "reading")
        assert ran.code == 1 and "the user may not" in ran.err, (right, ran)


@pytest.mark.proof
@pytest.mark.parametrize("right", STREAM)
def test_without_the_change_stream_late_readings_are_scanned_for(market: Market, right: Right) -> None:
    market.allow([*rights("run"), *(it for it in STREAM if it != right)])
    (found,) = market("check", "-p", "ticks").policy("ticks")["findings"]
    assert (found["code"], found["severity"]) == ("stream-unreadable", "warning")
    late = market("rollup", "-p", "ticks").policy("ticks")["late"]
    assert late["mode"] == "scan" and "the user is not authorized for it" in late["reason"]
    config = market.folder / "bucketwise.toml"
    text = config.read_text()
    config.write_text(
        text.replace("[policies.ticks.rollup]", '[policies.ticks.rollup]\nlate_data = "stream"')
    )
    (found,) = market("check", "-p", "ticks").policy("ticks")["findings"]
    assert (found["code"], found["severity"]) == ("stream-unreadable", "error")
    ran = market("rollup", "-p", "ticks")
    assert ran.code == 1
    assert "late_data" in str(ran.json) and "the user is not authorized for it" in str(ran.json)


def test_what_check_asks_for_is_what_the_page_grants() -> None:
    books = {(right.collection, right.action) for right in rights("books") if right.collection}
    assert books == {(name, action) for name, actions in OWN_COLLECTIONS.items() for action in actions}


def test_the_page_grants_what_jobs_do_in_collections_of_bucketwise() -> None:
    """Beside reading them. The role of some jobs is that of others, with what it has more."""
    roles = {"run": "books", "resume": "pause"}
    for job in (it for it in all_jobs() if it.rights):
        granted = {
            it["resource"]["collection"]: {*it["actions"]} - {"find"}
            for it in role(roles.get(job.name, job.name))["privileges"]
            if it["resource"]["collection"].startswith("bucketwise_")
        }
        assert granted == {name: {*actions} for name, actions in job.rights.items() if actions}, job.name
