"""Archives that lie in more than one place, encrypted, or in classes of S3: what stands before, and what must
hold after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tests.conftest import s3_client
from tests.faults.scene import NOW, START, Scene
from tests.faults.truth import Bucket, Folder, files_of

COPY = '[[store.copies]]\nname = "b"\nurl = "file://FOLDER/b"\n'
KEY = f'encryption_key = "{"k" * 32}"\n'
GLACIER = 'storage_class = "GLACIER"\n'
MOVES = '[[policies.it.archive.storage_classes]]\nafter = "45d"\nclass = "STANDARD_IA"\n'
THAW = ("thaw", "-p", "it", "--since", "2018-06-30", "--until", "2018-07-02")
DAY = timedelta(days=1)


def beside_a_copy(scene: Scene) -> None:
    """All is rolled up, and nothing is archived yet."""
    (scene.folder / "b").mkdir()
    scene.fill(12)
    scene.well("rollup")


def without_its_copy(scene: Scene) -> None:
    """All is archived; the copy is new in the policy file."""
    whole, scene.text = scene.text, scene.text.replace(COPY, "")
    scene.write_config()
    scene.fill(12)
    scene.well()
    (scene.folder / "b").mkdir()
    scene.text = whole
    scene.write_config()


def damaged(scene: Scene) -> None:
    """The copy has lost the last of what was archived, which has its turn in the next daily look."""
    beside_a_copy(scene)
    for days in (32, 31):
        scene.well(now=NOW - days * DAY)
    for kind in ("data/**/*.parquet", "manifests/*.json"):
        max((scene.folder / "b").rglob(kind)).unlink()


def run_again(scene: Scene) -> None:
    """A run that puts back what is damaged says so."""
    assert scene.run().code in (0, 3)


def like_its_copy(scene: Scene) -> None:
    """The copy has all that the store has, as it is there."""
    store, copy = Folder(scene.folder / "store"), Folder(scene.folder / "b")
    names = {it for it in store.names() if not it.startswith(".tmp/")}
    others = {it for it in copy.names() if not it.startswith(".tmp/")}
    assert others == names, others ^ names
    differing = [it for it in names if store.read(it) != copy.read(it)]
    assert [it for it in differing if "bucketwise.json" not in it] == []  # each has a marker of its own


def due_for_another_class(scene: Scene) -> None:
    """All is archived, and compaction has looked at it. Now the policy names a class, for which parts are old
    enough."""
    whole, scene.text = scene.text, scene.text.replace(MOVES, "")
    scene.write_config()
    (scene.folder / "b").mkdir()
    scene.fill(12)
    for days in (25, 22):
        scene.well(now=NOW - days * DAY)
    assert classes(scene) == {"STANDARD"}
    scene.text = whole
    scene.write_config()


def cold(scene: Scene) -> None:
    """All parts are in a class from which they have to be thawed."""
    scene.fill(12)
    for days in (25, 22):
        scene.well(now=NOW - days * DAY)
    assert classes(scene) == {"GLACIER"}


def late_and_cold(scene: Scene) -> None:
    """One more came for windows whose parts are cold."""
    cold(scene)
    scene.insert(100, START + timedelta(minutes=30), 3)


def classes(scene: Scene) -> set[str]:
    """The storage classes of parts."""
    return {named for _, named in _parts(scene)}


def thawed(scene: Scene) -> None:
    """By somebody: the checker reads parts."""
    for given, named in _parts(scene):
        if named == "GLACIER":
            s3_client(str(scene.store.endpoint_url)).restore_object(**given, RestoreRequest={"Days": 1})


def in_the_other_class(scene: Scene) -> None:
    assert classes(scene) == {"STANDARD_IA"}


def _parts(scene: Scene) -> Iterator[tuple[dict[str, str], str]]:
    """Where each part lies, and its storage class."""
    files = files_of(scene.store)
    assert isinstance(files, Bucket)
    for key in files.names():
        if "/data/" in key:
            given = {"Bucket": files.name, "Key": f"{files.prefix}/{key}"}
            yield given, s3_client(files.endpoint_url).head_object(**given).get("StorageClass", "STANDARD")
