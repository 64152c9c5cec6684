"""`bisect-train check`: is a config change safe, and which key is not?"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import rich_click as click

from bisect_train.changes.config import read_config
from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.cli.asked import Asked, split_options
from bisect_train.cli.asking import ask_question, config_ends
from bisect_train.cli.data_ends import snapshot_without_data
from bisect_train.cli.desk import open_desk
from bisect_train.cli.driving import answer_without_runs, start_bisection
from bisect_train.cli.end_states import has_end_states
from bisect_train.cli.golden_runs import split_baseline, with_baseline
from bisect_train.cli.options import (
    choice_options,
    judge_options,
    output_options,
    probe_options,
    search_options,
    state_options,
    what_options,
)
from bisect_train.cli.planning import print_dry_run, title_of
from bisect_train.cli.telling_options import telling_options
from bisect_train.core.errors import InputError
from bisect_train.core.question import ConfigEnd, Range


@click.command("check")
@click.argument("good_config", required=False)
@click.argument("bad_config", required=False)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a key in place of a second file.")
@click.option("--rev", metavar="REV", help="Commit to run [default: the working tree as it is, uncommitted changes too].")
@click.option(
    "--against",
    metavar="REV|baseline:NAME",
    help="A good commit, or a stored baseline, that the code is compared with [default without a config: HEAD].",
)
@click.option("--dry-run", is_flag=True, help="Say what would be run, and stop.")
@what_options
@state_options
@choice_options
@probe_options
@judge_options
@search_options
@output_options
@telling_options
def command(
    good_config: str | None,
    bad_config: str | None,
    settings: tuple[str, ...],
    rev: str | None,
    against: str | None,
    dry_run: bool,
    **values: Any,
) -> int:
    """Is this change safe? If not, which key, commit or hunk is it?

    Each key that differs between the two files is a change. Write {config} where the command takes the file's path. Packages,
    variables, data and launch settings that differ are changes beside the keys; with them one config will do, and with Hydra
    compositions none is named. Without any of these the code is checked: the working tree against HEAD, or --rev --against.

    \b
    Examples:
      bisect-train check good.yaml bad.yaml -- python train.py --config {config}
      bisect-train check train.yaml --set optimizer.lr=0.01 -- python train.py --config {config}
      bisect-train check a.yaml b.yaml --good-env old.txt --bad-env new.txt -- python train.py --config {config}
      bisect-train check train.yaml --bad-data corpus=/data/v2 -- python train.py --config {config}
      bisect-train check --good-hydra train --bad-hydra "train optimizer=adam" -- python train.py {overrides}
      bisect-train check -- python train.py
      bisect-train check --against baseline:main -- python train.py

    \b
    Exit status: 0 no regression, 1 an end could not be tested, 2 bad input, 3 cannot tell, 5 a regression was found.
    """
    asked, output, _ = split_options(values)
    paths, asked = _split_files(good_config, bad_config, asked, has_settings=bool(settings))
    if settings and not paths:
        raise InputError("--set changes keys of a config, and none was given", hint="name the config file before --set")
    is_about_code = against is not None or not (paths or settings or has_end_states(asked))
    good, bad = (None, None) if is_about_code and not paths else _configs(paths, settings, asked)
    with open_desk() as desk:
        repository = Repository.open(asked.repo, home=desk.home)
        commit = repository.resolve(rev) if rev else snapshot_without_data(asked, repository)
        goods, baseline = split_baseline(repository, (against or "HEAD",)) if is_about_code else ((commit,), None)
        commits = Range((repository.resolve(goods[0]),), commit)
        question = ask_question(asked, repository, kind="check", commits=commits, good_config=good, bad_config=bad)
        space = build_space(repository, question)
        if not space.changes:
            names = sorted({end.path for end in (good, bad) if end})
            reason = f"{' and '.join(names)} hold the same values" if len(names) == 2 else "the ends are the same"
            return answer_without_runs(desk, question, space, reason=reason, output=output)
        question = with_baseline(question, space, baseline)
        title = title_of(question, space)
        if dry_run:
            return print_dry_run(question, space, title, desk.store)
        return start_bisection(desk, question, space, title=title, output=output)


def _split_files(good: str | None, bad: str | None, asked: Asked, *, has_settings: bool) -> tuple[tuple[Path, ...], Asked]:
    """Where fewer files were named, the first words behind `--` land in their places: give them back to the command."""
    words = tuple(word for word in (good, bad) if word is not None)
    num_files = len(words)
    is_program = good is not None and not Path(good).exists() and not has_settings and shutil.which(good) is not None
    if is_program or asked.good_hydra is not None or asked.bad_hydra is not None:
        num_files = 0
    elif bad is not None and (shutil.which(bad) or (not Path(bad).exists() and (has_settings or has_end_states(asked)))):
        num_files = 1
    return tuple(map(Path, words[:num_files])), replace(asked, command=(*words[num_files:], *asked.command))


def _configs(paths: tuple[Path, ...], settings: tuple[str, ...], asked: Asked) -> tuple[ConfigEnd | None, ConfigEnd | None]:
    """Return the config files of both ends: the same one where something else differs, none for Hydra compositions."""
    if not paths and has_end_states(asked) and not settings:
        return None, None
    if not paths:
        raise InputError("no config was given", hint="give two config files, or one and --set KEY=VALUE")
    if len(paths) == 1 and not settings and has_end_states(asked):
        return (same := read_config(paths[0])), same
    return config_ends(paths[0], paths[1] if len(paths) > 1 else None, settings)
