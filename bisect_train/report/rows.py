"""Rows of the report's tables and curves: probes, claims, the posterior strip, curves, the pair for the first divergence."""

from __future__ import annotations

from collections.abc import Sequence

from bisect_train.core.changes import Point
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.verdict import VerdictKind
from bisect_train.report.case import Case, Run
from bisect_train.report.conditions import say_states
from bisect_train.report.failing import tail_of_judge, tail_of_log
from bisect_train.report.flaky import are_rates_compared, say_outcome, say_rate
from bisect_train.report.parts import ClaimPart, CurvePart, ProbePart, StripPart
from bisect_train.report.words import ENDING_WORDS, label_change, say_ending, say_point, short_id, untitle
from bisect_train.search.terms import Culprit
from bisect_train.verdict.end_terms import EndsStatus
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.outcome import Observation, OutcomeKind, metric_values
from bisect_train.verdict.proof import Claim, ClaimKind, ClaimResult, ClaimStatus

VERDICT_WORDS = {
    VerdictKind.GOOD: "good",
    VerdictKind.BAD: "bad",
    VerdictKind.OTHER: "unlike both ends",
    VerdictKind.UNTESTABLE: "cannot be tested",
    VerdictKind.INCONCLUSIVE: "undecided",
}
STOPPED_EARLY = "stopped early"
STATUS_WORDS = {
    ClaimStatus.OPEN: "open",
    ClaimStatus.HELD: "held",
    ClaimStatus.FAILED: "did not hold",
    ClaimStatus.UNBUILDABLE: "could not be run",
}


def say_verdict(case_ends: Case, seen: Observation) -> str:
    """Return what one run alone says, in words."""
    outcome = seen.outcome
    if are_rates_compared(case_ends.ends) and (said := say_outcome(seen, case_ends.ends)):
        return said
    if case_ends.ends.status is EndsStatus.SEPARATED:
        return VERDICT_WORDS[judge_variant([seen], case_ends.ends, case_ends.question.metric).verdict]
    words = {OutcomeKind.MEASURED: "measured", OutcomeKind.FAILED: "fails", OutcomeKind.NO_METRIC: "no value"}
    return words.get(outcome.kind, VERDICT_WORDS[VerdictKind.UNTESTABLE])


def list_probes(case: Case) -> tuple[ProbePart, ...]:
    """Return all probes in the order of finishing."""
    rows, runs_at = [], dict[Point, list[Observation]]()
    for run in case.runs:
        earlier = runs_at.setdefault(run.seen.point, [])
        earlier.append(run.seen)
        rows.append(_row(case, run, rate=_say_rate(case, run, earlier)))
    return tuple(rows)


def _say_rate(case: Case, run: Run, so_far: Sequence[Observation]) -> str:
    is_told = are_rates_compared(case.ends) and say_outcome(run.seen, case.ends)
    return say_rate(so_far, case.ends) if is_told else ""


def _row(case: Case, run: Run, *, rate: str) -> ProbePart:
    seen, fingerprint = run.seen, run.fingerprint
    ends = (case.good_point, case.bad_point)
    purpose = f"proof {seen.attempt}" if seen.attempt else "ends" if seen.point in ends else "search"
    is_failure = not fingerprint.ending.is_healthy
    return ProbePart(
        key=run.probe.key,
        point=seen.point.to_text(),
        what=case.say(seen.point, width=0),
        subject=_subject(case, seen.point),
        purpose=purpose,
        seed_idx=seen.seed_idx,
        repeat=seen.repeat,
        ending=seen.outcome.reason if seen.outcome.is_early else say_ending(fingerprint.ending),
        outcome=STOPPED_EARLY if seen.outcome.is_early else ENDING_WORDS[fingerprint.ending.kind],
        steps=fingerprint.num_steps,
        value=None if seen.outcome.is_early else seen.outcome.value,  # not its own
        verdict=say_verdict(case, seen),
        wall_s=run.probe.result.wall_s,
        log_tail=tail_of_log(run) if is_failure else tail_of_judge(run),
        rate=rate,
    )


def _subject(case: Case, point: Point) -> str:
    is_between = point.is_prefix and 0 < point.prefix < len(case.space.changes)
    return untitle(case.space.changes[point.prefix - 1]) if is_between else ""


def list_claims(case: Case, kind: str | None) -> tuple[ClaimPart, ...]:
    """Return the claims of the newest proof; the kind of change chooses their words."""
    culprit = case.culprit
    if case.answer.status == "several":
        return tuple(
            _claim(case, result, _text_among_several(case, result.claim, item), attempt=case.proof_attempt(item.changes))
            for item in case.answer.culprits
            for result in item.claims
        )
    results = culprit.claims if culprit is not None and len(culprit.changes) == 1 else case.plan.claims
    attempt = case.attempt_shown()
    return tuple(_claim(case, result, _claim_text(case, result.claim, kind), attempt=attempt) for result in results)


def _text_among_several(case: Case, claim: Claim, culprit: Culprit) -> str:
    """Return a claim about one of several culprits: its two states need be neither healthy nor as sick as the bad end."""
    name = short_id(case.space.changes[culprit.changes[-1]])
    if claim.kind is ClaimKind.PARENT:
        return f"the run is worse with {name} than just before it"
    healthy, sick = (say_point(point, case.space, width=0) for point in (claim.healthy, claim.sick))
    if claim.kind is ClaimKind.HEALS:
        return f"{healthy} is better than {sick}"
    return f"{sick} is worse than {healthy}"


def _claim(case: Case, result: ClaimResult, text: str, *, attempt: int) -> ClaimPart:
    claim = result.claim
    nums = _num_runs(case, claim, attempt)
    if attempt and 0 in nums:  # a claim about several culprits is tested by the attempt of the last one
        nums = max((_num_runs(case, claim, other) for other in case.attempts()), key=min, default=nums)
    return ClaimPart(
        kind=claim.kind.value,
        text=text,
        status=STATUS_WORDS[result.status],
        how=_say_how(result),
        healthy=say_point(claim.healthy, case.space),
        sick=say_point(claim.sick, case.space),
        num_healthy=nums[0],
        num_sick=nums[1],
        jump=result.jump,
        reason=result.reason,
    )


def _num_runs(case: Case, claim: Claim, attempt: int) -> list[int]:
    return [len(case.at(point, attempt=attempt)) if attempt else 0 for point in (claim.healthy, claim.sick)]


def _claim_text(case: Case, claim: Claim, kind: str | None) -> str:
    good, bad = say_states(kind)
    if claim.kind is ClaimKind.PARENT:
        return f"just before it the run is {good}, with it the run is {bad}"
    shown = claim.healthy if claim.kind is ClaimKind.HEALS else claim.sick
    state = good if claim.kind is ClaimKind.HEALS else bad
    if not shown.is_prefix:
        return f"the {say_point(shown, case.space)} is {state}"
    # of the first and the last change: the state is a version of the range
    what = "bad end without it" if claim.kind is ClaimKind.HEALS else "good end with it"
    return f"the {what} ({say_point(shown, case.space, width=0)}) is {state}"


def _say_how(result: ClaimResult) -> str:
    if result.how == "bitwise":
        return "bitwise equal"
    if result.how == "metric":
        return "equal metric"
    if result.how == "symptom":
        return "every run" if result.status is ClaimStatus.HELD else "fails or not"
    if result.how == "value":
        return "one run each"
    if result.p_value is None:
        return "-"
    return f"p = {result.p_value:.2g}"


def make_strip(case: Case) -> tuple[StripPart, ...]:
    """Return one entry per change with its probability; () before the search."""
    is_proved = case.answer.status in ("isolated", "several")
    named = {idx for culprit in case.answer.culprits for idx in culprit.changes} if is_proved else set()
    unread = frozenset(case.plan.inert)
    return tuple(
        StripPart(idx + 1, label_change(change, width=60), probability, idx in named, idx in unread)
        for idx, (change, probability) in enumerate(zip(case.space.changes, case.plan.posterior, strict=False))
    )


def pick_pair(case: Case) -> tuple[Run, Run] | None:
    """Return two runs of the same seed to compare: the culprit's parent and the culprit, else the two ends."""
    culprit = case.culprit
    parent = next((r.claim for r in culprit.claims if r.claim.kind is ClaimKind.PARENT), None) if culprit else None
    if culprit is not None and parent is not None:
        pair = _same_seed(case, (parent.healthy, parent.sick), case.proof_attempt(culprit.changes))
        if pair is not None:
            return pair
    return _same_seed(case, (case.good_point, case.bad_point), 0)


def _same_seed(case: Case, points: tuple[Point, Point], attempt: int) -> tuple[Run, Run] | None:
    sides = [{run.seen.seed_idx: run for run in case.at(point, attempt=attempt) if run.seen.repeat == 0} for point in points]
    shared = sorted(sides[0].keys() & sides[1].keys())
    return (sides[0][shared[0]], sides[1][shared[0]]) if shared else None


def draw_curves(case: Case) -> tuple[CurvePart, ...]:
    """Return the curves of good, bad, parent and culprit on one seed: the proof's first if there is one, else seed 0."""
    pair = pick_pair(case)
    if pair is None:
        runs = [case.at(point, attempt=0)[:1] for point in (case.good_point, case.bad_point)]
        chosen = [(role, found[0]) for role, found in zip(("good", "bad"), runs, strict=True) if found]
    else:
        attempt, seed_idx = pair[0].seen.attempt, pair[0].seen.seed_idx
        ends = [_run_on(case, point, attempt, seed_idx) for point in (case.good_point, case.bad_point)]
        chosen = [(role, run) for role, run in zip(("good", "bad"), ends, strict=True) if run is not None]
        if attempt:
            chosen += [(role, run) for role, run in zip(("parent", "culprit"), pair, strict=True) if run not in ends]
    curves = [_curve(case, role, run) for role, run in chosen]
    return tuple(curve for curve in curves if len(curve.values) > 1 and curve.metric == curves[0].metric)


def _run_on(case: Case, point: Point, attempt: int, seed_idx: int) -> Run | None:
    return next((run for run in case.at(point, attempt=attempt) if run.seen.seed_idx == seed_idx), None)


def _curve(case: Case, role: str, run: Run) -> CurvePart:
    name, values, steps = _series(run.fingerprint, case.question.metric.name)
    names = {"good": "good end", "bad": "bad end", "parent": "just before the culprit", "culprit": "with the culprit"}
    return CurvePart(role, names[role], steps, values, name)


def _series(fingerprint: Fingerprint, name: str) -> tuple[str, tuple[float, ...], tuple[int, ...]]:
    """Return the name, the values and the steps of the metric, or of the loss where the metric has fewer than two values."""
    for metric in (name, "loss"):
        values = metric_values(fingerprint, metric)
        if len(values) > 1:
            logged = next((series.steps for series in fingerprint.metrics if series.name == metric and series.steps), None)
            return metric, values, logged if logged and len(logged) == len(values) else tuple(range(len(values)))
    return name, (), ()
