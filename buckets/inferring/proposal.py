"""A policy that may fit some documents, and what all bucket models have in common."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

from bson.binary import Binary
from bson.objectid import ObjectId

from bucketwise.buckets.fields.clocks import distinct
from bucketwise.buckets.fields.times import PER_SECOND, as_date
from bucketwise.buckets.inferring.fields import (
    NUMBERED,
    SERIES,
    Fields,
    Notes,
    hints,
    is_text,
    is_whole,
    listed,
    non_null,
    quoted,
)
from bucketwise.buckets.inferring.times import Time, is_day_of, times_in, times_of_ids
from bucketwise.buckets.inferring.values import (
    Columns,
    offset_field,
    tables,
    unknown_words,
    written_in,
    zone_fields,
)

#: Characters of a text that may be a name; a longer text is prose.
_MAX_LENGTH = 100
#: Rows that have to differ before a field is taken to differ in each.
_MIN_ROWS = 20
_KEY = "series_fields"
_TEXTS = (ObjectId, UUID, Binary)


def may_name(values: Sequence[Any]) -> bool:
    """Returns whether each of these values may be one of a series."""
    return all(is_whole(it) or (_is_text(it) and len(str(it)) <= _MAX_LENGTH) for it in values)


def _is_text(value: Any) -> bool:
    return is_text(value) or isinstance(value, _TEXTS)


def choose_fields(
    columns: Columns, times: Sequence[int | None], indexed: Sequence[str], notes: Notes
) -> list[str]:
    """Returns the fields, among those with a value in each row, that distinguish series. `times`: of
    each row; `indexed`: fields of an index that also has the time. Numbers count if their name or an
    index suggests it, or if nothing else distinguishes rows, or rows of the same time."""
    possible = _unlike([path for path in columns if may_name(non_null(columns[path]))], columns)
    texts = [path for path in possible if any(map(_is_text, columns[path]))]
    named = [path for path in possible if hints(path, SERIES)]
    numbered = [path for path in possible if hints(path, NUMBERED) and _recurs(columns[path])]
    likely = (
        list(dict.fromkeys([*(path for path in possible if path in indexed), *named])) or texts or numbered
    )
    chosen = _without_unique(likely, columns, notes)
    chosen += _telling_apart(chosen, [path for path in possible if path not in likely], columns, times)
    _note_choice(chosen, columns, notes)
    for path in texts:
        if path not in chosen and path not in likely and len(set(map(_hashable, columns[path]))) > 1:
            count, state = _count_distinct(non_null(columns[path])), ""
            if count <= _MOST_STATES:
                state = (
                    f". It has {count} values. Is it a state? Then add it to value_fields and nonnumeric_ok, "
                    f'and [policies.NAME.values.{quoted(path)}] with kind = "state" and a max_gap'
                )
            notes.add_question(
                _KEY, f"{quoted(path)} varies. Is it part of what is measured? Then add it here{state}"
            )
    return [path for path in columns if path in chosen]


def _unlike(paths: list[str], columns: Columns) -> list[str]:
    """Returns the fields without those that hold what another one before them does, if that varies."""
    kept: dict[tuple[Hashable, ...], str] = {}
    for path in paths:
        held = tuple(map(_hashable, columns[path]))
        kept.setdefault(held if len(set(held)) > 1 else (path,), path)
    return list(kept.values())


def _without_unique(likely: list[str], columns: Columns, notes: Notes) -> list[str]:
    """Returns the fields without those that differ in every row, if any others are left: such fields
    identify rows."""
    unique = [path for path in likely if _count_distinct(columns[path]) == len(columns[path]) >= _MIN_ROWS]
    if len(unique) == len(likely):
        for path in unique:
            notes.add_question(_KEY, f"{quoted(path)} is another one in each document. Is each one series?")
        return likely
    for path in unique:
        notes.add_question(
            _KEY, f"{quoted(path)} is another one in each document, so it was left out. Is that right?"
        )
    return [path for path in likely if path not in unique]


def _telling_apart(
    chosen: list[str], others: list[str], columns: Columns, times: Sequence[int | None]
) -> list[str]:
    """Returns those of the other fields that distinguish most rows of the same series and time."""
    added: list[str] = []
    doubled = repeated([*chosen], columns, times)
    for path in others:
        remaining = repeated([*chosen, *added, path], columns, times) if doubled else 0
        if doubled and remaining <= doubled // 10 and len(set(map(_hashable, columns[path]))) < len(times):
            added.append(path)
            doubled = remaining
    return added


def repeated(fields: Sequence[str], columns: Columns, times: Sequence[int | None]) -> int:
    """Returns how many rows have series and time of another one."""
    return sum(len(it) - len(set(it)) for it in grouped(fields, columns, times).values())


def grouped(
    fields: Sequence[str], columns: Columns, times: Sequence[int | None]
) -> dict[tuple[Hashable, ...], list[int | None]]:
    """Returns the times of the rows of each series."""
    found: dict[tuple[Hashable, ...], list[int | None]] = {}
    for at, *series in zip(times, *(map(_hashable, columns[it]) for it in fields), strict=True):
        found.setdefault(tuple(series), []).append(at)
    return found


def _note_choice(chosen: list[str], columns: Columns, notes: Notes) -> None:
    if not chosen:
        notes.add_question(_KEY, "No field tells series apart. Is all of this one series?")
        notes.add_evidence(_KEY, "no field names a series")
        return
    text = ", ".join(f"{_count_distinct(columns[it]):,} of {quoted(it)}" for it in chosen)
    notes.add_evidence(_KEY, f"in the sample: {text}")


def _recurs(values: Sequence[Any]) -> bool:
    return 2 * _count_distinct(values) <= len(values)


def _count_distinct(values: Sequence[Any]) -> int:
    return len(set(map(_hashable, values)))


def _hashable(value: Any) -> Hashable:
    return value if isinstance(value, Hashable) else repr(value)


#: Share of documents that need to have a field for it to count as always there: some may be broken.
NEARLY_ALL = 0.9
#: Share that needs to have a field named like a series: the others may have been written before it came.
_SOME = 0.2
#: Texts of a state.
_MOST_STATES = 10
#: What a document that lacks its series is read as.
_UNKNOWN = "unknown"
#: Numbers that are times of other years may count from another instant than 1970, or in another unit.
_USUAL_YEARS = set(range(2005, 2041))


@dataclass(frozen=True)
class Alternative:
    """Further keys of a policy, and what speaks for them."""

    keys: dict[str, Any]
    why: str = ""


#: Of a policy that can be read in one way.
SOLE = (Alternative({}),)


@dataclass
class Proposal:
    """Keys of a policy, with the reasons for them. `what`: how readings lie in a document; `timezone`:
    of days, if documents name one; `alternatives`: what documents alone don't tell, each of which goes with
    each of the `clocks`; `refusal`: why it is none, if it reads most nevertheless."""

    keys: dict[str, Any]
    what: str
    notes: Notes = field(default_factory=Notes)
    timezone: str | None = None
    alternatives: Sequence[Alternative] = SOLE
    clocks: Sequence[Alternative] = SOLE
    refusal: str | None = None

    def combine(self, ways: Sequence[Alternative]) -> None:
        """Has each of the alternatives go with each of these ways."""
        self.alternatives = [
            Alternative({**a.keys, **b.keys}, "; ".join(filter(None, (a.why, b.why))))
            for a in self.alternatives
            for b in ways
        ]


@dataclass(frozen=True)
class Evidence:
    """What is known of a collection: some of its documents, and the fields of each of its indexes."""

    fields: Fields
    indexes: Sequence[Sequence[str]] = ()

    @cached_property
    def single(self) -> dict[str, list[Any]]:
        """Returns the fields of one value that nearly all documents have."""
        return self.fields.in_most(NEARLY_ALL)

    @cached_property
    def times(self) -> list[Time]:
        """Returns the fields of times, the likeliest first."""
        return times_in(self.single, [it[0] for it in self.indexes if it]) or times_of_ids(self.single)

    @cached_property
    def lacked(self) -> dict[str, list[Any]]:
        """Returns the fields named like a series that many documents have and others lack, as text."""
        some = self.fields.in_most(_SOME)
        return {
            path: held
            for path, held in some.items()
            if path not in self.single and hints(path, SERIES) and all(map(is_text, non_null(held)))
        }

    def indexed_with(self, time: str) -> list[str]:
        """Returns the other fields of the indexes that contain this time field."""
        return [it for index in self.indexes if time in index for it in index if it != time]


def names_of(evidence: Evidence, used: Sequence[str]) -> dict[str, list[Any]]:
    """Returns the fields that may distinguish series: not times, and not used otherwise."""
    times = {path for it in evidence.times for path in it.used}
    zones = zone_fields(evidence.single)
    taken = {*times, *zones, *used}
    return {
        path: it
        for path, it in (evidence.single | evidence.lacked).items()
        if path not in taken and path != "_id" and not _are_values(it)
    }


def _are_values(held: Sequence[Any]) -> bool:
    """Returns whether texts are numbers, and no names."""
    written = written_in(held)
    return written is not None and written.is_sure


def choose_series(
    columns: Columns, times: Sequence[int | None], evidence: Evidence, time: str, proposal: Proposal
) -> None:
    """Puts the series fields into the proposal, and what documents count as that have no text there."""
    lacking = {path for path, held in columns.items() if None in held and _may_lack(path, evidence)}
    filled = {
        path: [_UNKNOWN if it is None else it for it in held] if path in lacking else held
        for path, held in columns.items()
    }
    chosen = choose_fields(filled, times, evidence.indexed_with(time), proposal.notes)
    proposal.keys["series_fields"] = chosen
    if defaults := {path: _UNKNOWN for path in chosen if path in lacking}:
        proposal.keys["series_defaults"] = defaults
        for path in defaults:
            held = evidence.fields.single[path]
            proposal.notes.add_question(
                "series_defaults",
                f"{held.count(None):,} of {len(held):,} sampled documents have no {quoted(path)}. "
                "Is this what they are to be read as?",
            )


def _may_lack(path: str, evidence: Evidence) -> bool:
    """Returns whether a field is one of documents, and holds nothing but text."""
    return path in evidence.fields.single and all(map(is_text, non_null(evidence.fields.single[path])))


def choose_values(columns: Columns, paths: Sequence[str], proposal: Proposal) -> None:
    """Puts value fields and how they are read into the proposal. `columns`: what they hold. Two words among
    numbers, whose meaning nobody knows, may count as 1 and 0 either way, or as no numbers."""
    proposal.keys["value_fields"] = list(paths)
    found = tables(columns, paths)
    if found:
        proposal.keys["values"] = found
    for path in paths:
        words = unknown_words(columns.get(path, ()))
        if words is None:
            continue
        keys = found.get(path, {})
        maps = [dict(zip(order, (1.0, 0.0), strict=True)) for order in (words, words[::-1])]
        ways = [
            Alternative({"values": {**found, path: {**keys, "map": it}}}, f"{quoted(path)} counts {it}")
            for it in maps
        ]
        none = Alternative({}, f"{listed(list(words))} in {quoted(path)} are no numbers")
        proposal.combine((none, *ways))
        return


def choose_clock(columns: Columns, proposal: Proposal) -> None:
    """Puts offset and time zone into the proposal, if the documents have any."""
    offset = offset_field(columns)
    if offset is not None:
        proposal.keys["local_offset_field"] = offset
        proposal.notes.add_question(
            "local_offset_field",
            "Is this UTC minus local time, in minutes (Kolkata: -330)? If it is the opposite, take it out",
        )
        return
    for path, zones in zone_fields(columns).items():
        if len(zones) == 1 and "timezone" in proposal.keys:
            proposal.timezone = next(iter(zones))
        elif len(zones) == 1:
            proposal.timezone = next(iter(zones))
            proposal.notes.add_evidence("timezone", f"it is in {listed([path])} of all sampled documents")
        else:
            text = f"{listed([path])} names {listed(sorted(zones)[:5])}. In which zone do days begin?"
            proposal.notes.add_question("timezone", text)


def choose_time(time: Time, evidence: Evidence, proposal: Proposal) -> None:
    """Puts the time of documents, in its form, into the proposal, and the clocks that it may be of."""
    proposal.keys |= {"time_field": list(time.used) if time.paths else time.path, **time.keys()}
    if time.form.unit == "objectid":
        _choose_ids(time, evidence, proposal)
        return
    proposal.alternatives = form_ways(time)
    choose_zones(time, evidence, proposal)
    years = {as_date(it).year for it in non_null(time.values)} if time.form.unit in PER_SECOND else set()
    if years - _USUAL_YEARS:
        read = (
            f"As numbers of {time.form.unit} since 1970 these are of the years {min(years)} to {max(years)}"
        )
        proposal.notes.add_question("time_field", f"{read}. Is that right?")
    ask_of_other_times(time, evidence.times, proposal.notes, "time_field")


def _choose_ids(time: Time, evidence: Evidence, proposal: Proposal) -> None:
    """Asks which ObjectIds were made when their reading was taken, where there are several."""
    proposal.notes.add_evidence("time_field", "no other field holds times")
    proposal.alternatives = [
        Alternative({"time_field": it.path}, f"ObjectIds of {quoted(it.path)} were made then")
        for it in evidence.times
    ]
    if time.path != "_id":
        proposal.notes.add_question("time_field", "Were these ObjectIds made when their readings were taken?")


def form_ways(time: Time) -> list[Alternative]:
    """Returns the forms that the texts of a time may have."""
    forms = (time.form, *time.others)
    if len(forms) == 1:
        return list(SOLE)
    return [Alternative({"time_format": it.format}, f"all texts have the form {it.format}") for it in forms]


def choose_zones(time: Time, evidence: Evidence, proposal: Proposal) -> None:
    """Puts the zones of a clock into the proposal that tells none itself: the one that documents name, else
    each."""
    if not time.is_local:
        return
    named = {zone for zones in zone_fields(evidence.single).values() for zone in zones}
    if len(named) == 1:
        proposal.keys["timezone"] = named.pop()
        proposal.notes.add_evidence("timezone", "all sampled documents name it")
        return
    proposal.clocks = [Alternative({"timezone": it}) for it in distinct(time.all_told)]


def ask_of_other_times(chosen: Time, times: Sequence[Time], notes: Notes, key: str) -> None:
    """Asks whether another field of times is meant."""
    times = [it for it in times if it.path != chosen.path and not is_day_of(it, chosen)]
    rivals = [it.path for it in times if it.rank >= chosen.rank]
    others = [it.path for it in times if it.rank < chosen.rank]
    if rivals:
        notes.add_question(
            key, f"{listed(rivals)} may be the time of a reading just as well. Which one is it?"
        )
    if others:
        notes.add_evidence(key, f"other times: {listed(others)}")
