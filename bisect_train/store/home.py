"""Where state lies: BISECT_TRAIN_HOME, or the platform's folder for a user's data; bisections at BISECT_TRAIN_STORE, or there.

Mirrors, checkouts and environments always lie in the folder: they are of one machine. The bisections alone can be shared.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_data_path
from sqlalchemy.engine import URL

from bisect_train.core.errors import MachineError
from bisect_train.store.address import STORE_VARIABLE, parse_address
from bisect_train.store.sql import SqlStore

HOME_VARIABLE = "BISECT_TRAIN_HOME"
DATABASE_NAME = "bisect-train.db"


def default_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for state, as an absolute path; it may not be there yet."""
    given = environ.get(HOME_VARIABLE, "")
    return Path(given).expanduser().absolute() if given else user_data_path("bisect-train", appauthor=False)


def ensure_home(home: Path) -> Path:
    """Make the folder for state, for its owner alone, if it is missing and return it.

    Raises:
        MachineError: it cannot be made or written.
    """
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)  # questions hold the variables of programs
    except OSError as error:
        raise _unusable(home, error.strerror or str(error)) from None
    if not os.access(home, os.W_OK | os.X_OK):
        raise _unusable(home, "no permission to write there")
    return home


def _unusable(home: Path, problem: str) -> MachineError:
    return MachineError(
        f"{home}: cannot keep state in this folder: {problem}", hint=f"give a folder that can be written: {HOME_VARIABLE}=DIR"
    )


def store_address(home: Path, environ: Mapping[str, str] = os.environ) -> URL:
    """Return where the bisections are: at BISECT_TRAIN_STORE, or in the folder for state.

    Raises:
        InputError: the variable holds no address of a database.
    """
    given = environ.get(STORE_VARIABLE, "")
    return parse_address(given) if given else URL.create("sqlite", database=str(home / DATABASE_NAME))


def open_store(home: Path, environ: Mapping[str, str] = os.environ) -> SqlStore:
    """Return the store at BISECT_TRAIN_STORE, or in a folder for state; folder and tables are made if they are missing.

    Raises:
        InputError: BISECT_TRAIN_STORE cannot be used.
        MachineError: the folder or the database cannot be used.
    """
    return SqlStore(store_address(ensure_home(home), environ))
