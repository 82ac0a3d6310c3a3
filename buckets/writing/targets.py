"""The models that a collection can be rewritten in, with their sizes, and the policy for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bucketwise.buckets.models import MODELS, model_of
from bucketwise.buckets.models.model import BucketModel
from bucketwise.buckets.models.target import TargetNames
from bucketwise.buckets.writing.exact import ExactReadings
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy

Document = dict[str, Any]
#: Targets by name, in the order in which they are shown.
TARGETS = tuple(name for model in MODELS for name in model.targets)
ALIASES = {alias: name for model in MODELS for alias, name in model.target_aliases.items()}
#: Documents and readings in memory at once as Python's objects, to be written.
AT_ONCE, _READINGS = 2_000, 100_000


@dataclass(frozen=True)
class Target:
    """A model with its size, and the policy that reads what is written in it."""

    name: str
    policy: Policy
    size: int = 0  # samples a bucket

    @property
    def model(self) -> BucketModel[Any]:
        """Returns the bucket model of what is written."""
        return model_of(self.policy)

    @property
    def options(self) -> Document:
        """Returns how the collection is made."""
        return self.model.made_with("seconds")

    @property
    def write_batch_size(self) -> int:
        """Returns how many documents are written before the progress is recorded."""
        return max(1, min(AT_ONCE, _READINGS // (self.size or self.model.written_at_once)))


def target_named(text: str) -> str | None:
    """Returns the target that a person means; None where there is no such one."""
    name = ALIASES.get(text, text)
    return name if any(model.has_target(name) for model in MODELS) else None


def target_of(name: str, policy: Policy, collection: str, *, is_whole_minutes: bool) -> Target:
    """Returns the target of this name for the readings of a policy. `is_whole_minutes`: whether all of them
    lie on whole minutes."""
    model = next(it for it in MODELS if it.has_target(name))
    names = TargetNames.of(policy, model_of(policy).time_field)
    keys: Document = {"name": policy.name, "collection": collection, "model": model.name}
    keys |= {"series_fields": names.series, "value_fields": names.values}
    keys |= model.target_keys(name, names, is_whole_minutes=is_whole_minutes)
    return Target(name, make_policy(**keys), model.target_size(name))


def misfits(target: Target, exact: ExactReadings) -> Iterator[tuple[str, int]]:
    """Yields what the model has no place for, and how many readings have it. `exact`: by series, then
    time."""
    is_empty = np.ones(len(exact), dtype=np.bool_)
    for types in exact.types.values():
        is_empty &= types == 0
    return target.model.misfits(exact.series_index, exact.time, is_empty)
