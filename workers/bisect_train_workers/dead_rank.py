"""Find the rank that ended on its own behind what its launcher and the other ranks say of it. Pure functions on text.

When one rank of several goes, the others fail in their next exchange with it ("connection closed by peer"), and the
launcher reports whichever it saw first. What they raise is no failure of their own.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_TOLD = re.compile(  # blanks, no `\s`, which crosses lines: a log of empty lines would take squared time
    r"^[ \t]*rank[ \t]*:[ \t]*(?P<rank>\d{1,9}) .*\n"
    r"[ \t]*exitcode[ \t]*:[ \t]*(?P<status>-?\d{1,9}) \(pid: (?P<pid>\d{1,9})\)",
    re.MULTILINE,
)
_SPAWNED = re.compile(
    r"^\S*ProcessExitedException: process (?P<rank>\d{1,9}) terminated with "
    r"(?:signal (?P<signal>\w+)|exit code (?P<status>\d{1,9}))",
    re.MULTILINE,
)
_PEER_GONE = re.compile(
    r"connection (was )?(closed|reset|refused)|broken pipe|remote (process|peer)|socket (closed|timeout)|pair closure"
    r"|timed out (waiting|after)|wait timeout|ncclRemoteError|NCCL.{0,300}(remote|aborted)|failed to recv",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class DeadRank:
    """A rank that its launcher says has ended.

    Attributes:
        rank: as the launcher counts.
        status: exit status, negative for a signal.
        pid: 0 if it is not told.
    """

    rank: int
    status: int
    pid: int = 0


def is_peer_gone(message: str) -> bool:
    """Return whether an exception's message says that another rank is gone."""
    return _PEER_GONE.search(message) is not None


def find_dead_ranks(log: str, *, explained: Iterable[int]) -> tuple[DeadRank, ...]:
    """Return the ranks that ended by themselves with an exit status or a signal, in the launcher's order.

    Args:
        log: with the report of torchrun or of torch.multiprocessing.spawn in it.
        explained: pids of processes whose failure is known, or that had made all their steps.
    """
    known = set(explained)
    told = [DeadRank(int(item["rank"]), int(item["status"]), int(item["pid"])) for item in _TOLD.finditer(log)]
    told += [DeadRank(int(item["rank"]), _status_of(item), 0) for item in _SPAWNED.finditer(log)]
    own = [dead for dead in told if dead.status not in (0, -signal.SIGTERM) and dead.pid not in known]
    return tuple(sorted(own, key=_is_aborted))


def _status_of(item: re.Match[str]) -> int:
    name = item["signal"]
    if name is None:
        return int(item["status"])
    return -int(getattr(signal, name, signal.SIGKILL))


def _is_aborted(dead: DeadRank) -> bool:
    """Return whether a rank aborted, as communication libraries do when a peer is gone: the others come first."""
    return dead.status == -signal.SIGABRT


def all_say_peer_gone(messages: Sequence[str]) -> bool:
    """Return whether there are failures, and every one is of a rank that lost another."""
    return bool(messages) and all(map(is_peer_gone, messages))
