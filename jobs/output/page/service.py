"""The service as an HTML page that loads itself anew."""

from __future__ import annotations

from typing import Any

from bucketwise.jobs.output.page.template import render

#: Seconds.
EVERY = 10
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def service_page(state: dict[str, Any]) -> tuple[str, str]:
    """Returns the page of the service, and its content security policy."""
    broken = [it for it in state["states"] if any(one["severity"] == "error" for one in it["troubles"])]
    return render("service.html", {"span": span, "instant": instant}, it=state, broken=broken, every=EVERY)


def instant(text: str | None) -> str:
    """Returns an instant of the JSON as text, to the second."""
    return "–" if text is None else text[:19].replace("T", " ")


def span(seconds: float | None) -> str:
    """Returns a length of time as text, in the largest unit that it fills."""
    if seconds is None:
        return "–"
    size, unit = next((one for one in _UNITS if seconds >= one[0]), (1, "s"))
    return f"{int(seconds // size)} {unit}" if seconds else "none"
