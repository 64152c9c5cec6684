"""How many probes a bisection may take, and how long: the least and the most, within what may be spent."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from statistics import median

from bisect_train.core.errors import MachineError
from bisect_train.core.question import Question
from bisect_train.core.verdict import Criterion
from bisect_train.report.words import say_seconds
from bisect_train.search.line import MAX_RATE_RUNS
from bisect_train.store.contract import Store
from bisect_train.verdict.ends import FIRST_LOOK
from bisect_train.verdict.failing_ends import RATE_LOOKS as END_LOOKS
from bisect_train.verdict.failing_ends import RATE_SEEDS_FACTOR
from bisect_train.verdict.proof import NUM_LAST_PAIRS
from bisect_train.verdict.proof import RATE_LOOKS as PROOF_LOOKS

NUM_STATES = 6  # of a proof: both ends, the two sides of the change, the bad end without it, the good end with it
MAX_BISECTIONS = 5  # whose probes say how long one takes
NUM_REPEATS = 2  # of the same seed, one at each end
BY_FAILURE = (Criterion.AUTO, Criterion.SYMPTOM, Criterion.JUDGE)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Probes, at least and at most: to prove the ends, to search, to prove the answer."""

    ends: tuple[int, int]
    search: tuple[int, int]
    proof: tuple[int, int]

    @property
    def total(self) -> tuple[int, int]:
        """Return the least and the most in all."""
        parts = (self.ends, self.search, self.proof)
        return sum(part[0] for part in parts), sum(part[1] for part in parts)


def estimate_probes(question: Question, num_changes: int) -> Estimate:
    """Return what a bisection takes whose runs show a value, or fail every time."""
    seeds = question.limits.max_seeds
    halvings = math.ceil(math.log2(num_changes)) if num_changes > 1 else 0
    ends = (2 * FIRST_LOOK + NUM_REPEATS, 2 * max(seeds, FIRST_LOOK) + NUM_REPEATS)
    return Estimate(ends, (halvings, halvings), (NUM_STATES, NUM_STATES * max(NUM_LAST_PAIRS, seeds)))


def estimate_flaky(question: Question, num_changes: int) -> Estimate:
    """Return what it takes where failures come and go, so that rates are compared."""
    most = max(RATE_SEEDS_FACTOR * question.limits.max_seeds, END_LOOKS[0])
    looks = [look for look in END_LOOKS if look <= most]
    ends = (2 * looks[0], 2 * looks[-1])
    search = estimate_probes(question, num_changes).search[0]
    return Estimate(
        ends, (search, max(search, MAX_RATE_RUNS)), (NUM_STATES * PROOF_LOOKS[0][0], NUM_STATES * PROOF_LOOKS[-1][0])
    )


def say_estimates(question: Question, num_changes: int) -> tuple[str, ...]:
    """Return the estimates in lines."""
    plain = estimate_probes(question, num_changes)
    head = f"{_say(plain.ends)} to prove the ends, about {plain.search[0]} to search, {_say(plain.proof)} to prove the answer"
    lines = [f"{head}: {_say_total(plain, question)}"]
    if question.criterion in BY_FAILURE:
        flaky = estimate_flaky(question, num_changes)
        parts = f"{_say(flaky.ends)} + {_say(flaky.search)} + {_say(flaky.proof)}"
        lines.append(f"many more where a failure comes and goes, {parts}: {_say_total(flaky, question)}")
    if question.metric.is_paired:
        lines.append("each of them two runs: the state itself and, right beside it, the good end")
    return tuple(lines)


def _say(span: tuple[int, int]) -> str:
    return f"{span[0]} to {span[1]}" if span[0] < span[1] else f"{span[0]}"


def _say_total(estimate: Estimate, question: Question) -> str:
    """Return the sum, within `--max-probes`."""
    least, most = estimate.total
    limit = question.limits.max_probes
    if limit is None or limit >= most:
        return f"{_say((least, most))} in all"
    if limit < least:
        return f"--max-probes {limit} ends it before an answer, which takes {least} at least"
    return f"{_say((least, limit))} in all (--max-probes; up to {most} without)"


def usual_duration_s(store: Store, question: Question) -> float | None:
    """Return the median time of the last probes of this repository, seconds; None where none was run.

    Those of the same number of steps count, if there are any.
    """
    alike: list[float] = []
    others: list[float] = []
    for stored in [item for item in store.list() if item.question["repo"] == question.repo][:MAX_BISECTIONS]:
        is_alike = stored.question["rung"]["steps"] == question.rung.steps
        try:
            times = [probe.result.wall_s for probe in store.results(stored.id) if probe.result.wall_s > 0]
        except MachineError:  # what is stored of another bisection is damaged: a guess does without it
            continue
        (alike if is_alike else others).extend(times)
    times = alike or others
    return median(times) if times else None


def say_duration(store: Store, question: Question, num_changes: int) -> str:
    """Return how long it may take, from the probes that this repository had; "" where it had none."""
    usual_s = usual_duration_s(store, question)
    if usual_s is None:
        return ""
    slots = question.limits.parallel or max(1, int((os.cpu_count() or 1) // max(question.settings.cpus, 1.0)))
    least, most = (num * usual_s / slots for num in estimate_probes(question, num_changes).total)
    at_once = f"{slots} at a time" if slots > 1 else "one at a time"
    return (
        f"{say_seconds(least)} to {say_seconds(most)}, {at_once}, if a probe takes {say_seconds(usual_s)} as those before did"
    )
