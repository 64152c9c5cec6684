"""What several commands say before anything runs: titles, the list of changes, the dry run."""

from __future__ import annotations

import shlex
from collections import Counter

from bisect_train.changes.fixup import FixupUse, refuse_unused
from bisect_train.changes.space import ChangeSpace
from bisect_train.cli.asked import Asked
from bisect_train.cli.asking import config_ends
from bisect_train.cli.estimate import say_duration, say_estimates
from bisect_train.cli.notes import say_note
from bisect_train.cli.terminal import SafeConsole
from bisect_train.core.errors import InputError
from bisect_train.core.question import ConfigEnd, Question
from bisect_train.core.secrets import mask_command
from bisect_train.report.words import name_change, say_count, say_counts, short_id
from bisect_train.store.contract import Store


def config_files(asked: Asked) -> tuple[ConfigEnd | None, ConfigEnd | None]:
    """Return the config files of both ends, or (None, None) when the config travels with the commit.

    Raises:
        InputError: only one of them was given.
    """
    if asked.good_config is None and asked.bad_config is None:
        return None, None
    if asked.good_config is None or asked.bad_config is None:
        raise InputError("--good-config and --bad-config belong together", hint="give both, or neither")
    return config_ends(asked.good_config, asked.bad_config, ())


def refuse_nothing_to_search(space: ChangeSpace) -> None:
    """Raise InputError where no change is searched."""
    if space.changes:
        return
    left = ", ".join(sorted(short_id(change) for change in space.held)[:5])
    what = f"; --only and --exclude leave out: {left}" if left else ""
    raise InputError(
        f"nothing differs between the ends that is to be searched{what}",
        hint="`bisect-train diff` with the same options lists it",
    )


def title_of(question: Question, space: ChangeSpace) -> str:
    """Return one line for lists: what is compared."""
    asked = question.range
    parts = []
    if asked.goods != (asked.bad,):
        parts.append(f"{', '.join(good[:8] for good in asked.goods)}..{asked.bad[:8]}")
    if question.good_config and question.bad_config:
        parts.append(f"{question.good_config.path} .. {question.bad_config.path}")
    if not parts:
        parts.append(f"two ways to run {asked.bad[:8]}")
    return f"{' and '.join(parts)} ({count_changes(space)})"


def count_changes(space: ChangeSpace) -> str:
    """Return such as `12 commits, 3 config keys`."""
    return say_counts(Counter(change.kind.value for change in space.changes))


def name_inside(question: Question, space: ChangeSpace) -> str:
    """Return what a part of a bisection looks into, and how many changes are there."""
    inside = question.inside
    if inside.submodule:
        span = f"{inside.releases[0][:8]} -> {inside.releases[1][:8]}"
        what = f"commit {inside.commit[:8]} of the submodule {inside.submodule}" if inside.commit else ""
        return f"{what or f'the submodule {inside.submodule}: {span}'}: {count_changes(space)}"
    if inside.package:
        searched = count_changes(space) if inside.package_repo else f"{len(space.changes)} steps from release to release"
        kind = "the repository of" if inside.package_repo else "package"
        return f"{kind} {inside.package}, {inside.releases[0][:12]}..{inside.releases[-1][:12]}: {searched}"
    if inside.commit:
        return f"commit {inside.commit[:8]}: {count_changes(space)}"
    merge = space.changes[-1]
    num = say_count(len(space.changes) - 1, "commit")
    return f"merge {name_change(merge).removeprefix('commit ')}: {num} and the merge itself"


def survey_fixups(space: ChangeSpace) -> tuple[str, ...]:
    """Return for each `--fixup` a line that says how many commits take it.

    Raises:
        InputError: none of them does.
    """
    uses = space.survey_fixups()
    refuse_unused(uses)
    return tuple(_say_use(use) for use in uses)


def _say_use(use: FixupUse) -> str:
    if use.num_tried == use.num_states:
        return f"--fixup {use.path} applies to {use.num_applied:,} of {say_count(use.num_states, 'commit')}"
    tried = f"the {use.num_tried:,} commits that were tried ({use.num_states:,} in all)"
    return f"--fixup {use.path} applies to {use.num_applied:,} of {tried}"


def warn_before(space: ChangeSpace) -> None:
    """Warn on stderr of what may not be as it was meant: packages that do not follow the commits, priors that match nothing."""
    for text in say_ignored_requirements(space):
        say_note(text)
    for text in space.priors.idle:
        say_note(f"--prior {text!r} matches no change of the range")


def say_ignored_requirements(space: ChangeSpace) -> tuple[str, ...]:
    """Return a warning where packages that the commits ask for change, and all probes run in one environment."""
    paths = space.ignored_requirements()
    if not paths:
        return ()
    shown = ", ".join(paths[:3])
    return (
        f"{shown} changes within the range, and every commit runs in the same environment: name it in the recipe, "
        f"`environment: {{files: [{paths[0]}]}}`, and each commit runs with what its own asks for",
    )


def print_dry_run(question: Question, space: ChangeSpace, title: str, store: Store) -> int:
    """Say what a bisection would do; return exit status 0."""
    console = SafeConsole(highlight=False)
    fixups = survey_fixups(space)
    console.print(f"would bisect {title}", markup=False)
    console.print(f"command   {shlex.join(mask_command(question.command))}", markup=False)
    console.print(f"python    {question.settings.python}", markup=False)
    console.print(f"probe     {question.rung.name}, at most {question.settings.timeout_s:g} s", markup=False)
    if question.ladder:
        larger = ", ".join(rung.name for rung in question.ladder[1:])
        console.print(f"larger    {larger}: where nothing shows before", markup=False, soft_wrap=True)
    for line in fixups:
        console.print(f"patch     {line}", markup=False)
    metric = question.metric
    decides = f"{metric.name} ({metric.reduce}, {metric.better} is better), {question.criterion.value}"
    decides += ", any change counts" if question.any_change else ""
    decides += ", in percent of the good end's run beside it" if metric.is_paired else ""
    if question.symptom:
        decides = f"whether a run shows {question.symptom}"
    console.print(f"decides   {decides}", markup=False)
    for text, num_matched in space.priors.num_matched:
        console.print(f"prior     {text} ({say_count(num_matched, 'change')})", markup=False, soft_wrap=True)
    for idx, line in enumerate(say_estimates(question, len(space.changes))):
        console.print(f"{'' if idx else 'probes':<9} {line}", markup=False, soft_wrap=True)
    if duration := say_duration(store, question, len(space.changes)):
        console.print(f"time      {duration}", markup=False, soft_wrap=True)
    return 0
