from __future__ import annotations

from typing import Any

import bson
import pytest

from bucketwise.archivers.erasing.erasure import TextMatcher
from bucketwise.archivers.erasing.kind import unpacked
from bucketwise.archivers.records.deletions import packed_ids


@pytest.fixture
def matcher() -> TextMatcher:
    return TextMatcher(["Anna B", "AB", "7", "true", "", "4.50"])


@pytest.mark.parametrize(
    ("value", "is_found"),
    [
        ("Anna B", True),
        ("about Anna B.", True),
        ("anna b", True),
        ("Anna Bee", False),
        ("JoAnna B", False),
        ("Anna_B", False),
        ({"notes": [1, {"by": "Anna B"}]}, True),
        ({"Anna B": 1}, True),
        ("AB", True),
        ("an AB test", False),
        ("7", False),
        ("7 of them", False),
        ("true", False),
        ("4.50", False),
        ("", False),
        (7, False),
    ],
)
def test_longer_texts_are_words_and_short_ones_the_whole(
    matcher: TextMatcher, value: Any, is_found: bool
) -> None:
    """Numbers, `true` and what is as short as these would be found everywhere."""
    assert matcher.is_in(value) == is_found


def test_what_is_no_candidate_holds_none(matcher: TextMatcher) -> None:
    assert matcher.may_be_in(bson.encode({"by": "about Anna B."}))
    assert not matcher.may_be_in(bson.encode({"by": "7 true"}))


def test_compressed_ids_of_receipts_are_read_and_hashes_are_not(matcher: TextMatcher) -> None:
    """These may begin as if they were compressed."""
    packed = packed_ids(["Anna B"])
    assert matcher.is_in(unpacked({"ids": packed}))
    for hashes in (b"x" + bytes(7), b"x\x9c" + bytes(6), packed[:-3], b""):
        assert unpacked({"kind": "copies", "ids": hashes}) == {"kind": "copies", "ids": hashes}


def test_a_reason_names_any_of_them_in_capitals_or_not(matcher: TextMatcher) -> None:
    assert [matcher.is_named_in(it) for it in ("ANNA B left", "case 7", "case 77", "ab")] == [
        True,
        True,
        False,
        True,
    ]


def test_whether_all_are_looked_for_inside_others(matcher: TextMatcher) -> None:
    assert not matcher.is_whole
    assert TextMatcher(["Anna", "Bob B"]).is_whole
