"""A coordinator's process: started without a shell, told how many it shares Ray with, heard through its pipe, ended.

It is the leader of a session of its own, so that Ctrl-C at the service's terminal does not reach it: the service ends it. Its
input is a pipe whose other end only the service holds: when the service is killed it ends, and the coordinator stops by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bisect_train.service.logs import open_log

LINE_BYTES = 64 * 1024


class Child:
    """A running coordinator; used by one event loop."""

    def __init__(self, process: asyncio.subprocess.Process, listener: Callable[[Mapping[str, Any]], None]) -> None:
        self._process = process
        self._listener = listener

    @staticmethod
    async def start(
        command: Sequence[str], *, env: Mapping[str, str], log: Path, listener: Callable[[Mapping[str, Any]], None]
    ) -> Child:
        """Start it.

        Args:
            command: argument list.
            env: its whole environment.
            log: takes what it says to a person.
            listener: is given each message, a JSON object a line.
        """
        with open_log(log) as descriptor:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=descriptor,
                env=dict(env),
                start_new_session=True,
                limit=LINE_BYTES,
            )
        return Child(process, listener)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def share(self, num: int) -> None:
        """Tell it that it is one of `num` bisections that run: it may take so large a part of the slots."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            with contextlib.suppress(ConnectionError, RuntimeError):
                stdin.write(b'{"share": %d}\n' % num)

    def interrupt(self) -> None:
        """Ask it to stop; it notes that it was interrupted and can be resumed."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End it and all of its session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> int:
        """Hear it out; return its exit status, negative for a signal."""
        assert self._process.stdout is not None
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError:  # a line longer than any that we write
                continue
            if not line:
                return await self._process.wait()
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                if isinstance(message, dict):
                    self._listener(message)
