"""What the person who starts the service decides: where it listens, what others may ask for, how much runs at a time."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.errors import InputError

DEFAULT_PORT = 8765
LOCAL_NAMES = frozenset(["localhost", "localhost.localdomain"])


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one service.

    Attributes:
        home: folder for state (BISECT_TRAIN_HOME).
        host, port: where it listens; port 0 takes a free one.
        repositories: (name, folder) of the repositories that can be asked about; nothing else is ever opened.
        recipes: (name, file) of the recipes that a request can name, beside a repository's own.
        tokens: digests (`auth.digest_token`) of the operator's tokens, from a file; they belong to an administrator.
        allow_commands: whether the person alone on this machine may send a training command of their own.
        max_running: bisections at a time.
        address: of a Ray cluster; "" starts one for all bisections.
        cpus: logical CPUs of the Ray that is started; None takes what this process may use.
        python: interpreter that `python` in commands stands for; None takes the caller's.
        max_body_bytes: of a request.
        body_timeout_s: for a request's body to come in, seconds.
        max_streams: watchers at a time, all together.
        max_streams_per_user: watchers at a time of one user.
        heartbeat_s: between two signs of life on a quiet stream, seconds.
        poll_s: between two looks for new events, seconds.
        stop_s: for a coordinator to end once it was asked to, seconds.
        lease_s: after which what a killed service ran goes back to the queue, seconds.
    """

    home: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    repositories: tuple[tuple[str, Path], ...] = ()
    recipes: tuple[tuple[str, Path], ...] = ()
    tokens: tuple[str, ...] = ()
    allow_commands: bool = False
    max_running: int = 2
    address: str = ""
    cpus: int | None = None
    python: str | None = None
    max_body_bytes: int = 256 * 1024
    body_timeout_s: float = 10.0
    max_streams: int = 500
    max_streams_per_user: int = 250
    heartbeat_s: float = 15.0
    poll_s: float = 0.5
    stop_s: float = 30.0
    lease_s: float = 30.0

    def repository(self, name: str) -> Path:
        """Return the folder of a repository. Raises InputError for a name that is not on the list."""
        return _find(name, self.repositories, what="repository")

    def recipe(self, name: str) -> Path:
        """Return the file of a recipe. Raises InputError for a name that is not on the list."""
        return _find(name, self.recipes, what="recipe")


def _find(name: str, known: tuple[tuple[str, Path], ...], *, what: str) -> Path:
    for known_name, path in known:
        if known_name == name:
            return path
    names = ", ".join(known_name for known_name, _ in known) or "none"
    plural = {"repository": "repositories"}.get(what, f"{what}s")
    raise InputError(f"this service has no {what} of this name", hint=f"its {plural}: {names}")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a service that listens on `host`."""
    if host.lower() in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_open_door(settings: Settings, *, has_users: bool) -> None:
    """Raise InputError where others could reach a service that asks nobody for a token."""
    if is_loopback(settings.host) or settings.tokens or has_users:
        return
    raise InputError(
        f"--host {settings.host} can be reached from other machines, and no token is set",
        hint="add a user first, `bisect-train serve user add NAME`, give --token-file FILE, or listen on 127.0.0.1",
    )
