from __future__ import annotations

from tests.jobs.conftest import bucketwise, place

__all__ = ["bucketwise", "place"]
