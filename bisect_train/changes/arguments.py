"""Two command lines -> one change per flag or argument that differs, and the command that any set of them gives.

A list of arguments does not say which flags take a value. The rule here, the same for both sides: a flag takes the next
argument if wherever it stands, on either side, something follows that does not look like a flag (`-1e-3` does not). The
two ends come out exactly whatever the rule gets wrong.

    --lr 0.1   --lr=0.1   -j 8   -j8   --amp   lr=0.1   +lr=0.1   train.py   -- everything after

All occurrences of a flag are one change. Positional arguments are a change each, or one change (`arguments`) together
where there are more of them on one side. Another program, script or module is another command (`diff_commands`): one change,
since a flag of the one says nothing about the other.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import PurePath

from bisect_train.core.changes import Change, ChangeKind
from bisect_train.core.secrets import mask_command, mask_logins, mask_value

_NUMBER = re.compile(r"-(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?|-(inf|nan)", re.IGNORECASE)
_ATTACHED = re.compile(r"(-[A-Za-z])(\d+)")  # -j8
_ASSIGNMENT = re.compile(r"[+~]{0,2}([A-Za-z_$][\w.$/@-]*)=(.*)", re.DOTALL)  # lr=0.1, +data/set@train=c4
_REST = "--"
_OVERRIDES = "{overrides}"  # stands for any number of arguments, so it is no flag's value
_MAX_TITLE = 60  # characters of one value in a title
COMMAND = "command"
"""Id of the change that replaces the whole command."""
PYTHONS = ("python", "python3")
SHELLS = ("sh", "bash", "dash", "zsh")
_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
)
_SCRIPT_SUFFIXES = (".py", ".sh")


@dataclass(frozen=True, slots=True)
class _Item:
    """Arguments that belong together: key, the words of the list, and the value among them (None: a bare switch)."""

    key: str
    words: tuple[str, ...]
    value: str | None
    is_positional: bool = False


@dataclass(frozen=True, slots=True)
class _Slot:
    """A place in the command: what each side has there."""

    key: str
    good: _Item | None
    bad: _Item | None


@dataclass(frozen=True, slots=True)
class ArgumentDiff:
    """How two argument lists differ, and what any set of the changes gives.

    Attributes:
        good, bad: the two lists.
        changes: in the order of their places.
        slots: both lists, aligned.
    """

    good: tuple[str, ...]
    bad: tuple[str, ...]
    changes: tuple[Change, ...]
    slots: tuple[_Slot, ...]

    def render(self, chosen: Iterable[Change | str]) -> tuple[str, ...]:
        """Return the good list with the chosen changes applied: without any the good list, with all the bad one.

        Args:
            chosen: changes, or their ids, in any order.
        Raises:
            ValueError: one of them is no change of this diff.
        """
        ids = {item if isinstance(item, str) else item.id for item in chosen}
        unknown = ids - {change.id for change in self.changes}
        if unknown:
            raise ValueError(f"no such argument change: {', '.join(sorted(unknown))}")
        items = (slot.bad if slot.key in ids else slot.good for slot in self.slots)
        return tuple(word for item in items if item is not None for word in item.words)


def diff_arguments(good: Sequence[str], bad: Sequence[str]) -> ArgumentDiff:
    """Return the changes between two argument lists."""
    flags = _flags_with_value(good, bad)
    left, right = _items(good, flags), _items(bad, flags)
    slots = _align_all(left, right)
    keys = dict.fromkeys(slot.key for slot in slots if _words(slot.good) != _words(slot.bad))
    changes = tuple(_change_of(key, [slot for slot in slots if slot.key == key]) for key in keys)
    return ArgumentDiff(tuple(good), tuple(bad), changes, tuple(slots))


def diff_commands(good: Sequence[str], bad: Sequence[str]) -> ArgumentDiff:
    """Return the changes between two commands: of their arguments, or one change where they run another program."""
    if not good or not bad or _program_of(good) == _program_of(bad):
        return diff_arguments(good, bad)
    slot = _Slot(COMMAND, *(_Item(COMMAND, tuple(words), shlex.join(words)) for words in (good, bad)))
    old, new = (_shortened(shlex.join(mask_command(words))) for words in (good, bad))
    change = Change(ChangeKind.LAUNCH, COMMAND, f"{COMMAND}: {old} -> {new}")
    return ArgumentDiff(tuple(good), tuple(bad), (change,), (slot,))


def _program_of(command: Sequence[str]) -> tuple[str, ...]:
    """Return what a command runs: the program, and the script or module where it is an interpreter or a launcher."""
    program = PYTHONS[0] if command[0] in PYTHONS else command[0]
    name = PurePath(program).name
    if name in SHELLS or name in PYTHONS:
        what = interpreted_by(command)
        if what[:1] != ("-m",) or what[1] not in _LAUNCHER_MODULES:
            return (program, *what)
        program = f"{program} -m {what[1]}"
    return (program, *[word for word in command[1:] if word.endswith(_SCRIPT_SUFFIXES)][:1])


def interpreted_by(command: Sequence[str]) -> tuple[str, ...]:
    """Return what python or a shell runs: (script,), ("-m", module), ("-c", code), or () where it reads its input."""
    words = iter(command[1:])
    for word in words:
        if word == "-":
            return ()
        if word[:2] in ("-m", "-c"):
            return (word[:2], word[2:] or next(words, ""))
        if not word.startswith("-"):
            return (word,)
        if word in _OPTIONS_WITH_VALUE:
            next(words, "")
    return ()


def _flags_with_value(good: Sequence[str], bad: Sequence[str]) -> set[str]:
    """Return the flags that take the next argument."""
    following = [pair for words in (good, bad) for pair in _flags_and_next(words)]
    flags = {flag for flag, _ in following} - {flag for flag, word in following if not _is_value(word)}
    return flags - set(_likely_switches(good, bad, flags)) - set(_likely_switches(bad, good, flags))


def _flags_and_next(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    words = words[: words.index(_REST)] if _REST in words else words
    for idx, word in enumerate(words):
        if _is_flag(word) and "=" not in word and not _ATTACHED.fullmatch(word):
            yield word, words[idx + 1] if idx + 1 < len(words) else None


def _likely_switches(words: Sequence[str], others: Sequence[str], flags: Container[str]) -> Iterator[str]:
    """Yield the flags that one side alone has, in front of an argument that the other side has without them."""
    mine, theirs = (Counter(item.words[0] for item in _items(side, flags) if item.is_positional) for side in (words, others))
    known = {item.key for item in _items(others, flags)}
    for flag, word in _flags_and_next(words):
        if flag in flags and flag not in known and word is not None and theirs[word] > mine[word]:
            mine[word] += 1
            yield flag


def _items(words: Sequence[str], flags: Container[str]) -> list[_Item]:
    """Return an argument list taken apart.

    Args:
        words: the list.
        flags: those that take the next argument.
    """
    items: list[_Item] = []
    idx = num_positional = 0
    while idx < len(words):
        word, rest = words[idx], words[idx + 1 :]
        if word == _REST:
            items.append(_Item(_REST, tuple(words[idx:]), shlex.join(rest)))
            break
        item = _item_of(word, rest[0] if rest and word in flags and _is_value(rest[0]) else None)
        if item is None:
            num_positional += 1
            item = _Item(f"argument {num_positional}", (word,), word, is_positional=True)
        items.append(item)
        idx += len(item.words)
    return items


def _item_of(word: str, following: str | None) -> _Item | None:
    """Return what a word begins, or None for a positional argument."""
    if _is_flag(word):
        attached = _ATTACHED.fullmatch(word)
        if attached:
            return _Item(attached[1], (word,), attached[2])
        key, equals, value = word.partition("=")
        if not key.strip("-"):  # `--=x` is no flag, nor the `--` before everything else
            return _Item(word, (word,), None)
        if equals:
            return _Item(key, (word,), value)
        return _Item(key, (word,) if following is None else (word, following), following)
    assigned = _ASSIGNMENT.fullmatch(word)
    return _Item(f"{assigned[1]}=", (word,), assigned[2]) if assigned else None


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word not in ("-", _REST) and not _NUMBER.fullmatch(word)


def _is_value(word: str | None) -> bool:
    return word is not None and not _is_flag(word) and word not in (_REST, _OVERRIDES)


def _align_all(left: Sequence[_Item], right: Sequence[_Item]) -> list[_Slot]:
    """Return both lists in one order: positional arguments in pairs, between them the rest, `--` and what follows last."""
    parts, other_parts = _split(left), _split(right)
    if len(parts) == len(other_parts):
        slots = [slot for part, other in zip(parts, other_parts, strict=True) for slot in _align(part, other)]
    else:
        slots = _align(_with_one_key(left), _with_one_key(right))
    return sorted(slots, key=lambda slot: slot.key == _REST)


def _split(items: Sequence[_Item]) -> list[list[_Item]]:
    """Return the items in parts that begin with a positional argument, except the first."""
    parts: list[list[_Item]] = [[]]
    for item in items:
        if item.is_positional:
            parts.append([])
        parts[-1].append(item)
    return parts


def _align(left: Sequence[_Item], right: Sequence[_Item]) -> list[_Slot]:
    """Return both lists in one order; what changed its place has a slot at each place."""
    slots: list[_Slot] = []
    matcher = SequenceMatcher(None, [item.key for item in left], [item.key for item in right], autojunk=False)
    for tag, start, end, other_start, other_end in matcher.get_opcodes():
        if tag == "equal":
            pairs = zip(left[start:end], right[other_start:other_end], strict=True)
            slots += [_Slot(one.key, one, other) for one, other in pairs]
        else:
            slots += [_Slot(item.key, item, None) for item in left[start:end]]
            slots += [_Slot(item.key, None, item) for item in right[other_start:other_end]]
    return slots


def _with_one_key(items: Iterable[_Item]) -> list[_Item]:
    """Return the items with the positional ones under one key, so that they change together."""
    return [_Item("arguments", item.words, item.value, is_positional=True) if item.is_positional else item for item in items]


def _words(item: _Item | None) -> tuple[str, ...] | None:
    return item.words if item is not None else None


def _change_of(key: str, slots: Sequence[_Slot]) -> Change:
    """Return the change of a key whose slots differ."""
    left, right = [slot.good for slot in slots if slot.good], [slot.bad for slot in slots if slot.bad]
    name = key.removesuffix("=") if not key.startswith("-") else key
    name = "arguments after --" if key == _REST else name
    return Change(ChangeKind.LAUNCH, key, f"{name}: {_difference(left, right)}")


def _difference(left: Sequence[_Item], right: Sequence[_Item]) -> str:
    if [item.words for item in left] == [item.words for item in right]:
        return "moved"
    old, new = _value_text(left), _value_text(right)
    if old == new:  # the same value, written another way; or both are hidden
        sides = ([word for item in items for word in item.words] for items in (left, right))
        whole = [_shortened(shlex.join(mask_command(words))) for words in sides]
        old, new = whole if whole[0] != whole[1] else (old, new)
    return f"{old} -> {new}"


def _value_text(items: Sequence[_Item]) -> str:
    if not items:
        return "(absent)"
    return _shortened(", ".join("(present)" if item.value is None else _shown(item) or "''" for item in items))


def _shown(item: _Item) -> str:
    """Return an item's value without secrets."""
    if item.key == _REST:
        return shlex.join(mask_command(item.words[1:]))
    return mask_logins(item.value or "") if item.is_positional else mask_value(item.key, item.value or "")


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_TITLE else text[: _MAX_TITLE - 3] + "..."
