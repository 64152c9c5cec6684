"""Real git repositories for tests, and what a worker would see of the packs that are made from them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bisect_train.changes.repository import Repository
from bisect_train.core.changes import FilePatch
from bisect_train.core.probe import Pack, Rung, RunSettings
from bisect_train.core.question import ConfigEnd, Question, Range

_IDENTITY = {
    "GIT_AUTHOR_NAME": "A U Thor",
    "GIT_AUTHOR_EMAIL": "author@example.org",
    "GIT_COMMITTER_NAME": "A U Thor",
    "GIT_COMMITTER_EMAIL": "author@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "LC_ALL": "C",
}

GOOD_CONFIG = ConfigEnd("good.yaml", FilePatch("train.yaml", "lr: 0.1\nlayers: 2\nseed: 1\n"))
BAD_CONFIG = ConfigEnd("bad.yaml", FilePatch("train.yaml", "lr: 0.2\nlayers: 4\nseed: 1\n"))


def git(folder: Path, *args: str, stdin: bytes = b"", check: bool = True) -> str:
    """Run git as a user in a folder and return what it printed."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | _IDENTITY
    command = ["git", "-c", "protocol.file.allow=always", *args]
    result = subprocess.run(command, cwd=folder, env=env, input=stdin, capture_output=True, check=False)
    if check and result.returncode != 0:
        raise AssertionError(f"git {' '.join(args)}: {result.stderr.decode()}")
    return result.stdout.decode(errors="surrogateescape").strip()


@dataclass
class UserRepo:
    """A user's repository; commits get dates that grow by a minute."""

    path: Path
    num_commits: int = 0

    @staticmethod
    def create(path: Path) -> UserRepo:
        """Make an empty repository with the branch `main`."""
        path.mkdir(parents=True)
        git(path, "init", "-q", "-b", "main")
        return UserRepo(path)

    def git(self, *args: str, check: bool = True) -> str:
        """Run git in the repository."""
        return git(self.path, *args, check=check)

    def write(self, name: str, text: str | bytes) -> None:
        """Write a file."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())

    def commit(self, files: Mapping[str, str | bytes | None] | None = None, *, message: str = "") -> str:
        """Write (or with None remove) files and commit all; without files the commit is empty."""
        for name, text in (files or {}).items():
            if text is None:
                (self.path / name).unlink()
            else:
                self.write(name, text)
        self.git("add", "-A")
        self.num_commits += 1
        date = f"{1700000000 + 60 * self.num_commits} +0000"
        text = message or f"commit {self.num_commits}"
        self.git("-c", "gc.auto=0", "commit", "-q", "--allow-empty", f"--date={date}", "-m", text)
        return self.head

    def merge(self, *branches: str, message: str = "merge") -> str:
        """Merge branches into the current one, never by fast-forward."""
        self.git("merge", "-q", "--no-ff", "-m", message, *branches)
        return self.head

    @property
    def head(self) -> str:
        """HEAD's commit."""
        return self.git("rev-parse", "HEAD")

    def open(self, home: Path) -> Repository:
        """Open it as the tool does."""
        return Repository.open(self.path, home=home)


def question_of(
    goods: str | tuple[str, ...],
    bad: str,
    *,
    command: tuple[str, ...] = ("python", "train.py"),
    good_config: ConfigEnd | None = None,
    bad_config: ConfigEnd | None = None,
    override: str = "",
    config_path: str = "",
    **range_options: object,
) -> Question:
    """Return a question about a range; `range_options` go to `Range`."""
    ends = (goods,) if isinstance(goods, str) else goods
    return Question(
        kind="run",
        repo="",
        range=Range(goods=ends, bad=bad, **range_options),  # type: ignore[arg-type]
        command=command,
        settings=RunSettings(python="python"),
        rung=Rung(steps=1),
        good_config=good_config,
        bad_config=bad_config,
        override=override,
        config_path=config_path,
    )


def files_on_worker(packs: Iterable[Pack], tree: str, folder: Path) -> dict[str, bytes]:
    """Return a tree's files (submodules aside) as a worker reads them that has nothing but the packs."""
    folder.mkdir()
    git(folder, "init", "-q", "--bare")
    for pack in packs:
        git(folder, "index-pack", "--stdin", stdin=pack.data)
    return files_of(folder, tree)


def files_of(folder: Path, tree: str) -> dict[str, bytes]:
    """Return the files of a tree by path; a file that is missing raises."""
    entries = [line.partition("\t") for line in git(folder, "ls-tree", "-r", "-z", tree).split("\0") if line]
    found = {}
    for head, _, path in entries:
        _, kind, name = head.split()
        if kind == "blob":
            found[path] = subprocess.check_output(["git", "cat-file", "blob", name], cwd=folder)
    return found


def state_of(path: Path) -> dict[str, tuple[int, int, str]]:
    """Return mode, time of the last change and content of everything below a folder, folders and links too.

    The times of git's object files are left out: git sets them when it would have written the same object again.
    """
    found = {}
    for item in [path, *sorted(path.rglob("*"))]:
        stat = item.lstat()
        content = ""
        if item.is_symlink():
            content = str(item.readlink())
        elif item.is_file():
            content = hashlib.sha256(item.read_bytes()).hexdigest()
        name = str(item.relative_to(path))
        is_object = name.startswith(".git/objects/") and item.is_file()
        found[name] = (stat.st_mode, 0 if is_object else stat.st_mtime_ns, content)
    return found
