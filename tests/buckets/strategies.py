"""Buckets of every model, sound and odd: what a writer may do without breaking its model."""

from __future__ import annotations

import math
import struct
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from hypothesis import assume
from hypothesis import strategies as st

from bucketwise.buckets.bson.types import ARRAY, DATE, DOCUMENT, DOUBLE, INT32, INT64, STRING
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Overflow, Policy
from tests.buckets import handmade as bson_of
from tests.buckets.handmade import Field, Value
from tests.buckets.oracle import SECONDS, Bucket, compare, milliseconds, readings, span_of, units_of

Draw = st.DrawFn

FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999


class Case(NamedTuple):
    policy: Any  # a policy of any model
    buckets: list[Bucket]


# Values

doubles = st.one_of(
    st.floats().map(bson_of.double),
    st.sampled_from([0.0, -0.0, math.inf, -math.inf, 1.0, 56.58, 5e-324]).map(bson_of.double),
    st.sampled_from([0x7FF8DEADBEEF0001, 0xFFF8000000000000, 0x7FF0000000000001]).map(bson_of.bits),  # NaNs
)
int32s = st.integers(-(2**31), 2**31 - 1).map(bson_of.int32)
int64s = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([2**53, 2**53 + 1, -(2**53), -(2**53) - 1, 2**63 - 1, -(2**63)]),
).map(bson_of.int64)
decimals = st.sampled_from(
    ["0", "-0", "56.58", "1E+3", "1.000", "NaN", "sNaN", "-NaN", "Infinity", "-Infinity", "9007199254740993",
     "1E-6176", "9.999999999999999999999999999999999E+6144"]
).map(bson_of.decimal)  # fmt: skip
dates = st.integers(-(2**63), 2**63 - 1).map(bson_of.date)
texts = st.one_of(st.text(max_size=8), st.sampled_from(["", "a", "a\0", "a\0b", "ä"])).map(bson_of.text)
booleans = st.booleans().map(bson_of.boolean)
nothings = st.sampled_from([bson_of.null, bson_of.undefined])
binaries = st.builds(bson_of.binary, st.binary(max_size=6), st.sampled_from([0, 1, 2, 3, 5, 6, 9, 128, 255]))
uuids = st.binary(min_size=16, max_size=16).map(lambda data: bson_of.binary(data, 4))
object_ids = st.binary(min_size=12, max_size=12).map(bson_of.object_id)
numbers = st.one_of(doubles, int32s, int64s, decimals)
rest = st.one_of(
    st.sampled_from(
        [
            bson_of.regex("^a|b$", "im"),
            bson_of.code("return 1"),
            bson_of.code_with_scope("return x", ("x", bson_of.int32(1))),
            bson_of.db_pointer("db.c", b"0123456789ab"),
            bson_of.symbol("sym"),
            bson_of.min_key,
            bson_of.max_key,
        ]
    ),
    st.builds(bson_of.timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
)
scalars = st.one_of(numbers, texts, booleans, dates, nothings, binaries, uuids, object_ids, rest)
names = st.text(st.characters(blacklist_characters="\0$.", blacklist_categories=["Cs"]), max_size=3)


def _containers(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    fields = st.lists(st.tuples(names, inner), max_size=3)
    return st.one_of(
        fields.map(lambda found: bson_of.sub(*found)),
        st.lists(inner, max_size=3).map(lambda found: bson_of.array(*found)),
    )


anything = st.recursive(scalars, _containers, max_leaves=4)

#: Of one BSON type each, so that documents of one shape can be told apart by values alone.
alike = [doubles, int32s, int64s, decimals, booleans, dates, nothings, st.just(bson_of.text("x")), anything]

compound = st.tuples(st.sampled_from("ab"), st.one_of(numbers, texts, dates))
ids = st.one_of(
    object_ids,
    numbers,
    texts,
    dates,
    booleans,
    uuids,
    binaries,
    st.builds(bson_of.timestamp, st.integers(0, 3), st.integers(1, 3)),  # a server sets one of zeros itself
    st.lists(compound, max_size=2, unique_by=lambda field: field[0]).map(lambda fields: bson_of.sub(*fields)),
)
series_values = st.one_of(
    st.sampled_from(["MDB", "MDB\0", "XYZ", ""]).map(bson_of.text),
    st.sampled_from([bson_of.int32(1), bson_of.int64(1), bson_of.double(1), bson_of.double(1.5)]),
    st.sampled_from([bson_of.int64(-(2**63)), bson_of.double(-(2.0**63)), bson_of.int64(2**53 + 1)]),
    booleans,
    object_ids,
    uuids,
    st.integers(FIRST, LAST).map(bson_of.date),
)


# Policies

_SERIES = [("symbol",), ("meta.device", "meta.sensor"), ("symbol", "meta.device")]
_VALUES = [("p",), ("p", "q.bid"), ("v.x", "v.y")]


_LEVELS: list[dict[str, Any]] = [
    {"slot": "second"},
    {"slot": "minute"},
    {"slot_levels": ("second",), "span": "hour"},
    {"slot_levels": ("minute", "second")},
    {"slot_levels": ("hour",)},
    {"slot_levels": ("hour", "minute")},
    {"slot_levels": ("minute",), "span": "day"},
    {"slot": "10s", "span": "10m"},
    {"slot": "30m", "span": "day", "first_slot": 1},
    {"slot_levels": ("hour", "minute"), "slot_keys": "running"},
]
_UNITS = [None, None, None, "date", "s", "ms", "us", "ns", "iso"]


@st.composite
def policies(draw: Draw, model: str) -> Policy:
    options: dict[str, Any] = {
        "name": "it",
        "collection": "it",
        "model": model,
        "series_fields": draw(st.sampled_from(_SERIES)),
        "value_fields": draw(st.sampled_from(_VALUES)),
        "time_field": None if model == "samples" else draw(st.sampled_from(["d", "at.d"])),
        "time_unit": None if model == "timeseries" else draw(st.sampled_from(_UNITS)),
    }
    if model in ("reading", "timeseries") and not draw(st.integers(0, 3)):
        options |= {"attributes_field": "attrs", "attribute_key": draw(st.sampled_from(["k", "of.name"]))}
    if model == "slots":
        options |= draw(st.sampled_from(_LEVELS))
        if not draw(st.integers(0, 3)):
            options["value_fields"] = draw(st.sampled_from([("v.*.p",), ("v.*.p", "v.*.q.bid")]))
    if model == "samples":
        options |= {
            "samples_field": draw(st.sampled_from(["samples", "in.samples"])),
            "sample_time_field": draw(st.sampled_from(["time", "t.at"])),
            "sample_time_unit": draw(st.sampled_from(_UNITS)),
            "start_field": "first",
            "end_field": draw(st.sampled_from(["last", "bounds.last"])),
            "count_field": draw(st.sampled_from([None, "n"])),
            "sum_fields": draw(st.sampled_from([{}, {options["value_fields"][0]: "sum"}])),
        }
        kinds = [{}, {}, {"samples_as": "pairs"}, {"samples_as": "arrays"}, _of_several(options)]
        options |= draw(st.sampled_from(kinds))
        has_arrays = options.get("samples_as") == "arrays"
        options |= {"samples_field": None} if has_arrays else {}
    may_overflow = "attributes_field" not in options and options.get("samples_as") != "arrays"
    if model in ("slots", "samples") and may_overflow and draw(st.booleans()):
        options["overflow"] = Overflow(
            flag_field="more", collection="extra", ref_field="of", samples_field="xs"
        )
    elif model == "samples" and not draw(st.integers(0, 2)):
        options["end_field"] = None
    if model == "samples" and "overflow" not in options and not draw(st.integers(0, 2)):
        options["start_field"] = None
        options |= {"time_unit": None} if options["end_field"] is None else {}
    return make_policy(**options, nonnumeric_ok=options["value_fields"])  # containers may stand anywhere


def _of_several(options: dict[str, Any]) -> dict[str, Any]:
    """Several series in one document."""
    array = options["samples_field"]
    return {"series_fields": ("symbol", f"{array}.*.sensor") if "." in array else (f"{array}.*.of.sensor",)}


# Documents


def nested(fields: list[tuple[str, Value]]) -> list[Field]:
    """Fields by dotted path, those under one parent together in one sub-document."""
    tree: dict[str, Any] = {}
    for path, held in fields:
        *parents, name = path.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = held
    return _folded(tree)


def _folded(tree: dict[str, Any]) -> list[Field]:
    return [
        (name, bson_of.sub(*_folded(held)) if isinstance(held, dict) else held) for name, held in tree.items()
    ]


@st.composite
def shuffled(draw: Draw, fields: list[tuple[str, Value]]) -> bytes:
    """A document of these fields by dotted path, in any order, with others among them."""
    extra = draw(st.lists(anything, max_size=2))
    top = nested([*fields, *((f"extra{i}", held) for i, held in enumerate(extra))])
    return bson_of.document(*(draw(st.permutations(top)) if draw(st.booleans()) else top))


def _by_type(kind: int, seconds: float) -> Value:
    """A time of this BSON type; a whole second where it is an int."""
    if kind == DATE:
        return bson_of.date(math.floor(seconds * 1000 + 0.5))
    whole = math.floor(seconds)
    return (
        {INT32: bson_of.int32, INT64: bson_of.int64}[kind](whole)
        if kind != DOUBLE
        else bson_of.double(seconds)
    )


def _ms(held: Value, unit: str | None = None) -> int:
    kind, data = held
    if kind == STRING:
        return milliseconds(data[4:-1].decode())
    number = struct.unpack({INT32: "<i", INT64: "<q", DATE: "<q", DOUBLE: "<d"}[kind], data)[0]
    return int(number) if kind == DATE else milliseconds(number, unit)


_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_ZONES = ["", "Z", "+02:00", "-0530", "+14"]


@st.composite
def times_of(draw: Draw, unit: str | None, milliseconds: st.SearchStrategy[int]) -> Value:
    """A time in a form that this unit has."""
    ms = draw(milliseconds)
    if unit in (None, "date") or not draw(st.integers(0, 3)):
        return bson_of.date(ms)
    if unit == "iso":
        return bson_of.text(draw(iso_texts(ms)))
    number = ms * _A_SECOND[unit] // 1000
    whole = number * 1000 == ms * _A_SECOND[unit]
    if -(2**63) <= number < 2**63 and whole and draw(st.booleans()):
        return bson_of.int64(number)
    return bson_of.double(ms * (_A_SECOND[unit] / 1000)) if unit in ("s", "ms") else bson_of.date(ms)


@st.composite
def iso_texts(draw: Draw, ms: int) -> str:
    """Of this very millisecond, or one cut down to it."""
    zone = draw(st.sampled_from(_ZONES))
    ahead = {"": 0, "Z": 0, "+02:00": 120, "-0530": -330, "+14": 840}[zone]
    local = ms + ahead * 60_000
    if not FIRST <= local <= LAST:
        zone, local = "Z", ms
    clock = datetime(1, 1, 1) + timedelta(milliseconds=local - FIRST)  # noqa: DTZ001
    text = clock.isoformat(draw(st.sampled_from("T ")), "milliseconds")
    if ms >= 0:
        text += draw(st.sampled_from(["", "9", "123456"]))
    elif text.endswith(".000") and draw(st.booleans()):
        text = text[:-4]
    return text + zone


@st.composite
def sample_times(draw: Draw, unit: str | None = None) -> Value:
    if unit is not None:
        instants = st.one_of(st.integers(FIRST, LAST), st.sampled_from([0, -1, 1535530412123, FIRST, LAST]))
        return draw(times_of(unit, instants))
    kind = draw(st.sampled_from([DATE, INT32, INT64, DOUBLE]))
    if kind == DOUBLE:
        base = draw(st.sampled_from([0.0, -0.0, 1535530412.0, -5.0, 1535530412.123, 0.0625]))
        return bson_of.double(
            base + draw(st.sampled_from([0.0, -0.0, 0.5, 0.0004, 0.9996, 1e-9])) if base else base
        )
    if kind == INT32:
        return bson_of.int32(draw(st.sampled_from([-(2**31), -5, 0, 2**31 - 1, 1535530412, 1535530413])))
    low, high = (FIRST, LAST) if kind == DATE else (FIRST // 1000, LAST // 1000)
    number = draw(st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, 1, -1, 86_400])))
    return bson_of.date(number) if kind == DATE else bson_of.int64(number)


@st.composite
def values_of(draw: Draw, policy: Any) -> list[tuple[str, st.SearchStrategy[Value]]]:
    """What one reading holds in each value field: a strategy for values of one type, or no field."""
    chosen = [(name, draw(st.sampled_from([*alike, None, None]))) for name in policy.value_fields]
    return [(name, strategy) for name, strategy in chosen if strategy is not None]


@st.composite
def samples_of(
    draw: Draw,
    policy: Any,
    time_field: str,
    times: st.SearchStrategy[Value],
    size: int = 4,
    least: int = 0,
) -> list[bytes]:
    """Sub-documents of a time and values."""
    found = []
    own = [path.split(".*.")[1] for path in policy.series_fields if ".*." in path]
    for _ in range(draw(st.integers(least, size))):
        if getattr(policy, "samples_as", None) == "pairs":
            values_in = draw(st.lists(st.sampled_from(alike), max_size=3))
            found.append(bson_of.document(*_places([draw(times), *(draw(it) for it in values_in)])))
            continue
        values = [(name, draw(strategy)) for name, strategy in draw(values_of(policy))]
        values += [(path, draw(series_values)) for path in own]
        fields = draw(st.permutations([(time_field, draw(times)), *values]))
        if draw(st.integers(0, 5)) == 0:
            fields.append(("note", draw(anything)))
        found.append(bson_of.document(*nested(fields)))
    return found


def _places(held: list[Value]) -> list[Field]:
    return [(str(place), value) for place, value in enumerate(held)]


def _array(policy: Any, samples: list[bytes]) -> Value:
    kind = ARRAY if getattr(policy, "samples_as", None) == "pairs" else DOCUMENT
    return bson_of.array(*((kind, sample) for sample in samples))


#: By container: the keys of each slot, level by level, and what it holds: inside -> a strategy ("" itself).
Kept = list[tuple[str, list[tuple[tuple[str, ...], dict[str, st.SearchStrategy[Value]]]]]]


@st.composite
def slot_fields(draw: Draw, policy: Any) -> Kept:
    """The shape of the slots of each value field."""
    inside: dict[str, list[str]] = {}
    for path in policy.value_fields:
        container, _, rest = path.partition(".*.")
        inside.setdefault(container, []).append(rest)
    shape: Kept = []
    for container, fields in inside.items():
        if draw(st.integers(0, 4)):
            places = draw(
                st.lists(slot_keys(policy), max_size=4, unique_by=lambda keys: tuple(map(int, keys)))
            )
            held = [
                {it: draw(st.sampled_from(alike)) for it in fields if draw(st.integers(0, 3))} for _ in places
            ]
            if fields == [""]:
                held = [{"": draw(st.sampled_from(alike))} for _ in places]
            shape.append((container, list(zip(places, held, strict=True))))
    return shape


@st.composite
def slot_keys(draw: Draw, policy: Any) -> tuple[str, ...]:
    spans = [span_of(policy), *(SECONDS[unit] for unit in units_of(policy))]
    counts = [span // SECONDS[unit] for span, unit in zip(spans, units_of(policy), strict=False)]
    padded = draw(st.integers(0, 3)) == 0
    found, before = [], 0
    for count in counts:
        key = draw(st.integers(0, count - 1))
        running = before * count if policy.slot_keys == "running" else 0
        before = running + key
        digits = len(str(running + count - 1 + policy.first_slot)) if padded else 1
        found.append(str(running + key + policy.first_slot).zfill(digits))
    return tuple(found)


@st.composite
def filled(draw: Draw, policy: Any, shape: Kept) -> list[tuple[str, Value]]:
    return [
        (name, draw(_slot_tree([(keys, held) for keys, held in slots], policy.first_slot)))
        for name, slots in shape
    ]


@st.composite
def _slot_tree(
    draw: Draw, slots: list[tuple[tuple[str, ...], dict[str, st.SearchStrategy[Value]]]], first: int
) -> Value:
    """Slots inside slots; where keys are the first places, an array now and then."""
    by_key: dict[str, list[tuple[tuple[str, ...], dict[str, st.SearchStrategy[Value]]]]] = {}
    for (key, *rest), held in slots:
        same = next((it for it in by_key if int(it) == int(key)), key)
        by_key.setdefault(same, []).append((tuple(rest), held))
    fields: list[Field] = []
    for key, inner in by_key.items():
        if inner[0][0]:
            fields.append((key, draw(_slot_tree(inner, first))))
        elif list(inner[0][1]) == [""]:
            fields.append((key, draw(inner[0][1][""])))
        else:
            fields.append((key, bson_of.sub(*nested([(name, draw(it)) for name, it in inner[0][1].items()]))))
    highest = max((int(key) for key, _ in fields), default=99)
    if highest < 8:
        by_place = {int(key) - first: value for key, value in fields}
        return bson_of.array(*(by_place.get(place, bson_of.null) for place in range(highest + 1 - first)))
    return bson_of.sub(*fields)


@st.composite
def buckets(draw: Draw, policy: Any, identities: list[Value]) -> list[Bucket]:
    """As many buckets of one shape as there are `_id`s."""
    make = {"reading": _reading, "timeseries": _reading, "slots": _slots, "samples": _samples}[policy.model]
    return draw(make(policy, identities))


@st.composite
def _series(draw: Draw, policy: Any) -> list[tuple[str, Value]]:
    return [(name, draw(series_values)) for name in policy.series_fields if ".*." not in name]


@st.composite
def _reading(draw: Draw, policy: Any, identities: list[Value]) -> list[Bucket]:
    shape, found = draw(values_of(policy)), []
    dates_of = st.one_of(st.integers(FIRST, LAST), st.integers(0, 3))
    for identity in identities:
        fields = [("_id", identity), (str(policy.time_field), draw(times_of(policy.time_unit, dates_of)))]
        values = [(name, draw(strategy)) for name, strategy in shape]
        if policy.attributes_field is not None:
            values = [(policy.attributes_field, _attributes(policy, values))]
        fields += draw(_series(policy)) + values
        found.append(Bucket(draw(shuffled(fields))))
    return found


def _attributes(policy: Any, values: list[tuple[str, Value]]) -> Value:
    held = []
    for name, value in [("other", bson_of.int32(1)), *values, ("other", bson_of.null)]:
        fields = [(policy.attribute_key, bson_of.text(name)), (policy.attribute_value, value)]
        held.append(bson_of.sub(*nested(fields)))
    return bson_of.array(*held)


@st.composite
def _slots(draw: Draw, policy: Any, identities: list[Value]) -> list[Bucket]:
    shape, found = draw(slot_fields(policy)), []
    length = span_of(policy) * 1000
    step = min(length, 15 * 60_000)
    for identity in identities:
        start = draw(st.one_of(st.integers(0, 3), st.integers(FIRST // step, (LAST - length) // step))) * step
        time = draw(times_of(policy.time_unit, st.just(start)))
        fields = [("_id", identity), (str(policy.time_field), time), *draw(_series(policy))]
        fields += draw(filled(policy, shape))
        extras = []
        if policy.overflow:
            for i in range(draw(st.integers(0, 2))):
                extras.append(draw(_more_slots(policy, identity, i, start)))
            fields += draw(_flag(bool(extras)))
        found.append(Bucket(draw(shuffled(fields)), tuple(extras)))
    return found


@st.composite
def _more_slots(draw: Draw, policy: Any, identity: Value, number: int, start: int) -> bytes:
    """An overflow document in each form it may have: an array of readings, or slots: those of the value
    fields inside `xs`, or at the top, or `xs` itself."""
    places = {"inside": "xs.", "top": ""}
    fields = [("_id", _overflow_id(identity, number)), ("of", identity)]
    single = ["itself"] if policy.value_fields == ("p",) else []
    plain = not any(".*." in path for path in policy.value_fields)
    form = draw(st.sampled_from([*(["array"] if plain else []), "inside", "top", *single]))
    if form == "array":
        times = times_of(policy.time_unit, st.integers(start, start + 59_999))
        fields.append(("xs", _array(policy, draw(samples_of(policy, str(policy.time_field), times)))))
    else:
        held = draw(filled(policy, draw(slot_fields(policy))))
        is_array = any(kind == ARRAY for _, (kind, _) in held)
        assume(held and not (form == "itself" and is_array))  # an array there is one of readings
        fields += [(places[form] + name if form in places else "xs", slots) for name, slots in held]
    return draw(shuffled(fields))


def _overflow_id(identity: Value, number: int) -> Value:
    return bson_of.sub(("of", identity), ("number", bson_of.int32(number)))


@st.composite
def _flag(draw: Draw, truth: bool) -> list[tuple[str, Value]]:
    if truth:
        flags = [bson_of.boolean(True), bson_of.int32(1), bson_of.double(1.0), bson_of.int64(2)]
        return [("more", draw(st.sampled_from(flags)))]
    off = [bson_of.boolean(False), bson_of.int32(0), bson_of.double(-0.0), bson_of.null]
    return draw(st.sampled_from([[], *([("more", held)] for held in off)]))


@st.composite
def _samples(draw: Draw, policy: Any, identities: list[Value]) -> list[Bucket]:
    """Of one shape only by chance: arrays differ in length and types."""
    found: list[Bucket] = []
    times: list[Value] = []

    def remember(time: Value) -> Value:
        times.append(time)
        return time

    unit = policy.sample_time_unit
    forms = [sample_times(unit), *([st.integers(0, 3).map(bson_of.int32)] if unit in (None, "s") else [])]
    drawn = draw(st.sampled_from(forms)).map(remember)
    for identity in identities:
        times.clear()
        least = int(policy.start_field is None and policy.end_field is None)
        if policy.samples_as == "arrays":
            held = draw(_parallel(policy, drawn, least))
        else:
            own = draw(samples_of(policy, str(policy.sample_time_field), drawn, least=least))
            held = [(str(policy.samples_field), _array(policy, own))]
        extras = []
        if policy.overflow:
            for i in range(draw(st.integers(0, 2))):
                more = draw(samples_of(policy, str(policy.sample_time_field), drawn, 2))
                fields = [("_id", _overflow_id(identity, i)), ("of", identity), ("xs", _array(policy, more))]
                extras.append(draw(shuffled(fields)))
        low, high = draw(_bounds(policy, [_ms(time, unit) for time in times]))
        end = [(policy.end_field, high)] if policy.end_field else []
        start = [(policy.start_field, low)] if policy.start_field else []
        fields = [("_id", identity), *start, *end, *draw(_series(policy))]
        fields += held
        if policy.overflow:
            fields += draw(_flag(bool(extras)))
        bucket = Bucket(draw(shuffled(fields)), tuple(extras))
        found.append(Bucket(draw(shuffled([*fields, *draw(_totals(policy, bucket))])), tuple(extras)))
    return found


@st.composite
def _parallel(
    draw: Draw, policy: Any, times: st.SearchStrategy[Value], least: int
) -> list[tuple[str, Value]]:
    """Arrays side by side; one of values may be missing, or null."""
    size = draw(st.integers(least, 4))
    found = [(policy.sample_time_field, bson_of.array(*(draw(times) for _ in range(size))))]
    for name in policy.value_fields:
        held = draw(st.sampled_from([*alike, scalars, None, "null"]))
        if isinstance(held, st.SearchStrategy):
            found.append((name, bson_of.array(*(draw(held) for _ in range(size)))))
        elif held is not None:
            found.append((name, bson_of.null))
    return found


@st.composite
def _bounds(draw: Draw, policy: Any, times: list[int]) -> tuple[Value, Value]:
    """A first and a last time, of any types, that hold these."""
    low, high = min(times, default=0), max(times, default=draw(st.integers(0, 5000)))
    if policy.time_unit is not None:
        first, end = (draw(times_of(policy.time_unit, st.just(ms))) for ms in (low, high))
        assume(_ms(first, policy.time_unit) <= low and _ms(end, policy.time_unit) >= high)
        return first, end
    kinds = [
        draw(st.sampled_from([DATE, INT64, DOUBLE, *([INT32] if abs(ms) < 2**31 * 1000 else [])]))
        for ms in (low, high)
    ]
    first, end = (_by_type(kind, ms / 1000) for kind, ms in zip(kinds, (low, high), strict=True))
    assume(_ms(first) <= low and (kinds[1] in (INT32, INT64) or _ms(end) >= high))
    return first, end


@st.composite
def _totals(draw: Draw, policy: Any, bucket: Bucket) -> list[tuple[str, Value]]:
    """The count and the sum that a writer keeps, of the bucket alone or with its overflow."""
    counted = Bucket(bucket.main, bucket.extras if draw(st.booleans()) else ())
    found = readings(policy, counted)
    totals: list[tuple[str, Value]] = []
    if policy.count_field:
        make = draw(st.sampled_from([bson_of.int32, bson_of.int64, bson_of.double]))
        totals.append((policy.count_field, make(len(found))))
    for field, place in policy.sum_fields.items():
        index = policy.value_fields.index(field)
        held = [reading.values[index] for reading in found]
        finite = [number for kind, number in held if kind == "FINITE" and number is not None]
        assume(all(abs(number) < 1e300 for number in finite))
        total, kinds = math.fsum(finite), {kind for kind, _ in held}
        if "NONFINITE" in kinds and draw(st.booleans()):
            total = sum(number for _, number in held if number is not None)
        exact = f"{total:.17g}" if math.isfinite(total) else "NaN"
        forms = [bson_of.double(total)]
        forms += [bson_of.decimal(exact)] if not math.isinf(total) else []
        totals.append((place, draw(st.sampled_from(forms))))
    return totals


@st.composite
def cases(draw: Draw, *models: str) -> Case:
    """A policy, of one of these models or of any, and some buckets of several shapes."""
    policy = draw(policies(draw(st.sampled_from(models or ["reading", "slots", "samples", "timeseries"]))))
    found: list[Bucket] = []
    for _ in range(draw(st.integers(1, 3))):
        identities = draw(st.lists(ids, min_size=1, max_size=3))
        for bucket in draw(buckets(policy, identities)):
            if all(compare(bucket.id, other.id) for other in found):
                found.append(bucket)
    return Case(policy, found)
