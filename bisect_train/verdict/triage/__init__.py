"""Triage: what kind of failure a run shows, at which stage of the step, on which rank. Pure."""

from bisect_train.verdict.triage.asked import Asked
from bisect_train.verdict.triage.curves import curves_of_run
from bisect_train.verdict.triage.derived import DERIVED_METRICS, derived_metric
from bisect_train.verdict.triage.finding import Category, Evidence, Finding, SecondRun, Triage
from bisect_train.verdict.triage.restart import unsaved_step
from bisect_train.verdict.triage.rules import hard_symptoms, symptoms_of, triage
from bisect_train.verdict.triage.symptoms import BASELINE_SYMPTOMS, SYMPTOMS, WIDER_SYMPTOMS, Symptom

__all__ = [
    "BASELINE_SYMPTOMS",
    "DERIVED_METRICS",
    "SYMPTOMS",
    "WIDER_SYMPTOMS",
    "Asked",
    "Category",
    "Evidence",
    "Finding",
    "SecondRun",
    "Symptom",
    "Triage",
    "curves_of_run",
    "derived_metric",
    "hard_symptoms",
    "symptoms_of",
    "triage",
    "unsaved_step",
]
