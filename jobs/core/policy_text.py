"""The text of a policy file, with comments. What comes from documents can't get out of its quotes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from bucketwise.buckets.inferring.guess import Guess
from bucketwise.buckets.models import model_of
from bucketwise.config.models import LAYOUT_KEYS, fields_of
from bucketwise.config.policies import Policy
from bucketwise.config.written import toml_value
from bucketwise.jobs.core.drafts import reason
from bucketwise.jobs.output.tables import printable

_WIDTH = 110


#: What stands in the table of a policy itself.
_LAYOUT = {"collection", "local_offset_field", *LAYOUT_KEYS} - {"overflow"}


_STORE = (
    "Where do archives go? A directory will do for a trial; make it with mkdir. Later use a place of its "
    'own, such as "s3://acme-archive/market" with region = "eu-central-1"'
)


_AFTER = "How long are raw documents needed in MongoDB?"


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
        yield from _rollup(guess, policy, at)
    yield from _archive(policy, at)


def _rollup(guess: Guess, policy: Policy, at: str) -> Iterator[str]:
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
    yield from _question(_AFTER)
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
