"""Check: would a run work here, and would anything put data at risk? Changes nothing in MongoDB."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pymongo.database import Database

from bucketwise.buckets.bson.cursor import is_sharded, keeps_ids_unique, shard_key
from bucketwise.buckets.collations import leading
from bucketwise.buckets.decoding.soundness import Plausible
from bucketwise.buckets.models import model_of
from bucketwise.buckets.sampling.doubts import doubt_of
from bucketwise.buckets.sampling.fit import Fit, fit_of
from bucketwise.buckets.sampling.reading import AsRead
from bucketwise.buckets.sampling.sample import sample
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy
from bucketwise.jobs.core.fit import larger_summaries, misfits
from bucketwise.jobs.core.job import Severity
from bucketwise.jobs.core.turn import Finding
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.changes.drain import may_stream
from bucketwise.rollups.rolling import outlived
from bucketwise.rollups.summaries.paying import Whole

Document = dict[str, Any]

_UNFINDABLE = (
    "no index can find a range of time: times stand in pairs, and no field tells when a bucket starts or "
    "ends. Each step of a run reads the whole collection: let the writer keep the first and the last time, "
    "and name these with start_field and end_field"
)


_LOOKS = ("listCollections", "listIndexes")


@dataclass(frozen=True)
class CheckResult:
    """The result of the check of one policy."""

    findings: list[Finding]
    fit: Fit | None  # None: the documents can't be looked at
    misfits: list[Finding]


def check_policy(
    database: Database[Document],
    policy: Policy,
    own_collections: Mapping[str, tuple[str, ...]],
    unmet: Callable[[], Iterable[Finding]] = tuple,
    plausible: Callable[[], Plausible | None] = lambda: None,
) -> CheckResult:
    """Returns what is found of one policy. `own_collections`: where the suite keeps its records, and what it
    does there. `unmet` finds what would keep a run from going on, and `plausible` gives the times that live
    buckets may have; both are called where the user may look.

    Raises PyMongoError where the server can't be asked."""
    checker = _Check(database, policy)
    rights = list(checker.rights(own_collections))
    if any(action in it.message for it in rights for action in _LOOKS):
        return CheckResult(rights, None, [])  # the rest can't be looked at
    kind = list(checker.source())
    may_look = not any("find" in it.message and it.place in policy.sources for it in rights)
    may_ask = all(it.place in policy.sources for it in rights)  # what bucketwise recorded
    fit, doubt = None, None
    if may_look and policy.collection in checker.here and all(it.severity != "error" for it in kind):
        sampled = sample(checker.buckets)
        expected = plausible() if may_ask else None
        fit = fit_of(sampled, policy, expected)
        read = AsRead(sampled, policy, checker.buckets)
        doubt = doubt_of(read, None if expected is None else expected.now)
    unfit = misfits(fit, policy, doubt) if fit else []
    costly = larger_summaries(policy, sampled, _whole(checker.buckets, fit)) if fit and not unfit else []
    findings = [
        *kind,
        *unfit,
        *costly,
        *(unmet() if may_ask else ()),
        *checker.sharding(),
        *checker.indexes(),
        *checker.expiry(),
        *checker.targets(),
        *rights,
    ]
    if all(finding.severity == "ok" for finding in findings):
        findings = [
            Finding("policy", policy.name, policy.collection, "ok", "everything is as a run needs it")
        ]
    return CheckResult(findings, fit, unfit)


def _whole(source: Source, fit: Fit) -> Whole | None:
    """Returns how much there is of buckets of one reading, where an index tells it."""
    if fit.readings > fit.buckets or not source.comparison.has_index(source.last_field):
        return None
    span = source.span()
    return None if span is None else Whole(source.count(), span[1] - span[0])


@dataclass(frozen=True)
class _Check:
    database: Database[Document]
    policy: Policy

    @cached_property
    def buckets(self) -> Source:
        return Source(self.database, self.policy)

    @cached_property
    def here(self) -> dict[str, Document]:
        """Returns what MongoDB lists of the policy's collections, by name, and of no others: many policies
        may share the database."""
        named = {"name": {"$in": [*self.policy.sources, *self._kept()]}}
        return {info["name"]: dict(info) for info in self.database.list_collections(filter=named)}

    @cached_property
    def _privileges(self) -> Privileges:
        return Privileges.of(self.database)

    def source(self) -> Iterator[Finding]:
        policy, info = self.policy, self.here.get(self.policy.collection)
        if info is None:
            return
        kind, options, model = info["type"], info.get("options", {}), model_of(policy)
        if kind == "view" and model.collection_type == "collection" and not self._deletes:
            return  # it is read as a collection is
        if kind != model.collection_type:
            message = f"it is a {kind}, and the policy's model is {model.name}: "
            if kind == "timeseries":
                message += 'write model = "timeseries"'
            elif kind == "view":
                message += "name the collection behind the view, or write archive.delete = false"
            else:
                message += "write the model that its documents have"
            yield self._finding("source-kind", policy.collection, "error", message)
            return
        if (fault := model.options_fault(options)) is not None:
            yield self._finding("source-kind", policy.collection, "error", fault)
        if model.undeletable is not None and self._deletes:
            yield self._finding("deletes-impossible", policy.collection, "warning", model.undeletable)
        elif options.get("capped") and self._deletes:
            message = "it is capped, so nothing can be deleted from it: write archive.delete = false"
            yield self._finding("source-kind", policy.collection, "error", message)

    def sharding(self) -> Iterator[Finding]:
        """Yields findings on each collection whose documents are identified by `_id`."""
        if not is_sharded(self.database) or not model_of(self.policy).keeps_ids_unique:
            return
        for name in self.policy.sources:
            key = shard_key(self.database, name)
            if key is not None and not keeps_ids_unique(key):
                message = (
                    f"it is sharded by {', '.join(key)}, so that two shards may each have a document "
                    "with the same _id: a run that meets two halts, and deletes nothing. Let drivers make "
                    "ObjectIds"
                )
                yield self._finding("sharded-id", name, "warning", message)

    def indexes(self) -> Iterator[Finding]:
        policy = self.policy
        model = model_of(policy)
        is_plain = self.here.get(policy.collection, {}).get("type") == "collection"
        if is_plain and not model.own_form.is_sorted:
            yield self._unsorted()
        elif is_plain and model.needs_index:
            for field in map(model.own_form.indexed, model.indexed_fields):
                if not self.buckets.comparison.has_index(field):
                    yield self._unindexed(field)
            if not model.indexed_fields:
                yield self._finding("index-missing", policy.collection, "warning", _UNFINDABLE)
            elif model.array is not None and not model.tells_last and model.sample_index is None:
                yield self._endless()
        if policy.overflow is not None:
            place = policy.overflow.collection
            kind = self.here[place]["type"] if place in self.here else None
            if kind == "collection":
                if not leading(self.database[place].list_indexes(), policy.overflow.ref_field):
                    what = "finding a bucket's overflow has no index"
                    yield self._index(place, policy.overflow.ref_field, what)
            elif kind is None:
                message = "there is no such collection: no bucket may have overflow until it is there"
                yield self._finding("overflow-missing", place, "warning", message)
            else:
                message = f"it is a {kind}: overflow has to lie in an ordinary collection"
                yield self._finding("overflow-kind", place, "error", message)

    def _unsorted(self) -> Finding:
        """Returns the finding that no index can find a range of time, with what that costs."""
        form, model = model_of(self.policy).own_form, model_of(self.policy)
        fields = ", ".join(form.fields(model.first_field))
        message = (
            f"times in {fields} don't sort as time does, so no index finds a range of them: for each day "
            f"that a run looks at, MongoDB reads all of the collection, {self.buckets.count():,} documents. "
            "Let the writer keep a date as well, with an index, and name it in the policy"
        )
        return self._finding("times-unsorted", f"{self.policy.collection}, {fields}", "warning", message)

    def _endless(self) -> Finding:
        """Returns the finding that buckets are looked into to learn when they end, with what that costs."""
        message = (
            "no field tells when a bucket ends, and no index finds the times of its samples: for each day "
            "that a run looks at, MongoDB looks into each bucket that starts before the day is over, of "
            f"{self.buckets.count():,} documents. Let the writer keep the last time, and name it as end_field"
        )
        return self._finding("ends-unknown", self.policy.collection, "warning", message)

    def _unindexed(self, field: str) -> Finding:
        """Returns the finding that no index finds times in a field, with what that costs."""
        collection, held = self.policy.collection, leading(self.buckets.indexes, field)
        cost = f"for each day that a run looks at, MongoDB reads all of {self.buckets.count():,} documents"
        if held:
            options = f', {{collation: {{locale: "simple"}}, name: "{field}_1_simple"}}'
            what = "texts sort otherwise than time by the collation of the index, so"
            return self._index(collection, field, f"{what} {cost}", options)
        what = "reading a range of time has no index:"
        is_text = model_of(self.policy).own_form.has_texts and self.here[collection]["options"].get(
            "collation"
        )
        options = ', {collation: {locale: "simple"}}' if is_text else ""
        return self._index(collection, field, f"{what} {cost}", options)

    def _index(self, collection: str, field: str, what: str, options: str = "") -> Finding:
        message = f"{what}: db.getCollection({collection!r}).createIndex({{{field!r}: 1}}{options})"
        return self._finding("index-missing", f"{collection}, {field}", "warning", message)

    def expiry(self) -> Iterator[Finding]:
        for expiry in outlived.conflicts(self.buckets):
            message = (
                f"MongoDB deletes after {expiry.after} what is archived after {self._after}: drop the index "
                "or the option, or make it longer"
            )
            yield self._finding("ttl-conflict", expiry.place, "error", message)
        for name, kept in self._kept().items():
            if name in self.here:
                for expiry in outlived.rules(self.database, [self.here[name]]):
                    if kept is None or expiry.after < kept:
                        message = (
                            f"MongoDB deletes after {expiry.after} what is to be kept {kept or 'forever'}"
                        )
                        yield self._finding("ttl-conflict", expiry.place, "error", message)

    def _kept(self) -> dict[str, Any]:
        """Returns how long the suite keeps what it writes, by collection; None: forever."""
        kept: dict[str, Any] = {level.collection: level.retain for level in levels_of(self.policy)}
        return kept | dict.fromkeys(filter(None, self.policy.archive_collections or ()))

    def targets(self) -> Iterator[Finding]:
        for name in self._kept():
            kind = self.here.get(name, {"type": "collection"})["type"]
            if kind != "collection":
                message = f"it is a {kind}: the policy writes there, and needs an ordinary collection"
                yield self._finding("target-kind", name, "error", message)

    def rights(self, own_collections: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
        needs = needs_of(self.policy, own_collections, deletes=self._deletes)
        for missing in self._privileges.missing(needs):
            where = "there" if missing.collection else "in the database as a whole"
            message = f"the user lacks {', '.join(missing.actions)} {where}: grant that, or readWrite"
            place = missing.collection or self.database.name
            yield self._finding("privilege-missing", place, "error", message)
        yield from self._stream()

    def _stream(self) -> Iterator[Finding]:
        """Yields findings on the database's change stream, which tells late readings."""
        policy = self.policy
        if policy.rollup is None or not may_stream(policy):
            return
        for missing in self._privileges.missing([Needs("", ("find", "changeStream"))]):
            message = f"the user lacks {', '.join(missing.actions)} in the database as a whole: "
            if policy.rollup.late_data == "stream":
                message += 'late readings are not noticed; grant it, or write rollup.late_data = "auto"'
                yield self._finding("stream-unreadable", self.database.name, "error", message)
            else:
                message += "late readings are looked for within `recheck` only; grant it"
                yield self._finding("stream-unreadable", self.database.name, "warning", message)

    @property
    def _deletes(self) -> bool:
        archive = self.policy.archiving
        return archive is not None and archive.delete

    @property
    def _after(self) -> str:
        lengths = [it.archive.after if it.archive else None for it in self.policy.lives]
        found = [it for it in lengths if it is not None]
        return "never" if len(found) < len(lengths) else str(max(found))

    def _finding(self, code: str, place: str, severity: Severity, message: str) -> Finding:
        return Finding(code, self.policy.name, place, severity, message)


_READ = ("find", "listIndexes")


_SUMMARIES = (*_READ, "insert", "update", "remove", "createIndex")


_COPIES = (*_READ, "insert", "remove", "createIndex")


_VERSIONS = ("find", "insert", "remove", "createIndex")


@dataclass(frozen=True)
class Needs:
    """The actions that a run takes in one collection; "" is the database as a whole."""

    collection: str
    actions: tuple[str, ...]


def needs_of(policy: Policy, own: Mapping[str, tuple[str, ...]], *, deletes: bool) -> Iterator[Needs]:
    """Yields all rights that a run of the policy needs, as docs/rights.md grants them. `own`: what it does
    in its own collections."""
    yield Needs("", ("listCollections",))
    for source in policy.sources:
        yield Needs(source, (*_READ, "remove") if deletes else _READ)
    for summaries in policy.rollup.targets.values() if policy.rollup else ():
        yield Needs(summaries, _SUMMARIES)
    if (archived := policy.archive_collections) is not None:
        yield from (Needs(copies, _COPIES) for copies in archived.copies)
        yield Needs(archived.versions, _VERSIONS)
    for name, actions in own.items():
        yield Needs(name, actions)


@dataclass(frozen=True)
class Privileges:
    """The rights of the user. `granted` is None where the server has no access control."""

    database: str
    granted: Sequence[Document] | None

    @classmethod
    def of(cls, database: Database[Document]) -> Privileges:
        """Returns the privileges of the connection's user."""
        status = database.client.admin.command("connectionStatus", showPrivileges=True)["authInfo"]
        is_asked = bool(status["authenticatedUsers"])
        return cls(database.name, status["authenticatedUserPrivileges"] if is_asked else None)

    def missing(self, needs: Iterable[Needs]) -> Iterator[Needs]:
        """Yields the needs that the privileges do not grant."""
        for need in needs if self.granted is not None else ():
            granted = granted_actions(self.granted or (), self.database, need.collection)
            lacking = tuple(action for action in need.actions if action not in granted)
            if lacking:
                yield Needs(need.collection, lacking)


def granted_actions(privileges: Iterable[Document], database: str, collection: str) -> set[str]:
    """Returns all actions that the privileges grant in that collection."""
    granted: set[str] = set()
    for privilege in privileges:
        resource = privilege["resource"]
        named = resource.get("db") in ("", database) and resource.get("collection") in ("", collection)
        if named or resource.get("anyResource"):
            granted.update(privilege["actions"])
    return granted
