"""Records the exception that ends the program, and the exit code that it asks for."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from typing import Any, Dict, List, Optional

from .redirect import is_installed, is_under
from .signature import failure_signature, normalize_message

MAX_TRACEBACK_CHARS = 8000
MAX_FUNCTIONS = 50


def functions_inside(trace: Any, root: Optional[str], start_folder: str) -> List[str]:
    """Return the names of the traceback's functions whose code lies under root, innermost last."""
    if root is None:
        return []
    real_root = os.path.realpath(root)
    names = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith("<"):  # <string>, <frozen ...>: code without a file
            path = os.path.realpath(os.path.join(start_folder, code.co_filename))
            if is_under(path, real_root) and not is_installed(path, real_root):
                names.append(code.co_name)
        trace = trace.tb_next
    return names[-MAX_FUNCTIONS:]


def describe_exception(error: BaseException, root: Optional[str], start_folder: str) -> Dict[str, Any]:
    """Return the data of an exception event; the traceback keeps its end when it is too long."""
    kind = type(error)
    exc_type = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    message = str(error)
    normalized = normalize_message(message)
    functions = functions_inside(error.__traceback__, root, start_folder)
    text = "".join(traceback.format_exception(kind, error, error.__traceback__))
    return {
        "exc_type": exc_type,
        "message": message[:MAX_TRACEBACK_CHARS],
        "normalized": normalized,
        "functions": functions,
        "signature": failure_signature(exc_type, normalized, functions),
        "traceback": text[-MAX_TRACEBACK_CHARS:],
        "missing_module": error.name if isinstance(error, ModuleNotFoundError) else None,
    }


class FailureWatch:
    """Watches how the program ends."""

    def __init__(self, session: Any) -> None:
        """Watch nothing yet; see `install`."""
        self._session = session
        self._seen: Optional[BaseException] = None
        self._requested_code: Optional[int] = None

    def install(self) -> None:
        """Chain `sys.excepthook`, and note the code given to `sys.exit`."""
        chained = sys.excepthook
        raise_exit = sys.exit
        record = self._session.guarded(self.record)

        def excepthook(kind: Any, error: Any, trace: Any) -> Any:
            record(error)
            return chained(kind, error, trace)

        @functools.wraps(raise_exit)
        def noting_exit(*args: Any) -> Any:
            self._requested_code = _exit_code(args[0] if args else None)
            return raise_exit(*args)

        sys.excepthook = excepthook
        sys.exit = noting_exit  # type: ignore[assignment]

    def record(self, error: Optional[BaseException]) -> None:
        """Event exception, once per exception."""
        if error is None or error is self._seen:
            return
        self._seen = error
        data = describe_exception(error, self._session.settings.root, self._session.start_folder)
        self._session.event("exception", **data)

    def exit_code(self) -> Optional[int]:
        """Return 1 after an exception, else what `sys.exit` was given; None where neither is known."""
        return self._requested_code if self._seen is None else 1

    def record_unseen_exception(self) -> None:
        """At exit: record the exception python printed, if the program had replaced the hook."""
        self.record(getattr(sys, "last_exc", None) or getattr(sys, "last_value", None))


def _exit_code(value: Any) -> int:
    """Return the status python gives for `sys.exit(value)`: a text prints and gives 1."""
    if value is None:
        return 0
    return value if isinstance(value, int) else 1
