"""The good end beside a probe: where costs decide, each probe is a pair of runs on one worker, one right after the other."""

from __future__ import annotations

from dataclasses import replace

from bisect_train.changes.space import ChangeSpace
from bisect_train.core.probe import ProbeJob
from bisect_train.core.question import Question
from bisect_train.search.terms import Rules


def with_good_end(job: ProbeJob, *, question: Question, space: ChangeSpace, rules: Rules) -> ProbeJob:
    """Return the job with the run of the good end that it is compared with, if the metric asks for one.

    Raises:
        UnbuildableError: the good end cannot be built.
    """
    if not question.metric.is_paired:
        return job
    variant = space.variant(rules.good_point)
    packs = {pack.id: pack for pack in (*job.packs, *space.packs(variant))}
    return replace(job, reference=replace(job.spec, variant=variant), packs=tuple(packs.values()))
