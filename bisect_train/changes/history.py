"""The commits between good and bad, as `git bisect` sees them, in one linear order.

A candidate is a commit that bad reaches and no good reaches. By default only the main line (first parents) is followed:
prefix k of the candidates is the tree of the k-th. Without first-parent see `linear`. With paths the commits that do not touch
them stay in the list, marked as unlikely: left out, each of them would hide in the step of the next candidate, and that one
would be blamed for it. Everything is read by a handful of git commands, none of them per commit.
"""

from __future__ import annotations

import gc
import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bisect_train.changes.linear import linearise
from bisect_train.changes.plumbing import GitCommandError, fields_of, printable
from bisect_train.changes.repository import HEX_COMMIT, Repository
from bisect_train.core.changes import Change, ChangeKind
from bisect_train.core.errors import InputError, RevisionError
from bisect_train.core.question import Range

_FORMAT = "--format=tformat:%H%x00%P%x00%an%x00%ad%x00%s"
_NUM_FIELDS = 5
_MAX_PARENTS = 1000  # of a merge: what each of its commits is merged with takes the square of it
_LOG = ("log", "-z", _FORMAT, "--date=iso", "--encoding=UTF-8", "--no-color", "--no-decorate", "--no-show-signature")


@dataclass(frozen=True, slots=True)
class CommitRange:
    """The candidates of a range.

    Attributes:
        base: commit that the chain starts on (prefix 0): the first parent of the oldest commit on the main line, the
            newest one there that a good reaches.
        good: the good end: `base` if that is one of the given goods, else the first given good that reaches `base`.
        good_is_base: whether the chain starts at a given good.
        bad: the bad end, the last prefix.
        commits: candidates, oldest first, each after its ancestors.
        changes: one for each commit.
        skipped: prefix numbers (1 for the first commit) that must not be run.
        heads: for each commit, the commits whose ancestors make up the prefix that ends there; one on a main line.
        parents: for each commit, the parents that its own change starts from; only the first on a main line.
        unlikely: indices of commits that touch none of the paths that were asked about.
        merges: indices of commits with two parents or more.
    """

    base: str
    good: str
    good_is_base: bool
    bad: str
    commits: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    skipped: frozenset[int] = frozenset()
    heads: tuple[tuple[str, ...], ...] = ()
    parents: tuple[tuple[str, ...], ...] = ()
    unlikely: frozenset[int] = frozenset()
    merges: frozenset[int] = frozenset()


class _Entry(NamedTuple):  # there may be a hundred thousand: a tuple is made three times as fast as a frozen dataclass
    commit: str
    parents: tuple[str, ...]
    author: str
    date: str
    subject: str


def single_commit(commit: str) -> CommitRange:
    """Return the range without candidates, for a question about one commit's configs."""
    return CommitRange(base=commit, good=commit, good_is_base=True, bad=commit)


def commit_range(repository: Repository, asked: Range) -> CommitRange:
    """Return the candidates of a range.

    Raises:
        RevisionError: no range (the same commit, swapped ends, unrelated histories, cut off by a shallow clone), no
            commit touches the paths, or a skip cannot be used.
    """
    if asked.bad in asked.goods:
        raise RevisionError(f"good and bad are the same commit {asked.bad[:12]}", hint="give two commits that differ")
    with _collector_paused():
        entries = _entries(repository, asked)
        if not entries:
            raise _swapped_error(repository, asked)
        line = _line(entries, asked)
        base = _base(repository, _oldest_on_main_line(entries, asked.bad), asked)
        found = _range_of(repository, asked, base=base, entries=entries, line=line)
    return replace(found, unlikely=_unlikely(repository, asked, found.commits)) if asked.paths else found


def _unlikely(repository: Repository, asked: Range, commits: tuple[str, ...]) -> frozenset[int]:
    touching = touching_commits(repository, asked)
    unlikely = frozenset(idx for idx, commit in enumerate(commits) if commit not in touching)
    if len(unlikely) == len(commits):
        shown = ", ".join(asked.paths)
        raise RevisionError(f"no commit of the range touches {shown}", hint="leave out --path, or give another glob")
    return unlikely


def _range_of(
    repository: Repository,
    asked: Range,
    *,
    base: str,
    entries: dict[str, _Entry],
    line: list[tuple[str, tuple[str, ...]]],
) -> CommitRange:
    good_is_base = base in asked.goods
    chosen = [entries[commit] for commit, _ in line]
    skips = _skips(repository, asked)
    num_parents = 1 if asked.first_parent else None
    return CommitRange(
        base=base,
        good=base if good_is_base else _good_above(repository, base, asked.goods),
        good_is_base=good_is_base,
        bad=asked.bad,
        commits=tuple(entry.commit for entry in chosen),
        changes=_changes_of(chosen),
        skipped=frozenset(idx + 1 for idx, (commit, heads) in enumerate(line) if commit in skips and commit in heads),
        heads=tuple(heads for _, heads in line),
        parents=tuple(entry.parents[:num_parents] for entry in chosen),
        merges=frozenset(idx for idx, entry in enumerate(chosen) if len(entry.parents) > 1),
    )


def _swapped_error(repository: Repository, asked: Range) -> RevisionError:
    bad = asked.bad
    above = (good for good in asked.goods if repository.git.succeeds("merge-base", "--is-ancestor", bad, good))
    good = next(above, asked.goods[0])
    return RevisionError(
        f"bad {bad[:12]} is an ancestor of good {good[:12]}: the ends are swapped",
        hint=f"bisect-train run --good {bad[:12]} --bad {good[:12]}",
    )


def _check_related(repository: Repository, good: str, bad: str) -> None:
    """Raise unless what a good that is no start of the chain shares with bad is known."""
    git = repository.git
    if git.succeeds("merge-base", "--is-ancestor", good, bad):
        return
    if repository.shallow and not repository.shallow.isdisjoint(git.text("rev-list", good, f"^{bad}").split()):
        raise _shallow_error(good, bad)
    if not git.succeeds("merge-base", good, bad):
        raise RevisionError(
            f"good {good[:12]} and bad {bad[:12]} share no history", hint="give two commits of the same history"
        )


def _shallow_error(good: str, bad: str) -> RevisionError:
    message = f"the history between {good[:12]} and {bad[:12]} is cut off in this shallow clone"
    return RevisionError(message, hint="git fetch --unshallow")


def _entries(repository: Repository, asked: Range) -> dict[str, _Entry]:
    """Return the commits of the range by id, newest first; without side branches if only the main line is asked for."""
    options = ("--first-parent",) if asked.first_parent else ("--topo-order",)
    try:
        output = repository.git.run(*_LOG, *options, asked.bad, "--not", *asked.goods, "--")
    except GitCommandError as error:
        if error.is_machine_trouble:
            raise
        raise RevisionError(f"the history of {asked.bad[:12]} cannot be read: {error.message}", hint="git fsck") from error
    fields = fields_of(output)
    if len(fields) % _NUM_FIELDS:
        raise RevisionError(f"git says something else of {asked.bad[:12]} than asked", hint="git --version; git fsck")
    columns = [fields[start::_NUM_FIELDS] for start in range(_NUM_FIELDS)]
    parents = [tuple(text.split()) for text in columns[1]]
    rows = map(_Entry._make, zip(columns[0], parents, *columns[2:], strict=True))
    found = dict(zip(columns[0], rows, strict=True))
    if not repository.shallow.isdisjoint(found):
        raise _shallow_error(asked.goods[0], asked.bad)
    if found and asked.bad not in found:
        raise RevisionError(f"git does not tell the history of {asked.bad[:12]}", hint="git fsck")
    return found


def _line(entries: dict[str, _Entry], asked: Range) -> list[tuple[str, tuple[str, ...]]]:
    if asked.first_parent:
        return [(commit, (commit,)) for commit in reversed(entries)]
    seen: set[str] = set()
    for commit, entry in entries.items():  # newest first
        seen.add(commit)
        if not seen.isdisjoint(entry.parents):
            raise _circle_error(asked.bad)
        if len(entry.parents) > _MAX_PARENTS:
            raise RevisionError(f"{commit[:12]} merges {len(entry.parents):,} branches", hint="leave out --no-first-parent")
    return list(linearise({commit: entry.parents for commit, entry in entries.items()}, asked.bad))


def _oldest_on_main_line(entries: dict[str, _Entry], bad: str) -> _Entry:
    entry = entries[bad]
    for _ in entries:  # a damaged history may go round in circles
        if not entry.parents or entry.parents[0] not in entries:
            return entry
        entry = entries[entry.parents[0]]
    raise _circle_error(bad)


def _circle_error(bad: str) -> RevisionError:
    return RevisionError(f"the history of {bad[:12]} goes round in circles", hint="git fsck")


def _base(repository: Repository, oldest: _Entry, asked: Range) -> str:
    base = oldest.parents[0] if oldest.parents else ""
    for good in asked.goods:
        if good != base:
            _check_related(repository, good, asked.bad)
    if base:
        return base
    # bad merged good's history as a second parent, and its own main line starts elsewhere
    raise RevisionError(
        f"the main line of bad {asked.bad[:12]} never meets good {asked.goods[0][:12]}",
        hint=f"take a good commit from: git log --first-parent {asked.bad[:12]}",
    )


def _good_above(repository: Repository, base: str, goods: tuple[str, ...]) -> str:
    """Return the first given good that reaches the base; there is one, else the base would be a candidate."""
    return next(good for good in goods if repository.git.succeeds("merge-base", "--is-ancestor", base, good))


def touching_commits(repository: Repository, asked: Range, *, option: str = "--path ") -> frozenset[str]:
    """Return the commits of a range that touch one of its paths; `option` is what an error calls them.

    Raises:
        RevisionError: git cannot read a path.
    """
    # git does not tidy `./` and `src/` itself where there is no working tree
    tidy = [posixpath.normpath(path) for path in asked.paths]
    globs = [":(top,glob)" + ("**" if path == "." else path) for path in tidy]
    walk = "--first-parent" if asked.first_parent else "--full-history"
    try:
        return frozenset(repository.git.text("rev-list", walk, asked.bad, "--not", *asked.goods, "--", *globs).split())
    except GitCommandError as error:
        if error.is_machine_trouble:
            raise
        rule = "a path is a glob relative to the top of the repository"
        raise RevisionError(f"{option}{' '.join(asked.paths)}: {error.message}", hint=rule) from error


def _skips(repository: Repository, asked: Range) -> frozenset[str]:
    skips = resolve_skips(repository, asked.skips)
    if asked.bad in skips:
        raise RevisionError(f"the bad end {asked.bad[:12]} cannot be skipped", hint="give another --bad")
    return frozenset(skips)


def resolve_skips(repository: Repository, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the commits, 40 hex digits, of `--skip` revisions; `A..B` stands for all commits that B has and A has not.

    Raises:
        RevisionError: a revision is unknown.
    """
    found: list[str] = []
    for text in texts:
        start, dots, end = text.partition("..")
        if HEX_COMMIT.fullmatch(text):
            found.append(text)
        elif not dots or end.startswith("."):
            found.append(repository.resolve(text))
        else:
            first, last = repository.resolve(start or "HEAD"), repository.resolve(end or "HEAD")
            found += repository.git.text("rev-list", last, f"^{first}").split()
    _check_commits(repository, found)
    return tuple(dict.fromkeys(found))


def read_skip_file(repository: Repository, path: Path) -> tuple[str, ...]:
    """Return the commits, 40 hex digits, that a file names: a revision or a range A..B a line; `#` begins a comment.

    Raises:
        InputError: the file cannot be read.
        RevisionError: a revision is unknown; names file and line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"--skip-file {path} cannot be read: {error.strerror}", hint="it holds a revision a line") from None
    except UnicodeDecodeError:
        raise InputError(f"--skip-file {path} is not UTF-8 text", hint="it holds a revision a line") from None
    # a branch may have a # in its name, but no blank before it
    revs = [(number, re.sub(r"(^|\s)#.*", "", line).strip()) for number, line in enumerate(lines, start=1)]
    found = [(number, rev) for number, rev in revs if rev]
    try:
        return resolve_skips(repository, tuple(rev for _, rev in found))
    except RevisionError:
        for number, rev in found:  # which one is it?
            _resolve_line(repository, rev, place=f"{path}:{number}")
        raise


def _resolve_line(repository: Repository, rev: str, *, place: str) -> None:
    try:
        resolve_skips(repository, (rev,))
    except RevisionError as error:
        raise RevisionError(f"{place}: {error.message}", hint=error.hint) from None


def _check_commits(repository: Repository, commits: list[str]) -> None:
    if not commits:
        return
    lines = "".join(f"{commit}\n" for commit in commits).encode()
    kinds = repository.git.text("cat-file", "--batch-check=%(objecttype)", stdin=lines).splitlines()
    for commit, kind in zip(commits, kinds, strict=True):
        if kind != "commit":
            repository.resolve(commit)  # raises what a person should read


def _changes_of(entries: Sequence[_Entry]) -> tuple[Change, ...]:
    authors = {author: printable(author) for author in {entry.author for entry in entries}}
    return tuple(
        Change(ChangeKind.COMMIT, commit, printable(subject), f"{authors[author]}, {date}")
        for commit, _, author, date, subject in entries
    )


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep python's garbage collector from walking over a hundred thousand new objects again and again: a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
