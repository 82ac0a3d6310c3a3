"""Policies drafted from what collections hold, and the text of a policy file."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from bucketwise.buckets.fields.selectors import series_text
from bucketwise.buckets.fields.times import as_date
from bucketwise.buckets.inferring.fields import listed, quoted
from bucketwise.buckets.inferring.guess import Guess
from bucketwise.buckets.inferring.ways import Way
from bucketwise.buckets.models import model_of
from bucketwise.buckets.sampling.fit import Example
from bucketwise.config.checks.names import check_targets
from bucketwise.config.checks.policy import check_policy
from bucketwise.config.errors import hide_secrets
from bucketwise.config.models import LAYOUT_KEYS, fields_of, layout_of
from bucketwise.config.policies import Archive, Policy, Rollup
from bucketwise.config.problems import Problem, ProblemReport
from bucketwise.config.schema import DIRECTIVE
from bucketwise.config.written import toml_key, toml_value
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.output.text import printable

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
    """Returns the guess with roll-up and archive in each of its ways. Its policy is None if no such policy
    can be. `taken`: names of collections that hold something else than summaries."""
    if guess.policy is None:
        return guess
    sole = replace(guess, ways=())
    ways = [(it, _whole(replace(sole, policy=it.policy), taken)) for it in guess.ways]
    sound = tuple(replace(way, policy=policy) for way, policy in ways if not _problems(policy, database))
    if sound:
        return replace(guess, policy=sound[0].policy, ways=sound)
    whole = _whole(guess, taken)
    problems = _problems(whole, database)
    if not problems:
        return replace(guess, policy=whole, ways=())
    without = whole.model_copy(update={"rollup": None, "local_offset_field": None})
    if _problems(without, database):
        return Guess(guess.collection, reasons=[f"{_sentence(it)}" for it in problems])
    for it in problems:
        guess.notes.add_question("rollup", f"There is no roll-up: {_sentence(it)}")
    return replace(guess, policy=without, ways=tuple(replace(it, policy=without) for it in guess.ways[:1]))


def _whole(guess: Guess, taken: Collection[str]) -> Policy:
    """Returns the policy of a guess, with roll-up and archive."""
    assert guess.policy is not None
    archive = Archive(after=_AFTER, to="offline", delete=False)
    return guess.policy.model_copy(update={"archive": archive, "rollup": _rollup(guess, taken)})


def like_siblings(guesses: Sequence[Guess]) -> list[Guess]:
    """Returns the guesses; where one could be read in several ways and other collections, whose documents lie
    alike, only in one of these, it is read as they are."""
    told = [it for it in guesses if it.policy is not None and not it.asked]
    return [_like(it, told) if it.asked else it for it in guesses]


def _like(guess: Guess, told: Sequence[Guess]) -> Guess:
    ways = {repr(layout_of(it.policy)): it for it in guess.ways}
    layouts = {it.collection: repr(layout_of(it.policy)) for it in told if it.policy is not None}
    alike = {name: it for name, it in layouts.items() if it in ways}
    if len(set(alike.values())) != 1:
        return guess
    way = ways[next(iter(alike.values()))]
    guess.notes.add_evidence("model", f"read as {listed(list(alike))}, whose documents lie alike")
    return replace(guess, policy=way.policy, ways=(way,))


def _rollup(guess: Guess, taken: Collection[str]) -> Rollup:
    base = guess.collection
    while {f"{base}_hourly", f"{base}_daily"} & set(taken):
        base = f"{base}_summary"
    return Rollup(
        hourly=f"{base}_hourly",
        daily=f"{base}_daily",
        timezone=guess.timezone or (guess.policy.timezone if guess.policy else "UTC"),
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
_KEPT = {"collection", "local_offset_field", "sparse_ok", "nonnumeric_ok", "earliest", "latest"}
_LAYOUT = {*_KEPT, *LAYOUT_KEYS} - {"overflow", "values"}

_STORE = (
    "Where do archives go? A directory will do for a trial; make it with mkdir. Later use a place of its "
    'own, such as "s3://acme-archive/market" with region = "eu-central-1"'
)

_AFTER_OFFLINE = "How long are raw documents needed in MongoDB?"
#: What the policy file says where the URI may hold a secret.
FROM_ENVIRONMENT = "${MONGODB_URI}"


def is_free_of_secrets(uri: str) -> bool:
    """Returns whether a URI as it was typed may be written to a file: it has neither a user nor an option
    that may be a secret."""
    options = uri.partition("?")[2].casefold()
    return "@" not in uri and hide_secrets(uri) == uri and not any(it in options for it in _SECRET_OPTIONS)


_SECRET_OPTIONS = ("password", "authmechanismproperties", "token")


def config_text(guesses: Iterable[Guess], at: tuple[str, str], store: str, written: str) -> str:
    """Returns the policy file. `at`: the URI that it names, and the database; `store`: URL of the archive;
    `written`: when, for people."""
    uri, database = at
    why = "  # from the environment: it may hold a password" if uri == FROM_ENVIRONMENT else ""
    guesses = list(guesses)
    lines = [
        DIRECTIVE,
        *_comment(f"Written by `bucketwise init` at {written} from samples of the documents."),
        *_comment("A line that begins with `# ?` is a question that they did not answer."),
        "",
        "[mongodb]",
        f"uri = {json.dumps(uri, ensure_ascii=False)}{why}",  # with its variables as they are
        *_key("database", database),
        "",
        "[store]",
        *_question(_STORE),
        *_key("url", store),
    ]
    for guess in guesses:
        if guess.asked:
            lines += _asked(guess)
        elif guess.policy is not None:
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


_ASKED = (
    "{collection} can be read in {count:,} ways, and its documents do not tell which is meant. The keys of "
    "each come first: keep those of one, and take `# ` away from the beginning of its lines and of the others"
)


def _asked(guess: Guess) -> Iterator[str]:
    """Yields the policy as a comment, with the ways to read its documents side by side."""
    yield ""
    yield from _question(_ASKED.format(collection=quoted(guess.collection), count=len(guess.ways)))
    assert guess.policy is not None
    left_out = {key for way in guess.ways for key in way.keys}
    head, *rest = list(_policy(guess, guess.policy, left_out))[1:]
    for line in (head, *_ways(guess.ways), *rest):
        yield f"# {line}".rstrip()


def _ways(ways: Sequence[Way]) -> Iterator[str]:
    """Yields the keys of each way, what speaks for it, and what it reads."""
    whys = {it.why for it in ways}
    for number, way in enumerate(ways, 1):
        lines = [line for key in way.keys for line in _key(key, getattr(way.policy, key))]
        shown = reading_text(way)
        if len(lines) == 1 and len(whys) == 1:
            yield f"{lines[0]}  # {shown}"
            continue
        yield from _comment(f"Way {number}: {way.why}" if way.why else f"Way {number}")
        yield from _comment(f"reads {shown}")
        yield from lines


def reading_text(way: Way) -> str:
    """Returns the first readings of a way, for people."""
    if not way.first:
        return "nothing"
    named = zip(way.policy.series_names, way.first[0].series, strict=True)
    series = ", ".join(f"{name}={series_text(value)}" for name, value in named)
    held = "; ".join(f"{iso(as_date(it.time))}: {_values(it)}" for it in way.first)
    return printable(f"{series} {held}".strip())


def _values(example: Example) -> str:
    return ", ".join(
        f"{name}={'no number' if it is None else it if isinstance(it, str) else format(it, 'g')}"
        for name, it in example.values.items()
    )


def _policy(guess: Guess, policy: Policy, left_out: Collection[str] = ()) -> Iterator[str]:
    """Yields the tables of a policy. `left_out`: keys that stand elsewhere."""
    at = f"policies.{policy.name}"
    notes = guess.notes
    yield from ("", f"[{at}]")
    for key in fields_of(type(policy)):
        value = getattr(policy, key)
        if key in _LAYOUT and key in policy.model_fields_set - set(left_out) and value is not None:
            for text in notes.questions.get(key, ()):
                yield from _question(text)
            yield from _key(key, value, notes.evidence.get(key, ()))
    if "values" not in left_out:
        yield from _values_text(guess, policy, at)
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


def _values_text(guess: Guess, policy: Policy, at: str) -> Iterator[str]:
    """Yields the tables of value fields. What a field may be besides is a comment."""
    for path in policy.value_fields:
        field, (kind, why) = policy.values.get(path), guess.kinds.get(path, ({}, ""))
        head = f"[{at}.values.{toml_key(path)}]"
        if field is not None:
            yield from ("", head)
            for key, value in field.model_dump(exclude_unset=True, by_alias=True).items():
                yield from _key(key, value)
        elif kind:
            yield from ("", f"# {head}")
        for number, (key, value) in enumerate(kind.items()):
            (line,) = _key(key, value, [] if number else [why])
            yield f"# {line}"


def _rollup_text(guess: Guess, policy: Policy, at: str) -> Iterator[str]:
    rollup, notes = policy.rollup, guess.notes
    assert rollup is not None
    yield f"[{at}.rollup]"
    for key, value in rollup.targets.items():
        yield from _key(key, value)
    if "local_offset_field" not in policy.model_fields_set and "timezone" not in policy.model_fields_set:
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
