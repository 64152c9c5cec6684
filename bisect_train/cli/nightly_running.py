"""Compares the commits of a night by bisections of their own, with one executor for all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from bisect_train.baseline import Baseline
from bisect_train.changes.on_top import put_on_top, step_to
from bisect_train.changes.plumbing import decode, printable
from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.cli import driving
from bisect_train.cli.asked import Asked, Output
from bisect_train.cli.asking import ask_question
from bisect_train.cli.desk import Desk
from bisect_train.cli.golden_runs import with_baseline
from bisect_train.cli.planning import title_of
from bisect_train.cli.reopening import Reopened, reopen, report_of
from bisect_train.coordinator import SingleProbe, run_singles
from bisect_train.core.errors import BisectTrainError, InputError, InterruptedByUser, MachineError, RevisionError
from bisect_train.core.executor import Executor
from bisect_train.core.question import Question, Range
from bisect_train.nightly.finding import FoundChange
from bisect_train.nightly.levels import level_of_ends, level_of_runs
from bisect_train.nightly.terms import Compared, Comparison, Level, Role, Standing
from bisect_train.report import ReportData, report_to_json
from bisect_train.report.parts import ChangePart
from bisect_train.report.words import say_count
from bisect_train.verdict.outcome import OutcomeKind, judge_outcome

KIND = "nightly"
NUM_FIRST_SEEDS = 5
RECENT = 50  # bisections that are looked through for one that was stored and not noted, since the night was killed then
UNFINISHED = ("created", "interrupted", "running")
FINISHED = (*UNFINISHED, "finished")
FIRST_FRESH_SEED = 100_000  # seed indices that no search and no proof of one reaches
DAY_S = 86_400.0
_STANDINGS = {0: Standing.SAME, 5: Standing.WORSE, 3: Standing.UNCLEAR}


@dataclass(slots=True)
class Bisections:
    """See `bisect_train.nightly.night.Runner`.

    Args:
        desk: home and store.
        repository: the user's.
        asked: how probes run, from the options.
        ranges: what the options say of all ranges; its ends are replaced.
        output: whether and how progress is shown.
        baseline: that is pinned, or None.
        stack: closes the executor.

    Attributes:
        reports: of what was answered tonight, by bisection.
    """

    desk: Desk
    repository: Repository
    asked: Asked
    ranges: Range
    output: Output
    baseline: Baseline | None
    stack: ExitStack
    reports: dict[str, ReportData] = field(default_factory=dict)
    _executor: Executor | None = None

    def question(self, good: str, bad: str) -> Question:
        """Return the question about two commits. Raises InputError for what cannot be asked."""
        commits = replace(self.ranges, goods=(good,), bad=bad)
        question = ask_question(self.asked, self.repository, kind=KIND, commits=commits)
        return replace(question, expected=())  # the watch labels what is intended

    def measure(self, commit: str) -> tuple[Level | None, str]:
        """See `bisect_train.nightly.night.Runner`."""
        question = self.question(commit, commit)
        question = question.at_rung(len(question.ladder) - 1) if question.ladder else question
        space = build_space(self.repository, question)
        seeds = (0, 0, *range(1, NUM_FIRST_SEEDS))
        singles = [SingleProbe(question, space, seed_idx) for seed_idx in seeds]
        bisection = self.desk.store.create(question.to_json() | {"kind": "probe"}, title=f"first night: {commit[:8]}")
        done = self._run_singles(singles, question, bisection)
        outcomes = [
            judge_outcome(
                result.fingerprint,
                question.metric,
                has_judge=bool(question.settings.judge),
                symptom=question.symptom,
            )
            for _, result in done
        ]
        for seed_idx, seen in zip(seeds, outcomes, strict=True):
            if seen.kind is not OutcomeKind.MEASURED:
                raise MachineError(
                    f"{commit[:8]} cannot be the first good commit: seed {seed_idx}: {seen.reason or seen.kind.value}",
                    hint="name a commit that runs with --good REV",
                )
        repeats = bool(outcomes[0].digest) and (outcomes[0].digest, outcomes[0].value) == (
            outcomes[1].digest,
            outcomes[1].value,
        )
        again = "the same seed run again gives the same bits" if repeats else "the same seed run again gives other bits"
        spec = self.desk.store.find_probe(done[0][0]).spec
        level = level_of_runs(commit, question, spec, list(zip(seeds[1:], outcomes[1:], strict=True)))
        return level, f"{commit[:8]} was run on {NUM_FIRST_SEEDS} seeds: {again}"

    def _run_singles(self, singles: Sequence[SingleProbe], question: Question, bisection: str) -> list[tuple[str, Any]]:
        store = self.desk.store
        with store.lock(bisection):
            store.append(bisection, "started", {})
            try:
                executor = self._open(question)
                done = run_singles(singles, executor=executor, store=store, bisection_id=bisection)
            except KeyboardInterrupt:
                store.append(bisection, "interrupted", {})
                raise InterruptedByUser("interrupted", hint="the same command goes on") from None
            endings = ", ".join(result.fingerprint.ending.kind.value for _, result in done)
            store.append(bisection, "finished", {"answer": {"status": endings, "summary": ""}})
        return done

    def _open(self, question: Question) -> Executor:
        if self._executor is None:
            self._executor = self.stack.enter_context(driving.open_executor(question, self.desk.home))
        self._executor.adopt(question.settings)
        return self._executor

    def ask(self, comparison: Comparison) -> str:
        """See `bisect_train.nightly.night.Runner`."""
        question = replace(self.question(*self._ends_of(comparison)), ends_only=comparison.is_ends_only)
        space = build_space(self.repository, question)
        if comparison.role is Role.PINNED and self.baseline is not None and self.baseline.saved.commit == comparison.good:
            question = replace(with_baseline(question, space, self.baseline), expected=())
        data = question.to_json()
        return self._find(data, UNFINISHED) or self.desk.store.create(
            data, title=f"{comparison.role.value}: {title_of(question, space)}"
        )

    def _ends_of(self, comparison: Comparison) -> tuple[str, str]:
        """Return the commits that are compared; states with intended changes on top are written to our mirror."""
        if not comparison.meant:
            return comparison.good, comparison.bad
        good, bad = put_on_top(self.repository, comparison.good, comparison.meant), comparison.bad
        if comparison.role is Role.MEASURE:
            bad = put_on_top(self.repository, bad, comparison.meant)
        return good, step_to(self.repository, good, bad)

    def answer(self, comparison: Comparison, bisection: str) -> Compared:
        """See `bisect_train.nightly.night.Runner`."""
        reopened = reopen(self.desk, bisection)
        if reopened.stored.status == "cancelled":
            raise MachineError(f"bisection {bisection} was cancelled", hint=f"`bisect-train resume {bisection}` goes on")
        if reopened.stored.status != "finished" or reopened.plan.answer is None:
            question, space = reopened.question, reopened.space
            executor = self._open(question)
            report = driving.answer_bisection(self.desk, bisection, question, space, output=self.output, executor=executor)
            reopened = reopen(self.desk, bisection)
        else:
            report = report_of(self.desk, reopened)
        self.reports[bisection] = report
        return self._confirmed(comparison, reopened, self._compared(comparison, reopened, report))

    def look_again(self, comparison: Comparison, bisection: str) -> Compared | None:
        """See `bisect_train.nightly.night.Runner`."""
        try:
            reopened = reopen(self.desk, bisection)
        except InputError:  # it was removed, or its repository is another one now
            return None
        if reopened.stored.status != "finished" or reopened.plan.answer is None:
            return None
        report = report_of(self.desk, reopened)
        self.reports[bisection] = report
        return self._compared(comparison, reopened, report)

    def _confirmed(self, comparison: Comparison, reopened: Reopened, compared: Compared) -> Compared:
        """Return what a comparison showed; what is worse and not proved must show on other seeds, too.

        The last good commit is one that once looked good: its seeds are lucky ones more often than not.
        """
        if compared.standing is not Standing.WORSE or compared.is_confirmed or comparison.is_ends_only:
            return compared
        first_seed = FIRST_FRESH_SEED + reopened.question.limits.max_seeds * int(reopened.stored.created_s // DAY_S)
        question = replace(reopened.question, ends_only=True, first_seed=first_seed, ladder=(), golden=())
        bisection = self._find(question.to_json(), FINISHED) or self.desk.store.create(
            question.to_json(), title=f"{comparison.role.value}, on other seeds: {title_of(question, reopened.space)}"
        )
        again = reopen(self.desk, bisection)
        if again.stored.status != "finished":
            executor = self._open(question)
            report = driving.answer_bisection(
                self.desk, bisection, question, again.space, output=self.output, executor=executor
            )
        else:
            report = report_of(self.desk, again)
        if _STANDINGS.get(report.exit_status) is Standing.WORSE:
            return replace(compared, details=(f"It shows on other seeds, too: {' '.join(report.ends_story[1:2])}".strip(),))
        said = f"{compared.summary} On other seeds it does not show (bisection {bisection}), so it is taken for chance."
        return replace(compared, standing=Standing.UNCLEAR, summary=said)

    def _find(self, data: dict[str, Any], statuses: tuple[str, ...]) -> str:
        """Return a recent bisection that asks the same, "" if there is none."""
        wanted = json.loads(json.dumps(data))  # as the store gives it back
        recent = self.desk.store.page(limit=RECENT, parts=False)
        return next((item.id for item in recent if item.question == wanted and item.status in statuses), "")

    def _compared(self, comparison: Comparison, reopened: Reopened, report: ReportData) -> Compared:
        standing = _STANDINGS.get(report.exit_status, Standing.UNTESTABLE)
        probes = self.desk.store.results(reopened.stored.id)
        ends = reopened.plan.ends
        level = None
        if standing is not Standing.UNTESTABLE and probes:
            level = level_of_ends(ends, comparison.bad, reopened.question, probes[-1].spec)
        culprits = tuple(self._named(part) for culprit in report.culprits for part in culprit.changes)
        is_one = len(culprits) == 1 and culprits[0].kind == "commit"
        return Compared(
            bisection=reopened.stored.id,
            standing=standing,
            summary=_say(report, standing, comparison),
            bound=report.bound,
            level=level,
            culprits=culprits,
            candidates=tuple(self._named(item.change) for item in report.candidates),
            is_confirmed=report.status in ("isolated", "several"),
            before=self._parent(culprits[0].id) if is_one else "",
            report=report_to_json(report),
        )

    def _parent(self, commit: str) -> str:
        found = self.repository.git.attempt("rev-parse", "--verify", "--quiet", f"{commit}^1")
        return decode(found.stdout).strip() if found.returncode == 0 else ""

    def _named(self, part: ChangePart) -> FoundChange:
        """Return a change with its commit's author, by the mailmap of the repository."""
        if part.kind != "commit":
            return FoundChange(part.kind, part.id, part.title)
        shown = self.repository.git.attempt("show", "--no-patch", "--format=%aN%x00%aE", part.id)
        author, _, email = decode(shown.stdout).strip().partition("\0")
        return FoundChange(part.kind, part.id, part.title, printable(author), printable(email))


def _say(report: ReportData, standing: Standing, comparison: Comparison) -> str:
    """Return what a comparison showed; where no change is proved, how far the ends lie apart says more than its summary."""
    if standing is not Standing.WORSE or report.status in ("isolated", "several"):
        return report.summary
    story = " ".join(report.ends_story[:2])
    if comparison.is_ends_only:
        before = f"before it ({comparison.good[:8]})" if comparison.role is Role.FIXED else comparison.good[:8]
        before += f" with {' and '.join(commit[:8] for commit in comparison.meant)} on top" if comparison.meant else ""
        return f"Still worse than {before}. {story}"
    # the report's own sentence says which change is most probable: that is no proof, and people read this
    left = f"{say_count(len(report.candidates), 'change')} could be the one" if report.candidates else report.headline.lower()
    return f"{story} No change is proved: {left}."


@dataclass(frozen=True, slots=True)
class Ancestry:
    """See `bisect_train.nightly.terms.History`."""

    repository: Repository

    def is_ancestor(self, commit: str, of: str) -> bool:
        """Return whether a commit is another one, or lies behind it; an unknown one does not.

        Raises:
            RevisionError: it is unknown in a shallow clone, whose history could have it.
            BisectTrainError: git fails.
        """
        git = self.repository.git
        found = git.attempt("merge-base", "--is-ancestor", commit, of)
        if found.returncode in (0, 1):
            return found.returncode == 0
        if found.returncode != 128 or git.attempt("cat-file", "-e", f"{commit}^{{commit}}").returncode == 0:
            raise BisectTrainError(f"git merge-base failed with status {found.returncode}")
        if self.repository.shallow:
            message = f"commit {commit[:12]} is unknown in this shallow clone, which may have cut it off"
            raise RevisionError(message, hint="git fetch --unshallow (in a workflow: a checkout with fetch-depth: 0)")
        return False
