"""What all parts of the recorder share: settings, identity of the process, the record file."""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import Any, Callable, Dict, Optional

from .own_time import OwnTime
from .settings import Settings
from .writer import RecordWriter


def _int_from_environment(name: str, default: int) -> int:
    """Return an integer environment variable, or the default where it is absent or no number."""
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return default


class Session:
    """One recorded process. Children made by fork inherit the object and stay silent."""

    def __init__(self, settings: Settings, *, channel: str, version: str) -> None:
        """Open the record file and write the start line."""
        self.settings = settings
        self.channel = channel
        self.pid = os.getpid()
        self.rank = _int_from_environment("RANK", 0)
        self.world_size = _int_from_environment("WORLD_SIZE", 1)
        self.start_folder = os.getcwd()
        self.step_idx: Optional[int] = None
        self.has_triage = settings.has_triage or self.world_size > 1
        self.finish_steps: Optional[Callable[[], None]] = None  # set once torch is watched
        self.param_hash: Optional[Callable[[], Optional[str]]] = None  # likewise
        self.step_function: Any = None  # a StepFunction where the settings name one
        self._has_error = False
        self.is_fork = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._mark_fork)
        self.writer = RecordWriter(self.record_path("rank", ".jsonl"))
        self.writer.write(self._start_record(version))

    def record_path(self, stem: str, suffix: str) -> str:
        """Return the path of a file of this process in the output folder."""
        return os.path.join(self.settings.out, f"{stem}{self.rank}-pid{self.pid}{suffix}")

    def is_main(self) -> bool:
        """Tell whether this is the process that was recorded from its start, and no fork of it."""
        return os.getpid() == self.pid

    def _mark_fork(self) -> None:
        """In a child made by fork: hooks stay silent from now on, without asking for the pid each time."""
        self.is_fork = True

    def event(self, name: str, **data: Any) -> None:
        """Append an event line of the open step; silent in forked children."""
        self.event_of_step(name, self.step_idx, data)

    def event_of_step(self, name: str, step_idx: Optional[int], data: Dict[str, Any]) -> None:
        """Append an event line of any step; silent in forked children."""
        if self.is_main():
            self.writer.write({"type": "event", "name": name, "step": step_idx, "t": time.time(), "data": data})

    def note_error(self, where: str, error: BaseException) -> None:
        """Record the recorder's own first error; further ones would only repeat it."""
        if self._has_error:
            return
        self._has_error = True
        try:
            self.event("recorder_error", where=where, error=f"{type(error).__name__}: {error}"[:500])
        except Exception as second:  # the disk is full, say: the program goes on
            sys.stderr.write(f"bisect-train: {error!r}, then {second!r}\n")

    def guarded_hook(self, function: Callable[..., None], own_time: OwnTime) -> Callable[..., None]:
        """Wrap a hook of the training loop like `guarded`, and count all of its time as the recorder's own."""
        clock, cpu_clock = time.perf_counter, time.process_time

        def body(*args: Any, **kwargs: Any) -> None:
            if self.is_fork:
                return
            started = own_time.hook_started = clock()
            cpu_started = own_time.hook_cpu_started = cpu_clock()
            try:
                function(*args, **kwargs)
            except Exception as error:
                self.note_error(getattr(function, "__qualname__", "hook"), error)
            finally:
                own_time.cpu_s += cpu_clock() - cpu_started
                own_time.total_s += clock() - started

        return body

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a hook: silent in forks, and its exceptions are recorded, never raised."""

        @functools.wraps(function)
        def body(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() != self.pid:
                return None
            try:
                return function(*args, **kwargs)
            except Exception as error:
                self.note_error(getattr(function, "__qualname__", "hook"), error)
                return None

        return body

    def _start_record(self, version: str) -> Dict[str, Any]:
        """Return the handshake line."""
        return {
            "type": "start",
            "recorder": version,
            "python": "%d.%d.%d" % sys.version_info[:3],
            "executable": sys.executable,
            "rank": self.rank,
            "world_size": self.world_size,
            "pid": self.pid,
            "ppid": os.getppid(),
            "argv": list(getattr(sys, "argv", [])),
            "t": time.time(),
            "channel": self.channel,
        }
