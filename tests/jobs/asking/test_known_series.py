"""A series that nothing has heard of: asked for by mistake, it is an error that names the nearest."""

from __future__ import annotations

import pytest

from tests.jobs.place import Place
from tests.jobs.states import after

ASKED = ("--since", "2018-06-30", "--until", "2018-07-01")
VERBS = {
    "readings": (),
    "summarize": (),
    "coverage": (),
    "restore": ("--to", "back"),
}


def refused(place: Place, verb: str, policy: str, series: str) -> str:
    ran = place(verb, "-p", policy, *ASKED, *VERBS[verb], "--series", series)
    assert ran.code == 2, ran
    assert "Traceback" not in ran.err
    return ran.err


@after("run")
def test_a_series_that_is_not_there_is_refused_and_the_nearest_named(place: Place) -> None:
    for verb in VERBS:
        err = refused(place, verb, "ticks", "symbol=MBD")
        assert "policy ticks: --series symbol=MBD: no such series is known. The nearest: symbol=MDB" in err
    assert "back" not in place.database.list_collection_names()
    told = place("history", "--json")
    assert "MDB" not in told.out, "the ledger would keep a series, also once it is erased"
    assert "The nearest: sensor=7" in refused(place, "readings", "iot", "sensor=77")
    # It is known, and has nothing in this range: that is an answer.
    none = place("readings", "-p", "ticks", "--since", "2020-01-01", "--series", "symbol=MDB")
    assert (none.code, none.out) == (0, "symbol,time,p\n")


def test_what_is_not_rolled_up_yet_is_known(place: Place) -> None:
    ran = place("readings", "-p", "iot", *ASKED, "--series", "sensor=7")
    assert (ran.code, len(ran.out.splitlines())) == (0, 19)
    assert "nearest" not in refused(place, "readings", "iot", "sensor=x")


@pytest.mark.parametrize("text", ['{"$oid": 1}', "nul\x00l", "1e999"])
def test_any_text_may_be_asked_for(place: Place, text: str) -> None:
    ran = place("coverage", "-p", "iot", *ASKED, "--series", f"sensor={text}".replace("\x00", "\\0"))
    assert ran.code in (0, 2)
    assert "Traceback" not in ran.err
