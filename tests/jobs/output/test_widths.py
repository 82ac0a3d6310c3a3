"""What every verb prints, at the widths of terminals: no value is split over lines."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from bucketwise.jobs.demo.stage import Show
from bucketwise.jobs.suite import ENTRIES
from tests.jobs.copies.test_copies import copied
from tests.jobs.output.narrow import BREAK
from tests.jobs.place import NOW, POLICIES, START, Place
from tests.jobs.states import after
from tests.redis_servers import redis_server

WIDTHS = (60, 80, 120, 200)
RANGE = ("--since", "2018-06-30", "--until", "2018-07-02")
HELD = ("--series", "symbol=MDB", "--reason", "a claim of a customer")
ASKED: list[tuple[str, ...]] = [
    ("plan",),
    ("plan", "--against", "changed.toml"),
    ("check", "--verbose"),
    ("config", "show"),
    ("status",),
    ("status", "--failed"),
    ("history",),
    ("commits",),
    ("commits", "--full"),
    ("stats",),
    ("summarize", "-p", "ticks", *RANGE),
    ("summarize", "-p", "iot", *RANGE, "--every", "1h", "--fill", "previous"),
    ("readings", "-p", "ticks", *RANGE, "--output", "out.jsonl"),
    ("query", "-p", "ticks", "SELECT * FROM ticks_hourly LIMIT 3"),
    ("coverage", *RANGE),
    ("coverage", *RANGE, "--full"),
    ("explain", "-p", "ticks", "--at", "2018-06-30T01:00"),
    ("verify",),
    ("drill",),
    ("thaw", "-p", "ticks", *RANGE),
    ("audit",),
    ("receipts",),
    ("receipts", "--full"),
    ("advise", "iot"),
    ("advise", "iot", "--shard-keys", "sensor,at", "--shards", "2"),
]
DONE: list[tuple[str, ...]] = [
    ("rollup", *RANGE),
    ("archive",),
    ("run",),
    ("compact",),
    ("copy",),
    ("repair",),
    ("rekey",),
    ("restore", "-p", "ticks", *RANGE, "--dry-run"),
    ("restore", "-p", "ticks", *RANGE, "--to", "again"),
    ("unpin",),
    ("undelete",),
    ("sign",),
    ("remodel", "again", "--to", "reading", "--into", "other"),
    ("hold", "add", "case-17", "-p", "ticks", *HELD),
    ("hold", "list"),
    ("hold", "release", "case-17", "--reason", "settled"),
    ("erase", "-p", "ticks", *HELD),
    ("erase", "-p", "ticks", *HELD, "--confirm", "ticks"),
    ("pause", "--reason", "the server moves to another room"),
    ("run",),
    ("resume",),
    ("adopt", "--reason", "a restored backup"),
]
#: With Redis and Iceberg tables, once a policy has left the file.
FOLLOWING: list[tuple[str, ...]] = [
    ("run",),
    ("lake", "sync"),
    ("publish", "--all"),
    ("retire", "iot", "--reason", "the sensor has gone to the museum"),
]
#: A service prints lines of its log alone; the demo and init are drawn by tests of their own.
OTHERS = {"schedule", "demo", "init"}
ASKED += [(it,) for it in ENTRIES if it not in OTHERS.union(call[0] for call in [*ASKED, *DONE, *FOLLOWING])]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_demo_splits_no_value(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    change = ["14,820 → 7,800", "11.4 MB → 6.0 MB", "3.4 MB → 1.8 MB", "630.8 kB → 364.5 kB", "310.4 kB"]
    rows = [["ticks", *change], [], ["temperature", *["0 bytes → 0 bytes"] * 4, ""]]
    show = Show(silent=False)
    show._console.width = width
    show.table(("Collection", "Documents", "Data", "Disk", "Indexes", "Archive"), rows)
    told = capsys.readouterr().out
    assert "…" not in told and all(len(it) <= width for it in told.splitlines())
    heads, _, first, *_ = [it for it in told.splitlines() if it.strip()]
    assert first.split(maxsplit=1)[1].split("  ")[0].strip() == "14,820 → 7,800"
    assert ("Archive" in heads) == ("310.4 kB" in first) == ("Not shown in this width" not in told)
    assert ("Indexes" in heads) == ("630.8 kB → 364.5 kB" in first)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@after("run")
def test_no_value_of_what_follows_is_split(place: Place) -> None:
    with redis_server() as server:
        place.write_config(f'[lake]\n[publish.redis]\nurl = "{server.url}"\n{POLICIES}')
        for typed in FOLLOWING:
            if typed[0] == "retire":
                place.write_config(POLICIES.partition("[policies.iot]")[0])
            draw(place, typed)
    place.load()
    draw(place, ("init", place.uri.replace("/?", f"/{place.database.name}?"), "--output", "first.toml"))


@pytest.mark.proof
@pytest.mark.in_turn(1)
@after("run")
@pytest.mark.parametrize("calls", [ASKED, DONE], ids=["asked", "done"])
def test_no_value_is_split(place: Place, calls: list[tuple[str, ...]]) -> None:
    copied(place, "b")
    assert place("copy").code == 0
    changed = place.config.read_text().replace('"30d"', '"300d"')
    (place.folder / "changed.toml").write_text(changed)
    place.database.iot.insert_one({"at": START + timedelta(days=62), "sensor": 7, "t": 1.5})
    for typed in calls:
        draw(place, typed)


def draw(place: Place, typed: tuple[str, ...]) -> None:
    meddle = ("tests.jobs.output.narrow", {"widths": WIDTHS})
    ran = place.command.meddled(meddle, *typed, "--now", NOW, cwd=place.folder, MONGODB_URI=place.uri)
    assert ran.code in (0, 1, 3, 4) and "Traceback" not in ran.err, (typed, ran)
    wide, *narrow, rest = ran.out.split(BREAK)
    assert (len(narrow), rest) == (len(WIDTHS), ""), typed
    known = {*words(wide), *words(_NOT_SHOWN)}
    for width, text in zip(WIDTHS, narrow, strict=True):
        split = [it for it in words(text) if not any(is_part(it, whole) for whole in known)]
        assert split == [], (typed, width, text)
        if "─" in text:
            lines = text.splitlines()
            tables = [it for at, it in enumerate(lines) if "─" in it or "─" in "".join(lines[at - 1 : at])]
            assert all(len(it) <= width for it in tables), (typed, width, text)


_NOT_SHOWN = "Not shown in this width: --json has all."


def words(text: str) -> list[str]:
    return [it.rstrip(",.") for it in text.split() if not set(it) <= set("─")]


def is_part(word: str, whole: str) -> bool:
    """Whether a word is one of the wide output, its ends with … between, or its date, minute or second."""
    if "…" in word:
        begin, end = word.split("…")
        return whole.startswith(begin) and whole.endswith(end)
    return word == whole or (
        bool(re.match(r"\d{4}-\d\d-\d\dT", whole)) and word in (whole[:10], whole[11:16], whole[11:19])
    )
