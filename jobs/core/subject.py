"""The subject of a verb: a collection, its policy and a sample of it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure

from bucketwise.buckets.bson.cursor import First, find_raw
from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.inferring.fields import Fields, decoded, quoted
from bucketwise.buckets.inferring.guess import Guess, guess, overflows, references, with_overflow
from bucketwise.buckets.models import model_of
from bucketwise.buckets.sampling.sample import some_documents
from bucketwise.buckets.source import Source
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.drafts import policy_names

Document = dict[str, Any]

#: What an online archive calls its collections; see config.checks.names.
_ARCHIVE = re.compile(r"(?P<source>.+?)_archive(_overflow|_versions)?")
#: Other collections that are searched for overflow.
_OTHERS = 8
_UNAUTHORIZED = 13


@dataclass
class Inspector:
    """Inspects the collections of a database, each once."""

    database: Database[Document]

    def __post_init__(self) -> None:
        self._samples: dict[str, Docs] = {}

    @cached_property
    def listed(self) -> dict[str, Document]:
        """Returns the collections as MongoDB lists them, without its own and those of bucketwise."""
        found = {info["name"]: dict(info) for info in self.database.list_collections()}
        return {
            name: info
            for name, info in sorted(found.items())
            if not name.startswith(("system.", "bucketwise_"))
        }

    def wanted(self, names: Sequence[str]) -> list[str]:
        """Returns the collections to look at. Raises UsageError if one of the names is none."""
        for name in names:
            if name not in self.listed:
                near = difflib.get_close_matches(name, self.listed, n=1, cutoff=0.5)
                hint = (
                    f"Did you mean {near[0]}?" if near else f"There are: {', '.join(self.listed) or 'none'}"
                )
                raise UsageError(f"{name}: the database {self.database.name} has no such collection. {hint}")
        if not self.listed:
            raise UsageError(f"the database {self.database.name} has no collections. Is the name right?")
        return list(dict.fromkeys(names)) or list(self.listed)

    def sample(self, name: str) -> Docs:
        """Returns some documents of a collection."""
        if name not in self._samples:
            self._samples[name] = some_documents(self.database[name], self.listed[name]["type"])
        return self._samples[name]

    def look(self, name: str, policy: str, *, is_named: bool) -> Guess:
        """Returns the guess for a collection. `policy`: what its policy will be called; `is_named`: the
        collection was named in the command."""
        info = self.listed[name]
        if info["type"] == "view":
            return Guess(name, reasons=["it is a view. Name the collection behind it"])
        of = _ARCHIVE.fullmatch(name)
        if of and of["source"] in self.listed and not is_named:
            return Guess(name, reasons=[f"by its name it is an archive of {of['source']}"])
        native: Mapping[str, str] | None = info["options"].get("timeseries")
        indexes = [] if native else _indexes(self.database[name])
        found = guess(policy, name, self.sample(name), indexes, native)
        if found.policy is None or found.asked or not model_of(found.policy).may_overflow:
            return found
        return find_overflow(self.database[name], found, self.sample(name), self._others(name))

    def _others(self, name: str) -> Iterable[tuple[str, Docs]]:
        """Yields samples of the collections that may hold overflow and may be read, those with a like name
        first."""
        others = [it for it, info in self.listed.items() if info["type"] == "collection" and it != name]
        for other in difflib.get_close_matches(name, others, n=_OTHERS, cutoff=0):
            try:
                found = self.sample(other)
            except OperationFailure as error:
                if error.code != _UNAUTHORIZED:
                    raise
            else:
                yield other, found


def _indexes(collection: Collection[Document]) -> list[list[str]]:
    """Returns the fields of each index, in their order, but for `_id`."""
    return [list(it["key"]) for it in collection.list_indexes() if list(it["key"]) != ["_id"]]


#: Buckets that are looked up by the references to them.
_REFERRED = 50


def find_overflow(
    buckets: Collection[Document], found: Guess, sample: Docs, others: Iterable[tuple[str, Docs]]
) -> Guess:
    """Returns the guess with its overflow collection, if one of the other collections is that."""
    for name, docs in others:
        extra = Fields.of(decoded(docs))
        for ref_field, ids in references(extra).items():
            query = {"_id": {"$in": ids[:_REFERRED]}}
            referred = Docs.concat(
                [Docs.none(), *find_raw(buckets, query, first=First(_REFERRED), reads_ahead=False)]
            )
            if 2 * len(referred) > len(ids[:_REFERRED]):  # the others may be gone
                seen = _fitting(found, name, ref_field, docs, referred, sample)
                if seen is not None:
                    return seen
    return found


def _fitting(
    found: Guess, name: str, ref_field: str, docs: Docs, referred: Docs, sample: Docs
) -> Guess | None:
    """Returns the guess with the overflow that fits the buckets which are referred to."""
    held = set(referred)
    others = Fields.of(decoded(it for it in sample if it not in held))
    extra = Fields.of(decoded(docs))
    for overflow in overflows(name, ref_field, extra, Fields.of(decoded(referred)), others):
        if seen := with_overflow(found, overflow, referred, docs, sample):
            text = (
                f"{len(referred):,} buckets with {quoted(overflow.flag_field)} are referred to by "
                f"{quoted(ref_field)} in {quoted(name)}"
            )
            seen.notes.add_evidence("overflow", text)
            return seen
    return None


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
    if guess.asked:
        raise UsageError(
            f"{name}: its documents can be read in {len(guess.ways):,} ways, and nothing in them tells which "
            "is meant. Let `bucketwise init` write a policy file, choose one there, and name the file with "
            "--config"
        )
    return Subject(database, guess.policy, kind, guess)
