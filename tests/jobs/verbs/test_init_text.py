"""The text of a policy file that `init` writes: whatever documents hold, it says what was meant."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.inferring.fields import Notes
from bucketwise.buckets.inferring.guess import Guess
from bucketwise.config.load import settings_in
from bucketwise.config.models import make_policy
from bucketwise.jobs.core.drafts import config_text, draft_policy, is_free_of_secrets, policy_names
from tests.jobs.place import NOW

paths = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)


@given(st.lists(paths, min_size=5, max_size=5, unique=True), paths, paths)
def test_any_text_comes_back_from_the_file(fields: list[str], collection: str, note: str) -> None:
    notes = Notes({"model": [note], "series_fields": [note]}, {"value_fields": [note], "timezone": [note]})
    series, value, time, array, total = fields
    policy = make_policy(
        name="it",
        collection=collection,
        model="samples",
        samples_field=array,
        sample_time_field=time,
        start_field=time,
        sum_fields={value: total},
        series_fields=(series,),
        value_fields=(value,),
    )
    guess = draft_policy(Guess(collection, policy, [note], notes), "market", ())
    guesses = [guess, Guess(collection, reasons=[note])]
    found = tomllib.loads(config_text(guesses, ("${MONGODB_URI}", "market"), "file:///x", NOW))
    if guess.policy is None:
        assert "policies" not in found
        return
    it = found["policies"]["it"]
    assert (it["collection"], it["samples_field"], it["series_fields"][0]) == tuple(
        text.replace("${", "$${") for text in (collection, array, series)
    )
    settings = settings_in(
        config_text(guesses, ("${MONGODB_URI}", "market"), "file:///x", NOW),
        Path("x"),
        {"MONGODB_URI": "mongodb://h"},
    )
    read = settings.policies["it"]
    keys = ("collection", "series_fields", "value_fields", "samples_field", "sum_fields")
    assert [getattr(read, key) for key in keys] == [getattr(policy, key) for key in keys]


@given(st.lists(st.text(min_size=1), unique=True))
def test_policies_have_names_of_their_own(collections: list[str]) -> None:
    names = policy_names(collections)
    assert list(names) == collections and len(set(names.values())) == len(collections)
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", it) for it in names.values())


@pytest.mark.parametrize(
    ("uri", "is_written"),
    [
        ("mongodb://db1,db2/market?replicaSet=rs0", True),
        ("${PRODUCTION}", True),
        ("mongodb://me:hunter2@db1/market", False),
        ("mongodb://me@db1/market", False),
        ("mongodb://db1/market?tlsCertificateKeyFilePassword=x", False),
        ("mongodb://db1/market?authMechanismProperties=AWS_SESSION_TOKEN:x", False),
    ],
)
def test_a_uri_is_written_as_it_was_typed_unless_it_may_hold_a_secret(uri: str, is_written: bool) -> None:
    assert is_free_of_secrets(uri) == is_written
