"""Submodules of a tree, at the commits that the tree records, found where the user's repository keeps them.

Nothing is fetched, and a submodule's repository is only read: its objects are borrowed by a mirror of ours, where trees of
its own that nobody committed are written. A gitlink that `.gitmodules` does not know stays an empty folder, as in any clone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from bisect_train.changes.fixup_patch import scratch_index
from bisect_train.changes.plumbing import Git, fields_of, printable
from bisect_train.changes.repository import Repository, object_folders
from bisect_train.changes.worktree import write_commit
from bisect_train.core.changes import Subtree
from bisect_train.core.errors import UnbuildableError

_GITLINK = "160000"
_MODULES = ".gitmodules"
_MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Submodule:
    """A submodule's tree in a checkout, and the folders that its objects are read from."""

    subtree: Subtree
    objects: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Bump:
    """A submodule that a change moves: its path in the checkout, and its commits before and after, 40 hex digits each."""

    path: str
    low: str
    high: str

    @property
    def title(self) -> str:
        """One line for a person: `libs/opt: 1a2b3c4d -> 3c4d5e6f`."""
        return f"{printable(self.path)}: {self.low[:8]} -> {self.high[:8]}"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tree lies: read and written by `git`, at `path` in the checkout, its own submodules in `git_dirs`."""

    git: Git
    tree: str
    path: str
    git_dirs: tuple[Path, ...]


class SubmoduleFinder:
    """Finds the submodules of trees, and records other commits of theirs in a tree. Remembers what it has found.

    Args:
        repository: the user's.
        clones: (path in the checkout as `canonicalize_name` writes it, folder) of repositories that are looked into first.
    """

    def __init__(self, repository: Repository, clones: Sequence[tuple[str, str]] = ()) -> None:
        self._repository = repository
        self._clones = {name: Path(folder) for name, folder in clones}
        self._sources: dict[Path, Repository] = {}
        self._found: dict[str, tuple[Submodule, ...]] = {}

    def find(self, tree: str) -> tuple[Submodule, ...]:
        """Return a tree's submodules, each followed by its own.

        Raises:
            UnbuildableError: a submodule or its recorded commit is missing; names the command that brings it.
            InputError: the clone that was named for it cannot be opened.
        """
        if tree not in self._found:
            self._found[tree] = tuple(self._walk(self._root(tree), depth=0))
        return self._found[tree]

    def record(self, tree: str, path: str, commit: str) -> str:
        """Return a tree in which a submodule, perhaps within another one, is at another commit.

        Raises:
            UnbuildableError: there is no such submodule, or one around it is missing.
        """
        return self._record(self._root(tree), path, commit)

    def source_of(self, tree: str, bump: Bump) -> Repository:
        """Return the repository that has both commits of a submodule of a tree; of several, one with a whole history.

        Raises:
            UnbuildableError: there is none.
            InputError: the clone that was named for it cannot be opened.
        """
        place, name = self._around(self._root(tree), bump.path)
        able = [
            source for source in self._candidates(place, bump.path, name) if all(map(source.has_object, (bump.low, bump.high)))
        ]
        if not able:
            raise UnbuildableError(
                f"no clone of the submodule {printable(bump.path)} has both {bump.low[:12]} and {bump.high[:12]}",
                hint=_how_to_get(bump.path),
            )
        return min(able, key=lambda source: bool(source.shallow))

    def _root(self, tree: str) -> _Place:
        dirs = tuple(dict.fromkeys((self._repository.git_dir, self._repository.common_dir)))
        return _Place(self._repository.git, tree, "", dirs)

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
        sources = list(self._candidates(place, whole, name))
        for source in sources:
            result = source.git.attempt("rev-parse", "--verify", "-q", f"{commit}^{{tree}}")
            if result.returncode == 0:
                tree = result.stdout.decode().strip()
                dirs = tuple(dict.fromkeys((source.common_dir, *(other.common_dir for other in sources))))
                inner = _Place(source.git, tree, f"{whole}/", dirs)
                return inner, Submodule(Subtree(whole, tree), tuple(object_folders(source.mirror)))
        raise UnbuildableError(f"submodule {printable(whole)} lacks its commit {commit[:12]}", hint=_how_to_get(whole))

    def _around(self, place: _Place, path: str) -> tuple[_Place, str]:
        """Return the place whose own submodule lies at a path in the checkout, and that submodule's name."""
        names = _names_by_path(place.git, place.tree)
        for inner, name in names.items():
            whole = f"{place.path}{inner}"
            if whole == path:
                return place, name
            commit = _gitlinks(place.git, place.tree).get(inner) if path.startswith(f"{whole}/") else None
            if commit is not None:
                return self._around(self._locate(place, inner, name, commit)[0], path)
        raise UnbuildableError(f"{printable(path)} is no submodule that {_MODULES} knows", hint="git submodule status")

    def _record(self, place: _Place, path: str, commit: str) -> str:
        links = _gitlinks(place.git, place.tree)
        inner_path = path.removeprefix(place.path)
        if inner_path in links:
            return _write_gitlink(place, inner_path, commit)
        names = _names_by_path(place.git, place.tree)
        outer = next((link for link in links if link in names and inner_path.startswith(f"{link}/")), None)
        if outer is None:
            raise UnbuildableError(f"{printable(path)} is no submodule of the tree {place.tree[:12]}")
        inner, _ = self._locate(place, outer, names[outer], links[outer])
        tree = self._record(inner, path, commit)
        return _write_gitlink(place, outer, _commit_of(inner.git, tree, near=links[outer]))

    def _candidates(self, place: _Place, whole: str, name: str) -> Iterator[Repository]:
        """Yield the repositories that may be this submodule's, the likeliest first."""
        clone = self._clones.get(canonicalize_name(whole))
        if clone is not None:
            yield self._opened(Repository.open(clone, home=self._repository.home).common_dir)
        yield from map(self._opened, self._git_dirs(place, whole, name))

    def _opened(self, git_dir: Path) -> Repository:
        if git_dir not in self._sources:
            self._sources[git_dir] = Repository.of_git_dir(git_dir, home=self._repository.home)
        return self._sources[git_dir]

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


def open_source(folder: Path, *, home: Path) -> Repository:
    """Return the repository of a submodule, given its git directory or a clone.

    Raises:
        InputError, MachineError: as `Repository.open`.
    """
    is_git_dir = (folder / "objects").is_dir() and (folder / "HEAD").is_file()
    return Repository.of_git_dir(folder, home=home) if is_git_dir else Repository.open(folder, home=home)


def bump_between(git: Git, before: str, after: str, *, path: str = "") -> Bump | None:
    """Return the submodule whose commit is all that two trees have differently, or None.

    What `.gitmodules` says beside it (another address, say) changes no checkout and does not count.

    Args:
        git: on a mirror.
        before, after: trees or commits.
        path: look at this path alone, if it is given.
    """
    options = ("-r", "-z", "--raw", "--no-renames", "--full-index")
    result = git.attempt("diff-tree", *options, before, after, "--", *([f":(literal){path}"] if path else []))
    fields = fields_of(result.stdout)
    rows = [(head[1:].split(), place) for head, place in zip(fields[::2], fields[1::2], strict=True) if place != _MODULES]
    if len(rows) != 1:
        return None
    (old_mode, new_mode, low, high, _), place = rows[0]
    return Bump(place, low, high) if old_mode == new_mode == _GITLINK else None


def _how_to_get(path: str) -> str:
    shown = printable(path)
    update = f"git submodule update --init --recursive -- {shown}, or git fetch in it"
    return f"{update}; --package-repo {shown}=DIR names another clone"


def _write_gitlink(place: _Place, path: str, commit: str) -> str:
    with scratch_index(place.git) as index:
        index.run("read-tree", place.tree)
        line = f"{_GITLINK} {commit}\t{path}\0"
        index.run("update-index", "-z", "--index-info", stdin=line.encode("utf-8", "surrogateescape"))
        return index.text("write-tree", "--missing-ok")


def _commit_of(git: Git, tree: str, *, near: str) -> str:
    """Return a commit with a tree: `near` or its first parent if they have it, else a synthetic one."""
    for known in (near, f"{near}^"):
        listed = git.attempt("log", "-1", "--format=%H %T", known, "--")
        commit, _, has = listed.stdout.decode().strip().partition(" ")
        if listed.returncode == 0 and has == tree:
            return commit
    return write_commit(git, tree, message=f"bisect-train: {near[:12]} with another submodule", parents=(near,))


def _names_by_path(git: Git, tree: str) -> dict[str, str]:
    """Return the submodules' names by path, from the tree's `.gitmodules`."""
    blob = git.attempt("rev-parse", "--verify", "-q", f"{tree}:{_MODULES}")
    if blob.returncode != 0:
        return {}
    listing = ("config", "--blob", blob.stdout.decode().strip(), "-z", "--get-regexp", r"^submodule\..*\.path$")
    pairs = (item.partition("\n") for item in fields_of(git.attempt(*listing).stdout))
    return {path.rstrip("/"): key.removeprefix("submodule.").removesuffix(".path") for key, _, path in pairs}


def _gitlinks(git: Git, tree: str) -> dict[str, str]:
    """Return the commits of a tree's gitlinks by path."""
    entries = (item.partition("\t") for item in fields_of(git.run("ls-tree", "-r", "-z", tree)))
    split = ((head.split(), path) for head, _, path in entries)
    return {path: commit for (mode, _, commit), path in split if mode == _GITLINK}
