"""No password shows, wherever it stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bucketwise.config.errors import hide_in_url, hide_secrets
from bucketwise.config.load import load
from bucketwise.config.problems import ConfigError
from tests.config.bad_configs import changed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mongodb://bob:pw@host:27017/db", "mongodb://***@host:27017/db"),
        ("mongodb+srv://bob:pw@c.example.net", "mongodb+srv://***@c.example.net"),
        ("MongoDB://bob@host", "MongoDB://***@host"),
        ("at mongodb://a:b@h, then s3://k:s@bucket/x.", "at mongodb://***@h, then s3://***@bucket/x."),
        ("mongodb://bob:p@ss@host", "mongodb://***@host"),
        ("mongodb://bob:p/a?s#s@host", "mongodb://***@host"),
        ("mongodb://bob:p\"a's@host", "mongodb://***@host"),
        ("cannot reach mongodb://bob:pw: refused", "cannot reach mongodb://*** refused"),
        ("http://bob:pw@127.0.0.1:9000", "http://***@127.0.0.1:9000"),
        ("'mongodb://a:b@h' 'c@d'", "'mongodb://***@h' 'c@d'"),
        ('{"u":"mongodb://a:b@h","m":"c@d"}', '{"u":"mongodb://***@h","m":"c@d"}'),
        ('{"u":"mongodb://h","m":"c@d"}', '{"u":"mongodb://h","m":"c@d"}'),
        ("mongodb://h/?tls=true&tlsCertificateKeyFilePassword=pw&w=1",
         "mongodb://h/?tls=true&tlsCertificateKeyFilePassword=***&w=1"),
        ("mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:tok",
         "mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:***"),
        ("ValueError: Invalid header value b'tok\\n'.", "ValueError: Invalid header value ***."),
        ("Invalid header value b'a\\'b' 'c'", "Invalid header value *** 'c'"),
    ],
)  # fmt: skip
def test_hidden(text: str, shown: str) -> None:
    assert hide_secrets(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "mongodb://127.0.0.1:27017/?replicaSet=rs0",
        "mongodb://a:1,b:2/db",
        "mongodb://[::1]:27017",
        "no server at mongodb://localhost:27017.",
        "s3://bucket/a@b.parquet",
        "file:///a:b/c@d",
        "https://127.0.0.1:9000 and me@example.net",
        "12:30 you@there",
        "",
    ],
)
def test_left_alone(text: str) -> None:
    assert hide_secrets(text) == text


passwords = st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=3).filter(
    lambda it: it not in "mongodb://***@host:27017/db" and '"' not in it and "'" not in it
)


@pytest.mark.proof
@given(passwords)
def test_any_password_in_a_sentence(password: str) -> None:
    text = f"cannot reach mongodb://bob:{password}@host:27017/db today"
    assert hide_secrets(text) == "cannot reach mongodb://***@host:27017/db today"


@example("://")
@given(st.text(min_size=3).filter(lambda it: "@" not in it))
def test_any_password_in_a_value(password: str) -> None:
    scheme = "" if "://" in password else "mongodb://"  # rather too much than too little is hidden
    assert hide_in_url(f"mongodb://bob:{password}@host/db") == f"{scheme}***@host/db"


@given(st.text())
def test_hiding_twice_is_hiding_once(text: str) -> None:
    for url in (text, f"mongodb://{text}@h", f"s3://{text}"):
        once = hide_secrets(url)
        assert hide_secrets(once) == once


@pytest.mark.parametrize("url", ["mongodb://bob:my secret", "mongodb://bob:secret/x", "s3://key:secret"])
def test_password_without_host(url: str) -> None:
    assert "secret" not in hide_in_url(url)


@pytest.mark.parametrize(
    "line",
    [
        'uri = "hunter2"',
        "uri = ['hunter2']",
        'uri = "mongodb://bob:hunter2"',
        'uri = "mongodb://bob:hun ter2 hunter2@h:x"',
        'uri = "mysql://bob:hunter2@h/${NOT_THERE}"',
        'uri = "bob:hunter2@${NOT_THERE}"',
        'uri = "mongodb://bob:x?hunter2=1@h"',
        'ur = "hunter2"',
        'ur = "bob:hunter2@h"',
        'password = "hunter2"',
        'options = {password = "hunter2"}',
        'database = "mongodb://bob:hunter2@h"',
    ],
)
def test_no_message_shows_it(line: str, tmp_path: Path) -> None:
    path = tmp_path / "bucketwise.toml"
    path.write_text(f"[mongodb]\n{line}\n")
    with pytest.raises(ConfigError) as raised:
        load(path, {})
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in json.dumps(raised.value.as_dicts())
    assert any(problem.line == 2 for problem in raised.value.problems)


def test_settings_do_not_show_it(tmp_path: Path) -> None:
    path = tmp_path / "bucketwise.toml"
    path.write_text(changed(("127.0.0.1:1/", "bob:hunter2@127.0.0.1:1/")))
    settings = load(path, {})
    assert settings.mongodb.uri.get_secret_value().startswith("mongodb://bob:hunter2@")
    assert "hunter2" not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"


SECRET = "hunter2-hunter2-hunter2-hunter2-hunter2"


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        (f'"{SECRET}"', [SECRET]),
        ('"${KEY}"', [SECRET]),
        (f'["${{KEY}}", "{SECRET[::-1]}"]', [SECRET, SECRET[::-1]]),
        ("[]", []),
    ],
)
def test_signing_keys(written: str, keys: list[str], tmp_path: Path) -> None:
    path = tmp_path / "bucketwise.toml"
    path.write_text(changed(("[store]", f"[store]\nsigning_key = {written}")))
    store = load(path, {"KEY": SECRET}).store
    assert store is not None
    assert [key.get_secret_value() for key in store.signing_key] == keys
    assert "hunter2" not in f"{store!r} {store} {store.model_dump()} {store.model_dump_json()}"
    other = "another-key-of-thirty-two-characters-or-more"
    store = load(path, {"KEY": SECRET, "BUCKETWISE_STORE_SIGNING_KEY": other}).store
    assert store is not None
    assert [key.get_secret_value() for key in store.signing_key] == [other]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('signing_key = "hunter2"', "fewer than 32 characters"),
        (f'signing_key = ["{SECRET}", "hunter2"]', "fewer than 32 characters"),
        (f'signing_key = ["{SECRET}", "{SECRET}"]', "a key is listed twice"),
        (f'signing_key = ["{SECRET}", 7]', "text, or a list of texts"),
        (f'signing_key = {{a = "{SECRET}"}}', "text, or a list of texts"),
        (f'signing_key = ["{SECRET}", "${{NOT_THERE}}"]', "NOT_THERE is not set"),
        (f'signing_key = "{SECRET}${{NOT_THERE}}"', "NOT_THERE is not set"),
        (f'signing_kye = "{SECRET}"', "did you mean `signing_key`?"),
        ('signing_kye = "hunter2"', "fewer than 32 characters"),
        ('signing_key = "${SHORT}"', "fewer than 32 characters"),
    ],
)
def test_no_message_shows_a_signing_key(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bucketwise.toml"
    path.write_text(changed(("[store]", f"[store]\n{line}")))
    with pytest.raises(ConfigError, match="problem") as raised:
        load(path, {"SHORT": "hunter2"})
    assert message in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in json.dumps(raised.value.as_dicts())
