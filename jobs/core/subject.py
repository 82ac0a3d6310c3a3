"""The collection to advise on, and the policy that reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pymongo.database import Database

from bucketwise.buckets.inferring.guess import Guess
from bucketwise.buckets.source import Source
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.drafts import policy_names
from bucketwise.jobs.core.inspector import Inspector

Document = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A collection with the policy for it. `guess` is None where the policy file has one."""

    database: Database[Document]
    policy: Policy
    kind: str  # as listCollections names it
    guess: Guess | None = None

    @property
    def source(self) -> Source:
        """Returns its buckets."""
        return Source(self.database, self.policy)


def subject_of(call: Call, database: Database[Document], name: str) -> Subject:
    """Inspects a collection, by its policy in the file if there is one, else by its documents. Raises
    UsageError if there is no such collection, or if it holds no readings that bucketwise understands."""
    looker = Inspector(database)
    looker.wanted([name])
    kind = looker.listed[name]["type"]
    if kind == "view":
        raise UsageError(f"{name}: it is a view. Name the collection behind it")
    found = [it for it in call.policies if it.collection == name]
    if len(found) > 1:
        names = ", ".join(it.name for it in found)
        raise UsageError(f"{name}: several policies are for it: {names}. Name one with --policy")
    if call.names and not found:
        raise UsageError(f"--policy {', '.join(call.names)}: it is not for the collection {name}")
    if database[name].find_one({}, {"_id": 1}) is None:
        raise UsageError(f"{name}: it is empty, so there is nothing to look at")
    if found:
        return Subject(database, found[0], kind)
    guess = looker.look(name, policy_names([name])[name], is_named=True)
    if guess.policy is None:
        raise UsageError(f"{name}: no readings that bucketwise understands: {'; '.join(guess.evidence)}")
    return Subject(database, guess.policy, kind, guess)
