"""The two pipes between a service and one of its coordinators: what runs goes out, the share of the slots comes in.

Out goes one JSON object a line: {kind: started, key, seed_idx, repeat}, {kind: moved, key, phase, step, loss}, or
{kind: gone, key}. In comes {share: N}: this is one of N coordinators and may use that part of the slots. When the input ends,
whoever started us is gone, and the process interrupts itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any


class Share:
    """Which part of the slots a coordinator may use; told by another thread."""

    def __init__(self) -> None:
        self.num = 1

    def of(self, slots: int) -> int:
        """Return how many of the slots are ours, at least one; where they do not divide, rather one more than one idle."""
        return max(1, -(-slots // self.num))


class Reporter:
    """Writes messages to a pipe; whoever read them may be gone, which must not disturb the bisection."""

    def __init__(self, pipe: IO[str]) -> None:
        self._pipe = pipe

    def __call__(self, message: dict[str, Any]) -> None:
        """Write one message."""
        with contextlib.suppress(OSError, ValueError):
            self._pipe.write(json.dumps(message) + "\n")
            self._pipe.flush()


@contextmanager
def piped() -> Iterator[tuple[Reporter, Share]]:
    """Give what reports to our standard output, and our share as the input tells it; what is printed goes to stderr.

    An interrupt is how a service ends us: it is taken even where the service itself was started with it ignored (`serve &`).
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    share = Share()
    threading.Thread(target=_listen, args=(sys.stdin.fileno(), share), name="share", daemon=True).start()
    with os.fdopen(os.dup(1), "w", encoding="ascii", newline="\n") as pipe:
        os.dup2(2, 1)
        yield Reporter(pipe), share


def _listen(descriptor: int, share: Share) -> None:
    """Take what the service tells until it is gone; then interrupt this process."""
    with contextlib.suppress(OSError), os.fdopen(os.dup(descriptor), encoding="ascii", errors="replace") as lines:
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                share.num = max(1, int(json.loads(line)["share"]))
    os.kill(os.getpid(), signal.SIGINT)
