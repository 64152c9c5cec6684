"""`--good-run` and `--bad-run`: two recorded runs as a question. What they say fills the options that were not given.

Commits take the places of `--good` and `--bad`, the commands that of the one behind `--`. Configs and lists of packages
become changes where both runs have them. An uncommitted patch is laid over everything if both runs had the same one; of one
end alone it cannot be.
"""

from __future__ import annotations

import importlib
import itertools
import netrc
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click
from click.core import ParameterSource

from bisect_train.changes.run_folder import RunFolder, read_run_folder
from bisect_train.changes.run_history import RunHistory, history_of_folder, history_of_rows
from bisect_train.cli.asked import Asked
from bisect_train.cli.notes import say_note
from bisect_train.core.errors import InputError
from bisect_train.core.question import ConfigEnd
from bisect_train.recipe import Recipe

F = TypeVar("F", bound=Callable[..., Any])
WANDB = "wandb:"
WANDB_FILES = ("config.yaml", "wandb-metadata.json", "requirements.txt", "diff.patch")
WANDB_HOST = "api.wandb.ai"
MAX_ROWS = 20_000
"""Of a run's history, from its beginning: probes are short."""


def recorded_run_options(function: F) -> F:
    """Add `--good-run` and `--bad-run`."""
    where = "folder of W&B (or wandb:ENTITY/PROJECT/RUN), MLflow, Hydra, --keep or --out"
    good = click.option("--good-run", metavar="DIR", help=f"Recorded run of the good end: {where}. It fills what is not given.")
    bad = click.option("--bad-run", metavar="DIR", help="Recorded run of the bad end.")
    return good(bad(function))


@dataclass(frozen=True, slots=True)
class RecordedRuns:
    """The recorded runs of the ends, None where none was named; `scratch` takes files made from them."""

    good: RunFolder | None
    bad: RunFolder | None
    scratch: Path

    def revisions(self, goods: tuple[str, ...], bad: str, *, is_bad_given: bool) -> tuple[tuple[str, ...], str]:
        """Return the revisions of both ends: those that were given, else the runs'.

        Raises:
            InputError: none was given for an end, and its run does not know its commit.
        """
        if not goods:
            if self.good is None:
                raise InputError(
                    "no good end was given", hint="name a revision with --good REV, or a recorded run with --good-run DIR"
                )
            goods = (_commit_of(self.good, "--good"),)
        if self.bad is not None and not is_bad_given:
            bad = _commit_of(self.bad, "--bad")
        return goods, bad

    def fill(self, asked: Asked, recipe: Recipe) -> Asked:
        """Return the options with what the runs say where nothing was given.

        Raises:
            InputError: a run had uncommitted changes that the other one had not.
        """
        if self.good is None and self.bad is None:
            return asked
        asked = self._with_command(asked, recipe)
        asked = self._with_config(asked, recipe)
        return self._with_patch(self._with_packages(asked))

    def name_configs(self, good: ConfigEnd | None, bad: ConfigEnd | None) -> tuple[ConfigEnd | None, ConfigEnd | None]:
        """Return config files that were made from the runs under the runs' names."""
        named = []
        for end, run in ((good, self.good), (bad, self.bad)):
            is_made = end is not None and run is not None and Path(end.path).is_relative_to(self.scratch)
            named.append(replace(end, path=f"config of {run.path}") if end and run and is_made else end)
        return named[0], named[1]

    def _with_command(self, asked: Asked, recipe: Recipe) -> Asked:
        if asked.command or recipe.command:
            return asked
        known = [run.command for run in (self.good, self.bad) if run is not None and run.command]
        if not known:
            for run in filter(None, (self.good, self.bad)):
                say_note(f"{run.path}: its command is not known: {run.why_not('command')}")
            return asked
        asked = replace(asked, command=known[0])
        if len(known) == 2 and known[0] != known[1] and asked.bad_command is None:
            asked = replace(asked, bad_command=shlex.join(known[1]))
        return asked

    def _with_config(self, asked: Asked, recipe: Recipe) -> Asked:
        given = (asked.good_config, asked.bad_config, asked.good_hydra, asked.bad_hydra)
        if any(item is not None for item in given) or asked.hold_config != "travel":
            return asked
        if recipe.config.hydra and self.good and self.bad and self.good.hydra and self.bad.hydra:
            return replace(asked, good_hydra=shlex.join(self.good.hydra), bad_hydra=shlex.join(self.bad.hydra))
        if not self._has_both("config", "configs are not compared"):
            return asked
        if not any("{config}" in part or part == "{overrides}" for part in asked.command or recipe.command):
            say_note("the runs' configs are not compared: the command has no {config}; write it where the file's path belongs")
            return asked
        assert self.good and self.bad and self.good.config and self.bad.config
        paths = [self._write(end, *config) for end, config in (("good", self.good.config), ("bad", self.bad.config))]
        return replace(asked, good_config=paths[0], bad_config=paths[1])

    def _with_packages(self, asked: Asked) -> Asked:
        if asked.good_env or asked.bad_env or not self._has_both("requirements", "packages are not compared"):
            return asked
        assert self.good and self.bad
        lists = [run.requirements or "" for run in (self.good, self.bad)]
        if lists[0] == lists[1]:
            return asked
        paths = [self._write(end, "requirements.txt", text) for end, text in zip(("good", "bad"), lists, strict=True)]
        return replace(asked, good_env=(paths[0],), bad_env=(paths[1],))

    def _with_patch(self, asked: Asked) -> Asked:
        patched = [run for run in (self.good, self.bad) if run is not None and run.patch is not None]
        if not patched:
            return asked
        run = patched[0]
        assert run.patch is not None
        if len(patched) == 2 and run.patch.read_bytes() == (patched[1].patch or run.patch).read_bytes():
            return replace(asked, fixup=(*asked.fixup, run.patch))
        end = "good" if run is self.good else "bad"
        raise InputError(
            f"{run.path}: the {end} run had uncommitted changes ({run.patch.name}) that the other one had not, and a patch is "
            "laid over all states or none",
            hint=f"commit them: `git switch -c tried {(run.commit or 'COMMIT')[:12]}`, "
            f"`git apply {shlex.quote(str(run.patch))}`, `git commit -am tried`, then --{end} tried without --{end}-run",
        )

    def _has_both(self, part: str, so: str) -> bool:
        """Return whether both runs have a part; say why not where one has it."""
        runs = [run for run in (self.good, self.bad) if run is not None]
        having = [run for run in runs if getattr(run, part) is not None]
        if len(having) == 1:
            other = next((run for run in runs if run not in having), None)
            why = f"{other.path} has none: {other.why_not(part)}" if other else "one run was named"
            say_note(f"{so}: {why}")
        return len(having) == 2

    def _write(self, end: str, name: str, text: str) -> Path:
        path = self.scratch / end / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


@contextmanager
def open_recorded_runs(good: str | None, bad: str | None) -> Iterator[RecordedRuns]:
    """Yield the runs that were named; files made from them are removed at the end.

    Raises:
        InputError: a folder is none of a run, or a run cannot be fetched.
    """
    with tempfile.TemporaryDirectory(prefix="bisect-train-runs-") as folder:
        scratch = Path(folder)
        runs = [_read(named, end, scratch) if named is not None else None for named, end in ((good, "good"), (bad, "bad"))]
        yield RecordedRuns(runs[0], runs[1], scratch)


def is_given(parameter: str) -> bool:
    """Return whether an option of the command that runs was given, not left to its default."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(parameter) is not ParameterSource.DEFAULT


def _commit_of(run: RunFolder, option: str) -> str:
    if run.commit is None:
        raise InputError(f"{run.path}: its commit is not known: {run.why_not('commit')}", hint=f"name it with {option} REV")
    return run.commit


def _read(named: str, end: str, scratch: Path) -> RunFolder:
    if not named.startswith(WANDB):
        return read_run_folder(Path(named).expanduser(), end=end)
    folder = scratch / f"wandb-{end}"
    fetch_wandb(named.removeprefix(WANDB), folder / "files")
    return replace(read_run_folder(folder, end=end), path=named)


def read_recorded_history(named: str) -> RunHistory:
    """Return the curves of a recorded run: `wandb:ENTITY/PROJECT/RUN`, or a folder of W&B or MLflow.

    Raises:
        InputError: there is no such run, or it has no curves.
    """
    if not named.startswith(WANDB):
        return history_of_folder(named)
    run = named.removeprefix(WANDB)
    with _wandb_errors(run, "or name the run's folder: --baseline wandb/run-..."):
        rows = list(itertools.islice(_open_wandb(run).scan_history(), MAX_ROWS))
    return history_of_rows(named, rows)


def fetch_wandb(run: str, folder: Path) -> None:
    """Download what W&B has of a run's start, by the package's public API.

    Args:
        run: ENTITY/PROJECT/RUN.
        folder: that takes the files.
    Raises:
        InputError: no such run, the package or a key is missing.
    """
    with _wandb_errors(run, "or name the run's folder: --good-run wandb/run-..."):
        found = _open_wandb(run)
        folder.mkdir(parents=True)
        there = {file.name: file for file in found.files(names=list(WANDB_FILES))}
        for name in WANDB_FILES:
            if name in there:
                there[name].download(root=str(folder), replace=True)


@contextmanager
def _wandb_errors(run: str, hint: str) -> Iterator[None]:
    """Refuse what is no run, or cannot be asked for without a package and a key; turn the package's errors into InputError."""
    if run.count("/") != 2 or not all(run.split("/")):
        raise InputError(f"{WANDB}{run} is no run", hint=f"write {WANDB}ENTITY/PROJECT/RUN, {hint}")
    try:
        importlib.import_module("wandb")
    except ImportError:
        raise InputError(f"{WANDB}{run}: the package wandb is not installed here", hint=f"pip install wandb, {hint}") from None
    if not _has_key():
        raise InputError(f"{WANDB}{run}: there is no key for W&B", hint=f"`wandb login`, or set WANDB_API_KEY, {hint}")
    try:
        yield
    except Exception as error:  # whatever another package raises about its server
        raise InputError(f"{WANDB}{run} cannot be fetched: {type(error).__name__}: {error}", hint=hint) from None


def _open_wandb(run: str) -> Any:
    return importlib.import_module("wandb").Api().run(run)


def _has_key() -> bool:
    """Return whether W&B would find a key without asking for one."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators(WANDB_HOST) is not None
    except (OSError, netrc.NetrcParseError):
        return False
