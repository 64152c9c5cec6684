"""The verdict in sentences: what was found, how big, how sure, and where nothing was found, what would help."""

from __future__ import annotations

from bisect_train.report.case import Case
from bisect_train.report.failing import say_failed_end, say_no_metric
from bisect_train.report.parts import CulpritPart, Wording
from bisect_train.report.wording_found import word_culprits
from bisect_train.report.wording_open import say_helps, say_left, say_no_regression, say_not_reproduced, word_candidates
from bisect_train.report.words import with_stop
from bisect_train.search.terms import Phase
from bisect_train.verdict.end_terms import EndsStatus

PHASES = {
    Phase.ENDS: "the ends are being compared",
    Phase.BASE: "the merge base is being tested",
    Phase.SEARCH: "the search goes on",
    Phase.PROOF: "the proof is not complete",
    Phase.PARTNER: "a partner of the change is being looked for",
    Phase.REST: "the rest of the range is being searched for more",
    Phase.DONE: "done",
}


def word_verdict(case: Case, culprits: tuple[CulpritPart, ...], kind: str | None) -> Wording:
    """Return the verdict in words."""
    status = case.answer.status
    if not case.is_finished:
        return Wording("Not finished", f"Not finished: {PHASES[case.plan.phase]}. {say_left(case)}".rstrip(), ())
    if status in ("isolated", "several") and culprits:
        return word_culprits(case, culprits, kind)
    if status in ("candidates", "drift", "budget"):
        return word_candidates(case, kind)
    if status == "no_regression":
        return Wording("No regression", say_no_regression(case), say_helps(case))
    if status == "not_reproduced":
        headline = "Cannot tell" if case.question.kind in ("check", "nightly") else "Not reproduced"
        return Wording(headline, f"{headline}: {say_not_reproduced(case)}", say_helps(case))
    if status == "fixed_before":
        remedy = "Choose a good end that is an ancestor of the bad end."
        return Wording("Fixed before", f"Fixed before: {case.answer.reason}.", (remedy,))
    return _word_failed(case)


def _word_failed(case: Case) -> Wording:
    no_metric = case.ends.status is EndsStatus.NO_METRIC
    what, remedy = say_no_metric(case) if no_metric else say_failed_end(case)
    headline = "No answer: the ends could not be compared"
    return Wording(headline, with_stop(what), (remedy, "Nobody is blamed: no search was run."))
