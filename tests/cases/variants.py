"""Documents as people might write them, drawn from a seed: of every model, with every way to tell times,
places, values and series. Each comes with its policy and the readings that it was made from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from bson import DatetimeMS

from tests.cases.clocks import Form, formatted, forms, is_told, local, parted, wall
from tests.cases.fields import Maker, put
from tests.cases.oracle import Reading, Row, Variant, Written, day_start, ms_of

HOUR, DAY = 3_600_000, 86_400_000
_UNITS = {"second": 1000, "minute": 60_000, "hour": HOUR}


# Readings


def readings(seed: int, *, plain: bool = False) -> Variant:
    """A document a reading."""
    make = Maker(seed, plain=plain)
    random = make.random
    form = forms(random, make.zone)[seed % len(forms(Random(0), "UTC"))]
    at_id = form.name == "objectid" and not make.paths[0].startswith("_id.") and random.random() < 0.5
    path = "_id" if at_id else random.choice(["ts", "when.at", "d"])
    fields = [f"t.{it}" if random.random() < 0.3 else it for it in form.fields] or [path]
    start = ms_of(day_start(make.day.date(), make.zone))
    times: list[int] = []
    while len(times) < 60:
        ms = (start + random.randrange(4 * DAY)) // form.step * form.step
        if form.step > 1000 and form.zoned:  # what a clock shows, cut
            shown = local(ms, make.zone).replace(tzinfo=None)
            shown = (
                shown.replace(second=0, microsecond=0)
                if form.step == 60_000
                else shown.replace(minute=0, second=0, microsecond=0)
            )
            told = wall(shown, make.zone)
            if told is None:
                continue
            ms = told
        if not form.zoned or is_told(ms, make.zone):
            times.append(ms)
    duplicates = random.choice(["keep", "keep", "first", "last"])
    times += random.choices(times, k=8)
    random.shuffle(times)
    documents = []
    for ms in times:
        document, series = make.base(random.choice(make.series))
        written, counts = make.drawn()
        for name, value in zip(fields, form.write(ms), strict=True):
            put(document, name, value)
        for name, value in written.items():
            put(document, name, value)
        documents.append(Written(document, [Reading(series, ms, counts)]))
    lines = [
        *make.lines("reading"),
        f"time_field = {json.dumps(fields[0] if len(fields) == 1 else fields)}",
        *form.lines(),
    ]
    lines += [f'duplicates = "{duplicates}"'] if duplicates != "keep" else []
    return make.variant(f"readings {seed} {form.name} {make.zone}", lines, documents, duplicates=duplicates)


# Slots


def _starts(span: str, make: Maker, count: int) -> Iterator[tuple[int, int]]:
    """Starts and ends of buckets."""
    zone, day = make.zone, make.day.date()
    if span in ("day", "week", "month"):
        day = day.replace(day=1) if span == "month" else day
        for _ in range(count):
            step = 1 if span == "day" else 7
            after = (
                (day.replace(day=28) + timedelta(days=4)).replace(day=1)
                if span == "month"
                else day + timedelta(days=step)
            )
            first, end = ms_of(day_start(day, zone)), ms_of(day_start(after, zone))
            if end > first:
                yield first, end
            day = after
        return
    length = _UNITS.get(span) or _length(span)
    first = ms_of(datetime(day.year, day.month, day.day, tzinfo=UTC))
    for it in range(count):
        yield first + it * length, first + (it + 1) * length


def _length(text: str) -> int:
    return int(text[:-1]) * {"s": 1000, "m": 60_000, "h": HOUR, "d": DAY}[text[-1]]


_SPANS = {
    "hour": ["5m", "10m", "12m", "20m", "30m", "5s", "10s", "minute", "15m"],
    "day": ["5m", "10m", "12m", "20m", "15m", "30m", "hour", "2h", "3h", "6h", "minute", "90m"],
    "week": ["hour", "6h", "day", "30m", "12h"],
    "month": ["day", "12h", "hour"],
    "minute": ["second", "5s", "10s"],
    "6h": ["10m", "30m", "hour", "2h"],
    "90m": ["5m", "10m", "minute"],
    "2h": ["1m", "20m"],
}


def slots(seed: int, *, plain: bool = False) -> Variant:
    """Buckets of slots of one level, of any width."""
    make = Maker(seed, stars=seed % 5 == 0, plain=plain)
    random = make.random
    span = random.choice([*_SPANS, "day", "day", "day", "month"])
    width = random.choice(_SPANS[span])
    is_calendar = span in ("day", "week", "month")
    slot_time = random.choice(["elapsed", "local"]) if is_calendar else "elapsed"
    keys = random.choice(["number", "padded", "array"])
    first = random.choice([0, 0, 1])
    if span == "day" and random.random() < 0.4:
        keys, first = random.choice(["clock", "clock compact", "clock seconds"]), 0
    step = 0 if width == "day" else _UNITS.get(width) or _length(width)
    many = {"day": 4, "week": 3, "month": 3}.get(span, 9)
    form, shown = _start_form(random, span, make.zone)
    path = random.choice(["day", "meta.start", "d"])
    documents = []
    for start, end in _starts(span, make, many):
        written_start = shown(start)
        if written_start is None:
            continue
        for series in make.series:
            document, counts_as = make.base(series)
            for name, value in zip(form.fields or [path], written_start, strict=True):
                put(document, name, value)
            found = list(_places(start, end, step, slot_time, make.zone))
            document_readings = _fill(make, document, found, keys, first, step, counts_as)
            documents.append(Written(document, document_readings))
    lines = [*make.lines("slots"), f'slot = "{width}"', f'span = "{span}"']
    lines.append(f"time_field = {json.dumps(list(form.fields) or path)}")
    lines += form.lines()
    lines += ["first_slot = 1"] if first else []
    lines += ['slot_keys = "clock"'] if keys.startswith("clock") else []
    lines += [f'slot_time = "{slot_time}"'] if slot_time == "local" or random.random() < 0.3 else []
    name = f"slots {seed} {width} of {span} {keys} {slot_time} {form.name} {make.zone}"
    return make.variant(name, lines, documents)


def _start_form(random: Random, span: str, zone: str) -> tuple[Form, Callable[[int], list[Any] | None]]:
    """How a bucket's start is written, and a function that writes it; None where text can't tell it."""
    plain = [Form("date", 1, lambda ms: [DatetimeMS(ms)]), Form("s", 1000, lambda ms: [ms // 1000], "s")]
    plain += [
        Form(
            "iso", 1, lambda ms: [datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")], "iso"
        )
    ]
    plain += [plain[0]] * 3
    if span in ("day", "week", "month"):
        plain += [formatted(it, zone, DAY) for it in ("%Y-%m-%d", "%d.%m.%Y", "%Y%m%d", "%b %d, %Y")]
        plain += [Form("iso day", DAY, lambda ms: [local(ms, zone).strftime("%Y-%m-%d")], "iso", zoned=True)]
        plain += [parted(["y", "mo", "d"], ["%Y", "%m", "%d"], zone, DAY, "int")]
    if span == "month":
        plain += [formatted("%Y-%m", zone, DAY)] * 3
    form = random.choice(plain)

    def write(ms: int) -> list[Any] | None:
        return form.write(ms) if not form.zoned or (is_told(ms, zone) and local(ms, zone).hour == 0) else None

    return form, write


def _places(start: int, end: int, step: int, slot_time: str, zone: str) -> Iterator[tuple[int, int]]:
    """Places of slots, and their times: of a step of 0, calendar days."""
    midnight = local(start, zone).replace(tzinfo=None)
    if midnight.hour or midnight.minute:  # clocks jump over midnight
        midnight = midnight.replace(hour=0, minute=0)
    for place in range(1500):
        if not step:
            first = midnight.date() + timedelta(days=place)
            at, after = (ms_of(day_start(first + timedelta(days=it), zone)) for it in (0, 1))
            if at >= end:
                return
            if after > at:
                yield place, at
        elif slot_time == "elapsed":
            if start + place * step >= end:
                return
            yield place, start + place * step
        else:
            shown = midnight + timedelta(milliseconds=place * step)
            told = wall(shown, zone)
            if ms_of(shown.replace(tzinfo=UTC)) - ms_of(midnight.replace(tzinfo=UTC)) >= 32 * DAY:
                return
            if told is not None and start <= told < end:
                yield place, told


def _key(keys: str, place: int, first: int, step: int) -> str:
    if not keys.startswith("clock"):
        return f"{place + first:02}" if keys == "padded" else str(place + first)
    seconds = place * step // 1000
    hour, minute, second = seconds // 3600, seconds // 60 % 60, seconds % 60
    if keys == "clock seconds":
        return f"{hour:02}:{minute:02}:{second:02}"
    return f"{hour:02}:{minute:02}" if keys == "clock" else f"{hour:02}{minute:02}"


def _fill(
    make: Maker, document: Row, places: list[tuple[int, int]], keys: str, first: int, step: int, series: Row
) -> list[Reading]:
    """Writes slots into a document, and returns their readings."""
    random = make.random
    if len(places) > 120:
        kept = set(random.sample(range(len(places)), 100)) | {0, len(places) - 1}
        places = [it for i, it in enumerate(places) if i in kept]
    stars = ".*." in make.values[0].path
    pads = max((len(str(place + first)) for place, _ in places), default=1)
    held: dict[str, dict[int, Any]] = {it.path: {} for it in make.values}
    found = []
    for place, at in places:
        if random.random() < 0.15:
            continue
        written, counts = make.drawn()
        for path, value in written.items():
            if value is not None:
                held[path][place] = value
        if counts:
            found.append(Reading(series, at, counts))

    def named(place: int) -> str:
        key = _key(keys, place, first, step)
        return key.zfill(pads) if keys == "padded" else key

    if stars:
        union = sorted({place for some in held.values() for place in some})
        cells = {
            place: {path.rpartition("*.")[2]: some[place] for path, some in held.items() if place in some}
            for place in union
        }
        put(
            document, "slots", _as_array(cells) if keys == "array" else {named(it): cells[it] for it in union}
        )
        return found
    for path, some in held.items():
        put(document, path, _as_array(some) if keys == "array" else {named(it): some[it] for it in some})
    return found


def _as_array(held: dict[int, Any]) -> list[Any]:
    return [held.get(place) for place in range(max(held, default=-1) + 1)]


def nested(seed: int, *, plain: bool = False) -> Variant:
    """Slots inside slots, by number or running on."""
    make = Maker(seed, plain=plain)
    random = make.random
    levels, span = random.choice(
        [(["hour", "minute"], "day"), (["minute", "second"], "hour"), (["hour", "minute", "second"], "day")]
    )
    running = random.random() < 0.5
    first = random.choice([0, 1])
    slot_time = random.choice(["elapsed", "local"]) if span == "day" else "elapsed"
    steps = [_UNITS[it] for it in levels]
    documents = []
    for start, end in _starts(span, make, 3):
        for series in make.series:
            document, counts_as = make.base(series)
            document["start"] = DatetimeMS(start)
            places = (
                list(_places(start, end, steps[-1], slot_time, make.zone))
                if steps[-1] > 1000
                else list(_some_places(random, start, end, slot_time, make.zone))
            )
            places = sorted(random.sample(sorted(set(places)), min(80, len(set(places)))))
            found = []
            for place, at in places:
                written, counts = make.drawn()
                offset, outer, path = place * steps[-1], 0, []
                for step in steps:
                    number, offset = divmod(offset, step)
                    outer = outer + number * step
                    path.append(str((outer // step if running else number) + first))
                for name, value in written.items():
                    if value is not None:
                        put(document, f"{name}.{'.'.join(path)}", value)
                if counts:
                    found.append(Reading(counts_as, at, counts))
            for it in make.values:
                if not _has(document, it.path):
                    put(document, it.path, {})
            documents.append(Written(document, found))
    lines = [
        *make.lines("slots"),
        f"slot_levels = {json.dumps(levels)}",
        f'span = "{span}"',
        'time_field = "start"',
    ]
    lines += ['slot_keys = "running"'] if running else []
    lines += ["first_slot = 1"] if first else []
    lines += [f'slot_time = "{slot_time}"'] if slot_time == "local" else []
    name = f"nested {seed} {'-'.join(levels)} {'running ' if running else ''}{first} {slot_time} {make.zone}"
    return make.variant(name, lines, documents)


def _has(document: Row, path: str) -> bool:
    held: Any = document
    for part in path.split("."):
        if not isinstance(held, dict) or part not in held:
            return False
        held = held[part]
    return True


def _some_places(
    random: Random, start: int, end: int, slot_time: str, zone: str
) -> Iterator[tuple[int, int]]:
    for _ in range(100):
        place = random.randrange((end - start) // 1000)
        if slot_time == "elapsed":
            yield place, start + place * 1000
            continue
        midnight = local(start, zone).replace(tzinfo=None).replace(hour=0, minute=0)
        told = wall(midnight + timedelta(seconds=place), zone)
        if told is not None and start <= told < end and place < 86_400:
            yield place, told


# Samples


def samples(seed: int, *, plain: bool = False) -> Variant:
    """Arrays of samples, with times of their own or that count from the bucket's start."""
    make = Maker(seed, in_id=False, plain=plain)
    random = make.random
    shape = ["documents", "pairs", "arrays"][seed % 3]
    relative = random.random() < 0.45
    all_forms = [
        it for it in forms(random, make.zone) if not it.fields and it.name not in ("objectid", "timestamp")
    ]
    form = random.choice(all_forms)
    bounds = random.choice(
        [it for it in forms(random, make.zone) if it.name in ("date", "ms", "s", "iso", "us")]
    )
    has_start = relative or random.random() < 0.6 or form.format is not None
    has_end = random.random() < 0.5
    has_count = shape != "arrays" and random.random() < 0.4
    units = random.choice(
        [["+ms"], ["+s"], ["+m"], ["+h"], ["+m", "+s"], ["m", "s"], ["h", "m"], ["+h", "+m"], ["+s", "+ms"]]
    )
    if (shape == "pairs" and len(units) > 1) or shape == "arrays":
        units = units[:1] if units[0].startswith("+") else ["+s"]
    starts = _sample_starts(make, relative, units)
    documents = []
    for series in make.series:
        for start in starts:
            if not relative and form.zoned and not is_told(start, make.zone):
                continue
            document, counts_as = make.base(series)
            times = (
                _relative(random, start, units, make.zone)
                if relative
                else _absolute(random, start, form, make.zone)
            )
            if random.random() < 0.7:
                times.sort(key=lambda it: it[0])
            found, rows = [], []
            for at, written_time in times:
                written, counts = make.drawn()
                found.append(Reading(counts_as, at, counts))
                rows.append((written_time, written))
            _write_samples(document, rows, shape, [it.path for it in make.values])
            if has_start:
                put(document, "from", bounds.write(start)[0])
            if has_end:
                put(document, "to", bounds.write(max(it[0] for it in times) + 1000)[0])
            if has_count:
                put(document, "n", len(times))
            documents.append(Written(document, found))
    lines = make.lines("samples")
    lines += [f'samples_as = "{shape}"'] if shape != "documents" else []
    lines += ['samples_field = "in.list"'] if shape != "arrays" else []
    if relative:
        told = units[0] if len(units) == 1 else units
        fields: Any = "t" if len(units) == 1 else ["t", "u"]
        lines += [f"sample_time_unit = {json.dumps(told)}"]
    else:
        fields = "t"
        lines += form.lines("sample_time")
    lines += [f"sample_time_field = {json.dumps(fields)}"] if shape != "pairs" else []
    lines += ['start_field = "from"'] if has_start else []
    lines += ['end_field = "to"'] if has_end else []
    lines += ['count_field = "n"'] if has_count else []
    lines += bounds.lines() if has_start or has_end else []
    what = "-".join(units) if relative else form.name
    told_bounds = f"{'start ' if has_start else ''}{'end ' if has_end else ''}{bounds.name}"
    name = f"samples {seed} {shape} {what} {told_bounds} {make.zone}"
    return make.variant(name, lines, documents)


def _sample_starts(make: Maker, relative: bool, units: list[str]) -> list[int]:
    first = ms_of(day_start(make.day.date(), make.zone))
    step = make.random.choice([HOUR, 3 * HOUR, DAY])
    count = 5 if step < DAY else 3
    shift = make.random.choice([0, 0, 17 * 60_000]) if not relative or units[0].startswith("+") else 0
    found = [first + it * step + shift for it in range(count)]
    if units == ["h", "m"] and relative:
        days = [ms_of(day_start(make.day.date() + timedelta(days=it), make.zone)) for it in range(4)]
        found = sorted({it for it in days if local(it, make.zone).hour == 0})
    if units == ["m", "s"] and relative:  # on the full hour of a clock
        found = [it for it in found if local(it, make.zone).minute == 0]
        found = found or [ms_of(day_start(make.day.date(), make.zone))]
    return [it // 1000 * 1000 for it in found]


def _relative(random: Random, start: int, units: list[str], zone: str) -> list[tuple[int, Any]]:
    lengths = {"ms": 1, "s": 1000, "m": 60_000, "h": HOUR}
    size = [lengths[it.removeprefix("+")] for it in units]
    found: list[tuple[int, Any]] = []
    while len(found) < 12:
        if units in (["m", "s"], ["h", "m"]):
            high, low = random.randrange(60 if units[0] == "m" else 24), random.randrange(60)
            base = local(start, zone).replace(tzinfo=None)
            shown = (
                base.replace(minute=high, second=low)
                if units[0] == "m"
                else base.replace(hour=high, minute=low)
            )
            at = wall(shown, zone) if units[0] == "h" else start + high * 60_000 + low * 1000
            if at is not None and at >= start:
                found.append((at, [high, low]))
            continue
        numbers = [random.randrange(50) for _ in units]
        written: list[Any] = list(numbers)
        at = start + sum(it * length for it, length in zip(numbers, size, strict=True))
        if size[-1] > 1 and random.random() < 0.2:
            written[-1] += 0.5
            at += size[-1] // 2
        found.append((at, written if len(units) > 1 else written[0]))
    return found


def _absolute(random: Random, start: int, form: Form, zone: str) -> list[tuple[int, Any]]:
    found = []
    for _ in range(40):
        at = (start + random.randrange(2 * HOUR) + form.step) // form.step * form.step
        if form.zoned and form.step >= 60_000:
            told = wall(local(at, zone).replace(tzinfo=None, second=0, microsecond=0), zone)
            at = -1 if told is None else told
        if at >= start and (not form.zoned or is_told(at, zone)):
            found.append((at, form.write(at)[0]))
    return found[:12] or [(start, form.write(start)[0])]


def _write_samples(document: Row, rows: list[tuple[Any, Row]], shape: str, paths: list[str]) -> None:
    if shape == "arrays":
        put(document, "t", [time for time, _ in rows])
        for path in paths:
            put(document, path, [written.get(path) for _, written in rows])
    elif shape == "pairs":
        put(document, "in.list", [[time, *(written.get(it) for it in paths)] for time, written in rows])
    else:
        found = []
        for time, written in rows:
            sample: Row = {"t": time[0], "u": time[1]} if isinstance(time, list) else {"t": time}
            for path, value in written.items():
                put(sample, path, value)
            found.append(sample)
        put(document, "in.list", found)


KINDS: dict[str, Callable[..., Variant]] = {
    "readings": readings,
    "slots": slots,
    "nested": nested,
    "samples": samples,
}
