"""Ties the process to its parent and lets a supervisor ask for its stacks."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends (Linux only).

    Ranks of torchrun open their own sessions, so killing a process group misses them. The kernel
    watches the parent *thread* that started this process, and forgets the request on fork: a
    daemon forked by the program lives on, one that starts a new python is bound again.
    """
    if not sys.platform.startswith("linux"):
        return
    parent_pid = os.getppid()
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except Exception:  # no ctypes in this python: the supervisor still sweeps up
        return
    if os.getppid() != parent_pid:  # it ended before the request was made
        os.kill(os.getpid(), signal.SIGKILL)


def register_stack_dump(path: str) -> None:
    """Make SIGUSR1 write the stacks of all threads to `path`.

    The file is created here: where it does not exist, SIGUSR1 would kill the process.
    """
    if not hasattr(signal, "SIGUSR1"):
        return
    # A bare descriptor, open for as long as the process; a file object would warn when it ends.
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o644)
    faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True, chain=False)
