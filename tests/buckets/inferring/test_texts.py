"""Formats that texts may have, guessed from the texts alone, and texts of a format that sort as time does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bucketwise.buckets.fields.formats import format_of
from bucketwise.buckets.fields.times import LAST_TEXT
from bucketwise.buckets.inferring.texts import forms_of

MOMENTS = [datetime(2018, 6, 14, 13, 5, 9, tzinfo=UTC) + timedelta(days=47 * it) for it in range(9)]


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


@pytest.mark.parametrize(
    "form",
    [
        "%Y-%b-%d %H:%M:%S", "%Y %B %d %H:%M", "%d %b %Y %H:%M:%S", "%d/%b/%y %H:%M", "%d-%B-%Y",
        "%b %d, %Y %I:%M:%S %p", "%B %d %Y", "%a, %d %b %Y %H:%M:%S", "%A, %d %B %Y %H:%M:%S",
        "%Y-%j %H:%M", "%d.%m.%Y %H:%M:%S", "%Y/%m/%d %H:%M", "%H:%M:%S %d %b %Y", "%Y%m%d%H%M%S",
        "%a %b %d %H:%M:%S %Y", "%m/%d/%Y %I:%M %p",
    ],
)  # fmt: skip
def test_a_form_is_found_that_reads_each_text_as_it_was_written(form: str) -> None:
    texts = [moment.strftime(form) for moment in MOMENTS]
    wanted = [datetime.strptime(text, form).replace(tzinfo=UTC) for text in texts]
    (found,) = forms_of(texts)
    assert [found.ms(text) for text in texts] == [ms(it) for it in wanted]


@pytest.mark.parametrize("count", [1, 1_000, 1_000_000, 1_000_000_000])
def test_seconds_and_parts_of_them_are_told_by_how_many_digits_they_have(count: int) -> None:
    (found,) = forms_of([str(round(moment.timestamp()) * count) for moment in MOMENTS])
    assert found.format == "%s"
    assert found.ms(str(1_528_981_509 * count)) == 1_528_981_509_000
    assert found.ms("1528981509x") is None


def test_what_is_no_time_has_no_form() -> None:
    assert forms_of([]) == forms_of(["x" * 100]) == forms_of(["2018-13-45", "2018-99-99"]) == []


@pytest.mark.parametrize(
    "form", ["%Y", "%Y-%m", "%Y-%m-%d", "%Y-%m-%d %H", "%Y%m%d%H%M", "%Y-%m-%dT%H:%M:%S"]
)
def test_the_first_text_that_is_not_before_a_time(form: str) -> None:
    """Texts of all steps of the format around a moment, the plain way."""
    for moment in (
        datetime(2018, 6, 1, tzinfo=UTC),
        MOMENTS[0],
        datetime(2018, 12, 31, 23, 59, 59, 500_000, UTC),
    ):
        steps = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1))
        later = [moment - timedelta(days=400), *(moment + step * it for step in steps for it in range(400))]
        texts = {it.strftime(form) for it in later}
        begins = {datetime.strptime(text, form).replace(tzinfo=UTC): text for text in texts}
        wanted = begins[min(it for it in begins if it >= moment)]
        assert format_of(form).rendered(ms(moment)) == wanted


def test_before_and_behind_all_years_that_texts_have() -> None:
    assert format_of("%Y-%m").rendered(-70_000_000_000_000) == "0001-01"
    assert format_of("%Y-%m-%d").rendered(-70_000_000_000_000) == "0001-01-01"
    assert format_of("%Y-%m").rendered(300_000_000_000_000) == LAST_TEXT
    assert format_of("%Y").rendered(300_000_000_000_000) == LAST_TEXT
