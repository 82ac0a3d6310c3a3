"""Links summaries to those before and after them, where statistics count the steps between readings.

The state of a window tells of the readings before its first and after its last one. They lie in the nearest
other summaries of the same level and series, which tell their own first and last reading: no reading has to
be read again, be it live or archived. Summaries that stand beside what was made are written again where what
they tell of their neighbour is no longer so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import bson
from bson.datetime_ms import DatetimeMS
from pymongo.database import Database

from bucketwise.buckets.bson.cursor import SIMPLE
from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.models.series import series_key
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.due import Spans
from bucketwise.rollups.calendar.levels import Level, Span
from bucketwise.rollups.calendar.windows import HIGHEST, LOWEST, to_ms
from bucketwise.rollups.context import RunContext
from bucketwise.rollups.progress import gone_before
from bucketwise.rollups.statistics import FieldStatistics, statistics_of
from bucketwise.rollups.statistics.steps import Reading, Steps
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.summary import State
from bucketwise.rollups.summaries.targets import SummaryDiff

#: A series, by its key, and a window.
Cell = tuple[bytes, Span]
#: Summaries that one command looks for.
_AT_ONCE = 200


class Lookup(NamedTuple):
    """Asks for the nearest summary of a series that has a number in a field: the last one that starts in
    [low, high), or the first one (`ahead`)."""

    key: bytes
    name: str
    low: int
    high: int
    ahead: bool


class Neighbour(NamedTuple):
    """A summary that stands beside others."""

    cell: Cell
    series: Series
    state: State


@dataclass(frozen=True)
class Stretch:
    """Time without windows that are made, in which summaries may stand. Of the one before all windows, only
    the last summary matters (`is_last_wanted`), of the one behind them only the first."""

    low: int
    high: int
    is_first_wanted: bool = True
    is_last_wanted: bool = True

    def lookups(self, key: bytes, name: str) -> tuple[Lookup | None, Lookup | None]:
        """Returns what asks for the first and the last summary in it."""
        first = Lookup(key, name, self.low, self.high, ahead=True) if self.is_first_wanted else None
        last = Lookup(key, name, self.low, self.high, ahead=False) if self.is_last_wanted else None
        return first, last


@dataclass(frozen=True)
class _Link(ABC):
    """A summary of a chain, with the one before and the one after it. A chain is of one series: the summaries
    that hold a number of one field, in the order of time."""

    before: Neighbour | None
    own: Neighbour
    after: Neighbour | None

    @abstractmethod
    def join(self, chain: _Chain) -> None:
        """Has the summary tell of its neighbours."""


@dataclass(frozen=True)
class _MadeLink(_Link):
    """A summary that is made: it tells of the nearest readings that anything tells of."""

    def join(self, chain: _Chain) -> None:
        """Replaces the state."""
        linker, cell = chain.linker, self.own.cell
        known = self.before.state if self.before is not None else linker.of_gone(chain.name, chain.stood, ())
        after = self.after and self.after.state
        state = chain.states[cell]
        chain.states[cell] = linker.linked(chain.name, state, known, after, is_kept=cell in chain.kept)


@dataclass(frozen=True)
class _StandingLink(_Link):
    """A summary that stands in a stretch: it tells of those neighbours that are in the chain. `is_first` and
    `is_last`: of its stretch; what is before the first one is in the chain, if there is anything."""

    is_first: bool
    is_last: bool

    def join(self, chain: _Chain) -> None:
        """Keeps the state with those that are written again, where it changes."""
        linker, name = chain.linker, chain.name
        found = state = linker.changed.get(self.own.cell, self.own).state
        if self.is_first:
            gone = linker.of_gone(name, state, chain.spans)
            before = gone if self.before is None else self.before.state
            state = relinked(linker.fields, name, state, before=before, ahead=False)
        if self.is_last:
            after = self.after and self.after.state
            state = relinked(linker.fields, name, state, after=after, ahead=True)
        if state != found:
            linker.changed[self.own.cell] = self.own._replace(state=state)


@dataclass(frozen=True)
class _Chain:
    """What the links of a chain join: the states that are made, of which those in `kept` may tell old things;
    `stood`: the first of them as its summary stands. `spans`: in which summaries are made."""

    linker: Linker
    name: str
    spans: Sequence[Span]
    states: dict[Cell, State]
    kept: Container[Cell]
    stood: State | None

    def join(
        self, between: Sequence[Sequence[Neighbour | None]], made: Sequence[Sequence[Neighbour]]
    ) -> None:
        """Joins the summaries in the stretches, the first and the last of each, and between these those that
        are made."""
        links: list[_Link] = []
        for at, (first, last) in enumerate(between):
            for own in (it for it in (first, last) if it is not None):
                links.append(_StandingLink(None, own, None, is_first=own is first, is_last=own is last))
            links += [_MadeLink(None, own, None) for own in (made[at] if at < len(made) else ())]
        owns = [it.own for it in links]
        for link, before, after in zip(links, [None, *owns], [*owns[1:], None], strict=False):
            replace(link, before=before, after=after).join(self)


@dataclass
class Linker:
    """Links the states of one level. `known`: states of this run that may not be stored yet. `gone`: what
    ends before this instant (milliseconds) has gone by `retain`, and what the first summaries that are left
    tell of a reading there stays."""

    database: Database[dict[str, Any]]
    policy: Policy
    level: Level
    known: Mapping[Cell, State] = field(default_factory=dict)
    gone: int = LOWEST
    #: The summaries whose neighbours are others now.
    changed: dict[Cell, Neighbour] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fields = statistics_of(self.policy)
        self._gaps = gaps_of(self.fields)
        # All statistics of a field that have steps count the same readings: the first one tells of them.
        self._place = {
            name: next(at for at, kind in enumerate(self.fields[name]) if isinstance(kind, Steps))
            for name in self._gaps
        }

    def link(
        self,
        windows: Iterable[Span],
        series: Mapping[bytes, Series],
        states: dict[Cell, State],
        keys: Iterable[bytes],
        kept: Container[Cell] = (),
    ) -> None:
        """Links the states of some series in these windows to one another and to the summaries that stand
        around them; of the states, replaces those that change, and keeps in `changed` the summaries around
        them that do. `kept`: cells whose readings are gone, so that what they tell of their neighbours may be
        old."""
        spans = Spans(windows).spans
        within = [[it for it in sorted(windows) if start <= it[0] < end] for start, end in spans]
        stretches = {name: list(self._stretches(name, spans)) for name in self._gaps}
        made = {
            (key, name): [[*self._held(name, key, series[key], some, states)] for some in within]
            for key in keys
            for name in self._gaps
        }
        asked = [(key, name, it) for key, name in made for it in stretches[name]]
        lookups = [found for key, name, it in asked for found in it.lookups(key, name) if found is not None]
        firsts = {chain: self._standing_first(*chain, held) for chain, held in made.items()}
        found = self._find([*lookups, *(it for it in firsts.values() if it is not None)], series)
        for (key, name), held in made.items():
            between = [
                [None if lookup is None else found.get(lookup) for lookup in it.lookups(key, name)]
                for it in stretches[name]
            ]
            first = firsts[key, name]
            stood = None if first is None else found.get(first)
            _Chain(self, name, spans, states, kept, stood and stood.state).join(between, held)

    def _held(
        self, name: str, key: bytes, series: Series, windows: Iterable[Span], states: Mapping[Cell, State]
    ) -> Iterator[Neighbour]:
        """Yields the states of a series that hold a reading of a field."""
        for window in windows:
            state = states.get((key, window))
            if state is not None and state.values[name][self._place[name]]:
                yield Neighbour((key, window), series, state)

    def _standing_first(self, key: bytes, name: str, held: Iterable[Sequence[Neighbour]]) -> Lookup | None:
        """Returns what asks for the first of these summaries as it stands, where it may tell of a reading
        whose own summary has gone."""
        start = next((it.cell[1][0] for some in held for it in some), HIGHEST)
        if start - self._gaps[name] >= self.gone:
            return None
        return Lookup(key, name, start, start + 1, ahead=True)

    def of_gone(self, name: str, state: State | None, spans: Sequence[Span]) -> State | None:
        """Returns a state of the reading before a state's first one, where its summary has gone; None
        elsewhere. None of these readings lies in `spans`."""
        if state is None:
            return None
        values = list(state.values[name])
        for at, kind in enumerate(self.fields[name]):
            if isinstance(kind, Steps):
                before = values[at][0] if values[at] else None
                if before is not None and (
                    before[0] >= self.gone or any(start <= before[0] < end for start, end in spans)
                ):
                    before = None
                values[at] = () if before is None else (None, before, before, None, kind.zero)
        return replace(state, values={**state.values, name: tuple(values)})

    def put(self, changes: SummaryDiff) -> None:
        """Adds the summaries whose neighbours are others now to what is written."""
        for (_, window), series, state in self.changed.values():
            identity = documents.identity(self.policy, series, window[0])
            changes.put(identity, documents.summary(self.policy, self.level, series, window, state))

    @property
    def states(self) -> dict[Cell, State]:
        """Returns the states of the summaries whose neighbours are others now."""
        return {cell: it.state for cell, it in self.changed.items()}

    def linked(
        self, name: str, state: State, before: State | None, after: State | None, *, is_kept: bool
    ) -> State:
        """Returns a state with the nearest readings that it or its neighbours of the chain tell of."""
        values = list(state.values[name])
        for at, kind in enumerate(self.fields[name]):
            if isinstance(kind, Steps) and values[at]:
                own_before, _, _, own_after, _ = (None,) * 5 if is_kept else values[at]
                befores = [it for it in (own_before, last_of(before, name, at)) if it is not None]
                afters = [it for it in (own_after, first_of(after, name, at)) if it is not None]
                last = max(befores, key=_instant, default=None)
                values[at] = kind.linked(values[at], last, min(afters, key=_instant, default=None))
        return replace(state, values={**state.values, name: tuple(values)})

    def coarser(self, level: Level, known: Mapping[Cell, State]) -> Linker:
        """Returns a linker of a coarser level, with those of its summaries that begin or end with one of
        `changed` and whose neighbour lies outside of them. They are read with one command. `known`: states
        of that level that may not be stored yet."""
        linker = Linker(self.database, self.policy, level, known)
        wanted: dict[bytes, list[State]] = {}
        for (_, (start, _)), series, state in self.changed.values():
            low, high = level.edges(start, start + 1)[:2]
            if any(self._leads_out(state, name, (low, high)) for name in self._gaps):
                wanted.setdefault(documents.identity(self.policy, series, low), []).append(state)
        if not wanted:
            return linker
        collection = self.database.get_collection(level.collection, codec_options=documents.OPTIONS)
        ids = [bson.decode(it, documents.OPTIONS) for it in wanted]
        for summary in collection.find({"_id": {"$in": ids}}):
            standing = linker.neighbour(summary)
            if standing is None:
                continue
            state = standing.state
            for finer in wanted.get(
                documents.identity(self.policy, standing.series, standing.cell[1][0]), ()
            ):
                for name in self._gaps:
                    state = self._carried(name, state, finer)
            if state != standing.state:
                linker.changed[standing.cell] = standing._replace(state=state)
        return linker

    def _leads_out(self, state: State, name: str, window: Span) -> bool:
        for kind, own in zip(self.fields[name], state.values[name], strict=True):
            if isinstance(kind, Steps) and own:
                before, _, _, after, _ = own
                if (before is not None and before[0] < window[0]) or (
                    after is not None and after[0] >= window[1]
                ):
                    return True
        return False

    def _carried(self, name: str, state: State, finer: State) -> State:
        """Returns a state with the neighbours of a finer one that holds its first or its last reading."""
        values = list(state.values[name])
        for at, kind in enumerate(self.fields[name]):
            if isinstance(kind, Steps) and values[at] and finer.values[name][at]:
                before, first, last, after, _ = values[at]
                finer_before, finer_first, finer_last, finer_after, _ = finer.values[name][at]
                if first == finer_first and finer_before is not None:
                    before = finer_before
                if last == finer_last and finer_after is not None:
                    after = finer_after
                values[at] = kind.linked(values[at], before, after)
        return replace(state, values={**state.values, name: tuple(values)})

    def _stretches(self, name: str, spans: Sequence[Span]) -> Iterator[Stretch]:
        """Yields the time around the windows that are made: no further away than counts."""
        reach = self._gaps[name] + self.level.row.length + DAY_MS
        yield Stretch(max(LOWEST, spans[0][0] - reach), spans[0][0], is_first_wanted=False)
        for (_, low), (high, _) in pairwise(spans):
            yield Stretch(low, high)
        yield Stretch(spans[-1][1], min(HIGHEST, spans[-1][1] + reach), is_last_wanted=False)

    def _find(self, lookups: Iterable[Lookup], series: Mapping[bytes, Series]) -> dict[Lookup, Neighbour]:
        """Returns what was looked for, where there is such a summary: with one command for many."""
        collection = self.database.get_collection(self.level.collection, codec_options=documents.OPTIONS)
        found = {}
        wanted = [it for it in dict.fromkeys(lookups) if it.low < it.high]
        for begin in range(0, len(wanted), _AT_ONCE):
            some = wanted[begin : begin + _AT_ONCE]
            pipelines = [self._pipeline(n, it, series[it.key]) for n, it in enumerate(some)]
            joined = [{"$unionWith": {"coll": self.level.collection, "pipeline": it}} for it in pipelines[1:]]
            for summary in collection.aggregate([*pipelines[0], *joined], collation=SIMPLE):
                lookup = some[summary.pop(_NUMBER)]
                if (neighbour := self.neighbour(summary)) is not None and neighbour.cell[0] == lookup.key:
                    found[lookup] = neighbour
        return found

    def _pipeline(self, number: int, lookup: Lookup, series: Series) -> list[dict[str, Any]]:
        """Returns the stages that find one summary, by the index on `_id`."""
        of = documents.series_document(self.policy, series)
        low, high = ({"series": of, "start": DatetimeMS(it)} for it in (lookup.low, lookup.high))
        kind = self.fields[lookup.name][self._place[lookup.name]]
        assert isinstance(kind, Steps)
        return [
            {"$match": {"_id": {"$gte": low, "$lt": high}, **kind.holding(lookup.name)}},
            {"$sort": {"_id": 1 if lookup.ahead else -1}},
            {"$limit": 1},
            {"$set": {_NUMBER: {"$literal": number}}},
        ]

    def neighbour(self, summary: Mapping[str, Any]) -> Neighbour | None:
        """Returns a summary with its state; None where it was made with other settings."""
        policy = self.policy
        if not documents.is_of_series(policy, summary):
            return None
        window = to_ms(summary["start"]), to_ms(summary["end"])
        if self.level.edges(window[0], window[0] + 1) != list(window):
            return None
        series = documents.series_of(policy, summary)
        cell = series_key(series), window
        if cell in self.known:
            return Neighbour(cell, series, self.known[cell])
        try:
            return Neighbour(cell, series, documents.state_of(summary, policy))
        except (KeyError, TypeError, ValueError):
            return None


_NUMBER = "bucketwise_lookup"


def reach_of(policy: Policy, level: Level) -> int:
    """Returns how far from a window, in milliseconds, summaries may tell of its readings, at most; 0 where no
    statistic counts steps."""
    gaps = gaps_of(statistics_of(policy)).values()
    return max(gaps) + level.row.length + DAY_MS if gaps else 0


def beside(context: RunContext, level: Level, span: Span, series: Iterable[Series]) -> SummaryDiff:
    """Returns what is to be written of the summaries beside a span of whole windows in which no summary of
    these series stands any more: they no longer tell of its readings, but of each other's."""
    gone = gone_before(context.database, context.policy).get(level.name, LOWEST)
    linker = Linker(context.database, context.policy, level, gone=gone)
    named = {series_key(it): it for it in series}
    linker.link([span], named, {}, named)
    changes = SummaryDiff(context.database, context.policy, level)
    linker.put(changes)
    return changes


def gaps_of(fields: FieldStatistics) -> dict[str, int]:
    """Returns how far apart readings of a step may lie, at most, for each value field that has steps."""
    found = {
        name: max((it.max_gap for it in kinds if isinstance(it, Steps)), default=None)
        for name, kinds in fields.items()
    }
    return {name: gap for name, gap in found.items() if gap is not None}


def relinked(
    fields: FieldStatistics,
    name: str,
    state: State,
    *,
    before: State | None = None,
    after: State | None = None,
    ahead: bool,
) -> State:
    """Returns a state with the reading before its first one as another state tells it, or the one after its
    last one (`ahead`)."""
    values = list(state.values[name])
    for at, kind in enumerate(fields[name]):
        if isinstance(kind, Steps) and values[at]:
            own_before, _, _, own_after, _ = values[at]
            if not ahead:
                values[at] = kind.linked(values[at], last_of(before, name, at), own_after)
            elif kind.looks_ahead:
                values[at] = kind.linked(values[at], own_before, first_of(after, name, at))
    return replace(state, values={**state.values, name: tuple(values)})


def following(fields: FieldStatistics, one: State, other: State) -> State:
    """Returns the other of two states of a series, which may lie behind the first: with the last reading of
    that one before its own first, where it knows of none that is nearer. A window of several slices that is
    made of readings has nothing else that tells of the step from one slice to the next."""
    values = dict(other.values)
    for name in gaps_of(fields):
        found = list(values[name])
        for at, kind in enumerate(fields[name]):
            if not isinstance(kind, Steps) or not found[at] or not one.values[name][at]:
                continue
            last = one.values[name][at][2]
            before, first, _, after, _ = found[at]
            if last[0] <= first[0] and (before is None or before[0] < last[0]):
                found[at] = kind.linked(found[at], last, after)
        values[name] = tuple(found)
    return replace(other, values=values)


def first_of(state: State | None, name: str, at: int) -> Reading | None:
    """Returns the first reading of a value field's state, by the place of its statistic."""
    return state.values[name][at][1] if state is not None and state.values[name][at] else None


def last_of(state: State | None, name: str, at: int) -> Reading | None:
    """Returns the last reading of a value field's state, by the place of its statistic."""
    return state.values[name][at][2] if state is not None and state.values[name][at] else None


def _instant(reading: Reading) -> int:
    return reading[0]
