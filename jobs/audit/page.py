"""The audit's JSON as an HTML page: one file, no script, nothing from elsewhere; and a policy in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from markupsafe import Markup

from bucketwise.buckets.models import model_of
from bucketwise.buckets.rules import SeriesRules
from bucketwise.config.policies import Archive, Policy
from bucketwise.config.times import format_duration
from bucketwise.jobs.audit import drawings
from bucketwise.jobs.audit.evidence import MOST
from bucketwise.jobs.output.page import instant, render
from bucketwise.jobs.output.tables import counted
from bucketwise.jobs.output.text import printable, size

_UNITS = {"y": "year", "w": "week", "d": "day", "h": "hour", "m": "minute", "s": "second"}


def words(policy: Policy, store_url: str | None) -> str:
    """Returns sentences on what happens to readings and to summaries, and when."""
    own = [_of_readings(policy, store_url), *_of_summaries(policy)]
    return "; ".join([*own, *SeriesRules(policy).words()])


def _of_readings(policy: Policy, store_url: str | None) -> str:
    archive, source, archived = policy.archiving, policy.collection, policy.archive_collections
    if archive is None or archive.after is None:
        return f"raw readings stay in {source}"
    target = f"the collection {archived.buckets}" if archived else f"Parquet in {store_url}/{policy.identity}"
    if not archive.delete or not model_of(policy).can_delete:
        return f"raw readings stay in {source}, copied to {target} after {spelled(archive.after)}"
    return f"raw {spelled(archive.after)} in {source}, then {target} {_until(policy)}{_conditions(archive)}"


def _until(policy: Policy) -> str:
    """Returns how long the archive stays, counted from the reading."""
    keep = policy.retain.archive if policy.retain else None
    return "forever" if keep is None else f"until {spelled(keep)} old"


def _conditions(archive: Archive) -> str:
    said = []
    if archive.batch is not None:
        said.append(f"in batches of {spelled(archive.batch)}")
    if archive.grace:
        said.append(f"deleted {spelled(archive.grace)} after the copy was verified")
    return f" ({'; '.join(said)})" if said else ""


def _of_summaries(policy: Policy) -> list[str]:
    if policy.rollup is None or not policy.rollup.targets:
        return ["no summaries"]
    kept = policy.retain.by_level if policy.retain else {}
    levels: dict[str, list[str]] = {}
    for level in policy.rollup.targets:
        levels.setdefault(spelled(kept.get(level)), []).append(level)
    return [f"{_and(names)} summaries {span}" for span, names in levels.items()]


def _and(names: list[str]) -> str:
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])


def spelled(span: timedelta | None) -> str:
    """Returns a duration in full: 30 days."""
    if span is None:
        return "forever"
    text = format_duration(span)
    count, unit = int(text[:-1]), _UNITS[text[-1]]
    if unit == "week":
        count, unit = count * 7, "day"
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


Body = dict[str, Any]

#: With more runs of days than these on one page, details come by month.
MOST_RUNS = 4_000
#: With more months than these on one page, tables have a row a year.
MOST_MONTHS = 8_000


def audit_page(report: Body) -> str:
    """Returns the page of a report, made of its JSON."""
    found = report["policies"]
    is_brief = sum(len(_runs(it)) for it in found) > MOST_RUNS
    is_yearly = sum(len(it.get(key) or ()) for it in found for key in _BY_MONTH) > MOST_MONTHS
    first, others = first_errors(found)
    page, _ = render(
        "page.html",
        {"size": size, "coded": _coded, "instant": instant, "event": event_in_words, "proof": proof_in_words},
        report=report,
        policies=[_shown(it, is_brief, is_yearly) for it in found],
        first=first,
        others=others,
        most_events=_MOST_EVENTS if len(found) <= _MANY else _FEW,
        most_commits=MOST if len(found) <= _MANY else _FEW,
        broken=sum(it["exit_code"] != 0 for it in found),
        heights={"strip": drawings.ROW_HEIGHT, "bars": drawings.BAR_HEIGHT},
    )
    return page


#: With more months than these, a policy's tables have a row a year, and months are folded.
MOST_ROWS = 18
#: Policies whose first error is told at the top; rows of history.
_MOST_FIRST, _MOST_EVENTS = 5, 12
#: With more policies than these, lists have few rows.
_MANY, _FEW = 10, 3

#: What became of archived buckets.
_PARTS = {
    "in_archive": "In the archive alone",
    "online": "In the online archive alone",
    "waiting": "Copied, and not deleted yet",
    "restored": "Live again, and pinned",
    "erased": "Erased",
    "ended": "Ended by retain.archive",
}

_EVENTS = {
    "adopt": "the archive was adopted",
    "erase": "a series was erased",
    "gap": "receipts before it are lost",
    "hold": "hold placed:",
    "kept": "somebody else has deleted originals",
    "release": "hold released:",
    "restore": "live again",
    "retire": "the policy was retired",
    "time": "a later time was lifted",
    "undelete": "tombstones lifted",
}


def event_in_words(kind: str) -> str:
    """Returns what happened, by the kind of its receipt."""
    return _EVENTS.get(kind, kind)


def proof_in_words(run: Body) -> str:
    """Returns what a drill, a verify or an audit found; a dash where it could not look."""
    told = {key: value for key, value in run["counts"].items() if isinstance(value, int)}
    words = _PROOFS[run["verb"]]
    try:
        return words(told)
    except KeyError:  # it ended before it had counted
        return "–"


def _of_drill(told: Body) -> str:
    equal = f"{told['equal']:,} of {counted(told['buckets'], 'bucket')} equal"
    return f"{equal}, of {counted(told['days'], 'day')}"


def _of_verify(told: Body) -> str:
    read = f"{counted(told['parts'], 'part')} with {counted(told['readings'], 'reading')}"
    return f"{read}, {told['bad']:,} bad"


def _of_audit(told: Body) -> str:
    found = f"{counted(told['errors'], 'error')}, {counted(told['warnings'], 'warning')}"
    return f"{found}; {told['parts_read']:,} of {counted(told['parts'], 'part')} read"


_PROOFS: dict[str, Callable[[Body], str]] = {
    "drill": _of_drill,
    "verify": _of_verify,
    "audit": _of_audit,
}


def first_errors(policies: Sequence[Body]) -> tuple[list[Body], int]:
    """Returns the first error of each policy, of a few of them, and how many further policies have any."""
    errors = [[one for one in it.get("findings", ()) if one["severity"] == "error"] for it in policies]
    first = [
        {**them[0], "policy": it["policy"], "more": len(them) - 1}
        for it, them in zip(policies, errors, strict=True)
        if them
    ]
    return first[:_MOST_FIRST], len(first[_MOST_FIRST:])


_BY_MONTH = ("months", "deleted_by_month")


def _runs(policy: Body) -> Sequence[Body]:
    found: Sequence[Body] = (policy.get("coverage") or {}).get("runs", ())
    return found


_NOT_TOLD = (
    "error", "words", "settings", "policy_sha256", "proof", "coverage", "balance", "worth", "history",
)  # fmt: skip


def _shown(policy: Body, is_brief: bool, is_yearly: bool) -> Body:
    """Returns what the template shows of a policy; None for what is not known."""
    runs, months = _runs(policy), policy.get("months")
    deleted = policy.get("deleted_by_month")
    kinds = [it for it in drawings.KINDS if any(any(month[it].values()) for month in months or ())]
    return {
        **dict.fromkeys(_NOT_TOLD),
        "findings": [],
        "holds": [],
        "untold": [],
        **policy,
        "kept": policy["exit_code"] == 0,
        "read": parts_read(policy),
        "span": (runs[0]["first"], runs[-1]["last"]) if runs else None,
        "strip": drawings.strip(runs, is_brief=is_brief) if runs else None,
        "kinds": kinds,
        "bars": drawings.bars(months or ()),
        "parts": [(it, text) for it, text in _PARTS.items() if (policy.get("balance") or {}).get(it)],
        "years": by_year(months or ()) if len(months or ()) > MOST_ROWS and not is_yearly else None,
        "period": "year" if is_yearly else "month",
        "months": by_year(months or ()) if is_yearly else months,
        "deleted": by_year(deleted or ()) if is_yearly or len(deleted or ()) > MOST_ROWS else deleted,
        "deleted_period": "year" if is_yearly or len(deleted or ()) > MOST_ROWS else "month",
    }


def _coded(text: str) -> Markup:
    """Returns the text with code where it has backticks."""
    parts = printable(text).split("`")
    if len(parts) % 2 == 0:  # one has no other end
        return Markup.escape(printable(text))
    shown = (Markup("<code>{}</code>" if i % 2 else "{}").format(it) for i, it in enumerate(parts))
    return Markup("").join(shown)


def by_year(months: Sequence[Body]) -> list[Body]:
    """Returns months with a row a year. A count of None, which can't be told, makes the sum None."""
    found: dict[str, Body] = {}
    for it in months:
        row = {**it, "month": it["month"][:4]}
        year = row["month"]
        found[year] = _merged(found[year], row) if year in found else row
    return list(found.values())


def _merged(one: Body, other: Body) -> Body:
    return {key: _sum_values(key, value, other[key]) for key, value in one.items()}


def _sum_values(key: str, one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return _merged(one, other)
    if one is None or other is None:
        return None
    if key in ("first", "last"):  # numbers of receipts
        return min(one, other) if key == "first" else max(one, other)
    return one if key == "month" else one + other


def parts_read(body: Body) -> str:
    """Returns how many parts an audit has read, as text; empty where there are none."""
    if not body.get("parts"):
        return ""
    all_in = f"; all within {body['days']:,} days" if body["days"] > 1 else ""
    return f"read {body['parts_read']:,} of {body['parts']:,} parts{all_in}"
