"""Is what a commit changes invisible to a program that read so much? Pure; whatever is doubtful counts as touched.

A read set holds for the version that it was taken on. The next version runs the same if each path that differs was not read,
could not have been found by looking for it, and is of a kind that only python's own calls read: those are seen.

What is touched whatever was read, and why:

- symbolic links, submodules, modes, types: what lies behind them was noted under other names, or not at all;
- `.gitattributes` (it changes how other files are checked out) and `.gitmodules` (which repositories lie where);
- kinds that native code reads unseen: json, txt, csv, bin, pt, safetensors, model, so, cpp ... - all that are not named here;
- settings (yaml, toml, ini, cfg) and pictures, unless all native code that was loaded is known to read none: OpenCV reads both;
- files in a folder that the program itself listed: it may have looked at names, sizes and times;
- paths that linked data take: a tracked file there, or above or below it, stops the probe;
- new and deleted files, but for two kinds. Documentation and pictures, unless their folder was listed, or is new or gone itself
  where an import would see that. And python files in a folder of tests that was there before and stays, was never listed, not
  even by an import (which lists each folder that it searches), and of which nothing was read. Elsewhere a program may ask
  whether a file is there, and that is not seen. `conftest.py`, `sitecustomize.py`, `usercustomize.py` and `.pth` are found by
  their names without anyone asking for them, so a new or a lost one is touched everywhere.

Modified `pyproject.toml`, `setup.cfg` and `setup.py` are untouched unless they were read: a probe installs nothing from its
checkout, and an editable install has its metadata elsewhere. Renames are a deleted and a new file.

Not seen, and taken for harmless: a program that acts on the existence or the size of a python, documentation or settings file
that it never opens and whose folder it never lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from posixpath import basename, dirname, splitext

from bisect_train.core.reads import ReadSet

_REGULAR = frozenset({"100644", "100755"})
_NEVER = frozenset({".gitattributes", ".gitmodules"})
_FOUND_BY_NAME = frozenset({"__init__.py", "conftest.py", "sitecustomize.py", "usercustomize.py"})
_PROSE = frozenset({".md", ".rst", ".ipynb"})
_PROSE_NAMES = frozenset(
    {
        *("license", "license.txt", "licence", "licence.txt", "copying", "copying.txt", "notice", "notice.txt", "authors"),
        *("citation.cff", "codeowners", ".gitignore", ".mailmap", ".editorconfig", ".git-blame-ignore-revs"),
    }
)
_CODE = frozenset({".py", ".pyi", ".sh"})
_CODE_NAMES = frozenset(
    {"makefile", "dockerfile", ".dockerignore", ".pre-commit-config.yaml", ".flake8", ".pylintrc", ".clang-format"}
)
_SETTINGS = frozenset({".toml", ".cfg", ".ini", ".yaml", ".yml"})
_PICTURES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp"})
_TEST_FOLDERS = frozenset({"test", "tests", "testing", "unit_tests", "integration_tests", "docs", "doc"})
_READS_NO_SETTINGS = frozenset(
    {
        *("torch", "functorch", "numpy", "scipy", "sklearn", "pandas", "numexpr", "bottleneck", "matplotlib", "kiwisolver"),
        *("contourpy", "PIL", "pillow", "yaml", "_yaml", "ruamel", "_ruamel_yaml", "tokenizers", "safetensors"),
        *(
            "sentencepiece",
            "tiktoken",
            "regex",
            "psutil",
            "xxhash",
            "markupsafe",
            "msgpack",
            "google",
            "wrapt",
            "orjson",
            "ujson",
        ),
        *(
            "rpds",
            "pydantic_core",
            "charset_normalizer",
            "multidict",
            "yarl",
            "frozenlist",
            "propcache",
            "aiohttp",
            "zstandard",
        ),
        *(
            "triton",
            "_cffi_backend",
            "cffi",
            "cryptography",
            "greenlet",
            "sqlalchemy",
            "mypyc",
            "tornado",
            "zmq",
            "einops",
            "tqdm",
        ),
        *("libc", "libm", "libdl", "librt", "libpthread", "libgomp", "libcuda", "libnvidia-ml", "nvidia", "cuda", "ml_dtypes"),
    }
)
"""Native code, by top-level module or library, that opens neither settings nor pictures by itself."""


class Kind(str, Enum):
    """Who could read a file without being seen."""

    PROSE = "prose"  # nobody; and a program does not ask whether it is there
    CODE = "code"  # nobody
    SETTINGS = "settings"  # some native libraries
    PICTURE = "picture"  # some native libraries
    OTHER = "other"  # anybody


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a commit did to a path.

    Attributes:
        path: relative to the top of the tree, `/` between parts.
        status: git's letter, A, D, M or T; anything else counts as touched.
        old_mode, new_mode: six digits; 000000 where there is nothing.
        is_folder_kept: whether the path's folder is there before and after; matters for A and D only.
    """

    path: str
    status: str
    old_mode: str = "100644"
    new_mode: str = "100644"
    is_folder_kept: bool = True


def kind_of(path: str) -> Kind:
    """Return the kind of a path, by its name."""
    name = basename(path).lower()
    suffix = splitext(name)[1]
    if path.startswith(".github/") or name in _PROSE_NAMES or suffix in _PROSE:
        return Kind.PROSE
    if name in _CODE_NAMES or suffix in _CODE:
        return Kind.CODE
    if suffix in _SETTINGS:
        return Kind.SETTINGS
    return Kind.PICTURE if suffix in _PICTURES else Kind.OTHER


def is_documentation(change: FileChange) -> bool:
    """Return whether a change is of documentation only: no program reads it but one that shows it to people."""
    return kind_of(change.path) is Kind.PROSE and _is_plain(change)


class Reader:
    """A read set, made ready for many questions.

    Args:
        reads: of all runs of one version; complete.
        targets: where data are linked into the checkout.
    Raises:
        ValueError: the read set is not complete.
    """

    def __init__(self, reads: ReadSet, *, targets: Iterable[str] = ()) -> None:
        if not reads.is_complete:
            raise ValueError(f"a read set that is not complete says nothing: {reads.doubts[0]}")
        self._files = frozenset(reads.files)
        self._folders = frozenset(reads.folders)
        self._searched = frozenset(reads.searched)
        self._read_from = frozenset(dirname(path) for path in reads.files)
        self._targets = tuple(target.strip("/") for target in targets)
        self._is_blind = not all(_library(name) in _READS_NO_SETTINGS for name in reads.natives)
        self.has_read_prose = any(kind_of(path) is Kind.PROSE for path in reads.files)

    def is_untouched(self, changes: Sequence[FileChange]) -> bool:
        """Return whether the program runs the same before and after all of these changes."""
        return not any(self._touches(change) for change in changes)

    def _touches(self, change: FileChange) -> bool:
        kind = kind_of(change.path)
        if not _is_plain(change) or kind is Kind.OTHER or change.path in self._files or self._is_linked(change.path):
            return True
        if self._is_blind and kind in (Kind.SETTINGS, Kind.PICTURE):
            return True
        folder = dirname(change.path)
        if folder in self._folders:
            return True
        if change.status == "M":
            return False
        if kind in (Kind.PROSE, Kind.PICTURE):
            return not change.is_folder_kept and self._is_seen_above(folder)
        return not (kind is Kind.CODE and change.path.endswith(".py") and self._is_hidden_test(change, folder))

    def _is_linked(self, path: str) -> bool:
        return any(path == to or path.startswith(to + "/") or to.startswith(path + "/") for to in self._targets)

    def _is_seen_above(self, folder: str) -> bool:
        """Return whether a folder above one that is new or gone was listed, by the program or by an import."""
        return any(above in self._folders or above in self._searched for above in _above(folder))

    def _is_hidden_test(self, change: FileChange, folder: str) -> bool:
        """Return whether nobody has looked into the folder of a test, nor into those around it, up to that of all tests."""
        if not change.is_folder_kept or basename(change.path) in _FOUND_BY_NAME:
            return False
        parts = folder.split("/")
        top = next((num for num, part in enumerate(parts, start=1) if part in _TEST_FOLDERS), 0)
        if not top:
            return False
        around = ["/".join(parts[:num]) for num in range(top, len(parts) + 1)]
        return not any(place in seen for place in around for seen in (self._folders, self._searched, self._read_from))


def _is_plain(change: FileChange) -> bool:
    """Return whether a change is of an ordinary file, its mode kept, and of no file that changes what others are."""
    if basename(change.path) in _NEVER:
        return False
    if change.status == "M":
        return change.old_mode == change.new_mode and change.old_mode in _REGULAR
    return (change.status == "A" and change.new_mode in _REGULAR) or (change.status == "D" and change.old_mode in _REGULAR)


def _above(folder: str) -> list[str]:
    """Return the folders above a folder, the top of the tree ("") last."""
    found = []
    while folder:
        folder = dirname(folder)
        found.append(folder)
    return found


def _library(name: str) -> str:
    """Return a library's name without version and suffix: `libc.so.6` is `libc`."""
    return name.partition(".")[0]
