"""Checks the URLs that are notified how runs end. Connects to nothing."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from config.problems import Fault, Report
from config.tables import Notify

_MEND = 'write "https://host/path", as the monitoring service shows it'


def check_notify(notify: Notify, report: Report) -> None:
    """Reports URLs that can't be called, and a `notify.on` without a `notify.url`. Connects to nothing."""
    for key, url in notify.urls.items():
        if message := _fault(url.get_secret_value()):
            report.add(("notify", key), Fault(message, _MEND))
    if notify.url is None and notify.on != Notify().on:
        fault = Fault("nothing is sent without `notify.url`", "add `url`, or remove `on`")
        report.add(("notify", "on"), fault, rests_on=[("notify", "url")])


def _fault(url: str) -> str | None:
    if re.search(r"[^\x21-\x7e]", url):
        return "a URL has no spaces, control characters or letters outside ASCII"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "not a valid URL"
    if parts.scheme not in ("http", "https") or not host:
        return "not an http:// or https:// URL"
    return "its port is 0" if port == 0 else None
