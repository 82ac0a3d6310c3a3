"""What verbs print, at the widths of terminals: no value is split over lines."""

from __future__ import annotations

import re

import pytest

from tests.jobs.place import NOW, Place
from tests.jobs.states import after
from tests.tiers import tier

WIDTHS = (60, 80, 120, 200)
RANGE = ("--since", "2018-06-30", "--until", "2018-07-02")
CALLS = {
    "run": (),
    "plan": (),
    "check": (),
    "status": (),
    "verify": (),
    "drill": (),
    "audit": (),
    "receipts": (),
    "coverage": RANGE,
    "summarize": ("-p", "ticks", *RANGE),
    "readings": ("-p", "ticks", *RANGE, "--output", "out.jsonl"),
    "query": ("-p", "ticks", "SELECT * FROM ticks_hourly LIMIT 3"),
    "explain": ("-p", "ticks"),
    "advise": ("ticks",),
    "restore": ("-p", "ticks", *RANGE, "--to", "again"),
}
TRIES = [
    pytest.param(verb, width, marks=tier(is_first=at % len(WIDTHS) == nth, is_proof=True))
    for at, verb in enumerate(CALLS)
    for nth, width in enumerate(WIDTHS)
]


@after("run")
@pytest.mark.parametrize(("verb", "width"), TRIES)
def test_no_value_is_split(place: Place, verb: str, width: int) -> None:
    arguments = [verb, "--quiet", *CALLS[verb], "--now", NOW]
    wide, narrow = (
        place.command.meddled(meddle, *arguments, cwd=place.folder, MONGODB_URI=place.uri)
        for meddle in (None, ("tests.jobs.output.narrow", {"width": width}))
    )
    assert wide.code == narrow.code, narrow
    assert "Traceback" not in narrow.err
    known = {*words(wide.out), *words(_NOT_SHOWN)}
    split = [it for it in words(narrow.out) if not any(is_part(it, whole) for whole in known)]
    assert split == [], narrow.out
    if "─" in wide.out:
        tables = [it for it in narrow.out.splitlines() if "─" in it]
        assert all(len(it) <= width for it in tables)


_NOT_SHOWN = "Not shown in this width: --json has all."


def words(text: str) -> list[str]:
    """Without what is new in each run, such as times taken."""
    plain = re.sub(r"\d+(\.\d+)? m?s\b", "", text)
    return [it.rstrip(",.") for it in plain.split() if not set(it) <= set("─")]


def is_part(word: str, whole: str) -> bool:
    """Whether a word is one of the wide output, its ends with … between, or its date or minute."""
    if "…" in word:
        begin, end = word.split("…")
        return whole.startswith(begin) and whole.endswith(end)
    return word == whole or (
        bool(re.match(r"\d{4}-\d\d-\d\dT", whole)) and word in (whole[:10], whole[11:16])
    )
