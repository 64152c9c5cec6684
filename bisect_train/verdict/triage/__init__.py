"""Triage: what kind of failure a run shows, at which stage of the step, on which rank. Pure."""

from bisect_train.verdict.triage.asked import Asked
from bisect_train.verdict.triage.derived import DERIVED_METRICS, derived_metric
from bisect_train.verdict.triage.finding import Category, Evidence, Finding, SecondRun, Triage
from bisect_train.verdict.triage.rules import hard_symptoms, triage
from bisect_train.verdict.triage.symptoms import BASELINE_SYMPTOMS, SYMPTOMS, Symptom

__all__ = [
    "BASELINE_SYMPTOMS",
    "DERIVED_METRICS",
    "SYMPTOMS",
    "Asked",
    "Category",
    "Evidence",
    "Finding",
    "SecondRun",
    "Symptom",
    "Triage",
    "derived_metric",
    "hard_symptoms",
    "triage",
]
