"""Bisects the apps for real, each with the released package of its framework: `init` writes the recipe, `run` names the commit.

    python -m tests.frameworks.bisect_apps --python hydra=PATH --python hf-trainer=PATH ... [--json FILE] [--keep DIR]

PATH is an interpreter with torch and the framework; it runs the probes. For each app a repository is made of
`examples/frameworks/NAME` and a dozen commits, one of them bad. The table tells whether that one was named, and
whether the recorder saw what the framework's own logger wrote; status 1 where something is wrong. Slow: minutes an app.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bisect_train.core.fingerprint import Fingerprint, MetricSeries
from bisect_train.recipe import Recipe, load_recipe
from tests.frameworks.app import App, Asked
from tests.frameworks.apps import APPS
from tests.scenarios.library.repository import build_repository
from tests.support.command_line import CommandLine

LIMIT_S = 3600.0
COLUMNS = "{:<11} {:<40} {:<8} {:>6} {:>5} {:>6} {:<10} {:<42} {}"


@dataclass(frozen=True)
class Built:
    """An app's repository, what `init` wrote, and the hashes of its main line."""

    app: App
    python: str
    line: CommandLine
    recipe: Path
    main: tuple[str, ...]
    culprit: str
    version: str


@dataclass(frozen=True)
class Loss:
    """The training loss as one place has it, held against the recorder's.

    Attributes:
        name: of the metric.
        source: where it was read.
        num: values.
        difference: the largest, as a share; 0.0 are the same bits.
        is_equal: whether there is one value for each step, as near to the recorder's as its digits allow.
    """

    name: str
    source: str
    num: int
    difference: float
    is_equal: bool


@dataclass(frozen=True)
class Sight:
    """What one whole run showed.

    Attributes:
        num_steps: that the recorder saw, of rank 0.
        losses: where the framework writes the training loss.
        same_bits: whether a run without the recorder ends with the same parameters.
    """

    num_steps: int
    losses: tuple[Loss, ...]
    same_bits: bool


@dataclass(frozen=True)
class Row:
    """What the table says of one question."""

    app: str
    version: str
    asked: str
    probes: int
    steps: int
    wall_s: float
    status: str
    named: str
    is_right: bool
    sight: Sight


def build(app: App, python: str, folder: Path) -> Built:
    """Make the repository, and let `init` write its recipe.

    Raises:
        AssertionError: `init` took it for something else, or its proof failed.
    """
    base = app.base(sources_of(app.copied, python) if app.copied else None)
    by_subject, main = build_repository(folder / "repo", base, app.history, first=f"a small {app.name} program")
    line = CommandLine(folder / "repo", folder / "home")
    recipe = folder / "recipe.yaml"
    status, said = line.run("init", "--output", str(recipe), "--python", python, timeout_s=LIMIT_S)
    print(said, flush=True)
    assert status == 0 and f"this looks like {app.name}" in said and "not run" not in said, said
    names = ", ".join(repr(name) for name in ("torch", *app.packages))
    source = f"from importlib.metadata import version as v; print(' '.join(n + ' ' + v(n) for n in ({names},)[1:]))"
    version = subprocess.run([python, "-c", source], capture_output=True, text=True, check=True).stdout.strip()
    return Built(app, python, line, recipe, main, by_subject[app.culprit.subject], version)


def sources_of(package: str, python: str) -> dict[str, str]:
    """Return the python files of a package that an interpreter has, by their path below site-packages."""
    code = f"import importlib.util as u; print(u.find_spec({package!r}).submodule_search_locations[0])"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    files = [path for path in sorted(Path(found).rglob("*.py")) if "__pycache__" not in path.parts]
    return {path.relative_to(Path(found).parent).as_posix(): path.read_text(encoding="utf-8") for path in files}


# ---- what the recorder sees -----------------------------------------------------------------------------------------


def look(built: Built) -> Sight:
    """Run the good end once to its end, and once more without the recorder."""
    folder, app = built.line.home.parent, built.app
    recipe, target = folder / "losses.yaml", folder / "probe.json"
    more = "".join(f"  {name}: {text}\n" for name, text in app.losses.items())
    recipe.write_text(f"{built.recipe.read_text()}\nmetric: loss\nmetrics:\n{more}")
    command = (*load_recipe(recipe).command, *app.arguments)
    options = ("--rev", built.main[0], "--steps", "end", "--ranks", str(app.ranks), "--recipe", str(recipe))
    status, said = _ask(built, "probe", *options, "--json", str(target), "--", *command)
    assert status == 0, said
    result = json.loads(target.read_text())["result"]
    print(result["log_tail"][-3000:], *result["warnings"], sep="\n", flush=True)
    fingerprint = Fingerprint.of_json(result["fingerprint"])
    series = {item.name: item for item in fingerprint.metrics}
    plain = digest_in(run_plainly(built, load_recipe(recipe), command))
    return Sight(
        num_steps=fingerprint.num_steps,
        losses=tuple(compare(losses_of(fingerprint), series[name], app.tolerance) for name in app.losses),
        same_bits=plain == digest_in(result["log_tail"]),
    )


def losses_of(fingerprint: Fingerprint) -> list[float]:
    """Return the mean of the ranks' losses at each step; NaN where one has none."""
    ranks = [[math.nan if step.loss is None else step.loss for step in rank.steps] for rank in fingerprint.ranks]
    return [sum(values) / len(values) for values in zip(*ranks, strict=True)]


def compare(recorded: Sequence[float], written: MetricSeries, tolerance: float) -> Loss:
    """Return how near a written loss is to the recorder's; half a unit of its last digit, and `tolerance`, is equal."""
    origin, pairs = written.origin, list(zip(recorded, written.values, strict=False))
    far = [abs(mine - own) for mine, own in pairs]
    bounds = [0.501 * origin.unit_at(own) + tolerance * abs(own) for _, own in pairs]
    is_near = all(distance <= bound for distance, bound in zip(far, bounds, strict=True))
    difference = max((distance / max(abs(own), 1e-12) for distance, (_, own) in zip(far, pairs, strict=True)), default=math.inf)
    source = f"{origin.source} {origin.file}".strip() + (f" ({origin.note})" if origin.note else "")
    return Loss(written.name, source, len(written.values), difference, is_near and len(recorded) == len(written.values) > 0)


def digest_in(text: str) -> str:
    """Return the digest of the parameters that a program printed.

    Raises:
        ValueError: it printed none.
    """
    found = re.findall(r"\bparameters ([0-9a-f]{64})\b", text)
    if not found:
        raise ValueError(f"no digest of the parameters was printed: {text[-2000:]}")
    return str(found[-1])


def run_plainly(built: Built, recipe: Recipe, command: Sequence[str]) -> str:
    """Return what the good end prints without the recorder, started by the same command."""
    folder = built.line.home.parent / "plain"
    subprocess.run(["git", "clone", "-q", str(built.line.folder), str(folder)], check=True)
    subprocess.run(["git", "checkout", "-q", built.main[0]], cwd=folder, check=True)
    python = Path(built.python)
    env = {
        **os.environ,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    env |= {"PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "offline", **dict(recipe.data.env)}
    done = subprocess.run(
        plain_command(recipe, command, python=built.python, ranks=built.app.ranks, port=free_port(), out=str(folder / "out")),
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def plain_command(recipe: Recipe, command: Sequence[str], *, python: str, ranks: int, port: int, out: str) -> list[str]:
    """Return a command with its placeholders filled, without overrides."""
    values = {"{config}": recipe.config.file, "{ranks}": str(ranks), "{port}": str(port), "{out}": out}
    parts = [python if part == "python" else part for part in command if part != "{overrides}"]
    for place, value in values.items():
        parts = [part.replace(place, value) for part in parts]
    return parts


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ---- the bisection --------------------------------------------------------------------------------------------------


def bisect(built: Built, asked: Asked, sight: Sight) -> Row:
    """Ask one question, and hold the answer against the history."""
    target = built.line.home.parent / f"report-{asked.label}.json"
    bad = built.main[0] if asked.keys else built.main[-1]
    options = ("--good", built.main[0], "--bad", bad, "--ranks", str(built.app.ranks), "--recipe", str(built.recipe))
    started = time.monotonic()
    status, said = _ask(built, "run", *options, *asked.options, "--json", str(target))
    wall_s = time.monotonic() - started
    print(said, flush=True)
    assert target.exists(), said
    report = json.loads(target.read_text())
    wanted = list(asked.keys) or [built.culprit]
    named = named_by(report)
    return Row(
        app=built.app.name,
        version=built.version,
        asked=asked.label,
        probes=report["cost"]["probes"],
        steps=report["cost"]["steps"],
        wall_s=round(wall_s, 1),
        status=report["status"],
        named=", ".join(title for _, title in named) or "nothing",
        is_right=status == 0 and report["status"] == "isolated" and [name for name, _ in named] == wanted,
        sight=sight,
    )


def named_by(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return id and title of the changes that a report names."""
    return [(change["id"], change["title"]) for culprit in report["culprits"] for change in culprit["changes"]]


def _ask(built: Built, *arguments: str) -> tuple[int, str]:
    command, *rest = arguments
    return built.line.run(command, "--python", built.python, "--quiet", *rest, timeout_s=LIMIT_S)


# ---- the table ------------------------------------------------------------------------------------------------------


def table_line(row: Row) -> str:
    """Return the table's line of a question."""
    right = "yes" if row.is_right else "NO"
    cells = (row.app, row.version, row.asked, row.probes, row.steps, f"{row.wall_s:.0f}", row.status, row.named[:42], right)
    return COLUMNS.format(*cells)


def sight_lines(row: Row) -> list[str]:
    """Return the lines that tell what the recorder saw."""
    sight = row.sight
    bits = "the same parameters" if sight.same_bits else "OTHER PARAMETERS"
    lines = [f"{row.app}: {sight.num_steps} steps; {bits} without the recorder"]
    for loss in sight.losses:
        said = "the same bits" if loss.difference == 0.0 else f"off by {loss.difference:.1e} at most"
        lines.append(f"    {loss.name:<14} {loss.num} values, {said}{'' if loss.is_equal else ', WRONG'}; {loss.source}")
    return lines


def is_fine(row: Row) -> bool:
    """Tell whether nothing is wrong with a question's row."""
    return row.is_right and row.sight.same_bits and all(loss.is_equal for loss in row.sight.losses)


def main() -> int:
    """Bisect the apps whose interpreters are given, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH", help="interpreter of an app's probes")
    parser.add_argument("--asked", help="only the question with this label: commits, keys")
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--keep", type=Path, help="folder for repositories and homes [default: a temporary one]")
    given = parser.parse_args()
    pythons = dict(item.split("=", 1) for item in given.python)
    if not pythons or set(pythons) - set(APPS):
        parser.error(f"give --python NAME=PATH; names: {', '.join(APPS)}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, python in pythons.items():
            folder = (given.keep or Path(scratch)) / name
            folder.mkdir(parents=True)
            built = build(APPS[name], str(Path(python).absolute()), folder)
            sight = look(built)
            print(sight, flush=True)
            rows += [bisect(built, asked, sight) for asked in built.app.asked if given.asked in (None, asked.label)]
            if given.json:
                given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    heads = ("app", "version", "asked", "probes", "steps", "wall s", "status", "named", "right")
    print(COLUMNS.format(*heads))
    for row in rows:
        print(table_line(row))
    for line in [line for row in rows if row.asked == "commits" for line in sight_lines(row)]:
        print(line)
    return 0 if all(map(is_fine, rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
