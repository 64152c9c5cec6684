"""A run that was killed and resumed, against the same run without that: weights at the resume, and everything after it.

The record of such a run has an event `restart` where its second part begins. What differs before that already is how well the
program repeats itself, and only more than that counts afterwards.
A run that was killed between two saves goes on from the one before: its steps are not those of the uninterrupted run, and
nothing is told of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from bisect_train.core.fingerprint import Event, Fingerprint, RankRecord, StepRecord
from bisect_train.verdict.divergence import Stage, norm_before_clipping
from bisect_train.verdict.triage.asked import Look
from bisect_train.verdict.triage.finding import Evidence, Finding
from bisect_train.verdict.triage.run_view import RunView, loss_of, number
from bisect_train.verdict.triage.symptoms import CHOSEN, find, say_ranks

SEAM = "restart"  # the event between the two parts
NOISE_SHARE = 1e-5  # relative; programs that do not repeat bitwise differ by less at the first step after a resume. Chosen
NOISE_FACTOR = 100.0  # over what differs before the restart: rounding grows from step to step. Chosen, not measured
OTHER_RANKS_SHARE = 1e-3  # relative, of the loss with another number of ranks: sums go in another order. Chosen, not measured
OTHER_RANKS_CHANGES = 3.0  # and so many times the largest change between two steps: dropout draws otherwise. Chosen
_SOURCE = "the uninterrupted run"


@dataclass(frozen=True, slots=True)
class _Restart:
    """A resumed run, the uninterrupted one, and the last step before the restart."""

    run: RunView
    whole: RunView
    last: int


def find_restart_faults(look: Look) -> Iterator[Finding]:
    """Tell of stale weights, and of the first step at which a resumed run goes its own way."""
    fingerprint = look.run.fingerprint
    seams = [events[0] for events in look.run.events(SEAM).values()]
    if not fingerprint.uninterrupted or not seams:
        return
    last = number(seams[0].data.get("save_at", seams[0].step))
    if last is None or unsaved_step(fingerprint) is not None:
        return
    whole = RunView.of_fingerprint(replace(fingerprint, ranks=fingerprint.uninterrupted, uninterrupted=()))
    case = _Restart(look.run, whole, int(last))
    ranks = number(seams[0].data.get("resumed_ranks"))
    is_as_before = ranks is None or int(ranks) == len(whole.steps)
    for finding in (_stale(case), _differing(case) if is_as_before else _differing_mean(case, int(ranks or 0))):
        if finding is not None:
            yield finding


def unsaved_step(fingerprint: Fingerprint) -> int | None:
    """Return the step after which a run was killed though the last save that was seen is of another step.

    None where it was saved there, where no save was seen at all, and of a run that was not killed. A save is noted with the
    step in progress, which a forward after the update (an evaluation) begins; where the saved parameters are those of an
    earlier step, it is of that one.
    """
    view = RunView.of_fingerprint(fingerprint)
    seams = [events[0] for events in view.events(SEAM).values()]
    last = number(seams[0].data.get("save_at", seams[0].step)) if seams else None
    saves = [saved for record in fingerprint.ranks if (saved := _last_save(record)) is not None]
    if last is None or not saves or any(_is_of(saved, record, int(last)) for saved, record in saves):
        return None
    return int(last)


def _last_save(record: RankRecord) -> tuple[Event, RankRecord] | None:
    before, _ = _parts(record.events)
    saves = [event for event in before if event.name == "checkpoint_saved"]
    return (saves[-1], record) if saves else None


def _is_of(saved: Event, record: RankRecord, step: int) -> bool:
    """Return whether a rank saved after this step."""
    hashes = {item.step: item.param_hash for item in record.steps if item.param_hash and item.step <= step}
    value = saved.data.get("param_hash")
    same = [at for at, known in hashes.items() if known == value]
    return step in same if same else saved.step in (None, step, step + 1)


def _stale(case: _Restart) -> Finding | None:
    """Return a finding where a rank starts from other weights than the last save before the restart wrote."""
    parts = {record.rank: _parts(record.events) for record in case.run.fingerprint.ranks}
    firsts = {_hash(before, "initial_params") for before, _ in parts.values()}
    for rank, (before, after) in sorted(parts.items()):
        start = _hash(after, "initial_params")
        saves = _hashes(before, "checkpoint_saved")
        if not saves and len(firsts) == 1:  # replicas, of which another one saves
            saves = next((found for first, _ in parts.values() if (found := _hashes(first, "checkpoint_saved"))), [])
        if start is None or not saves or start == saves[-1]:
            continue
        source = "what was saved last before the restart"
        evidence = [Evidence(f"hash of the parameters before step {case.last + 1}", start, saves[-1], source, rank)]
        what = "were saved"
        if start == _hash(before, "initial_params"):
            what = "were saved: it starts anew, the checkpoint's are not in use"
        elif start in saves:
            what = "were saved last: it starts from an older checkpoint"
        summary = f"{say_ranks([rank])} resumes before step {case.last + 1} with other weights than {what}"
        return find("stale_weights", summary, ranks=(rank,), step=case.last + 1, evidence=evidence)
    return None


def _parts(events: tuple[Event, ...]) -> tuple[list[Event], list[Event]]:
    """Return the events before and after the restart."""
    place = next((idx for idx, event in enumerate(events) if event.name == SEAM), len(events))
    return list(events[:place]), list(events[place + 1 :])


def _hashes(events: list[Event], name: str) -> list[str]:
    return [str(event.data["param_hash"]) for event in events if event.name == name and event.data.get("param_hash")]


def _hash(events: list[Event], name: str) -> str | None:
    return next(iter(_hashes(events, name)), None)


_SIGNALS: tuple[tuple[Stage, str, Callable[[StepRecord], object]], ...] = (
    (Stage.DATA, "batch hash", lambda record: record.batch_hash),
    (Stage.FORWARD, "loss", loss_of),
    (Stage.GRADIENT, "gradient norm before clipping", norm_before_clipping),
    (Stage.LEARNING_RATE, "learning rates", lambda record: record.lr or None),
    (Stage.UPDATED_PARAMETERS, "parameter hash", lambda record: record.param_hash),
)


def _differing(case: _Restart) -> Finding | None:
    """Return the first signal in causal order at the first step after the restart at which the two runs differ on a rank."""
    steps = sorted({step for records in case.run.steps.values() for step in records})
    noise = {what: _noise(case, read, steps) for _, what, read in _SIGNALS}
    for step in (step for step in steps if step > case.last):
        for stage, what, read in _SIGNALS:
            pairs = _pairs(case, read, step)
            limit = max(NOISE_SHARE, NOISE_FACTOR * noise[what])
            ranks = [rank for rank, pair in pairs.items() if _distance(*pair) > limit]
            if ranks:
                evidence = [
                    Evidence(f"{what} at step {step}", str(pairs[rank][0]), str(pairs[rank][1]), _SOURCE, rank)
                    for rank in ranks
                ]
                summary = f"the resumed run differs from the uninterrupted one at step {step}: {what} on {say_ranks(ranks)}"
                return find("restart_differs", summary, ranks=ranks, step=step, evidence=evidence, stage=stage)
            if any(_distance(*pair) > 0.0 for pair in pairs.values()) and noise[what] == 0.0:
                return None  # it differs by rounding: what comes after it says nothing
    return None


def _noise(case: _Restart, read: Callable[[StepRecord], object], steps: list[int]) -> float:
    """Return how far the two runs are apart before the restart: 0 where they are equal bit by bit."""
    return max(
        (_distance(*pair) for step in steps if step <= case.last for pair in _pairs(case, read, step).values()), default=0.0
    )


def _pairs(case: _Restart, read: Callable[[StepRecord], object], step: int) -> dict[int, tuple[object, object]]:
    others = case.whole.at(step)
    pairs = {rank: (read(record), read(others[rank])) for rank, record in case.run.at(step).items() if rank in others}
    return {rank: (mine, theirs) for rank, (mine, theirs) in pairs.items() if mine is not None and theirs is not None}


def _distance(one: object, other: object) -> float:
    """Return the relative difference of two numbers, the largest of two tuples, infinity for what cannot be compared."""
    if repr(one) == repr(other):
        return 0.0
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return max(_distance(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float) and math.isfinite(one) and math.isfinite(other):
        return abs(one - other) / max(abs(one), abs(other))
    return math.inf


def _differing_mean(case: _Restart, num_ranks: int) -> Finding | None:
    """Compare the loss of the first step after a restart with other ranks, where nothing is equal bit by bit.

    Losses of ranks are means over their own samples, or parts of a sum: the mean and the sum over ranks are both tried.
    """
    mine, theirs = dict(case.run.losses), dict(case.whole.losses)
    step = next((step for step in sorted(mine) if step > case.last and step in theirs), None)
    if step is None or not math.isfinite(theirs[step]) or not math.isfinite(mine[step]):
        return None
    ratio = num_ranks / max(1, len(case.whole.steps))
    ordered = [value for _, value in sorted(theirs.items()) if math.isfinite(value)]
    change = max((abs(after - before) for before, after in pairwise(ordered)), default=0.0)
    margin = max(OTHER_RANKS_SHARE * abs(theirs[step]), OTHER_RANKS_CHANGES * change)
    if any(abs(value - theirs[step]) <= margin for value in (mine[step], ratio * mine[step])):
        return None
    source = f"{_SOURCE} within {margin:.3g}, with another number of ranks; {CHOSEN}"
    evidence = [
        Evidence(f"mean loss at step {step}", repr(mine[step]), repr(theirs[step]), source),
        Evidence("ranks", str(num_ranks), str(len(case.whole.steps)), _SOURCE),
    ]
    summary = f"with {num_ranks} ranks the resumed run's loss at step {step} is {mine[step]:.6g} against {theirs[step]:.6g}"
    return find("restart_differs", summary, step=step, evidence=evidence)
