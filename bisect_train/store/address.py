"""Where a database is: a file of SQLite, or a PostgreSQL server by its URL. Passwords never appear in what is said of it."""

from __future__ import annotations

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from bisect_train.core.errors import InputError
from bisect_train.core.secrets import HIDDEN

STORE_VARIABLE = "BISECT_TRAIN_STORE"
DRIVER = "postgresql+psycopg"
_POSTGRESQL = ("postgresql", "postgres", DRIVER)
_HINT = (
    f"{STORE_VARIABLE}=postgresql://USER@HOST/DATABASE, or sqlite:////absolute/path.db; characters such as @ : / in a "
    "password are written %40 %3A %2F, and it may as well lie in ~/.pgpass"
)


def parse_address(text: str | URL) -> URL:
    """Return the address of a database that can be used.

    Args:
        text: `sqlite:////absolute/path.db`, `postgresql://...`, `postgres://...` or `postgresql+psycopg://...`.
    Raises:
        InputError: it is no such address; what it says is not repeated, but for its scheme.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise _refuse(text, "it cannot be read") from None
    if url.drivername in _POSTGRESQL:
        if "@" in (url.host or ""):  # the rest of a password
            raise _refuse(text, "there are two @ before the host")
        return url.set(drivername=DRIVER)
    if url.drivername != "sqlite":
        raise _refuse(text, "only SQLite and PostgreSQL are known")
    if url.database in (None, "", ":memory:"):
        raise _refuse(text, "it names no file")
    return url


def _refuse(text: str | URL, problem: str) -> InputError:
    scheme, mark, _ = str(text).partition("://")
    shown = f"{scheme}://..." if mark else "this"
    return InputError(f"{shown} is not the address of a database: {problem}", hint=_HINT)


def is_sqlite(url: URL) -> bool:
    """Return whether the database is a file."""
    return url.get_backend_name() == "sqlite"


def show_address(url: URL) -> str:
    """Return a database for a person: the path of a file, or server and name without password and settings."""
    if is_sqlite(url):
        return str(url.database)
    user = f"{url.username}@" if url.username else ""
    host = url.host or str(url.query.get("host", "")) or "localhost"
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{user}{host}{port}/{url.database or ''}"


def hide_password(text: str, url: URL) -> str:
    """Return what a driver says, without the password of an address."""
    given = url.query.get("password", ())
    for secret in (url.password, *([given] if isinstance(given, str) else given)):
        text = text.replace(str(secret), HIDDEN) if secret else text
    return text
