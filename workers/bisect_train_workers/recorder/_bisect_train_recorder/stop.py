"""Ends the program after its N-th step, gently first.

The first attempt raises SystemExit at a forward or backward, so that files are closed and exit
handlers run. A program that swallows it (a bare `except:`) is ended at its next attempt. A
thread cannot end the program that way, so there the second kind is used at once.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, Callable


class Stopper:
    """Raises the stop; remembers how often it tried."""

    def __init__(self, session: Any, finish: Callable[[], None]) -> None:
        """Call `finish` before a hard exit, which runs no exit handlers."""
        self._session = session
        self._finish = session.guarded(finish)
        self._event = session.guarded(session.event)
        self._num_tries = 0

    def stop(self, where: str) -> None:
        """End the program with status 0; never in a fork of the recorded process.

        Raises:
            SystemExit: at the first try in the main thread.
        """
        if not self._session.is_main():
            return
        if self._session.settings.is_held:
            self._hold(where)
        self._num_tries += 1
        is_hard = self._num_tries > 1 or threading.current_thread() is not threading.main_thread()
        self._event("stop", how="os._exit" if is_hard else "SystemExit", where=where)
        if not is_hard:
            raise SystemExit(0)
        self._finish()
        self._event("exit", exit="os._exit", code=0)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:  # closed by the program
                pass
        os._exit(0)

    def _hold(self, where: str) -> None:
        """Wait to be killed from outside; threads that still save in the background go on."""
        self._event("stop", how="hold", where=where)
        while True:
            time.sleep(60.0)
