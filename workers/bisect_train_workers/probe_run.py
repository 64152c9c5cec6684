"""Run a prepared program of a probe, follow it, and turn what it left behind into a result."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.executor import ExecutorEvent, ProbeProgress
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint, JudgeResult
from bisect_train.core.probe import ProbeJob, ProbeResult
from bisect_train_workers import command, environment
from bisect_train_workers.ending import Evidence, decide_ending, has_reached_steps
from bisect_train_workers.judge import run_judge
from bisect_train_workers.memory_kills import count_oom_kills
from bisect_train_workers.node import NodeError
from bisect_train_workers.program import Program, RunningProgram, supervise
from bisect_train_workers.program_log import TAIL_CHARS, find_metrics, read_log
from bisect_train_workers.records import ProcessRecord, RecordReader, describe_processes, pick_ranks, to_rank_records

LOOK_S = 0.25
"""Time between two looks at the records of a running program, seconds."""
LEAVE_S = 20.0
"""Time that a program gets to leave after all its ranks were stopped, seconds."""

_PORT_IN_USE = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)
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
        lfs_pointers: tracked files that have no content here.
    """

    job: ProbeJob
    program: Program
    folders: environment.ProbeFolders
    places: command.Places
    lfs_pointers: Sequence[str] = ()


def run_prepared(probe: PreparedProbe) -> ProbeSteps:
    """Run the program and its judge.

    Raises:
        LostError: the program's port was taken by someone else.
        SupervisorLostError: nothing is known about the program.
        NodeError: the disk is full.
    """
    reader = RecordReader(probe.folders.records)
    kills_before, started_t = count_oom_kills(), time.time()
    yield ProbeProgress(probe.job.id, "run")
    with supervise(probe.program) as running:
        yield from _follow(probe, running, reader)
        outcome = running.outcome()
    log = read_log(probe.program.log)
    processes = reader.read()
    ranks = pick_ranks(processes)
    evidence = Evidence(
        outcome=outcome,
        processes=processes,
        ranks=ranks,
        log=log,
        checkout=probe.folders.checkout,
        num_steps=probe.job.spec.rung.steps,
        needs_recorder=probe.job.settings.needs_recorder,
        timeout_s=probe.job.settings.timeout_s,
        last_sign_t=max(started_t, _last_sign_t(processes, probe.program.log)),
        ended_t=started_t + outcome.run_s,
        oom_kills=count_oom_kills() - kills_before,
    )
    ending = _explain(decide_ending(evidence), probe)
    _refuse_foreign_trouble(evidence, ending)
    judged = yield from _judge(probe, ending)
    return _to_result(probe, evidence, ending=ending, judged=judged)


def _follow(probe: PreparedProbe, running: RunningProgram, reader: RecordReader) -> Generator[ExecutorEvent, None, None]:
    """Wait for the end; yields a progress event whenever rank 0 has finished more steps.

    A program whose ranks all were stopped but that does not come to its end is ended after a while.
    """
    num_told, done_since = 0, 0.0
    while not running.wait(LOOK_S):
        ranks = pick_ranks(reader.read())
        steps = next(iter(ranks.values())).steps if ranks else {}
        if len(steps) > num_told:
            num_told = len(steps)
            loss = steps[max(steps)].get("loss")
            yield ProbeProgress(probe.job.id, "run", num_told, loss if isinstance(loss, float) else None)
        is_stopping = any(process.has_event("stop") for process in ranks.values())
        if is_stopping and has_reached_steps(ranks, probe.job.spec.rung.steps):
            done_since = done_since or time.monotonic()
            if time.monotonic() - done_since > LEAVE_S:
                running.end()
                return


def _last_sign_t(processes: Sequence[ProcessRecord], log: Path) -> float:
    """Return when the last step came or, where none was recorded, the last output; seconds since the epoch."""
    last_step_t = max((process.last_progress_t for process in processes), default=0.0)
    if last_step_t or not log.exists():
        return last_step_t
    return log.stat().st_mtime if log.stat().st_size else 0.0


def _explain(ending: Ending, probe: PreparedProbe) -> Ending:
    """Add to a failure's message what may have caused it."""
    if ending.is_healthy or not probe.lfs_pointers:
        return ending
    note = f"(files such as {probe.lfs_pointers[0]} are Git LFS pointers here: link the data in)"
    return dataclasses.replace(ending, message=f"{ending.message} {note}".strip())


def _refuse_foreign_trouble(evidence: Evidence, ending: Ending) -> None:
    """Raise where the failure says nothing about the user's program: its port was taken, the disk is full."""
    if ending.kind is not EndingKind.CRASHED:
        return
    num_steps = max((len(process.steps) for process in evidence.processes), default=0)
    if num_steps == 0 and _PORT_IN_USE.search(ending.message + evidence.log[-TAIL_CHARS:]):
        raise LostError(f"the port of the process group was in use: {ending.message[:300]}")
    if _DISK_FULL in ending.message:
        raise NodeError(f"the disk of {os.uname().nodename} is full: the program ended with {ending.message[:300]}")


def _judge(probe: PreparedProbe, ending: Ending) -> Generator[ExecutorEvent, None, JudgeResult | None]:
    asked = probe.job.settings.judge
    if not asked:
        return None
    yield ProbeProgress(probe.job.id, "judge")
    filled = command.fill_placeholders(asked, probe.job.spec, probe.places)
    argv = command.use_python(filled, probe.job.settings.python)
    env = environment.without_recorder(probe.program.env, probe.folders)
    program = dataclasses.replace(probe.program, env=env)
    return run_judge(program, argv, ending=ending, out=probe.folders.out)


def _to_result(probe: PreparedProbe, evidence: Evidence, *, ending: Ending, judged: JudgeResult | None) -> ProbeResult:
    facts = describe_processes(evidence.processes, evidence.ranks)
    facts.setdefault("threads", str(probe.job.settings.threads))
    fingerprint = Fingerprint(
        ending=ending,
        ranks=to_rank_records(evidence.ranks, num_steps=evidence.num_steps),
        metrics=find_metrics(evidence.log, probe.job.settings.patterns),
        judge=judged,
        facts=tuple(sorted(facts.items())),
    )
    return ProbeResult(
        job_id=probe.job.id,
        fingerprint=fingerprint,
        log_tail=evidence.log[-TAIL_CHARS:],
        stacks=_read_stacks(probe.folders.records),
        warnings=tuple(_find_warnings(probe, evidence)),
        node=os.uname().nodename,
    )


def _read_stacks(records: Path) -> tuple[tuple[str, str], ...]:
    texts = [(path.name, path.read_text(errors="replace")) for path in sorted(records.glob("stacks-rank*.txt"))]
    return tuple((name, text[-_STACK_CHARS:]) for name, text in texts if text)


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
    written = sorted({path for process in evidence.processes for path in process.written_outside})
    if written:
        more = f" (+{len(written) - 1} more)" if len(written) > 1 else ""
        found.append(f"wrote outside its checkout: {written[0]}{more}")
    for process in evidence.processes:
        found += [f"recorder: {line.get('data', {}).get('error')}" for line in process.events_named("recorder_error")]
    return list(dict.fromkeys(found))
