from __future__ import annotations

from tests.jobs.conftest import bucketwise, place, states

__all__ = ["bucketwise", "place", "states"]
