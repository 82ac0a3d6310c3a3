"""The names that the documents of a target use: those of its source, and free ones for what is new."""

from __future__ import annotations

from dataclasses import dataclass

from bucketwise.buckets.models.shape import split
from bucketwise.config.policies import Policy


@dataclass(frozen=True)
class TargetNames:
    """The names of series fields and value fields, and of a reading's time."""

    series: tuple[str, ...]
    values: tuple[str, ...]
    time: str

    @classmethod
    def of(cls, policy: Policy, time: str | None) -> TargetNames:
        """Returns the names for the readings of a policy. `time`: where these have theirs."""
        names = cls(policy.series_names, policy.value_names, "")
        return cls(names.series, names.values, names.free((time or "time").rpartition(".")[2]))

    @property
    def used(self) -> set[str]:
        """Returns the top-level fields of series and values."""
        return {split(it)[0] for it in (*self.series, *self.values)}

    def free(self, name: str, *taken: str) -> str:
        """Returns a name that no series field or value field, nor `_id` or any of `taken`, has: this one,
        with as many `_` as it takes."""
        while name in {*self.used, *taken, "_id", ""}:
            name += "_"
        return name
