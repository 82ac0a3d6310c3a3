"""Which of three tiers tries a case: `make test`, the proofs, or the runs of hours."""

from __future__ import annotations

import pytest


def tier(*, is_first: bool, is_proof: bool) -> list[pytest.MarkDecorator]:
    """Returns the marks of a case. `is_first`: `make test` tries it."""
    if is_first:
        return []
    return [pytest.mark.proof if is_proof else pytest.mark.soak]
