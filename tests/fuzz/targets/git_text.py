"""Text that comes out of git: patches, changed files, history, names of commits; and what a person says of it."""

from __future__ import annotations

import contextlib
import random
from types import SimpleNamespace

from bisect_train.changes.fixup_patch import _removed_lines
from bisect_train.changes.history import commit_range
from bisect_train.changes.hunk_files import Entry, FileChange, Part, _entries
from bisect_train.changes.hunk_order import groups_of, needs_of, order_of
from bisect_train.changes.hunks import Hunk, parse_hunks, split_lines
from bisect_train.changes.plumbing import GitCommandError, decode, printable, quote_path
from bisect_train.changes.priors import read_rule
from bisect_train.core.amounts import parse_age_s, parse_size
from bisect_train.core.errors import InputError, RevisionError, UnbuildableError
from bisect_train.core.question import Range
from bisect_train.core.secrets import mask_line, mask_text
from bisect_train.recipe.template import inspect_tree, recipe_template
from tests.fuzz.engine import Target
from tests.fuzz.targets.configs import TEXTS
from tests.fuzz.targets.packages import REQUIREMENTS
from tests.fuzz.text_changes import change_bytes, change_text, to_bytes

PATCH = b"""\
diff --git a/a.txt b/a.txt
index 1111111111111111111111111111111111111111..2222222222222222222222222222222222222222 100644
--- a/a.txt
+++ b/a.txt
@@ -1 +1,2 @@ some function
-@@ -9 +9 @@
+index 3333333333333333333333333333333333333333..4444444444444444444444444444444444444444
+b
@@ -5,2 +5,0 @@
-x\ry
-z
\\ No newline at end of file
diff --git a/b.bin b/b.bin
index 5555555555555555555555555555555555555555..6666666666666666666666666666666666666666 100644
Binary files a/b.bin and b/b.bin differ
"""
PYTHON = (
    b"import os\nfrom a import *\n\ndef f(x, *, y=1):\n    z = x.w\n    return os.path.join('a', z)\n\n"
    b"class C(B):\n    n: int = 1\n",
    b"LR = 0.1\nclass D:\n    def g(self):\n        self.x = lambda q: q + LR\n        return {k: v for k, v in self.x}\n",
)


def _make_patch(rng: random.Random) -> bytes:
    return change_bytes(rng, PATCH, [PATCH])


def _read_patch(data: bytes) -> None:
    parse_hunks(data)
    _removed_lines(data)


def _make_change(rng: random.Random) -> tuple[str, bytes, bytes, list[int]]:
    path = rng.choice(("a.py", "c.yaml", "c.json", "c.toml", "requirements.txt", "x.bin"))
    seeds: tuple[bytes, ...] = PYTHON
    if path.startswith("c."):
        seeds = tuple(text.encode() for text in TEXTS[path[2:]])
    elif path.startswith("req"):
        seeds = tuple(text.encode() for text in REQUIREMENTS)
    old = rng.choice(seeds) if rng.random() < 0.6 else change_bytes(rng, rng.choice(seeds), seeds)
    return path, old, change_bytes(rng, old, seeds), [rng.randrange(12) for _ in range(4)]


def _hunk_of(old: bytes, new: bytes) -> tuple[Hunk, ...]:
    """Return the one hunk between the common beginning and the common end of two files."""
    left, right = split_lines(old), split_lines(new)
    first = 0
    while first < min(len(left), len(right)) and left[first] == right[first]:
        first += 1
    last = 0
    while last < min(len(left), len(right)) - first and left[-1 - last] == right[-1 - last]:
        last += 1
    counts = len(left) - first - last, len(right) - first - last
    starts = [first + (count > 0) for count in counts]
    return (Hunk(starts[0], counts[0], starts[1], counts[1]),) if any(counts) else ()


def _take_apart(case: tuple[str, bytes, bytes, list[int]]) -> None:
    """A file's change is taken apart; none of its parts gives the old file, all of them the new one."""
    path, old, new, numbers = case
    hunks = _hunk_of(old, new)
    before, after = Entry(path, "100644", "1" * 40), Entry(path, "100644", "2" * 40)
    change = FileChange(before, after, hunks=hunks, old=old, new=new)
    if change.parts != (Part(),):
        assert change.content_with(()) == old
        assert change.config is not None or change.content_with(change.parts) == new
        with contextlib.suppress(UnbuildableError):
            change.content_with(change.parts[:1])
    [change.change_of(part) for part in change.parts]
    _ = change.is_python
    odd = FileChange(before, after, hunks=(Hunk(*numbers),), old=old, new=new)  # not what git would say
    files = [change, odd]
    parts = [(idx, part) for idx, file in enumerate(files) for part in file.parts]
    needs = needs_of(files, parts)
    assert sorted(order_of(needs)) == list(range(len(parts)))
    groups_of(needs)


class _Git:
    """Answers as git does, with a history that was prepared."""

    def __init__(self, log: bytes, parents: bool) -> None:
        self._log = log
        self._parents = parents

    def run(self, *args: str, **more: object) -> bytes:
        return self._log

    def succeeds(self, *args: str) -> bool:
        return self._parents

    def text(self, *args: str, **more: object) -> str:
        return ""


SHAS = ["0" * 40, "1" * 40, "2" * 40, "3" * 40]
SUBJECTS = ("fix", "use @x #1", "é 🙂", "\x1b[31mred", "<script>", "-n")


def _make_history(rng: random.Random) -> tuple[list[list[bytes]], bytes, bool, bool]:
    rows = [
        [
            *(SHAS[idx].encode(), SHAS[idx - 1].encode(), change_bytes(rng, b"Ada", [b"x"]).replace(b"\0", b"")),
            *(b"2024-01-02 03:04:05 +0000", change_bytes(rng, rng.choice(SUBJECTS).encode(), [b"x"]).replace(b"\0", b"")),
        ]
        for idx in (3, 2, 1)
    ]
    raw = b"".join(field + b"\0" for row in rows for field in row)
    return rows, change_bytes(rng, raw, [raw]) if rng.random() < 0.2 else raw, rng.random() < 0.5, rng.random() < 0.8


def _read_history(case: tuple[list[list[bytes]], bytes, bool, bool]) -> None:
    _, raw, first_parent, related = case
    repository = SimpleNamespace(git=_Git(raw, related), shallow=frozenset())
    found = commit_range(repository, Range((SHAS[0],), SHAS[3], first_parent))  # type: ignore[arg-type]
    for change in found.changes:
        assert change.title.isprintable() or not change.title


RAW = (
    b":100644 100755 "
    + b"1" * 40
    + b" "
    + b"2" * 40
    + b" M\0a.py\0:100644 100644 "
    + b"3" * 40
    + b" "
    + b"4" * 40
    + b" R100\0b\0c\0"
)


def _make_raw(rng: random.Random) -> bytes:
    return change_bytes(rng, RAW, [RAW])


def _read_raw(data: bytes) -> None:
    _entries(data)
    text = printable(decode(data))
    assert text.isprintable() or not text
    if b"\0" not in data:
        from pathlib import Path

        quote_path(Path(decode(data)))


RULES = (
    "path:docs/**=0.01",
    "message:(?i)optim|lr=5",
    "author:@bot\\.example=0.1",
    "key:optimizer.*=10",
    "20GB",
    "1.5KiB",
    "30d",
    "1e3m",
)


def _make_rule(rng: random.Random) -> str:
    return change_text(rng, rng.choice(RULES), RULES)


def _read_rule(text: str) -> None:
    for read in (parse_size, parse_age_s):
        try:
            read(text)
        except ValueError as error:
            assert str(error)
    read_rule(text)


SECRETS = (
    'api_key: hf_x\nlr: 1\nwandb: {token: "abc"}\nhttps://u:p@h/x?token=1&sig=2\n',
    "PASSWORD=x --hf-token=y a=b c: d\nkeys:\n  - secret: |\n      two\n      lines\n",
)


def _make_secret(rng: random.Random) -> str:
    return change_text(rng, rng.choice(SECRETS), SECRETS)


def _mask(text: str) -> None:
    mask_text(text)
    mask_line(text)


def _make_tree(rng: random.Random) -> dict[str, str]:
    files = {
        "train.py": "import wandb\nopt.zero_grad()\nloss.backward()\np.add_argument('--config')\n",
        "configs/train.yaml": "a: 1\n",
        "conf/x.json": "{}",
        ".gitignore": "data/\n# x\n!y\n/corpus\nruns\n",
        "data/a.bin": "",
    }

    def path(name: str) -> str:  # as git may have it
        parts = [part for part in name.replace("\0", "").split("/") if part not in ("", ".", "..", ".git")]
        return "/".join(parts) or "x"

    found = {path(change_text(rng, name, list(files))) if rng.random() < 0.3 else name: text for name, text in files.items()}
    return {name: change_text(rng, text, list(files.values())) if rng.random() < 0.4 else text for name, text in found.items()}


def _read_tree(case: dict[str, str]) -> None:
    """A recipe is written for any tree, and loads as it stands."""
    from bisect_train.recipe import load_recipe
    from tests.fuzz.places import folder, write

    text = recipe_template(inspect_tree(list(case), lambda path: case[path]))
    load_recipe(write(folder("tree") / "r.yaml", to_bytes(text)))


TARGETS = (
    Target("patch", _make_patch, _read_patch, (), 16.0),
    Target("file-change", _make_change, _take_apart, (), 3.0),
    Target("history", _make_history, _read_history, (RevisionError, GitCommandError), 5.0),
    Target("raw-diff", _make_raw, _read_raw, (GitCommandError,), 14.0),
    Target("rules", _make_rule, _read_rule, (InputError,), 12.0),
    Target("secrets", _make_secret, _mask, (), 5.0),
    Target("template", _make_tree, _read_tree, (), 0.3),
)
