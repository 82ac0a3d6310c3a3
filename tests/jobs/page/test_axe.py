"""axe-core, the checks of accessibility by Deque, finds nothing in the pages."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from bucketwise.jobs.audit.page import audit_page
from tests.jobs.page.browser import Browser
from tests.jobs.page.reports import mixed
from tests.jobs.page.served import policies_of, serving
from tests.jobs.place import Place
from tests.jobs.states import after

pytestmark = pytest.mark.proof

SCHEMES = [(scheme, width) for scheme in ("light", "dark") for width in (400, 1280)]
_RUN = """
const done = arguments[0]
axe.run(document, {resultTypes: ['violations', 'incomplete']}).then(
  it => done(it.violations.map(one =>
    `${one.id}: ${one.help}: ${one.nodes.map(node => node.html).slice(0, 3)}`)),
  error => done([String(error)]))
"""


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its script, from npm."""
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("axe")
    if npm is None:
        pytest.fail("The proof of accessibility needs npm. On Debian run: apt-get install npm")
    subprocess.run([npm, "pack", "--silent", "axe-core@4"], cwd=folder, check=True, capture_output=True)
    (packed,) = folder.glob("axe-core-*.tgz")
    with tarfile.open(packed) as archive:
        archive.extract("package/axe.min.js", folder, filter="data")
    return (folder / "package" / "axe.min.js").read_text(encoding="utf-8")


def violations(browser: Browser, axe: str) -> list[str]:
    browser.driver.execute_script(axe)
    found: list[str] = browser.driver.execute_async_script(_RUN)
    return found


@pytest.mark.parametrize(("scheme", "width"), SCHEMES)
def test_the_audit_page(browser: Browser, axe: str, scheme: str, width: int) -> None:
    browser.be(width=width, scheme=scheme)
    browser.show(audit_page(mixed()))
    assert violations(browser, axe) == []


def run_now(place: Place) -> None:
    for policy in ("ticks", "iot"):
        assert place("run", "-p", policy, now=None).code == 0


@after(run_now)
def test_the_pages_of_the_service(place: Place, browser: Browser, axe: str) -> None:
    with serving(place.database, policies_of(place)) as it:
        it.page()
        for scheme, width in SCHEMES:
            browser.be(width=width, scheme=scheme)
            for path in ("/", "/policy/ticks"):
                browser.driver.get(f"http://127.0.0.1:{it.port}{path}")
                assert violations(browser, axe) == [], (path, scheme, width)


def test_it_finds_what_is_wrong(browser: Browser, axe: str) -> None:
    page = audit_page(mixed()).replace('<html lang="en">', "<html>").replace("<caption>", '<img src="x">')
    Path(browser.folder / "wrong.html").write_text(page, encoding="utf-8")
    browser.driver.get((browser.folder / "wrong.html").as_uri())
    assert any(it.startswith("html-has-lang") for it in violations(browser, axe))
