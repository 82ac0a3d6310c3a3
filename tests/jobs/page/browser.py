"""Chromium without a window, and what is asked of it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip


@dataclass
class Browser:
    driver: Chrome
    folder: Path

    @classmethod
    @contextmanager
    def started(cls, chromium: str, driver: str, folder: Path) -> Iterator[Browser]:
        """Starts it with a profile of its own in the folder."""
        options = ChromeOptions()
        options.binary_location = chromium
        for option in (*_OPTIONS, f"--user-data-dir={folder / 'profile'}"):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        running = Chrome(options=options, service=Service(driver))
        try:
            yield cls(running, folder)
        finally:
            running.quit()

    def reset(self) -> None:
        """As wide as a desk, light, on a screen, and with nothing on its console."""
        self.be(width=1280)
        self.driver.get("about:blank")
        self.complaints()

    def be(self, *, width: int, scheme: str = "light", media: str = "screen") -> None:
        """Changes the width of the window, in pixels, and what the page is told of its reader."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def show(self, page: str) -> None:
        """Opens a page, from a file."""
        path = self.folder / "page.html"
        path.write_text(page, encoding="utf-8")
        self.driver.get(path.as_uri())

    def ask(self, script: str) -> Any:
        """Returns what an expression is in the page."""
        return self.driver.execute_script(f"return ({script})")

    def complaints(self) -> list[str]:
        """Returns what the console says since it was asked last."""
        log: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [str(it["message"]) for it in log]

    def tree(self) -> list[tuple[str, str]]:
        """Returns the role and the name of all that a screen reader is told of."""
        shown = WebDriverWait(self.driver, 60).until(lambda _: self._shown())
        return [(it["role"]["value"], it.get("name", {}).get("value", "")) for it in shown]

    def _shown(self) -> list[dict[str, Any]]:
        """Returns the nodes of the tree; none while it has only its root."""
        found = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        shown = [it for it in found if not it["ignored"]]
        return shown if len(shown) > 1 else []

    def pdf(self, paper: tuple[float, float] | None = None) -> bytes:
        """Returns the page as it is printed. `paper`: its width and height in inches."""
        size = {} if paper is None else {"paperWidth": paper[0], "paperHeight": paper[1]}
        asked = {"printBackground": False, "preferCSSPageSize": paper is None, **size}
        printed = self.driver.execute_cdp_cmd("Page.printToPDF", asked)
        return base64.b64decode(printed["data"])
