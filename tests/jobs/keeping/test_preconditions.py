"""What keeps a run from going on: `check` names it, and `run` and `plan` stop at it with the same words."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import NamedTuple

import pytest

from archivers import preconditions
from archivers.preconditions import OF_WRITERS
from tests.jobs.place import POLICIES, Place


class Case(NamedTuple):
    """How a precondition of `ticks` is broken where everything is archived, and what is then said."""

    spoil: Callable[[Place], object]
    code: str
    exit_code: int
    remedy: str
    name: str = "ticks"


def _other_kind(place: Place) -> None:
    place.write_config(POLICIES.replace('to = "offline"', 'to = "online"\ncollection = "ticks_archive"'))


CASES: dict[preconditions.Precondition, Case] = {
    preconditions.has_source: Case(
        lambda it: it.database.ticks.drop(), "source-missing", 1, "write may_be_missing = true"
    ),
    preconditions.is_known: Case(
        lambda it: it.write_config(POLICIES.replace("policies.ticks", "policies.prices")),
        "policy-renamed",
        5,
        'write id = "ticks"',
        "prices",
    ),
    preconditions.has_one_kind: Case(_other_kind, "archive-kind", 1, "Set archive.to back"),
    preconditions.has_heads: Case(
        lambda it: shutil.rmtree(it.folder / "store" / "ticks" / "meta"),
        "archive-incomplete",
        5,
        "Restore the store from its versions or a backup",
    ),
    preconditions.goes_forward: Case(
        lambda it: it("hold", "add", "case-17", "-p", "ticks", "--reason", "x", now="2018-09-02"),
        "time-recorded",
        1,
        "bucketwise resume --time",
    ),
}


@pytest.mark.parametrize("precondition", OF_WRITERS, ids=lambda it: it.__name__)
def test_check_names_it_and_a_run_stops_at_it(place: Place, precondition: preconditions.Precondition) -> None:
    case = CASES[precondition]
    assert place("run", "-p", "ticks").code == 0
    case.spoil(place)
    checked = place("check", "-p", case.name, "--json")
    (found,) = [it for it in checked.policy(case.name)["findings"] if it["code"] == case.code]
    assert (found["severity"], checked.code) == ("error", 1)
    assert case.remedy in found["message"]
    before = place.database.ticks_hourly.estimated_document_count()
    for verb in ("plan", "run"):
        ran = place(verb, "-p", case.name, "--json")
        assert (ran.code, ran.policy(case.name)["error"]) == (case.exit_code, found["message"])
    assert place.database.ticks_hourly.estimated_document_count() == before
