"""What the page of one bisection shows, computed from the store once for each of its events and shared by all who look.

The rebuilt bisection with its fingerprints is large and is let go at once; what is kept is what is shown.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bisect_train.core.changes import ChangeKind
from bisect_train.core.errors import BisectTrainError, InputError
from bisect_train.core.question import Question
from bisect_train.core.verdict import VerdictKind
from bisect_train.report.inside import printable_patch, smallest_patch
from bisect_train.report.live_rest import list_activities
from bisect_train.report.parts import ProbePart, ReportData
from bisect_train.report.standing import PHASES
from bisect_train.report.triage_text import is_told
from bisect_train.report.words import say_count
from bisect_train.search.terms import Phase
from bisect_train.service.pages.contract import Opened, PageBackend
from bisect_train.service.pages.diff_view import Diff, diff_of_commit, read_diff
from bisect_train.service.pages.figures import Figure, figure_of_curves, figures_of_ranks
from bisect_train.service.pages.flight_view import Names
from bisect_train.service.pages.strip_view import Strip, make_strip
from bisect_train.store.contract import StoredEvent

MAX_KEPT = 48
MAX_DIFFS = 3
STALE_FACTOR = 3.0  # a view that took t seconds is kept for this many t while newer events come
MIN_FRESH_S = 0.8


@dataclass(frozen=True, slots=True)
class BisectionView:
    """Everything shown of a bisection that its events alone decide.

    Attributes:
        seq: number of the last event that it knows.
        report: of the bisection; None where it cannot be rebuilt, and `trouble` says why.
        standing: where it stands, in sentences; () once it is answered.
        strip: its changes.
        names: of the changes, for words.
        curves: the metric of the ends and the culprit's sides, or None.
        ranks: figures of the ranks.
        diffs: of the culprits.
        has_triage: whether the kind of failure is known.
        metric: name of the metric.
        trouble: why it cannot be rebuilt, or "".
    """

    seq: int
    report: ReportData | None = None
    standing: tuple[str, ...] = ()
    strip: Strip = field(default_factory=lambda: Strip((), ""))
    names: Names = field(default_factory=lambda: Names((), True))
    curves: Figure | None = None
    ranks: tuple[Figure, ...] = ()
    diffs: tuple[Diff, ...] = ()
    has_triage: bool = False
    metric: str = "loss"
    trouble: str = ""

    @property
    def probes(self) -> tuple[ProbePart, ...]:
        """Finished probes, the newest first."""
        return tuple(reversed(self.report.probes)) if self.report else ()

    def find_probe(self, key: str) -> ProbePart | None:
        """Return a finished probe."""
        return next((row for row in self.probes if row.key == key), None)


def make_view(backend: PageBackend, bisection_id: str, seq: int) -> BisectionView:
    """Return the view of a bisection, rebuilt from the store."""
    try:
        opened = backend.open(bisection_id)
        report = backend.report_of(opened)
    except BisectTrainError as error:
        return BisectionView(seq, trouble=str(error))
    space = opened.space
    marks: dict[int, VerdictKind] = dict(opened.state.marks)
    return BisectionView(
        seq=seq,
        report=report,
        standing=_say_standing(opened),
        strip=make_strip(space.changes, opened.plan, report, marks),
        names=Names(space.changes, space.good_is_base),
        curves=figure_of_curves(report),
        ranks=figures_of_ranks(report.triage) if is_told(report.triage) else (),
        diffs=_list_diffs(report, opened.question, home=backend.home),
        has_triage=is_told(report.triage),
        metric=opened.question.metric.name,
    )


def _say_standing(opened: Opened) -> tuple[str, ...]:
    plan = opened.plan
    if plan.phase is Phase.DONE or plan.answer is not None:
        return ()
    said = [
        f"Now: {PHASES[plan.phase]}.",
        *(f"{text[0].upper()}{text[1:]}." for text in list_activities(plan, opened.space.changes)),
    ]
    if plan.ends.reason:
        said.append(f"The ends: {plan.ends.reason}.")
    if plan.wanted:
        said.append(f"{say_count(len(plan.wanted), 'run')} asked for at the moment.")
    return tuple(said)


def _list_diffs(report: ReportData, question: Question, *, home: Path) -> tuple[Diff, ...]:
    """Return the smallest proved patch, then the diffs of the commits that are culprits."""
    diffs = []
    if patch := smallest_patch(report):
        diffs.append(read_diff(printable_patch(patch), title="The smallest patch that does it"))
    if question.inside.package or question.inside.submodule:
        return tuple(diffs)
    commits = [part for culprit in report.culprits for part in culprit.changes if part.kind == ChangeKind.COMMIT.value]
    for part in commits[:MAX_DIFFS]:
        found = diff_of_commit(question.repo, part.id, home=home, title=f"Commit {part.id[:8]} {part.title}")
        diffs += [found] if found else []
    return tuple(diffs)


@dataclass(slots=True)
class _Slot:
    guard: threading.Lock
    view: BisectionView | None = None
    made_s: float = 0.0
    took_s: float = 0.0


class ViewCache:
    """Views by bisection, computed once for all who look; thread-safe.

    A view is made anew when events have come, but not more often than it is worth: one that takes 2 s is kept for 6 s.
    """

    def __init__(self, backend: PageBackend) -> None:
        self._backend = backend
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        self._guard = threading.Lock()
        self._seqs: dict[str, tuple[float, int]] = {}

    def last_seq(self, bisection_id: str) -> int:
        """Return the number of a bisection's last event, looked up at most every half second."""
        checked_s, seq = self._seqs.get(bisection_id, (0.0, 0))
        if time.monotonic() - checked_s < 0.5 and seq:
            return seq
        newer: Sequence[StoredEvent] = self._backend.store.events(bisection_id, after=seq)
        seq = newer[-1].seq if newer else seq
        if len(self._seqs) > 10_000:
            self._seqs.clear()
        self._seqs[bisection_id] = (time.monotonic(), seq)
        return seq

    def get(self, bisection_id: str) -> BisectionView:
        """Return the newest view; its `seq` may lie behind the last event for a short while."""
        slot = self._slot(bisection_id)
        with slot.guard:
            seq = self.last_seq(bisection_id)
            if slot.view is None or (slot.view.seq != seq and self._is_due(slot)):
                begun_s = time.monotonic()
                slot.view = make_view(self._backend, bisection_id, seq)
                slot.made_s = time.monotonic()
                slot.took_s = slot.made_s - begun_s
            return slot.view

    def forget(self, bisection_id: str) -> None:
        """Look again at once: a person has just done something."""
        self._seqs.pop(bisection_id, None)
        slot = self._slot(bisection_id)
        with slot.guard:
            slot.view = None

    @staticmethod
    def _is_due(slot: _Slot) -> bool:
        return time.monotonic() - slot.made_s > max(MIN_FRESH_S, STALE_FACTOR * slot.took_s)

    def _slot(self, bisection_id: str) -> _Slot:
        with self._guard:
            slot = self._slots.pop(bisection_id, None) or _Slot(threading.Lock())
            self._slots[bisection_id] = slot
            while len(self._slots) > MAX_KEPT:
                self._slots.popitem(last=False)
            return slot


def check_id(bisection_id: str) -> str:
    """Return an id that has the form of one. Raises InputError otherwise."""
    if not (len(bisection_id) == 8 and all(letter in "0123456789abcdef" for letter in bisection_id)):
        raise InputError("this is no id of a bisection", hint="an id has 8 hex digits; the list of bisections shows them")
    return bisection_id
