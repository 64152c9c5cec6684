"""Records scenarios: trains them for real, and then what the search did not ask for but may; see `recording`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.cli import driving
from bisect_train.core.changes import Point, make_point
from bisect_train.core.errors import UnbuildableError
from bisect_train.core.executor import Executor, ExecutorEvent, ProbeFinished, ProbeLost
from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.probe import MachineFacts, ProbeJob, ProbeResult, ProbeSpec, RunSettings, probe_key
from bisect_train.core.question import Question
from bisect_train.store.home import open_store
from tests.scenarios.library.recording import Recording, name_of, thin
from tests.scenarios.library.replay import replay, run_command
from tests.scenarios.library.scenario import Built, Scenario, check_report

# of each kind, beyond what the search asked for: the first seeds of ends and search, and of two attempts of a proof
FILLED_SEEDS = ((0, 1), *((idx, 0) for idx in (*range(3), *range(100, 103), *range(200, 203))))
REPLAY_SLOTS = (2, 5)
NOT_KEPT = (EndingKind.KILLED, EndingKind.TIMEOUT)  # accidents of the machine


class RecordingExecutor:
    """Answers with recorded runs; what is not recorded runs on a real executor, and is recorded."""

    def __init__(self, real: Executor, recording: Recording) -> None:
        self._real = real
        self._recording = recording
        self._jobs: dict[str, ProbeJob] = {}
        self._ready: list[ProbeFinished] = []

    def facts(self) -> MachineFacts:
        """Return those of the real one."""
        return self._real.facts()

    def adopt(self, settings: RunSettings) -> None:
        """Let the real one take the resources of a probe from other settings."""
        self._real.adopt(settings)

    @property
    def jobs(self) -> list[ProbeJob]:
        """All that were started."""
        return list(self._jobs.values())

    def submit(self, job: ProbeJob) -> None:
        """Answer a job with its recorded run, or start it."""
        found = self._recording.find(job.spec)
        if found is not None:
            self._ready.append(ProbeFinished(ProbeResult(job.id, found, node="recorded")))
        else:
            self.submit_fresh(job)

    def submit_fresh(self, job: ProbeJob) -> None:
        """Start a job, whether it is recorded or not."""
        self._jobs[job.id] = job
        self._real.submit(job)

    def wait(self, timeout_s: float) -> list[ExecutorEvent]:
        """Return the events that have come."""
        if self._ready:
            ready, self._ready = self._ready, []
            return [*ready]
        return [self._record(event) for event in self._real.wait(timeout_s)]

    def _record(self, event: ExecutorEvent) -> ExecutorEvent:
        """Record a finished run; return it as it would be replayed, so that its bits can be compared with replayed ones."""
        if not isinstance(event, ProbeFinished) or event.result.fingerprint.ending.kind in NOT_KEPT:
            return event
        self._recording.add(self._jobs[event.result.job_id].spec, event.result.fingerprint)
        return replace(event, result=replace(event.result, fingerprint=thin(event.result.fingerprint)))

    def cancel(self, job_id: str) -> None:
        """Stop a probe."""
        self._ready = [event for event in self._ready if event.result.job_id != job_id]
        self._real.cancel(job_id)

    def close(self) -> None:
        """Leave the real one open: it serves more than one command."""


def record_scenario(scenario: Scenario) -> str:
    """Train a scenario, write what its replays need, and replay it; return a line that says what was done.

    Raises:
        AssertionError: the real run, or the replay, does not say the truth. The runs are written nevertheless.
    """
    recording = Recording.read(scenario.name)
    num_before = len(recording.runs)
    try:
        _train(scenario, recording)
    finally:
        size = recording.write()
    with tempfile.TemporaryDirectory(prefix="bt-") as name:
        built, status, report = replay(scenario, Path(name))
        check_report(scenario.truth, built, report, status)
    num_new, num_kinds = len(recording.runs) - num_before, len(set(recording.kinds.values()))
    return f"{scenario.name}: {num_new} new runs, now {len(recording.runs)} of {num_kinds} kinds, {size / 1000:.1f} kB"


def _train(scenario: Scenario, recording: Recording) -> None:
    """Run a scenario's command on a real executor, then what else its replays may ask for."""
    with tempfile.TemporaryDirectory(prefix="bt-") as name, ExitStack() as stack:
        recorders: list[RecordingExecutor] = []
        open_real = driving.open_executor

        @contextmanager
        def open_recording(question: Question, home: Path) -> Iterator[Executor]:
            if not recorders:
                recorders.append(_start_recorder(stack.enter_context(open_real(question, home)), recording))
            yield recorders[0]

        built, home = scenario.build(Path(name)), Path(name) / "home"
        status, report = run_command(built, home, open_recording)
        for recorder in recorders:
            _fill(recorder, recording, scenario, built, home)
            _train_replays(recorder, recording, scenario, Path(name))
            _tell_kinds(recorder, recording)
    check_report(scenario.truth, built, report, status)


def _train_replays(recorder: RecordingExecutor, recording: Recording, scenario: Scenario, folder: Path) -> None:
    """Replay as the tests do, and train what is missing still."""

    def train(job: ProbeJob) -> None:
        first = _with_seed(job, 0, 0, recorder.facts())  # it tells the kind of the variant
        _run_all(recorder, [job] if first.spec == job.spec else [first, job])

    for slots in REPLAY_SLOTS:
        place = folder / f"replay{slots}"
        place.mkdir()
        replay(scenario, place, slots=slots, recording=recording, train=train)


def _tell_kinds(recorder: RecordingExecutor, recording: Recording) -> None:
    """Run seed 0 of the variants that ran on other seeds only: without it their kind is not known, and their runs are lost."""
    strays = {key[0] for key in recording.strays}
    jobs = {name_of(job.spec): job for job in recorder.jobs if name_of(job.spec) in strays}
    _run_all(recorder, [_with_seed(job, 0, 0, recorder.facts()) for job in jobs.values()])


def _start_recorder(real: Executor, recording: Recording) -> RecordingExecutor:
    """Return a recorder; runs of another machine or interpreter are dropped first."""
    facts = real.facts()
    if recording.facts != (facts.hardware_class, facts.interpreter):
        recording.facts = (facts.hardware_class, facts.interpreter)
        recording.kinds.clear()
        recording.runs.clear()
    return RecordingExecutor(real, recording)


def _fill(recorder: RecordingExecutor, recording: Recording, scenario: Scenario, built: Built, home: Path) -> None:
    """Record what the search did not ask for but may: each version's kind, and more seeds of each kind."""
    store = open_store(home)
    questions = [Question.of_json(item.question) for item in store.list()]
    store.close()
    jobs: list[ProbeJob] = []
    for question in questions:
        space = build_space(Repository.open(Path(question.repo), home=home), question)
        points = _points_of(space, scenario, built)
        jobs += [job for point in points if (job := _job_of(space, question, point, recorder.facts())) is not None]
    _run_all(recorder, jobs)
    by_kind: dict[str, list[ProbeJob]] = {}
    for job in jobs:
        by_kind.setdefault(recording.kinds[name_of(job.spec)], []).append(job)
    healthy = [group[0] for group in by_kind.values() if _is_healthy(recording, group[0])]
    _run_all(recorder, [_with_seed(job, *seed, recorder.facts()) for job in healthy for seed in FILLED_SEEDS])
    _check_kinds(recorder, recording, by_kind)


def _points_of(space: ChangeSpace, scenario: Scenario, built: Built) -> list[Point]:
    """Return all versions, and those of a proof of each culprit: the bad end without it, the good end with it."""
    num = len(space.changes)
    ids = {change.id: idx for idx, change in enumerate(space.changes)}
    truth = scenario.truth
    named = [tuple(ids[item] for item in built.ids_of(culprit) if item in ids) for culprit in (*truth.culprits, truth.inside)]
    sets = {group for group in (*named, *((idx,) for group in named for idx in group)) if group}
    points = [Point(version) for version in range(num + 1)]
    return points + [point for group in sets for point in (make_point(num, minus=group), make_point(0, plus=group))]


def _job_of(space: ChangeSpace, question: Question, point: Point, facts: MachineFacts) -> ProbeJob | None:
    try:
        variant = space.variant(point)
        spec = ProbeSpec(variant, question.rung)
        key = probe_key(spec, settings=question.settings, facts=facts, scope="recording")
        return ProbeJob(key, spec, question.settings, space.repo_key, space.packs(variant))
    except UnbuildableError:
        return None


def _with_seed(job: ProbeJob, seed_idx: int, repeat: int, facts: MachineFacts) -> ProbeJob:
    spec = replace(job.spec, seed_idx=seed_idx, repeat=repeat)
    return replace(job, id=probe_key(spec, settings=job.settings, facts=facts, scope="recording"), spec=spec)


def _is_healthy(recording: Recording, job: ProbeJob) -> bool:
    found = recording.find(job.spec)
    return found is not None and found.ending.is_healthy


def _run_all(recorder: RecordingExecutor, jobs: Sequence[ProbeJob], *, is_fresh: bool = False) -> None:
    """Run jobs to their end; lost and killed ones again."""
    submit = recorder.submit_fresh if is_fresh else recorder.submit
    waiting = {job.id: job for job in jobs}
    for job in waiting.values():
        submit(job)
    while waiting:
        for event in recorder.wait(1.0):
            if isinstance(event, ProbeLost):
                submit(waiting[event.job_id])
            elif isinstance(event, ProbeFinished):
                is_accident = event.result.fingerprint.ending.kind in NOT_KEPT
                submit(waiting[event.result.job_id]) if is_accident else waiting.pop(event.result.job_id)


def _check_kinds(recorder: RecordingExecutor, recording: Recording, by_kind: Mapping[str, Sequence[ProbeJob]]) -> None:
    """Run the last variant of each kind on another seed: it must show what its kind does. Raises UnequalRunsError."""
    again = [
        _with_seed(jobs[-1], 2, 0, recorder.facts())
        for jobs in by_kind.values()
        if name_of(jobs[0].spec) != name_of(jobs[-1].spec) and _is_healthy(recording, jobs[0])
    ]
    _run_all(recorder, again, is_fresh=True)
