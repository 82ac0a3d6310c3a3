"""Turns guesses into whole policies: names, summaries, and an archive that begins carefully."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import timedelta

from bucketwise.buckets.inferring.guess import Guess
from bucketwise.buckets.inferring.notes import quoted
from bucketwise.config.checks.policy import check_policy
from bucketwise.config.checks.targets import check_targets
from bucketwise.config.policies import Archive, Policy, Rollup
from bucketwise.config.problems import Problem, ProblemReport

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
