"""A free TCP port per probe, reserved on the node as long as the probe runs.

Ports are taken from below the kernel's range for outgoing connections and above Ray's worker ports, and each is locked,
so that two probes of one node never get the same.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator

from bisect_train_workers.locks import try_lock
from bisect_train_workers.node import NodeHome

_FIRST, _LAST = 20_000, 29_999
_MAX_TRIES = 200


class NoPortError(Exception):
    """No free port was found; the probe is lost and run again."""


@contextlib.contextmanager
def reserve_port(home: NodeHome) -> Iterator[int]:
    """Hold a port that nobody listens on. Raises NoPortError, NodeError."""
    chooser = random.SystemRandom()
    for _ in range(_MAX_TRIES):
        port = chooser.randint(_FIRST, _LAST)
        lock = try_lock(home.ports / str(port))
        if lock is None:
            continue
        try:
            if is_free(port):
                yield port
                return
        finally:
            lock.release()
    raise NoPortError(f"no free port between {_FIRST} and {_LAST}")


def is_free(port: int) -> bool:
    """Return whether nobody listens on this port on any address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
