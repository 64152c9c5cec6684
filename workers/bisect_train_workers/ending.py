"""Decide how a program ended, from the supervisor's outcome, the records and the log. Pure.

Order matters: what happens on a rank after its own last step is never a failure, so reaching the steps comes before
everything but the wrong code having run.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bisect_train.core.fingerprint import HANG_SIGNATURE, Ending, EndingKind
from bisect_train_workers.dead_rank import DeadRank, all_say_peer_gone, find_dead_ranks, is_peer_gone
from bisect_train_workers.program import Outcome
from bisect_train_workers.program_log import LoggedFailure, find_child_status, find_failure, split_lines
from bisect_train_workers.records import ProcessRecord
from bisect_train_workers.standstill import Silence, Standing, read_frames

_MEMORY_TYPES = ("OutOfMemoryError", "MemoryError")
_MEMORY_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory")
_LAUNCHER_TYPES = ("ChildFailedError", "SignalException", "ProcessRaisedException", "ProcessExitedException")
_SHELL_SIGNALS = frozenset({signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL, signal.SIGSEGV})
_NO_RECORDER = (
    "the recorder was not loaded by any process that imports torch: does the command run python with -I, -E or -S, "
    "drop PYTHONPATH, or run in a container? A log pattern (--metric) or --judge needs no recorder"
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the decision rests on.

    Attributes:
        outcome: of the supervisor.
        processes: records of all processes.
        ranks: each rank's own record.
        log: the log's text.
        checkout: folder that the program ran in.
        num_steps: steps that were asked for, None for the whole run.
        needs_recorder: whether a missing recorder matters.
        timeout_s: time limit, seconds.
        last_sign_t: when the last step or event (or, before the first step, output) came, seconds since the epoch.
        ended_t: when the program ended, seconds since the epoch.
        oom_kills: processes that the kernel killed for memory meanwhile.
        last_event_t: when the last step or event came, seconds since the epoch.
        stacks: text of the stacks that each process left, by pid.
        has_gpu: whether the program may use a GPU.
        is_on_several: whether its ranks ran on several nodes, each with a clock and a time limit of its own.
    """

    outcome: Outcome
    processes: Sequence[ProcessRecord]
    ranks: dict[int, ProcessRecord]
    log: str
    checkout: Path
    num_steps: int | None
    needs_recorder: bool
    timeout_s: float
    last_sign_t: float
    ended_t: float
    oom_kills: int = 0
    last_event_t: float = 0.0
    stacks: Mapping[int, str] = field(default_factory=dict)
    has_gpu: bool = False
    is_on_several: bool = False


def decide_ending(evidence: Evidence) -> Ending:
    """Return how the program ended."""
    outcome = evidence.outcome
    if outcome.start_error:
        return Ending(EndingKind.CANNOT_START, message=f"the command could not be started: {outcome.start_error}")
    outside = _outside_imports(evidence.processes)
    if outside:
        return _wrong_code(outside)
    unknown = _unknown_step_function(evidence.processes)
    if unknown:
        return _no_step_function(unknown)
    if has_reached_steps(evidence.ranks, evidence.num_steps):
        return Ending(EndingKind.STOPPED, exit_status=outcome.status)
    if outcome.ended_by == "timeout":
        return _timeout(evidence)
    if outcome.status == 0:
        return _hidden_failure(evidence) or _quiet_end(evidence)
    return _failure(evidence)


def has_reached_steps(ranks: dict[int, ProcessRecord], num_steps: int | None) -> bool:
    """Return whether every rank recorded its steps, or was stopped by the recorder."""
    if num_steps is None or not ranks:
        return False
    if len(ranks) < max(process.world_size for process in ranks.values()):
        return False
    return all(_is_done(process, num_steps) for process in ranks.values())


def _is_done(process: ProcessRecord, num_steps: int | None) -> bool:
    return num_steps is not None and (len(process.steps) >= num_steps or process.has_event("stop"))


def _outside_imports(processes: Sequence[ProcessRecord]) -> dict[str, str]:
    found: dict[str, str] = {}
    for process in processes:
        for line in process.events_named("imports"):
            found.update(line.get("data", {}).get("outside") or {})
    return found


def _unknown_step_function(processes: Sequence[ProcessRecord]) -> str:
    """Return the step function that the recipe names where a program's module has none of that name, else ""."""
    told = [line.get("data", {}) for process in processes for line in process.events_named("step_function")]
    return next((str(data.get("function", "")) for data in told if not data.get("is_found")), "")


def _no_step_function(name: str) -> Ending:
    module, _, function = name.partition(":")
    message = f"{module} has no {function} here, which `step_function` of the recipe names: the steps cannot be counted"
    return Ending(EndingKind.CANNOT_START, message=message)


def _wrong_code(outside: dict[str, str]) -> Ending:
    module, path = sorted(outside.items())[0]
    more = f" and {len(outside) - 1} more" if len(outside) > 1 else ""
    return Ending(
        EndingKind.CANNOT_START,
        message=f"the program imported {module} from {path}{more}, not from the checkout: "
        "uninstall that copy, or install the repository as editable",
    )


def _timeout(evidence: Evidence) -> Ending:
    """Tell a hang from a slow program, and either from a rank that died while the others wait for it."""
    limit = f"stopped at the time limit of {evidence.timeout_s:g} s"
    silence = find_silence(evidence)
    failures = (_recorded_failure(evidence.processes, evidence), _hidden_failure(evidence, gone=silence.dead_ranks))
    # where one node reaches the limit first, the ranks of the others lose theirs a moment before
    failed = next((item for item in failures if item and not (evidence.is_on_several and is_peer_gone(item.message))), None)
    if failed is None and silence.is_hang and silence.dead_ranks:
        failed = _rank_died(evidence, silence.dead_ranks[0])
    if failed is not None:
        return replace(failed, message=f"{failed.message} ({limit} afterwards: {silence.describe()})")
    signature = HANG_SIGNATURE if silence.is_hang else "timeout: slow"
    return Ending(EndingKind.TIMEOUT, signature=signature, message=f"{limit}; {silence.describe()}")


def _hidden_failure(evidence: Evidence, *, gone: Sequence[int] | None = None) -> Ending | None:
    """Return the failure of one of several ranks that whoever started them has not passed on, None without one.

    Args:
        evidence: with a rank that left with an exit status other than 0.
        gone: ranks that ended without a word; None takes all that did not say that they left.
    """
    ranks = {rank: process for rank, process in evidence.ranks.items() if process.world_size > 1}
    if not any(process.exit_code not in (0, None) for process in ranks.values()):
        return None
    silent = [rank for rank, process in ranks.items() if not process.has_event("exit")] if gone is None else list(gone)
    ending = _recorded_failure(list(ranks.values()), evidence)
    if silent and (ending is None or is_peer_gone(ending.message)):
        return _rank_died(evidence, silent[0])
    return ending or _told_failure(evidence)


def _rank_died(evidence: Evidence, rank: int) -> Ending:
    num_steps = len(evidence.ranks[rank].steps)
    message = f"rank {rank} ended after {num_steps} steps without an exception (killed, or os._exit)"
    return Ending(EndingKind.CRASHED, signature="rank died", message=message)


def find_silence(evidence: Evidence) -> Silence:
    """Return what is known at the time limit."""
    cores = evidence.outcome.cores
    standings = {
        pid: Standing(read_frames(evidence.stacks.get(pid, "")), cores.get(pid))
        for pid in cores.keys() | evidence.stacks.keys()
    }
    return Silence(
        quiet_s=evidence.ended_t - evidence.last_sign_t,
        eventless_s=evidence.ended_t - (evidence.last_event_t or evidence.last_sign_t),
        timeout_s=evidence.timeout_s,
        standings=standings,
        ranks=evidence.ranks,
        has_gpu=evidence.has_gpu,
    )


def _quiet_end(evidence: Evidence) -> Ending:
    has_torch = any(process.has_event("torch_imported") or process.steps for process in evidence.processes)
    if evidence.needs_recorder and not has_torch:
        return Ending(EndingKind.NO_RECORDER, message=_NO_RECORDER, exit_status=0)
    return Ending(EndingKind.FINISHED, exit_status=0)


def _failure(evidence: Evidence) -> Ending:
    """Name a failure: a rank that a signal ended, what a rank raised, a signal, what helpers raised, the log."""
    status = evidence.outcome.status
    child_status = find_child_status(evidence.log)
    if status == 1 and child_status is not None and child_status < 0 and child_status != -signal.SIGTERM:
        return _with_rank(_killed(-child_status, evidence), find_dead_ranks(evidence.log, explained=()))
    ending = _recorded_failure(list(evidence.ranks.values()), evidence)
    if ending is not None and not all_say_peer_gone([ending.message]):
        return ending
    dead = _dead_rank(evidence)
    if dead is not None or ending is not None:
        return dead or ending or _told_failure(evidence)
    killed_by = _killing_signal(status)
    if killed_by is not None:
        return _killed(killed_by, evidence)
    return _recorded_failure(evidence.processes, evidence) or _told_failure(evidence)


def _dead_rank(evidence: Evidence) -> Ending | None:
    """Return the failure of a rank of which only its launcher tells, and that left no exception anywhere."""
    explained = [
        process.pid for process in evidence.processes if process.has_event("exception") or _is_done(process, evidence.num_steps)
    ]
    dead = find_dead_ranks(evidence.log, explained=explained)
    said = find_failure(evidence.log, evidence.checkout)
    if not dead or (said is not None and said.exc_type not in _LAUNCHER_TYPES and not is_peer_gone(said.message)):
        return None
    if dead[0].status < 0:
        return _with_rank(_killed(-dead[0].status, evidence), dead)
    status = dead[0].status
    message = f"rank {dead[0].rank} ended with exit status {status}, without an exception"
    return Ending(EndingKind.CRASHED, signature=f"exit status {status}", message=message, exit_status=status)


def _with_rank(ending: Ending, dead: Sequence[DeadRank]) -> Ending:
    """Name the rank that a signal ended."""
    ranks = [item.rank for item in dead if item.status == -(ending.signal or 0)]
    return replace(ending, message=f"rank {ranks[0]}: {ending.message}") if ranks else ending


def _told_failure(evidence: Evidence) -> Ending:
    """Name a failure from what the program printed."""
    status = evidence.outcome.status
    said = find_failure(evidence.log, evidence.checkout)
    if said is not None:
        return _logged_failure(said, status)
    reason = _missing_script(evidence)
    if reason:
        return Ending(EndingKind.CANNOT_START, message=reason, exit_status=status)
    last = next((line.strip() for line in reversed(split_lines(evidence.log)) if line.strip()), "no output")
    return Ending(EndingKind.CRASHED, signature=f"exit status {status}", message=last[:500], exit_status=status)


def _recorded_failure(processes: Sequence[ProcessRecord], evidence: Evidence) -> Ending | None:
    """Return the exception that was raised first in a process that still had steps to do, if the recorder saw one."""
    lines = [
        line
        for process in processes
        if not _is_done(process, evidence.num_steps)
        for line in process.events_named("exception")
        if _type_of(line) not in (*_LAUNCHER_TYPES, "SystemExit", "KeyboardInterrupt")
    ]
    if not lines:
        return None

    def order(line: dict[str, Any]) -> tuple[bool, float]:
        is_effect = evidence.is_on_several and is_peer_gone(str(line.get("data", {}).get("message", "")))
        return is_effect, float(line.get("t", 0.0))

    first = min(lines, key=order)
    return _exception_ending(first.get("data", {}), evidence.outcome.status)


def _type_of(line: dict[str, Any]) -> str:
    return str(line.get("data", {}).get("exc_type", "")).rsplit(".", 1)[-1]


def _exception_ending(data: dict[str, Any], status: int | None) -> Ending:
    exc_type, message = str(data.get("exc_type", "")), str(data.get("message", ""))
    return Ending(
        _kind_of_exception(exc_type, message),
        signature=str(data.get("signature", "")),
        message=f"{exc_type}: {message}"[:2000],
        exit_status=status,
        missing_module=str(data.get("missing_module") or ""),
    )


def _logged_failure(said: LoggedFailure, status: int | None) -> Ending:
    return Ending(
        _kind_of_exception(said.exc_type, said.message),
        signature=said.signature,
        message=f"{said.exc_type}: {said.message}"[:2000],
        exit_status=status,
        missing_module=said.missing_module,
    )


def _kind_of_exception(exc_type: str, message: str) -> EndingKind:
    is_memory = exc_type.rsplit(".", 1)[-1] in _MEMORY_TYPES or any(word in message.lower() for word in _MEMORY_WORDS)
    return EndingKind.OUT_OF_MEMORY if is_memory else EndingKind.CRASHED


def _killing_signal(status: int | None) -> int | None:
    """Return the signal that ended the program, or a shell's child (status 128 + n); None if none did."""
    if status is not None and status < 0:
        return -status
    return status - 128 if status is not None and status - 128 in _SHELL_SIGNALS else None


def _killed(number: int, evidence: Evidence) -> Ending:
    name = signal.Signals(number).name if number in signal.valid_signals() and number < 32 else f"signal {number}"
    status = evidence.outcome.status
    kept = status if status is not None and status >= 0 else None
    if number == signal.SIGKILL and evidence.oom_kills > 0:
        message = "the kernel killed it: out of memory"
        return Ending(EndingKind.OUT_OF_MEMORY, "out of memory: SIGKILL", message, exit_status=kept, signal=number)
    return Ending(EndingKind.KILLED, f"killed: {name}", f"ended by {name}", exit_status=kept, signal=number)


def _missing_script(evidence: Evidence) -> str:
    """Return what python says when the script or module that it should run does not exist in this variant."""
    for line in split_lines(evidence.log)[-20:]:
        if "can't open file" in line or ("python" in line and ": No module named " in line):
            return line.strip()[:500]
    return ""
