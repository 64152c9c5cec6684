"""Keys of a Hydra composition as an axis: the config directory of a commit, composed two ways, given as overrides."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bisect_train.changes.axes import OVERRIDES, Draft
from bisect_train.changes.config_hydra import HydraEnd, diff_hydra
from bisect_train.changes.plumbing import Git, GitCommandError, decode, fields_of, printable
from bisect_train.core.changes import Change
from bisect_train.core.errors import RecipeError
from bisect_train.core.question import EndState

_SUBMODULE, _LINK = "160000", "120000"


class HydraAxis:
    """Keys in which two compositions differ; each is given as an override where `{overrides}` stands in the command.

    Args:
        git: on our mirror.
        commit: whose config directory is composed.
        folder: of the configs, a path in the tree.
        good, bad: ends; `hydra` is the name of the primary config, then overrides.
        home: folder for copies of the directory, by content.
    Raises:
        RecipeError: Hydra is not installed or refuses a composition; the commit has no such directory.
    """

    is_ordered = False

    def __init__(self, git: Git, *, commit: str, folder: str, good: EndState, bad: EndState, home: Path) -> None:
        copy = _copy_of(git, commit, folder, home)
        shown = f"{folder} of commit {commit[:12]}"
        ends = [HydraEnd(copy, end.hydra[0], end.hydra[1:], shown) for end in (good, bad)]
        self._diff = diff_hydra(*ends)
        self._own = good.hydra[1:]
        self.changes = self._diff.changes

    def apply(self, draft: Draft, chosen: Sequence[Change]) -> Draft:
        """Return the draft with the overrides of the good end and of the chosen keys.

        Raises:
            UnbuildableError: no overrides give these values.
        """
        return replace(draft, overrides=(*self._own, *self._diff.overrides(chosen)))


def check_place(command: Sequence[str]) -> None:
    """Raise RecipeError where a command has no place for overrides."""
    if OVERRIDES not in command:
        raise RecipeError(
            "the command does not say where Hydra's overrides go",
            hint='put "{overrides}" into it, e.g. `-- python train.py {overrides}`',
        )


def _copy_of(git: Git, commit: str, folder: str, home: Path) -> Path:
    """Return a folder with the files of a directory of a commit, made once for each content; a submodule in it stays empty."""
    try:
        tree = git.text("rev-parse", "--verify", "--quiet", f"{commit}:{folder}")
        entries = [_entry_of(line) for line in fields_of(git.run("ls-tree", "-r", "-z", tree))]
    except GitCommandError:
        raise RecipeError(
            f"commit {commit[:12]} has no Hydra config directory {folder}", hint="correct `config.hydra` in the recipe"
        ) from None
    kept = home / tree
    if kept.is_dir():
        return kept
    home.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".hydra-", dir=home))
    try:
        for mode, blob, name in entries:
            _write(git, scratch, mode, blob, name)
        scratch.rename(kept)
    except RecipeError:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    except OSError:
        if not kept.is_dir():  # another process was quicker
            raise
        shutil.rmtree(scratch, ignore_errors=True)
    return kept


def _entry_of(line: str) -> tuple[str, str, str]:
    """Return mode, object and path of a line of `ls-tree`."""
    head, _, name = line.partition("\t")
    mode, _, blob = head.split(" ")
    return mode, blob, name


def _write(git: Git, folder: Path, mode: str, blob: str, name: str) -> None:
    """Write a file, or a link that stays in the folder. A tree can have any names: git looks at them on checkout only."""
    target = folder / name
    if ".." in target.parts or not target.parent.resolve().is_relative_to(folder.resolve()):
        raise RecipeError(f"the file {printable(name)} leads out of its folder", hint="look at it with `git fsck`")
    if mode == _SUBMODULE:
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    content = git.run("cat-file", "blob", blob)
    if mode != _LINK:
        target.write_bytes(content)
    elif (target.parent / decode(content)).resolve().is_relative_to(folder.resolve()):
        target.symlink_to(decode(content))
