"""Run a prepared program of a probe, follow it, and turn what it left behind into a result."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.executor import ExecutorEvent, ProbeProgress
from bisect_train.core.fingerprint import (
    EarlyStop,
    Ending,
    EndingKind,
    Event,
    Fingerprint,
    JudgeResult,
    MetricSeries,
    RankRecord,
)
from bisect_train.core.probe import MetricPattern, ProbeJob, ProbeResult
from bisect_train_workers import command, environment
from bisect_train_workers.dead_rank import is_peer_gone
from bisect_train_workers.early_look import EARLY_LOOK_S, EarlyLook
from bisect_train_workers.ending import Evidence, decide_ending, find_silence, has_reached_steps
from bisect_train_workers.gang import Member, supervise_gang
from bisect_train_workers.judge import run_judge
from bisect_train_workers.memory_kills import count_oom_kills
from bisect_train_workers.node import NodeError, node_name
from bisect_train_workers.program import Program, Running, supervise
from bisect_train_workers.program_log import TAIL_CHARS, read_log
from bisect_train_workers.read_sets import find_reads
from bisect_train_workers.records import ProcessRecord, RecordReader, describe_processes, pick_ranks, to_rank_records
from bisect_train_workers.sources.reading import FilesBefore, read_metrics
from bisect_train_workers.standstill import Standing

LOOK_S = 0.25
"""Time between two looks at the records of a running program, seconds."""
LEAVE_S = 20.0
"""Time that a program gets to leave after all its ranks were stopped, seconds."""

_PORT_IN_USE = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)
_CANNOT_MEET = re.compile(
    r"client socket has timed out|connectFullMesh failed|No route to host|Network is unreachable|Name or service not known|"
    r"Temporary failure in name resolution",
    re.IGNORECASE,
)
_DISK_FULL = "No space left on device"
_STACK_CHARS = 20_000

ProbeSteps = Generator[ExecutorEvent, None, ProbeResult]
"""Yields progress and returns the result."""


class LostError(Exception):
    """The probe has to be run again; the message says why."""


@dataclass(frozen=True, slots=True)
class PreparedProbe:
    """A probe whose checkout is ready.

    Attributes:
        job: what was asked for.
        program: what is run.
        folders: of the probe.
        places: what the placeholders stand for.
        num_steps: optimizer steps after which the recorder ends it, None for the whole run.
        lfs_pointers: tracked files that have no content here.
        members: further nodes that run their share of its ranks.
    """

    job: ProbeJob
    program: Program
    folders: environment.ProbeFolders
    places: command.Places
    num_steps: int | None
    lfs_pointers: Sequence[str] = ()
    members: Sequence[Member] = ()


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A program that has ended, with what it left behind; `early` says why it was stopped before its last step.

    `metrics` are read here, before anything is moved or another run writes over it.
    """

    probe: PreparedProbe
    evidence: Evidence
    ending: Ending
    early: EarlyStop | None = None
    metrics: tuple[MetricSeries, ...] = ()

    @property
    def ranks(self) -> tuple[RankRecord, ...]:
        """What its ranks recorded."""
        records = to_rank_records(self.evidence.ranks, num_steps=self.evidence.num_steps)
        if self.evidence.outcome.ended_by != "timeout":
            return records
        standings = find_silence(self.evidence).standings
        return tuple(_with_standing(record, standings.get(self.evidence.ranks[record.rank].pid)) for record in records)


def _with_standing(record: RankRecord, standing: Standing | None) -> RankRecord:
    """Return a rank's record with the event `at_limit`: where it stood when its time was over."""
    if standing is None:
        return record
    last = record.steps[-1].step if record.steps else None
    return dataclasses.replace(record, events=(*record.events, Event("at_limit", last, standing.to_data())))


Follow = Callable[[PreparedProbe, Running, RecordReader], Generator[ExecutorEvent, None, None]]
"""Waits for a program's end, or ends it; yields progress."""


def run_prepared(probe: PreparedProbe) -> ProbeSteps:
    """Run the program and its judge; raises what `run_once` does."""
    run = yield from run_once(probe)
    judged = yield from judge_run(run)
    return to_result(run, judged=judged)


def run_once(
    probe: PreparedProbe, *, phase: str = "run", follow: Follow | None = None
) -> Generator[ExecutorEvent, None, FinishedRun]:
    """Run the program to its end.

    Args:
        probe: what is run.
        phase: of the progress that is told first.
        follow: how it is waited for; None waits for its end.
    Raises:
        LostError: the program's port was taken by someone else.
        SupervisorLostError: nothing is known about the program.
        NodeError: the disk is full.
    """
    reader, early = RecordReader(probe.folders.records), EarlyLook(probe.job.early)
    kills_before, started_t = count_oom_kills(), time.time()
    patterns, folders = probe.job.settings.patterns, probe.folders
    before = FilesBefore.look(patterns, checkout=folders.checkout, out=folders.out)
    yield ProbeProgress(probe.job.id, phase)
    with supervise_gang(probe.program, probe.members) if probe.members else supervise(probe.program) as running:
        yield from (follow(probe, running, reader) if follow else _follow(probe, running, reader, early))
        outcome = running.outcome()
    logs = (*running.logs(), read_log(probe.program.log))
    processes = reader.read()
    evidence = Evidence(
        outcome=outcome,
        processes=processes,
        ranks=pick_ranks(processes),
        log="\n".join(logs),
        checkout=probe.folders.checkout,
        num_steps=probe.num_steps,
        needs_recorder=probe.job.settings.needs_recorder,
        timeout_s=probe.job.settings.timeout_s,
        last_sign_t=max(started_t, _last_event_t(processes), _last_output_t(processes, probe.program.log)),
        last_event_t=max(started_t, _last_event_t(processes)),
        stacks=_stacks_by_pid(probe.folders.records),
        has_gpu=probe.job.settings.gpus > 0,
        ended_t=started_t + outcome.run_s,
        oom_kills=count_oom_kills() - kills_before + running.oom_kills,
        is_on_several=bool(probe.members),
    )
    ending = _explain(decide_ending(evidence), probe)
    if early.stop is not None and ending.kind is not EndingKind.CANNOT_START:  # that says the wrong code ran
        ending = Ending(EndingKind.STOPPED)
        return FinishedRun(probe, evidence, ending, early.stop, _read_metrics(patterns, logs, before, ending))
    _refuse_foreign_trouble(evidence, ending)
    return FinishedRun(probe, evidence, ending, metrics=_read_metrics(patterns, logs, before, ending))


def _read_metrics(
    patterns: Sequence[MetricPattern], logs: Sequence[str], before: FilesBefore, ending: Ending
) -> tuple[MetricSeries, ...]:
    """Return what was printed or written on this node; what was not, from the last of the further nodes that printed it."""
    *others, own = logs
    found = read_metrics(patterns, own, before, ending=ending)
    for log in reversed(others):
        if all(series.values for series in found):
            break
        there = read_metrics(patterns, log, before, ending=ending)
        found = tuple(new if new.values and not old.values else old for old, new in zip(found, there, strict=True))
    return found


def _follow(
    probe: PreparedProbe, running: Running, reader: RecordReader, early: EarlyLook
) -> Generator[ExecutorEvent, None, None]:
    """Wait for the end; a program whose ranks all were stopped but that does not come to its end is ended after a while.

    One that has shown enough by an early rule is ended at once.
    """
    progress, done_since = Progress(probe.job.id), 0.0
    while not running.wait(EARLY_LOOK_S if early.is_open else LOOK_S):
        ranks = pick_ranks(reader.read())
        yield from progress.tell(ranks)
        is_done = has_reached_steps(ranks, probe.num_steps)
        if not is_done and early.look(ranks):
            running.end()
            return
        if is_stopping(ranks) and is_done:
            done_since = done_since or time.monotonic()
            if time.monotonic() - done_since > LEAVE_S:
                running.end()
                return


class Progress:
    """Tells whenever rank 0 has finished more steps."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._num_told = 0

    def tell(self, ranks: dict[int, ProcessRecord]) -> Iterator[ProbeProgress]:
        """Yield one event if there are more steps than at the last call."""
        steps = next(iter(ranks.values())).steps if ranks else {}
        if len(steps) > self._num_told:
            self._num_told = len(steps)
            loss = steps[max(steps)].get("loss")
            yield ProbeProgress(self._job_id, "run", self._num_told, loss if isinstance(loss, float) else None)


def is_stopping(ranks: dict[int, ProcessRecord]) -> bool:
    """Return whether the recorder has stopped a rank."""
    return any(process.has_event("stop") for process in ranks.values())


def _last_event_t(processes: Sequence[ProcessRecord]) -> float:
    """Return when the last step or event came; seconds since the epoch, 0 without any."""
    return max((max(process.last_progress_t, process.last_event_t) for process in processes), default=0.0)


def _last_output_t(processes: Sequence[ProcessRecord], log: Path) -> float:
    """Return when the last output came before the first step; seconds since the epoch, 0 without any or after a step."""
    if any(process.steps for process in processes) or not log.exists():
        return 0.0
    return log.stat().st_mtime if log.stat().st_size else 0.0


def _explain(ending: Ending, probe: PreparedProbe) -> Ending:
    """Add to a failure's message what may have caused it."""
    if ending.is_healthy or not probe.lfs_pointers:
        return ending
    note = f"(files such as {probe.lfs_pointers[0]} are Git LFS pointers here: link the data in)"
    return dataclasses.replace(ending, message=f"{ending.message} {note}".strip())


def _refuse_foreign_trouble(evidence: Evidence, ending: Ending) -> None:
    """Raise where a failure says nothing of the user's program: its port was taken, the disk is full, nodes cannot meet."""
    if ending.kind not in (EndingKind.CRASHED, EndingKind.KILLED):
        return
    num_steps = max((len(process.steps) for process in evidence.processes), default=0)
    if num_steps == 0 and _PORT_IN_USE.search(ending.message + evidence.log[-TAIL_CHARS:]):
        raise LostError(f"the port of the process group was in use: {ending.message[:300]}")
    if evidence.is_on_several:
        _refuse_trouble_between(ending, num_steps)
    if _DISK_FULL in ending.message:
        raise NodeError(f"the disk of {node_name()} is full: the program ended with {ending.message[:300]}")


def _refuse_trouble_between(ending: Ending, num_steps: int) -> None:
    """Raise where ranks of several nodes lost each other and none of them says why, or where one of the disks is full."""
    if is_peer_gone(ending.message):
        raise LostError(f"ranks on different nodes lost each other: {ending.message[:300]}")
    if num_steps == 0 and _CANNOT_MEET.search(ending.message):
        raise LostError(f"its nodes could not reach each other: {ending.message[:300]}")
    if _DISK_FULL in ending.message:
        raise LostError(f"the disk of one of its nodes is full: {ending.message[:300]}")


def judge_run(run: FinishedRun) -> Generator[ExecutorEvent, None, JudgeResult | None]:
    """Run the judging command, if there is one, on what a program left behind. Raises CommandError."""
    probe = run.probe
    asked = probe.job.settings.judge
    if not asked:
        return None
    yield ProbeProgress(probe.job.id, "judge")
    filled = command.fill_placeholders(asked, probe.job.spec, probe.places)
    argv = command.use_python(filled, probe.job.settings.python)
    env = environment.without_recorder(probe.program.env, probe.folders)
    program = dataclasses.replace(probe.program, env=env)
    return run_judge(program, argv, ending=run.ending, out=probe.folders.out)


def to_result(run: FinishedRun, *, judged: JudgeResult | None = None) -> ProbeResult:
    """Return the result of a probe that ran one program."""
    probe, evidence = run.probe, run.evidence
    facts = describe_processes(evidence.processes, evidence.ranks)
    facts.setdefault("threads", str(probe.job.settings.threads))
    fingerprint = Fingerprint(
        ending=run.ending,
        ranks=run.ranks,
        metrics=run.metrics,
        judge=judged,
        facts=tuple(sorted(facts.items())),
        early=run.early,
        reads=find_reads(evidence.processes, evidence.ranks, probe.job, is_early=run.early is not None),
    )
    return ProbeResult(
        job_id=probe.job.id,
        fingerprint=fingerprint,
        log_tail=evidence.log[-TAIL_CHARS:],
        stacks=_name_stacks(evidence),
        warnings=tuple(_find_warnings(probe, evidence)),
        node=node_name(),
        is_warm=evidence.outcome.is_warm,
    )


def _stacks_by_pid(records: Path) -> dict[int, str]:
    """Return the text of the stacks that each process left."""
    found = {}
    for path in records.glob("stacks-rank*-pid*.txt"):
        pid = path.stem.rpartition("-pid")[2]
        text = path.read_text(errors="replace")
        if text and pid.isdigit():
            found[int(pid)] = text
    return found


def _name_stacks(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """Return (name, text) of the stacks; the rank in a name is that of the process group, where there was one."""
    rank_of = {process.pid: process.rank for process in evidence.processes}
    named = [(f"stacks-rank{rank_of.get(pid, 0)}-pid{pid}.txt", text[-_STACK_CHARS:]) for pid, text in evidence.stacks.items()]
    return tuple(sorted(named))


def _find_warnings(probe: PreparedProbe, evidence: Evidence) -> list[str]:
    found = []
    if probe.lfs_pointers:
        shown = ", ".join(probe.lfs_pointers[:3])
        found.append(f"{len(probe.lfs_pointers)} tracked files are Git LFS pointers without their content: {shown}")
    if evidence.outcome.left_pids:
        found.append(f"processes that could not be ended: {', '.join(map(str, evidence.outcome.left_pids))}")
    if evidence.outcome.dropped_bytes:
        found.append(f"{evidence.outcome.dropped_bytes:,} bytes of the program's output were not kept")
    world_size = max((process.world_size for process in evidence.ranks.values()), default=0)
    if world_size and world_size != probe.job.spec.ranks:
        found.append(f"the program ran with {world_size} ranks, not the {probe.job.spec.ranks} that were asked for")
    if any(process.has_event("graph_captured") for process in evidence.processes):
        found.append("steps are replayed from a CUDA graph: the recorder sees those before the capture only")
    written = sorted({path for process in evidence.processes for path in process.written_outside})
    if written:
        more = f" (+{len(written) - 1} more)" if len(written) > 1 else ""
        found.append(f"wrote outside its checkout: {written[0]}{more}")
    for process in evidence.processes:
        found += [f"recorder: {line.get('data', {}).get('error')}" for line in process.events_named("recorder_error")]
    return list(dict.fromkeys(found))
