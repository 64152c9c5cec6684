"""A private PostgreSQL server for tests: in a folder of its own, on a free port of the loopback and a socket.

Where the tests run as root it runs as the user `postgres`, since the server refuses root. It ends with the process that
started it, even if that one is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.needs import need

PASSWORD = "s3cret@word"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",  # nothing of it is kept
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "100",
    "log_min_messages": "warning",
}
_RULES = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
_PREFIX = "bt-pg-"
_OWNER = "owner"  # file with the process id of who made a folder
_PR_SET_PDEATHSIG = 1
_START_S = 60.0


class PostgresServer:
    """A server that runs; `urls` of its databases go through the socket, without a password."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._user = "postgres" if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_base_folder()))
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        (self._folder / _OWNER).write_text(str(os.getpid()))
        try:
            if self._user:
                shutil.chown(self._folder, self._user)
            self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale", "C", "--no-sync")
            (self._data / "pg_hba.conf").write_text(_RULES)
            self.port = _free_port()
            self.start()
        except BaseException:
            self.remove()
            raise

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _run(self, program: str, *args: object) -> None:
        command = [str(self._programs / program), *map(str, args)]
        done = subprocess.run(command, capture_output=True, text=True, **self._owner())
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    def _owner(self) -> dict[str, Any]:
        owner = {"user": self._user, "group": self._user, "extra_groups": []} if self._user else {}
        return {"cwd": self._folder, "env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, **owner}

    def start(self) -> None:
        """Start the server, again after `stop`."""
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [self._programs / "postgres", "-D", self._data, "-k", self._folder, "-p", str(self.port), *settings]
        log = (self._folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=_end_with_parent, **self._owner())
        give_up_s = time.monotonic() + _START_S
        ready = [self._programs / "pg_isready", "-q", "-h", self._folder, "-p", str(self.port)]
        while subprocess.run(ready).returncode:
            said = (self._folder / "log").read_text()
            assert self._process.poll() is None and time.monotonic() < give_up_s, f"the server does not start: {said}"
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server; what was committed stays."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_START_S)
            self._process = None

    def remove(self) -> None:
        """End the server and remove its folder."""
        self.stop(signal.SIGQUIT)  # without writing its buffers
        shutil.rmtree(self._folder, ignore_errors=True)

    def sql(self, database: str, *statements: str) -> None:
        """Run statements, each by itself."""
        import psycopg

        with psycopg.connect(host=str(self._folder), port=self.port, dbname=database, user="postgres", autocommit=True) as link:
            for statement in statements:
                link.execute(statement)

    def new_database(self) -> str:
        """Return the URL of a new, empty database."""
        name = f"test{next(self._numbers)}"
        self.sql("postgres", f"CREATE DATABASE {name}")
        return f"postgresql://postgres@/{name}?host={self._folder}&port={self.port}"

    def new_login(self, url: str) -> str:
        """Return the URL of the same database for a user with a password, over the network."""
        database = url.split("@/")[1].split("?")[0]
        user = f"user_{database}"
        self.sql("postgres", f"CREATE USER {user} PASSWORD '{PASSWORD}'", f"ALTER DATABASE {database} OWNER TO {user}")
        return f"postgresql://{user}:{PASSWORD.replace('@', '%40')}@127.0.0.1:{self.port}/{database}"


def _base_folder() -> str:
    """Return a folder that another user can reach, with a short path for the socket."""
    given = tempfile.gettempdir()
    is_open = all(Path(path).stat().st_mode & 0o005 == 0o005 for path in (given, *Path(given).parents))
    return given if is_open and len(given) < 60 else "/tmp"


def remove_orphans() -> None:
    """Remove the folders of processes that were killed: their servers ended with them."""
    for owner in Path(_base_folder()).glob(f"{_PREFIX}*/{_OWNER}"):
        with contextlib.suppress(OSError, ValueError):
            if not Path(f"/proc/{int(owner.read_text())}").exists():
                shutil.rmtree(owner.parent, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def find_programs() -> Path | None:
    """Return the folder of the newest server's programs, None where there is none."""
    folders = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    found = sorted(folders, key=lambda path: int(path.parent.name), reverse=True)
    config = shutil.which("pg_config")
    if config:
        found.append(Path(subprocess.run([config, "--bindir"], capture_output=True, text=True).stdout.strip()))
    needed = ("initdb", "postgres", "pg_isready")
    return next((path for path in found if all((path / name).is_file() for name in needed)), None)


def _why_not() -> str:
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed (pip install 'bisect-train[service]')"
    if find_programs() is None:
        return "PostgreSQL is not installed (on Debian: apt-get install postgresql)"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "there is no user postgres, as which root could start PostgreSQL"
    return ""


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests of this process; each takes databases of its own."""
    if reason := _why_not():
        need("postgres", reason)
    programs = find_programs()
    assert programs is not None
    remove_orphans()
    server = PostgresServer(programs)
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()
