"""Policies that misread their documents: told by `check`, `plan` and `run`, and nothing goes."""

# mypy: disable-error-code="index"

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.archivers.builders import raw_documents
from tests.jobs.command import CommandLine, Ran
from tests.jobs.place import START, Db, Place
from tests.tiers import tier

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)

HEAD = """
[policies.it]
collection = "it"
series_fields = ["m"]
{policy}
[policies.it.rollup]
hourly = "it_hourly"
[policies.it.archive]
after = "30d"
{to}
"""
OFFLINE, ONLINE = 'to = "offline"', 'to = "online"\ncollection = "it_archive"'


@dataclass(frozen=True)
class Misreading:
    policy: str
    documents: list[dict[str, Any]]
    code: str  # of the finding
    run: int  # exit code of `run` and `plan`
    said: tuple[str, ...]  # by all three
    unused: list[str]

    def __str__(self) -> str:
        return self.said[0]


READING = 'model = "reading"\ntime_field = "d"\nvalue_fields = ["{}"]'
SLOTS = 'model = "slots"\nslot = "second"\ntime_field = "d"\nvalue_fields = {}'


def _reading(at: int, **more: Any) -> dict[str, Any]:
    return {"d": START + at * MINUTE, "m": "x", **more}


MISREADINGS = [
    Misreading(
        READING.format("valeu"),
        [_reading(i, value=3) for i in range(100)],
        "value-field-empty",
        1,
        ("`valeu`", "100 readings", "Did you mean `value`?", 'nonnumeric_ok = ["valeu"]'),
        ["value"],
    ),
    Misreading(
        SLOTS.format('["v"]'),
        [
            {
                "d": START + i * HOUR,
                "m": "x",
                "v": {str(minute): {str(second): 1.5 for second in range(60)} for minute in range(60)},
            }
            for i in range(3)
        ],
        "no-bucket-fits",
        1,
        ("v.0", "a document stands where a number is needed"),
        [],
    ),
    Misreading(
        SLOTS.format('["v.t", "v.p"]'),
        [_reading(i, v={str(second): {"t": 1, "p": 2} for second in range(60)}) for i in range(3)],
        "no-readings",
        1,
        ("3 buckets", "`v.t`", "`v.p`", "Did you mean `v.*.t`?"),
        ["v.*.p", "v.*.t"],
    ),
    Misreading(
        READING.format("fields.v"),
        [_reading(i, fields=[{"k": "a", "v": 1}, {"k": "b", "v": 2}]) for i in range(3)],
        "value-field-empty",
        1,
        ("`fields.v`", "`fields` is an array", "attributes_field"),
        ["fields.*.k", "fields.*.v"],
    ),
]


MISREADINGS.append(
    Misreading(
        READING.format("voltage") + '\nattributes_field = "fields"',
        [_reading(i, fields=[{"k": "volt", "v": 1}, {"k": "b", "v": 2}]) for i in range(3)],
        "value-field-empty",
        1,
        ("`voltage`", "Did you mean `volt`?"),
        [],
    )
)
MISREADINGS.append(  # no field that holds text, or has a dot in its name, is what was meant
    Misreading(
        READING.format("volts"),
        [_reading(i, volta="x", voltage=3, **{"volt.s": 4}) for i in range(3)],
        "value-field-empty",
        1,
        ("`volts`", "3 missing or null", "Did you mean `voltage`?"),
        ["volt.s", "volta", "voltage"],
    )
)
MISREADINGS.append(
    Misreading(
        'model = "samples"\nsamples_field = "s"\nsample_time_field = "t"\nstart_field = "d"\n'
        'value_fields = ["val"]',
        [_reading(i, s=[{"t": START + i * MINUTE, "vals": 1, "val": None}]) for i in range(3)],
        "value-field-empty",
        1,
        ("`val`", "3 missing or null", "Did you mean `vals`?"),
        ["s.*.vals"],
    )
)


@pytest.fixture
def place(tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine) -> Place:
    return Place(tmp_path, database, mongodb_uri, bucketwise)


def told(ran: Ran) -> str:
    """Why nothing goes: the error, or what is quarantined."""
    body = ran.policy("it")
    steps = [body, *(body.get(step, {}) for step in ("rollup", "archive"))]
    named = [f"{it['field']}: {it['reason']}" for step in steps for it in step.get("quarantine", [])]
    misfits = [found["message"] for step in steps for found in step.get("fit", {}).get("misfits", [])]
    return "\n".join([body.get("error", ""), *named, *misfits])


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(
    ("it", "to"),
    [
        pytest.param(it, to, id=f"{it}-{name}", marks=tier(is_first=(at + more) % 2 == 0, is_proof=True))
        for at, it in enumerate(MISREADINGS)
        for more, (name, to) in enumerate((("offline", OFFLINE), ("online", ONLINE)))
    ],
)
def test_a_misreading_deletes_nothing_and_is_told(place: Place, it: Misreading, to: str) -> None:
    place.write_config(HEAD.format(policy=it.policy, to=to))
    place.database["it"].insert_many(it.documents)
    place.database["it"].create_index("d")
    before = raw_documents(place.database, "it")

    checked = place("check", "--json", now=None)
    assert checked.code == 1
    (finding,) = [found for found in checked.policy("it")["findings"] if found["severity"] == "error"]
    assert finding["code"] == it.code
    for part in it.said:
        assert part in finding["message"]
    fit = checked.policy("it")["fit"]
    assert fit["sampled"] == len(it.documents)
    assert sorted(fit["unused_fields"]) == it.unused

    for verb in ("rollup", "plan", "run", "archive", "run"):
        ran = place(verb, "--json")
        assert ran.code == (3 if verb == "rollup" else it.run), ran
        for part in it.said:
            assert part in told(ran), (verb, part)
        assert raw_documents(place.database, "it") == before
        assert place.database["it_archive"].count_documents({}) == 0
        assert not list(place.folder.rglob("*.parquet"))
