"""The bucket models: how readings lie in documents. Each is a class, which answers what depends on it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from bucketwise.buckets.models.model import BucketModel
from bucketwise.buckets.models.reading import ReadingModel
from bucketwise.buckets.models.samples import SamplesModel
from bucketwise.buckets.models.slots import SlotsModel
from bucketwise.buckets.models.timeseries import TimeSeriesModel
from bucketwise.config.policies import Policy

#: In the order in which they are shown.
MODELS: tuple[type[BucketModel[Any]], ...] = (ReadingModel, SlotsModel, SamplesModel, TimeSeriesModel)
_BY_NAME = {it.name: it for it in MODELS}
#: Policies whose models are kept, with the shapes of layouts that they have met.
_KEPT = 8


@lru_cache(_KEPT)
def model_of(policy: Policy) -> BucketModel[Any]:
    """Returns the bucket model of a policy."""
    return _BY_NAME[policy.model](policy)
