"""The JSON that the pages of commands show has the keys that the commands print."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bucketwise.jobs.suite import ENTRIES
from tests.docs.pages import PAGES, blocks, headings
from tests.jobs.output.schemas import undeclared
from tests.jobs.place import NOW, POLICIES, START, Place
from tests.jobs.states import Step, after

_VERBS = {f"`{it}`" for it in ENTRIES}
PAGES_OF_VERBS = [page for page in PAGES if _VERBS.intersection(headings(page))]
SHOWN = {
    block.marks[0]: json.loads(block.text)
    for page in PAGES_OF_VERBS
    for block in blocks(page)
    if block.language == "json"
}


_COMMON = {"schema", "command", "exit_code", "now", "policies"}


def shape(value: Any) -> Any:
    """Keys, and types below them. Of a list its first element; None for what has nothing inside."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def differences(shown: Any, printed: Any, place: str) -> list[str]:
    if isinstance(shown, dict) and isinstance(printed, dict):
        if place.endswith(("counts", "id", "policies")):
            return []  # whatever the verb counts; whatever the application takes as `_id`; texts by SHA-256
        apart = [f"{place}.{key}" for key in shown.keys() ^ printed.keys()]
        return apart + [
            it
            for key in shown.keys() & printed.keys()
            for it in differences(shown[key], printed[key], f"{place}.{key}")
        ]
    if isinstance(shown, list) and isinstance(printed, list):
        return differences(shown[0], printed[0], f"{place}[]") if shown and printed else []
    if place.endswith(".id"):
        return []
    return [] if type(shown) is type(printed) and shown == printed else [f"{place}: {shown}, {printed}"]


def _break(place: Place) -> None:
    place.database.ticks.insert_one({"_id": 7, "symbol": "MDB", "d": START, "p": {"60": 1.5}})


def _leave(place: Place) -> None:
    """Something to archive whose windows are not rolled up, and something broken."""
    place("rollup")
    _break(place)
    young = START.replace(month=7, day=31)
    place.database.ticks.insert_one({"symbol": "MDB", "d": young, "p": {"0": 1.5}})


def _damage(place: Place) -> None:
    for part in place.folder.rglob("data/*/*.parquet"):
        part.write_bytes(b"x")


def _add_copy(place: Place) -> None:
    (place.folder / "b").mkdir()
    place.write_config(f'[[store.copies]]\nname = "b"\nurl = "{(place.folder / "b").as_uri()}"\n' + POLICIES)


def _copied(place: Place) -> None:
    _add_copy(place)
    place("run")


def _damage_once(place: Place) -> None:
    for part in (place.folder / "store").rglob("data/*/*.parquet"):
        part.write_bytes(b"x")


def _publish(place: Place) -> None:
    """It tells of none: the policy publishes nothing."""
    place.write_config('[publish.redis]\nurl = "redis://h"\n' + POLICIES)
    text = place.config.read_text().replace(
        "[policies.ticks.rollup]", "[policies.ticks.publish.redis]\nenabled = false\n[policies.ticks.rollup]"
    )
    place.config.write_text(text)


def _pause(place: Place) -> None:
    place("pause", "--reason", "The cluster is being moved")


def _register(place: Place) -> None:
    place.write_config("[lake]\n" + POLICIES)
    place("run")


def _change(place: Place) -> None:
    """Another policy file beside that of today, which archives later."""
    percentiles = POLICIES.replace('daily = "ticks_daily"\n', 'daily = "ticks_daily"\npercentiles = [50]\n')
    place.write_config(percentiles)
    place.config.rename(place.folder / "new.toml")
    place.write_config(POLICIES.replace('after = "30d"', 'after = "90d"'))
    place("run")


def _bury(place: Place) -> None:
    place.write_config(POLICIES.replace('hourly = "365d"', 'archive = "31d"'))
    for now in ("2018-08-30T00:00:00Z", NOW):
        place("run", now=now)


def _fail(place: Place) -> None:
    """A view is where summaries go."""
    place.database.command("create", "ticks_daily", viewOn="iot", pipeline=[])
    place("run")


def _lose_receipts(place: Place) -> None:
    place.database.bucketwise_receipts.drop()


def _rename(place: Place) -> None:
    place.write_config(POLICIES.replace("policies.ticks", "policies.prices"))


_HOLD = [
    "add", "case-17", "--series", "symbol=MDB", "--since", "2018-06-01", "--until", "2018-07-01",
    "--reason", "Litigation 17/2018",
]  # fmt: skip

_DAY = ["--since", "2018-06-30", "--until", "2018-07-01"]

#: The steps after which a command is called, and its options.
BEFORE: dict[str, tuple[tuple[Step, ...], list[str]]] = {
    "check": ((), []),
    "plan": ((_change,), ["--against", "new.toml"]),
    "rollup": ((_break,), []),
    "archive": ((_leave,), []),
    "run": ((), []),
    "compact": (("run",), []),
    "lake": ((_register,), ["sync"]),
    "publish": ((_publish,), ["--all"]),
    "verify": (("run", _damage), []),
    "drill": (("run",), []),
    "repair": ((_copied, _damage_once), []),
    "copy": (("run", _add_copy), []),
    "receipts": (("run",), []),
    "sign": ((), []),
    "restore": (("run",), ["--to", "ticks_restored"]),
    "thaw": (("run",), _DAY),
    "unpin": (("run", "restore -p ticks --to ticks"), []),
    "hold": ((), _HOLD),
    "undelete": ((_bury,), []),
    "erase": (("run",), ["--series", "symbol=MDB", "--reason", "case 17", "--confirm", "ticks"]),
    "adopt": (("run", _lose_receipts), ["--reason", "Restored from a dump"]),
    "pause": ((), ["--reason", "The cluster is being moved"]),
    "resume": ((_pause,), []),
    "retire": (("run", _rename), ["ticks", "--reason", "It is over"]),
    "audit": ((), []),
    "status": (("run",), []),
    "stats": (("run",), []),
    "failed": ((), ["--failed"]),
    "summarize": (("run",), _DAY),
    "summarize-every": (("run",), [*_DAY, "--every", "6h", "--fill", "previous"]),
    "readings": (("run",), ["--output", "ticks.csv"]),
    "coverage": (("run",), []),
    "history": (("run",), []),
    "commits": (("run",), []),
    "explain": (("run",), ["--at", "2018-06-30"]),
}
_BY_THEMSELVES = {"config", "init", "advise", "remodel", "query", "query-explain"}
BEFORE |= {name: ((), []) for name in sorted(SHOWN.keys() - BEFORE.keys() - _BY_THEMSELVES)}


#: What an audit tells at the top, whatever policies there are.
_CIRCUMSTANCES = ("by", "version", "hosts", "database", "config")


def test_each_is_shown() -> None:
    assert set(SHOWN) == {*BEFORE, *_BY_THEMSELVES}
    assert set(SHOWN) >= ENTRIES.keys() - {"demo", "schedule"}


def test_what_init_prints_is_shown(place: Place) -> None:
    place.database.ticks.update_many({}, [{"$set": {"venue": {"$toString": {"$minute": "$d"}}}}])
    base, _, options = place.uri.partition("/?")
    printed = place("init", f"{base}/{place.database.name}?{options}", "ticks", "--json", "-o", "new.toml")
    own = {key: it for key, it in printed.json.items() if key not in _COMMON}
    assert differences(shape(SHOWN["init"]), shape(own), "init") == [], printed
    assert undeclared(printed.json) == []


@pytest.mark.proof
@after("run")
def test_what_a_query_prints_is_shown(place: Place) -> None:
    sql = "SELECT symbol, count(*) AS readings FROM ticks GROUP BY symbol"
    printed = place("query", sql, "--json").json
    own = {key: it for key, it in printed.items() if key not in _COMMON - {"policies"}}
    assert own == SHOWN["query"]
    explained = place("query", sql, "--json", "--explain").json
    told = explained["explain"]
    assert undeclared(printed) == undeclared(explained) == []
    assert differences(shape(SHOWN["query-explain"]), shape(told), "explain") == [], told
    assert place("query", told["summaries"]["sql"], "--json").json["rows"] == printed["rows"]


def test_what_config_prints_is_shown(place: Place) -> None:
    """The page has some of the keys."""
    told = place("config", "show", "-p", "ticks", "--json").json
    assert undeclared(told) == []
    printed = told["config"]
    shown = SHOWN["config"]["config"]
    assert printed.keys() >= shown.keys()
    assert printed["policies"].keys() == shown["policies"].keys()
    assert printed["policies"]["ticks"].items() >= {"collection": "ticks", "model": "slots"}.items()
    assert printed["policies"]["ticks"]["archive"].items() >= shown["policies"]["ticks"]["archive"].items()


@pytest.mark.proof
def test_what_advise_and_remodel_print_is_shown(place: Place) -> None:
    scratch = ("--scratch", f"{place.database.name}_try", "--readings", "600")
    remodelled = ("--to", "slots-hour", "--into", "ticks_by_hour")
    for verb, options in {"advise": scratch, "remodel": remodelled}.items():
        printed = place(verb, "ticks", "--json", *options)
        own = {key: it for key, it in printed.json.items() if key not in _COMMON}
        assert differences(shape(SHOWN[verb]), shape(own), verb) == [], printed
        assert undeclared(printed.json) == []


@pytest.mark.in_turn(12)
@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=after(*steps)) for verb, (steps, _) in BEFORE.items()]
)
def test_shown_as_printed(place: Place, verb: str) -> None:
    _, options = BEFORE[verb]
    if verb == "failed":
        _fail(place)  # a view is not put back as it was
    now = "2018-08-31T12:00:00Z" if verb == "archive" else "2018-09-01T00:00:00Z"
    chosen = [] if verb == "retire" else ["-p", "ticks"]
    printed = place(
        "status" if verb == "failed" else verb.split("-")[0], "--json", *chosen, *options, now=now
    )
    if verb == "failed":
        place.database.drop_collection("ticks_daily")
    assert set(printed.json) - {"findings", "error", *_CIRCUMSTANCES} == {
        "schema",
        "command",
        "exit_code",
        "now",
        "policies",
    }
    assert differences(shape(SHOWN[verb]), shape(printed.policy("ticks")), verb) == [], printed
    assert undeclared(printed.json) == []
