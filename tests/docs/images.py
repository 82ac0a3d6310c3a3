"""Draws the images of docs/images: both pages, narrow and wide, light and dark, and verbs at 80 columns.

`python -m tests.docs.images` takes Chromium with its driver, and a mongod of its own.
"""

from __future__ import annotations

import base64
import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any, cast

from pymongo import MongoClient
from rich.console import Console
from rich.text import Text

from bucketwise.jobs.core.embedded import embedded_mongod
from bucketwise.jobs.core.machine import this_user
from tests.docs.pages import ROOT
from tests.jobs.command import CommandLine
from tests.jobs.page.browser import Browser
from tests.jobs.page.served import policies_of, serving
from tests.jobs.place import NOW, Place

FOLDER = ROOT / "docs" / "images"
WIDTHS, SCHEMES = (400, 1280), ("light", "dark")
#: At most so much of a page, in pixels.
_HEIGHT = 1600
COLUMNS, _LINES = 80, 50
VERBS = {
    "plan": ("plan",),
    "run": ("run",),
    "status": ("status",),
    "stats": ("stats",),
    "receipts": ("receipts", "-p", "ticks"),
    "audit": ("audit",),
}


#: The commands here are given on a terminal.
_NO_COMMAND = cast(CommandLine, None)


def draw(folder: Path) -> None:
    """Draws all of them, of the readings that the tests begin from."""
    with (
        tempfile.TemporaryDirectory(prefix="bucketwise-images-") as made,
        embedded_mongod(Path(made) / "mongod") as mongod,
        MongoClient[dict[str, Any]](mongod.uri, tz_aware=True) as client,
    ):
        (Path(made) / "place").mkdir()
        place = Place(Path(made) / "place", client["market"], mongod.uri, _NO_COMMAND)
        place.write_config()
        place.load()
        for name, typed in VERBS.items():
            _verb(folder / f"{name}.svg", place, typed)
        _pages(folder, place, Path(made))


def _verb(path: Path, place: Place, typed: tuple[str, ...]) -> None:
    """Draws what a verb prints on a terminal of 80 columns."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text(f"$ bucketwise {' '.join(typed)}", style="bold"))
    console.print(Text.from_ansi(_on_a_terminal(place, typed)))
    path.write_text(console.export_svg(title=f"bucketwise {typed[0]}"), encoding="utf-8")


def _on_a_terminal(place: Place, typed: tuple[str, ...]) -> str:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, COLUMNS, 0, 0))
    environ = {**os.environ, "MONGODB_URI": place.uri, "TERM": "xterm-256color"}
    command = [str(Path(sys.executable).with_name("bucketwise")), *typed, "--now", NOW]
    process = subprocess.Popen(
        command, cwd=place.folder, env=environ, stdin=follower, stdout=follower, stderr=subprocess.DEVNULL
    )
    os.close(follower)
    printed = b""
    with suppress(OSError):  # the end, once nobody has the other side open
        while some := os.read(leader, 65_536):
            printed += some
    os.close(leader)
    if process.wait() not in (0, 3, 4):
        raise RuntimeError(printed.decode())
    return printed.decode().replace("\r\n", "\n").rstrip("\n")


def _pages(folder: Path, place: Place, made: Path) -> None:
    chromium, driver = (shutil.which(it) for it in ("chromium", "chromedriver"))
    if chromium is None or driver is None:
        raise RuntimeError("images of pages need chromium and chromium-driver")
    for verb in (("drill", "-p", "ticks"), ("audit", "--html", "audit.html")):
        _on_a_terminal(place, verb)
    page = place.folder / "audit.html"
    page.write_text(_elsewhere(page.read_text(encoding="utf-8"), place), encoding="utf-8")
    with (
        serving(place.database, policies_of(place)) as service,
        Browser.started(chromium, driver, made) as browser,
    ):
        service.page()
        addresses = {
            "audit": (place.folder / "audit.html").as_uri(),
            "service": f"http://127.0.0.1:{service.port}/still",
        }
        for name, address in addresses.items():
            for width in WIDTHS:
                for scheme in SCHEMES:
                    browser.be(width=width, scheme=scheme)
                    browser.driver.get(address)
                    (folder / f"{name}-{width}-{scheme}.webp").write_bytes(_shot(browser, width))


def _elsewhere(page: str, place: Place) -> str:
    """Returns a page with the names of another machine than this one."""
    host = place.uri.removeprefix("mongodb://").partition("/")[0]
    names = {str(place.folder): "/var/lib/bucketwise", host: "db1:27017", this_user(): "ann@db1"}
    for name, other in names.items():
        page = page.replace(name, other)
    return page


def _shot(browser: Browser, width: int) -> bytes:
    height = min(_HEIGHT, browser.ask("document.documentElement.scrollHeight"))
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    asked = {"format": "webp", "quality": 70, "captureBeyondViewport": True, "clip": clip}
    return base64.b64decode(browser.driver.execute_cdp_cmd("Page.captureScreenshot", asked)["data"])


if __name__ == "__main__":
    draw(FOLDER)
