"""What is recorded of the summaries of each level, beside how far it is rolled up: how many there are, how
long they stay, and their tombstones. One document a policy in `bucketwise_progress`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from bson.datetime_ms import DatetimeMS
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.buckets.bson.cursor import SIMPLE
from bucketwise.buckets.decoding.soundness import EARLIEST, Plausible
from bucketwise.buckets.fields.times import as_date, as_ms
from bucketwise.config.policies import LevelName, Policy
from bucketwise.config.times import format_duration
from bucketwise.rollups.calendar.levels import Level, Span, levels_of
from bucketwise.rollups.calendar.windows import LOWEST, span_ms, to_ms
from bucketwise.rollups.progress import Progress, gone_before, progress_collection, progress_of, records_of
from bucketwise.rollups.summaries.targets import target

#: The months of summaries, and how many there are of each.
Months = Mapping[str, int]
_DECEMBER = 12


def month_of(start_ms: int) -> str:
    """Returns the month of a window that begins at this instant."""
    at = as_date(start_ms)
    return f"{at.year:04}-{at.month:02}"


def span_of(month: str) -> Span:
    """Returns the instants at which a month begins and ends, milliseconds."""
    year, number = int(month[:4]), int(month[5:])
    following = (year, number + 1) if number < _DECEMBER else (year + 1, 1)
    return to_ms(datetime(year, number, 1, tzinfo=UTC)), to_ms(datetime(*following, 1, tzinfo=UTC))


@dataclass(frozen=True)
class SummaryCount:
    """What runs have counted of one level, by month: the summaries that stand; how many there were where
    somebody has removed some, until a run has made them again (`wanted`); and those that no reading gives
    again (`lost`). `beside`: by how much MongoDB's own estimate differs."""

    standing: Months = field(default_factory=dict)
    wanted: Months = field(default_factory=dict)
    lost: Months = field(default_factory=dict)
    beside: int = 0

    def legible(self) -> SummaryCount:
        """Returns the count as it was stored, where lost ones are none if more have come than were lost."""
        return replace(self, lost=_positive(self.lost))

    def fits(self, estimate: int) -> bool:
        """Returns whether nothing has come or gone, by MongoDB's estimate."""
        return estimate == sum(self.standing.values()) + self.beside and not self.wanted

    def missing(self, found: Months) -> dict[str, int]:
        """Returns how many summaries of each month are no longer there."""
        known = {month: max(count, self.wanted.get(month, 0)) for month, count in self.standing.items()}
        return _positive({month: n - found.get(month, 0) for month, n in {**self.wanted, **known}.items()})

    def recounted(self, found: Months, estimate: int) -> SummaryCount:
        """Returns the count with what was found, before anything is made again. What came from elsewhere,
        such as a backup, is lost no more."""
        wanted = {month: found.get(month, 0) + count for month, count in self.missing(found).items()}
        came = {month: max(0, found.get(month, 0) - self.standing.get(month, 0)) for month in self.lost}
        lost = _positive({month: count - came[month] for month, count in self.lost.items()})
        return SummaryCount(dict(found), wanted, lost, estimate - sum(found.values()))

    def settled(self) -> SummaryCount:
        """Returns the count once all has been made again that readings give: the rest is lost."""
        lost = {month: count - self.standing.get(month, 0) for month, count in self.wanted.items()}
        return replace(self, wanted={}, lost=dict(Counter(self.lost) + Counter(_positive(lost))))


def _positive(counts: Months) -> dict[str, int]:
    return {month: count for month, count in counts.items() if count > 0}


#: After tombstones are lifted, there is so long to change the policy before their grace begins again.
LIFTED_FOR = timedelta(days=30)
NEVER = -(2**62)
#: A run places a tombstone if the one before is this old: a day, or this share of the grace.
_PACE, _PACES = timedelta(days=1), 8


class Tombstone(NamedTuple):
    """A tombstone on the windows that ended `before` an instant, and when it was placed; milliseconds.
    `keep`: the text of the `Retention` that placed it. It counts only under that."""

    before: int
    at: int
    keep: str


class Lift(NamedTuple):
    """What ends after `since` stays until `until`, and has its grace from then on; milliseconds."""

    since: int
    until: int


@dataclass(frozen=True)
class Retention:
    """How long the summaries of one level stay, at one instant. `past`: those whose windows ended before it
    are past their time (milliseconds)."""

    keep: timedelta
    grace: timedelta
    now: int
    past: int
    scope: str = ""  # of which series: see `SeriesRules.scope`

    @property
    def text(self) -> str:
        """Returns how long summaries stay, as the policy file writes it, and those of which series."""
        text = format_duration(self.keep)
        return f"{text}, rule {self.scope}" if self.scope else text


@dataclass(frozen=True)
class Tombstones:
    """The tombstones of one level, those of one rule from the oldest on, and its lifts, which hold for
    whichever rule comes."""

    placed: Sequence[Tombstone] = ()
    lifts: Sequence[Lift] = ()

    def counting(self, rule: Retention) -> list[Tombstone]:
        """Returns the tombstones that count under a rule."""
        return [it for it in self.placed if it.keep == rule.text]

    def covered(self, rule: Retention) -> int:
        """Returns the instant before which windows are under a tombstone."""
        return min(rule.past, max((it.before for it in self.counting(rule)), default=NEVER))

    def removable(self, rule: Retention) -> int:
        """Returns the instant before which summaries may be removed: they are past their time, and their
        tombstone has stood for the grace. A lift keeps what it is for, and all later ones."""
        grace = span_ms(rule.grace)
        due = [it.before for it in self.counting(rule) if it.at + grace <= rule.now]
        ripe = max(due, default=NEVER) if grace else rule.past
        kept = [it.since + 1 for it in self.lifts if rule.now < it.until + grace]
        return min([rule.past, ripe, *kept])

    def after_run(self, rules: Sequence[Retention], now: int) -> Tombstones:
        """Returns the tombstones once a run has placed what is due by these rules, and forgotten what is of
        no use: what another rule has placed stays void if that comes back."""
        grace = max((span_ms(rule.grace) for rule in rules), default=0)
        lifts = tuple(it for it in self.lifts if now < it.until + grace)
        return Tombstones(tuple(it for rule in rules for it in self._after_run(rule)), lifts)

    def _after_run(self, rule: Retention) -> list[Tombstone]:
        grace = span_ms(rule.grace)
        standing = [it for it in self.counting(rule) if it.at <= rule.now]
        ripe = [it for it in standing if it.at + grace <= rule.now]
        standing = standing[max(0, len(ripe) - 1) :]
        pace = min(span_ms(_PACE), grace // _PACES)
        if grace and (not standing or standing[-1].at + pace <= rule.now):
            standing.append(Tombstone(rule.past, rule.now, rule.text))
        return standing

    def lifted(self, since: int, now: int) -> Tombstones:
        """Returns the tombstones with those on what ends after an instant lifted."""
        return replace(self, lifts=(*self.lifts, Lift(since, now + span_ms(LIFTED_FOR))))

    def is_lifted(self, since: int, now: int) -> bool:
        """Returns whether what ends after an instant is lifted already."""
        return any(it.since <= since and now < it.until for it in self.lifts)


Document = dict[str, Any]
KIND = "summaries"  # of the record
#: Looks at what is missing, while a run may be writing.
_TRIES = 3


@dataclass(frozen=True)
class Standing:
    """Tells what is recorded of each level: what runs have counted, how long its summaries stay by the last
    one (as the policy file writes it), and their tombstones. Records of another collection do not count."""

    counts: Mapping[LevelName, SummaryCount]
    retentions: Mapping[LevelName, str]
    tombstones: Mapping[LevelName, Tombstones]

    def has_before(self, instant: datetime) -> bool:
        """Returns whether any summary that runs have counted is of a month before that of an instant."""
        first = month_of(as_ms(instant))
        counted = (month for it in self.counts.values() for month, count in it.standing.items() if count)
        return any(month < first for month in counted)


def load_standing(
    database: Database[Document], policy: Policy, session: ClientSession | None = None
) -> Standing:
    """Returns what is recorded of the summaries of a policy."""
    return standing_of(progress_collection(database).find_one(_identity(policy), session=session), policy)


def load_both(database: Database[Document], policy: Policy) -> tuple[Progress, Standing]:
    """Returns how far a policy is rolled up, and what is recorded of its summaries. Asks once."""
    found = records_of(database, policy, KIND)
    return progress_of(found, policy), standing_of(found.get(KIND), policy)


def plausible_times(policy: Policy, standing: Standing, now: datetime) -> Plausible:
    """Returns the times that live buckets of a policy may have."""
    return Plausible.of(policy, now, has_earlier=standing.has_before(EARLIEST))


def standing_of(record: Document | None, policy: Policy) -> Standing:
    """Returns what the record of a policy's summaries tells."""
    found = record or {}
    counts, tombstones = (_of_levels(policy, found.get(name, {})) for name in ("counts", "tombstones"))
    names = ("standing", "wanted", "lost", "beside")
    return Standing(
        {level: SummaryCount(*(it[name] for name in names)).legible() for level, it in counts.items()},
        found.get("retentions", {}),
        {level.name: _tombstones(tombstones.get(level.name)) for level in levels_of(policy)},
    )


def _of_levels(policy: Policy, found: Mapping[str, Document]) -> dict[LevelName, Document]:
    return {
        it.name: found[it.name]
        for it in levels_of(policy)
        if found.get(it.name, {}).get("collection") == it.collection
    }


def store_tombstones(
    database: Database[Document],
    policy: Policy,
    changed: Mapping[LevelName, Tombstones],
    session: ClientSession,
) -> None:
    """Stores the tombstones of some levels, in a transaction."""
    targets = policy.rollup.targets if policy.rollup else {}
    update = {f"tombstones.{name}": _document(targets[name], it) for name, it in changed.items()}
    progress_collection(database).update_one(
        _identity(policy), {"$set": update}, upsert=True, session=session
    )


def store_counts(
    database: Database[Document], policy: Policy, counts: Mapping[LevelName, SummaryCount]
) -> None:
    """Stores what was counted of some levels. Only who holds the lease may."""
    targets = policy.rollup.targets if policy.rollup else {}
    update = {f"counts.{name}": {"collection": targets[name], **asdict(it)} for name, it in counts.items()}
    progress_collection(database).update_one(_identity(policy), {"$set": update}, upsert=True)


def count_changes(
    database: Database[Document],
    policy: Policy,
    level: Level,
    changes: Counter[str],
    session: ClientSession,
    again: Mapping[str, int] | None = None,
) -> None:
    """Adds to the count of a level, in the transaction that writes its summaries, by month. `again`: how many
    of those that were lost came. Without a count nothing is added: the next run counts all."""
    added = {f"counts.{level.name}.standing.{month}": count for month, count in changes.items() if count}
    added |= {f"counts.{level.name}.lost.{month}": -count for month, count in (again or {}).items()}
    if added:
        counted = {**_identity(policy), f"counts.{level.name}.collection": level.collection}
        progress_collection(database).update_one(counted, {"$inc": added}, session=session)


def delete_summaries(
    database: Database[Document],
    policy: Policy,
    level: Level,
    query: Mapping[str, Any],
    session: ClientSession,
) -> int:
    """Deletes the summaries of a level that match, in a transaction. Returns how many went."""
    collection, changes = target(database, level.collection), Counter[str]()
    found = collection.find(query, {"start": 1}, session=session, collation=SIMPLE)
    changes.subtract(month_of(to_ms(it["start"])) for it in found)
    collection.delete_many(query, session=session, collation=SIMPLE)
    count_changes(database, policy, level, changes, session)
    return -changes.total()


def months_in(database: Database[Document], level: Level) -> dict[str, int]:
    """Returns how many summaries of a level there are, counted one by one."""
    month = {"$dateToString": {"date": "$start", "format": "%Y-%m"}}
    stages: list[Document] = [
        {"$match": {"_id.series": {"$exists": True}, "start": {"$type": "date"}}},  # as only summaries have
        {"$group": {"_id": month, "count": {"$sum": 1}}},
    ]
    return {it["_id"]: it["count"] for it in database[level.collection].aggregate(stages)}


class Removed(NamedTuple):
    """Summaries of one level and month that somebody has removed. `is_lost`: no reading gives them again."""

    level: Level
    span: Span  # of the month, milliseconds
    summaries: int
    is_lost: bool


def removed_summaries(database: Database[Document], policy: Policy, levels: Iterable[Level]) -> list[Removed]:
    """Returns the summaries that somebody has removed, and that are not past their time by now. Counts them
    only where MongoDB's estimate says that their number has changed."""
    known = load_standing(database, policy).counts
    for _ in range(_TRIES):
        counts, found = known, list[Removed]()
        for level in levels:
            if (count := counts.get(level.name)) is None:
                continue
            missing = {}
            if not count.fits(database[level.collection].estimated_document_count()):
                missing = count.missing(months_in(database, level))
            expired = gone_before(database, policy).get(level.name, LOWEST) if count.lost else LOWEST
            lost = {month: it for month, it in count.lost.items() if span_of(month)[1] > expired}
            for is_lost, months in ((False, missing), (True, lost)):
                found += [Removed(level, span_of(it), months[it], is_lost) for it in sorted(months)]
        if all(it.is_lost for it in found):
            break
        known = load_standing(database, policy).counts
        if known == counts:  # else a run has written meanwhile
            break
    return found


def store_retentions(
    database: Database[Document], policy: Policy, retentions: Mapping[LevelName, str]
) -> None:
    """Stores how long each level is kept."""
    update = {"$set": {"retentions": dict(retentions)}}
    progress_collection(database).update_one(_identity(policy), update, upsert=True)


def _identity(policy: Policy) -> Document:
    return {"_id": {KIND: policy.identity}}


def _tombstones(found: Document | None) -> Tombstones:
    if found is None:
        return Tombstones()
    return Tombstones(
        tuple(Tombstone(to_ms(it["before"]), to_ms(it["at"]), it["keep"]) for it in found["placed"]),
        tuple(Lift(to_ms(it["since"]), to_ms(it["until"])) for it in found["lifts"]),
    )


def _document(collection: str, it: Tombstones) -> Document:
    return {
        "collection": collection,
        "placed": [
            {"before": DatetimeMS(mark.before), "at": DatetimeMS(mark.at), "keep": mark.keep}
            for mark in it.placed
        ],
        "lifts": [{"since": DatetimeMS(lift.since), "until": DatetimeMS(lift.until)} for lift in it.lifts],
    }
