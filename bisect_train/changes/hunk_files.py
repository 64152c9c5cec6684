"""The files that a commit touches, each with the smallest parts of its change, and the file that any set of parts gives.

| change of a file | parts |
| --- | --- |
| added, deleted, binary, a link, a submodule, another type of file | one: all of it |
| renamed, other permissions | one for that; the content's parts are free of it |
| YAML, JSON or TOML, readable in both versions, other values | one a key; comments and layout follow with the last key |
| a list of requirements | one a package where neighbouring lines change, else one a hunk |
| other text | one a hunk |
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath

from bisect_train.changes.config import ConfigDiff, diff_configs
from bisect_train.changes.hunk_packages import is_requirements, split_by_package
from bisect_train.changes.hunks import DIFF_OPTIONS, Hunk, parse_hunks, splice, split_lines
from bisect_train.changes.packs import check_complete
from bisect_train.changes.plumbing import Git, GitCommandError, fields_of, printable
from bisect_train.core.changes import Change, ChangeKind, FilePatch
from bisect_train.core.errors import RecipeError, UnbuildableError
from bisect_train.core.question import ConfigEnd
from bisect_train.core.secrets import mask_line

MAX_CONFIG_BYTES = 2**20
"""A larger YAML, JSON or TOML file is data (a tokenizer, an index) rather than a config: it is taken line by line."""

_CONFIG_SUFFIXES = frozenset({".yaml", ".yml", ".json", ".toml"})
_REGULAR = frozenset({"100644", "100755"})
_SUBMODULE, _LINK = "160000", "120000"
_RENAMES = ("-M", "--no-rename-empty")
_MAX_SNIPPET = 60  # characters of a line in a title


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a tree: its path, and git's mode and object."""

    path: str
    mode: str
    blob: str


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a file's change: a hunk, a config key's `id`, or, with neither, the file as a whole or its name and mode.

    A hunk that is one package's line among others of a list has that package's name.
    """

    hunk: Hunk | None = None
    key: str = ""
    package: str = ""


class FileChange:
    """A file that two trees have differently.

    Args:
        before, after: the file in both trees; None where it is not.
        hunks: of its content; () if it cannot be taken apart.
        old, new: contents, empty where they are not needed.

    Attributes:
        before, after, old, new: as given.
        config: its keys, if it is a config file that is taken apart by them.
        parts: what can be applied or left out.
    """

    def __init__(
        self, before: Entry | None, after: Entry | None, *, hunks: tuple[Hunk, ...] = (), old: bytes = b"", new: bytes = b""
    ) -> None:
        self.before = before
        self.after = after
        self.old = old
        self.new = new
        self._old_lines, self._new_lines = split_lines(old), split_lines(new)
        if hunks and splice(self._old_lines, self._new_lines, hunks) != new:
            hunks = ()  # not what git compared
        self.config = _config_of(before, after, old, new) if hunks else None
        self.parts = tuple(self._parts(hunks))

    def _parts(self, hunks: tuple[Hunk, ...]) -> Iterator[Part]:
        if not hunks or self.is_moved:
            yield Part()
        if self.config:
            yield from (Part(key=change.id) for change in self.config.changes)
        elif hunks and is_requirements(self.path):
            split = split_by_package(hunks, self._old_lines, self._new_lines)
            yield from (Part(hunk=hunk, package=name) for name, hunk in split)
        else:
            yield from (Part(hunk=hunk) for hunk in hunks)

    @property
    def path(self) -> str:
        """Where the file is after the commit; of a deleted one, where it was."""
        entry = self.after or self.before
        return entry.path if entry else ""

    @property
    def is_moved(self) -> bool:
        """Whether a file that both trees have is renamed or has other permissions."""
        if self.before is None or self.after is None:
            return False
        return (self.before.path, self.before.mode) != (self.after.path, self.after.mode)

    @cached_property
    def is_python(self) -> bool:
        """Whether both versions are valid Python, so that every state in between must be."""
        return self.path.endswith(".py") and all(python_error(data) is None for data in (self.old, self.new))

    def entry_with(self, chosen: Collection[Part]) -> Entry | None:
        """Return the file with some of its parts, or None where it is not there; no object where its content is new."""
        before, after = self.before, self.after
        if before is None or after is None or self.parts == (Part(),):
            return after if chosen else before
        place = after if Part() in chosen or not self.is_moved else before
        num_inside = sum(part != Part() for part in chosen)
        num_all = sum(part != Part() for part in self.parts)
        return replace(place, blob={0: before.blob, num_all: after.blob}.get(num_inside, ""))

    def content_with(self, chosen: Collection[Part]) -> bytes:
        """Return the content with some of the parts, where `entry_with` has no object for it.

        Raises:
            UnbuildableError: the config's format cannot hold these values.
        """
        if self.config is None:
            return splice(self._old_lines, self._new_lines, [part.hunk for part in chosen if part.hunk])
        try:
            return self.config.render([part.key for part in chosen if part.key]).text.encode()
        except RecipeError as error:
            raise UnbuildableError(error.message) from None

    def change_of(self, part: Part) -> Change:
        """Return a part as a change: what a report shows."""
        path = printable(self.path)
        if part.key:
            change = next(change for change in self.config.changes if change.id == part.key) if self.config else None
            return Change(ChangeKind.CONFIG, f"{path}:{part.key}", f"{change.title if change else part.key} (in {path})")
        if part.hunk is None:
            return Change(ChangeKind.HUNK, path, f"{path}: {self._whole_title()}")
        number = part.package or f"{part.hunk.new_start},{part.hunk.new_count}"
        return Change(ChangeKind.HUNK, f"{path}:{number}", f"{path}:{number}: {self._hunk_title(part.hunk)}")

    def _hunk_title(self, hunk: Hunk) -> str:
        old, new = self._old_lines[hunk.old_span], self._new_lines[hunk.new_span]
        added, removed = _snippet(new), _snippet(old)
        shown = f"{removed} -> {added}" if len(old) == len(new) == 1 else added if new else f"without {removed}"
        return f"{shown} (+{len(new)} -{len(old)})"

    def _whole_title(self) -> str:
        before, after = self.before, self.after
        if before is None or after is None:
            mode = before.mode if before else after.mode if after else ""
            kind = {_SUBMODULE: "submodule", _LINK: "link"}.get(mode, "file")
            return f"{kind} added" if before is None else f"{kind} deleted"
        if before.mode == after.mode == _SUBMODULE:
            return f"submodule {before.blob[:12]} -> {after.blob[:12]}"
        said = [f"renamed from {printable(before.path)}"] if before.path != after.path else []
        said += [f"mode {before.mode} -> {after.mode}"] if before.mode != after.mode else []
        if len(self.parts) == 1 and before.blob != after.blob:
            said.append("link changed" if before.mode == after.mode == _LINK else "content changed")
        return ", ".join(said)


def _snippet(lines: Iterable[bytes]) -> str:
    """Return the first line that says something, short enough for a title."""
    texts = (" ".join(line.decode("utf-8", "backslashreplace").split()) for line in lines)
    text = mask_line(printable(next((text for text in texts if text), "blank lines")))
    return text if len(text) <= _MAX_SNIPPET else text[: _MAX_SNIPPET - 3] + "..."


def _config_of(before: Entry | None, after: Entry | None, old: bytes, new: bytes) -> ConfigDiff | None:
    """Return how the keys of a config file differ, or None if it is not one, or its values are the same."""
    names = [PurePosixPath(entry.path) for entry in (before, after) if entry]
    if any(name.suffix.lower() not in _CONFIG_SUFFIXES for name in names) or max(len(old), len(new)) > MAX_CONFIG_BYTES:
        return None
    try:
        ends = [ConfigEnd(str(name), FilePatch(name.name, data.decode())) for name, data in zip(names, (old, new), strict=True)]
        diff = diff_configs(*ends)
    except (UnicodeDecodeError, RecipeError):  # not a mapping, or a program's own dialect
        return None
    return diff if diff.changes and diff.same_format else None


def python_error(data: bytes) -> str | None:
    """Return None for a module that compiles (nothing is run), else where it does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, "module", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg)
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes; nested too deeply
        return str(error)
    return None


def read_files(git: Git, before: str, after: str) -> tuple[FileChange, ...]:
    """Return what differs between two trees, by path.

    Raises:
        UnbuildableError: objects are missing; names the paths.
    """
    try:
        pairs = _entries(git.run("diff-tree", "-r", "-z", "--raw", *_RENAMES, "--no-abbrev", before, after))
        found = parse_hunks(git.run("diff-tree", "-r", "-p", "-U0", *_RENAMES, *DIFF_OPTIONS, before, after))
        hunks = [_hunks_of(*pair, found) for pair in pairs]
        contents = _read_blobs(git, {blob for pair, split in zip(pairs, hunks, strict=True) for blob in _texts(*pair, split)})
    except GitCommandError as error:
        raise _unreadable(git, error, before, after) from error
    files = []
    for (old, new), split in zip(pairs, hunks, strict=True):
        texts = [contents.get(entry.blob, b"") if entry else b"" for entry in (old, new)]
        files.append(FileChange(old, new, hunks=split, old=texts[0], new=texts[1]))
    return tuple(sorted(files, key=lambda file: file.path))


def _entries(raw: bytes) -> list[tuple[Entry | None, Entry | None]]:
    """Return the files before and after, given `diff-tree --raw -z`. Raises GitCommandError where it is something else."""
    try:
        return _pairs_of(raw)
    except (ValueError, StopIteration):
        raise GitCommandError("git diff-tree says something else than asked", stderr="", status=0) from None


def _pairs_of(raw: bytes) -> list[tuple[Entry | None, Entry | None]]:
    pairs: list[tuple[Entry | None, Entry | None]] = []
    fields = iter(fields_of(raw))
    for head in fields:
        old_mode, new_mode, old_blob, new_blob, status = head.removeprefix(":").split()
        old_path = next(fields)
        new_path = next(fields) if status[0] in "RC" else old_path
        before = None if status == "A" else Entry(old_path, old_mode, old_blob)
        after = None if status == "D" else Entry(new_path, new_mode, new_blob)
        pairs.append((before, after))
    return pairs


def _hunks_of(before: Entry | None, after: Entry | None, found: Mapping[tuple[str, str], tuple[Hunk, ...]]) -> tuple[Hunk, ...]:
    """Return where a file that both trees have as a regular one differs."""
    if before is None or after is None or not {before.mode, after.mode} <= _REGULAR:
        return ()
    return found.get((before.blob, after.blob), ())


def _texts(before: Entry | None, after: Entry | None, hunks: tuple[Hunk, ...]) -> tuple[str, ...]:
    """Return the objects of a file whose content is needed: to take it apart, or for the names in a Python file."""
    entries = [entry for entry in (before, after) if entry and entry.mode in _REGULAR]
    is_python = any(entry.path.endswith(".py") for entry in entries)
    return tuple(entry.blob for entry in entries) if hunks or is_python else ()


def _read_blobs(git: Git, blobs: Collection[str]) -> dict[str, bytes]:
    """Return contents by object."""
    names = sorted(blobs)
    data = git.run("cat-file", "--batch", stdin="".join(f"{name}\n" for name in names).encode())
    found: dict[str, bytes] = {}
    start = 0
    for name in names:
        end = data.index(b"\n", start)
        head = data[start:end].split()
        if head[-1] == b"missing":
            raise GitCommandError(f"object {name} is missing", stderr="", status=1)
        start = end + 1 + int(head[-1])
        found[name] = data[end + 1 : start]
        start += 1
    return found


def _unreadable(git: Git, error: GitCommandError, before: str, after: str) -> GitCommandError | UnbuildableError:
    """Return the error to raise: the machine's trouble as it is, else the paths that are missing."""
    if error.is_machine_trouble:
        return error
    for tree in (before, after):
        check_complete(git, tree)
    return UnbuildableError(f"the commit cannot be taken apart: {error.message}", hint="git fsck")
