"""A real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.jobs.page.browser import Browser


@pytest.fixture(scope="module")
def started_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.fail(
            "The tests of the audit page need Chromium and its driver. On Debian run: "
            "apt-get install chromium chromium-driver"
        )
    with Browser.started(chromium, driver, tmp_path_factory.mktemp("browser")) as it:
        yield it


@pytest.fixture
def browser(started_browser: Browser) -> Browser:
    """Chromium without a window, as it is at its start."""
    started_browser.reset()
    return started_browser
