"""Traces that no program of the model could leave are told."""

from __future__ import annotations

import pytest

from tests.explore.explorer import Scope
from tests.explore.paths import Paths, explored
from tests.faults.crashes.points import Logged
from tests.faults.crashes.traces import UnknownStep, in_order, words

COPIED = [
    *("file put data", "file put buckets", "file read data", "file read buckets"),
    *("file look at data", "file look at buckets", "mongo update bucketwise_receipts begun"),
    *("file place manifests", "file put manifests", "file read manifests", "mongo commit receipt"),
]
DELETED = ["file read data", "file read buckets", "file look at manifests", "mongo commit delete"]
#: A copy whose bucket had changed leaves its commit: another one takes the place of that.
AMENDED = [
    *("file put superseded", "file put versions", "file read versions", *COPIED[:-1]),
    *("mongo commit exchange", "file look at data", "file put superseded", "file read superseded"),
    *("file remove manifests", "file remove data", "mongo update bucketwise_receipts dropped"),
]
#: A day of an online archive.
ENDED = ["mongo commit noted end", "mongo commit end of buckets", "mongo commit end of a day"]
ERASED = ["mongo commit erasure from the archive"]


@pytest.fixture(scope="module")
def paths() -> Paths:
    found = Paths()
    found.explore(Scope(("archive",), (0,)), range(12))
    return found


def test_a_run_is_followed_as_far_as_it_came(paths: Paths) -> None:
    whole = list(words(iter([*COPIED, *DELETED])))
    assert [paths.fault("archive", whole[:end]) for end in range(len(whole) + 1)] == [None] * (len(whole) + 1)


@pytest.mark.parametrize(
    ("trace", "step"),
    [
        ([*COPIED[:2], *COPIED[4:]], "begin"),  # not read back
        ([*COPIED[:6], *COPIED[7:]], "put manifest"),  # not noted before
        ([*COPIED[:9], COPIED[10]], "receipt"),  # a manifest that was not read back
        ([*COPIED, *DELETED[2:]], "delete"),  # the files were not asked for
        (DELETED[3:], "delete"),
        ([*COPIED[:2], "file remove manifests"], "delete manifest"),
    ],
)
def test_what_comes_too_early_is_told(paths: Paths, trace: list[str], step: str) -> None:
    fault = paths.fault("archive", list(words(iter(trace)))) or ""
    assert f"'{step}'" in fault.partition("it did")[2].partition(";")[0]


@pytest.mark.proof
@pytest.mark.parametrize("verb", ["archive", "run"])
def test_no_step_of_an_amended_commit_can_be_left_out(verb: str) -> None:
    before, amended, after = (list(words(iter(it))) for it in ([*COPIED, *DELETED], AMENDED, COPIED))
    assert explored().fault(verb, [*before, *amended, *after]) is None
    for left_out in set(amended):
        rest = [it for it in amended if it != left_out]
        assert explored().fault(verb, [*before, *rest, *after]) is not None, left_out


@pytest.mark.proof
def test_what_is_done_in_pieces_may_be_what_comes_next_as_well() -> None:
    """Two writes of summaries are one roll-up, in two pieces, or two roll-ups."""
    merged = ["mongo commit copy of versions", "mongo commit delete"]
    for pieces in (1, 2, 4):
        rolled_up = ["mongo commit hourly summaries"] * pieces
        trace = [
            *merged,
            *["mongo find it_hourly", *rolled_up] * 2,
            "mongo commit merged windows followed",
            *merged,
        ]
        assert explored().fault("archive_online", list(words(iter(trace)))) is None
        not_read = [*merged, *rolled_up, "mongo commit merged windows followed"]
        assert explored().fault("archive_online", list(words(iter(not_read)))) is not None


@pytest.mark.proof
@pytest.mark.parametrize("before", [[], AMENDED[-1:], COPIED[-1:]])
@pytest.mark.parametrize("step", [COPIED[6], DELETED[-1]])
def test_a_run_whose_store_nobody_watches_is_told(before: list[str], step: str) -> None:
    fault = explored().fault("run", list(words(iter([*before, step])))) or ""
    assert "run: after [" in fault


@pytest.mark.proof
@pytest.mark.parametrize(
    ("verb", "trace", "step"),
    [
        ("run_online", [ENDED[0], ENDED[2]], "end day"),  # nothing has gone
        ("run_online", ["mongo commit tombstones", *ENDED], "noted end"),
        ("run_online", [*ENDED, "mongo commit copy"], "copy"),
        ("archive_online", ENDED[1:], "end buckets"),
        ("undelete", ["mongo commit lifted tombstones", ENDED[1]], "end buckets"),
        ("hold", ["file put holds", "mongo commit hold"], "hold"),  # not read back
        ("remodel", ["mongo update bucketwise_remodel begun", "mongo insert other"], "insert"),
        ("remodel", ["mongo update bucketwise_remodel reached", "mongo insert other"], "reached"),
        ("remodel", ["mongo insert other", "mongo update bucketwise_remodel done"], "insert"),
        ("remodel", ["mongo update bucketwise_remodel done"], "done"),  # not compared
        ("pause", ["mongo update bucketwise_lease resume"], "resume"),
        ("rollup", ["mongo commit hourly summaries", "mongo commit delete"], "delete', 'erase', 'merge"),
        ("backfill", ["mongo update bucketwise_progress backfill"], "reached"),  # without summaries
        ("erase_online", ["mongo commit erasure of versions", *ERASED], "delete', 'erase archived"),
        (
            "erase_online",
            ["mongo find it_hourly", "mongo commit erased summaries", *ERASED],
            "delete', 'erase archived",
        ),
    ],
)
def test_what_ends_or_is_erased_too_early_is_told(verb: str, trace: list[str], step: str) -> None:
    fault = explored().fault(verb, list(words(iter(trace)))) or ""
    assert f"'{step}'" in fault.partition("it did")[2].partition(";")[0]


@pytest.mark.proof
def test_what_ends_and_what_is_erased_is_followed() -> None:
    erased = ["mongo commit delete", "mongo commit unpin", *ERASED, "mongo commit erasure of versions"]
    for verb, trace in (
        ("run_online", [*ENDED, *ENDED[1:], "mongo commit tombstones"]),
        ("undelete", ["mongo commit lifted tombstones"] * 2),
        ("erase_online", [*erased, "mongo find it_hourly", "mongo commit erased summaries"]),
    ):
        assert explored().fault(verb, list(words(iter(trace)))) is None


@pytest.mark.parametrize("label", ["mongo drop it", "file truncate data", "mongo commit ?"])
def test_a_step_that_the_model_has_not_is_told(label: str) -> None:
    with pytest.raises(UnknownStep, match="the model has no step"):
        list(words(iter([*COPIED, label])))


@pytest.mark.proof
@pytest.mark.parametrize(
    "trace",
    [
        [*COPIED[:9], "file read manifests", "file put manifests", "mongo commit receipt"],
        [*COPIED[:4], "file put data", *COPIED[4:]],
    ],
)
@pytest.mark.parametrize("verb", ["archive", "run"])
def test_a_read_does_not_let_what_was_written_before_it_come_again(verb: str, trace: list[str]) -> None:
    assert explored().fault(verb, list(words(iter(trace)))) is not None


def test_what_threads_do_once_the_run_has_come_to_a_commit_stays_where_it_is() -> None:
    steps = [Logged("<", it, "x", it.startswith("file")) for it in ["file a", "begun", "file b", "receipt"]]
    found = in_order(steps)
    assert [[it.label for it in order] for order in found.orders] == [
        ["file a", "begun", "file b", "receipt"]
    ] * 2
    assert found.unused == []


def test_what_threads_copy_comes_before_its_commit() -> None:
    def log(text: str) -> list[Logged]:
        return [Logged("<", it, it[0] if it[0] in "xyz" else None, it[1:] == "+") for it in text.split()]

    found = in_order(log("a x+ y+ x+ x b z+ y+ y c z+"))
    orders = [" ".join(it.label for it in order) for order in found.orders]
    assert orders == ["a x+ x+ x b y+ y+ y c", "a x+ x+ y+ y+ x b y c"]
    assert [[it.label for it in some] for some in found.unused] == [["z+", "z+"]]
