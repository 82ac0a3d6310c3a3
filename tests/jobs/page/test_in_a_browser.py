"""The page in a real browser: what it runs and asks for, how it looks, and what a screen reader is told."""

from __future__ import annotations

import itertools
import re
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from bucketwise.jobs.audit.page import audit_page
from tests.jobs.page.browser import Browser
from tests.jobs.page.reports import HOSTILE, days, mixed, policy_of, report_of
from tests.jobs.place import POLICIES, START, Place

pytestmark = pytest.mark.proof

WIDTHS = (390, 1280)
#: Boxes that lie over others, or beyond the window; children of these elements stand beside each other.
_OVERLAPS = """
[...document.querySelectorAll(
  'body, header, main, nav, section, figure, figcaption, .strip, .legend, dl, tr')]
  .flatMap(parent => {
    const boxes = [...parent.children].map(it => [it, it.getBoundingClientRect()])
      .filter(([, box]) => box.width && box.height)
    return boxes.flatMap(([one, a], i) => boxes.slice(i + 1)
      .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1
        && b.top < a.bottom - 1)
      .map(([other]) => `${parent.tagName}: ${one.outerHTML.slice(0, 80)} / ${other.outerHTML.slice(0, 80)}`))
  })
"""
_BEYOND = """
[...document.querySelectorAll('body *')].filter(it => !it.closest('.scroll table') && !it.closest('svg *')
  && it.getBoundingClientRect().right > innerWidth + 1).map(it => it.outerHTML.slice(0, 80))
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overlaps_and_the_page_is_as_wide_as_the_window(browser: Browser, width: int) -> None:
    browser.be(width=width)
    browser.show(audit_page(mixed()))
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(_BEYOND) == []
    assert browser.ask(_OVERLAPS) == []
    assert (
        browser.ask("document.querySelectorAll('section').length") == 5
    )  # what needs doing, and the policies
    assert browser.complaints() == []


def test_hostile_texts_stay_texts(browser: Browser) -> None:
    browser.show(audit_page(mixed()))
    assert browser.ask("document.title") == "Audit of market, 2018-09-01T00:00:00Z"
    assert browser.ask("document.querySelectorAll('script, img, iframe, object, link, form').length") == 0
    told = browser.ask("document.body.innerText")
    # Place and message of a finding, a held series, words twice, an error, what is not told.
    assert told.count(HOSTILE) == 7
    assert "p.60: slot 60 is not one of 0 to 59" in told
    assert browser.complaints() == []


def test_nothing_of_the_page_comes_from_elsewhere(browser: Browser) -> None:
    page = audit_page(mixed())
    browser.show(page)
    fetched = "performance.getEntriesByType('resource').map(it => it.name)"
    addresses = "[...document.querySelectorAll('[src], [href]')].map(it => it.getAttribute('href') ?? it.src)"
    assert browser.ask(fetched) == []
    assert browser.ask(addresses) == [f"#policy-{n}" for n in range(1, 5)]
    assert "url(" not in page and "@import" not in page


def test_its_policy_stops_what_somebody_puts_into_it(browser: Browser) -> None:
    """Were a text not escaped, nothing of it would run, be fetched, or change how the page looks."""
    with _counting_server() as (address, asked):
        put = (
            f"{HOSTILE}<img src='{address}/image'><script src='{address}/script'></script>"
            f"<link rel=stylesheet href='{address}/style'><style>body {{ display: none }}</style>"
            f"<iframe src='{address}/frame'></iframe><b id=b style='color: red' onclick='x'>b</b>"
        )
        browser.show(audit_page(mixed()).replace("</footer>", f"</footer>{put}"))
        assert browser.ask("document.querySelectorAll('script').length") == 2
        assert browser.ask("document.title").startswith("Audit of market")
        assert browser.ask("getComputedStyle(document.body).display") == "block"
        assert browser.ask("getComputedStyle(b).color") == browser.ask(
            "getComputedStyle(document.body).color"
        )
        assert asked == []
    complaints = browser.complaints()
    assert len(complaints) >= 6
    assert all("Content Security Policy" in it or "x" in it for it in complaints)


class _counting_server:
    """A server that notes what it is asked for."""

    def __enter__(self) -> tuple[str, list[str]]:
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_error(404)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever).start()
        return f"http://127.0.0.1:{self._server.server_port}", asked

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_what_a_screen_reader_is_told(browser: Browser) -> None:
    browser.show(audit_page(mixed()))
    tree = browser.tree()
    roles = [role for role, _ in tree]
    assert [roles.count(it) for it in ("banner", "main", "navigation", "contentinfo")] == [1, 1, 1, 1]
    for role in ("table", "image", "region", "heading", "link", "columnheader", "rowheader"):
        names = [name for found, name in tree if found == role]
        assert names and all(names), role
    assert "2018-06: " in " ".join(name for role, name in tree if role == "image")
    assert browser.ask("document.querySelectorAll('svg:not([role=img]):not([aria-hidden=true])').length") == 0
    assert browser.ask("document.querySelectorAll('table:not(:has(> caption))').length") == 0
    levels = browser.ask("[...document.querySelectorAll('h1, h2, h3, h4')].map(it => +it.tagName[1])")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert browser.ask("document.documentElement.lang") == "en"


def test_keys_alone_lead_through_it(browser: Browser) -> None:
    browser.show(audit_page(mixed()))
    reached = []
    for _ in range(3):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(browser.ask("document.activeElement.outerHTML"))
    assert [it.partition(" ")[0] for it in reached] == ["<div", "<a", "<a"]
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert browser.ask(outline) == "solid"
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.ask("location.hash") == "#policy-2"


def test_dark_and_light_can_be_read(browser: Browser) -> None:
    papers = []
    for scheme in ("light", "dark"):
        browser.be(width=1280, scheme=scheme)
        browser.show(audit_page(mixed()))
        paper = _luminance(browser.ask("getComputedStyle(document.documentElement).backgroundColor"))
        papers.append(paper)
        for css in ("body", ".soft", "caption", "dt", ".error", ".warning", ".ok", "pre", "code", "a"):
            ink = _luminance(browser.ask(f"getComputedStyle(document.querySelector('{css}')).color"))
            assert _contrast(paper, ink) >= 4.5, (scheme, css)
        for css in ("live", "both", "archived", "online", "summarised"):
            stroke = _luminance(browser.ask(f"getComputedStyle(document.querySelector('.{css}')).stroke"))
            assert _contrast(paper, stroke) >= 2.4, (scheme, css)
    assert papers[0] == 1 and papers[1] < 0.02


def _luminance(color: str) -> float:
    """As WCAG 2 defines it."""
    parts = [int(it) / 255 for it in re.findall(r"\d+", color)[:3]]
    red, green, blue = (it / 12.92 if it <= 0.04045 else ((it + 0.055) / 1.055) ** 2.4 for it in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_prints_on_white_paper(browser: Browser, scheme: str) -> None:
    browser.be(width=680, scheme=scheme, media="print")
    browser.show(audit_page(mixed()))
    assert browser.ask("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("document.documentElement.scrollWidth") <= 680
    assert browser.ask(_OVERLAPS) == []
    printed = browser.pdf()
    assert printed.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 3


def test_three_policies_of_five_years_are_four_sheets_of_paper(browser: Browser) -> None:
    def state(day: date) -> str:
        return "live" if day > date(2018, 11, 30) else "archived"

    years = days(date(2014, 1, 1), 1826, state)
    policies = [policy_of(name, years) for name in ("ticks", "trades", "sensors")]
    browser.be(width=690, media="print")
    browser.show(audit_page(report_of(*policies)))
    printed = browser.pdf(paper=(8.27, 11.69))
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 4


def test_charts_have_axes(browser: Browser) -> None:
    """Of one month, and of five years."""
    for first, count, labels in (
        (date(2018, 6, 1), 30, ["2018-06", "2018-10", "2019-02"]),
        (date(2014, 1, 1), 1826, ["2014-01", "2015-09", "2017-05"]),
    ):
        browser.show(audit_page(report_of(policy_of("ticks", days(first, count, lambda _: "archived")))))
        assert browser.ask("[...document.querySelectorAll('.along span')].map(it => it.innerText)") == labels
        assert browser.ask("[...document.querySelectorAll('.up span')].map(it => it.innerText)") == [
            *("1.3 GB", "651.7 MB", "0"),
        ]
        beside = "document.querySelector('.up').getBoundingClientRect().right"
        assert browser.ask(f"{beside} <= document.querySelector('.bars').getBoundingClientRect().left")
        (told,) = [name for role, name in browser.tree() if role == "image" and "by month" in name]
        assert "1.3 GB at most" in told and "archived" in told


@pytest.mark.parametrize("kind", ["weekdays", "every other day"])
def test_a_hundred_policies_of_five_years_stay_small(browser: Browser, kind: str) -> None:
    def state(day: date) -> str:
        is_gap = day.weekday() > 4 if kind == "weekdays" else day.toordinal() % 2
        return "gap" if is_gap else "live" if day > date(2018, 11, 30) else "archived"

    years = days(date(2014, 1, 1), 1826, state)
    page = audit_page(report_of(*(policy_of(f"sensors_{n:03}", years) for n in range(100))))
    assert len(page.encode()) < 2_300_000
    browser.be(width=390)
    browser.show(page)
    assert browser.ask("document.querySelectorAll('*').length") < 48_000
    assert browser.ask("document.querySelectorAll('section').length") == 100
    assert browser.ask("document.documentElement.scrollWidth") <= 390
    assert browser.complaints() == []


def test_series_called_like_scripts(place: Place, browser: Browser) -> None:
    """From outside: the audit of a collection whose series are hostile."""
    place.database.ticks.update_many({}, {"$set": {"symbol": HOSTILE}})
    last = START.replace(day=30, hour=9)
    place.database.ticks.insert_one({"symbol": HOSTILE, "d": last, "p": {"0": 1.5}})
    watched = POLICIES.replace(
        'slot = "second"', 'slot = "second"\nexpected_interval = "1s"\nmax_hole = "1h"'
    )
    place.write_config(watched)
    assert place("run").code == 0
    assert place("audit", "--html", "audit.html").code == 0
    browser.show((place.folder / "audit.html").read_text(encoding="utf-8"))
    assert "document.title = 'ran'" in browser.ask("document.querySelector('.findings').innerText")
    assert browser.ask("document.title").startswith("Audit of test_")
    assert browser.ask("document.querySelectorAll('script, img').length") == 0
    assert "The policy is kept" not in browser.ask("document.body.innerText")
    assert "All 2 policies are kept" in browser.ask("document.body.innerText")
    assert browser.complaints() == []
