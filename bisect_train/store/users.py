"""Users of a service in the database: names, hashes of tokens, limits."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Connection, insert, select, update

from bisect_train.core.errors import InputError
from bisect_train.store.engine import Database
from bisect_train.store.queue_contract import NO_LIMITS, OWN_NAMES, User, UserLimits
from bisect_train.store.rows import take_number
from bisect_train.store.tables import users
from bisect_train.store.tokens import check_token, hash_token, new_token

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


class SqlUsers:
    """The users' part of `queue_contract.Queue`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_user(self, name: str, *, is_admin: bool = False, limits: UserLimits = NO_LIMITS, token: str | None = None) -> str:
        """See `queue_contract.Queue`."""
        if not _NAME.fullmatch(name):
            raise InputError(f"{name[:80]!r} is no name for a user", hint="1 to 64 letters, digits and . _ @ -")
        _refuse_own(name)
        _check_limits(limits)
        token = new_token() if token is None else check_token(token)
        with self._database.write() as connection:
            take_number(connection)  # whoever else adds one waits
            if connection.scalar(select(users.c.name).where(users.c.name == name)) is not None:
                raise InputError(f"there is a user {name!r} already", hint="change it, or give it a new token")
            if connection.scalar(select(users.c.name).where(users.c.token_hash == hash_token(token))) is not None:
                raise InputError("this token is another user's", hint="leave it out: one is made")
            row = {"name": name, "token_hash": hash_token(token), "is_admin": is_admin, **_limits_row(limits)}
            connection.execute(insert(users).values({**row, "created_s": self._database.now(connection)}))
        return token

    def ensure_own_user(self, name: str) -> None:
        """See `queue_contract.Queue`."""
        if name not in OWN_NAMES:
            raise ValueError(f"{name!r} is no user of the service itself")
        with self._database.write() as connection:
            take_number(connection)
            if connection.scalar(select(users.c.name).where(users.c.name == name)) is None:
                row = {"name": name, "token_hash": None, "is_admin": True, **_limits_row(NO_LIMITS)}
                connection.execute(insert(users).values({**row, "created_s": self._database.now(connection)}))

    def set_user(self, name: str, *, is_admin: bool | None = None, limits: UserLimits | None = None) -> User:
        """See `queue_contract.Queue`."""
        values: dict[str, Any] = {} if is_admin is None else {"is_admin": is_admin}
        if limits is not None:
            _check_limits(limits)
            values |= _limits_row(limits)
        with self._database.write() as connection:
            lock_user(connection, name)
            if values:
                connection.execute(update(users).where(users.c.name == name).values(values))
            return user_of(connection, name)

    def renew_token(self, name: str) -> str:
        """See `queue_contract.Queue`."""
        _refuse_own(name)
        token = new_token()
        self._set_hash(name, hash_token(token))
        return token

    def revoke_token(self, name: str) -> None:
        """See `queue_contract.Queue`."""
        self._set_hash(name, None)

    def _set_hash(self, name: str, token_hash: str | None) -> None:
        with self._database.write() as connection:
            lock_user(connection, name)
            connection.execute(update(users).where(users.c.name == name).values(token_hash=token_hash))

    def users(self) -> tuple[User, ...]:
        """See `queue_contract.Queue`."""
        with self._database.read() as connection:
            return tuple(_user_of_row(row) for row in connection.execute(select(users).order_by(users.c.name)))

    def user(self, name: str) -> User:
        """See `queue_contract.Queue`."""
        with self._database.read() as connection:
            return user_of(connection, name)

    def user_of_token(self, token: str) -> User | None:
        """See `queue_contract.Queue`."""
        with self._database.read() as connection:
            row = connection.execute(select(users).where(users.c.token_hash == hash_token(token))).first()
        return _user_of_row(row) if row else None


def lock_user(connection: Connection, name: str, *, skip: bool = False) -> bool:
    """Lock a user's row, so that what its limits count does not change; return False where it is locked and to be skipped."""
    row = select(users.c.name).where(users.c.name == name).with_for_update(key_share=True, skip_locked=skip)
    if connection.scalar(row) is not None:
        return True
    if not skip:
        raise no_user(name)
    return False


def user_of(connection: Connection, name: str) -> User:
    """Return a user. Raises InputError if there is none."""
    row = connection.execute(select(users).where(users.c.name == name)).first()
    if row is None:
        raise no_user(name)
    return _user_of_row(row)


def no_user(name: str) -> InputError:
    """Return the error for a name that no user has."""
    return InputError(f"there is no user {name[:80]!r}", hint="add it first")


def _user_of_row(row: Any) -> User:
    limits = UserLimits(row.max_queued, row.max_running, row.max_probes_per_day, row.max_gpu_hours_per_day)
    has_token = row.token_hash is not None
    return User(row.name, bool(row.is_admin), limits, row.created_s, has_token, row.token_hash or "")


def _refuse_own(name: str) -> None:
    if name in OWN_NAMES:
        raise InputError(f"{name!r} is a name of the service's own, and gets no token", hint="take another name")


def _limits_row(limits: UserLimits) -> dict[str, Any]:
    return {
        "max_queued": limits.max_queued,
        "max_running": limits.max_running,
        "max_probes_per_day": limits.max_probes_per_day,
        "max_gpu_hours_per_day": limits.max_gpu_hours_per_day,
    }


def _check_limits(limits: UserLimits) -> None:
    for name, value in _limits_row(limits).items():
        if value is not None and not 0 <= value < 2**31:
            raise InputError(f"{name} is {value}", hint="a limit is a number from 0 on, or none")
