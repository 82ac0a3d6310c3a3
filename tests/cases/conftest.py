from __future__ import annotations

from tests.jobs.conftest import bucketwise

__all__ = ["bucketwise"]
