"""What a probe's program read inside its checkout, so far as that is known for certain. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

_PYTHON = re.compile(r"(.*/)?python(3(\.\d+)?)?")
_STARTED = "subprocess.Popen "


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What all processes of a probe read; paths are relative to the checkout, "" is the checkout itself, each tuple sorted.

    Attributes:
        files: opened, for reading or writing, failed tries included; sources of the loaded modules.
        folders: listed by the program.
        searched: listed by imports, which look for names of modules only.
        natives: loaded native code that may open files unseen: names of top-level modules and of libraries.
        doubts: why more may have been read; () where this is all.
    """

    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()
    natives: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether nothing else was read."""
        return not self.doubts

    @staticmethod
    def of_json(data: Mapping[str, Any]) -> ReadSet:
        """Return the value that `asdict` wrote."""
        return ReadSet(**{item.name: tuple(data.get(item.name, ())) for item in fields(ReadSet)})


def unite(sets: Iterable[ReadSet | None]) -> ReadSet:
    """Return what several runs, or processes, read together; one that has not told (None) is a doubt."""
    every = list(sets)
    known = list(dict.fromkeys(item for item in every if item is not None))
    silent = () if every and None not in every else ("a run has not told what it read",)
    joined = {item.name: _sorted(value for one in known for value in getattr(one, item.name)) for item in fields(ReadSet)}
    return ReadSet(**{**joined, "doubts": _sorted((*joined["doubts"], *silent))})


def read_set_of_events(told: Sequence[Mapping[str, Any] | None], *, doubts: Iterable[str] = ()) -> ReadSet:
    """Return the union of what processes told at their end.

    Args:
        told: data of each process's event `files_read`; None where it ended without one. What torchrun starts are the ranks,
            which tell for themselves: that is no doubt, if it is a python.
        doubts: more of them.
    """
    sets = [None if data is None else _of_process(data) for data in told]
    return unite([*sets, ReadSet(doubts=tuple(doubts))]) if told else ReadSet(doubts=_sorted((*doubts, "nothing was recorded")))


def _of_process(data: Mapping[str, Any]) -> ReadSet:
    found = ReadSet.of_json(data)
    if not data.get("launcher"):
        return found
    kept = [doubt for doubt in found.doubts if not (doubt.startswith(_STARTED) and _PYTHON.fullmatch(doubt[len(_STARTED) :]))]
    return ReadSet(found.files, found.folders, found.searched, found.natives, tuple(kept))


def _sorted(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))
