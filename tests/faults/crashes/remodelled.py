"""A collection beside the policy's own, that is rewritten in another model: what stands before, and what must
hold after a kill."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from tests.faults.scene import START, Scene

TO_READINGS = ("remodel", "kept", "--to", "reading", "--into", "other")
TO_NATIVE = ("remodel", "kept", "--to", "timeseries", "--into", "other")


def kept_apart(scene: Scene) -> None:
    """Buckets of a minute, of two series, without a policy of their own: runs leave them alone."""
    scene.fill(12)
    for number in range(24):
        values = {str(it): number + it / 8 for it in (0, 7, 21, 34, 58)}
        at = START + number // 2 * timedelta(minutes=1)
        scene.database["kept"].insert_one({"dev": number % 2, "d": at, "p": values})
    scene.database["kept"].create_index("d")


def cut_off(scene: Scene) -> None:
    """One was killed before, when it had written some."""
    kept_apart(scene)
    given = {"log": str(scene.folder / "before"), "folder": str(scene.folder), "at": "mongo insert other"}
    ran = scene.run(
        *TO_NATIVE, meddle=("tests.faults.crashes.points", {**given, "nth": 2, "moment": "after"})
    )
    assert ran.code == -9


def goes_on(scene: Scene, command: tuple[str, ...] = TO_READINGS) -> None:
    """Given again, the command comes to its end: each reading is there once, by plain Python."""
    ran = scene.run(*command)
    assert ran.code == 0, ran
    expected = Counter(
        (it["dev"], it["d"] + timedelta(seconds=int(slot)), value)
        for it in scene.database["kept"].find()
        for slot, value in it["p"].items()
    )
    assert (ran.json["equal"], ran.json["readings"]) == (True, expected.total())
    assert Counter((it["dev"], it["d"], it["p"]) for it in scene.database["other"].find()) == expected


def goes_on_natively(scene: Scene) -> None:
    goes_on(scene, TO_NATIVE)
