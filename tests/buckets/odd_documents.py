"""Sound buckets that hold what nobody plans for: all of them are archived, and come back bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from bucketwise.buckets.bson.types import ARRAY, DECIMAL128
from tests.buckets import handmade as bson_of
from tests.buckets.bad_documents import FIRST, LAST, T0, TRUE, nested, reading, sample, samples, slots
from tests.buckets.handmade import Field, Value
from tests.buckets.oracle import Bucket


class OddDocument(NamedTuple):
    id: str
    document: bytes
    extras: tuple[bytes, ...] = ()  # its overflow

    @property
    def bucket(self) -> Bucket:
        return Bucket(self.document, self.extras)


def in_arrays(depth: int, held: Value) -> Value:
    for _ in range(depth):
        held = bson_of.array(held)
    return held


_IN_DOCUMENTS = nested(100, bson_of.int32(1))
_IN_ARRAYS = in_arrays(100, bson_of.int32(1))
_UUID = bytes(range(16))

#: What may stand where a number is wanted: archived as it is, whatever it is.
VALUES: dict[str, Value] = {
    "NaN with a payload": bson_of.bits(0x7FF8DEADBEEF0001),
    "signalling NaN": bson_of.bits(0x7FF0000000000001),
    "negative NaN": bson_of.bits(0xFFF8000000000000),
    "-0.0": bson_of.double(-0.0),
    "infinity": bson_of.double(float("inf")),
    "-infinity": bson_of.double(float("-inf")),
    "the least double": bson_of.double(5e-324),
    "the greatest double": bson_of.double(1.7976931348623157e308),
    "2^53 + 1": bson_of.int64(2**53 + 1),
    "-2^53 - 1": bson_of.int64(-(2**53) - 1),
    "the greatest long": bson_of.int64(2**63 - 1),
    "the least long": bson_of.int64(-(2**63)),
    "the least int": bson_of.int32(-(2**31)),
    "the greatest decimal": bson_of.decimal("9.999999999999999999999999999999999E+6144"),
    "the least decimal": bson_of.decimal("-9.999999999999999999999999999999999E+6144"),
    "the smallest decimal": bson_of.decimal("1E-6176"),
    "decimal -0E+6111": bson_of.decimal("-0E+6111"),
    "decimal sNaN": bson_of.decimal("sNaN"),
    "decimal -Infinity": bson_of.decimal("-Infinity"),
    "decimal that is no canonical number": (DECIMAL128, b"\xff" * 14 + b"\xff\x6f"),
    "null": bson_of.null,
    "undefined": bson_of.undefined,
    "a string": bson_of.text("56.58"),
    "a string of bytes": bson_of.text(b"\xff\xfe\xed\xa0\x80"),
    "a bool": TRUE,
    "year 10000": bson_of.date(253_402_300_800_000),
    "the least date": bson_of.date(-(2**63)),
    "a document": bson_of.sub(("$gt", bson_of.int32(1)), ("a.b", bson_of.null), ("", bson_of.null)),
    "a document, one key twice": bson_of.sub(("a", bson_of.int32(1)), ("a", bson_of.int32(2))),
    "an array": bson_of.array(bson_of.int32(1), bson_of.text("x")),
    "an empty array": bson_of.array(),
    "an array of odd keys": (
        ARRAY, bson_of.document(("x", bson_of.int32(1)), ("x", bson_of.null))
    ),
    "100 documents deep": _IN_DOCUMENTS,
    "100 arrays deep": _IN_ARRAYS,
    "a regular expression": bson_of.regex("^[", "imx"),
    "code": bson_of.code("while (true) {}"),
    "code with scope": bson_of.code_with_scope("f()", ("x", bson_of.int32(1))),
    "a DBPointer": bson_of.db_pointer("db.c", b"0123456789ab"),
    "a symbol": bson_of.symbol("sym"),
    "MinKey": bson_of.min_key,
    "MaxKey": bson_of.max_key,
    "a timestamp": bson_of.timestamp(2**32 - 1, 2**32 - 1),
    "an ObjectId": bson_of.object_id(b"\0" * 12),
    "binary": bson_of.binary(b"\0\xff"),
    "binary of old kind": bson_of.binary(b"\0\xff", 2),
    "a UUID": bson_of.binary(_UUID, 4),
    "a short UUID": bson_of.binary(b"short", 4),
    "a user's binary": bson_of.binary(b"", 255),
}  # fmt: skip

#: What may lie beside the fields of the policy.
EXTRAS: dict[str, tuple[Field, ...]] = {
    "an empty key": (("", bson_of.int32(1)),),
    "a dotted key": (("p.x", bson_of.int32(1)), ("a.b.c", bson_of.int32(1)), (".", bson_of.null)),
    "a key of dots": (("..", bson_of.int32(1)), ("../../etc/passwd", bson_of.int32(1))),
    "$ in a key": (("x$y", bson_of.int32(1)), ("in", bson_of.sub(("$set", bson_of.sub())))),
    "a key with newlines": (("a\nb\x1b[31m", bson_of.int32(1)),),
    "a key of 2 kB": (("k" * 2048, bson_of.int32(1)),),
    "one key twice": (("note", bson_of.int32(1)), ("note", bson_of.text("two"))),
    "100 deep": (("deep", _IN_DOCUMENTS),),
    "170 deep": (("deep", nested(170, bson_of.null)),),
    "everything": tuple((f"x{i}", held) for i, held in enumerate(VALUES.values())),
}

#: Series that must not become one, nor lead anywhere outside the store.
SERIES: dict[str, Value] = {
    "a slash": bson_of.text("a/b"),
    "dots": bson_of.text(".."),
    "a way out": bson_of.text("../../../../tmp/out"),
    "an absolute path": bson_of.text("/etc/passwd"),
    "NUL": bson_of.text("a\0b"),
    "NUL at the end": bson_of.text("MDB\0"),
    "a newline": bson_of.text("a\nb\r\n"),
    "an escape": bson_of.text("\x1b[31mred\x1b]0;title\x07"),
    "markup": bson_of.text("[bold]x[/bold][/]"),
    "a formula": bson_of.text('=1+1,"x'),
    "2 kB": bson_of.text("x" * 2048),
    "2 kB and one": bson_of.text("x" * 2048 + "y"),
    "lower case": bson_of.text("mdb"),
    "mixed case": bson_of.text("Mdb"),
    "a space behind": bson_of.text("MDB "),
    "a space before": bson_of.text(" MDB"),
    "composed": bson_of.text("é"),
    "decomposed": bson_of.text("e\u0301"),
    "full width": bson_of.text("ＭＤＢ"),
    "outside the first plane": bson_of.text("😀\U0010ffff"),
    "not a character": bson_of.text("\ufffe\ufeff"),
    "right to left": bson_of.text("\u202egnp.x"),
    "empty": bson_of.text(""),
    "an operator": bson_of.text("$symbol"),
    "a dotted name": bson_of.text("a.b"),
    "the text 1": bson_of.text("1"),
    "the text 1.0": bson_of.text("1.0"),
    "the text true": bson_of.text("true"),
    "int 1": bson_of.int32(1),
    "double 1.5": bson_of.double(1.5),
    "2^53": bson_of.double(2.0**53),
    "2^53 + 1": bson_of.int64(2**53 + 1),
    "the greatest long": bson_of.int64(2**63 - 1),
    "the least long": bson_of.int64(-(2**63)),
    "2^63": bson_of.double(2.0**63),
    "the least double": bson_of.double(5e-324),
    "true": TRUE,
    "false": bson_of.boolean(False),
    "an ObjectId": bson_of.object_id(b"\0" * 12),
    "a date before 1970": bson_of.date(-1),
    "the least date": bson_of.date(-(2**63)),
    "year 10000": bson_of.date(253_402_300_800_000),
    "binary": bson_of.binary(b"\0\xff/"),
    "binary of old kind": bson_of.binary(b"\0\xff/", 2),
    "a UUID": bson_of.binary(_UUID, 4),
    "a document with a UUID": bson_of.sub(("u", bson_of.binary(_UUID, 4))),
    "an old UUID": bson_of.binary(_UUID, 3),
    "a document": bson_of.sub(("a", bson_of.int32(1)), ("b", bson_of.int32(2))),
    "the same in another order": bson_of.sub(("b", bson_of.int32(2)), ("a", bson_of.int32(1))),
    "an empty document": bson_of.sub(),
    "a document of odd keys": bson_of.sub(("", bson_of.int32(1)), ("a.b", T0), ("\n", bson_of.null)),
    "100 deep": _IN_DOCUMENTS,
}  # fmt: skip

#: `_id`s that MongoDB takes.
IDS: dict[str, Value] = {
    "int": bson_of.int32(10),
    "long": bson_of.int64(2**53 + 1),
    "double": bson_of.double(10.5),
    "NaN": bson_of.bits(0x7FF8DEADBEEF0001),
    "infinity": bson_of.double(float("inf")),
    "-0.0": bson_of.double(-0.0),
    "decimal": bson_of.decimal("1.10"),
    "the greatest decimal": bson_of.decimal("9.999999999999999999999999999999999E+6144"),
    "empty": bson_of.text(""),
    "NUL": bson_of.text("a\0b"),
    "a way out": bson_of.text("../../x"),
    "markup": bson_of.text("[/red]"),
    "an escape": bson_of.text("\x1b[31m"),
    "2 kB": bson_of.text("x" * 2048),
    "composed": bson_of.text("é"),
    "decomposed": bson_of.text("e\u0301"),
    "symbol": bson_of.symbol("sym"),
    "document": bson_of.sub(("a", bson_of.int32(1)), ("b.c", bson_of.text("x"))),
    "document of bytes": bson_of.sub(("a", bson_of.text(b"\xff")), ("", bson_of.null)),
    "document of undefined": bson_of.sub(("a", bson_of.undefined)),
    "document with one key twice": bson_of.sub(("b", bson_of.int32(1)), ("b", bson_of.int32(2))),
    "document with a short UUID": bson_of.sub(("a", bson_of.binary(b"short", 4))),
    "short UUID": bson_of.binary(b"short", 4),
    "empty document": bson_of.sub(),
    "100 deep": _IN_DOCUMENTS,
    "binary": bson_of.binary(b"\0\xff"),
    "binary of old kind": bson_of.binary(b"\0\xff", 2),
    "UUID": bson_of.binary(_UUID, 4),
    "old UUID": bson_of.binary(_UUID, 3),
    "a user's binary": bson_of.binary(b"x", 200),
    "ObjectId": bson_of.object_id(b"\xff" * 12),
    "bool": TRUE,
    "null": bson_of.null,
    "date": bson_of.date(-1),
    "the least date": bson_of.date(-(2**63)),
    "the greatest date": bson_of.date(2**63 - 1),
    "timestamp": bson_of.timestamp(2**32 - 1, 1),
    "code": bson_of.code("f()"),
    "MinKey": bson_of.min_key,
    "MaxKey": bson_of.max_key,
}  # fmt: skip

_MAKE: dict[str, Callable[..., bytes]] = {
    "reading": reading, "timeseries": reading, "slots": slots, "samples": samples
}  # fmt: skip


def _holding(model: str, value: Value | None) -> dict[str, Value | None]:
    """The fields in which a bucket of this model holds the value, beside one that is sound."""
    if model == "slots":
        held = [("0", value)] if value else []
        return {"p": bson_of.sub(*held, ("7", bson_of.double(1)))}
    if model == "samples":
        first = sample(FIRST, p=value) if value else sample(FIRST)
        return {"samples": bson_of.array(first, sample(LAST, p=bson_of.double(1.5)))}
    return {"p": value}


def odd_documents(model: str) -> Iterator[OddDocument]:
    make = _MAKE[model]

    def named(kind: str, name: str, *more: Field, **changed: Any) -> OddDocument:
        name = f"{kind}: {name}"
        return OddDocument(name, make(*more, **({"_id": bson_of.text(name)} | changed)))

    yield named("value", "missing", **_holding(model, None))
    for name, held in VALUES.items():
        yield named("value", name, **_holding(model, held))
    for name, more in EXTRAS.items():
        yield named("beside", name, *more)
    for name, held in SERIES.items():
        yield named("series", name, symbol=held)
    if model == "timeseries":
        return
    for name, held in IDS.items():
        yield named("_id", name, _id=held)


def odd_overflow(model: str) -> Iterator[OddDocument]:
    """Buckets with an overflow document that has, and refers to, an `_id` of each type, and all values."""
    held = {
        "slots": bson_of.sub(*((str(i), held) for i, held in enumerate(VALUES.values()))),
        "samples": bson_of.array(*(sample(FIRST, p=held) for held in VALUES.values())),
    }[model]
    odd = [more for some in EXTRAS.values() for more in some]
    for name, identity in IDS.items():
        named = bson_of.sub(("of", identity))
        main = _MAKE[model](_id=named, has_more=TRUE)
        extra = bson_of.document(("_id", identity), ("bucket", named), ("more", held), *odd)
        yield OddDocument(f"overflow: _id {name}", main, (extra,))
