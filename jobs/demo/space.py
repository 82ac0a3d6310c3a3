"""The act about room: what everything takes up, before and after."""

from __future__ import annotations

from typing import Any

from config.policies import Policy
from jobs.demo.show import change, size
from jobs.demo.sizes import Size, listing, size_of
from jobs.demo.stage import Stage

_NOTHING = Size(0, 0, 0, 0)
_ABOUT = "Disk and indexes are the blocks in use; what a delete frees in a file waits there for new data."
Body = dict[str, Any]


def space(stage: Stage) -> None:
    stage.show.act("What it takes up", _ABOUT)
    archives = {result.policy: result.body.get("archive", {}) for result in stage.results}
    rows: list[list[str]] = []
    for policy in stage.policies:
        before, after = stage.before[policy.name], size_of(stage.database, stage.collections(policy))
        archived, shown = _archived(stage, policy, archives[policy.name])
        rows.append([policy.name, *change(before, after), shown])
        sizes = {"before": before._asdict(), "after": after._asdict(), "archive_bytes": archived}
        stage.sizes.append({"policy": policy.name, **sizes})
    new = {"summaries": _summaries(stage), "iot_archive": size_of(stage.database, ["iot_archive"])}
    rows.append([])
    rows += [[name, *change(_NOTHING, it), ""] for name, it in new.items()]
    stage.show.table(("Collection", "Documents", "Data", "Disk", "Indexes", "Parquet"), rows)
    stage.show.verdict("The archives hold exactly what left")


def _archived(stage: Stage, policy: Policy, body: Body) -> tuple[int, str]:
    """The bytes in the archive, and how to show them."""
    assert policy.archive is not None
    if policy.archive.to == "offline":
        files = listing(stage.place.store / policy.name)
        parquet = sum(length for name, (length, _) in files.items() if name.endswith(".parquet"))
        stage.checks.equal(f"{policy.name}: bytes of Parquet", parquet, body.get("bytes"))
        return parquet, size(parquet)
    held = stage.documents(str(policy.archive.collection))
    gone = stage.made[policy.name].some(stage.expired(policy))
    stage.checks.holds(f"{policy.archive.collection} differs from what left", sorted(held) == sorted(gone))
    return sum(map(len, held)), ""


def _summaries(stage: Stage) -> Size:
    rollups = [policy.rollup for policy in stage.policies if policy.rollup]
    return size_of(stage.database, [str(name) for it in rollups for name in (it.hourly, it.daily)])
