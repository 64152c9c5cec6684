"""`--symptom NAME`: the names that can be asked for, and what they mean."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

import rich_click as click

from bisect_train.cli.asked import Asked
from bisect_train.cli.terminal import say
from bisect_train.core.errors import InputError
from bisect_train.core.verdict import Criterion
from bisect_train.verdict.triage import BASELINE_SYMPTOMS, SYMPTOMS, WIDER_SYMPTOMS

LIST = "help"


def list_symptoms() -> Iterator[str]:
    """Yield the names by category, each with what it means."""
    category = None
    for name, symptom in SYMPTOMS.items():
        if symptom.category is not category:
            category = symptom.category
            yield f"{category.value.replace('_', ' ')}:"
        needs = " (needs a baseline: probe --baseline, compare)" if name in BASELINE_SYMPTOMS else ""
        needs = f" (told by triage; ask for {_say_wider(name)})" if name in WIDER_SYMPTOMS else needs
        yield f"  {name:<26} {symptom.description}{needs}"


def show_list(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Print the names and leave, if that is what was asked for."""
    if value == LIST and not ctx.resilient_parsing:
        for line in list_symptoms():
            say(line)
        ctx.exit()
    return value


def _say_wider(name: str) -> str:
    return " or ".join(f"`--symptom {wider}`" for wider in WIDER_SYMPTOMS[name])


def refuse_symptom(asked: Asked) -> None:
    """Raise InputError where the symptom that was asked for is unknown, or cannot be the criterion.

    Raises:
        InputError: unknown, told by a comparison, stacks or the log only, or beside another criterion.
    """
    name = asked.symptom
    if not name:
        return
    if name not in SYMPTOMS:
        near = difflib.get_close_matches(name, SYMPTOMS, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        known = ", ".join(sorted(SYMPTOMS.keys() - BASELINE_SYMPTOMS - WIDER_SYMPTOMS.keys()))
        raise InputError(f"unknown symptom {name!r}", hint=f"{meant}known: {known}; `--symptom {LIST}` says what they mean")
    if name in BASELINE_SYMPTOMS:
        raise InputError(
            f"the symptom {name!r} shows only against a baseline, so no single run can be judged by it",
            hint="judge by a metric (`--metric`), or look at it with `bisect-train probe --baseline REV` or `compare A B`",
        )
    if name in WIDER_SYMPTOMS:
        raise InputError(
            f"the symptom {name!r} is told from stacks and the log, by which no single run is judged",
            hint=f"ask for {_say_wider(name)}: the report, or `probe --triage`, says which kind it is",
        )
    if asked.judge is not None:
        raise InputError("--symptom and --judge contradict each other", hint="one of them decides whether a run is bad")
    if Criterion(asked.criterion) not in (Criterion.AUTO, Criterion.SYMPTOM):
        raise InputError(
            f"--symptom and --criterion {asked.criterion} contradict each other",
            hint="a symptom implies `--criterion symptom`",
        )
