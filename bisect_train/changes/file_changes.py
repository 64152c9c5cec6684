"""Which files each step of a line of commits changes: two git commands for as many steps as are asked for, no content read."""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import dirname

from bisect_train.changes.plumbing import Git, GitCommandError, decode
from bisect_train.changes.untouched import FileChange

Steps = list[tuple[FileChange, ...] | None]

_DIFF = ("diff-tree", "--stdin", "-r", "-z", "--raw", "--no-renames", "--no-abbrev")


def read_file_changes(git: Git, pairs: Sequence[tuple[str, str]]) -> Steps:
    """Return what differs between the commits of each pair (before, after); None where it cannot be known.

    Args:
        git: on our mirror.
        pairs: 40 hex digits each; no `after` twice.
    """
    # "COMMIT PARENT" lines: the second commit stands for the first one's parent
    lines = "".join(f"{after} {before}\n" for before, after in pairs).encode()
    try:
        output = git.run(*_DIFF, stdin=lines)
    except GitCommandError as error:
        if error.is_machine_trouble:
            raise
        return [None] * len(pairs)  # an object is missing
    found = _parse(decode(output).split("\0"), {after for _, after in pairs})
    return _with_folders(git, pairs, [found.get(after, ()) for _, after in pairs])


def _parse(fields: Sequence[str], commits: set[str]) -> dict[str, tuple[FileChange, ...]]:
    """Return the changes by commit: `COMMIT`, then `:MODE MODE ID ID LETTER` and `PATH` for each file."""
    found: dict[str, list[FileChange]] = {}
    commit, idx = "", 0
    while idx < len(fields):
        head = fields[idx]
        if head.startswith(":"):
            old_mode, new_mode, _, _, status = head[1:].split(" ")
            found[commit].append(FileChange(fields[idx + 1], status, old_mode, new_mode))
            idx += 2
            continue
        if head.strip() in commits:
            commit = head.strip()
            found[commit] = []
        idx += 1
    return {commit: tuple(changes) for commit, changes in found.items()}


def _with_folders(git: Git, pairs: Sequence[tuple[str, str]], steps: Sequence[tuple[FileChange, ...]]) -> Steps:
    """Return the steps, each new or deleted file with whether its folder is there on both sides."""
    asked: dict[str, bool] = {}
    for pair, changes in zip(pairs, steps, strict=True):
        asked |= {_folder_name(pair, change): False for change in changes if change.status in ("A", "D")}
    names = [name for name in asked if "\n" not in name]
    if names:
        listed = git.text("cat-file", "--batch-check=%(objecttype)", stdin="".join(f"{name}\n" for name in names).encode())
        asked |= {name: kind == "tree" for name, kind in zip(names, listed.splitlines(), strict=True)}
    return [
        tuple(
            FileChange(item.path, item.status, item.old_mode, item.new_mode, asked.get(_folder_name(pair, item), True))
            for item in changes
        )
        for pair, changes in zip(pairs, steps, strict=True)
    ]


def _folder_name(pair: tuple[str, str], change: FileChange) -> str:
    """Return git's name of the folder of a new file before it came, of a deleted one after it went."""
    commit = pair[0] if change.status == "A" else pair[1]
    return f"{commit}:{dirname(change.path)}"
