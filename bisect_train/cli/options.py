"""The options that several commands share; `asked` holds what they are gathered into."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click

from bisect_train.cli.amounts import AgeType
from bisect_train.core.probe import SHIMS

F = TypeVar("F", bound=Callable[..., Any])


class StepsType(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """A positive number of steps, or `end`."""

    name = "N|end"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return an int, or "end"."""
        if value == "end" or isinstance(value, int):
            return value
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number of optimizer steps nor 'end'", param, ctx)
        if number < 1:
            self.fail(
                f"{number} is not a number of optimizer steps: at least 1, or 'end' to let the program finish", param, ctx
            )
        return number


def _apply(decorators: list[Callable[[F], F]], function: F) -> F:
    for decorator in reversed(decorators):
        function = decorator(function)
    return function


def what_options(function: F) -> F:
    """Add what runs: repository, recipe, config, interpreter, the command behind `--`."""
    return _apply(
        [
            click.option("--repo", type=click.Path(path_type=Path), default=Path(), help="The repository [default: here]."),
            click.option(
                "--recipe",
                type=click.Path(path_type=Path),
                metavar="FILE|PRESET",
                help="Recipe file, or a preset (`bisect-train recipes`) [default: bisect-train.yaml if there].",
            ),
            click.option("--config", metavar="FILE", help="Config file in the repository that {config} stands for."),
            click.option(
                "--fixup",
                multiple=True,
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Patch (git diff) for every commit that it applies to, so that it can run; may be repeated.",
            ),
            click.option("--python", metavar="PATH", help="Interpreter that `python` in the command stands for."),
            click.argument("command", nargs=-1, type=click.UNPROCESSED),
        ],
        function,
    )


def probe_options(function: F) -> F:
    """Add how a probe runs."""
    return _apply(
        [
            click.option(
                "--steps",
                type=StepsType(),
                help="Stop a probe after N optimizer steps, or let it `end` [default: the recipe's `shrink: steps:`, from the "
                "smallest up until the ends differ; else 50, then 200].",
            ),
            click.option("--ranks", type=click.IntRange(min=1), help="Processes per probe, under torchrun [default: 1]."),
            click.option("--gpus", type=click.FloatRange(min=0), help="GPUs per probe [default: 0]."),
            click.option(
                "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Limit of a probe, seconds."
            ),
            click.option(
                "--deterministic", is_flag=True, help="Ask torch for deterministic algorithms (changes what is tested)."
            ),
            click.option(
                "--shim",
                multiple=True,
                type=click.Choice(SHIMS),
                help="Let something stand in for hardware that is not here: cuda-as-cpu runs what asks for CUDA and NCCL on the"
                " CPU with gloo (changes what is tested).",
            ),
            click.option("--keep", is_flag=True, help="Keep each probe's checkout and output; `show PROBE` says where."),
            click.option("--address", default="", metavar="RAY", help="Ray cluster to join [default: a local Ray]."),
        ],
        function,
    )


def _show_symptoms(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    from bisect_train.cli.symptoms import show_list  # the names come with triage, which other commands need not load

    return show_list(ctx, param, value) if value else value


second_look_option = click.option(
    "--no-second-look", "second_look", flag_value=False, default=True,
    help="Do not run what hangs or gives NaN again with torch's own checks on (anomaly detection, TORCH_DISTRIBUTED_DEBUG).",
)  # fmt: skip


def judge_options(function: F) -> F:
    """Add how probes are judged."""
    criteria = click.Choice(["auto", "exact", "statistical", "symptom"])
    return _apply(
        [
            click.option("--metric", metavar="NAME",
                         help="The metric that decides [default: the recipe's first, else loss]: loss, grad_norm, ...;"
                         " what a step costs: step_cpu_s, step_s, step_cuda_s (in percent of the good end, run beside it),"
                         " rss_mib, cuda_mib."),
            click.option("--min-effect", type=click.FloatRange(min=0, min_open=True), metavar="X",
                         help="Smallest worsening that counts, in the metric's unit [default: one seed standard deviation]."),
            click.option("--criterion", type=criteria, default="auto",
                         help="How a probe is judged: exact by its bits (an equal metric that is fine enough counts too, less),"
                         " statistical by the metric, symptom by how it fails; auto picks."),
            click.option("--symptom", default="", metavar="NAME", callback=_show_symptoms,
                         help="A run is bad if it shows this, whatever the metric: nan_loss, hang, overlapping_samples, ...;"
                         " `--symptom help` lists the names and what they mean."),
            click.option("--judge", metavar="CMD", help="Command run after each probe: 0 good, 1-124 bad, 125 untestable."),
            click.option("--any-change", is_flag=True, help="Look for any difference, better or worse."),
            click.option("--seeds", type=click.IntRange(min=5), metavar="N",
                         help="Seeds per end, at most (5 or more) [default: 8]."),
        ],
        function,
    )  # fmt: skip


def limit_options(function: F) -> F:
    """Add what may be spent in all."""
    return _apply(
        [
            click.option("--max-probes", type=click.IntRange(min=1), metavar="N", help="Probes to run, at most."),
            click.option("--budget-gpu-hours", type=click.FloatRange(min=0, min_open=True), metavar="H",
                         help="Start no probe once all probes together have used this many GPU-hours."),
            click.option("--within", type=AgeType("TIME"), metavar="TIME",
                         help="Say what is known after this time (20m, 2h): no probe runs on beyond it."),
        ],
        function,
    )  # fmt: skip


def search_options(function: F) -> F:
    """Add what may be spent."""
    added = _apply(
        [
            click.option("--parallel", type=click.IntRange(min=1), metavar="N", help="Probes at a time [default: what fits]."),
            click.option("--confidence", type=click.FloatRange(0.5, 0.9999), default=0.99, show_default=True, metavar="P",
                         help="Posterior at which a change is put to the proof."),
            second_look_option,
            click.option("--expect", multiple=True, metavar="REV",
                         help="An intended change: where this commit is named, the search goes on behind it."),
            click.option("--no-reuse", "reuse", flag_value=False, default=True,
                         help="Run every probe afresh: take no result of an earlier bisection."),
            click.option("--warm/--no-warm", default=True,
                         help="Fork short programs from a process that has imported torch, once that has shown the bits of a"
                         " fresh one [default: --warm]."),
            click.option("--prune/--no-prune", default=True,
                         help="Run nothing for commits of which the program was seen to read no file; --no-prune where it"
                         " learns of files in ways that Python does not tell. A proof leaves nothing out [default: --prune]."),
            click.option("--early/--no-early", default=True,
                         help="Stop a run of the search once it has shown which end it is like; runs of the ends and of a"
                         " proof always go to their end [default: --early]."),
        ],
        function,
    )  # fmt: skip
    return limit_options(added)


def range_options(function: F) -> F:
    """Add which commits are candidates."""
    return _apply(
        [
            click.option(
                "--no-first-parent",
                "first_parent",
                flag_value=False,
                default=True,
                help="Search all commits at once, those of merged branches too.",
            ),
            click.option(
                "--no-descend", "descend", flag_value=False, default=True, help="Do not look inside a merge that is named."
            ),
            click.option(
                "--path",
                multiple=True,
                metavar="GLOB",
                help="Commits that touch this are the suspects; the others are so only as a last resort.",
            ),
            click.option("--skip", multiple=True, metavar="REV", help="Never run this commit, or this range A..B."),
            click.option(
                "--skip-file",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Skip the commits and ranges in this file: one a line, # begins a comment.",
            ),
        ],
        function,
    )


def end_options(function: F) -> F:
    """Add what differs between the ends beside commits, and which of it is searched."""
    held = click.option(
        "--hold-config",
        type=click.Choice(["travel", "good", "bad", "split"]),
        default="travel",
        show_default=True,
        help="The config file in the repository: each commit's own, one end's for all commits, or split from the commits, so "
        "that its keys are changes of their own.",
    )
    return config_end_options(held(state_options(choice_options(function))))


def config_end_options(function: F) -> F:
    """Add the config files of the ends."""
    a_file = click.Path(path_type=Path)
    return _apply(
        [
            click.option("--good-config", type=a_file, metavar="FILE", help="Config of the good end (outside git)."),
            click.option("--bad-config", type=a_file, metavar="FILE", help="Config of the bad end: its keys are changes."),
        ],
        function,
    )


def state_options(function: F) -> F:
    """Add what the ends have beside commits and configs: variables, packages, data, launch settings."""
    a_file = click.Path(path_type=Path)
    return _apply(
        [
            click.option("--good-env", multiple=True, type=a_file, metavar="FILE",
                         help="Packages (requirements, lock file, pip freeze) or variables (.env) of the good end."),
            click.option("--bad-env", multiple=True, type=a_file, metavar="FILE", help="Those of the bad end."),
            click.option("--good-data", multiple=True, metavar="TARGET=PATH", help="Data of the good end, linked at TARGET."),
            click.option("--bad-data", multiple=True, metavar="TARGET=PATH", help="Data of the bad end."),
            click.option("--bad-command", metavar="TEXT", help="Training command of the bad end, in one argument: what differs"
                         " from the one behind -- are changes; another program or script is one change."),
            click.option("--bad-ranks", type=click.IntRange(min=1), metavar="N", help="Processes per probe of the bad end."),
            click.option("--good-hydra", metavar="TEXT", help="Hydra composition of the good end, in one argument: name of the"
                         " primary config, then overrides; the recipe's config.hydra names the directory."),
            click.option("--bad-hydra", metavar="TEXT", help="That of the bad end: the keys that differ are changes."),
            click.option("--bad-python", metavar="PATH", help="Interpreter of the bad end; --python is that of the good end."),
            click.option("--good-image", default="", metavar="IMAGE", help="Container image of the good end, for {image} in the"
                         " recipe's launcher; name it by digest."),
            click.option("--bad-image", default="", metavar="IMAGE", help="Container image of the bad end."),
            *_source_options(),
        ],
        function,
    )  # fmt: skip


def _source_options() -> list[Callable[[F], F]]:
    return [
        click.option("--find-links", multiple=True, metavar="DIR", help="Folder with wheels, for packages that differ."),
        click.option("--index-url", default="", metavar="URL",
                     help="Package index, an address or a folder; `none` takes packages from --find-links alone."),
    ]  # fmt: skip


def choice_options(function: F) -> F:
    """Add which of the changes beside commits are searched, and where packages' commits are found."""
    kinds = click.Choice(["commit", "package", "data", "env", "launch", "config"])
    return _apply(
        [
            click.option("--only", multiple=True, type=kinds,
                         help="Search only changes of this kind; the others are as the bad end has them. May be repeated."),
            click.option("--exclude", multiple=True, metavar="CHANGE",
                         help="Do not search this key, package or variable: it is as the bad end has it, everywhere."),
            click.option("--package-repo", multiple=True, metavar="NAME=DIR|URL",
                         help="Clone of a package's repository: its commits are looked into once its release is found."
                         " Of a submodule: PATH=DIR, where the clone in the checkout lacks commits."),
        ],
        function,
    )  # fmt: skip


def variant_options(function: F) -> F:
    """Add what one variant has beside its commit: for a single probe."""
    return _apply(
        [
            click.option("--env", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
                         help="Packages (requirements, lock file, pip freeze) or variables (.env) to run with."),
            click.option("--data", multiple=True, metavar="TARGET=PATH", help="Data to link at TARGET in the checkout."),
            click.option("--hydra", metavar="TEXT", help="Hydra composition, in one argument: name of the primary config, then"
                         " overrides; given where {overrides} stands in the command."),
            click.option("--image", default="", metavar="IMAGE", help="Container image, for {image} in the recipe's launcher."),
            *_source_options(),
        ],
        function,
    )  # fmt: skip


def prior_options(function: F) -> F:
    """Add which changes are suspects before anything ran."""
    return _apply(
        [
            click.option("--prior", multiple=True, metavar="KIND:PATTERN=WEIGHT",
                         help="Prior weight of the changes that match, above 0 to 1000: path:GLOB, message:REGEX, author:REGEX"
                         " or key:GLOB; may be repeated, weights multiply."),
        ],
        function,
    )  # fmt: skip


def output_options(function: F) -> F:
    """Add where results go."""
    return _apply(
        [
            click.option("--json", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                         help="Write report.json here."),
            click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
                         help="Write report.json and report.html here."),
            click.option("--quiet", "-q", is_flag=True, help="No progress, the report only."),
            click.option("--no-color", is_flag=True, help="No colours."),
        ],
        function,
    )  # fmt: skip
