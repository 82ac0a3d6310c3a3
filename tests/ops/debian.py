"""Programs of Debian packages that these tests need."""

from __future__ import annotations

import shutil

import pytest


def program(name: str, package: str) -> str:
    """Returns the path of a program. Fails where it is missing: `make test` installs it where it can."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(
            f"{name} is missing. On Debian and Ubuntu: apt-get install --no-install-recommends {package}"
        )
    return found
