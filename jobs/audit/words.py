"""A policy in words."""

from __future__ import annotations

from datetime import timedelta

from bucketwise.buckets.models import model_of
from bucketwise.config.durations import format_duration
from bucketwise.config.policies import Archive, Policy

_UNITS = {"y": "year", "w": "week", "d": "day", "h": "hour", "m": "minute", "s": "second"}


def words(policy: Policy, store_url: str | None) -> str:
    """Returns sentences on what happens to readings and to summaries, and when."""
    return "; ".join([_of_readings(policy, store_url), *_of_summaries(policy)])


def _of_readings(policy: Policy, store_url: str | None) -> str:
    archive, source, archived = policy.archiving, policy.collection, policy.archive_collections
    if archive is None or archive.after is None:
        return f"raw readings stay in {source}"
    target = f"the collection {archived.buckets}" if archived else f"Parquet in {store_url}/{policy.identity}"
    if not archive.delete or not model_of(policy).can_delete:
        return f"raw readings stay in {source}, copied to {target} after {spelled(archive.after)}"
    return f"raw {spelled(archive.after)} in {source}, then {target} {_until(policy)}{_conditions(archive)}"


def _until(policy: Policy) -> str:
    """Returns how long the archive stays, counted from the reading."""
    keep = policy.retain.archive if policy.retain else None
    return "forever" if keep is None else f"until {spelled(keep)} old"


def _conditions(archive: Archive) -> str:
    said = []
    if archive.batch is not None:
        said.append(f"in batches of {spelled(archive.batch)}")
    if archive.grace:
        said.append(f"deleted {spelled(archive.grace)} after the copy was verified")
    return f" ({'; '.join(said)})" if said else ""


def _of_summaries(policy: Policy) -> list[str]:
    if policy.rollup is None or not policy.rollup.targets:
        return ["no summaries"]
    kept = policy.retain.by_level if policy.retain else {}
    levels: dict[str, list[str]] = {}
    for level in policy.rollup.targets:
        levels.setdefault(spelled(kept.get(level)), []).append(level)
    return [f"{_and(names)} summaries {span}" for span, names in levels.items()]


def _and(names: list[str]) -> str:
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])


def spelled(span: timedelta | None) -> str:
    """Returns a duration in full: 30 days."""
    if span is None:
        return "forever"
    text = format_duration(span)
    count, unit = int(text[:-1]), _UNITS[text[-1]]
    if unit == "week":
        count, unit = count * 7, "day"
    return f"{count:,} {unit}{'' if count == 1 else 's'}"
