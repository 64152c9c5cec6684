"""Run the user's judging command in the checkout after the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bisect_train.core.fingerprint import Ending, EndingKind, JudgeResult
from bisect_train_workers.program import Outcome, Program, run_to_end
from bisect_train_workers.program_log import read_log

_OUTPUT_CHARS = 4000
_NOT_STARTED = 127
_TIMED_OUT = 128 + 9
_TIME_LIMIT = 124
"""What timeout(1) ends with."""


def run_judge(program: Program, command: list[str], *, ending: Ending, out: Path) -> JudgeResult:
    """Judge what a program left behind: its status, output, log and records are told in BISECT_TRAIN_* variables.

    Args:
        program: the judge's checkout, environment (without the recorder) and time limit, and the program's log.
        command: the judging command.
        ending: how the program ended; a signal is told as 128 + its number, our own stop as 0.
        out: what `{out}` stood for.
    Returns:
        Its exit status (127 if it could not be started, 128 + n after a signal or a time-out) and its last output.
    """
    log = program.log.with_name("judge.log")
    told = {
        "BISECT_TRAIN_OUT": str(out),
        "BISECT_TRAIN_LOG": str(program.log),
        "BISECT_TRAIN_RECORDS": str(program.records),
        "BISECT_TRAIN_EXIT": str(_told_status(ending)),
    }
    env: Mapping[str, str] = {**program.env, **told}
    outcome = run_to_end(replace(program, argv=command, env=env, log=log))
    if outcome.start_error:
        return JudgeResult(_NOT_STARTED, outcome.start_error)
    return JudgeResult(_exit_status(outcome), read_log(log)[-_OUTPUT_CHARS:])


def _exit_status(outcome: Outcome) -> int:
    if outcome.status is None:
        return _TIMED_OUT
    return outcome.status if outcome.status >= 0 else 128 - outcome.status


def _told_status(ending: Ending) -> int:
    if ending.is_healthy:
        return 0
    if ending.signal is not None:
        return 128 + ending.signal
    if ending.kind is EndingKind.TIMEOUT:
        return _TIME_LIMIT
    return ending.exit_status if ending.exit_status is not None else 1
