"""How far a policy is rolled up: one document a policy in `bucketwise_progress`."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from bson.codec_options import CodecOptions
from bson.datetime_ms import DatetimeMS
from pymongo.client_session import ClientSession
from pymongo.collection import Collection as MongoCollection
from pymongo.database import Database

from bucketwise.buckets.rules import SeriesRules
from bucketwise.config.policies import LevelName, Policy
from bucketwise.config.written import fingerprint, layout_fingerprint
from bucketwise.rollups.calendar.due import Spans, widened
from bucketwise.rollups.calendar.levels import Span, base_levels, levels_of
from bucketwise.rollups.calendar.windows import LOWEST, to_ms
from bucketwise.rollups.context import majority, transaction

Document = dict[str, Any]
#: Before when summaries are gone, or were never made (milliseconds), by the number of a rule and by level.
GoneByNumber = Mapping[int, Mapping[LevelName, int]]
COLLECTION = "bucketwise_progress"
NO_GATE = 2**62  # later than every window
#: Summaries of which it is noted that only holds keep them. What lies beyond stays, and is told as gone.
_MOST_HELD = 50_000
_ROLLED_UP = ""  # the kind of a policy's main record


@dataclass(frozen=True)
class Bookmark:
    """The place in its change stream up to which a policy has been read."""

    token: Mapping[str, Any]
    collections: Mapping[str, str]  # those of the stream: name -> what tells it from another of that name
    live: Sequence[Span]  # these hold all that the buckets which were live then cover


class HeldWindow(NamedTuple):
    """The window (milliseconds) of a summary that only holds keep, and a digest of its series. An erasure
    removes it."""

    start: int
    end: int
    series: bytes


def digest_of(series: bytes) -> bytes:
    """Returns a digest of a series' key."""
    return hashlib.sha256(series).digest()[:16]


class HeldWindows(NamedTuple):
    """Those of a policy, and the digests of the holds that stood when they were last tried."""

    windows: Set[HeldWindow] = frozenset()
    under: Sequence[str] = ()


@dataclass(frozen=True)
class Progress:
    """Every due window of a level that ends at or before its `through` (milliseconds) is rolled up.

    `bookmark`: and holds all changes up to there. None: changes are not read from a stream. `by_rule`: before
    when summaries of the series of each rule of the policy, by its number, are gone, or were never made.
    `left`: the windows that touch these spans stand as they were, since archived readings of them can't be
    read, or were adopted; each run tries them again. `held`: windows of these spans have summaries whose
    readings are gone, and which stay until holds are released.
    """

    through: Mapping[LevelName, int] = field(default_factory=dict)
    bookmark: Bookmark | None = None
    by_rule: GoneByNumber = field(default_factory=dict)
    left: Sequence[Span] = ()
    held: HeldWindows = field(default_factory=HeldWindows)

    @cached_property
    def gone(self) -> Mapping[LevelName, int]:
        """Returns before when summaries of some series are gone, or were never made."""
        return gone_of_some(self.by_rule)

    @cached_property
    def wholly(self) -> Mapping[LevelName, int]:
        """Returns before when summaries of all series are gone, or were never made."""
        found = {
            level: min(it.get(level, LOWEST) for it in self.by_rule.values())
            for level in gone_of_some(self.by_rule)
        }
        return {level: ms for level, ms in found.items() if ms > LOWEST}


def load(database: Database[Document], policy: Policy) -> Progress:
    """Returns how far a policy is rolled up: nowhere, where nothing is yet, or was with settings that gave
    other summaries."""
    return progress_of(records_of(database, policy), policy)


def records_of(database: Database[Document], policy: Policy, *others: str) -> dict[str, Document]:
    """Returns what is recorded of how far a policy is rolled up, for `progress_of`, and its records of other
    kinds, by kind. Asks once."""
    kinds = ("gone", "held", *others)
    wanted = {"_id": {"$in": [policy.identity, *({kind: policy.identity} for kind in kinds)]}}
    found = progress_collection(database).find(wanted)
    return {_ROLLED_UP if isinstance(it["_id"], str) else next(iter(it["_id"])): it for it in found}


def progress_of(records: Mapping[str, Document], policy: Policy) -> Progress:
    """Returns what these records tell."""
    by_rule = _gone(records.get("gone"), policy)
    held = _held(records.get("held"))
    return replace(_progress(records.get(_ROLLED_UP), policy), by_rule=by_rule, held=held)


def load_all(database: Database[Document], policies: Sequence[Policy]) -> dict[str, Progress]:
    """Returns how far several policies are rolled up, by name; without what holds keep."""
    wanted = [one for it in policies for one in (it.identity, {"gone": it.identity})]
    records: dict[str, dict[str, Document]] = {it.identity: {} for it in policies}
    for found in progress_collection(database).find({"_id": {"$in": wanted}}) if policies else ():
        key = found["_id"]
        kind, identity = (_ROLLED_UP, key) if isinstance(key, str) else next(iter(key.items()))
        records[identity][kind] = found
    return {it.name: progress_of(records[it.identity], it) for it in policies}


def _progress(found: Document | None, policy: Policy) -> Progress:
    if found is None or found.get("fingerprint") != fingerprint(policy):
        return Progress()
    # New collections for hours and days change the fingerprint; one for a further level only its progress.
    known = {**(policy.rollup.targets if policy.rollup else {}), **found.get("targets", {})}
    levels = [
        level.name
        for level in levels_of(policy)
        if found.get(f"{level.name}_through") is not None and known[level.name] == level.collection
    ]
    return Progress(
        {level: to_ms(found[f"{level}_through"]) for level in levels},
        _bookmark(found.get("stream")),
        left=_spans(found.get("left", ())),
    )


def _bookmark(found: Document | None) -> Bookmark | None:
    if found is None:
        return None
    return Bookmark(
        token=found["token"],
        collections={it["name"]: it["uuid"] for it in found["collections"]},
        live=_spans(found["live"]),
    )


def _spans(documents: Iterable[Document]) -> list[Span]:
    return [(to_ms(it["from"]), to_ms(it["to"])) for it in documents]


def _documents(spans: Iterable[Span]) -> list[Document]:
    return [{"from": DatetimeMS(start), "to": DatetimeMS(end)} for start, end in spans]


def store(database: Database[Document], policy: Policy, progress: Progress) -> None:
    """Stores how far a policy is rolled up. Call it only once the writes of its summaries are
    acknowledged."""
    document: Document = {"_id": policy.identity, "fingerprint": fingerprint(policy)}
    document |= {f"{level}_through": DatetimeMS(ms) for level, ms in progress.through.items()}
    if policy.rollup is not None and policy.rollup.levels:
        document["targets"] = {level.name: level.collection for level in policy.rollup.levels}
    if (bookmark := progress.bookmark) is not None:
        document["stream"] = {
            "token": bookmark.token,
            "collections": [{"name": name, "uuid": it} for name, it in bookmark.collections.items()],
            "live": _documents(bookmark.live),
        }
    if progress.left:
        document["left"] = _documents(progress.left)
    progress_collection(database).replace_one({"_id": policy.identity}, document, upsert=True)


def note_left(database: Database[Document], policy: Policy, spans: Collection[Span]) -> None:
    """Records that the windows which touch these spans (milliseconds) are to be made anew: the archive has
    other readings of them, or is about to. Spans are widened to days, so that few are kept. Nothing is
    recorded where all windows are still to come. Call it under the policy's lease."""
    levels, records, own = levels_of(policy), progress_collection(database), {"_id": policy.identity}
    found = records.find_one(own, {"left": 1}) if spans and levels else None
    if found is not None:
        known = Spans(_spans(found.get("left", ()))).spans
        short = [level for level in levels if not level.is_long]
        left = Spans([*known, *(widened(short, spans).spans if short else spans)]).spans
        if left != known:
            records.update_one(own, {"$set": {"left": _documents(left)}})


def _held(found: Document | None) -> HeldWindows:
    if found is None:
        return HeldWindows()
    windows = {HeldWindow(to_ms(it["from"]), to_ms(it["to"]), it["series"]) for it in found["windows"]}
    return HeldWindows(windows, found["under"])


def store_held(database: Database[Document], policy: Policy, held: HeldWindows) -> None:
    """Records which summaries stay without readings until holds are released. Call it under the policy's
    lease."""
    identity = {"held": policy.identity}
    windows = [
        {"from": DatetimeMS(it.start), "to": DatetimeMS(it.end), "series": it.series}
        for it in sorted(held.windows)[:_MOST_HELD]
    ]
    document = {"_id": identity, "under": list(held.under), "windows": windows}
    progress_collection(database).replace_one({"_id": identity}, document, upsert=bool(windows))


def forget_held(
    database: Database[Document],
    policy: Policy,
    series: Collection[bytes],
    span: Span,
    session: ClientSession,
) -> None:
    """Forgets the summaries of these series, by their keys, that only holds keep, and whose windows touch a
    span (milliseconds)."""
    mine = {"$in": [digest_of(it) for it in series]}
    within = {"from": {"$lt": DatetimeMS(span[1])}, "to": {"$gt": DatetimeMS(span[0])}}
    progress_collection(database).update_one(
        {"_id": {"held": policy.identity}},
        {"$pull": {"windows": {"series": mine, **within}}},
        session=session,
    )


def mark_id(policies: Sequence[Policy]) -> Document:
    """Returns the `_id` of the mark of one policy, or of that which several have in common."""
    return {"mark": policies[0].identity if len(policies) == 1 else None}


def leave_mark(database: Database[Document], policies: Sequence[Policy]) -> str:
    """Writes a mark into the change stream, and returns what it is recognized by."""
    mark = uuid.uuid4().hex
    progress_collection(database).replace_one({"_id": mark_id(policies)}, {"mark": mark}, upsert=True)
    return mark


def rolled_up_through(database: Database[Document], policy: Policy) -> int | None:
    """Returns the instant (milliseconds) before which every window that is made of readings is rolled up.

    None: nothing is yet. NO_GATE: the policy rolls nothing up."""
    levels = base_levels(levels_of(policy))
    if not levels:
        return NO_GATE
    through = load(database, policy).through
    if any(level.name not in through for level in levels):
        return None
    return min(through[level.name] - level.reach for level in levels)


def gone_of_some(by_rule: GoneByNumber) -> dict[LevelName, int]:
    """Returns before when summaries of any series are gone, or were never made; milliseconds, by level."""
    found: dict[LevelName, int] = {}
    for lines in by_rule.values():
        found = _later(found, lines)
    return found


def note_gone(
    database: Database[Document],
    policy: Policy,
    before: Mapping[LevelName, int],
    session: ClientSession | None = None,
    rule: int = 0,
) -> None:
    """Records that summaries of windows that ended before these instants (milliseconds) are gone, or were
    never made: of the series of this rule, by its number."""
    if not before:
        return
    known = _known_gone(database, policy, session)
    noted = {**known, rule: _later(known[rule], before)}
    if noted != known:
        _store_gone(database, policy, noted, session)


def set_gone(
    database: Database[Document], policy: Policy, by_rule: GoneByNumber, levels: Collection[LevelName]
) -> None:
    """Records before when summaries of these levels are gone, in place of what was recorded."""
    others = {
        number: {level: ms for level, ms in lines.items() if level not in levels}
        for number, lines in _known_gone(database, policy).items()
    }
    noted = {
        number: {**others.get(number, {}), **{level: lines[level] for level in levels if level in lines}}
        for number, lines in by_rule.items()
    }
    _store_gone(database, policy, noted)


def _store_gone(
    database: Database[Document],
    policy: Policy,
    by_rule: GoneByNumber,
    session: ClientSession | None = None,
) -> None:
    rules = SeriesRules(policy)
    document: Document = {"_id": {"gone": policy.identity}, "fingerprint": fingerprint(policy)}
    document |= _dates(gone_of_some(by_rule))
    if policy.rules:
        document["by_rule"] = {rules.scope(number): _dates(it) for number, it in by_rule.items()}
    progress_collection(database).replace_one(
        {"_id": document["_id"]}, document, upsert=True, session=session
    )


def _later(known: Mapping[LevelName, int], found: Mapping[LevelName, int]) -> dict[LevelName, int]:
    return {**known, **{level: max(ms, known.get(level, ms)) for level, ms in found.items()}}


def _dates(before: Mapping[LevelName, int]) -> Document:
    return {level: DatetimeMS(ms) for level, ms in before.items()}


def gone_before(
    database: Database[Document], policy: Policy, session: ClientSession | None = None
) -> dict[LevelName, int]:
    """Returns before when summaries of some series are gone, or were never made (milliseconds), by level."""
    return gone_of_some(_known_gone(database, policy, session))


def _known_gone(
    database: Database[Document], policy: Policy, session: ClientSession | None = None
) -> dict[int, dict[LevelName, int]]:
    found = progress_collection(database).find_one({"_id": {"gone": policy.identity}}, session=session)
    return _gone(found, policy)


def _gone(found: Document | None, policy: Policy) -> dict[int, dict[LevelName, int]]:
    """Returns what is recorded for each rule. Of a rule that has come or moved since: what was recorded of
    the policy's own, if all its series were under that; else what was of any."""
    rules = SeriesRules(policy)
    numbers = range(rules.own + 1)
    if found is None or found.get("fingerprint") != fingerprint(policy):
        return {number: {} for number in numbers}
    levels = [level.name for level in levels_of(policy)]

    def told(dates: Document) -> dict[LevelName, int]:
        return {level: to_ms(dates[level]) for level in levels if level in dates}

    known = found.get("by_rule", {"": found})
    return {
        number: told(next((known[it] for it in rules.former_scopes(number) if it in known), found))
        for number in numbers
    }


def note_ended(
    database: Database[Document],
    policy: Policy,
    before: int,
    rules: Container[int],
    guard: Callable[[ClientSession], None],
) -> None:
    """Records that archived readings from before this instant (milliseconds) may have gone for good, of the
    series of these rules, by their numbers. Whatever the policy says later, summaries of them can't be made
    again."""

    def noted(session: ClientSession | None = None) -> list[int] | None:
        known = ended_by_rule(database, policy, session)
        lines = [max(ms, before) if number in rules else ms for number, ms in enumerate(known)]
        return None if lines == known else lines

    def step(session: ClientSession) -> None:
        if (lines := noted(session)) is not None:
            document = _ended_document(policy, lines)
            progress_collection(database).replace_one(
                {"_id": document["_id"]}, document, upsert=True, session=session
            )

    if noted() is not None:
        transaction(database, guard, step)


def _ended_document(policy: Policy, lines: Sequence[int]) -> Document:
    document: Document = {"_id": {"ended": policy.identity}, "before": DatetimeMS(max(lines))}
    if policy.rules:
        rules, dates = SeriesRules(policy), [DatetimeMS(ms) if ms > LOWEST else None for ms in lines]
        document["by_rule"] = {rules.scope(number): date for number, date in enumerate(dates)}
    return document


def ended_before(database: Database[Document], policy: Policy) -> int | None:
    """Returns the instant (milliseconds) before which archived readings of any series may have gone; None
    where none have."""
    found = max(ended_by_rule(database, policy))
    return found if found > LOWEST else None


def ended_by_rule(
    database: Database[Document], policy: Policy, session: ClientSession | None = None
) -> list[int]:
    """Returns the instants (milliseconds) before which archived readings of the series of each rule may have
    gone, by its number; LOWEST where none have. See `_gone` on rules that are new."""
    found = progress_collection(database).find_one({"_id": {"ended": policy.identity}}, session=session)
    rules = SeriesRules(policy)
    if found is None:
        return [LOWEST] * len(rules.policies)
    known = found.get("by_rule", {"": found["before"]})
    dates = (
        next((known[it] for it in rules.former_scopes(number) if it in known), found["before"])
        for number in range(rules.own + 1)
    )
    return [LOWEST if date is None else to_ms(date) for date in dates]


def is_fit_proven(database: Database[Document], policy: Policy) -> bool:
    """Returns whether a sample has shown that the policy, as it reads documents now, fits them."""
    found = progress_collection(database).find_one({"_id": {"fit": policy.identity}})
    return found is not None and found.get("layout") == layout_fingerprint(policy)


def was_fit_proven(database: Database[Document], policy: Policy) -> bool:
    """Returns whether a sample has ever shown that the policy fits its documents, however it read them."""
    return progress_collection(database).find_one({"_id": {"fit": policy.identity}}) is not None


def note_fit(database: Database[Document], policy: Policy, now: datetime) -> None:
    """Records that the policy, with its present layout, has been seen to fit its documents."""
    document = {"_id": {"fit": policy.identity}, "layout": layout_fingerprint(policy), "proven": now}
    progress_collection(database).replace_one({"_id": document["_id"]}, document, upsert=True)


def progress_collection(database: Database[Document]) -> MongoCollection[Document]:
    """Returns the collection; what is written to it is acknowledged by a majority."""
    options: CodecOptions[Document] = CodecOptions(tz_aware=True)
    return database.get_collection(COLLECTION, codec_options=options, write_concern=majority(database))
