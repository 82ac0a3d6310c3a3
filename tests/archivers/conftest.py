"""What tests of archives share."""

from __future__ import annotations

import pytest

from tests.archivers.harness import nothing


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine doesn't crash here, so that nothing needs to reach its disk."""
    monkeypatch.setattr("os.fsync", nothing)
