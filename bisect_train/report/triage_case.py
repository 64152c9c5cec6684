"""Triage of a bisection: the culprit's run against the run just before it, on the same seed, and what it adds to the answer."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace

from bisect_train.core.changes import Point
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.question import Question
from bisect_train.report.case import Case, Run
from bisect_train.report.endstory import say_symptom
from bisect_train.report.failing import failing_run
from bisect_train.report.inside import name_place
from bisect_train.report.parts import ChangePart
from bisect_train.report.rows import pick_pair
from bisect_train.report.triage_parts import SecondLook, TriagePart
from bisect_train.report.triage_view import triage_run
from bisect_train.report.words import STAGE_WORDS, shorten
from bisect_train.verdict.divergence import Divergence, Stage
from bisect_train.verdict.end_terms import EndsStatus
from bisect_train.verdict.proof import ClaimKind
from bisect_train.verdict.triage import BASELINE_SYMPTOMS, WIDER_SYMPTOMS, Asked, Category, Finding, hard_symptoms

CATEGORIES = {
    "crash": "stopped",
    "hang": "stopped",
    "memory": "stopped",
    "nan": "wont_converge",
    "worse": "wont_converge",
    "slower": "slow",
}
METRIC_OF = {
    "overlapping_samples": "coverage",
    "missing_samples": "coverage",
    "same_data": "coverage",
    "lost_updates": "moved",
    "frozen_parameters": "moved",
    "exploding_gradient": "pre_clip_norm",
    "gradients_averaged_twice": "pre_clip_norm",
    "gradients_not_averaged": "pre_clip_norm",
    "loss_spikes": "num_spikes",
    "parameters_differ": "rank_gap",
}
"""Symptoms that are told by a comparison -> a metric that a bisection can judge each run by."""
NO_PLACES = (Stage.ENDING, Stage.METRIC, Stage.TIME_AND_MEMORY)  # stages that name no part of the code
NUM_REPLICATES = 16
NOT_SEEN = ("not_reproduced", "no_regression")


def asked_of(question: Question, baseline: Run | None = None, run: Run | None = None) -> Asked:
    """Return what the probes of a question were to do, for triage of a run against a baseline."""
    is_same_seed = baseline is None or run is None or baseline.seen.seed_idx == run.seen.seed_idx
    rung, timeout_s = question.rung, question.settings.timeout_s
    return Asked(steps=rung.steps, ranks=rung.ranks, timeout_s=timeout_s, metric=question.metric, is_same_seed=is_same_seed)


def pick_runs(case: Case) -> tuple[Run | None, Run] | None:
    """Return (baseline, run): the run that shows what is wrong, and the healthy one of the same seed, if there are such."""
    if case.answer.status == "failed":
        failed = failing_run(case, case.answer.end or "good")
        return (None, failed) if failed else None
    pair = pick_pair(case)
    if pair is not None and (not case.is_symptom or _shows(case, pair[1])):
        return pair
    healthy, sick = states_of(case)
    shown = next((run for run in (*case.at(sick), *case.at(case.bad_point)) if _shows(case, run)), None)
    if shown is None:
        return pair
    baselines = [run for run in (*case.at(healthy), *case.at(case.good_point)) if run.fingerprint.ending.is_healthy]
    same_seed = [run for run in baselines if run.seen.seed_idx == shown.seen.seed_idx]
    return next(iter((*same_seed, *baselines)), None), shown


def _shows(case: Case, run: Run) -> bool:
    return bool(case.ends.signature) and run.seen.outcome.signature == case.ends.signature


def states_of(case: Case) -> tuple[Point, Point]:
    """Return the state just before the culprit and the one with it, else the ends."""
    claims = case.culprit.claims if case.culprit else ()
    parent = next((result.claim for result in claims if result.claim.kind is ClaimKind.PARENT), None)
    return (parent.healthy, parent.sick) if parent else (case.good_point, case.bad_point)


def replicates_of(case: Case, baseline: Run | None) -> tuple[Fingerprint, ...]:
    """Return healthy runs of other seeds than the baseline's, one a seed: its own state's, then the good end's."""
    if baseline is None:
        return ()
    found: dict[int, Fingerprint] = {}
    for run in (*case.at(baseline.seen.point), *case.at(case.good_point)):
        seed_idx = run.seen.seed_idx
        if seed_idx != baseline.seen.seed_idx and seed_idx not in found and run.fingerprint.ending.is_healthy:
            found[seed_idx] = run.fingerprint
    return tuple(found.values())[:NUM_REPLICATES]


def triage_case(
    case: Case,
    *,
    divergence: Divergence | None,
    divergence_text: str,
    kind: str | None,
    inside: Sequence[ChangePart],
    second: SecondLook | None,
) -> TriagePart:
    """Return what a bisection's answer says of the kind of failure."""
    chosen = pick_runs(case)
    if chosen is None or not _is_told(case):
        return TriagePart()
    baseline, run = chosen
    part = triage_run(
        run.probe.result,
        baseline=baseline.probe.result if baseline else None,
        replicates=replicates_of(case, baseline),
        asked=asked_of(case.question, baseline, run),
        symptom=case.question.symptom,
        second=second,
    )
    if case.ends.status is not EndsStatus.SEPARATED:
        return part
    symptom = shorten(say_symptom(case), 300) if case.is_symptom else ""
    said = [text for text in (symptom, divergence_text if divergence else "") if text]
    said += [f"{stack.name} waits at: {stack.waits_at}" for stack in part.stacks if kind == "hang" and stack.waits_at]
    is_place = divergence is not None and divergence.stage not in NO_PLACES
    places = [*map(name_place, inside), *([STAGE_WORDS[divergence.stage]] if divergence is not None and is_place else [])]
    return replace(
        part,
        category=part.category or _category(case, kind),
        symptom=part.symptom or symptom or None,
        stage=_stage(part, divergence),
        evidence=tuple(dict.fromkeys((*said, *part.evidence))),
        look_first=tuple(dict.fromkeys((*places, *part.look_first))),
    )


def _is_told(case: Case) -> bool:
    """Return whether there is an answer about two ends that were told apart, or that did not differ, or could not run."""
    return case.ends.status is EndsStatus.SEPARATED or (case.is_finished and case.answer.status in (*NOT_SEEN, "failed"))


def _category(case: Case, kind: str | None) -> str | None:
    first_bad = next(iter(case.at(case.bad_point, attempt=0)), None)
    if kind == "crash" and first_bad is not None and first_bad.fingerprint.num_steps == 0:
        return Category.WONT_START.value
    return CATEGORIES.get(kind or "")


def _stage(part: TriagePart, divergence: Divergence | None) -> str | None:
    """Return the stage: of the first difference where it names a part of the code, else of the first finding.

    What goes wrong between ranks shows in the numbers later than where it happens: there the finding's own stage counts.
    """
    is_silent = part.category == Category.SILENT_DISTRIBUTED.value
    if divergence is None or (part.stage and (is_silent or divergence.stage in NO_PLACES)):
        return part.stage
    return divergence.stage.value


# ---- where the metric saw nothing ---------------------------------------------------------------------------------


def suggest_symptom(case: Case, part: TriagePart) -> tuple[str, ...]:
    """Return what triage saw though the metric did not tell the ends apart, and the command that would look for it."""
    if not case.is_finished or case.answer.status not in NOT_SEEN or not part.findings:
        return ()
    shown = "; ".join(f"{finding.symptom} ({shorten(finding.summary, 160)})" for finding in part.findings[:3])
    alone = _symptoms_of_one_end(case)
    option = next((found for finding in part.findings if (found := option_for(finding, alone))), "")
    told = f"Though {case.question.metric.name} does not tell the ends apart, triage of the bad end shows: {shown}."
    return (told, f"To find the change that does it: `{_again(case.question, option)}`") if option else (told,)


def _symptoms_of_one_end(case: Case) -> frozenset[str]:
    """Return the symptoms that the bad end shows by itself and the good end does not: a single run can be judged by them."""
    chosen = pick_runs(case)
    if chosen is None:
        return frozenset()
    good, bad = ({*hard_symptoms(run.fingerprint)} if run else set() for run in chosen)
    return frozenset(bad - good)


def option_for(finding: Finding, alone: Collection[str]) -> str:
    """Return the option that makes a bisection look for what was found, "" if none can.

    Args:
        finding: of the bad end.
        alone: symptoms that the bad end shows without a comparison.
    """
    names = WIDER_SYMPTOMS.get(finding.symptom, (finding.symptom,))
    known = next((name for name in names if name in alone and name not in BASELINE_SYMPTOMS), "")
    if known:
        return f"--symptom {known}"
    metric = METRIC_OF.get(finding.symptom, "")
    return f"--metric {metric}" if metric else ""


def _again(question: Question, option: str) -> str:
    """Return the command line that asks the same with one more option."""
    is_plain = question.kind == "run" and question.good_config is None and question.good_state == question.bad_state
    if not is_plain:
        return f"bisect-train {question.kind} ... {option} (the other options as before)"
    goods = [part for good in question.range.goods for part in ("--good", good[:12])]
    rung = question.rung
    steps = "end" if rung.steps is None else str(rung.steps)
    ranks = ["--ranks", str(rung.ranks)] if rung.ranks > 1 else []
    words = ["bisect-train", "run", *goods, "--bad", question.range.bad[:12], "--steps", steps, *ranks, *option.split()]
    return shlex.join([*words, "--", *question.command])
