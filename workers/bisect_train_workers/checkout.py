"""Checkouts on a node: a few slots per repository, each used by one probe at a time and switched by difference.

A slot is a small repository of its own (`.git` is a real folder, new for every probe) that borrows the mirror's objects.
Programs may therefore call git in it, and whatever they do to it - commits, configuration, flags in the index - ends
with the probe: the index that we switch by lies outside, and the program gets a copy.
HEAD is detached at the variant's commit, which is listed as shallow because its parents were never shipped.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.changes import Variant
from bisect_train_workers.gitcmd import GitError, call_git, run_git
from bisect_train_workers.locks import HeldLock, try_lock
from bisect_train_workers.mirror import Mirror
from bisect_train_workers.node import NodeError, disk_errors, make_folder, remove_folder

_MAX_SLOTS = 4096
_GIT_FOLDERS = ("info", "objects", "objects/info", "refs")
_CONFIG = """[core]
\trepositoryformatversion = 0
\tbare = false
\tfilemode = true
\tsymlinks = true
\tignorecase = false
\tautocrlf = false
\thooksPath = /dev/null
[gc]
\tauto = 0
[submodule]
\trecurse = false
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """A checkout folder that this process holds.

    Attributes:
        folder: the slot's own folder.
        lock: held as long as the slot is used.
    """

    folder: Path
    lock: HeldLock

    @property
    def path(self) -> Path:
        """The checkout: the program's working folder."""
        return self.folder / "tree"

    def git_env(self, path: str = "") -> dict[str, str]:
        """Return git's variables for the checkout, or for the submodule at `path` in it; each has an index of ours."""
        name = path.replace("%", "%25").replace("/", "%2F")
        return {
            "GIT_DIR": str(self.path / ".git"),
            "GIT_WORK_TREE": str(self.path / path),
            "GIT_INDEX_FILE": str(self.folder / f"index-{name}"),
        }


@contextlib.contextmanager
def take_slot(repo_folder: Path) -> Iterator[Slot]:
    """Hold the first free slot of a repository. Raises NodeError."""
    parent = make_folder(repo_folder / "slots")
    for idx in range(_MAX_SLOTS):
        folder = make_folder(parent / str(idx))
        lock = try_lock(folder / "lock")
        if lock is not None:
            break
    else:
        raise GitError(f"all {_MAX_SLOTS} checkouts of {repo_folder} are taken")
    try:
        yield Slot(folder, lock)
    finally:
        lock.release()


def switch_slot(slot: Slot, mirror: Mirror, variant: Variant) -> list[str]:
    """Bring a slot to a variant's state, clean and verified; a slot that cannot be repaired is made anew.

    Returns:
        Warnings for the report.
    Raises:
        GitError: even a new checkout does not give the variant's tree (missing objects, say).
        NodeError: the disk is full or cannot be written.
    """
    with disk_errors(slot.path):
        if slot.path.is_dir():
            try:
                if not _switch(slot, mirror, variant):
                    return []
            except (GitError, NodeError, OSError):
                pass
        for path in [slot.path, *slot.folder.glob("index-*")]:
            if path.exists() or path.is_symlink():
                remove_folder(path)
        slot.path.mkdir()
        modified = _switch(slot, mirror, variant)
    if not modified:
        return []
    return [f"git shows {len(modified)} files as modified right after checkout (line endings?), first {modified[0]}"]


def _switch(slot: Slot, mirror: Mirror, variant: Variant) -> list[str]:
    """Switch and verify; returns the tracked files that differ from the index although they were just written."""
    _make_git(slot, mirror, variant)
    modified = _switch_tree(slot, "", variant.tree)
    # A submodule's own files are unknown to the outer index; an outer one comes before those inside it.
    for subtree in sorted(variant.subtrees, key=lambda item: item.path):
        if not (slot.path / subtree.path).resolve().is_relative_to(slot.path.resolve()):
            raise GitError(f"the submodule path {subtree.path} leads out of the checkout")
        modified += _switch_tree(slot, subtree.path, subtree.tree)
    shutil.copyfile(slot.git_env()["GIT_INDEX_FILE"], slot.path / ".git/index")
    return modified


def _make_git(slot: Slot, mirror: Mirror, variant: Variant) -> None:
    """Make the slot's own `.git` anew, with HEAD at the variant's commit.

    The files are written here and not by `git init` and `git update-ref`: they are few, and a call of git takes milliseconds.
    """
    git = slot.path / ".git"
    _empty_git(git)
    (git / "HEAD").write_text("ref: refs/heads/main\n")  # what git needs to see a repository here
    (git / "config").write_text(_CONFIG)
    (git / "objects/info/alternates").write_text(f"{mirror.path / 'objects'}\n")
    commit = variant.commit
    if mirror.has(commit):
        (git / "shallow").write_text(f"{commit}\n")
    else:
        commit = _make_commit(slot, variant.tree)
    (git / "HEAD").write_text(f"{commit}\n")


def _empty_git(git: Path) -> None:
    """Leave nothing in `.git` but the empty folders of a repository; removing folders is slow, so those that fit stay."""
    try:
        _remove_files(git, keep={git / name for name in _GIT_FOLDERS})
    except OSError:
        remove_folder(git)
    for folder in (git, *(git / name for name in _GIT_FOLDERS)):
        folder.mkdir(exist_ok=True)


def _remove_files(git: Path, *, keep: set[Path]) -> None:
    """Remove all files below a folder, if there is one; raises OSError where anything but these folders is in it."""
    if not os.path.lexists(git):
        return
    if git.is_symlink() or not git.is_dir():
        raise NotADirectoryError(git)
    for folder, folders, files in os.walk(git, onerror=_raise):
        found = [Path(folder, name) for name in folders]
        if not keep.issuperset(found) or any(path.is_symlink() for path in found):
            raise FileExistsError(folder)
        for name in files:
            Path(folder, name).unlink()


def _raise(error: OSError) -> None:
    raise error


def _switch_tree(slot: Slot, path: str, tree: str) -> list[str]:
    """Bring the checkout, or the submodule at `path`, to a tree; returns what differs from it nevertheless."""
    env, hold = slot.git_env(path), (slot.lock.fd,)
    cwd = slot.path / path
    cwd.mkdir(parents=True, exist_ok=True)
    Path(env["GIT_INDEX_FILE"] + ".lock").unlink(missing_ok=True)
    for args in (["read-tree", "-u", "--reset", tree], ["clean", "-ffdxq"]):
        run_git(args, cwd=cwd, env=env, hold=hold)
    written = run_git(["write-tree"], cwd=cwd, env=env, hold=hold).strip()
    if written != tree:
        raise GitError(f"the checkout {cwd} has tree {written}, wanted {tree}")
    shown = ["diff-files", "--name-only", "-z"]
    output = run_git(shown, cwd=cwd, env=env, hold=hold)
    if output:  # or only times and inodes do
        call_git(["update-index", "-q", "--refresh"], cwd=cwd, env=env, hold=hold)
        output = run_git(shown, cwd=cwd, env=env, hold=hold)
    return [str(Path(path) / name) for name in output.split("\0") if name]


def _make_commit(slot: Slot, tree: str) -> str:
    """Return a commit without parents that stands for a tree whose own commit was not shipped."""
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in _NOBODY.items()}
    args = ["commit-tree", tree, "-m", "bisect-train variant"]
    return run_git(args, cwd=slot.path, env=who, hold=(slot.lock.fd,)).strip()


_NOBODY = {"NAME": "bisect-train", "EMAIL": "bisect-train@localhost", "DATE": "2000-01-01T00:00:00+0000"}
