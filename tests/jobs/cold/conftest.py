from __future__ import annotations

from collections.abc import Iterator

import pytest

from bucketwise.config.tables import Store
from tests.jobs.cold.chilled import Chilled, thaws_after
from tests.jobs.place import Place


@pytest.fixture
def chilled(place: Place, moto_store: Store) -> Iterator[Chilled]:
    thaws_after(moto_store, 1)
    yield Chilled(place, moto_store)
    thaws_after(moto_store, 0)
