"""Policies drafted from what collections hold, and the text of a policy file."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from bucketwise.buckets.inferring.fields import quoted
from bucketwise.buckets.inferring.guess import Guess
from bucketwise.buckets.models import model_of
from bucketwise.config.checks.policy import check_policy
from bucketwise.config.checks.targets import check_targets
from bucketwise.config.models import LAYOUT_KEYS, fields_of
from bucketwise.config.policies import Archive, Policy, Rollup
from bucketwise.config.problems import Problem, ProblemReport
from bucketwise.config.written import toml_value
from bucketwise.jobs.output.tables import printable

_AFTER = timedelta(days=90)


_PERCENTILES = (50.0, 95.0, 99.0)


_LONGEST_NAME = 60


def policy_names(collections: Iterable[str]) -> dict[str, str]:
    """Returns a name for the policy of each collection: the same as far as the store can take it."""
    names: dict[str, str] = {}
    for collection in collections:
        name = base = re.sub(r"[^A-Za-z0-9_-]", "_", collection)[:_LONGEST_NAME] or "policy"
        number = 1
        while name in names.values():
            number += 1
            name = f"{base}_{number}"
        names[collection] = name
    return names


def without_overflows(guesses: list[Guess]) -> list[Guess]:
    """Returns the guesses; a collection that holds the overflow of another is no source of its own."""
    owners = {
        it.policy.overflow.collection: it.collection for it in guesses if it.policy and it.policy.overflow
    }
    return [
        Guess(it.collection, reasons=[f"it holds the overflow of {owners[it.collection]}"])
        if it.collection in owners
        else it
        for it in guesses
    ]


def draft_policy(guess: Guess, database: str, taken: Collection[str]) -> Guess:
    """Returns the guess with roll-up and archive. Its policy is None if no such policy can be. `taken`:
    names of collections that hold something else than summaries."""
    if guess.policy is None:
        return guess
    archive = Archive(after=_AFTER, to="offline", delete=False)
    whole = guess.policy.model_copy(update={"archive": archive, "rollup": _rollup(guess, taken)})
    problems = _problems(whole, database)
    if not problems:
        return replace(guess, policy=whole)
    without = guess.policy.model_copy(update={"archive": archive, "local_offset_field": None})
    if _problems(without, database):
        return Guess(guess.collection, reasons=[f"{_sentence(it)}" for it in problems])
    for it in problems:
        guess.notes.add_question("rollup", f"There is no roll-up: {_sentence(it)}")
    return replace(guess, policy=without)


def _rollup(guess: Guess, taken: Collection[str]) -> Rollup:
    base = guess.collection
    while {f"{base}_hourly", f"{base}_daily"} & set(taken):
        base = f"{base}_summary"
    return Rollup(
        hourly=f"{base}_hourly",
        daily=f"{base}_daily",
        timezone=guess.timezone or "UTC",
        percentiles=_PERCENTILES if guess.is_noisy else (),
    )


def _problems(policy: Policy, database: str) -> list[Problem]:
    report = ProblemReport("", {}, {}, {})
    check_policy(policy, True, report)
    check_targets([policy], database, report)
    return report.problems


def _sentence(problem: Problem) -> str:
    value = f" {problem.value}" if problem.value else ""
    return f"{problem.key}{value}: {problem.message}; {problem.remedy}"


def reason(guess: Guess) -> str:
    """Returns one line that says why a collection gets no policy."""
    return f"{quoted(guess.collection)}: {'; '.join(guess.evidence)}"


_WIDTH = 110


#: What stands in the table of a policy itself.
_LAYOUT = {"collection", "local_offset_field", *LAYOUT_KEYS} - {"overflow"}


_STORE = (
    "Where do archives go? A directory will do for a trial; make it with mkdir. Later use a place of its "
    'own, such as "s3://acme-archive/market" with region = "eu-central-1"'
)


_AFTER_OFFLINE = "How long are raw documents needed in MongoDB?"


def config_text(guesses: Iterable[Guess], database: str, store: str, written: str) -> str:
    """Returns the policy file. `store`: URL of the archive; `written`: when, for people."""
    guesses = list(guesses)
    lines = [
        *_comment(f"Written by `bucketwise init` at {written} from samples of the documents."),
        *_comment("A line that begins with `# ?` is a question that they did not answer."),
        "",
        "[mongodb]",
        'uri = "${MONGODB_URI}"  # from the environment: it may hold a password',
        *_key("database", database),
        "",
        "[store]",
        *_question(_STORE),
        *_key("url", store),
    ]
    for guess in guesses:
        if guess.policy is not None:
            lines += _policy(guess, guess.policy)
    left_out = [reason(it) for it in guesses if it.policy is None]
    if left_out:
        lines += ["", *_comment("Collections without a policy:")]
        lines += [line for it in left_out for line in _comment(it)]
    return "\n".join(lines) + "\n"


def policy_text(guess: Guess) -> str:
    """Returns the tables of one policy. The guess has one."""
    assert guess.policy is not None
    return "\n".join(_policy(guess, guess.policy)).strip() + "\n"


def _policy(guess: Guess, policy: Policy) -> Iterator[str]:
    at = f"policies.{policy.name}"
    notes = guess.notes
    yield from ("", f"[{at}]")
    for key in fields_of(type(policy)):
        value = getattr(policy, key)
        if key in _LAYOUT and key in policy.model_fields_set and value is not None:
            for text in notes.questions.get(key, ()):
                yield from _question(text)
            yield from _key(key, value, notes.evidence.get(key, ()))
    if policy.overflow is not None:
        yield from ("", f"[{at}.overflow]")
        for text in notes.evidence.get("overflow", ()):
            yield from _comment(text)
        for key, value in policy.overflow.model_dump().items():
            yield from _key(key, value)
    yield from ("", *(line for text in notes.questions.get("rollup", ()) for line in _question(text)))
    if policy.rollup is not None:
        yield from _rollup_text(guess, policy, at)
    yield from _archive(policy, at)


def _rollup_text(guess: Guess, policy: Policy, at: str) -> Iterator[str]:
    rollup, notes = policy.rollup, guess.notes
    assert rollup is not None
    yield f"[{at}.rollup]"
    for key, value in rollup.targets.items():
        yield from _key(key, value)
    if "local_offset_field" not in policy.model_fields_set:
        for text in notes.questions.get("timezone", ()):
            yield from _question(text)
        yield from _key("timezone", rollup.timezone, notes.evidence.get("timezone", ["where days begin"]))
    if rollup.percentiles:
        yield from _key("percentiles", [int(it) for it in rollup.percentiles], ["values are noisy"])
    else:
        yield "# percentiles = [50, 95, 99]  # values change slowly, so averages may do"
    yield ""


def _archive(policy: Policy, at: str) -> Iterator[str]:
    archive = policy.archive
    assert archive is not None
    yield f"[{at}.archive]"
    yield from _question(_AFTER_OFFLINE)
    yield from _key("after", archive.after)
    yield from _key("to", archive.to)
    if not model_of(policy).can_delete:
        yield from _key("delete", archive.delete, ["nothing is deleted from a native time-series collection"])
        return
    yield from _key("delete", archive.delete, ["documents are copied, and stay"])
    yield from _comment("Once you trust the copies: delete = true, and a time to stay after the copy:")
    yield '# grace = "7d"'


def _key(key: str, value: Any, why: Iterable[str] = ()) -> list[str]:
    line = f"{key} = {toml_value(value)}"
    comment = "; ".join(why)
    if not comment:
        return [line]
    with_comment = f"{line}  # {printable(comment)}"
    return [with_comment] if len(with_comment) <= _WIDTH else [*_comment(comment), line]


def _question(text: str) -> list[str]:
    return _comment(f"? {text}")


def _comment(text: str) -> list[str]:
    """Returns text, which may hold anything, as comment lines."""
    return [f"# {line}" for line in textwrap.wrap(printable(text), _WIDTH - 2, break_on_hyphens=False)]
