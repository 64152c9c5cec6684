"""Processor time of one update and one proposal on a very long line, beside git-bayesect's class in the same run."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from bisect_train.search.belief import posterior_over_changes
from bisect_train.search.propose import propose_versions
from bisect_train.search.rates import posterior_with_rates, propose_with_rates
from bisect_train.search.testable import testable_probability
from tests.benchmarks.peers import find_peer

NUM_CHANGES = 100_000
NUM_REPEATS = 15
SURE = math.log(1000.0)
# nats by version, None for an untestable one: eleven probes of a search whose culprit is near 36,800
LATE: dict[int, float | None] = {
    50_000: SURE,
    25_000: -SURE,
    37_000: None,
    37_100: SURE,
    31_000: -SURE,
    34_000: -SURE,
    35_500: None,
    35_400: -SURE,
    36_200: -SURE,
    36_600: None,
    36_500: -SURE,
}
EARLY: dict[int, float | None] = {50_000: SURE}


def _by_values(seen: dict[int, float | None]) -> Callable[[], object]:
    def step() -> object:
        nats = {version: value for version, value in seen.items() if value is not None}
        posterior = posterior_over_changes(NUM_CHANGES, nats)
        testable = testable_probability(NUM_CHANGES, {version: value is not None for version, value in seen.items()})
        return propose_versions(posterior, testable, num=1, num_runs=dict.fromkeys(seen, 1))

    return step


def _by_rates(seen: dict[int, float | None]) -> Callable[[], object]:
    def step() -> object:
        counts = {version: (int(value > 0), int(value < 0)) for version, value in seen.items() if value is not None}
        posterior = posterior_with_rates(NUM_CHANGES, counts)
        testable = testable_probability(NUM_CHANGES, {version: value is not None for version, value in seen.items()})
        return propose_with_rates(NUM_CHANGES, counts, posterior, testable, num=1)

    return step


def _by_bayesect(seen: dict[int, float | None]) -> Callable[[], object]:
    bisector = find_peer("git_bayesect").Bisector(np.ones(NUM_CHANGES + 1))
    known = [(NUM_CHANGES - version, value > 0) for version, value in seen.items() if value is not None]
    for idx, is_bad in known[:-1]:
        bisector.record(idx, is_bad)

    def step() -> object:
        bisector.record(*known[-1])
        with np.errstate(all="ignore"):
            return bisector.select()

    return step


def _median_ms(step: Callable[[], object]) -> float:
    step()
    times = []
    for _ in range(NUM_REPEATS):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    return statistics.median(times) * 1e3


def rows_of_speed(num_problems: int, each: object) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the time of one update and proposal at N = 100,000; in a process of its own, so that one core is all it has."""
    del num_problems, each
    one_core = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-m", __name__], env={**os.environ, **one_core}, capture_output=True, text=True, check=True
    )
    for line in done.stdout.splitlines():
        setting, ours, theirs = json.loads(line)
        met, said = "", "git-bayesect not installed"
        if theirs is not None:
            met = "not slower: yes" if ours <= theirs else f"not slower: **no**, {ours / theirs:.1f} x"
            said = f"git-bayesect {theirs:.1f} ms"
        yield "speed", f"one update and proposal, N = {NUM_CHANGES:,}, {setting}", f"{ours:.1f} ms", met, said


def main() -> None:
    """Print a JSON row for each setting: its name, our milliseconds, git-bayesect's or null."""
    is_there = find_peer("git_bayesect") is not None
    for when, seen in (("after 1 run", EARLY), ("after 11 runs, 3 of them untestable", LATE)):
        theirs = _median_ms(_by_bayesect(seen)) if is_there else None
        for what, step in (("values and bits", _by_values(seen)), ("failure rates", _by_rates(seen))):
            print(json.dumps([f"{what}, {when}", _median_ms(step), theirs]), flush=True)


if __name__ == "__main__":
    main()
