"""Read a program's log: metrics, the failure that it shows, its tail. Pure functions on text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.fingerprint import MetricOrigin, MetricSeries
from bisect_train.core.probe import MetricPattern
from bisect_train_workers.dead_rank import is_peer_gone
from bisect_train_workers.injection import failure_signature, normalize_message
from bisect_train_workers.number_group import compile_non_finite
from bisect_train_workers.sources.points import Precision
from bisect_train_workers.sources.text_lines import decode

TAIL_CHARS = 16_000
OTHER_FORMAT = "the log may have another format here"
WINDOW_CHARS = 1 << 13
"""Of a line of more than two of these, its first and last so many characters are searched: `.*` takes squared time."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_PREFIX = re.compile(r"^\s*\[(?:default|rank|[a-z_]*)\d*\]:\s?", re.IGNORECASE)
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^  File "(?P<path>[^"]+)", line \d+, in (?P<function>\S+)')
_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?::\s?(?P<message>.*))?$")
_LAUNCHER_ERRORS = (
    *("ChildFailedError", "SignalException", "CalledProcessError"),
    *("ProcessRaisedException", "ProcessExitedException"),
)
_CHILD_STATUS = re.compile(r"exitcode[ \t]*:[ \t]*(-?\d{1,9})")
_MISSING_MODULE = re.compile(r"No module named '?([\w.]+)'?")


@dataclass(frozen=True, slots=True)
class LoggedFailure:
    """The exception that a log shows.

    Attributes:
        exc_type: last dotted part of its type.
        message: its message.
        signature: as the recorder would give it.
        missing_module: of a ModuleNotFoundError, else "".
    """

    exc_type: str
    message: str
    signature: str
    missing_module: str = ""


def read_log(path: Path) -> str:
    """Return the log as text without terminal control sequences, whatever its encoding; "" if there is none."""
    if not path.exists():
        return ""
    return _ANSI.sub("", decode(path.read_bytes()))


def split_lines(text: str) -> list[str]:
    """Return the lines; a carriage return (a progress bar) ends one, too."""
    return re.split(r"\r\n|\n|\r", text)


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A line of a log, or a state of one that is redrawn over and over, as progress bars are."""

    text: str
    is_redrawn: bool = False


def split_pieces(text: str) -> list[LogPiece]:
    """Return the lines, and before each all of its states that were drawn over; these are `is_redrawn`."""
    pieces = []
    for line in text.split("\n"):
        *states, last = line.rstrip("\r").split("\r")
        pieces += [LogPiece(state, is_redrawn=True) for state in states]
        pieces.append(LogPiece(last))
    return pieces


def find_metrics(text: str, patterns: Sequence[MetricPattern]) -> tuple[MetricSeries, ...]:
    """Return one series per pattern, in the order of the patterns; empty where nothing matched.

    A line that shows `nan` or `inf` where a pattern asks for digits counts as well: the last finite value must not stand
    for a run that has diverged.
    """
    pieces = split_pieces(text) if patterns else []
    return tuple(find_metric(pieces, pattern) for pattern in patterns)


def find_metric(pieces: Sequence[LogPiece], pattern: MetricPattern) -> MetricSeries:
    """Return what the first expression of a metric finds that finds anything."""
    for expression in (pattern.pattern, *pattern.others):
        series = _find_metric(pieces, pattern.name, expression)
        if series.values:
            return series
    return MetricSeries(pattern.name, (), (), MetricOrigin(note=OTHER_FORMAT))


def _find_metric(pieces: Sequence[LogPiece], name: str, expression: str) -> MetricSeries:
    regex = re.compile(expression)
    group: str | int = "value" if "value" in regex.groupindex else min(regex.groups, 1)
    non_finite = compile_non_finite(regex)
    values: list[float] = []
    steps: list[int] = []
    precision, is_redrawn, redrawn_step = Precision(), False, None
    for piece in pieces:
        match = _search(regex, piece.text) or (_search(non_finite, piece.text) if non_finite else None)
        value = parse_number(match[group]) if match else None
        if match is None or value is None:
            continue
        step = parse_number(match["step"]) if "step" in match.re.groupindex else None
        if step is not None and step == redrawn_step:  # one state drawn again
            values.pop()
            steps.pop()
        values.append(value)
        precision.take(match[group])
        if "step" in match.re.groupindex:
            steps.append(int(step) if step is not None and abs(step) < 2**62 else len(values) - 1)
        is_redrawn = is_redrawn or piece.is_redrawn
        redrawn_step = step if piece.is_redrawn else None
    origin = MetricOrigin(decimals=precision.decimals, digits=precision.digits, is_redrawn=is_redrawn)
    return MetricSeries(name, tuple(values), tuple(steps), origin)


def _search(regex: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the first match; of a very long line only its two ends are searched, cut between words."""
    if len(text) <= 2 * WINDOW_CHARS:
        return regex.search(text)
    head, tail = text[:WINDOW_CHARS], text[-WINDOW_CHARS:]
    head, tail = head[: max(head.rfind(" "), head.rfind("\t")) + 1], tail.partition(" ")[2]
    return regex.search(head) or regex.search(tail)


def parse_number(text: str | None) -> float | None:
    """Return `1,234.5`, `1e-4`, `nan` or `-inf` as a number, None for anything else."""
    try:
        return float((text or "").strip().replace(",", ""))
    except ValueError:
        return None


def find_failure(text: str, checkout: Path) -> LoggedFailure | None:
    """Return the failure of the last traceback that is neither a launcher's report nor of a rank that lost another."""
    found = [_parse_traceback(block, checkout) for block in _traceback_blocks(text)]
    failures = [failure for failure in found if failure is not None]
    own = [failure for failure in failures if failure.exc_type not in _LAUNCHER_ERRORS]
    best = [failure for failure in own if not is_peer_gone(failure.message)] or own or failures
    return best[-1] if best else None


def find_child_status(text: str) -> int | None:
    """Return the exit status of the rank that torchrun names as root cause, negative for a signal; None without one."""
    found = [int(status) for status in _CHILD_STATUS.findall(text)]
    return found[-1] if found else None  # it prints the root cause last


def _traceback_blocks(text: str) -> Iterator[list[str]]:
    block: list[str] | None = None
    for raw in split_lines(text):
        line = _PREFIX.sub("", raw)
        if line.startswith(_TRACEBACK):
            block = []
        elif block is not None:
            block.append(line)
            if not line.startswith(" ") and line.strip():
                yield block
                block = None


def _parse_traceback(block: Sequence[str], checkout: Path) -> LoggedFailure | None:
    error = _ERROR.match(block[-1])
    if error is None:
        return None
    frames = [match for line in block if (match := _FRAME.match(line))]
    functions = [match["function"] for match in frames if _is_inside(match["path"], checkout)]
    exc_type = error["type"].rsplit(".", 1)[-1]
    message = error["message"] or ""
    missing = _MISSING_MODULE.search(message) if exc_type == "ModuleNotFoundError" else None
    signature = failure_signature(exc_type, normalize_message(message), functions)
    return LoggedFailure(exc_type, message, signature, missing[1] if missing else "")


def _is_inside(path: str, checkout: Path) -> bool:
    absolute = Path(path) if Path(path).is_absolute() else checkout / path
    return absolute.is_relative_to(checkout) and "site-packages" not in absolute.parts
