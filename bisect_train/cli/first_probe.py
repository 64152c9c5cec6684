"""Proves a new recipe with one tiny probe, or says why this machine cannot run it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bisect_train.changes.repository import Repository
from bisect_train.cli.asked import Asked
from bisect_train.cli.asking import ask_question
from bisect_train.cli.checkup import Finding
from bisect_train.cli.data_ends import snapshot_without_data
from bisect_train.cli.desk import Desk
from bisect_train.cli.finding import find_python
from bisect_train.cli.singles import OneEnd, run_ends
from bisect_train.core.errors import BisectTrainError, InterruptedByUser
from bisect_train.core.interpreters import ALONE
from bisect_train.core.probe import ProbeResult
from bisect_train.core.question import Range
from bisect_train.recipe import Recipe, load_recipe
from bisect_train.report.words import say_count, say_number, say_seconds, shorten

PROOF_STEPS = 5
_MISSING = f"""{ALONE}import importlib.util as u, json
sys.path.insert(0, "")  # a repository has its own module; it is found, not run
print(json.dumps([m for m in sys.argv[1:] if u.find_spec(m) is None]))"""


def prove_recipe(desk: Desk, repository: Repository, path: Path, *, python: str | None) -> Finding:
    """Run the working tree for a few steps as a recipe says; return what came out, or why it was not run.

    Args:
        desk: home and store.
        repository: that the recipe is for.
        path: of the recipe.
        python: interpreter that was named, or None.
    """
    try:
        recipe = load_recipe(path)
        lacks = lacks_of(recipe, find_python(python))
        if lacks:
            return Finding("proof", True, f"not run, this machine lacks {', '.join(lacks)}", "")
        asked = Asked(recipe=path, repo=repository.root, python=python, steps=_num_steps(recipe))
        commit = snapshot_without_data(asked, repository)
        question = ask_question(asked, repository, kind="probe", commits=Range((commit,), commit))
        # a probe of its own tells where the loss is, which another metric would not
        question = replace(question, settings=replace(question.settings, needs_recorder=False))
        ends = [OneEnd(question, is_bad=True)]
        [(key, result)] = run_ends(desk, repository, ends, title="proof of a new recipe", quiet=True)
    except InterruptedByUser:
        raise
    except BisectTrainError as error:
        return Finding("proof", False, error.message, error.hint)
    return _judge(key, result)


def _num_steps(recipe: Recipe) -> int:
    first = next((num for num in recipe.shrink.steps if num is not None), PROOF_STEPS)
    return min(first, PROOF_STEPS)


def lacks_of(recipe: Recipe, python: str) -> tuple[str, ...]:
    """Return what a recipe needs and this machine has not: modules of the interpreter, GPUs."""
    wanted = [name for name in recipe.needs_modules if name not in recipe.stubs]
    missing = _missing_modules(wanted, python) if wanted else ()
    num = recipe.needs_gpus
    gpus = (say_count(num, "GPU"),) if num and num_gpus() < num and not recipe.shims else ()
    return (*(f"the module {name}" for name in missing), *gpus)


def _missing_modules(names: Sequence[str], python: str) -> tuple[str, ...]:
    done = subprocess.run([python, "-c", _MISSING, *names], capture_output=True, text=True, check=False)
    return tuple(json.loads(done.stdout)) if done.returncode == 0 else ()


def num_gpus() -> int:
    """Return the number of NVIDIA GPUs that the driver's own tool lists, 0 without it."""
    if not shutil.which("nvidia-smi"):
        return 0
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return sum(1 for line in done.stdout.splitlines() if line.startswith("GPU ")) if done.returncode == 0 else 0


def _judge(key: str, result: ProbeResult) -> Finding:
    run = result.fingerprint
    remedy = f"`bisect-train show {key[:8]}` prints its output; correct the recipe, then `bisect-train probe`"
    if not run.ending.is_healthy:
        return Finding("proof", False, shorten(run.ending.message or run.ending.kind.value, 200), remedy)
    losses = [step.loss for step in run.ranks[0].steps if step.loss is not None] if run.ranks else []
    if not losses:
        said = "it ran, but no loss was recorded"
        return Finding("proof", False, said, "judge by a metric of the log: `metrics:` in the recipe")
    shown = f"loss {say_number(losses[0])} -> {say_number(losses[-1])}" if len(losses) > 1 else f"loss {say_number(losses[0])}"
    stand_ins = [f"{value} ({name})" for name, value in run.facts if name in ("stubs", "shims")]
    with_what = f", with stand-ins: {', '.join(stand_ins)}" if stand_ins else ""
    return Finding("proof", True, f"{say_count(run.num_steps, 'step')} in {say_seconds(result.wall_s)}, {shown}{with_what}")
