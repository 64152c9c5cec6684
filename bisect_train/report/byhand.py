"""How to make and run a state by hand: git commands, the config, the training command."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath

from bisect_train.core.changes import GOOD_END, ChangeKind, DataLink, Point, Variant
from bisect_train.core.errors import BisectTrainError
from bisect_train.core.question import ConfigHold
from bisect_train.core.secrets import HIDDEN, is_secret, mask_command, mask_logins
from bisect_train.core.shown import one_line
from bisect_train.report.case import Case
from bisect_train.report.parts import ReproducePart
from bisect_train.report.words import say_count, short_id
from bisect_train.verdict.proof import ClaimKind

COPY = "bisect-by-hand"
PACKAGES = "packages-by-hand"
PORT = "29500"
MAX_CONFIG_CHANGES = 4
_PLACEHOLDER = re.compile(r"\{(config|out|port|ranks|seed|steps)\}")


def reproduce_by_hand(case: Case) -> tuple[ReproducePart, ...]:
    """Return the commands for the states that matter most: around each culprit, else the ends."""
    repo = shlex.quote(case.question.repo)
    lines = [f"git clone --quiet {repo} {COPY}", f"cd {COPY}", *_prepare(case)]
    parts = [ReproducePart("A copy to work in, so that your checkout stays as it is", tuple(lines))]
    for title, point in _states(case):
        parts.append(ReproducePart(one_line(title), _lines_for(case, point)))
    return tuple(parts)


def _states(case: Case) -> tuple[tuple[str, Point], ...]:
    states: dict[Point, str] = {}  # two culprits may lie beside each other: their common state is made once
    for culprit in case.answer.culprits:
        parent = next((result.claim for result in culprit.claims if result.claim.kind is ClaimKind.PARENT), None)
        if parent is not None:
            name = "it" if len(case.answer.culprits) == 1 else short_id(case.space.changes[culprit.changes[-1]])
            states.setdefault(parent.healthy, f"Just before {name} ({case.say(parent.healthy)})")
            states.setdefault(parent.sick, f"With {name} ({case.say(parent.sick)})")
    if not states:
        return (("The good end", case.good_point), ("The bad end", case.bad_point))
    return tuple((title, point) for point, title in states.items())


def _prepare(case: Case) -> list[str]:
    settings = case.question.settings
    # a checkout has tracked folders only
    folders = dict.fromkeys(str(PurePosixPath(link.target).parent) for link in settings.links)
    lines = [f"mkdir -p {shlex.quote(folder)}" for folder in folders if folder != "."]
    for link in settings.links:
        lines.append(_link_line(link, "ln -s"))
    return lines


def _link_line(link: DataLink, otherwise: str) -> str:
    """Return what brings data into a checkout: addresses are fetched, python files copied, see the worker's `data_links`."""
    if link.is_remote:
        source, target = mask_logins(link.source), link.target
        code = (
            f"import fsspec; at, path = fsspec.core.url_to_fs({source!r}); at.get(path, {target!r}, recursive=at.isdir(path))"
        )
        return f"python -c {shlex.quote(code)}"
    command = "cp" if link.target.endswith(".py") else otherwise
    return f"{command} {shlex.quote(link.source)} {shlex.quote(link.target)}"


def _lines_for(case: Case, point: Point) -> tuple[str, ...]:
    try:
        lines = list(case.space.reproduce(point))
        variant = case.space.variant(point)
    except BisectTrainError as error:
        return (f"# cannot be built: {mask_logins(one_line(error.message))}",)
    config, notes = _config_for(case, point)
    settings = case.question.settings
    lines += [_link_line(link, "ln -sfn") for link in variant.links]
    lines += _lay_packages(case, variant)
    lines += [_join(_use_python(command, variant.python or settings.python)) for command in settings.setup]
    lines += [*notes, _training_line(case, variant, config)]
    steps = case.question.rung.steps
    if steps is not None:
        lines.append(f"# the probes were stopped after {say_count(steps, 'optimizer step')}")
    if any(HIDDEN in line for line in lines):
        lines.append(f"# put your own secrets where {HIDDEN} stands")
    return tuple(lines)


def _lay_packages(case: Case, variant: Variant) -> list[str]:
    if not variant.packages:
        return []
    settings, python = case.question.settings, variant.python or case.question.settings.python
    places = [part for place in settings.environment.find_links for part in ("--find-links", place)]
    index = settings.environment.index
    places += ["--no-index"] if index == "none" else ["--index-url", index] if index else []
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", PACKAGES, *places]
    return [_join([*install, *variant.packages])]


def _config_for(case: Case, point: Point) -> tuple[str, list[str]]:
    """Return the path that stands for the config file and comments on what it must hold."""
    question = case.question
    if question.good_config is None or question.bad_config is None or question.hold is not ConfigHold.TRAVEL:
        return question.config_path, []
    good, bad = question.good_config.path, question.bad_config.path
    changes = [(idx, item) for idx, item in enumerate(case.space.changes) if item.kind is ChangeKind.CONFIG]
    held = [item for idx, item in changes if point != GOOD_END and point.holds(idx)]
    left = [item for idx, item in changes if point == GOOD_END or not point.holds(idx)]
    if not held or question.override:
        return good, []
    if not left:
        return bad, []
    base, noted, word = (good, held, "with these changes") if len(held) <= len(left) else (bad, left, "without these changes")
    copy = f"by-hand{re.sub(r'.*(?=[.])', '', base)}"
    shown = [f"#   {one_line(item.title)}" for item in noted[:MAX_CONFIG_CHANGES]]
    if len(noted) > MAX_CONFIG_CHANGES:
        shown.append(f"#   and {len(noted) - MAX_CONFIG_CHANGES} more: `bisect-train diff` lists them")
    return copy, [f"cp {shlex.quote(base)} {copy}", f"# then edit {copy}, {word}:", *shown]


def _use_python(command: tuple[str, ...], python: str) -> list[str]:
    first, *rest = command
    return [python if first in ("python", "python3") else first, *rest]


def _training_line(case: Case, variant: Variant, config: str) -> str:
    question, rung, command = case.question, case.question.rung, variant.command
    ranks, python = variant.ranks or rung.ranks, variant.python or question.settings.python
    values = {"config": config, "out": "out", "port": PORT, "seed": "0"}
    values |= {"ranks": str(ranks), "steps": str(rung.steps or "")}
    has_ranks = any("{ranks}" in part for part in command)
    filled = [_PLACEHOLDER.sub(lambda match: values[match[1]], part) for part in command if part != "{overrides}"]
    is_python = bool(filled) and filled[0] in ("python", "python3", python)
    arguments = _use_python(tuple(filled), python) if filled else []
    if ranks > 1 and not has_ranks and is_python:
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", PORT]
        arguments = [arguments[0], *launcher, *arguments[1:]]
    env = {"OMP_NUM_THREADS": str(question.settings.threads)}
    env |= {} if question.settings.gpus else {"CUDA_VISIBLE_DEVICES": ""}
    env |= dict(variant.env)  # the state's own variables win, as in a probe
    env |= {"PYTHONPATH": PACKAGES} if variant.packages else {}
    return " ".join([*(_assign(name, value) for name, value in env.items()), _join([*variant.launcher, *arguments])])


def _assign(name: str, value: str) -> str:
    """Return an assignment before a command; a secret is taken from the reader's own environment."""
    is_hidden = value and (is_secret(name) or mask_logins(value) != value)
    return f'{name}="${name}"' if is_hidden else f"{name}={shlex.quote(value)}"


def _join(command: list[str]) -> str:
    """Return a command for a shell; what it holds of secrets is hidden."""
    return shlex.join(mask_command(command))
