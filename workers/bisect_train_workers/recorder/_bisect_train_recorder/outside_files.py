"""Lists the files outside the checkout that the program wrote or read, and takes down what `files_read` needs.

A file that one probe leaves there and another reads poisons evidence: a token cache under the home
folder, say. Python's audit events name every file that python code opens; libraries that open
files in C, C++ or Rust are not seen, except `torch.save`, which `checkpoint_watch` tells about.

The temporary folder is worked out here: `tempfile` would import `random` and keep its answer, which
a program may mean to change before its own first use.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, Optional, Set, Tuple

MAX_PATHS = 200
"""How many paths are kept of each kind."""
MAX_OPENED = 20_000
"""How many opened files and listed folders are kept, wherever they lie."""

_DEVICES = ("/dev", "/proc", "/sys")
_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc")
_NEW_NAMES = frozenset(["os.rename", "os.link", "os.symlink"])  # their second argument is what they make
_LISTS = frozenset(["os.listdir", "os.scandir"])
_STARTS = frozenset(
    [
        *("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"),
        *("os.startfile", "pty.spawn", "_posixsubprocess.fork_exec"),
    ]
)
_WATCHED = _NEW_NAMES | _LISTS | _STARTS | {"open", "sqlite3.connect", "ctypes.dlopen"}
# they look for names of modules and installed packages in a folder, whatever else lies there
_SEARCHERS = ("<frozen importlib._bootstrap_external>", "/importlib/metadata/__init__.py", "/importlib/metadata.py")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_watch: Optional["OutsideFiles"] = None
_hook: Any = None


class OutsideFiles:
    """Collects absolute paths as they were opened; what is only known later is decided in `found`."""

    def __init__(self, private: List[str], root: str) -> None:
        """Collect what lies under none of the `private` folders, which are the probe's own; `root` is the checkout."""
        self.private = _as_prefixes([*private, *_DEVICES])
        self.known = _as_prefixes([sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *_SYSTEM])
        here = _as_prefixes([root])
        elsewhere = (*self.known, "/dev/", "/proc/", "/sys/")
        self.ignored = tuple(prefix for prefix in elsewhere if not any(form.startswith(prefix) for form in here))
        self.written: Set[str] = set()
        self.read: Set[str] = set()
        self.opened: Set[str] = set()  # this and the next: for `files_read`, anywhere but in python's own folders
        self.listed: Set[str] = set()
        self.searched: Set[str] = set()  # listed by imports
        self.loaded: Set[str] = set()  # native libraries
        self.doubts: Set[str] = set()

    def num_read(self) -> int:
        """Return a number that grows with whatever `files_read` would tell."""
        return len(self.opened) + len(self.listed) + len(self.searched) + len(self.loaded) + len(self.doubts)

    def found(self) -> Dict[str, List[str]]:
        """Return what is there now, sorted: `written` files and folders, `read` files.

        An event comes before the file is opened, so some never existed.
        """
        written = {os.path.normpath(path) for path in list(self.written)}
        read = {os.path.normpath(path) for path in list(self.read)}
        return {
            "written": sorted(path for path in written if not path.startswith(self.private) and os.path.lexists(path)),
            "read": sorted(path for path in read if not path.startswith(self.private + self.known) and os.path.isfile(path)),
        }


def install(session: Any) -> None:
    """Watch from now on; nothing where no checkout is set, as nothing is outside then."""
    global _watch, _hook
    settings = session.settings
    if settings.root is None or _watch is not None:
        return
    _watch = OutsideFiles([settings.root, settings.out, *_probe_folders(settings.out), *_temporary_folders()], settings.root)
    _hook = _make_hook(session, _watch)
    sys.addaudithook(_hook)


def record_outside_files(session: Any) -> None:
    """Event outside_files; a later one replaces an earlier one."""
    if _watch is not None:
        session.event("outside_files", **_watch.found())


def current() -> Optional[OutsideFiles]:
    """Return what watches, None where nothing does."""
    return _watch


def note_saved(path: Any) -> None:
    """Note a file that torch's C++ code has written, if it was told a path."""
    if _hook is not None and isinstance(path, str) and not path.startswith("<"):
        _hook("open", (path, "w", 0))


def _make_hook(session: Any, watch: OutsideFiles) -> Any:
    """Return the hook; python calls it for much else, so the name is all that it looks at first.

    One function that calls no other python function: where it runs inside a compiled function, `torch.compile` looks at
    each frame once (and leaves this one alone, as it finds no tensor in it).
    """
    private, known, written, read = watch.private, watch.known, watch.written, watch.read
    opened, listed, searched, loaded, doubts = watch.opened, watch.listed, watch.searched, watch.loaded, watch.doubts
    ignored = watch.ignored
    watched, new_names, lists, starts, searchers = _WATCHED, _NEW_NAMES, _LISTS, _STARTS, _SEARCHERS
    to_text, working_folder, frame_of, read_link = os.fspath, os.getcwd, sys._getframe, os.readlink

    def hook(event: str, args: Tuple[Any, ...]) -> None:
        if event not in watched:
            return
        try:
            if session.is_fork:
                return
            if event in starts:
                if len(doubts) < MAX_PATHS:
                    doubts.add(f"{event} {args[0]}" if event == "subprocess.Popen" else event)
                return
            path = args[0]
            if event == "ctypes.dlopen":
                if isinstance(path, str):
                    loaded.add(path)
                return
            if event in lists:
                if isinstance(path, int):
                    path = read_link(f"/proc/self/fd/{path}")
                path = to_text(path) if path is not None else "."
                if isinstance(path, bytes):
                    path = path.decode("utf-8", "surrogateescape")
                if path[:1] != "/":
                    path = working_folder() + "/" + path
                if len(opened) < MAX_OPENED and not path.startswith(ignored):
                    (searched if frame_of(1).f_code.co_filename.endswith(searchers) else listed).add(path)
                return
            is_written = is_read = event == "sqlite3.connect"
            if event == "open":
                mode, flags = args[1] or "", args[2] or 0
                is_written = flags & _WRITES != 0 or "w" in mode or "a" in mode or "x" in mode or "+" in mode
                is_read = not is_written or flags & (os.O_RDWR | os.O_TRUNC) == os.O_RDWR
            elif event in new_names:
                old, path, is_written = to_text(path), args[1], True
                if isinstance(old, str):
                    opened.add(old if old[:1] == "/" else working_folder() + "/" + old)
            if path is None or isinstance(path, int):  # a descriptor
                return
            path = to_text(path)
            if isinstance(path, bytes):
                path = path.decode("utf-8", "surrogateescape")
            if path[:1] != "/":
                if event == "open" and args[1] is None and len(doubts) < MAX_PATHS:
                    doubts.add("os.open")  # it may be below another folder (dir_fd), which no event tells
                path = working_folder() + "/" + path
            if len(opened) < MAX_OPENED and not path.startswith(ignored):
                opened.add(path)
            if path.endswith(".pyc") or "/__pycache__/" in path or (path.startswith(private) and "/.." not in path):
                return
            if is_written and len(written) < MAX_PATHS:
                written.add(path)
            is_package = "/site-packages/" in path or "/dist-packages/" in path
            if is_read and len(read) < MAX_PATHS and not is_package and not path.startswith(known):
                read.add(path)
        except Exception:  # raising here would make the program's call fail
            if len(doubts) < MAX_PATHS:
                doubts.add(f"{event} was not understood")

    return hook


def _probe_folders(out: str) -> List[str]:
    """Return the folder with everything of this probe: the one that holds both its recorder and its records."""
    recorder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    base = os.path.dirname(recorder)
    return [base] if base == os.path.dirname(os.path.abspath(out)) else []


def _temporary_folders() -> List[str]:
    """Return what `tempfile.gettempdir()` would, without importing it."""
    for name in ("TMPDIR", "TEMP", "TMP"):
        path = os.environ.get(name)
        if path and os.path.isdir(path) and os.access(path, os.W_OK):
            return [path]
    return ["/tmp"]


def _as_prefixes(folders: List[str]) -> Tuple[str, ...]:
    """Return the folders as given and without symbolic links, each with a separator at its end."""
    paths = {form(folder) for folder in folders if folder for form in (os.path.abspath, os.path.realpath)}
    return tuple(sorted(path + os.sep for path in paths if path != os.sep))
