"""Brings a branch of a remote up to date, where that was asked for: the one place that lets git use the network.

Only the remote-tracking name `refs/remotes/REMOTE/BRANCH` moves; the user's branches, index and checkout stay as they are. The
user's own git settings count here (credentials, proxies, ssh), which are shut out everywhere else.
"""

from __future__ import annotations

import os
import re

from bisect_train.changes.plumbing import decode, printable, run_git
from bisect_train.changes.repository import Repository
from bisect_train.core.errors import InputError, MachineError, RevisionError

USERS_OWN = (
    "GIT_EXEC_PATH",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "GIT_SSL_CAINFO",
    "GIT_PROXY_COMMAND",
    "GIT_CONFIG_GLOBAL",
)
"""Variables of the user's git that say how to reach a server; the others could name another repository."""
_SECRET = re.compile(r"://[^/@\s]*@")  # name and password in an address


def fetch_branch(repository: Repository, remote: str, branch: str) -> str:
    """Fetch a branch and return the name under which it is known from now on.

    Args:
        repository: the user's.
        remote: name of a remote.
        branch: name of a branch there, without `refs/heads/`.
    Raises:
        InputError: there is no such remote, or no branch can have this name.
        MachineError: it cannot be fetched.
    """
    names = decode(repository.names.run("remote")).split()
    if remote not in names:
        known = ", ".join(names) or "none"
        raise InputError(f"there is no remote {printable(remote)!r}", hint=f"remotes here: {known}; --remote names one")
    if repository.names.attempt("check-ref-format", f"refs/heads/{branch}").returncode != 0 or branch.startswith("-"):
        raise RevisionError(f"{printable(branch)!r} is no name of a branch", hint=f"a branch of {remote}, such as main")
    place = f"refs/remotes/{remote}/{branch}"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key in USERS_OWN}
    env = {**kept, "LC_ALL": "C", "GIT_DIR": str(repository.git_dir), "GIT_TERMINAL_PROMPT": "0"}
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
    args = ["fetch", *options, "--", remote, f"+refs/heads/{branch}:{place}"]
    result = run_git(args, env=env, cwd=repository.git_dir)
    if result.returncode != 0:
        said = _SECRET.sub("://", decode(result.stderr).strip())
        last = next((line for line in said.splitlines() if line.startswith(("fatal:", "error:"))), said[-200:])
        raise MachineError(f"{remote}/{branch} cannot be fetched: {printable(last)}", hint=f"git fetch {remote}")
    return place
