"""Nothing is written, read or deleted outside the policy's own part of the store, whoever asks for it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bson import encode
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo.database import Database

from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.format.names import commit_of_file, parse_commit
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.base import Corrupt, StoreError
from bucketwise.config.checks.names import policy_fault
from bucketwise.config.errors import HaltedError
from bucketwise.config.load import load
from bucketwise.config.problems import ConfigError
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, LATER, Case, raw_documents, reading, slots
from tests.archivers.harness import Cycle
from tests.config.bad_configs import changed
from tests.conftest import use_test_credentials
from tests.examples import examples

Document = dict[str, Any]
COMMIT = "[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{4}-[0-9]{2}-[0-9]{2}_f[0-9]{6,}_[0-9a-f]{16}"
OURS = re.compile(
    rf"ticks/(data/dt=[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}/{COMMIT}\.parquet|meta/buckets/{COMMIT}\.parquet"
    rf"|meta/manifests/[0-9]{{10}}_{COMMIT}\.json|meta/owner\.json|meta/lineage/[0-9]{{10}}-[0-9a-f]{{32}}\.json)|bucketwise\.json"
)


@pytest.fixture
def store_aside(tmp_path: Path) -> Store:
    """A store with room for neighbours: `outside/` lies beside it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_bytes(b"precious")
    (tmp_path / "store").mkdir()
    return Store(url=(tmp_path / "store").as_uri())


@pytest.fixture
def cycle(database: Database[Document], store_aside: Store) -> Cycle:
    case = slots("minute")
    few = Case(case.name, case.policy, case.documents[:3], [])
    cycle = Cycle(database, few, store_aside).load()
    cycle.run()
    return cycle


def snapshot(folder: Path) -> dict[str, bytes | str]:
    return {
        path.relative_to(folder).as_posix(): path.readlink().as_posix()
        if path.is_symlink()
        else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() or path.is_symlink()
    }


# -- the store's url ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ["s3://acme-archive", "file:///var/lib"])
def test_a_url_that_leads_elsewhere_is_refused(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_test_credentials(monkeypatch)
    path = tmp_path / "bucketwise.toml"
    path.write_text(changed())
    steps = ["a/../b", "..", "a/..", "./a", "a/.", "%2e%2e/a", "a%2fb", "a\\..\\b", "~/a"]
    for rest in (*steps, "a//b", "//a", "a//", "a?x=1", "a#x", "a/\n/b", "?versionId=1"):
        with pytest.raises(ConfigError) as error:
            load(path, {"BUCKETWISE_STORE_URL": f"{root}/{rest}"})
        assert {problem.key for problem in error.value.problems} == {"store.url"}, rest
    settings = load(path, {"BUCKETWISE_STORE_URL": f"{root}/a/"})
    assert settings.store is not None and open_store(settings.store).url == f"{root}/a"


@pytest.mark.parametrize("name", ["..", ".", "a/b", "/a", "a.b", "", "%2e", "a b", "\u00e9", "x" * 65])
def test_a_policy_is_a_folder_of_its_own(name: str) -> None:
    assert policy_fault(name) is not None
    assert policy_fault("a-B_9") is None


# -- names that come from elsewhere ----------------------------------------------------------------------


def manifest_of(cycle: Cycle) -> Path:
    (path,) = (cycle.root / cycle.policy.name / "meta" / "manifests").glob("*.json")
    return path


def forge(path: Path, change: Callable[[Document], None]) -> None:
    """Change a manifest, and seal it as the writer does: zeros in place of its own SHA-256."""
    document = json.loads(path.read_bytes())
    change(document)
    document["sha256"] = "0" * 64
    data = json.dumps(document, indent=1).encode()
    path.write_bytes(data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode()))


def named(key: str) -> Callable[[Document], None]:
    return lambda manifest: manifest["parts"][0].update(key=key)


def with_buckets_at(key: str) -> Callable[[Document], None]:
    return lambda manifest: manifest["sections"][0]["buckets_file"].update(key=key)


FORGED: dict[str, Callable[[Document], None]] = {
    "above the store": named("../outside/precious"),
    "far above": named("ticks/data/../../../outside/precious"),
    "absolute": named("/etc/hostname"),
    "another policy's part": named("other/data/dt=2018-06-30/theirs.parquet"),
    "the manifest itself": named("slots/meta/owner.json"),
    "another folder": named("slots/meta/superseded/x.bson"),
    "nothing": named(""),
    "a folder": named("."),
    "a buckets file elsewhere": with_buckets_at("../outside/precious"),
    "a buckets file of another": with_buckets_at("other/meta/buckets/x.parquet"),
    "no section": lambda it: it["sections"].clear(),
    "a section without its parts": lambda it: it["sections"][0].update(parts=0),
    "a section with less than none": lambda it: it["sections"][0].update(parts=-1),
    "a section with parts of nobody": lambda it: it["sections"][0].update(parts=99),
    "a section twice": lambda it: it["sections"].append(it["sections"][0]),
    "a day that is not its own": lambda it: it["parts"][0].update(dt="2001-01-01"),
    "a layout with another name": lambda it: it["layout"].update(name="other"),
    "a layout that reads all": lambda it: it["layout"].update(collection="system.users"),
    "no layout": lambda it: it["layout"].clear(),
}


def test_a_manifest_sealed_by_hand_is_taken(cycle: Cycle) -> None:
    """By who knows nothing of it: else the tests below would prove nothing. Its receipt tells."""
    forge(manifest_of(cycle), lambda it: it.update(created="2001-01-01T00:00:00Z"))
    assert [bad.code for bad in cycle.verify().bad] == ["part-differs"]
    cycle.database["bucketwise_receipts"].drop()
    assert cycle.verify().bad == []


@pytest.mark.proof
def test_a_forged_manifest_names_only_files_of_its_commit(cycle: Cycle, tmp_path: Path) -> None:
    theirs = tmp_path / "store" / "other" / "data" / "dt=2018-06-30" / "theirs.parquet"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"theirs")
    manifest = manifest_of(cycle)
    genuine = manifest.read_bytes()
    receipts = cycle.database["bucketwise_receipts"]
    mine = {"_id": {"policy": cycle.policy.name, "name": manifest.stem}}
    for what, change in FORGED.items():
        manifest.write_bytes(genuine)
        forge(manifest, change)
        before = snapshot(tmp_path)
        assert [bad.code for bad in cycle.verify().bad] == ["part-differs"], what
        with pytest.raises(HaltedError):
            cycle.restore("back")
        # A run would take a commit out that a receipt says is replaced, and looks into one that has none.
        for state in ("replaced", None):
            receipts.delete_one(mine)
            if state:
                receipts.insert_one(mine | {"kind": "offline", "state": state})
            with pytest.raises(DamagedError) as error:
                cycle.run()
            assert (error.value.exit_code, error.value.code) == (5, "part-differs"), what
            assert manifest.name in str(error.value) and "Nothing was deleted" in str(error.value)
        assert "back" not in cycle.database.list_collection_names()
        assert snapshot(tmp_path) == before, what


def test_very_many_brackets_are_damage(cycle: Cycle) -> None:
    """And no defect of the program."""
    manifest_of(cycle).write_bytes(b"[" * 200_000)
    assert {bad.code for bad in cycle.verify().bad} == {"part-differs"}
    for work in (cycle.run, lambda: cycle.restore("back")):
        with pytest.raises(HaltedError, match="can't be read"):
            work()


def test_a_receipt_names_no_file(cycle: Cycle, tmp_path: Path) -> None:
    before = snapshot(tmp_path)
    receipts = cycle.database["bucketwise_receipts"]
    for name in ("../outside/precious", "/etc/hostname", "..", "x/../../outside/precious"):
        identity = {"policy": cycle.policy.name, "name": name}
        told = {"seal": "0" * 64, "sequence": 1}
        forged = {"_id": identity, "kind": "offline", "parts": [name], **told}
        for state in ("replaced", "open"):
            receipts.replace_one(
                {"_id": identity}, forged | {"state": state, "replaced_by": None}, upsert=True
            )
            with pytest.raises(HaltedError):
                cycle.run()
        receipts.delete_one({"_id": forged["_id"]})
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "key",
    [
        "ticks/data/x/{commit}.parquet",
        "ticks/data/dt=2018-06-30/more/{commit}.parquet",
        "ticks/data/dt=2018-06-30/{commit}.json",
        "ticks/data/dt=2018-06-30/.parquet",
        "ticks/meta/manifests/{commit}.parquet",
        "ticks/data/../../other/{commit}.parquet",
        "other/data/dt=2018-06-30/{commit}.parquet",
    ],
)
def test_only_what_a_run_would_write_is_of_a_commit(key: str) -> None:
    commit = "2018-06-30_2018-06-30_f000001_0123456789abcdef"
    assert commit_of_file("ticks", f"ticks/data/dt=2018-06-30/{commit}.parquet") == parse_commit(commit)
    assert commit_of_file("ticks", f"ticks/meta/buckets/{commit}.parquet") is not None
    assert commit_of_file("ticks", key.format(commit=commit)) is None


def test_a_planted_name_is_no_commit(cycle: Cycle) -> None:
    folder = manifest_of(cycle).parent
    names = [
        "9999-99-99_9999-99-99_f000001_0123456789abcdef",
        "2018-02-30_2018-03-01_f000001_0123456789abcdef",
        "\u0662\u0660\u0661\u0668-06-30_2018-06-30_f000001_0123456789abcdef",
        "2018-06-30_2018-06-30_f\u0661_0123456789abcdef",
        "2018-06-30_2018-06-30_f000001_0123456789abcdef\n",
    ]
    for name in names:
        assert parse_commit(name) is None
        (folder / f"{name}.json").write_bytes(b"{}")
    assert cycle.verify().bad == []
    cycle.run()
    assert len(list(folder.iterdir())) == 1 + len(names)


# -- symbolic links in a directory -----------------------------------------------------------------------


def test_a_link_is_no_part(cycle: Cycle, tmp_path: Path) -> None:
    """Named as a run cut off would have left it: cleared away, and what is behind it is not."""
    cycle.runs.add((0, LATER))
    precious = tmp_path / "outside" / "precious"
    dead = "2018-06-30_2018-06-30_f000000_0123456789abcdef"
    day = cycle.root / cycle.policy.name / "data" / "dt=2018-06-30"
    day.mkdir(exist_ok=True)
    (day / f"{dead}.parquet").symlink_to(precious)
    (day / "mine.parquet").symlink_to(precious)
    (day.parent / "dt=2001-01-01").symlink_to(precious.parent)
    listed = [item.key for item in cycle.store.list(f"{cycle.policy.name}/data/")]
    assert any(key.endswith("mine.parquet") for key in listed)  # `audit` tells of it
    assert not any(key.endswith("precious") for key in listed)
    cycle.run()
    assert not (day / f"{dead}.parquet").is_symlink()
    assert (day / "mine.parquet").is_symlink() and (day.parent / "dt=2001-01-01").is_symlink()
    assert precious.read_bytes() == b"precious"


def test_what_runs_left_behind_a_link_is_not_cleared(cycle: Cycle, tmp_path: Path) -> None:
    dead = "2018-06-30_2018-06-30_f000000_0123456789abcdef.parquet"
    outside = tmp_path / "outside"
    (outside / dead).write_bytes(b"somebody's")
    (cycle.root / cycle.policy.name / "data" / "dt=1999-01-01").symlink_to(outside)
    cycle.run()
    assert (outside / dead).read_bytes() == b"somebody's"


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("kind", ["data", "meta/buckets", "meta/manifests"])
def test_a_file_that_is_a_link_is_damage(cycle: Cycle, kind: str, tmp_path: Path) -> None:
    """Though the bytes behind it are the right ones: whoever moves them there may change them."""
    path = next(it for it in (cycle.root / cycle.policy.name / kind).rglob("*") if it.is_file())
    moved = path.rename(tmp_path / "outside" / path.name)
    path.symlink_to(moved)
    (bad,) = cycle.verify().bad
    assert bad.code == "part-differs" and "symbolic link" in bad.message
    with pytest.raises(HaltedError, match="symbolic link"):
        cycle.restore("back")
    assert moved.exists()


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("folder", ["", "data", "meta", "meta/manifests", "data/dt=*"])
def test_a_folder_that_is_a_link_is_not_entered(cycle: Cycle, folder: str, tmp_path: Path) -> None:
    path = next(iter((cycle.root / cycle.policy.name).glob(folder))) if folder else cycle.root / "slots"
    moved = path.rename(tmp_path / "outside" / "moved")
    path.symlink_to(moved)
    before = snapshot(tmp_path)
    with pytest.raises((HaltedError, Corrupt)) as error:
        cycle.restore("back")
    assert error.value.exit_code == 5 and "symbolic link" in str(error.value)
    cycle.load()
    with pytest.raises((HaltedError, Corrupt)) as error:
        cycle.run()
    assert error.value.exit_code == 5
    assert cycle.live() == sorted(cycle.case.documents)
    assert snapshot(tmp_path) == before


def test_temporaries_are_not_cleaned_behind_a_link(store_aside: Store, tmp_path: Path) -> None:
    store, outside = open_store(store_aside), tmp_path / "outside"
    (tmp_path / "store" / ".tmp").symlink_to(outside)
    os.utime(outside / "precious", (0, 0))
    for act in (lambda: store.clean_temporaries(datetime.now(UTC)), lambda: store.put_bytes("k", b"")):
        with pytest.raises(StoreError, match="symbolic link"):
            act()
    assert [it.name for it in outside.iterdir()] == ["precious"]


def test_a_store_behind_a_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "named").symlink_to(tmp_path / "real")
    store = open_store(Store(url=(tmp_path / "named").as_uri()))
    store.put_bytes("a/b", b"x")
    assert store.get_bytes("a/b") == b"x" and [it.key for it in store.list("a/")] == ["a/b"]


# -- values of series ------------------------------------------------------------------------------------

SERIES = st.one_of(
    st.sampled_from(
        ["../../x", "/etc/x", "..", ".", "%2e%2e/x", "a/b", "C:\\x", "dt=2018-01-01", "*", "~", ""]
    ),
    st.text(max_size=20),
    st.integers(-(2**63), 2**63 - 1),
)


@settings(max_examples=examples(5))
@given(values=st.lists(SERIES, min_size=1, max_size=4))
def test_series_are_in_no_path(
    database: Database[Document], store_aside: Store, tmp_path: Path, values: list[str | int]
) -> None:
    database.drop_collection("ticks")
    database.drop_collection("bucketwise_receipts")
    kind = type(values[0])
    documents = [
        encode({"_id": i, "symbol": value, "d": DAY0, "p": 1.0})
        for i, value in enumerate(it for it in values if type(it) is kind)
    ]
    base = reading()
    case = Case("x", base.policy.model_copy(update={"name": "ticks"}), documents, [])
    aside = Store(url=f"{store_aside.url}/{os.urandom(4).hex()}")
    cycle = Cycle(database, case, aside).load()
    cycle.root.mkdir()
    before = snapshot(tmp_path)
    assert cycle.run().deleted == len(documents)
    new = set(snapshot(tmp_path)) - set(before)
    inside = f"store/{cycle.root.name}/"
    assert new and all(name.startswith(inside) for name in new)
    assert [name for name in new if not OURS.fullmatch(name.removeprefix(inside))] == []
    cycle.restore("back")
    assert raw_documents(database, "back") == sorted(documents)
    database.drop_collection("back")
