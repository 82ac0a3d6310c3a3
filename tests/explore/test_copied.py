"""A store with a copy: traces that no program of the model could leave are told."""

from __future__ import annotations

import pytest

from tests.explore.explorer import Scope, State
from tests.explore.paths import LEFT, Paths, explored_beside_a_copy
from tests.faults.crashes.traces import words


def changed(kind: str, *steps: str) -> list[str]:
    """A change of an object, in the journal."""
    change = f"bucketwise_receipts change of {kind}"
    return [f"mongo insert {change}", *steps, f"mongo delete {change}"]


def put(kind: str) -> list[str]:
    return changed(kind, f"file put {kind}", f"copy put {kind}", f"copy read {kind}")


COPIED = [*put("data"), *put("buckets"), "file read data", "file read buckets"]
COMMITTED = [
    *("file look at data", "file look at buckets", "mongo update bucketwise_receipts begun"),
    *(*put("manifests"), "file read manifests", "mongo commit receipt"),
]
READ = [f"{place} read {kind}" for kind in ("data", "buckets") for place in ("file", "copy")]
DELETED = [*READ, "file look at manifests", "mongo commit delete"]
CLEARED = changed("data", "copy remove data", "file remove data")


@pytest.fixture(scope="module", params=["some", pytest.param("all", marks=pytest.mark.proof)])
def paths(request: pytest.FixtureRequest) -> Paths:
    if request.param == "all":
        return explored_beside_a_copy()
    found = Paths(beside_a_copy=True)
    found.explore(Scope(("archive",), (0,), kind="copied"), range(12))
    state = State(0, Scope(kind="copied"))
    found.follow(state, (*LEFT, ("start", "A", "archive", 0), ("step", "A", 1000)))  # clears that
    for verb in ("archive", "run"):
        found.explore_caught_up(verb)
    return found


@pytest.mark.parametrize("cleared", [[], CLEARED])
def test_a_run_is_followed_as_far_as_it_came(paths: Paths, cleared: list[str]) -> None:
    whole = list(words(iter([*cleared, *COPIED, *COMMITTED, *DELETED])))
    assert [paths.fault("archive", whole[:end]) for end in range(len(whole) + 1)] == [None] * (len(whole) + 1)


@pytest.mark.parametrize("program", ["archive", "run_and_look"])
@pytest.mark.parametrize("kinds", [("data", "data"), ("buckets", "data"), ("data", "buckets", "data")])
def test_files_of_several_commits_may_have_to_be_caught_up(
    paths: Paths, program: str, kinds: tuple[str, ...]
) -> None:
    mended = [f"{step} {kind}" for kind in kinds for step in ("file read", "copy put", "copy read")]
    trace = [*mended, "mongo delete bucketwise_receipts changes"]
    assert paths.fault(program, list(words(iter(trace)))) is None
    not_read_back = [it for it in trace if not it.startswith("copy read")]
    assert paths.fault(program, list(words(iter(not_read_back)))) is not None


@pytest.mark.parametrize("at", range(5))
def test_no_step_of_a_change_can_be_left_out(paths: Paths, at: int) -> None:
    whole = [*put("data"), *COPIED[5:]]
    assert paths.fault("archive", list(words(iter(whole)))) is None
    assert paths.fault("archive", list(words(iter([*whole[:at], *whole[at + 1 :]])))) is not None


@pytest.mark.parametrize(
    "trace",
    [
        [COPIED[0], COPIED[2]],  # the copy first
        [*CLEARED[:1], *CLEARED[2:]],  # deleted in the store alone
        [CLEARED[0], CLEARED[2], CLEARED[1]],  # or there first
        [*COPIED, *COMMITTED[:4], *COMMITTED[7:]],  # a manifest that the copy has not
        [*COPIED, *COMMITTED, *READ[::2], *DELETED[4:]],  # the copy's files were not asked for
    ],
)
def test_what_comes_too_early_is_told(paths: Paths, trace: list[str]) -> None:
    assert paths.fault("archive", list(words(iter(trace)))) is not None
