"""Whether programs may be forked from a warm process: only once a fork has shown the very bits that a fresh process showed.

The first repeat of a run is the proof: its twin ran as a fresh process. Until it has come every program is started fresh, and
so it is for good where the two differ: then the program does not repeat itself, or a fork is not the same thing.
"""

from __future__ import annotations

from bisect_train.coordinator.event_log import read_events
from bisect_train.coordinator.observing import is_comparable
from bisect_train.core.probe import MachineFacts, ProbeResult, ProbeSpec, Rung
from bisect_train.core.question import Question
from bisect_train.store.contract import Store
from bisect_train.verdict.outcome import digest_fingerprint

WARM_START = "warm_start"
"""Event {is_proven, key, hardware_class, interpreter}: whether a fork showed the bits of a fresh process of the same run."""

FEW_SLOTS = 2
PATIENCE_S = 8.0
"""An import of torch takes 3 s on a quiet machine; a program that takes longer than this has little to gain."""

OTHER_BITS = "a forked process did not show the bits of a fresh one"

Shown = tuple[str, str, str]  # bits, kind of ending, signature
Twin = tuple[str, int, Rung]  # what repeats of a run have in common


class Warmth:
    """What one bisection knows of forks."""

    def __init__(self, question: Question, *, bisection_id: str, store: Store, facts: MachineFacts) -> None:
        """Take what is stored; what was shown on other hardware, or by another interpreter, shows nothing here."""
        self._metric = question.metric.name
        self._id = bisection_id
        self._store = store
        self._facts = facts
        self._fresh: dict[Twin, Shown] = {}
        whole = [bisection_id, *([question.part_of] if question.part_of else [])]  # what it is a part of proved it for both
        events = [event.data for name in whole for event in read_events(store, name) if event.kind == WARM_START]
        told = [data["is_proven"] for data in events if is_comparable(data, facts)]
        self._is_off = not question.settings.warm or not all(told)
        self._is_proven = bool(told)
        # a part of a bisection repeats no run, and takes what the whole has shown
        self._may_fork = question.settings.gpus == 0 and question.rung.ranks == 1 and not question.part_of

    def must_be_fresh(self, spec: ProbeSpec) -> bool:
        """Return whether a run must be a fresh process; one whose fresh twin has ended is the proof."""
        return self._is_off or not (self._is_proven or _twin_of(spec) in self._fresh)

    def is_near_proof(self, *, slots: int, waited_s: float) -> bool:
        """Return whether it is worth while to start no second fresh program, `waited_s` seconds after the first was started.

        On two cores it would be in the way of the process that the others are forked from; with more there is room for both.
        """
        is_open = self._may_fork and not (self._is_off or self._is_proven)
        return is_open and slots <= FEW_SLOTS and waited_s < PATIENCE_S

    def take(self, spec: ProbeSpec, result: ProbeResult) -> str:
        """Learn from a result; return why it must be thrown away and run again, "" if it counts.

        A fork that has a fresh twin is always held against it; one that comes in after another has failed does not count.
        """
        ending = result.fingerprint.ending
        shown = (digest_fingerprint(result.fingerprint, self._metric), ending.kind.value, ending.signature)
        twin = _twin_of(spec)
        if result.fingerprint.early is not None:  # part of a run has not its bits
            return OTHER_BITS if self._is_off and result.is_warm else ""
        if not result.is_warm:
            self._may_fork &= twin not in self._fresh  # it might have been forked, and was not
            self._fresh.setdefault(twin, shown)
            return ""
        if not self._is_off and (twin in self._fresh or not self._is_proven):
            self._judge(result.job_id, is_proven=bool(shown[0]) and shown == self._fresh.get(twin))
        return OTHER_BITS if self._is_off else ""

    def _judge(self, key: str, *, is_proven: bool) -> None:
        if is_proven and self._is_proven:
            return
        self._is_proven, self._is_off = is_proven, not is_proven
        where = {"hardware_class": self._facts.hardware_class, "interpreter": self._facts.interpreter}
        self._store.append(self._id, WARM_START, {"is_proven": is_proven, "key": key, **where})


def _twin_of(spec: ProbeSpec) -> Twin:
    """Return what repeats of a run have in common."""
    return (spec.variant.id, spec.seed_idx, spec.rung)
