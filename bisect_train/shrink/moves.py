"""When another rung is worked on, and which: from what the runs of this one show.

    up       nothing shows on this rung, or nothing could be proved of what shows: the next rung, if there is one
    trial    the ends separate, but so weakly that a search takes many runs: a first look at the ends of the next rung
    settle   the rung whose runs tell most for their cost; no other one is tried any more

A rung that is left has claimed nothing; the ends of each rung are proved on that rung, with its share of the error
(`level_share`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bisect_train.core.probe import Rung
from bisect_train.core.verdict import Criterion
from bisect_train.verdict.end_terms import Ends, EndsStatus
from bisect_train.verdict.ends import FIRST_LOOK

HOPELESS_SD = (
    2.5  # after a first look; ends that do not differ lie farther apart in 1 of 27 pairs (t with 4 degrees of freedom)
)
WEAK_SD = 4.0  # from here on a search takes hardly more runs than without noise (FINDINGS-search section 3: 15 against 13)
RUNS_WITHOUT_NOISE, RUNS_AT_ONE_SD = 12.0, 85.0  # runs of a search by distance d of the ends: the sum of this and that / d^2
UNSHOWN = frozenset({EndsStatus.SAME, EndsStatus.UNCLEAR, EndsStatus.BETTER, EndsStatus.FLAKY, EndsStatus.NO_METRIC})
UNTESTABLE = frozenset({EndsStatus.GOOD_UNTESTABLE, EndsStatus.BAD_UNTESTABLE})
UNSEPARATED = frozenset({"no_regression", "not_reproduced", "failed"})
UNPROVED = frozenset({"candidates", "drift"})


@dataclass(frozen=True, slots=True)
class Move:
    """Another rung, or this one for good.

    Attributes:
        idx: place on the ladder of the rung that is worked on from now on.
        reason: why, one clause.
        is_trial: only its ends are looked at, to weigh it against the rung before.
        is_settled: no other rung is tried any more.
        fall_back: place of the rung whose answer stands if nothing shows on this one.
    """

    idx: int
    reason: str
    is_trial: bool = False
    is_settled: bool = False
    fall_back: int | None = None


def distance_of(ends: Ends) -> float:
    """Return how far the ends lie apart, in seed standard deviations; where no seed changes anything, infinity or 0."""
    gap = abs(ends.gap)
    spread = ends.paired_spread if ends.are_paired else ends.spread
    return gap / spread if spread > 0.0 else float("inf") if gap > 0.0 else 0.0


def has_first_look(ends: Ends) -> bool:
    """Return whether each end has shown values on as many seeds as a first look takes, and whether runs repeat is known."""
    return min(len(ends.good_values), len(ends.bad_values)) >= FIRST_LOOK and ends.repeats_bitwise is not None


def is_hopeless(ends: Ends) -> bool:
    """Return whether a first look at the ends says that this rung would take very many runs, if it shows anything."""
    return ends.status is EndsStatus.OPEN and has_first_look(ends) and distance_of(ends) < HOPELESS_SD


def is_weak(ends: Ends) -> bool:
    """Return whether the ends separate so weakly that a search takes many runs, and no bits help."""
    is_by_value = ends.criterion is Criterion.STATISTICAL and not ends.repeats_bitwise
    return ends.status is EndsStatus.SEPARATED and is_by_value and distance_of(ends) < WEAK_SD


def after_answer(
    ladder: Sequence[Rung], idx: int, *, status: str, ends: Ends, num_proofs: int, fall_back: int | None = None
) -> Move | None:
    """Return the rung to go on with after an answer on rung `idx`, None where it is the answer.

    Args:
        ladder: all rungs.
        idx: place of the rung.
        status: of the answer, as in report.json.
        ends: the proof of the ends on this rung.
        num_proofs: how many proofs of a change were tried.
        fall_back: place of an earlier rung that had candidates.
    """
    is_last = idx + 1 >= len(ladder)
    if ends.status in UNSHOWN and status in UNSEPARATED and not is_last:
        return Move(idx + 1, f"nothing shows: {ends.reason}", fall_back=fall_back)
    if ends.status in UNTESTABLE and status == "failed":
        wider = next((at for at in range(idx + 1, len(ladder)) if ladder[at].ranks > ladder[idx].ranks), None)
        if wider is not None:
            return Move(wider, f"an end cannot be run: {ends.reason}", fall_back=fall_back)
    if status in UNSEPARATED and fall_back is not None:
        return Move(fall_back, f"nothing shows, so what {ladder[fall_back].name} left open stands", is_settled=True)
    if status in UNPROVED and (num_proofs or status == "drift") and not is_last:
        return Move(idx + 1, "what shows could not be proved for any change", fall_back=idx)
    return None


def after_settling(ladder: Sequence[Rung], idx: int, *, status: str, fall_back: int | None) -> Move | None:
    """Return the way back where a settled rung shows nothing though a smaller one had told the ends apart; else None."""
    if status not in UNSEPARATED or fall_back is None or fall_back == idx:
        return None
    return Move(fall_back, f"nothing shows, and on {ladder[fall_back].name} the ends differ", is_settled=True)


def weigh_trial(ladder: Sequence[Rung], low: int, *, low_cost: float, high_cost: float, low_sd: float, high_sd: float) -> Move:
    """Return which of two rungs to settle on: that whose search is expected to cost less.

    Args:
        ladder: all rungs.
        low: place of the cheaper rung; the other is the next.
        low_cost, high_cost: mean cost of one run, in any one unit.
        low_sd, high_sd: distance of the ends in seed standard deviations.
    """
    costs = [low_cost * _runs_of(low_sd), high_cost * _runs_of(high_sd)]
    is_high = costs[1] < costs[0]
    said = " against ".join(
        f"{_say_sd(sd)} on {ladder[low + at].name} ({cost:.3g} s a run)"
        for at, sd, cost in ((0, low_sd, low_cost), (1, high_sd, high_cost))
    )
    better = "larger" if is_high else "smaller"
    reason = f"the ends lie {said} apart: the {better} rung tells more for its cost"
    # a first look that promised too much is no reason to give up what the smaller rung had proved
    return Move(low + is_high, reason, is_settled=True, fall_back=low if is_high else None)


def _runs_of(distance: float) -> float:
    return RUNS_WITHOUT_NOISE + RUNS_AT_ONE_SD / max(distance, 0.1) ** 2


def _say_sd(distance: float) -> str:
    return "any number of seed sd" if distance == float("inf") else f"{distance:.1f} seed sd"
