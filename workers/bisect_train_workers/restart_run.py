"""A probe that asks about a restart: the same run without and with an interruption, in one checkout and output folder each.

1. the whole run, from a clean checkout;
2. the same from a clean checkout until step `save_at` has ended and what the program saves then is saved. The recorder
   holds each rank where its next step begins, and all are killed there at once: a signal sent by someone who looks at the
   records from time to time would come many steps too late;
3. `command` in the checkout and the output folder of 2, for the rest of the steps.

The time limit holds for each of them. What 1 and 2 left behind lies in `uninterrupted` and `interrupted` in the probe's
folder.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path

from bisect_train.core.executor import ExecutorEvent
from bisect_train.core.fingerprint import Ending, EndingKind, Event, JudgeResult, RankRecord, StepRecord
from bisect_train.core.probe import ProbeResult, RestartSettings
from bisect_train_workers import probe_run
from bisect_train_workers.ending import has_reached_steps
from bisect_train_workers.environment import ProbeFolders
from bisect_train_workers.node import disk_errors, remove_folder
from bisect_train_workers.preparing import Leg, Workplace, lay_out, make_program, run_setup, whole_run
from bisect_train_workers.probe_run import FinishedRun, PreparedProbe, ProbeSteps, Progress, is_stopping
from bisect_train_workers.program import Running
from bisect_train_workers.program_log import TAIL_CHARS
from bisect_train_workers.records import ProcessRecord, RecordReader, pick_ranks

SETTLE_S = 0.5
"""Time without a change of any file after which what held ranks save in the background is taken as saved, seconds."""

Run = Generator[ExecutorEvent, None, FinishedRun]
_FileState = tuple[str, int, int]


def run_restarted(place: Workplace, restart: RestartSettings, *, reset: Callable[[], object]) -> ProbeSteps:
    """Run all three parts and the judge.

    Args:
        place: with a checkout that is clean.
        restart: when and how it is interrupted.
        reset: makes the checkout clean again.
    Raises:
        CannotStartError, CommandError: a part cannot be prepared.
        LostError, SupervisorLostError, NodeError: see `probe_run.run_once`.
    """
    # parameters are compared at every step: those at which they usually are hashed would not be the same ones
    place = replace(place, job=replace(place.job, settings=replace(place.job.settings, every_step=True)))
    whole = yield from _run_from_clean(place, whole_run(place.job))
    refused = _refuse(whole, restart)
    if refused is not None or not whole.ending.is_healthy:
        whole = replace(whole, ending=refused or whole.ending)
        return probe_run.to_result(whole, judged=(yield from probe_run.judge_run(whole)))
    whole_result = probe_run.to_result(whole)  # reads its files before they are moved
    _set_aside(place.folders, "uninterrupted")
    reset()
    first = yield from _run_from_clean(place, _leg_to_save(restart), hold=restart.kill)
    if first.ending.kind is not EndingKind.STOPPED:
        ending = _told(first.ending, f"before the restart (without one, the same run came to {_say_steps(whole)})")
        return _without_resumed(whole_result, first, ending)
    first_result = probe_run.to_result(first)
    _set_aside(place.folders, "interrupted", ("records", "program.log"))
    last = yield from probe_run.run_once(make_program(place, _leg_after(place, restart)), phase="resume")
    if not last.ending.is_healthy:
        last = replace(last, ending=_told(last.ending, f"after the restart behind step {restart.save_at}"))
    judged = yield from probe_run.judge_run(last)
    return _join(whole_result, (first, first_result), last, restart=restart, judged=judged)


def _run_from_clean(place: Workplace, leg: Leg, *, hold: bool = False) -> Run:
    lay_out(place)
    probe = make_program(place, leg)
    yield from run_setup(probe)
    phase = "interrupt" if leg.recorder else "run"
    return (yield from probe_run.run_once(probe, phase=phase, follow=_follow_until_held if hold else None))


def _leg_to_save(restart: RestartSettings) -> Leg:
    return Leg(restart.save_at + 1, recorder={"after_save": True, "hold": restart.kill})


def _leg_after(place: Workplace, restart: RestartSettings) -> Leg:
    spec = place.job.spec
    steps = None if spec.rung.steps is None else spec.rung.steps - (restart.save_at + 1)
    return Leg(steps, restart.command, restart.ranks, is_launched=spec.ranks > 1)


def _refuse(whole: FinishedRun, restart: RestartSettings) -> Ending | None:
    """Return why a run that came through cannot be restarted, None if it can."""
    if not whole.ending.is_healthy:
        return None
    ranks = whole.evidence.ranks
    if not any(process.steps for process in ranks.values()):
        message = "no optimizer step was recorded, so that nobody knows when to restart the program"
        return Ending(EndingKind.NO_RECORDER, message=message)
    num_steps = min(len(process.steps) for process in ranks.values())
    if num_steps < restart.save_at + 2:
        message = f"the program ended by itself after {num_steps} steps, which leaves none behind step {restart.save_at}"
        return Ending(EndingKind.CANNOT_START, message=f"{message}, where it is to be restarted")
    return None


def _say_steps(run: FinishedRun) -> str:
    num_steps = max((len(process.steps) for process in run.evidence.ranks.values()), default=0)
    return f"{num_steps} step{'s' if num_steps != 1 else ''}"


def _told(ending: Ending, when: str) -> Ending:
    """Return a failure that says when it came; its signature stays that of the failure itself."""
    said = ending.message or f"the program {'ended by itself' if ending.is_healthy else ending.kind.value}"
    kind = EndingKind.CRASHED if ending.is_healthy else ending.kind
    return replace(ending, kind=kind, message=f"{when}: {said}")


def _follow_until_held(probe: PreparedProbe, running: Running, reader: RecordReader) -> Generator[ExecutorEvent, None, None]:
    """Wait until the recorder holds every rank and nothing is being saved any more; then kill them all.

    A rank that waits for a held one (a stage of a pipeline) never comes to the place where it would be held: then a time
    without any sign has to do.
    """
    progress = Progress(probe.job.id)
    seen, changed_t, held_t = None, time.monotonic(), 0.0
    while not running.wait(probe_run.LOOK_S):
        ranks = pick_ranks(reader.read())
        yield from progress.tell(ranks)
        if not is_stopping(ranks) or not has_reached_steps(ranks, probe.num_steps):
            continue
        now_t = time.monotonic()
        held_t = held_t or now_t
        state = (_count_lines(ranks), _files_below(probe.folders.out), _files_below(probe.folders.checkout))
        if state != seen:
            seen, changed_t = state, now_t
        is_all = all(process.has_event("stop") for process in ranks.values())
        if now_t - changed_t > (SETTLE_S if is_all else probe_run.LEAVE_S) or now_t - held_t > 2 * probe_run.LEAVE_S:
            running.end()
            return


def _count_lines(ranks: dict[int, ProcessRecord]) -> int:
    return sum(len(process.steps) + len(process.events) for process in ranks.values())


def _files_below(folder: Path) -> frozenset[_FileState]:
    """Return path, size and time of change of each file; links are not followed, and git's own are left out."""
    found: list[_FileState] = []
    for parent, names, files in os.walk(folder):
        names[:] = [name for name in names if name != ".git"]
        for name in files:
            try:
                stat = os.lstat(os.path.join(parent, name))  # noqa: PTH118  # thousands of files, several times a second
            except OSError:  # removed meanwhile
                continue
            found.append((f"{parent}/{name}", stat.st_size, stat.st_mtime_ns))
    return frozenset(found)


def _set_aside(folders: ProbeFolders, name: str, items: Sequence[str] = ()) -> None:
    """Move what a run left in the probe's folder to a folder in it: some items, or all; then its temporary files go too."""
    target = folders.base / name
    kept = {"lock", "uninterrupted", folders.tmp.name if folders.tmp.parent == folders.base else "lock"}
    with disk_errors(folders.base):
        target.mkdir()
        for path in [path for path in folders.base.iterdir() if path != target and path.name not in kept]:
            if not items or path.name in items:
                shutil.move(path, target / path.name)
        if not items:
            for path in folders.tmp.iterdir():
                remove_folder(path)


def _without_resumed(whole: ProbeResult, first: FinishedRun, ending: Ending) -> ProbeResult:
    """Return the result where the run that was to be interrupted failed by itself."""
    result = probe_run.to_result(replace(first, ending=ending))
    fingerprint = replace(result.fingerprint, uninterrupted=whole.fingerprint.ranks)
    return replace(result, fingerprint=fingerprint, warnings=_merged(whole.warnings, result.warnings))


def _join(
    whole: ProbeResult,
    first: tuple[FinishedRun, ProbeResult],
    last: FinishedRun,
    *,
    restart: RestartSettings,
    judged: JudgeResult | None,
) -> ProbeResult:
    """Return the result of all three parts; facts are those of the whole run, metrics and judge those of the resumed one."""
    resumed = probe_run.to_result(last, judged=judged)
    how = "SIGKILL" if first[0].evidence.outcome.ended_by == "orders" else "stopped by the recorder"
    seam = Event(
        "restart", restart.save_at, {"save_at": restart.save_at, "resumed_ranks": last.probe.job.spec.ranks, "how": how}
    )
    fingerprint = replace(
        resumed.fingerprint,
        ranks=join_ranks(first[0].ranks, last.ranks, seam=seam, num_before=restart.save_at + 1),
        uninterrupted=whole.fingerprint.ranks,
        facts=whole.fingerprint.facts,
    )
    return replace(
        resumed,
        fingerprint=fingerprint,
        log_tail=_join_logs(first[0].evidence.log, last.evidence.log, seam=f"{how} after step {restart.save_at}"),
        stacks=(*first[1].stacks, *resumed.stacks),
        warnings=_merged(whole.warnings, first[1].warnings, resumed.warnings),
    )


def join_ranks(
    first: Sequence[RankRecord], last: Sequence[RankRecord], *, seam: Event, num_before: int
) -> tuple[RankRecord, ...]:
    """Return one record per rank of either part, the second part's steps counted on from `num_before`; pure.

    A rank that only one part has keeps what it has; the event of the seam stands in every record.
    """
    before, after = {record.rank: record for record in first}, {record.rank: record for record in last}
    joined = []
    for rank in sorted(before.keys() | after.keys()):
        old, new = before.get(rank, RankRecord(rank)), after.get(rank, RankRecord(rank))
        steps = (*old.steps, *(_shift_step(step, num_before) for step in new.steps))
        events = (*old.events, seam, *(_shift_event(event, num_before) for event in new.events))
        joined.append(RankRecord(rank, steps, events))
    return tuple(joined)


def _shift_step(step: StepRecord, num_before: int) -> StepRecord:
    return replace(step, step=step.step + num_before)


def _shift_event(event: Event, num_before: int) -> Event:
    data = dict(event.data)
    if isinstance(data.get("step"), int):
        data["step"] += num_before
    return Event(event.name, None if event.step is None else event.step + num_before, data)


def _join_logs(first: str, last: str, *, seam: str) -> str:
    """Return the end of both logs; the second one may take what the first leaves, and at least half."""
    line = f"\n--- restart: {seam}; what follows is the resumed run ---\n"
    room = TAIL_CHARS - len(line)
    num_last = min(len(last), max(room // 2, room - len(first)))
    num_first = min(len(first), room - num_last)
    return first[len(first) - num_first :] + line + last[len(last) - num_last :]


def _merged(*parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for part in parts for text in part))
