"""The observation log: one line per run and mark, for a person to correct and `replay` to read.

    bisection 3fa2bc11
    mark 1a2b3c4d5e6f bad
    good 9f8e7d6c5b4a at=12 seed=0 repeat=0 attempt=0 part=0 value=3.1234 bits=0123456789abcdef key=fedcba9876543210  # title

A line may be deleted, its first word may become `untestable`, `mark` lines may come and go. All else is checked against the
store, since a result cannot be invented; `#` begins a comment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bisect_train.changes.plumbing import printable
from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.person import mark_event
from bisect_train.coordinator.retelling import Entry, Retelling
from bisect_train.core.changes import GOOD_END, ChangeKind, Point
from bisect_train.core.errors import InputError
from bisect_train.core.question import Question
from bisect_train.core.verdict import VerdictKind
from bisect_train.report.words import say_point
from bisect_train.search.marks import MARK_KINDS
from bisect_train.search.terms import Plan
from bisect_train.verdict.end_terms import EndsStatus
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.outcome import Observation, OutcomeKind

UNTESTABLE = VerdictKind.UNTESTABLE.value
VALUE = "value"  # it was measured, and says nothing by itself
FAILED = "failed"
WORDS = (VerdictKind.GOOD.value, VerdictKind.BAD.value, UNTESTABLE, VALUE, FAILED)
IDENTITY = ("at", "seed", "repeat", "attempt", "part", "key")
HEADER = """\
# Observations of a bisection, in the order of the runs. Correct them, then: bisect-train replay THIS_FILE
#   delete a line                    that run never happened; it is run again where it is needed
#   change its first word            `untestable`: the run says nothing (other verdicts come from the values alone)
#   add `mark COMMIT good`           or bad, or untestable: what the state up to a commit is, whatever its runs say
# Values cannot be changed. `at` is the number of changes in the state that ran: 0 is good, 5-3 is version 5 without change 3
# (counted from 0). `attempt` 1 and above are the fresh runs of a proof; `part` tells a search of a part of the range.
"""


@dataclass(frozen=True, slots=True)
class LogSource:
    """The bisection that a log is about: its observations, its last plan, its changes, what was asked."""

    entries: tuple[Entry, ...]
    plan: Plan
    space: ChangeSpace
    question: Question

    def rows(self) -> list[tuple[str, ...]]:
        """Return the fields of each observation's line."""
        return [_tokens(entry, self.plan, self.space, self.question) for entry in self.entries]


def write_log(bisection_id: str, title: str, source: LogSource, *, marks: Mapping[int, VerdictKind]) -> str:
    """Return the text of the log."""
    lines = [f"# {printable(title)}", f"bisection {bisection_id}"]
    lines += [f"mark {_short(source.space.changes[version - 1].id)} {kind.value}" for version, kind in marks.items()]
    rows = source.rows()
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for tokens, entry in zip(rows, source.entries, strict=True):
        line = " ".join(token.ljust(width) for token, width in zip(tokens, widths, strict=True))
        lines.append(f"{line}  # {_comment(entry, source.space)}")
    return HEADER + "\n".join(lines) + "\n"


def _tokens(entry: Entry, plan: Plan, space: ChangeSpace, question: Question) -> tuple[str, ...]:
    """Return the fields of a line: word, name, the identity of the run, what it showed."""
    seen, outcome = entry.seen, entry.seen.outcome
    value = "-" if outcome.value is None else repr(outcome.value)
    return (
        _word(seen, plan, question),
        _name(seen.point, space),
        f"at={seen.point.to_text()}",
        f"seed={seen.seed_idx}",
        f"repeat={seen.repeat}",
        f"attempt={seen.attempt}",
        f"part={seen.part}",
        f"value={value}",
        f"bits={outcome.digest or '-'}",
        f"key={entry.key or '-'}",
    )


def _word(seen: Observation, plan: Plan, question: Question) -> str:
    kind = seen.outcome.kind
    if plan.ends.status is EndsStatus.SEPARATED:
        verdict = judge_variant([seen], plan.ends, question.metric).verdict
        if verdict.value in WORDS:
            return verdict.value
    if kind in (OutcomeKind.UNTESTABLE, OutcomeKind.UNSEEN):
        return UNTESTABLE
    return FAILED if kind is OutcomeKind.FAILED else VALUE


def _name(point: Point, space: ChangeSpace) -> str:
    """Return a point's last change, and what is added or left out, without blanks."""
    if point == GOOD_END:
        return _short(space.commits.good)
    name = _short(space.changes[point.prefix - 1].id if point.prefix > 0 else space.commits.base)
    name += "".join(f"+{_short(space.changes[idx].id)}" for idx in point.plus)
    return name + "".join(f"-{_short(space.changes[idx].id)}" for idx in point.minus)


def _short(name: str) -> str:
    text = name[:12] if len(name) == 40 else name
    return "".join("_" if char.isspace() or char == "#" else char for char in text)


def _comment(entry: Entry, space: ChangeSpace) -> str:
    reason = entry.seen.outcome.reason
    text = say_point(entry.seen.point, space) + (f": {reason}" if reason else "")
    return printable(" ".join(text.split()))


@dataclass(frozen=True, slots=True)
class ReadLog:
    """The lines of a corrected log by number, comments left out; `bisection` is "" where the file does not say."""

    bisection: str
    lines: tuple[tuple[int, tuple[str, ...]], ...]


def read_lines(text: str, place: str) -> ReadLog:
    """Return the lines of a log.

    Raises:
        InputError: a line that is none of a log; `PLACE:LINE: ...`.
    """
    bisection, lines = "", []
    for number, line in enumerate(text.splitlines(), start=1):
        tokens = _without_comment(line.split())
        if tokens and tokens[0] == "bisection":
            if len(tokens) != 2 or bisection:
                raise _error(place, number, "one line `bisection ID` says which one it is", line)
            bisection = tokens[1]
        elif tokens and tokens[0] != "mark" and tokens[0] not in WORDS:
            raise _error(place, number, f"a line begins with `mark`, {', '.join(WORDS)}", line)
        elif tokens:
            lines.append((number, tuple(tokens)))
    return ReadLog(bisection, tuple(lines))


def _without_comment(tokens: list[str]) -> list[str]:
    at = next((idx for idx, token in enumerate(tokens) if token.startswith("#")), len(tokens))
    return tokens[:at]


def read_log(read: ReadLog, source: LogSource, place: str, *, find_version: Callable[[str], int]) -> Retelling:
    """Return what a corrected log keeps of a bisection.

    Args:
        read: the log's lines.
        place: file name for errors.
        find_version: the version that a mark names; raises InputError.
    Raises:
        InputError: a line that the bisection does not have, or one with another value; `PLACE:LINE: ...`.
    """
    written = source.rows()
    by_identity = {_identity(tokens[2:]): idx for idx, tokens in enumerate(written)}
    words: dict[int, str] = {}
    marks: list[dict[str, Any]] = []
    for number, tokens in read.lines:
        if tokens[0] == "mark":
            marks.append(_read_mark(tokens, source.space, find_version, place, number))
            continue
        idx = by_identity.get(_identity(tokens[2:]))
        if idx is None:
            raise _error(place, number, "the bisection has no such run, and a result cannot be invented", " ".join(tokens))
        if idx in words:
            raise _error(place, number, "this run comes twice", " ".join(tokens))
        _check_line(tokens, written[idx], place, number)
        words[idx] = UNTESTABLE if tokens[0] == UNTESTABLE != written[idx][0] else ""
    kept = tuple(entry for idx, entry in enumerate(source.entries) if words.get(idx) == "")
    untestable = tuple(entry for idx, entry in enumerate(source.entries) if words.get(idx))
    left_out = tuple(entry for idx, entry in enumerate(source.entries) if idx not in words)
    return Retelling(kept, untestable, left_out, tuple(marks))


def _identity(fields: Sequence[str]) -> tuple[str, ...]:
    pairs = dict(field.split("=", 1) for field in fields if "=" in field)
    return tuple(pairs.get(name, "") for name in IDENTITY)


def _check_line(tokens: Sequence[str], written: Sequence[str], place: str, number: int) -> None:
    """Raise unless a line is as it was written, its first word aside, which may have become `untestable`."""
    if tuple(tokens[1:]) != tuple(written[1:]):
        changed = next((pair for pair in zip(tokens[1:], written[1:], strict=False) if pair[0] != pair[1]), None)
        what = f"{changed[0]!r} was {changed[1]!r}" if changed else f"fields are missing or too many of {len(written)}"
        raise _error(place, number, f"a result cannot be changed ({what}): delete the line, or call it untestable", "")
    # words that claim nothing may be older than the verdict: the ends were not yet proved when the log was written
    if tokens[0] not in (written[0], UNTESTABLE, VALUE, FAILED):
        rule = f"a run that was {written[0]!r} can only become `untestable`; `mark COMMIT {tokens[0]}` overrides a state's runs"
        raise _error(place, number, rule, "")


def _read_mark(
    tokens: Sequence[str], space: ChangeSpace, find_version: Callable[[str], int], place: str, number: int
) -> dict[str, Any]:
    verdicts = [kind.value for kind in MARK_KINDS]
    if len(tokens) < 3 or tokens[-1] not in verdicts:
        raise _error(place, number, f"a mark is `mark COMMIT {'|'.join(verdicts)}`", " ".join(tokens))
    named = " ".join(tokens[1:-1])
    keys = {_short(item.id): item.id for item in space.changes if item.kind is not ChangeKind.COMMIT}
    try:
        version = find_version(keys.get(named, named))
    except InputError as error:
        raise InputError(f"{place}:{number}: {error.message}", hint=error.hint) from None
    return mark_event(Point(version), space.changes[version - 1].id, tokens[-1])


def _error(place: str, number: int, rule: str, got: str) -> InputError:
    shown = f", got {printable(got.strip())[:100]!r}" if got.strip() else ""
    return InputError(f"{place}:{number}: {rule}{shown}", hint="`bisect-train log --observations` writes a log to correct")
