"""The user's repository, which is only read, and our own bare mirror, where synthetic objects are written.

The mirror has no copy of the history: its `objects/info/alternates` points at the user's object folder. Commands run on the
mirror; only names (branches, tags, reflogs) are looked up with the user's own git directory, by commands that write nothing.
One trace is left: git sets the modification time of an object of the user's that it would have written again.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bisect_train.changes.plumbing import Git, decode, isolated_environment, printable, quote_path, run_git
from bisect_train.changes.worktree import snapshot
from bisect_train.core.errors import InputError, MachineError, RevisionError

HEX_COMMIT = re.compile(r"[0-9a-f]{40}")
_MAX_ALTERNATES = 32


@dataclass(frozen=True, slots=True)
class Repository:
    """An opened repository.

    Attributes:
        root: top level of the working tree; the git directory of a bare repository.
        key: stable short name and digest; the same for all worktrees of one repository.
        git_dir: the user's git directory (of this worktree).
        common_dir: the user's git directory that all worktrees share.
        is_bare: whether there is no working tree.
        home: folder of our own state.
        mirror: our bare mirror.
        shallow: commits whose parents a shallow clone has cut off.
        is_partial: whether a partial clone may lack objects.
    """

    root: Path
    key: str
    git_dir: Path
    common_dir: Path
    is_bare: bool
    home: Path
    mirror: Path
    shallow: frozenset[str]
    is_partial: bool

    @staticmethod
    def open(path: Path, *, home: Path) -> Repository:
        """Return the repository that `path` lies in, with its mirror under `home`.

        Args:
            path: the repository, a folder inside it, one of its worktrees, or a bare repository.
            home: BISECT_TRAIN_HOME.
        Raises:
            InputError: not a git repository, or one that cannot be used; names the path and the next command.
            MachineError: `home` cannot be written, or git is missing.
        """
        return _with_mirror(*_discover(path), home=home)

    @staticmethod
    def of_git_dir(git_dir: Path, *, home: Path) -> Repository:
        """Return the repository of a whole git directory (a submodule's, say), whatever has become of its working tree.

        Raises:
            MachineError: as `open`.
        """
        folder = git_dir.resolve()
        return _with_mirror(folder, folder, folder, True, home=home)

    @property
    def git(self) -> Git:
        """Runs commands on our mirror: reads the user's objects too, writes to the mirror only."""
        return Git(self.mirror)

    @property
    def names(self) -> Git:
        """Reads names with the user's git directory; for commands that write nothing."""
        return Git(self.git_dir)

    def resolve(self, rev: str) -> str:
        """Return the commit, 40 hex digits, that a revision names; a tag is peeled.

        Raises:
            RevisionError: unknown (names the nearest branch or tag), ambiguous, not a commit, or begins with a dash.
        """
        if not rev or rev.startswith("-") or "\0" in rev:
            rule = "a revision is a commit, a branch or a tag and does not begin with a dash"
            raise RevisionError(f"{printable(rev)!r} is not a revision", hint=rule)
        # `:/text` takes all that follows as the text to look for
        peeled = rev if rev.startswith(":/") else f"{rev}^{{commit}}"
        result = self.names.attempt("rev-parse", "--verify", "--end-of-options", peeled)
        found = decode(result.stdout).split()
        # git before 2.30 echoes --end-of-options
        if result.returncode != 0 or not found or not HEX_COMMIT.fullmatch(found[-1]):
            raise self._unresolved(rev, decode(result.stderr))
        if "is ambiguous" in decode(result.stderr):
            self._check_one_meaning(rev)
        return found[-1]

    def has_object(self, name: str) -> bool:
        """Return whether an object is at hand, the user's or one of ours."""
        return self.git.attempt("cat-file", "-e", name).returncode == 0

    def has_own(self, commit: str) -> bool:
        """Return whether the user's own repository has a commit (a snapshot lies in our mirror only)."""
        return self.names.attempt("cat-file", "-e", f"{commit}^{{commit}}").returncode == 0

    def may_have_file(self, commit: str, path: str) -> bool:
        """Return False only if a commit surely has no file at a path (`/` between parts, no `..`).

        A submodule on the way, or a tree that a partial clone lacks, may have it.
        """
        parts = path.split("/")
        ways = ["/".join(parts[:num]) for num in range(1, len(parts) + 1)]
        listed = self.git.attempt("ls-tree", "-z", commit, "--", *ways)
        entries = [entry.partition("\t") for entry in decode(listed.stdout).split("\0") if entry]
        is_there = any(name == path or head.split()[1] == "commit" for head, _, name in entries)
        return is_there or listed.returncode != 0

    def tracked_at(self, commit: str, path: str) -> str:
        """Return what a commit has at a path, or the file that it has where one of its folders would be; "" without one."""
        parts = path.split("/")
        ways = ["/".join(parts[:num]) for num in range(1, len(parts) + 1)]
        listed = self.git.attempt("ls-tree", "-z", commit, "--", *ways)
        for entry in decode(listed.stdout).split("\0"):
            head, _, name = entry.partition("\t")
            if name == path or (name in ways and head.split()[1] == "blob"):
                return name
        return ""

    def tracked_files(self) -> tuple[str, ...]:
        """Return the paths that the working tree's index holds, `/` between parts; () for a bare repository."""
        if self.is_bare:
            return ()
        listed = self.names.attempt("ls-files", "-z")
        return tuple(path for path in decode(listed.stdout).split("\0") if path)

    def snapshot_worktree(self, *, exclude: tuple[str, ...] = ()) -> str:
        """Return the commit that holds the working tree with its uncommitted and untracked files; see `worktree.snapshot`."""
        return snapshot(self, exclude=exclude)

    def _unresolved(self, rev: str, stderr: str) -> RevisionError:
        shown = printable(rev)
        if "is ambiguous" in stderr:
            candidates = re.findall(r"^(?:hint:|error:)?\s+([0-9a-f]{4,40}) commit", stderr, flags=re.MULTILINE)
            meant = f"it could be {', '.join(candidates)}" if candidates else "give more digits of the commit"
            return RevisionError(f"{shown!r} is ambiguous", hint=meant)
        kind = self.names.attempt("cat-file", "-t", rev)
        if kind.returncode == 0 and kind.stdout.strip() in (b"blob", b"tree"):
            return RevisionError(f"{shown!r} is a {decode(kind.stdout).strip()}, not a commit", hint="name a commit")
        return RevisionError(f"unknown revision {shown!r} in {self.root}", hint=self._suggestion(rev))

    def _suggestion(self, rev: str) -> str:
        names = self.names.text("for-each-ref", "--format=%(refname:short)").splitlines()
        near = difflib.get_close_matches(rev, names, n=1, cutoff=0.6)
        if near:
            return f"did you mean {printable(near[0])!r}?"
        if self.shallow:
            return "this is a shallow clone: git fetch --unshallow"
        if not names and self.names.attempt("rev-parse", "--verify", "-q", "HEAD").returncode != 0:
            return "the repository has no commits yet: git commit"
        return "git log --oneline --all shows the commits; git fetch --tags brings missing ones"

    def _check_one_meaning(self, rev: str) -> None:
        places = [f"refs/{kind}/{rev}" for kind in ("tags", "heads", "remotes")]
        commits = {}
        for place in places:
            result = self.names.attempt("rev-parse", "--verify", "-q", f"{place}^{{commit}}")
            if result.returncode == 0:
                commits[place] = result.stdout.strip()
        if len(set(commits.values())) > 1:
            raise RevisionError(f"{printable(rev)!r} is ambiguous", hint=f"name one of {', '.join(commits)}")


def _with_mirror(git_dir: Path, common_dir: Path, root: Path, is_bare: bool, *, home: Path) -> Repository:
    key = _key_of(common_dir)
    home = home.absolute()
    mirror = home / "mirrors" / f"{key}.git"
    shallow = _shallow_commits(common_dir)
    _prepare_mirror(mirror, common_dir=common_dir, shallow=shallow)
    is_partial = any(any((folder / "pack").glob("*.promisor")) for folder in object_folders(common_dir))
    return Repository(root, key, git_dir, common_dir, is_bare, home, mirror, shallow, is_partial)


def common_dir_of(path: Path) -> Path:
    """Return the git directory that all worktrees of a repository share; makes nothing. Raises InputError: there is none."""
    return _discover(path)[1]


def _key_of(common_dir: Path) -> str:
    name = common_dir.parent.name if common_dir.name == ".git" else common_dir.stem
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "repository"
    return f"{slug[:40]}-{hashlib.sha256(os.fsencode(common_dir)).hexdigest()[:12]}"


def _discover(path: Path) -> tuple[Path, Path, Path, bool]:
    """Return git directory, common directory, top level, whether bare; by git itself, with the user's safe.directory."""
    if not path.exists():
        raise InputError(f"{path} does not exist", hint="give the repository with --repo DIR")
    folder = (path if path.is_dir() else path.parent).resolve()
    env = isolated_environment()
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"):  # safe.directory is read from these only
        env.pop(name)
    asked = ["--path-format=absolute", "--absolute-git-dir", "--git-common-dir", "--is-bare-repository"]
    asked += ["--is-inside-work-tree", "--show-object-format"]
    result = run_git(["rev-parse", *asked], env=env, cwd=folder)
    if result.returncode != 0:
        raise _not_a_repository(path, folder, decode(result.stderr))
    *folders, bare, inside, object_format = decode(result.stdout).removesuffix("\n").rsplit("\n", 3)
    if object_format != "sha1":
        raise InputError(f"{path} uses {object_format} object names", hint="only SHA-1 repositories can be bisected")
    git_dir, common_dir = _split_folders(folders[0])
    if inside != "true":
        return git_dir, common_dir, (git_dir if bare == "true" else git_dir.parent), bare == "true"
    top = run_git(["rev-parse", "--show-toplevel"], env=env, cwd=folder)
    return git_dir, common_dir, Path(decode(top.stdout).removesuffix("\n")), False


def _split_folders(text: str) -> tuple[Path, Path]:
    """Return the two folders of two lines, either of which may hold a newline itself."""
    lines = text.split("\n")
    half = len(lines) // 2
    for cut in (half, *range(1, len(lines))):
        first, second = Path("\n".join(lines[:cut])), Path("\n".join(lines[cut:]))
        if first.is_dir() and second.is_dir():
            return first.resolve(), second.resolve()
    raise InputError(f"the git directory {text!r} cannot be read", hint="git rev-parse --git-dir")


def _not_a_repository(path: Path, folder: Path, stderr: str) -> InputError:
    if "dubious ownership" in stderr or "unsafe repository" in stderr:
        command = f"git config --global --add safe.directory {folder}"
        return InputError(f"git does not trust {path}: it belongs to another user", hint=command)
    if "not a git repository" in stderr:
        return InputError(f"{path} is not a git repository", hint="give one with --repo DIR, or make one: git init")
    reason = stderr.strip().splitlines()[-1] if stderr.strip() else "git says nothing"
    return InputError(f"git cannot use {path}: {reason}", hint=f"git -C {path} status")


def _shallow_commits(common_dir: Path) -> frozenset[str]:
    try:
        return frozenset((common_dir / "shallow").read_text().split())
    except FileNotFoundError:
        return frozenset()


def object_folders(common_dir: Path) -> list[Path]:
    """Return a repository's object folder and all that it borrows from, in order, each once."""
    found: list[Path] = []
    waiting = [common_dir / "objects"]
    while waiting and len(found) < _MAX_ALTERNATES:
        folder = waiting.pop(0)
        if folder in found or not folder.is_dir():
            continue
        found.append(folder)
        listing = folder / "info" / "alternates"
        lines = decode(listing.read_bytes()).splitlines() if listing.is_file() else []
        waiting += [(folder / line).resolve() for line in lines if line and not line.startswith(("#", '"'))]
    return found


def _prepare_mirror(mirror: Path, *, common_dir: Path, shallow: frozenset[str]) -> None:
    """Make the mirror, or bring its pointers up to date."""
    alternates = "".join(f"{quote_path(folder)}\n" for folder in object_folders(common_dir))
    try:
        if not (mirror / "HEAD").is_file():
            _create_mirror(mirror)
        _write_if_changed(mirror / "objects" / "info" / "alternates", os.fsencode(alternates))
        _write_if_changed(mirror / "shallow", "".join(f"{commit}\n" for commit in sorted(shallow)).encode())
    except OSError as error:
        hint = "make room there, or set BISECT_TRAIN_HOME to a folder that can be written"
        raise MachineError(f"cannot write to {error.filename or mirror}: {error.strerror}", hint=hint) from error


def _create_mirror(mirror: Path) -> None:
    mirror.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=mirror.parent))
    try:
        Git(scratch).run("init", "--quiet", "--bare", "--template=", "--initial-branch=unused", str(scratch))
        try:
            scratch.rename(mirror)
        except OSError:
            if not (mirror / "HEAD").is_file():  # else another process was faster
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_if_changed(path: Path, content: bytes) -> None:
    """Write beside and rename; an empty content means no file."""
    if not content:
        path.unlink(missing_ok=True)
        return
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
    Path(scratch).rename(path)
