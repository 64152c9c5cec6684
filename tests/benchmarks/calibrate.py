"""How often whole bisections (ends, search, proof) name the wrong change, with exact intervals. Run by hand.

    python -m tests.benchmarks.calibrate RESULTS.jsonl [--problems 1000] [--settings clean,drift] [--processes 2]

Every problem is one line of RESULTS.jsonl; what is there already is not run again, so an interrupted run goes on where it
stopped, and a larger --problems adds to it. The table at the end counts the answers: right, wrong, and withheld by status;
"candidates without it" are lists of candidates in which no true culprit stands. The interval is Clopper and Pearson's, 95 %, of
wrong answers among all problems. Exit status 1 where more than 1 % are wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from bisect_train.core.question import Metric
from bisect_train.search.terms import Rules
from bisect_train.verdict.end_terms import EndRules
from tests.benchmarks.worlds import NUM_CHANGES, SETTINGS
from tests.support.simulated_regression import solve

NAMING = ("isolated", "several")
SLOTS = 8
MAX_PROBES = 3000
MAX_WRONG_SHARE = 0.01


def solve_one(job: tuple[str, int]) -> dict[str, Any]:
    """Run one bisection to its answer and return its line."""
    setting, seed = job
    case = SETTINGS[setting](seed)
    line: dict[str, Any] = {"setting": setting, "seed": seed, "culprits": sorted(case.culprits)}
    try:
        solved = solve(case.world, Rules(NUM_CHANGES, EndRules(Metric())), slots=SLOTS, max_probes=MAX_PROBES)
    except AssertionError as error:
        return {**line, "status": "unfinished", "verdict": "withheld", "named": [], "reason": str(error)}
    answer = solved.answer
    named = sorted({idx for culprit in answer.culprits for idx in culprit.changes}) if answer.status in NAMING else []
    is_right = bool(named) and case.culprits >= set(named)
    verdict = "withheld" if answer.status not in NAMING else "right" if is_right else "wrong"
    return {
        **line,
        "status": answer.status,
        "verdict": verdict,
        "named": named,
        "is_listed": not case.culprits or bool(case.culprits & {idx for idx, _ in answer.candidates}),
        "phase": solved.plan.phase.value,
        "ends": solved.plan.ends.status.value,
        "probes": solved.num_probes,
        "rounds": solved.num_rounds,
        "attempts": solved.num_attempts,
    }


def clopper_pearson(num: int, total: int, *, level: float = 0.95) -> tuple[float, float]:
    """Return the exact confidence interval of a share, of `num` among `total`."""
    tail = (1.0 - level) / 2.0
    low = float(special.betaincinv(num, total - num + 1, tail)) if num else 0.0
    high = float(special.betaincinv(num + 1, total - num, 1.0 - tail)) if num < total else 1.0
    return low, high


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the results that are there; a torn last line, of a killed run, is left out."""
    lines = []
    for text in path.read_text().splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def run_missing(path: Path, jobs: Sequence[tuple[str, int]], num_processes: int) -> None:
    """Run jobs and append each result when it is there."""
    started = time.monotonic()
    with ProcessPoolExecutor(num_processes) as pool, path.open("a") as file:
        for idx, line in enumerate(pool.map(solve_one, jobs, chunksize=4), start=1):
            file.write(json.dumps(line) + "\n")
            file.flush()
            if line["verdict"] == "wrong":
                print(f"wrong: {json.dumps(line)}", file=sys.stderr, flush=True)
            if idx % 500 == 0:
                print(f"{idx} of {len(jobs)} after {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def rows_of(lines: Sequence[dict[str, Any]], settings: Sequence[str]) -> Iterator[str]:
    """Yield the table, a row for each setting."""
    yield "| setting | problems | right | wrong (exact 95 %) | withheld | candidates without it | probes, mean |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for setting in settings:
        own = [line for line in lines if line["setting"] == setting]
        if not own:
            continue
        counts = Counter(line["verdict"] for line in own)
        low, high = clopper_pearson(counts["wrong"], len(own))
        statuses = Counter(line["status"] for line in own if line["verdict"] == "withheld")
        withheld = ", ".join(f"{num} {name}" for name, num in statuses.most_common()) or "0"
        missed = sum(line["status"] == "candidates" and not line.get("is_listed", True) for line in own)
        probes = np.mean([line["probes"] for line in own if "probes" in line] or [0])
        wrong = f"{counts['wrong']} ({low:.2%} to {high:.2%})"
        yield f"| {setting} | {len(own)} | {counts['right']} | {wrong} | {withheld} | {missed} | {probes:.0f} |"


def main() -> int:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--problems", type=int, default=1000, help="per setting")
    parser.add_argument("--settings", default=",".join(SETTINGS), help="names with commas; default: all")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    settings = asked.settings.split(",")
    if unknown := sorted(set(settings) - set(SETTINGS)):
        parser.error(f"unknown setting {unknown[0]!r}: there are {', '.join(map(repr, SETTINGS))}")
    done = {(line["setting"], line["seed"]) for line in read_lines(asked.results)}
    jobs = [(name, seed) for seed in range(asked.problems) for name in settings if (name, seed) not in done]
    run_missing(asked.results, jobs, asked.processes)
    lines = [line for line in read_lines(asked.results) if line["seed"] < asked.problems]
    for row in rows_of(lines, settings):
        print(row)
    wrong = Counter(line["setting"] for line in lines if line["verdict"] == "wrong")
    return int(any(num > MAX_WRONG_SHARE * sum(line["setting"] == name for line in lines) for name, num in wrong.items()))


if __name__ == "__main__":
    sys.exit(main())
