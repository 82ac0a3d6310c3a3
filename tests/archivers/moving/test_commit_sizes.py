"""Which buckets make a commit, and what becomes of the copies that are under way when one fails."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.format.manifest import DamagedError, Manifest
from bucketwise.archivers.moving import sweep
from bucketwise.archivers.stores.base import StoreError
from bucketwise.archivers.stores.file import FileStore
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, LATER, Case, encode, offline
from tests.archivers.harness import Cycle

Document = dict[str, Any]
DAY = timedelta(days=1)
MINUTES = make_policy(
    name="ticks", collection="ticks", model="slots", slot="second", time_field="d",
    series_fields=("symbol",), value_fields=("p",), archive=offline(),
)  # fmt: skip


def on_days(*days: float) -> Case:
    """A reading on each of these days."""
    policy = make_policy(
        name="ticks", collection="ticks", model="reading", time_field="d", series_fields=("symbol",),
        value_fields=("p",), archive=offline(),
    )  # fmt: skip
    moments = [DAY0 + day * DAY for day in days]
    documents = [encode({"_id": i, "symbol": "MDB", "d": at, "p": i / 8}) for i, at in enumerate(moments)]
    return Case("days", policy, documents, [(("MDB",), at, i / 8) for i, at in enumerate(moments)])


def manifests(cycle: Cycle) -> list[Manifest]:
    """As the chain has them."""
    archive = cycle.as_stored()
    return sorted((archive.manifest(it) for it in archive.commits()), key=lambda it: it.sequence)


def commits(cycle: Cycle) -> list[tuple[float, float]]:
    """Of each its first and last day."""
    return [((it.first - DAY0) / DAY, (it.last - DAY0) / DAY) for it in manifests(cycle)]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (range(70), [(0, 30), (31, 61), (62, 69)]),
        ([0, 1, 100, 101, 140], [(0, 1), (100, 101), (140, 140)]),
        ([0, 30.5], [(0, 30.5)]),
        ([0, 31], [(0, 0), (31, 31)]),
    ],
    ids=str,
)
def test_sparse_readings_make_a_commit_a_month(
    database: Database[Document], file_store: Store, days: Any, expected: list[tuple[float, float]]
) -> None:
    """Who asks for a day reads no more than a month, whatever gaps there are."""
    case = on_days(*days)
    cycle = Cycle(database, case, file_store).load()
    assert cycle.run(LATER + 200 * DAY).deleted == len(case.documents)
    assert commits(cycle) == expected
    assert sum(cycle.rows().values()) == len(case.documents)


def test_days_share_a_commit_until_it_is_full(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a day closes none."""
    monkeypatch.setattr(sweep, "MAX_BYTES", 20 * len(on_days(0).documents[0]))
    case = on_days(*range(70))
    cycle = Cycle(database, case, file_store).load()
    cycle.run(LATER + 200 * DAY)
    assert commits(cycle) == [(0, 19), (20, 39), (40, 59), (60, 69)]


@pytest.mark.parametrize(
    ("small", "expected"), [(0, [2, 40, 40, 20]), (8, [2, 12, 12, 16, 40, 40, 20])], ids=["all", "later ones"]
)
def test_large_readings_are_decoded_once(
    database: Database[Document],
    file_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    small: int,
    expected: list[int],
) -> None:
    """The first few tell how many there are in what is read, then those before; else what is decoded too
    early is again."""
    policy = on_days(0).policy
    documents = [
        encode({"_id": i, "symbol": "MDB", "d": DAY0 + i * DAY / 200, "p": i / 8, "note": note})
        for i, note in enumerate([""] * small + ["." * 500] * (100 - small))
    ]
    decoded: list[int] = []

    def counting(batch: Batch, policy: Policy, *more: Any, **named: Any) -> Decoded:
        decoded.append(len(batch))
        return decode(batch, policy, *more, **named)

    monkeypatch.setattr("bucketwise.buckets.bson.cursor.MOST_DOCUMENTS", 8)
    monkeypatch.setattr(sweep, "MAX_READINGS", 80)
    monkeypatch.setattr(sweep, "SAMPLED", 2)
    monkeypatch.setattr("bucketwise.buckets.decoding.decode.decode", counting)
    cycle = Cycle(database, Case("large", policy, documents, []), file_store).load()
    assert cycle.run().deleted == 100
    assert decoded == expected


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        (lambda i: [] if i < 8 else 7, [40, 40, 12]),  # what is seen first tells nothing
        (lambda i: "x" if i % 4 == 3 else 7, [42, 33]),  # not all that is read goes: then less is read
    ],
    ids=["those at first", "a quarter"],
)
def test_buckets_that_stay_make_no_commit_larger(
    database: Database[Document],
    file_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    symbol: Callable[[int], Any],
    expected: list[int],
) -> None:
    documents = [encode({"_id": -1, "symbol": 7, "d": DAY0 - DAY, "p": 1.5})]  # so the column is of ints
    documents += [
        encode({"_id": i, "symbol": symbol(i), "d": DAY0 + i * DAY / 200, "note": "." * 500})
        for i in range(100)
    ]
    cycle = Cycle(database, Case("staying", on_days(0).policy, documents, []), file_store).load()
    cycle.run(until=DAY0)
    monkeypatch.setattr("bucketwise.buckets.bson.cursor.MOST_DOCUMENTS", 8)
    monkeypatch.setattr(sweep, "MAX_READINGS", 80)
    monkeypatch.setattr(sweep, "SAMPLED", 2)
    cycle.run()
    assert [it.readings for it in manifests(cycle)] == [1, *expected]


@pytest.mark.parametrize(("gaps", "expected"), [(False, [28, 28, 4]), (True, [12, 12, 12, 12, 12])])
def test_what_is_missing_here_and_there_makes_smaller_commits(
    database: Database[Document],
    file_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    gaps: bool,
    expected: list[int],
) -> None:
    """These readings take more memory."""
    documents = [
        encode(
            {
                "_id": i,
                "symbol": "MDB",
                "d": DAY0 + i * timedelta(minutes=1),
                "p": {str(at): at / 8 for at in range(60) if not gaps or (7 * i + at) % 10},
            }
        )
        for i in range(60)
    ]
    monkeypatch.setattr("bucketwise.buckets.bson.cursor.MOST_DOCUMENTS", 14)
    monkeypatch.setattr(sweep, "MAX_READINGS", 1170)
    cycle = Cycle(database, Case("gaps", MINUTES, documents, []), file_store).load()
    cycle.run()
    assert [it.buckets for it in manifests(cycle)] == expected
    assert cycle.archived() == sorted(documents)


@pytest.mark.proof
def test_buckets_that_are_like_no_other_make_smaller_commits(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layout takes more memory than the readings of its bucket."""
    chance = random.Random(7)
    documents = []
    for i in range(60):
        slots = chance.sample(range(60), 60)  # in another order in each: no union has room for that
        minute = DAY0 + i * timedelta(minutes=1)
        documents.append(
            encode({"_id": i, "symbol": "MDB", "d": minute, "p": {str(at): 1.5 for at in slots}})
        )
    monkeypatch.setattr("bucketwise.buckets.bson.cursor.MOST_DOCUMENTS", 1)
    monkeypatch.setattr(sweep, "MAX_READINGS", 4800)
    cycle = Cycle(database, Case("alone", MINUTES, documents, []), file_store).load()
    cycle.run()
    assert [it.buckets for it in manifests(cycle)] == [10] * 6
    assert cycle.archived() == sorted(documents)


class Waiting(FileStore):
    """What is put for the commit of one day waits until that of another is there; then it may fail."""

    def __init__(self, root: Path, day: int, other: int, *, fails: bool) -> None:
        super().__init__(root)
        self._day, self._other = (f"{DAY0 + number * DAY:%Y-%m-%d}_f" for number in (day, other))
        self._fails = fails
        self._is_there = Event()

    def put_bytes(self, key: str, data: bytes, **given: Any) -> None:
        if self._day in key:
            assert self._is_there.wait(60), "no other copy was made meanwhile"
            if self._fails:
                raise StoreError("put", key, "no")
        super().put_bytes(key, data, **given)
        if self._other in key and "/meta/buckets/" in key:
            self._is_there.set()


#: Each makes a commit.
APART = range(0, 240, 40)


def test_copies_that_are_ready_early_are_committed_in_their_turn(
    database: Database[Document], file_store: Store
) -> None:
    cycle = Cycle(database, on_days(*APART), file_store).load()
    store = Waiting(cycle.root, 40, 80, fails=False)
    assert cycle.run(LATER + 300 * DAY, store=store).deleted == 6
    assert commits(cycle) == [(day, day) for day in APART]
    assert sum(cycle.rows().values()) == 6


def test_a_copy_that_fails_while_the_next_is_ready(database: Database[Document], file_store: Store) -> None:
    """What was read before it is archived; it and what comes after stay as if they had not been copied."""
    cycle = Cycle(database, on_days(*APART), file_store).load()
    live = cycle.live()
    with pytest.raises(StoreError):
        cycle.run(LATER + 300 * DAY, store=Waiting(cycle.root, 40, 80, fails=True))
    assert commits(cycle) == [(0, 0)]
    assert cycle.live() == live[1:]
    assert cycle.run(LATER + 300 * DAY).deleted == 5
    assert commits(cycle) == [(day, day) for day in APART]
    assert sum(cycle.rows().values()) == 6
    assert not list(cycle.as_stored().unlisted())


class Losing(FileStore):
    """Reads one commit's buckets file back, and loses it while another commit is made."""

    def __init__(self, root: Path, day: int, other: int) -> None:
        super().__init__(root)
        self._day, self._other = (f"{DAY0 + number * DAY:%Y-%m-%d}_f" for number in (day, other))
        self._read = Event()
        self._lost = ""

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        data = super().get_bytes(key, size)
        if self._day in key and "/meta/buckets/" in key:
            self._lost = key
            self._read.set()
        return data

    def put_bytes(self, key: str, data: bytes, **given: Any) -> None:
        if self._other in key and "/meta/manifests/" in key:
            assert self._read.wait(60), "no other copy was made meanwhile"
            self.delete([self._lost])
        super().put_bytes(key, data, **given)


def test_a_copy_that_goes_while_it_waits_for_its_turn(
    database: Database[Document], file_store: Store
) -> None:
    """It makes no commit, and its buckets stay."""
    cycle = Cycle(database, on_days(*APART), file_store).load()
    live = cycle.live()
    with pytest.raises(DamagedError, match="now missing"):
        cycle.run(LATER + 300 * DAY, store=Losing(cycle.root, 40, 0))
    assert commits(cycle) == [(0, 0)]
    assert cycle.live() == live[1:]
    assert cycle.run(LATER + 300 * DAY).deleted == 5
    assert cycle.archived() == live


class Flipping(Waiting):
    """Another byte than was put comes back of the commit for which the other one waits."""

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        data = super().get_bytes(key, size)
        return data[:-1] + bytes([data[-1] ^ 1]) if self._other in key else data


def test_damage_is_told_though_the_run_ends_for_another_reason(
    database: Database[Document], file_store: Store
) -> None:
    cycle = Cycle(database, on_days(*APART), file_store).load()
    live = cycle.live()
    with pytest.raises(DamagedError, match="its manifest says"):
        cycle.run(LATER + 300 * DAY, store=Flipping(cycle.root, 40, 80, fails=True))
    assert cycle.live() == live[1:]
