"""Submodules of a tree, at the commits that the tree records, found where the user's repository keeps them.

Nothing is fetched and no submodule is opened as a repository: its object folder is read through our mirror. A gitlink that
`.gitmodules` does not know stays an empty folder, as in any clone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bisect_train.changes.plumbing import Git, fields_of, printable
from bisect_train.changes.repository import Repository, object_folders
from bisect_train.core.changes import Subtree
from bisect_train.core.errors import UnbuildableError

_MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Submodule:
    """A submodule's tree in a checkout, and the folders that its objects are read from."""

    subtree: Subtree
    objects: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tree lies: read by `git`, at `path` in the checkout, its own submodules in `git_dirs`."""

    git: Git
    tree: str
    path: str
    git_dirs: tuple[Path, ...]


class SubmoduleFinder:
    """Finds the submodules of trees, and remembers them.

    Args:
        repository: the user's.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._found: dict[str, tuple[Submodule, ...]] = {}

    def find(self, tree: str) -> tuple[Submodule, ...]:
        """Return a tree's submodules, each followed by its own.

        Raises:
            UnbuildableError: a submodule or its recorded commit is missing; names the command that brings it.
        """
        if tree not in self._found:
            dirs = tuple(dict.fromkeys((self._repository.git_dir, self._repository.common_dir)))
            self._found[tree] = tuple(self._walk(_Place(self._repository.git, tree, "", dirs), depth=0))
        return self._found[tree]

    def _walk(self, place: _Place, *, depth: int) -> list[Submodule]:
        found: list[Submodule] = []
        names = _names_by_path(place.git, place.tree)
        links = _gitlinks(place.git, place.tree) if names and depth < _MAX_DEPTH else {}
        for path, commit in links.items():
            if path in names:
                inner, submodule = self._locate(place, path, names[path], commit)
                found += [submodule, *self._walk(inner, depth=depth + 1)]
        return found

    def _locate(self, place: _Place, path: str, name: str, commit: str) -> tuple[_Place, Submodule]:
        whole = f"{place.path}{path}"
        for git_dir in self._git_dirs(place, whole, name):
            result = Git(git_dir).attempt("rev-parse", "--verify", "-q", f"{commit}^{{tree}}")
            if result.returncode == 0:
                folders = tuple(object_folders(git_dir))
                tree = result.stdout.decode().strip()
                inner = _Place(self._repository.git.with_objects(folders), tree, f"{whole}/", (git_dir,))
                return inner, Submodule(Subtree(whole, tree), folders)
        raise UnbuildableError(
            f"submodule {printable(whole)} lacks its commit {commit[:12]}",
            hint=f"git submodule update --init --recursive -- {printable(whole)}, or git fetch in it",
        )

    def _git_dirs(self, place: _Place, whole: str, name: str) -> list[Path]:
        """Return the git directories that may be this submodule's, the likeliest first."""
        from git.repo.fun import find_submodule_git_dir  # GitPython starts git when imported

        found: list[Path] = []
        if ".." not in PurePosixPath(name).parts and not name.startswith("/"):
            found += [folder / "modules" / name for folder in place.git_dirs]
        if not self._repository.is_bare:
            worktree = self._repository.root / whole
            link = find_submodule_git_dir(str(worktree / ".git"))
            found += [worktree / link] if link else []
        return [folder for folder in found if (folder / "objects").is_dir()]


def _names_by_path(git: Git, tree: str) -> dict[str, str]:
    """Return the submodules' names by path, from the tree's `.gitmodules`."""
    blob = git.attempt("rev-parse", "--verify", "-q", f"{tree}:.gitmodules")
    if blob.returncode != 0:
        return {}
    listing = ("config", "--blob", blob.stdout.decode().strip(), "-z", "--get-regexp", r"^submodule\..*\.path$")
    pairs = (item.partition("\n") for item in fields_of(git.attempt(*listing).stdout))
    return {path.rstrip("/"): key.removeprefix("submodule.").removesuffix(".path") for key, _, path in pairs}


def _gitlinks(git: Git, tree: str) -> dict[str, str]:
    """Return the commits of a tree's gitlinks by path."""
    entries = (item.partition("\t") for item in fields_of(git.run("ls-tree", "-r", "-z", tree)))
    split = ((head.split(), path) for head, _, path in entries)
    return {path: commit for (mode, _, commit), path in split if mode == "160000"}
