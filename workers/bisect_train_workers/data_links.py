"""Untracked data that each checkout needs, linked in; and the warning about files that are only LFS pointers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from bisect_train.core.changes import DataLink
from bisect_train_workers.gitcmd import call_git
from bisect_train_workers.node import node_name

_LFS_START = "^version https://git-lfs"


class CannotStartError(Exception):
    """The program cannot be started in this variant's state; the message is for the user."""


def link_data(checkout: Path, links: Sequence[DataLink]) -> None:
    """Link data into a clean checkout, python files as copies, and hide the links from `git status`.

    Raises:
        CannotStartError: a source is missing, a target is tracked or lies outside the checkout.
    """
    for link in links:
        _link_one(checkout, link)
    if links:
        hidden = "".join(f"/{PurePosixPath(link.target)}\n" for link in links)
        (checkout / ".git/info/exclude").write_text(hidden)


def _link_one(checkout: Path, link: DataLink) -> None:
    relative = PurePosixPath(link.target)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts or relative.parts[0] == ".git":
        raise CannotStartError(f"the data link's target {link.target} must be a path inside the checkout")
    if not Path(link.source).is_absolute() or not Path(link.source).exists():
        raise CannotStartError(f"the data {link.source} (for {link.target}) does not exist on {node_name()}")
    target = checkout / relative
    if os.path.lexists(target):
        raise CannotStartError(f"the data link's target {link.target} is a tracked path in this variant")
    if not target.parent.resolve().is_relative_to(checkout.resolve()):
        raise CannotStartError(f"the data link's target {link.target} leads out of the checkout through a tracked link")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise CannotStartError(f"a parent of the data link's target {link.target} is a tracked file") from None
    if is_script(link):
        shutil.copy(link.source, target)
    else:
        target.symlink_to(link.source)


def is_script(link: DataLink) -> bool:
    """Return whether it is copied: of a linked script python imports from the folder it points to, not from the checkout."""
    return PurePosixPath(link.target).suffix == ".py" and Path(link.source).is_file()


def find_lfs_pointers(checkout: Path) -> list[str]:
    """Return the tracked files whose content is an LFS pointer, for checkouts whose attributes use LFS at all."""
    attributes = ["grep", "-q", "-e", "filter=lfs", "--", ".gitattributes", "**/.gitattributes"]
    if call_git(attributes, cwd=checkout)[0] != 0:
        return []
    output = call_git(["grep", "-l", "-z", "-e", _LFS_START], cwd=checkout)[1]
    return [name for name in output.decode(errors="surrogateescape").split("\0") if name]
