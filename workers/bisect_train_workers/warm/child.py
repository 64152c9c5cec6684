"""In the fork: from a copy of the warm process to the user's program, as a fresh `python script.py` would run it.

Standard library only. What a fresh process would not find is taken away: our environment, our path, our main module.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import io
import os
import runpy
import signal
import sys
import tempfile
import threading
import types
from importlib.machinery import SourceFileLoader
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def become_program(request: dict[str, Any], *, parent_pid: int, path: list[str]) -> NoReturn:
    """Run the program of a request in this process, and leave it with the program's exit status.

    Args:
        request: `orders` of the supervisor; `target`, see `split_command` of the client; `recorder`, its folder.
        parent_pid: the supervisor, whose end is this process's end.
        path: sys.path without the script's folder and PYTHONPATH.
    """
    status = 1
    try:
        _begin(request["orders"], parent_pid)
        target = request["target"]
        first = os.path.dirname(os.path.abspath(target["name"])) if target["kind"] == "script" else os.getcwd()
        given = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        sys.path[:] = [first, *given, *(entry for entry in path if entry not in given)]
        sys.argv = [target["name"], *target["arguments"]]
        _start_recorder(request["recorder"])
        status = _run(target)
    except BaseException as error:  # ours, not the program's
        os.write(2, f"bisect-train: warm start: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(status & 0xFF)


def _begin(orders: dict[str, Any], parent_pid: int) -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(orders["env"])
    os.chdir(orders["cwd"])
    tempfile.tempdir = None
    for name in ("_bisect_train_warm_child", "_bisect_train_shadowed_sitecustomize", "sitecustomize"):
        sys.modules.pop(name, None)


def _start_recorder(folder: str) -> None:
    """Do what the recorder's `sitecustomize` does in a fresh process; the shadowed one has run already."""
    if not os.path.exists(os.path.join(folder, "settings.json")):
        return
    sys._bisect_train_chained = True  # type: ignore[attr-defined]
    try:
        __import__("sitecustomize")  # the recorder's own, which is first on the path
    except ImportError:
        sys.stderr.write("bisect-train: the recorder did not start: it is not on the path\n")


def _run(target: dict[str, Any]) -> int:
    """Run the program to its end, its exit handlers included; return its exit status."""
    status = 0
    try:
        if target["kind"] == "module":
            _new_main()
            runpy._run_module_as_main(target["name"], alter_argv=True)  # type: ignore[attr-defined]
        else:
            _run_script(target["name"])
    except SystemExit as error:
        status = _status_of(error.code)
    except BaseException as error:
        status = _report(error)
    return _leave(status)


def _new_main() -> types.ModuleType:
    """Return an empty main module in the place of the server's."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    return main


def _run_script(name: str) -> None:
    """Execute a script as the main module, which stays in `sys.modules` as it does in a fresh process."""
    path = os.path.abspath(name)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    main = _new_main()
    main.__dict__.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    exec(code, main.__dict__)


def _report(error: BaseException) -> int:
    """Show an exception as python does, without our own frames; return the exit status, or end by the signal."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, trace)
    except BaseException as second:
        sys.__excepthook__(type(second), second, second.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _status_of(code: Any) -> int:
    """Return the status of `sys.exit(code)`; a text is printed and gives 1."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def _leave(status: int) -> int:
    """Do what the interpreter does at its end: wait for threads, run exit handlers, flush."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException as error:
        _report(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    return status
