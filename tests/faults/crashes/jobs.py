"""The jobs that are killed: what stands before, which command, what it meets while it works."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import bson
from pyiceberg.table import StaticTable

from bucketwise.archivers.format.names import checkpoint_key
from bucketwise.archivers.stores import open_store
from tests.conftest import ACCESS_KEY, REGION, SECRET_KEY
from tests.faults.crashes import elsewhere, remodelled
from tests.faults.crashes.elsewhere import COPY, GLACIER, KEY, MOVES, THAW
from tests.faults.scene import NOW, OFFLINE, ONLINE, ROLLUP, SAMPLES, SLOTS, START, Scene
from tests.faults.truth import Unit

#: A bucket that breaks its model: its time is no date. The application mends it later.
BROKEN = {"p": {"0": 1.0}, "dev": 1, "d": "yesterday"}
CHANGED = 2
#: Buckets that late upserts make again; the second one's first version has overflow.
LATE = (4, 9)
GRACE = OFFLINE + 'grace = "1d"\n'
MOVING = 'move_receipts = "1d"\n'
ENDING = '[policies.it.retain]\narchive = "35d"\n'
LAKE = "[lake]\n"
WAITING = '[policies.it.retain]\nhourly = "30d"\n'
RETAIN = WAITING + 'grace = "0s"\n'


def filled(scene: Scene) -> None:
    scene.fill(12)


def rolled_up(scene: Scene) -> None:
    scene.fill(12)
    scene.well("rollup")


def more_to_roll_up(scene: Scene) -> None:
    """Half is archived; then more came, for the same hours, one bucket of it broken; one was mended, and one
    came and went."""
    scene.fill(8)
    scene.database["it"].insert_one({"_id": 90, **BROKEN})
    assert scene.run().code == 3
    for number in range(8, 12):
        scene.insert(number, START + (number - 8) * timedelta(minutes=61), 5)
    scene.insert(90, START + timedelta(minutes=33), 3)
    scene.database["it"].insert_one({"_id": 91, **BROKEN})
    scene.database["it"].insert_one({"_id": 92, **BROKEN})
    scene.database["it"].delete_one({"_id": 92})


def mended(scene: Scene) -> None:
    scene.insert(91, START + timedelta(minutes=44), 3)


def copied(scene: Scene) -> None:
    """The grace is over in the run that is killed."""
    rolled_up(scene)
    scene.well(now=NOW - timedelta(days=2))


def cut_off(scene: Scene) -> None:
    """What an earlier run left in the store when it was killed: a commit without manifest; in a directory,
    half a file."""
    rolled_up(scene)
    labels = {"file": "file place buckets", "s3": "s3 PutObject buckets", "gs": "cloud put buckets"}
    scheme = scene.store.url.partition(":")[0]
    given = {"folder": str(scene.folder), "at": labels[scheme], "in_cloud": scheme == "gs"}
    given |= {"log": str(scene.folder / "before")}
    assert scene.run("archive", meddle=("tests.faults.crashes.points", given)).code == -9


def still_young(scene: Scene) -> None:
    """Nothing had expired in the run before."""
    scene.fill(12)
    scene.well(now=START + timedelta(days=10))


def young(scene: Scene) -> None:
    """And by now the hourly summaries are past their time as well."""
    still_young(scene)
    assert scene.policy.rollup is not None
    lasting = scene.policy.rollup.model_copy(update={"hourly": None})
    scene.truth.policy = scene.policy.model_copy(update={"rollup": lasting})


def restored(scene: Scene) -> None:
    scene.fill(12)
    scene.well()


def idle(scene: Scene) -> None:
    """A run had nothing to do, and the one that is killed has nothing either. One of the entries is old."""
    restored(scene)
    scene.well()
    entries = scene.database["bucketwise_runs"]
    entry = entries.find_one() or {}
    old = {"run": "old", "fence": -1, "started": entry["started"] - timedelta(days=100)}
    entries.insert_one({**entry, "_id": "old", **old})
    scene.database["bucketwise_lease"].update_one({}, {"$set": {"fence": 10}})


def checkpoint_gone(scene: Scene) -> None:
    """The database names a checkpoint that is not in the store, and another one is in its place."""
    restored(scene)
    gone = {"sequence": 1, "sha256": "0" * 64, "commits": 1}
    scene.database["bucketwise_receipts"].update_one({"_id.name": "heads"}, {"$set": {"checkpoint": gone}})
    other = checkpoint_key(scene.policy.name, 1, "f" * 64)
    open_store(scene.store).put_bytes(other, b"{}")


def archived_long_ago(scene: Scene) -> None:
    """The receipts of the deletes are old enough to move in the run that is killed."""
    scene.fill(12)
    scene.well(now=NOW - timedelta(days=31))


def pinned(scene: Scene) -> None:
    restored(scene)
    scene.well("restore", "--policy", "it", "--to", "it", "--yes")


def archived_and_late(scene: Scene) -> None:
    """All is archived. Then late upserts made small buckets under the `_id`s of two: each has a reading that
    takes the place of an archived one, and one that is new."""
    restored(scene)
    for number in LATE:
        write_late(scene, number)
    scene.well("rollup")


def late_and_copied(scene: Scene) -> None:
    """The grace of the late buckets is over in the run that is killed."""
    scene.fill(12)
    for days in (6, 4):
        scene.run(now=NOW - timedelta(days=days))
    assert scene.database["it"].count_documents({}) == 0
    for number in LATE:
        write_late(scene, number)
    assert scene.well(now=NOW - timedelta(days=2))["archive"]["left"] == len(LATE)


def in_small_commits(scene: Scene) -> None:
    """Runs made two commits of each of two days. With a grace the buckets are live."""
    scene.fill(12)
    for minutes in (50, 110, 170, 210):
        scene.run(now=START + timedelta(days=30, minutes=minutes))
    assert len(scene.truth.manifests()) == 4


def compacted(scene: Scene) -> None:
    """What was replaced may go in the run that is killed."""
    in_small_commits(scene)
    assert scene.well("compact", now=NOW - timedelta(hours=2))["into"] == 2


def in_tables(scene: Scene) -> None:
    """The small commits are in an Iceberg table, and of those that are merged in the run that is killed, it
    has to be told."""
    in_small_commits(scene)
    check_table(scene)


def check_table(scene: Scene) -> None:
    """It lists each part of the commits that stand, once; a sync finds nothing to do."""
    synced = scene.well("lake", "sync")
    assert (synced["added"], synced["removed"]) == (0, 0)
    metadata = synced["metadata"]
    given = {f"s3.{key}": it for key, it in _S3.items()} | {"s3.endpoint": scene.store.endpoint_url or ""}
    table = StaticTable.from_metadata(metadata, given if metadata.startswith("s3:") else {})
    listed = Counter(it.file.file_path.partition("/data/")[2] for it in table.scan().plan_files())
    parts = (part["key"] for it in scene.truth.manifests() for part in it["parts"])
    assert listed == Counter(key.partition("/data/")[2] for key in parts)


def half_archived(scene: Scene) -> None:
    """Some buckets are archived, and some are live."""
    scene.fill(12)
    scene.well(now=START + timedelta(days=30, minutes=130))


def copied_and_kept(scene: Scene) -> None:
    """All are copied. One of the series to erase has changed since, so that its copy lies beside its commit;
    those that are live still are pinned, and one is broken."""
    copied(scene)
    scene.insert(1, scene.when(1, 12), 3)
    scene.database["it"].insert_one({"_id": 93, **BROKEN})
    assert scene.run(now=NOW - timedelta(days=2) + timedelta(hours=1)).code == 3
    scene.well("restore", "-p", "it", "--to", "it", "--series", "dev=1", "--yes")


def erased_so_far(scene: Scene) -> None:
    """What of the series is gone when the job was cut off; the next run may take that back, as long as the
    erasure has not ended. A bucket goes whole. The application removes what is broken."""
    scene.database["it"].delete_one({"_id": 93})
    there = Counter(scene.truth.rows_of(scene.truth.live())) | scene.truth.archived()
    for number, (*_, unit) in scene.truth.versions.items():
        if is_erased(unit):
            scene.truth.units.pop(number, None)
            if Counter(scene.truth.rows_of([unit])) <= there:
                scene.truth.units[number] = unit


def all_erased(scene: Scene) -> None:
    """When the command was given again."""
    for number, unit in list(scene.truth.units.items()):
        if is_erased(unit):
            scene.truth.removed(number)


def is_erased(unit: Unit) -> bool:
    return bool(bson.decode(unit[0])["dev"] == 1)


def held(scene: Scene) -> None:
    """The same, and a hold keeps what was replaced."""
    compacted(scene)
    scene.well(*HOLD)


def paused(scene: Scene) -> None:
    filled(scene)
    scene.well(*PAUSE)


def released(scene: Scene) -> None:
    scene.well("hold", "release", "case")


def under_tombstones(scene: Scene) -> None:
    """All is archived, in several commits, and under tombstones that are due in the run that is killed. In a
    store a first copy was put aside, since its bucket changed before it could be deleted."""
    scene.fill(12)
    assert scene.policy.archive is not None
    for minutes in (10, 90, 200):
        now = START + timedelta(days=30, minutes=minutes)
        if minutes == 90 and scene.policy.archive.to == "offline":
            given: dict[str, Any] = {"log": str(scene.folder / "before"), "folder": str(scene.folder)}
            given |= {"change": change_before(_REGISTERED, scene)}
            assert scene.run(now=now, meddle=("tests.faults.crashes.points", given)).code == 3
            scene.truth.wrote(*changed(scene))
        else:
            scene.run(now=now)
    scene.well(now=NOW - timedelta(days=28))  # the rest, long enough before it ends
    scene.well(now=NOW - timedelta(days=9))
    scene.truth.ends = True


def past(scene: Scene) -> None:
    """All is archived, and past its time. In the run that is killed it gets its tombstones."""
    scene.fill(12)
    for minutes in (10, 90, 200):
        scene.run(now=START + timedelta(days=30, minutes=minutes))


def buried(scene: Scene) -> None:
    """The tombstones are not due yet."""
    past(scene)
    scene.well(now=NOW - timedelta(days=3))


def write_late(scene: Scene, number: int) -> None:
    main, *extra = scene.truth.units[number]
    document = bson.decode(main)
    first, held = document["first"], document["held"]
    new = [{"p": -1.5, "time": first + 1}, {"p": -2.5, "time": first + 10}]
    late = {"n": 2, "first": first + 1, "last": first + 10, "held": new}
    scene.database["it"].insert_one({"_id": number, "dev": document["dev"], **late})
    together = [*held[:1], new[0], *held[2:], new[1]]
    merged = {**document, "n": len(together), "last": first + 10, "held": together}
    scene.truth.wrote(bson.encode(merged), *extra)


@dataclass(frozen=True)
class Job:
    text: str
    command: tuple[str, ...]
    prepare: Callable[[Scene], None]
    store: str = "file"
    change_at: str | None = None  # a label: before it a bucket changes
    after: Callable[[Scene], None] = field(default=lambda _scene: None)  # the application, before recovery
    code: int = 0  # where nothing goes wrong
    recover: tuple[str, ...] = ()  # a command, before the runs that recover
    recovered: Callable[[Scene], None] = field(default=lambda _scene: None)  # after that command
    finished: Callable[[Scene], None] = field(default=lambda _scene: None)  # once clean runs have finished
    abandons: bool = False  # what writes left unfinished is old enough to go
    halts: bool = False  # runs do, until `recover`

    def watched(self, scene: Scene, log: str) -> dict[str, Any]:
        """For `tests.faults.crashes.points.install`: all that a run does is logged, also in a cloud."""
        folder = scene.folder
        return {"log": str(folder / log), "folder": str(folder), "in_cloud": self.store == "google"}

    def given(self, scene: Scene, log: str) -> dict[str, Any]:
        """The same, for the run that is killed."""
        given = {**self.watched(scene, log), "abandons": self.abandons, "renews": True}
        given["registers"] = LAKE in self.text
        if self.change_at is not None:
            given["change"] = change_before(self.change_at, scene)
        return given


def changed(scene: Scene) -> list[bytes]:
    """The bucket that a writer changes between copy and delete, as it is then. Its overflow stays."""
    main, *extra = scene.truth.units[CHANGED]
    document = bson.decode(main)
    return [bson.encode({**document, "note": "changed"}), *extra]


def change_before(label: str, scene: Scene) -> tuple[str, ...]:
    """For `points.install`: at the first step of this label the bucket changes."""
    return label, scene.uri, scene.database.name, changed(scene)[0].hex()


_S3 = {"access-key-id": ACCESS_KEY, "secret-access-key": SECRET_KEY, "region": REGION}
ARCHIVE, COMPACT, LIFT = ("archive",), ("compact",), ("undelete",)
PAUSE, RESUME = ("pause", "--reason", "why"), ("resume",)
BACKFILL = ("rollup", "--since", "2018-06-30", "--until", "2018-07-02", "--slices", "1d")
ERASE = ("erase", "-p", "it", "--series", "dev=1", "--reason", "case 17", "--confirm", "it")
HOLD = ("hold", "add", "case", "--reason", "why")
_REGISTERED, _COPIED = "mongo commit receipt", "mongo commit copy"
_OFFLINE, _ONLINE = SLOTS + ROLLUP + OFFLINE, SAMPLES + ROLLUP + ONLINE
JOBS = {
    "first run": Job(_OFFLINE, ("run",), filled),
    "roll-up": Job(_OFFLINE, ("rollup",), more_to_roll_up, after=mended, code=3),
    "backfill": Job(_OFFLINE, BACKFILL, filled, recover=BACKFILL),
    "first run online": Job(_ONLINE, ("run",), filled),
    "expiry": Job(_OFFLINE + RETAIN, ("run",), young),
    "tombstones of summaries": Job(_OFFLINE + WAITING, ("run",), still_young),
    "nothing to do": Job(_OFFLINE, ("run",), idle),
    "offline": Job(_OFFLINE, ARCHIVE, rolled_up),
    "offline s3": Job(SAMPLES + ROLLUP + OFFLINE, ARCHIVE, rolled_up, store="moto"),
    "offline google": Job(_OFFLINE, ARCHIVE, rolled_up, store="google"),
    "clean-up": Job(_OFFLINE, ("run",), cut_off, abandons=True),
    "clean-up s3": Job(_OFFLINE, ("run",), cut_off, store="moto"),
    "clean-up google": Job(_OFFLINE, ("run",), cut_off, store="google"),
    "amended": Job(_OFFLINE, ARCHIVE, rolled_up, change_at=_REGISTERED, code=3),
    "amended s3": Job(_OFFLINE, ARCHIVE, rolled_up, store="moto", change_at=_REGISTERED, code=3),
    "amended google": Job(_OFFLINE, ARCHIVE, rolled_up, "google", change_at=_REGISTERED, code=3),
    "grace": Job(SLOTS + ROLLUP + GRACE, ARCHIVE, copied),
    "online": Job(_ONLINE, ARCHIVE, rolled_up),
    "online changed": Job(_ONLINE, ARCHIVE, rolled_up, change_at=_COPIED, code=3),
    "late": Job(_ONLINE, ARCHIVE, archived_and_late),
    "late and grace": Job(_ONLINE + 'grace = "1d"\n', ARCHIVE, late_and_copied),
    "compacted": Job(_OFFLINE, COMPACT, in_small_commits, recover=COMPACT),
    "compacted s3": Job(SAMPLES + ROLLUP + GRACE, COMPACT, in_small_commits, store="moto"),
    "compacted and dropped": Job(_OFFLINE, ("run",), compacted),
    "compacted and dropped s3": Job(_OFFLINE, ("run",), compacted, store="moto"),
    "registered": Job(_OFFLINE + LAKE, COMPACT, in_tables, recover=COMPACT, recovered=check_table),
    "registered s3": Job(
        SAMPLES + ROLLUP + OFFLINE + LAKE, COMPACT, in_tables, "moto", recover=COMPACT, recovered=check_table
    ),
    "erased": Job(
        SLOTS + ROLLUP + GRACE, ERASE, copied_and_kept, "file", None, erased_so_far, 0, ERASE, all_erased
    ),
    "erased and live": Job(_OFFLINE, ERASE, half_archived, "file", None, erased_so_far, 0, ERASE, all_erased),
    "erased s3": Job(
        SAMPLES + ROLLUP + OFFLINE, ERASE, half_archived, "moto", None, erased_so_far, 0, ERASE, all_erased
    ),
    "erased online": Job(_ONLINE, ERASE, half_archived, "file", None, erased_so_far, 0, ERASE, all_erased),
    "hold": Job(_OFFLINE, HOLD, filled, recover=HOLD),
    "held": Job(_OFFLINE, ("run",), held, after=released),
    "tombstones": Job(_OFFLINE + ENDING, ("run",), past),
    "tombstones online": Job(_ONLINE + ENDING, ("run",), past),
    "expired archive": Job(_OFFLINE + ENDING, ("run",), under_tombstones),
    "expired archive s3": Job(_OFFLINE + ENDING, ("run",), under_tombstones, store="moto"),
    "expired archive online": Job(_ONLINE + ENDING, ("run",), under_tombstones),
    "undelete": Job(_OFFLINE + ENDING, LIFT, buried, recover=LIFT),
    "undelete online": Job(_ONLINE + ENDING, LIFT, buried, recover=LIFT),
    "remodelled": Job(_OFFLINE, remodelled.TO_READINGS, remodelled.kept_apart, recovered=remodelled.goes_on),
    "remodelled natively": Job(
        _OFFLINE, remodelled.TO_NATIVE, remodelled.kept_apart, recovered=remodelled.goes_on_natively
    ),
    "remodelled further": Job(
        _OFFLINE, remodelled.TO_NATIVE, remodelled.cut_off, recovered=remodelled.goes_on_natively
    ),
    "pause": Job(_OFFLINE, PAUSE, filled, recover=RESUME),
    "resume": Job(_OFFLINE, RESUME, paused, recover=RESUME),
    "checkpoint": Job(_OFFLINE, ("run",), checkpoint_gone),
    "checkpoint s3": Job(_OFFLINE, ("run",), checkpoint_gone, store="moto"),
    "old receipts": Job(_OFFLINE + MOVING, ("run",), archived_long_ago),
    "old receipts s3": Job(_OFFLINE + MOVING, ("run",), archived_long_ago, store="moto"),
    "restore": Job(
        SAMPLES + ROLLUP + OFFLINE,
        ("restore", "--policy", "it", "--to", "it", "--yes"),
        restored,
        recover=("unpin", "--yes"),
    ),
    "copied": Job(COPY + _OFFLINE, ARCHIVE, elsewhere.beside_a_copy, finished=elsewhere.like_its_copy),
    "encrypted": Job(
        KEY + COPY + _OFFLINE, ARCHIVE, elsewhere.beside_a_copy, finished=elsewhere.like_its_copy
    ),
    "filled": Job(
        COPY + _OFFLINE,
        ("copy",),
        elsewhere.without_its_copy,
        recover=("copy",),
        halts=True,
        finished=elsewhere.like_its_copy,
    ),
    "repaired": Job(
        COPY + _OFFLINE, ("repair",), elsewhere.damaged, recover=("repair",), finished=elsewhere.like_its_copy
    ),
    "repaired and encrypted": Job(
        KEY + COPY + _OFFLINE,
        ("repair",),
        elsewhere.damaged,
        recover=("repair",),
        finished=elsewhere.like_its_copy,
    ),
    "looked after": Job(
        COPY + _OFFLINE,
        ("run",),
        elsewhere.damaged,
        code=3,
        recovered=elsewhere.run_again,
        finished=elsewhere.like_its_copy,
    ),
    "moved": Job(
        KEY + COPY + _OFFLINE + MOVES,
        ("run",),
        elsewhere.due_for_another_class,
        "moto",
        finished=elsewhere.in_the_other_class,
    ),
    "late and cold": Job(
        _OFFLINE + GLACIER, ("run",), elsewhere.late_and_cold, "moto", after=elsewhere.thawed
    ),
    "thawed": Job(_OFFLINE + GLACIER, THAW, elsewhere.cold, "moto", None, elsewhere.thawed, 3, recover=THAW),
    "unpin": Job(_OFFLINE, ("unpin", "--yes"), pinned, recover=("unpin", "--yes")),
}
