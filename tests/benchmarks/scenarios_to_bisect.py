"""The histories that `bench_bisect` runs all methods on: 256 commits, the embedded example, and two of nanoGPT if it is given.

nanoGPT (https://github.com/karpathy/nanoGPT) is not part of this project: `--nanogpt FOLDER` or BENCH_NANOGPT names a clone, or
a bare repository, of it. Its data are written here, from made-up words, in the format of its data/shakespeare_char.
"""

from __future__ import annotations

import json
import pickle
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from bisect_train.demo import build as build_demo
from tests.benchmarks import long_history
from tests.support.git_repos import git

HOOK = Path(__file__).with_name("counting_hook")


@dataclass(frozen=True)
class Script:
    """What a person would have `git bisect run` call.

    Attributes:
        command: the program.
        stop_after: steps after which it is ended from outside, 0 where the command says it itself.
    """

    command: tuple[str, ...]
    stop_after: int = 0


@dataclass(frozen=True)
class Scenario:
    """A history with a known answer, and how each method is run on it.

    Attributes:
        name: for the table.
        repo: repository.
        good, bad: commits, 40 hex digits.
        culprits: what counts as the right answer: a commit, or the merge that brought it.
        num_commits: candidates.
        full, short: scripts for the others.
        pattern: regular expression whose last match in the output is the metric; lower is better.
        thresholds: of the metric, of the full script and of the short one, halfway between the ends; None: to be measured.
        asked: arguments of `bisect-train run`, without the ends.
        files: untracked files that each checkout of the others needs: path in the checkout -> source.
        has_own_count: whether the program writes STEP_LOG itself.
    """

    name: str
    repo: Path
    good: str
    bad: str
    culprits: tuple[str, ...]
    num_commits: int
    full: Script
    short: Script
    pattern: str
    thresholds: tuple[float, float] | None
    asked: tuple[str, ...]
    files: dict[str, Path] = field(default_factory=dict)
    has_own_count: bool = False


def make_long(folder: Path, *, has_loud_decoys: bool = False) -> Scenario:
    """Return the deterministic history of 256 commits."""
    history = long_history.build_long_history(folder / "long", has_loud_decoys=has_loud_decoys)
    python = (sys.executable, "train.py", "--steps")
    return Scenario(
        name=f"{long_history.NUM_COMMITS} commits{', a fifth of them change the numbers a little' if has_loud_decoys else ''}",
        repo=history.path,
        good=history.commits[0],
        bad=history.commits[-1],
        culprits=(history.culprit,),
        num_commits=long_history.NUM_COMMITS,
        full=Script((*python, str(long_history.NUM_STEPS))),
        short=Script((*python, "20")),
        pattern=r"loss ([0-9.naninf]+)",
        thresholds=(1.05, 2.2),
        asked=("--steps", "20", "--no-descend", "--", *long_history.COMMAND),
        has_own_count=True,
    )


def make_demo(folder: Path) -> Scenario:
    """Return the example that `bisect-train demo` searches."""
    demo = build_demo(folder / "demo")
    command = (sys.executable, *demo.command[1:])
    return Scenario(
        name="embedded example",
        repo=demo.path,
        good=demo.good,
        bad=demo.bad,
        culprits=(demo.culprit,),
        num_commits=demo.num_commits,
        full=Script(command),
        short=Script(command, stop_after=40),
        pattern=r"\| loss ([0-9.naninf]+)",
        thresholds=None,
        asked=("--steps", "40", "--no-descend", "--", *demo.command),
    )


_GPT = (
    *("--device=cpu", "--compile=False", "--dtype=float32", "--dataset=shakespeare_char", "--n_layer=2", "--n_head=2"),
    *("--n_embd=64", "--block_size=64", "--batch_size=8", "--warmup_iters=2", "--eval_iters=20", "--log_interval=1"),
)
_NUM_GPT_STEPS = (100, 8)  # of the full and of the short script


@dataclass(frozen=True)
class _Row:
    """One of nanoGPT's regressions: the ends, the culprits, what shows it, what program and bisect-train are told besides."""

    what: str
    good: str
    bad: str
    culprits: tuple[str, ...]
    pattern: str
    told: tuple[str, ...] = ("--dropout=0.2",)
    metric: str = ""
    asked: tuple[str, ...] = ()


_ROWS = (
    _Row("nanoGPT 1, tied weights", "a855d316", "43b37fd5^", ("7c828855",), r"iter \d+: loss ([0-9.naninf]+)"),
    _Row(
        what="nanoGPT 2, dropout while evaluating",
        # of the range that has it, those commits that train in the same way otherwise; it changes numbers, and makes none worse
        good="ae3a8d5f",
        bad="7840a668",
        culprits=("6170531b", "0d8fbd11"),  # the commit, and the merge on the main line
        pattern=r"step 0: train loss [0-9.]+, val loss ([0-9.naninf]+)",
        told=("--dropout=0.5", "--gradient_accumulation_steps=1"),
        metric="val",
        asked=("--criterion", "exact"),
    ),
)


def make_nanogpt(folder: Path, source: Path, row_idx: int) -> Scenario:
    """Return row 1 or 2 of nanoGPT's own regressions (idx 0, 1)."""
    row = _ROWS[row_idx]
    repo = folder / "nanogpt"
    if not repo.exists():
        git(folder, "clone", "-q", str(source), str(repo))
    good, bad, *culprits = (git(repo, "rev-parse", name) for name in (row.good, row.bad, *row.culprits))
    files = write_gpt_data(folder / "gpt-data")
    num = int(git(repo, "rev-list", "--count", "--first-parent", f"{good}..{bad}"))
    lengths = ("max_iters", "lr_decay_iters", "eval_interval")
    scripts = [
        Script((sys.executable, "train.py", *_GPT, *row.told, *(f"--{name}={steps}" for name in lengths)))
        for steps in _NUM_GPT_STEPS
    ]
    recipe = folder / f"gpt-{row_idx}.yaml"
    recipe.write_text(_recipe(row, scripts[0] if not row.metric else scripts[1], files))
    return Scenario(
        name=row.what,
        repo=repo,
        good=good,
        bad=bad,
        culprits=tuple(culprits),
        num_commits=num,
        full=scripts[0],
        short=scripts[1],
        pattern=row.pattern,
        thresholds=None,
        asked=("--recipe", str(recipe), "--no-descend", *row.asked),
        files=files,
    )


def _recipe(row: _Row, script: Script, files: dict[str, Path]) -> str:
    told: dict[str, object] = {
        "command": ["python", *script.command[1:]],
        "shrink": {"steps": [_NUM_GPT_STEPS[1] if not row.metric else "end"]},
        "data": {"link": [{"from": str(path), "to": name} for name, path in files.items()]},
    }
    if row.metric:
        told["metrics"] = {row.metric: {"from": "log", "pattern": row.pattern, "better": "lower"}}
    return json.dumps(told)  # JSON is YAML


def write_gpt_data(folder: Path) -> dict[str, Path]:
    """Write made-up text as uint16 ids with a table of symbols; return path in the checkout -> file."""
    folder.mkdir(exist_ok=True)
    chooser = random.Random(5)
    words = ["".join(chooser.choice("aeiou" if idx % 2 else "bdklmnrst") for idx in range(5)) for _ in range(300)]
    text = "".join(chooser.choice(words) + chooser.choice((" ", " ", " ", ", ", ".\n")) for _ in range(40_000))
    symbols = sorted(set(text))
    number = {symbol: idx for idx, symbol in enumerate(symbols)}
    ids = np.array([number[symbol] for symbol in text], dtype=np.uint16)
    split = int(0.9 * len(ids))
    ids[:split].tofile(folder / "train.bin")
    ids[split:].tofile(folder / "val.bin")
    meta = {"vocab_size": len(symbols), "itos": dict(enumerate(symbols)), "stoi": number}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
    return {f"data/shakespeare_char/{name}": folder / name for name in ("train.bin", "val.bin", "meta.pkl")}


SCENARIOS: dict[str, Callable[[Path], Scenario]] = {
    "long": make_long,
    "loud": partial(make_long, has_loud_decoys=True),
    "demo": make_demo,
}
