"""The questions in order: did it ever step, did it stop, does it converge, do its ranks agree, is it slow?

Rules are pure. What the healthy baseline shows as well is how this program is, and is left out, unless it is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeResult
from bisect_train.verdict.triage import (
    agreement,
    averaging,
    costs,
    curves,
    gradients,
    parameters,
    rates,
    restart,
    samples,
    start,
    stopped,
)
from bisect_train.verdict.triage.asked import Asked, Look
from bisect_train.verdict.triage.finding import Category, Finding, SecondRun, Triage
from bisect_train.verdict.triage.run_view import RunView
from bisect_train.verdict.triage.symptoms import SYMPTOMS, WIDER_SYMPTOMS

Rule = Callable[[Look], Iterator[Finding]]

_RULES: tuple[Rule, ...] = (
    start.find_outside_imports,
    start.find_environment_mismatch,
    start.find_start_failure,
    start.find_checkpoint_misfit,
    start.find_missing_rank,
    stopped.find_timeout,
    stopped.find_failure,
    gradients.find_not_finite,
    rates.find_rate_faults,
    gradients.find_exploding,
    gradients.find_vanishing,
    parameters.find_still_parameters,
    parameters.find_lost_updates,
    samples.find_changed_data,
    curves.find_plateau,
    curves.find_bad_evaluation,
    curves.find_spikes,
    curves.find_too_good,
    curves.find_too_smooth,
    agreement.find_initial_difference,
    agreement.find_precision_difference,
    restart.find_restart_faults,
    samples.find_same_data,
    samples.find_overlap,
    samples.find_missing_samples,
    averaging.find_averaging,
    agreement.find_collective_difference,
    agreement.find_skipped_branch,
    agreement.find_parameter_difference,
    costs.find_full_memory,
    costs.find_more_memory,
    costs.find_data_waits,
    costs.find_slower,
)
_OF_CURVES: tuple[Rule, ...] = (gradients.find_exploding, gradients.find_vanishing, curves.find_plateau)
"""Those that another machine's curves can tell, be they averaged or written at few steps."""
_ALWAYS_TOLD = frozenset({"nan_loss", "nan_gradient", "nan_parameter", "imported_from_outside", "environment_mismatch"})
_HANGS = frozenset({"hang_in_init", "hang_in_first_collective", "hang", "hang_at_end"})
_OF_THE_SEED = frozenset({"data_changed", "lr_differs", "missing_samples", "too_good", "too_smooth", "bad_evaluation"})
"""Told against a run of the same seed only: between seeds data, curves and rates that follow the loss differ anyway."""
_WRONG_DATA = frozenset({"same_data", "overlapping_samples", "missing_samples"})
"""Between ranks: each implies that the data changed, which is told after it."""
_FAILURES = frozenset({Category.WONT_START, Category.STOPPED})
_CATEGORIES = list(Category)
_ORDER = {name: place for place, name in enumerate(SYMPTOMS)}


def triage(
    run: ProbeResult,
    *,
    baseline: ProbeResult | None = None,
    replicates: Sequence[Fingerprint] = (),
    recorded: ProbeResult | None = None,
    asked: Asked,
) -> Triage:
    """Return what is wrong with a run, the most telling finding first; nothing for a healthy one.

    Args:
        run: the run in question.
        baseline: a healthy run of the same seed, number of ranks and steps; a failed one is not compared with.
        replicates: healthy runs of the baseline's variant with other seeds: how widely numbers spread.
        recorded: a healthy run of another machine, of which loss, gradient norm and rates are known at some steps: the run is
            looked at as without a baseline, and what its curves tell beside these is added.
        asked: how the run was meant to be.
    """
    has_base = baseline is not None and baseline.fingerprint.ending.is_healthy
    base = RunView.of(baseline) if baseline is not None and has_base else None
    others = tuple(RunView.of_fingerprint(other) for other in replicates if other.ending.is_healthy)
    look = Look(RunView.of(run), base, others if base is not None else (), asked)
    findings = _findings(look)
    if base is not None:
        known = {finding.symptom for finding in _findings(Look(base, None, (), asked))} - _ALWAYS_TOLD
        findings = [
            finding
            for finding in findings
            if finding.needs_baseline or finding.symptom not in known or finding.category in _FAILURES
        ]
    if not asked.is_same_seed:
        findings = [item for item in findings if not (item.needs_baseline and item.symptom in _OF_THE_SEED)]
    if recorded is not None:
        beside, known = Look(look.run, RunView.of(recorded), (), asked), {finding.symptom for finding in findings}
        told = [finding for rule in _OF_CURVES for finding in rule(beside) if finding.needs_baseline]
        findings = [*findings, *(finding for finding in told if finding.symptom not in known)]
    findings = _in_order(look, findings)
    return Triage(tuple(findings), _second_run(look, findings))


def hard_symptoms(fingerprint: Fingerprint) -> tuple[str, ...]:
    """Return the names of the symptoms that a run shows by itself, without a baseline, the most telling first.

    Stacks and log are not looked at: of WIDER_SYMPTOMS the wider name is always among them.
    """
    asked = Asked(ranks=max(1, len(fingerprint.ranks)))
    found = triage(ProbeResult("", fingerprint), asked=asked).findings
    return symptoms_of((finding for finding in found if not finding.needs_baseline), fingerprint.ending)


def symptoms_of(findings: Iterable[Finding], ending: Ending) -> tuple[str, ...]:
    """Return the names of findings in order, each followed by the wider one that it implies."""
    told = [finding.symptom for finding in findings]
    wider = [name for symptom in told for name in WIDER_SYMPTOMS.get(symptom, ()) if _ends_so(name, ending)]
    return tuple(dict.fromkeys((*told, *wider)))


def _ends_so(symptom: str, ending: Ending) -> bool:
    kinds = {"killed": EndingKind.KILLED, "crash": EndingKind.CRASHED}
    return symptom not in kinds or ending.kind is kinds[symptom]


def _findings(look: Look) -> list[Finding]:
    return [finding for rule in _RULES for finding in rule(look)]


def _in_order(look: Look, findings: Sequence[Finding]) -> list[Finding]:
    """Return findings by category, then as in SYMPTOMS; of non-finite values the earliest leads. One of each name and ranks."""
    told = [finding if look.run.has_stepped else _as_start(finding) for finding in findings]
    unique = list({(finding.symptom, finding.ranks, finding.step): finding for finding in told}.values())
    is_sharper = any(finding.symptom in _WRONG_DATA for finding in unique)
    return sorted(unique, key=lambda finding: _place(finding, is_sharper=is_sharper))


def _as_start(finding: Finding) -> Finding:
    """Return the finding of a run that never stepped: how it stopped is why it did not start."""
    return replace(finding, category=Category.WONT_START) if finding.category is Category.STOPPED else finding


def _place(finding: Finding, *, is_sharper: bool) -> tuple[int, int, int]:
    """Return the place of a finding; `is_sharper`: what is wrong with the data is told, so that they changed comes last."""
    if finding.symptom.startswith("nan_"):
        return _CATEGORIES.index(finding.category), -1, finding.step if finding.step is not None else -1
    if is_sharper and finding.symptom == "data_changed":
        return len(_CATEGORIES), 0, 0
    if finding.symptom == "collectives_differ" and finding.category in _FAILURES:
        return _CATEGORIES.index(finding.category), -1, 0  # why it stopped, before how
    # what is told in another category than its own (see `_as_start`) comes after those that belong there
    num_before = len(_ORDER) if finding.category is not SYMPTOMS[finding.symptom].category else 0
    return _CATEGORIES.index(finding.category), num_before + _ORDER[finding.symptom], 0


def _second_run(look: Look, findings: Sequence[Finding]) -> SecondRun | None:
    """Return which closer look would tell more: at collectives after a hang of several ranks, at operations after a NaN."""
    symptoms = {finding.symptom for finding in findings}
    if symptoms & _HANGS and max(look.run.world_size, look.asked.ranks) > 1:
        return SecondRun.DETAIL
    if any(symptom.startswith("nan_") for symptom in symptoms) and look.run.has_stepped:
        return SecondRun.ANOMALY
    return None
