"""Where to tell, as a person writes it, and the messenger for it.

    https://host/path              a webhook, or a chat's incoming webhook
    github-issue:OWNER/NAME        an issue a finding
    github-comment:OWNER/NAME#12   a comment a finding on an issue or a pull request
    github-check:OWNER/NAME[@SHA]  a check-run a finding
    mailto://... and others        of apprise
    env:NAME                       one of these, in a variable of the environment

An address that holds a secret is only taken from the environment: the command line is seen by others, and what is written
there is stored. Stores and logs hold the address as it was written, never what a variable holds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, parse_qsl, urlsplit

from bisect_train.core.errors import InputError
from bisect_train.core.secrets import is_secret_key
from bisect_train.telling.chat import NATIVE_HOSTS, Chat
from bisect_train.telling.github import API_URL, Access, GithubCheck, GithubComment, GithubIssue
from bisect_train.telling.messenger import Messenger
from bisect_train.telling.patience import Patient
from bisect_train.telling.webhook import Webhook, read_secret

TOKEN_VARIABLES = ("BISECT_TRAIN_GITHUB_TOKEN", "GITHUB_TOKEN", "GH_TOKEN")
API_VARIABLE = "GITHUB_API_URL"
SECRET_VARIABLE = "BISECT_TRAIN_WEBHOOK_SECRET"
OPEN_SCHEMES = ("mailto", "mailtos")
"""Schemes of apprise whose address need not hold a secret."""
FORMS = (
    "https://..., github-issue:OWNER/NAME, github-comment:OWNER/NAME#NUMBER, github-check:OWNER/NAME[@SHA], "
    "mailto://..., env:NAME"
)

_GITHUB = re.compile(r"github-(issue|comment|check):([\w.-]+/[\w.-]+?)(?:#(\d{1,18})|@([0-9a-f]{40}))?")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")


def open_messenger(
    address: str,
    *,
    environ: Mapping[str, str],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> Messenger:
    """Return the messenger of an address; nothing is sent and nobody is asked.

    Args:
        address: as a person wrote it.
        environ: of the process; tokens and secrets are read from it and nowhere else.
        sleep: waits so many seconds, between tries.
        clock: seconds since the epoch.

    Raises:
        InputError: the address is malformed, holds a secret, or needs a variable or a library that is not there.
    """
    name, is_named = address, address.startswith("env:")
    if is_named:
        name = _read(address.removeprefix("env:"), environ)
    scheme = name.partition(":")[0]
    if scheme.startswith("github-"):
        return Patient(_open_github(name, environ, clock), sleep)
    if not is_named:
        _refuse_secrets(name, scheme)
    if scheme in ("http", "https"):
        return Patient(_open_web(name, environ, clock), sleep)
    if "://" in name:
        return Patient(Chat(name), sleep)
    raise InputError(f"cannot tell {_shown(name, is_named)}", hint=f"it takes {FORMS}")


def _read(variable: str, environ: Mapping[str, str]) -> str:
    if not _VARIABLE.fullmatch(variable):
        raise InputError("env: takes the name of a variable", hint="such as env:SLACK_URL, and not what it holds")
    value = environ.get(variable, "").strip()
    if not value:
        raise InputError(f"the variable {variable} is not set", hint="it must hold the address to tell")
    return value


def _shown(name: str, is_named: bool) -> str:
    return "what the variable holds" if is_named or "@" in name else repr(name[:80])


def _open_github(name: str, environ: Mapping[str, str], clock: Callable[[], float]) -> Messenger:
    found = _GITHUB.fullmatch(name)
    if found is None or (found[1] == "comment") != (found[3] is not None) or (found[4] and found[1] != "check"):
        raise InputError(f"not a place on GitHub: {name[:120]!r}", hint=f"it takes {FORMS}")
    token = next((environ[variable] for variable in TOKEN_VARIABLES if environ.get(variable)), "")
    if not token:
        raise InputError("telling GitHub needs a token", hint=f"set {TOKEN_VARIABLES[1]}; a workflow of GitHub has one for you")
    access = Access(token, environ.get(API_VARIABLE) or API_URL, clock)
    if found[1] == "issue":
        return GithubIssue(found[2], access)
    return (
        GithubComment(found[2], int(found[3]), access)
        if found[1] == "comment"
        else GithubCheck(found[2], found[4] or "", access)
    )


def _open_web(url: str, environ: Mapping[str, str], clock: Callable[[], float]) -> Messenger:
    host = _split(url).hostname or ""
    if not host:
        raise InputError("the address names no host", hint=f"it takes {FORMS}")
    if any(host == native or host.endswith(f".{native}") for native in NATIVE_HOSTS):
        return Chat(url)
    secret = environ.get(SECRET_VARIABLE, "")
    return Webhook(url, secret=read_secret(secret, variable=SECRET_VARIABLE) if secret else None, clock=clock)


def _refuse_secrets(name: str, scheme: str) -> None:
    """Raise InputError where an address that was written out could hold a secret; the message does not show it."""
    if "://" not in name:
        return
    parts = _split(name)
    host, holds_login = parts.hostname or "", parts.password is not None or (scheme in ("http", "https") and parts.username)
    is_native = scheme in ("http", "https") and any(host.endswith(native) for native in NATIVE_HOSTS)
    is_closed = scheme not in ("http", "https", *OPEN_SCHEMES)
    in_query = any(is_secret_key(key, value) or key in ("pass", "sig", "key") for key, value in parse_qsl(parts.query))
    if holds_login or is_native or is_closed or in_query:
        hint = "put it into a variable, and name that: --to env:NAME"
        raise InputError(f"an address of {scheme}:// may hold a secret and is not taken from the command line", hint=hint)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise InputError("the address is malformed", hint=f"it takes {FORMS}") from None
    return parts
