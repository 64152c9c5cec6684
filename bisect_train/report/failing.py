"""What a person reads when an end could not be tested: which end, why, and what to do about it. Nobody is blamed."""

from __future__ import annotations

import re

from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.secrets import mask_command, mask_line, mask_text
from bisect_train.report.case import Case, Run
from bisect_train.report.words import shorten
from bisect_train.verdict.outcome import DERIVED_METRICS, RECORDED_METRICS, OutcomeKind, metric_values

NUM_LOG_LINES = 12
MAX_LINE = 200
MERGE_BASE_REMEDY = "Choose a good end that is an ancestor of the bad end and can be run."
TRACKED_REMEDY = (
    "A checkout holds the tracked files only: name untracked data under `data: link:` in a recipe "
    "(`bisect-train init` writes one)."
)
_NO_FILE = re.compile(r"FileNotFoundError|No such file or directory", re.IGNORECASE)
_NOT_FOUND = re.compile(r"FileNotFoundError|No such file|not found|can't open file|No module named", re.IGNORECASE)


def name_end(case: Case, end: str) -> str:
    """Return an end with what a person knows it by: `the good end (e53b9d28)`, `the bad end (b.yaml)`."""
    question, commits = case.question, case.space.commits
    config = question.good_config if end == "good" else question.bad_config
    revision = commits.good if end == "good" else commits.bad
    known = config.path if config is not None and commits.good == commits.bad else revision[:8]
    return f"the {end} end ({known})"


def failing_run(case: Case, end: str) -> Run | None:
    """Return the first run of an end that showed no value of the metric."""
    point = case.good_point if end == "good" else case.bad_point
    runs = case.at(point, attempt=0)
    return next((run for run in runs if run.seen.outcome.kind is not OutcomeKind.MEASURED), None)


def tail_of_log(run: Run | None) -> str:
    """Return the last lines that a run printed."""
    return last_lines(run.probe.result.log_tail) if run else ""


def tail_of_end(case: Case, end: str) -> str:
    """Return the last lines that an end's failing run printed: those of the judging command where that is what failed."""
    run = failing_run(case, end)
    return tail_of_log(run) if run is None or not _is_judges(case, run) else tail_of_judge(run)


def tail_of_judge(run: Run) -> str:
    """Return the last lines of a judging command that did not call its run good, "" otherwise."""
    judge = run.fingerprint.judge
    return last_lines(judge.output) if judge is not None and judge.exit_status != 0 else ""


def last_lines(text: str) -> str:
    """Return the end of what a program printed, blank lines left out."""
    lines = [mask_line(line.rstrip())[:MAX_LINE] for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-NUM_LOG_LINES:])


def say_failed_end(case: Case) -> tuple[str, str]:
    """Return (what happened, what to do) for an answer `failed` about an end."""
    end = case.answer.end or "good"
    if "merge base" in case.answer.reason:
        return f"The merge base of the two ends could not be tested: {case.answer.reason}", MERGE_BASE_REMEDY
    name = name_end(case, end)
    run = failing_run(case, end)
    if run is None:
        return f"{_start(name)} could not be built or run: {case.answer.reason}", _choose_another(end)
    fingerprint = run.fingerprint
    if _is_judges(case, run):
        return _say_judge(case, run, end, name), _remedy_judge(end)
    if run.seen.outcome.kind is OutcomeKind.NO_METRIC:
        return f"{_start(name)} ran, but {case.answer.reason}. {say_seen_metrics(fingerprint)}", _remedy_metric(case)
    what = f"{_start(name)} could not be run: {say_failure(fingerprint.ending)}"
    return what, _remedy(case, fingerprint.ending, end) + _remedy_files(fingerprint.ending)


def _is_judges(case: Case, run: Run) -> bool:
    """Return whether the program ran well and only the judging command stands against the run."""
    return bool(case.question.settings.judge) and run.fingerprint.ending.is_healthy


def _say_judge(case: Case, run: Run, end: str, name: str) -> str:
    command = f"The judging command `{' '.join(case.question.settings.judge)}`"
    judge = run.fingerprint.judge
    if judge is None:
        return f"{command} did not run at {name}"
    said = "untestable" if run.seen.outcome.kind is OutcomeKind.UNTESTABLE else "bad"
    return f"{command} calls {name} {said} (status {judge.exit_status})"


def _remedy_judge(end: str) -> str:
    status = "with status 0 at the good end" if end == "good" else "with a status from 1 to 124 at the bad end"
    return f"Run it by hand in a checkout that the commands below make: it must exit {status}."


def _remedy_files(ending: Ending) -> str:
    return f" {TRACKED_REMEDY}" if _NO_FILE.search(ending.message) else ""


def say_no_metric(case: Case) -> tuple[str, str]:
    """Return (what happened, what to do) when neither end shows the metric."""
    run = failing_run(case, "good") or failing_run(case, "bad")
    seen = f" {say_seen_metrics(run.fingerprint)}" if run else ""
    if run and run.fingerprint.ending.kind is EndingKind.NO_RECORDER:
        seen = f" {say_failure(run.fingerprint.ending)[:1].upper()}{say_failure(run.fingerprint.ending)[1:]}."
    return f"Neither end shows a value of {case.question.metric.name}, and neither fails.{seen}", _remedy_metric(case)


def _start(name: str) -> str:
    return name[0].upper() + name[1:]


def say_failure(ending: Ending) -> str:
    """Return what ended a run, in the words of the program where it has some."""
    message = shorten(mask_text(ending.message), 300).rstrip(": .")
    if ending.missing_module and ending.missing_module not in message:
        return f"ModuleNotFoundError: No module named {ending.missing_module!r}"
    if ending.kind is EndingKind.TIMEOUT:
        return message or "it hit the time limit"
    if ending.kind is EndingKind.OUT_OF_MEMORY:
        return f"out of memory ({message})" if message else "out of memory"
    if message:
        return message
    return f"it ended with status {ending.exit_status}" if ending.exit_status is not None else ending.kind.value


def say_seen_metrics(fingerprint: Fingerprint) -> str:
    """Return which metrics a run did show."""
    seen = [series.name for series in fingerprint.metrics if series.values]
    others = (*RECORDED_METRICS, *DERIVED_METRICS)
    seen += [name for name in others if name not in seen and metric_values(fingerprint, name)]
    if seen:
        return f"It showed these: {', '.join(seen)}."
    steps = fingerprint.num_steps
    return "It showed no metric at all: no optimizer step was recorded." if not steps else "It showed no metric at all."


def _remedy_metric(case: Case) -> str:
    return (
        "Choose one of the metrics that a run shows with `--metric NAME`, give a log pattern for it in the recipe "
        f"(`metrics: {{{case.question.metric.name}: {{from: log, pattern: ...}}}}`), run more steps with `--steps N`, "
        "or judge each run yourself with `--judge CMD`."
    )


def _choose_another(end: str) -> str:
    return "Choose a later good end." if end == "good" else "Choose an earlier bad end."


def _remedy(case: Case, ending: Ending, end: str) -> str:
    other = "a later good end" if end == "good" else "an earlier bad end"
    settings = case.question.settings
    if ending.missing_module:
        package = ending.missing_module.split(".")[0]
        return (
            f"Install it into the interpreter that runs the probes (`{settings.python} -m pip install {package}`; the package "
            f"may have another name), name it under `stubs:` in the recipe if nothing depends on it, or choose {other}."
        )
    if ending.kind is EndingKind.NO_RECORDER:
        return "Let the command start python itself, with its environment, or judge by a log pattern or `--judge`."
    if ending.kind is EndingKind.TIMEOUT:
        more_time = f"Allow more time than {settings.timeout_s:g} s with `--timeout S`"
        return f"{more_time}, run fewer steps with `--steps N`, or choose {other}."
    if ending.kind is EndingKind.OUT_OF_MEMORY:
        return f"Run fewer probes at a time with `--parallel N`, give a smaller config, or choose {other}."
    if ending.kind is EndingKind.KILLED:
        return f"Something outside ended it; run it alone with `bisect-train probe`, or choose {other}."
    if ending.kind is EndingKind.CANNOT_START:
        command = " ".join(mask_command(case.question.command))
        if _NOT_FOUND.search(ending.message):
            return f"The command `{command}` must exist at this end: correct it, name the data it needs, or choose {other}."
        return f"Check the command `{command}` and the recipe's `setup` and `data`, or choose {other}."
    return f"Run it by hand with the commands below and repair what it needs (data, packages, settings), or choose {other}."
