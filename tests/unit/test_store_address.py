"""Addresses of databases, and tokens: what is taken, what is refused, and what is shown of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.engine import URL

from bisect_train.core.errors import InputError
from bisect_train.store.address import hide_password, is_sqlite, parse_address, show_address
from bisect_train.store.advice import advise
from bisect_train.store.home import store_address
from bisect_train.store.tokens import check_token, hash_token, new_token


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_schemes_of_postgresql_mean_psycopg(scheme: str) -> None:
    url = parse_address(f"{scheme}://me:p%40ss@host:5433/name?sslmode=require")
    assert (url.drivername, url.username, url.password, url.host, url.port) == (
        "postgresql+psycopg",
        "me",
        "p@ss",
        "host",
        5433,
    )
    assert url.query == {"sslmode": "require"} and not is_sqlite(url)
    assert show_address(url) == "postgresql://me@host:5433/name"


def test_server_is_shown_by_its_socket_or_as_local() -> None:
    assert show_address(parse_address("postgresql:///x?host=/run/pg&password=s3cret")) == "postgresql:///run/pg/x"
    assert show_address(parse_address("postgresql:///x")) == "postgresql://localhost/x"


def test_file_is_shown_by_its_path() -> None:
    url = parse_address("sqlite:////a b/x.db")
    assert is_sqlite(url) and show_address(url) == "/a b/x.db"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "x",
            "/a/file.db",
            "sqlite://",
            "sqlite:///:memory:",
            "mysql://me:s3cret@host/x",
            "postgresql+psycopg2://me@host/x",
        ),
        *("postgresql://me:s3cret@host:port/x", "postgres://me:a@s3cret@host/x", "postgresql+asyncpg://me:s3cret@h/x"),
        "me:s3cret@host/x",
    ],
)
def test_other_addresses_are_refused_without_repeating_them(text: str) -> None:
    with pytest.raises(InputError, match="is not the address of a database") as caught:
        parse_address(text)
    assert "s3cret" not in str(caught.value) and "BISECT_TRAIN_STORE" in caught.value.hint


@given(st.text(min_size=6, alphabet=st.characters(codec="utf-8", exclude_characters="\0")))
def test_password_is_never_shown(password: str) -> None:
    url = URL.create("postgresql+psycopg", "me", password, "host", database="name", query={"password": password})
    assert parse_address(url).password == password
    said = hide_password(f"cannot log in with {password}!", url)
    assert said == "cannot log in with (hidden)!" or password in "cannot log in with (hidden)!"
    assert show_address(url) == "postgresql://me@host/name"


def test_home_has_a_file_unless_the_variable_says_where(tmp_path: object) -> None:
    from pathlib import Path

    assert store_address(Path("/h"), {}).database == "/h/bisect-train.db"
    assert store_address(Path("/h"), {"BISECT_TRAIN_STORE": ""}).database == "/h/bisect-train.db"
    assert store_address(Path("/h"), {"BISECT_TRAIN_STORE": "postgres://host/x"}).drivername == "postgresql+psycopg"


@pytest.mark.parametrize(
    ("cause", "is_file", "problem"),
    [
        ("database is locked", True, "kept it locked"),
        ("database disk image is malformed", True, "damaged"),
        ("FATAL:  sorry, too many clients already", False, "no connection left"),
        ("canceling statement due to lock timeout", False, "kept a row locked"),
        ("cannot execute INSERT in a read-only transaction", False, "cannot be written"),
        ('could not extend file "base/1": No space left on device', False, "disk of the server is full"),
        ("connection timeout expired", False, "does not answer"),
        ("something\n  new", False, "the database reports: something new"),
    ],
)
def test_what_a_database_reports_becomes_advice(cause: str, is_file: bool, problem: str) -> None:
    error = advise("place", cause, is_file=is_file)
    assert error.message.startswith("place: ") and problem in error.message and error.hint


def test_tokens_are_random_and_known_by_their_hash_alone() -> None:
    first, second = new_token(), new_token()
    assert first != second and first.startswith("bt_") and len(first) > 40
    assert check_token(first) == first
    assert hash_token(first) == hash_token(first) != hash_token(second)
    assert len(hash_token(first)) == 64 and first not in hash_token(first)
