"""From options to what a night is about: repository, branch, watch, pinned baseline. Bad input is found before runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bisect_train.baseline import Baseline
from bisect_train.changes.fetching import fetch_branch
from bisect_train.changes.history import resolve_skips
from bisect_train.changes.repository import Repository
from bisect_train.cli.asked import Asked
from bisect_train.cli.golden_runs import split_baseline
from bisect_train.core.errors import InputError
from bisect_train.core.question import Question, Range
from bisect_train.nightly.terms import Tonight
from bisect_train.store.nightly_contract import NightlyLog, StoredWatch


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options of a night say beside how probes run.

    Attributes:
        branch: that is watched.
        name: of the watch, or "".
        good: commit that is good where no good one is known behind the newest, or None.
        pinned: revision, `baseline:NAME`, or None.
        pinned_every: each how manieth night it is compared with.
        fetch: whether the branch is fetched first.
        remote: from which it is fetched.
        links: (words, address) pairs for messages.
    """

    branch: str
    name: str = ""
    good: str | None = None
    pinned: str | None = None
    pinned_every: int = 1
    fetch: bool = False
    remote: str = "origin"
    links: tuple[tuple[str, str], ...] = ()


def newest_commit(repository: Repository, wanted: Wanted) -> str:
    """Return the newest commit of the branch, fetched first where that is asked for. Raises RevisionError, MachineError."""
    branch = wanted.branch
    if wanted.fetch:
        branch = fetch_branch(repository, wanted.remote, branch.removeprefix(f"{wanted.remote}/"))
    return repository.resolve(branch)


def open_watch(log: NightlyLog, repository: Repository, wanted: Wanted) -> StoredWatch:
    """Return the watch of a branch; it is made where there is none.

    Raises:
        InputError: the name is taken by another branch or repository, or is none.
    """
    about = {"repo": repository.key, "root": str(repository.root), "branch": wanted.branch}
    watch = log.open(wanted.name or default_name(repository, wanted.branch), about)
    if (watch.about["repo"], watch.about["branch"]) != (repository.key, wanted.branch):
        place = f"branch {watch.about['branch']} of {watch.about['root']}"
        raise InputError(f"the watch {watch.name!r} is of {place}", hint="give this one another name: --name NAME")
    return watch


def default_name(repository: Repository, branch: str) -> str:
    """Return a name for a watch: of the repository's folder and the branch."""
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{repository.root.name}-{branch}").strip("-._")
    return text[:64] or "watch"


def pinned_of(repository: Repository, wanted: Wanted) -> tuple[str, Baseline | None]:
    """Return the pinned commit, "" without one, and its baseline where it was named by one."""
    if wanted.pinned is None:
        return "", None
    revisions, baseline = split_baseline(repository, (wanted.pinned,))
    return repository.resolve(revisions[0]), baseline


def ranges_of(repository: Repository, asked: Asked) -> Range:
    """Return what holds for all ranges of a watch."""
    return Range(("",), "", first_parent=asked.first_parent, skips=resolve_skips(repository, asked.skip), descend=asked.descend)


def tonight_of(
    watch: StoredWatch, repository: Repository, wanted: Wanted, question: Question, *, pinned: str, commit: str
) -> Tonight:
    """Return what a night is about."""
    root = repository.root.name if repository.root.name != ".git" else repository.root.parent.name
    return Tonight(
        watch.name,
        root,
        wanted.branch,
        commit,
        pinned=pinned,
        pinned_every=wanted.pinned_every,
        asked=_digest(question),
        links=wanted.links,
    )


def _digest(question: Question) -> str:
    """Return a digest of how probes run and are judged; the commits do not count, nor where they run."""
    data = question.to_json() | {"range": None, "executor": ""}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def links_of(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the links of `--link WORDS=URL`, and that of the workflow's run. Raises InputError."""
    links = []
    for text in texts:
        words, _, address = text.partition("=")
        parts = urlsplit(address)
        if not words or parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise InputError(f"--link {text!r} is no link", hint="write WORDS=https://..., without a password in it")
        links.append((words, address))
    return (*links, *_run_page(os.environ))


def _run_page(environ: Any) -> list[tuple[str, str]]:
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    if not all(environ.get(name) for name in names):
        return []
    server, repository, run = (environ[name] for name in names)
    return [("the run", f"{server}/{repository}/actions/runs/{run}")]
