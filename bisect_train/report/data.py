"""From a stored bisection to `ReportData`, the single source of all renderers.

Renderers compute nothing: what they show is computed here and in the modules that only this one calls (case, effect, endstory,
failing, verdicts, wording, conditions, coverage, sharing, byhand, rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.climb import RungLeft
from bisect_train.coordinator.node_events import NodeHistory
from bisect_train.core.changes import Change, ChangeKind
from bisect_train.core.question import Question
from bisect_train.core.verdict import VerdictKind
from bisect_train.report.across import cells_of_pair
from bisect_train.report.byhand import reproduce_by_hand
from bisect_train.report.case import Case, Run, make_case
from bisect_train.report.conditions import list_conditions
from bisect_train.report.coverage import describe_coverage
from bisect_train.report.effect import measure_effect
from bisect_train.report.endstory import describe_end, tell_ends
from bisect_train.report.failing import tail_of_end
from bisect_train.report.inside import list_conditions_inside, parts_inside
from bisect_train.report.micro import warn_of_micro_batches
from bisect_train.report.parts import (
    CandidatePart,
    ChangePart,
    Cost,
    CulpritPart,
    DescentPart,
    MetricPart,
    ReportData,
    Wording,
)
from bisect_train.report.remarks import say_remarks
from bisect_train.report.rows import draw_curves, list_claims, list_probes, make_strip, pick_pair
from bisect_train.report.sharing import warn_of_shared_files
from bisect_train.report.sources import warn_of_sources
from bisect_train.report.triage_case import suggest_symptom, triage_case
from bisect_train.report.triage_parts import SecondLook, TriagePart
from bisect_train.report.verdicts import exit_status_of, kind_of_change
from bisect_train.report.wording import word_verdict
from bisect_train.report.words import REDUCE_WORDS, say_count, say_divergence
from bisect_train.search.terms import Plan, RemarkKind
from bisect_train.store.contract import StoredBisection, StoredProbe
from bisect_train.verdict.divergence import Divergence, first_divergence, unequal_counts
from bisect_train.verdict.end_terms import EndsStatus


def build_report(
    stored: StoredBisection,
    question: Question,
    space: ChangeSpace,
    plan: Plan,
    probes: Sequence[StoredProbe],
    *,
    cost: Cost,
    warnings: Sequence[str] = (),
    inside: Sequence[ChangePart] = (),
    descents: Sequence[DescentPart] = (),
    second: SecondLook | None = None,
    rungs: Sequence[RungLeft] = (),
    nodes: Sequence[NodeHistory] = (),
) -> ReportData:
    """Return everything that a report says about a bisection.

    Args:
        stored: id and title.
        question: what was asked.
        space: its changes.
        plan: the last plan; without an answer the report says that the bisection is not finished.
        probes: finished ones, in the order of finishing.
        cost: as the coordinator counted it.
        warnings: of the coordinator; those of the probes are added, each once.
        inside: what the culprit touches (files of a commit), if the caller looked.
        descents: what is known of the inside of merges that were named.
        second: what a closer look at the culprit's run said.
        rungs: those that were worked on before this one.
        nodes: what happened on each node of a cluster.
    """
    case = make_case(question, space, plan, probes, bisection=stored.id, rungs=rungs)
    pair = pick_pair(case)
    divergence = first_divergence(pair[0].fingerprint, pair[1].fingerprint) if pair else None
    kind = kind_of_change(case, divergence)
    culprits = _list_culprits(case, inside, kind, descents=descents)
    text = _say_pair(case, pair, divergence)
    places = (culprits[0].inside if culprits else ()) or inside
    triage = triage_case(case, divergence=divergence, divergence_text=text, kind=kind, inside=places, second=second)
    wording = word_verdict(case, culprits, kind)
    wording = replace(wording, explanation=(*wording.explanation, *suggest_symptom(case, triage)))
    found = _Found(divergence, text, kind, culprits, wording)
    report = _assemble(case, stored, found, cost=cost, triage=triage, warnings=_collect_warnings(case, warnings))
    return replace(report, nodes=tuple(nodes))


@dataclass(frozen=True, slots=True)
class _Found:
    """What the parts of a report share."""

    divergence: Divergence | None
    divergence_text: str
    kind: str | None
    culprits: tuple[CulpritPart, ...]
    wording: Wording


def _assemble(
    case: Case, stored: StoredBisection, found: _Found, *, cost: Cost, triage: TriagePart, warnings: tuple[str, ...]
) -> ReportData:
    metric, ends, changes = case.question.metric, case.ends, case.space.changes
    has_values = ends.good is not None and ends.bad is not None
    return ReportData(
        id=stored.id,
        kind=case.question.kind,
        title=stored.title,
        status=case.answer.status,
        exit_status=exit_status_of(case),
        is_finished=case.is_finished,
        headline=found.wording.headline,
        summary=found.wording.summary,
        explanation=found.wording.explanation,
        kind_of_change=found.kind,
        metric=MetricPart(metric.name, REDUCE_WORDS.get(metric.reduce, metric.reduce), metric.better, metric.unit),
        ends=(describe_end(case, "good"), describe_end(case, "bad")),
        ends_story=tell_ends(case),
        gap=ends.gap if has_values else None,
        spread=ends.spread if has_values else None,
        min_effect=ends.min_effect if has_values else case.question.min_effect,
        bound=ends.bound,
        num_changes={kind.value: sum(item.kind is kind for item in changes) for kind in ChangeKind},
        culprits=found.culprits,
        candidates=tuple(CandidatePart(_part_of(changes[idx]), share) for idx, share in case.answer.candidates),
        null_probability=_null_probability(case),
        claims=list_claims(case, found.kind),
        strip=make_strip(case),
        triage=triage,
        coverage=describe_coverage(case),
        cost=cost,
        num_steps=sum(run.fingerprint.num_steps for run in case.runs) + _num_steps_inside(found.culprits),
        probes=list_probes(case),
        curves=draw_curves(case),
        divergence=found.divergence,
        divergence_text=found.divergence_text,
        reproduce=reproduce_by_hand(case),
        warnings=warnings,
        log_tail=tail_of_end(case, case.answer.end) if case.answer.end else "",
        patch=_patch_of(case),
        needed=tuple(_part_of(case.space.changes[idx]) for idx in _needed(case)),
        pair=cells_of_pair(case),
    )


def _patch_of(case: Case) -> str:
    """Return the proved pieces of a commit as a patch, "" where no commit was split or nothing was proved."""
    if case.answer.status not in ("isolated", "several"):
        return ""
    named = [idx for culprit in case.answer.culprits for idx in culprit.changes]
    return case.space.patch_of([*named, *_needed(case)])


def _needed(case: Case) -> tuple[int, ...]:
    """Return the changes that culprits need to run and that are no cause."""
    return tuple(item.first for item in case.answer.remarks if item.kind is RemarkKind.NEEDS)


def _part_of(change: Change) -> ChangePart:
    return ChangePart(change.kind.value, change.id, change.title, change.detail)


def _say_pair(case: Case, pair: tuple[Run, Run] | None, divergence: Divergence | None) -> str:
    if pair is None or case.answer.status == "failed":
        return ""
    left, right = (case.say(run.seen.point, width=0) for run in pair)
    unequal = unequal_counts(pair[0].fingerprint, pair[1].fingerprint)
    text = say_divergence(divergence, left=left, right=right, unequal=unequal)
    if divergence is not None and case.ends.repeats_bitwise is False:
        text += " The same run repeated differs from itself, too: this may be chance."
    return text


def _list_culprits(
    case: Case, inside: Sequence[ChangePart], kind: str | None, *, descents: Sequence[DescentPart]
) -> tuple[CulpritPart, ...]:
    """Return the proved culprits, the largest effect first; `inside` belongs to the first one of the answer.

    A change whose proof was left open is a candidate and no culprit: it is not blamed.
    """
    if case.answer.status not in ("isolated", "several"):
        return ()
    by_change = {descent.opened: descent for descent in descents}
    parts = []
    for culprit in case.answer.culprits:
        changes = tuple(_part_of(case.space.changes[idx]) for idx in culprit.changes)
        descent = by_change.get(changes[0].id) if len(changes) == 1 else None
        part = CulpritPart(
            changes=changes,
            probability=culprit.probability,
            effect=measure_effect(case, culprit),
            necessary=culprit.is_necessary,
            sufficient=culprit.is_sufficient,
            conditions=(*list_conditions(case, culprit, kind), *list_conditions_inside(descent)),
            inside=parts_inside(descent, inside if culprit is case.culprit else ()),
            descent=descent,
        )
        parts.append(part)
    return tuple(sorted(parts, key=_size_of_effect, reverse=True))


def _num_steps_inside(culprits: Sequence[CulpritPart]) -> int:
    return sum(part.descent.num_steps for part in culprits if part.descent is not None)


def _size_of_effect(part: CulpritPart) -> float:
    return abs(part.effect.bad - part.effect.good) if part.effect else 0.0


def _null_probability(case: Case) -> float | None:
    """Return how probable it is that the ends do not differ at all, None if it is not known.

    Separated by a failure or by bits: 0. Separated by values: the p value of the look that decided, the share of ranges
    without a regression that would look like this. Bitwise equal: 1. Bounded: 0.95, the confidence of the bound.
    """
    ends = case.ends
    if ends.status is EndsStatus.SEPARATED:
        return ends.p_value or 0.0
    if ends.status is EndsStatus.SAME:
        return 1.0 if case.are_ends_equal else 0.95
    return (ends.p_value or 0.0) if ends.status is EndsStatus.BETTER else None


def _collect_warnings(case: Case, warnings: Sequence[str]) -> tuple[str, ...]:
    found = [*say_remarks(case), *warnings, *(text for run in case.runs for text in run.probe.result.warnings)]
    others = [k for k, item in case.plan.evidence.items() if item.verdict is VerdictKind.OTHER]
    if others and case.answer.status != "several":
        found.append(f"{say_count(len(others), 'version')} unlike both ends: another change shows there, too")
    copies = _num_copies(case)
    if copies and not case.ends.are_seeds_inert:
        found.append(f"{say_count(copies, 'run')} with another seed gave the bits of seed 0 and count as none")
    found += [*warn_of_micro_batches(case), *warn_of_shared_files(case), *warn_of_sources(case)]
    return tuple(dict.fromkeys(found))


def _num_copies(case: Case) -> int:
    sides = (case.ends.good_digests, case.ends.bad_digests)
    return sum(idx > 0 and bool(digest) and digest == side.get(0) for side in sides for idx, digest in side.items())
