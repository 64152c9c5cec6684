"""From options and a recipe to a frozen question. All bad input is found here, before anything runs."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from bisect_train.changes.config import apply_settings, read_config
from bisect_train.changes.fixup import read_fixup
from bisect_train.changes.fixup_patch import paths_of
from bisect_train.changes.history import read_skip_file, resolve_skips
from bisect_train.changes.repository import Repository
from bisect_train.cli.asked import Asked
from bisect_train.cli.command_check import THE_COMMAND, Checkouts, check_command, check_judge, check_program, check_spread
from bisect_train.cli.difference import ask_difference
from bisect_train.cli.finding import find_recipe
from bisect_train.cli.notes import say_note
from bisect_train.cli.symptoms import refuse_symptom
from bisect_train.cli.whens import commands_of
from bisect_train.core.errors import InputError, RecipeError, RevisionError
from bisect_train.core.probe import Rung, RunSettings, local_ranks, num_nodes
from bisect_train.core.question import ConfigEnd, Limits, Metric, Question, Range
from bisect_train.core.secrets import mask_assignment, mask_command
from bisect_train.core.verdict import Criterion
from bisect_train.recipe import Recipe
from bisect_train.shrink.ladder import make_ladder
from bisect_train.verdict.outcome import COST_METRICS, DERIVED_METRICS, RECORDED_METRICS, recorded_metric

DEFAULT_RECIPE = "bisect-train.yaml"
DEFAULT_STEPS = (50, 200)  # the rungs without a recipe
DEFAULT_TIMEOUT_S = 600.0
LADDER_KINDS = ("run", "check", "nightly")  # of questions that are bisected; a single run is on the first rung


def ask_question(
    asked: Asked,
    repository: Repository,
    *,
    kind: str,
    commits: Range,
    good_config: ConfigEnd | None = None,
    bad_config: ConfigEnd | None = None,
) -> Question:
    """Return the question that options and recipe give.

    Raises:
        InputError: nothing to run, a command that does not exist, options that contradict each other.
    """
    refuse_symptom(asked)
    recipe = find_recipe(asked, repository.root)
    base = ask_difference(asked, repository, commits=commits, good_config=good_config, bad_config=bad_config)
    ladder = _ladder_of(asked, recipe)
    rung = ladder[0]
    command = _command_of(asked, recipe, rung=rung, has_configs=good_config is not None)
    fixups = tuple(read_fixup(path, repository.git) for path in asked.fixup)
    patched = {path for fixup in fixups for path in paths_of(repository.git, fixup)}
    linked = tuple(item.link.target for item in base.good_state.data)
    checkouts = Checkouts(repository, commits, recipe, patched, linked, base.settings.python)
    again = recipe.restart.ranks or 1 if recipe.restart else 1
    all_ranks = [base.bad_state.ranks or 1, again, *(rung.ranks for rung in ladder)]
    check_spread(recipe, (command, base.bad_state.command), all_ranks)
    named = THE_COMMAND if asked.command else f"`command:` in {recipe.path}"
    if any(when.command for when in base.whens):
        for one in commands_of(base.whens, command, repository, commits):
            check_command(one, checkouts, named=named)
    else:
        _check_commands(command, base.bad_state.command, checkouts, named=named, is_side_by_side=kind == "compare")
    if recipe.launcher and not asked.address:  # a cluster's nodes may have what this machine has not
        check_program(recipe.launcher[0], checkouts, named=f"`launcher:` in {recipe.path}")
    if recipe.restart and recipe.restart.command[0] != "{command}":
        check_command(recipe.restart.command, checkouts, named=f"`restart: command:` in {recipe.path}")
    metric = _metric_of(asked, recipe)
    judge = _judge_of(asked, recipe)
    if judge:
        check_judge(judge, repository, commits, recipe, patched=patched)
    settings = _settings_of(asked, recipe, base, rung=rung, metric=metric, judge=judge)
    return replace(
        base,
        kind=kind,
        command=command,
        settings=settings,
        rung=rung,
        expected=tuple((repository.resolve(rev), "") for rev in asked.expect),
        ladder=ladder if len(ladder) > 1 and kind in LADDER_KINDS else (),
        cpus_follow_ranks=not recipe.resources.cpus,
        metric=metric,
        criterion=_criterion_of(asked, judge),
        symptom=asked.symptom,
        any_change=asked.any_change,
        min_effect=asked.min_effect,
        limits=_limits_of(asked, settings, metric),
        fixups=fixups,
        executor=asked.address,
    )


def _check_commands(
    good: tuple[str, ...], bad: tuple[str, ...], checkouts: Checkouts, *, named: str, is_side_by_side: bool
) -> None:
    """Raise InputError where a command cannot be started: at either end, or side by side each one at its own end."""
    ends = [checkouts, checkouts]
    if is_side_by_side:
        commits = checkouts.commits
        ends = [replace(checkouts, commits=Range((commit,), commit)) for commit in (commits.goods[0], commits.bad)]
    check_command(good, ends[0], named=named)
    if bad or is_side_by_side:
        check_command(bad or good, ends[1], named="--bad-command" if bad else named)


def _criterion_of(asked: Asked, judge: tuple[str, ...]) -> Criterion:
    if asked.symptom and judge:
        raise InputError("--symptom and the recipe's judge contradict each other", hint="leave `judge:` out of the recipe")
    if asked.symptom:
        return Criterion.SYMPTOM
    return Criterion.JUDGE if judge else Criterion(asked.criterion)


def _limits_of(asked: Asked, settings: RunSettings, metric: Metric) -> Limits:
    if asked.budget_gpu_hours is not None and not settings.gpus:
        raise InputError(
            "no probe uses a GPU, so --budget-gpu-hours limits nothing",
            hint="use --max-probes, or say with --gpus N how many a probe takes",
        )
    return Limits(
        max_seeds=asked.seeds or 8,
        max_probes=asked.max_probes,
        parallel=asked.parallel or (1 if metric.is_paired else None),  # times tell less where probes compete
        confidence=asked.confidence,
        reuse=asked.reuse and not metric.is_paired,  # another hour, another load
        gpu_hours=asked.budget_gpu_hours,
        wall_s=asked.within,
        second_look=asked.second_look,
        early=asked.early,
        prune=asked.prune,
    )


def _command_of(asked: Asked, recipe: Recipe, *, rung: Rung, has_configs: bool) -> tuple[str, ...]:
    command = asked.command or recipe.command
    if not command:
        raise InputError(
            "no training command was given",
            hint="put it behind --, e.g. `-- python train.py`, or write a recipe with `bisect-train init`",
        )
    if rung.overrides:
        if "{overrides}" not in command:
            raise RecipeError(f"{recipe.path}: shrink.set and shrink.accumulation need {{overrides}} in the command")
        at = command.index("{overrides}")
        command = command[:at] + rung.overrides + command[at:]
    if has_configs and not any("{config}" in part or part == "{overrides}" for part in command):
        raise InputError(
            f"the command {shlex.join(mask_command(command))!r} does not say where the config file goes",
            hint="write {config} where its path belongs, e.g. `-- python train.py --config {config}`",
        )
    uses_config = any("{config}" in part for part in command)
    if uses_config and not has_configs and not (asked.config or recipe.config.file):
        raise InputError("the command has {config}, but no config was named", hint="name it with --config FILE")
    return command


def _judge_of(asked: Asked, recipe: Recipe) -> tuple[str, ...]:
    if asked.judge is None:
        return recipe.judge
    try:
        judge = tuple(shlex.split(asked.judge))
    except ValueError as error:
        raise InputError(f"--judge {asked.judge!r} cannot be read: {error}", hint="quote it as for a shell") from None
    if not judge:
        raise InputError("--judge was given no command", hint='for example --judge "python judge.py"')
    return judge


def _ladder_of(asked: Asked, recipe: Recipe) -> tuple[Rung, ...]:
    """Return the rungs, the cheapest first; what an option says leaves no choice of it.

    Raises:
        RecipeError: a run of so many steps cannot be interrupted where `restart` says.
    """
    steps = recipe.shrink.steps or DEFAULT_STEPS
    if asked.steps is not None:
        steps = (None,) if asked.steps == "end" else (asked.steps,)
    if recipe.restart is not None:
        save_at = recipe.restart.save_at
        steps = tuple(num for num in steps if num is None or save_at < num - 1) or steps[-1:]
    ranks = (asked.ranks,) if asked.ranks else recipe.shrink.ranks or (1,)
    rungs = make_ladder(steps, ranks)
    scaled = recipe.shrink_overrides()
    return tuple(replace(rung, overrides=(*scaled, *recipe.accumulation_overrides(rung.ranks))) for rung in rungs)


def _metric_of(asked: Asked, recipe: Recipe) -> Metric:
    by_name = {item.name: item.to_metric() for item in recipe.metrics}
    name = asked.metric if asked.metric is not None else recipe.metric_name
    if not name and asked.metric is None:
        return next(iter(by_name.values()), Metric())
    if name in by_name:
        return by_name[name]
    if name in (*RECORDED_METRICS, *DERIVED_METRICS):
        return recorded_metric(name)
    known = ", ".join([*by_name, *RECORDED_METRICS, *DERIVED_METRICS])
    raise InputError(
        f"unknown metric {name!r}" if asked.metric is not None else f"{recipe.path}: metric: unknown metric {name!r}",
        hint=f"known: {known}; others are read from the log or from files, see `metrics:` in a recipe",
    )


def _settings_of(
    asked: Asked, recipe: Recipe, base: Question, *, rung: Rung, metric: Metric, judge: tuple[str, ...]
) -> RunSettings:
    """Return how probes run, given the question about what differs."""
    resources = recipe.resources
    from_log = metric.name in {item.name for item in recipe.metrics}
    gpus = asked.gpus if asked.gpus is not None else resources.gpus
    restart = recipe.restart_settings(rung.steps)
    ranks = max(rung.ranks, base.bad_state.ranks or 1, restart.ranks or 1 if restart else 1)
    per_node = resources.ranks_per_node
    return replace(
        base.settings,
        setup=recipe.setup.run,
        patterns=tuple(item.to_pattern() for item in recipe.metrics),
        judge=judge,
        timeout_s=asked.timeout or resources.timeout_s or DEFAULT_TIMEOUT_S,
        cpus=resources.cpus or float(local_ranks(ranks, per_node)),
        gpus=gpus or 0.0,
        threads=resources.threads or 1,
        memory=resources.memory or 0,
        custom=resources.custom,
        accelerator=resources.accelerator,
        ranks_per_node=per_node,
        nodes=num_nodes(ranks, per_node),
        redirect_from=base.repo,
        exempt_seeds=recipe.exempt_seeds,
        deterministic=asked.deterministic,
        needs_recorder=bool(asked.symptom)
        or (not judge and not from_log and Criterion(asked.criterion) is not Criterion.SYMPTOM),
        triage=bool(asked.symptom) or (metric.name in DERIVED_METRICS and not from_log),
        private=recipe.private,
        keep=asked.keep,
        restart=restart,
        stubs=recipe.stubs,
        step_function=recipe.step_function,
        shims=tuple(dict.fromkeys((*recipe.shims, *asked.shim))),
        # a fork's time and memory are not those of a fresh process; a restart is about fresh processes
        warm=asked.warm and restart is None and metric.name not in COST_METRICS and not metric.is_paired,
    )


def config_ends(good: Path, bad: Path | None, settings: tuple[str, ...]) -> tuple[ConfigEnd, ConfigEnd]:
    """Return both ends of a question about configs: two files, or one file and `--set KEY=VALUE`."""
    first = read_config(good)
    if bad is not None:
        second = read_config(bad)
        return first, apply_settings(second, settings) if settings else second
    if not settings:
        raise InputError("only one config was given", hint="give a second file, or --set KEY=VALUE")
    changed = apply_settings(first, settings)
    return first, replace(changed, path=f"{good} with {' '.join(map(mask_assignment, settings))}")


def range_of(repository: Repository, goods: tuple[str, ...], bad: str, asked: Asked, *, may_be_same: bool = False) -> Range:
    """Return the commits that were asked about, resolved.

    Raises:
        RevisionError: a revision is unknown or begins with a dash.
    """
    bad_commit = repository.resolve(bad)
    good_commits = tuple(dict.fromkeys(repository.resolve(good) for good in goods))
    if may_be_same and good_commits == (bad_commit,):
        return Range(good_commits, bad_commit)
    if good_commits == (bad_commit,):
        raise RevisionError(
            f"good and bad are the same commit {bad_commit[:12]}", hint="there is nothing between them to bisect"
        )
    listed = read_skip_file(repository, asked.skip_file) if asked.skip_file else ()
    if asked.skip_file and not listed:
        say_note(f"--skip-file {asked.skip_file} names no revision, so it skips none")
    skips = tuple(dict.fromkeys((*resolve_skips(repository, asked.skip), *listed)))
    return Range(good_commits, bad_commit, asked.first_parent, asked.path, skips, asked.descend)
