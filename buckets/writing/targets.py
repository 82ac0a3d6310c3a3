"""The models that a collection can be rewritten in, with their sizes, and the policy for each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bucketwise.buckets.models.shape import split
from bucketwise.buckets.models.slots import length_ms, slot_levels
from bucketwise.buckets.writing.exact import ExactReadings
from bucketwise.config.policies import Policy

Document = dict[str, Any]
#: Targets by name, in the order in which they are shown.
MODELS = (
    "reading",
    "slots-minute",
    "slots-hour",
    "samples-50",
    "samples-200",
    "samples-1000",
    "timeseries",
)
ALIASES = {"slots": "slots-minute", "samples": "samples-200", "native": "timeseries"}
_MAX_SAMPLES = 10_000
_META = "meta"
#: Documents and readings in memory at once as Python's objects, to be written.
AT_ONCE, _READINGS = 2_000, 100_000


@dataclass(frozen=True)
class Target:
    """A model with its size, and the policy that reads what is written in it."""

    name: str
    policy: Policy
    size: int = 0  # samples a bucket

    @property
    def meta(self) -> str | None:
        """Returns the metaField of a native time-series collection."""
        return split(self.policy.series_fields[0])[0] if self.policy.series_fields else None

    @property
    def options(self) -> Document:
        """Returns how the collection is made."""
        if self.policy.model != "timeseries":
            return {}
        options = {"timeField": self.policy.time_field, "granularity": "seconds"}
        return {"timeseries": options | ({"metaField": self.meta} if self.meta else {})}

    @property
    def indexes(self) -> list[list[tuple[str, int]]]:
        """Returns the indexes that a run and the usual queries need."""
        policy = self.policy
        series = [(it, 1) for it in policy.stored_series.values()]
        if policy.model == "samples":
            first, last = (str(policy.start_field), 1), (str(policy.end_field), 1)
            return [[*series, last], [first], [last]]
        by_series = [*series, (str(policy.time_field), 1)]
        return [by_series] if policy.model == "timeseries" else [by_series, [(str(policy.time_field), 1)]]

    @property
    def write_batch_size(self) -> int:
        """Returns how many documents are written before the progress is recorded."""
        size = self.size or (self.span_ms // self.slot_ms if self.policy.model == "slots" else 1)
        return max(1, min(AT_ONCE, _READINGS // size))

    @property
    def slot_ms(self) -> int:
        """Returns how long a slot is; 1 where the model has none."""
        return slot_levels(self.policy)[-1].length if self.policy.model == "slots" else 1

    @property
    def span_ms(self) -> int:
        """Returns how long a bucket of slots is."""
        return length_ms(self.policy)


def model_named(text: str) -> str | None:
    """Returns the model that a person means; None where there is no such one."""
    name = ALIASES.get(text, text)
    found = re.fullmatch("samples-([0-9]{1,6})", name)
    if name in MODELS or (found and 0 < int(found[1]) <= _MAX_SAMPLES):
        return name
    return None


def target_of(name: str, policy: Policy, collection: str, *, is_whole_minutes: bool) -> Target:
    """Returns the target of this name for the readings of a policy. `is_whole_minutes`: an hour then has a
    slot a minute, else one a second inside each minute."""
    used = {split(it)[0] for it in (*policy.series_names, *policy.value_names)}
    series = list(policy.series_names)
    keys: Document = {"value_fields": policy.value_names}
    time = _free((policy.time_field or policy.sample_time_field or "time").rpartition(".")[2], used)
    size = 0
    if name == "reading":
        keys |= {"model": "reading", "time_field": time}
    elif name == "timeseries":
        outer = {split(it)[0] for it in series}
        if len(outer) > 1 or outer & {"_id", *(split(it)[0] for it in policy.value_names)}:
            meta = _free(_META, used | {time})
            series = [f"{meta}.{it}" for it in series]
        keys |= {"model": "timeseries", "time_field": time}
    elif name == "slots-minute":
        keys |= {"model": "slots", "slot": "second", "time_field": time}
    elif name == "slots-hour":
        form: Document = {"slot": "minute"} if is_whole_minutes else {"slot_levels": ("minute", "second")}
        keys |= {"model": "slots", "time_field": time, **form}
    else:
        size = int(name.partition("-")[2])
        names = {it: _free(it, used) for it in ("samples", "first", "last", "nsamples")}
        keys |= {"model": "samples", "samples_field": names["samples"], "sample_time_field": time}
        keys |= {"start_field": names["first"], "end_field": names["last"], "count_field": names["nsamples"]}
    target_policy = Policy(name=policy.name, collection=collection, series_fields=tuple(series), **keys)
    return Target(name, target_policy, size)


def misfits(target: Target, exact: ExactReadings) -> Iterator[tuple[str, int]]:
    """Yields what the model has no place for, and how many readings have it. `exact`: by series, then
    time."""
    if target.policy.model != "slots":
        return
    step = target.slot_ms
    is_misaligned = exact.time % step != 0
    yield f"readings that are not on a slot of {step // 1000:,} s", int(is_misaligned.sum())
    slot = exact.time // step
    is_double = (
        (np.diff(slot) == 0) & (np.diff(exact.series_index) == 0) & ~is_misaligned[1:] & ~is_misaligned[:-1]
    )
    yield "readings of a slot that holds one already (same series, same time)", int(is_double.sum())
    is_empty = np.ones(len(exact), dtype=np.bool_)
    for types in exact.types.values():
        is_empty &= types == 0
    yield "readings without any value, which are no reading in a slot", int(is_empty.sum())


def _free(name: str, taken: set[str]) -> str:
    while name in taken or not name or name == "_id":
        name += "_"
    return name
