"""The process that programs are forked from: it has imported torch, never run an operation, and has one thread.

It is run as a file by the interpreter of the probes, with the environment that all its programs share; standard library only,
so that a program finds no module loaded that a fresh process would not have (but those named in PRELOADED).
For each request it forks a supervisor; the supervisor forks the program first, before it imports anything of ours, and then
does what a supervisor of a fresh process does. It ends with its coordinator, when nothing was asked for a while, and when its
folder is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import IO, Any

PRELOADED = ("torch", "numpy", "torch._dynamo", "torch._inductor", "torch.nn.parallel")
IDLE_S = 60.0
WAIT_S = 10.0
"""A server that is begun behind another one waits so long for that, seconds."""
MAX_REQUEST_BYTES = 1 << 24
MARKER = "BISECT_TRAIN_PROBE"  # as in `processes`, which is not imported before the fork
_LOOK_S = 0.5
_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


def preload(names: list[str]) -> str:
    """Import modules; return why programs must not be forked from here afterwards, "" if they may."""
    import importlib

    is_enabled = gc.isenabled()
    gc.disable()  # an import makes little garbage, and takes a quarter longer where it is looked for
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if is_enabled:
        gc.enable()
    torch = sys.modules.get("torch")
    if torch is None:
        return "torch cannot be imported"
    if torch.cuda.is_initialized():
        return "an import initialised CUDA"
    num_threads = len(os.listdir("/proc/self/task"))
    return f"an import started {num_threads - 1} threads" if num_threads > 1 else ""


def wait_for(folder: str, *, own: str, coordinator: list[int] | None) -> str | None:
    """Wait until the server of a folder listens or has failed, at most `WAIT_S`, and no longer than it lives.

    Returns:
        Why no program can be forked, as that one found out, "" where it could; None where there is no reason to start.
    """
    deadline = time.monotonic() + WAIT_S
    while os.path.isdir(own) and not is_gone(coordinator):
        with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, "state"), encoding="utf-8") as file:
            return str(json.load(file).get("trouble", ""))
        if time.monotonic() > deadline or not _is_held(os.path.join(folder, "lock")):
            return ""
        time.sleep(0.03)
    return None


def _is_held(lock: str) -> bool:
    """Return whether a server holds the lock of its folder."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a request and the descriptors that came with it: the worker's pipe, then the locks.

    Raises:
        OSError, ValueError: the worker went away, or sent something else.
    """
    head, fds, _, _ = socket.recv_fds(connection, 4, 64)
    try:
        if len(head) != 4:
            raise ValueError("no request")
        (size,) = struct.unpack("!I", head)
        if size > MAX_REQUEST_BYTES:
            raise ValueError(f"a request of {size} bytes")
        data = b""
        while len(data) < size:
            part = connection.recv(size - len(data))
            if not part:
                raise ValueError("half a request")
            data += part
        return json.loads(data), list(fds)
    except Exception:
        for fd in fds:
            os.close(fd)
        raise


class Server:
    """Listens, forks a supervisor for each request, and buries the dead."""

    def __init__(self, folder: str, coordinator: list[int] | None, package_folder: str, lock_fd: int) -> None:
        """Listen in `folder`; `package_folder` holds the package that the supervisor's code is in."""
        self._lock_fd = lock_fd
        self._folder = folder
        self._coordinator = coordinator
        self._package_folder = package_folder
        self._last_t = time.monotonic()
        self._children: set[int] = set()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.chdir(folder)  # a socket's path has room for 107 characters: relative ones are short
        self._socket.bind("new")
        self._socket.listen(64)
        os.chdir("/")

    def open(self) -> None:
        """Show the socket: whoever sees it can connect, and finds the state beside it."""
        os.rename(os.path.join(self._folder, "new"), os.path.join(self._folder, "socket"))

    def serve(self) -> None:
        """Work until there is no reason to."""
        while self._is_wanted():
            if select.select([self._socket], [], [], _LOOK_S)[0]:
                connection, _ = self._socket.accept()
                with connection, contextlib.suppress(OSError, ValueError):
                    connection.settimeout(5.0)
                    self._answer(connection)
                self._last_t = time.monotonic()
            self._bury()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._folder, "socket"))

    def _is_wanted(self) -> bool:
        if not os.path.exists(os.path.join(self._folder, "socket")):
            return False
        if is_gone(self._coordinator):
            return False
        return bool(self._children) or time.monotonic() - self._last_t < IDLE_S

    def _bury(self) -> None:
        while self._children:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self._children.discard(pid)

    def _answer(self, connection: socket.socket) -> None:
        request, fds = receive(connection)
        with contextlib.suppress(OSError):  # who is used least gives way to others, see the client
            os.utime(os.path.join(self._folder, "state"))
        pid = os.fork()
        if pid == 0:
            self._supervise(connection, request, fds)
        for fd in fds:
            os.close(fd)
        self._children.add(pid)
        connection.sendall(struct.pack("!I", pid))

    def _supervise(self, connection: socket.socket, request: dict[str, Any], fds: list[int]) -> None:
        """In the fork: become the program's supervisor; never returns."""
        status = 1
        try:
            self._socket.close()
            connection.close()
            os.close(self._lock_fd)
            os.setsid()
            for fd in (1, 2):
                os.dup2(fds[0], fd)
            os.close(fds[0])
            _become_subreaper()
            forked = ForkedChild(request, close=fds[1:])
            sys.path.insert(0, self._package_folder)
            from bisect_train_workers import supervisor

            supervisor.supervise_fork(request["orders"], forked)
            status = 0
        except BaseException as error:  # the last line that the worker reads
            with contextlib.suppress(OSError):
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)


class ForkedChild:
    """The program in its own process; what `subprocess.Popen` has of it that a supervisor needs."""

    def __init__(self, request: dict[str, Any], close: list[int]) -> None:
        """Fork the program; `close` are descriptors that are none of its business."""
        reading, writing = os.pipe()
        parent_pid = os.getpid()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            request["orders"]["env"][MARKER] = marker_of(request["orders"]["probe_id"], parent_pid)
            from_where = sys.path[:]
            for fd in (reading, *close):
                os.close(fd)
            for fd in (1, 2):
                os.dup2(writing, fd)
            os.close(writing)
            with open(os.devnull, "rb") as nothing:
                os.dup2(nothing.fileno(), 0)
            child.become_program(request, parent_pid=parent_pid, path=from_where)
        os.close(writing)
        self.stdout: IO[bytes] | None = os.fdopen(reading, "rb", buffering=0)

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, None while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, for at most `timeout` seconds. Raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + timeout if timeout is not None else float("inf")
        while True:
            status = self.poll()
            if status is not None:
                return status
            if time.monotonic() > deadline:
                import subprocess

                raise subprocess.TimeoutExpired("the program", timeout or 0.0)
            time.sleep(0.01)


def start_of(pid: int) -> int:
    """Return the start of a process in clock ticks since boot, 0 if it is gone (as `processes.start_mark`)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *fields = file.read().rpartition(")")[2].split()
        return 0 if state in ("Z", "X") else int(fields[18])
    except (OSError, ValueError, IndexError):
        return 0


def is_gone(coordinator: list[int] | None) -> bool:
    """Return whether the process with this pid and start has ended; None stands for one that lives elsewhere."""
    return coordinator is not None and start_of(coordinator[0]) != coordinator[1]


def marker_of(probe_id: str, supervisor_pid: int) -> str:
    """Return the marker that `processes.make_marker` gives the supervisor's programs."""
    try:
        namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        namespace = "0"
    return f"{probe_id}:{namespace}:{supervisor_pid}:{start_of(supervisor_pid)}"


def _become_subreaper() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    """Preload, tell whether that went well, and serve."""
    orders = json.loads(sys.stdin.buffer.read())
    said = wait_for(orders["after"], own=orders["folder"], coordinator=orders["coordinator"]) if orders["after"] else ""
    if said is None:
        return
    trouble = said or preload(orders["preload"])
    if trouble:
        _tell(orders["folder"], trouble)
        return
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gc.freeze()
    server = Server(orders["folder"], orders["coordinator"], orders["package_folder"], orders["lock_fd"])
    _tell(orders["folder"], "")
    server.open()
    server.serve()


def _tell(folder: str, trouble: str) -> None:
    """Write the state that clients read: whose socket it is, or why there is none, and which modules are loaded."""
    path = os.path.join(folder, "state")
    with open(path + ".new", "w", encoding="utf-8") as file:
        loaded = sorted({name.partition(".")[0] for name in sys.modules})
        json.dump({"pid": os.getpid(), "trouble": trouble, "loaded": loaded}, file)
    os.rename(path + ".new", path)


if __name__ == "__main__":
    _OWN = sys.path.pop(0)  # the folder of this file: its names must not hide the program's
    import importlib.util

    _SPEC = importlib.util.spec_from_file_location("_bisect_train_warm_child", os.path.join(_OWN, "child.py"))
    assert _SPEC is not None and _SPEC.loader is not None
    child: Any = importlib.util.module_from_spec(_SPEC)
    _SPEC.loader.exec_module(child)
    main()
