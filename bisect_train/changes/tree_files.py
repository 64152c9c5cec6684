"""Files of a tree: their text, and a tree in which some of them are replaced."""

from __future__ import annotations

from collections.abc import Mapping

from bisect_train.changes.fixup_patch import scratch_index
from bisect_train.changes.plumbing import Git, fields_of


def read_file(git: Git, tree: str, path: str) -> str | None:
    """Return the text of a file in a tree (or commit), None where it has none or it is not UTF-8."""
    result = git.attempt("cat-file", "blob", f"{tree}:{path}")
    try:
        return result.stdout.decode() if result.returncode == 0 else None
    except UnicodeDecodeError:
        return None


def write_files(git: Git, tree: str, files: Mapping[str, str]) -> str:
    """Return a tree with the text of some files replaced, written to the mirror; their modes stay.

    Args:
        git: on our mirror.
        tree: to start from.
        files: text by path in the tree; a path that it lacks becomes an ordinary file.
    """
    with scratch_index(git) as index:
        index.run("read-tree", tree)
        lines = ""
        for path, text in files.items():
            blob = git.text("hash-object", "-w", "--stdin", stdin=text.encode())
            listed = fields_of(git.run("ls-tree", "-z", tree, "--", path))
            mode = listed[0].split(" ", 1)[0] if listed else "100644"
            lines += f"{mode} {blob}\t{path}\0"
        index.run("update-index", "-z", "--index-info", stdin=lines.encode())
        return index.text("write-tree", "--missing-ok")
