"""The verdict for machines: the exit status and the kind of change."""

from __future__ import annotations

from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.verdict import Criterion
from bisect_train.report.case import Case
from bisect_train.report.endstory import runs_of_end
from bisect_train.verdict.divergence import Divergence, Stage
from bisect_train.verdict.end_terms import EndsStatus
from bisect_train.verdict.outcome import SYMPTOM_PREFIX
from bisect_train.verdict.triage import SYMPTOMS, Category

RUN_STATUS = {
    "isolated": 0,
    "several": 0,
    "candidates": 3,
    "drift": 3,
    "budget": 3,
    "no_regression": 4,
    "not_reproduced": 4,
    "fixed_before": 4,
}
MEMORY_METRICS = ("rss_mib", "cuda_mib")


def exit_status_of(case: Case) -> int:
    """Return the exit status of the command line for this answer."""
    answer = case.answer
    if answer.status == "failed":
        return 2 if answer.is_input_error else 1
    if case.question.kind == "run":
        return RUN_STATUS[answer.status]
    if answer.status == "no_regression":
        return 0
    return 5 if case.ends.status is EndsStatus.SEPARATED else 3


def kind_of_change(case: Case, divergence: Divergence | None) -> str | None:
    """Return what kind of change the bad end shows, None if it shows none that is known."""
    ends = case.ends
    if ends.status is EndsStatus.BETTER:
        return "better"
    if ends.status is EndsStatus.SAME:
        return "numerics_only" if ends.repeats_bitwise and case.are_ends_equal is False else None
    if ends.status is not EndsStatus.SEPARATED:
        return None
    if ends.criterion is Criterion.SYMPTOM:
        return _kind_of_symptom(case)
    if ends.criterion is Criterion.EXACT:
        return "data_order" if divergence is not None and divergence.stage is Stage.DATA else "numerics_only"
    if ends.gap < 0:
        return "better"
    name = case.question.metric.name
    return "memory" if name in MEMORY_METRICS else "slower" if case.question.metric.is_paired else "worse"


def _kind_of_symptom(case: Case) -> str:
    signature = case.ends.signature
    if signature.startswith(SYMPTOM_PREFIX):
        return _kind_of_asked(signature.removeprefix(SYMPTOM_PREFIX))
    if signature.startswith("nonfinite"):
        return "nan"
    kinds = {run.fingerprint.ending.kind for run in runs_of_end(case, "bad")}
    if EndingKind.TIMEOUT in kinds:
        return "slower" if signature == "timeout: slow" else "hang"
    return "memory" if EndingKind.OUT_OF_MEMORY in kinds else "crash"


def _kind_of_asked(symptom: str) -> str:
    """Return the kind of change of a symptom that was asked about."""
    if symptom.startswith("hang"):
        return "hang"
    if symptom.startswith("nan_"):
        return "nan"
    if symptom in ("out_of_memory", "memory_full", "more_memory"):
        return "memory"
    by_category = {Category.SLOW: "slower", Category.WONT_START: "crash", Category.STOPPED: "crash"}
    return by_category.get(SYMPTOMS[symptom].category, "worse") if symptom in SYMPTOMS else "worse"
