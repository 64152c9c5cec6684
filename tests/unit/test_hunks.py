"""Hunks as lines, and the order that names give them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_train.changes.hunk_files import Entry, FileChange, Part, python_error
from bisect_train.changes.hunk_names import ModuleNames, module_name
from bisect_train.changes.hunk_order import groups_of, needs_of, order_of
from bisect_train.changes.hunks import Hunk, parse_hunks, splice, split_lines
from tests.support.properties import examples

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


def test_patch_is_read_by_its_headers_not_by_what_lines_look_like() -> None:
    assert parse_hunks(PATCH) == {("1" * 40, "2" * 40): (Hunk(1, 1, 1, 2), Hunk(5, 2, 5, 0))}


@given(st.binary(max_size=30).map(lambda data: data.replace(b"a", b"\n")))
@settings(max_examples=examples(50))
def test_lines_add_up_and_end_at_newlines_only(data: bytes) -> None:
    lines = split_lines(data)
    assert b"".join(lines) == data
    assert all(line.endswith(b"\n") for line in lines[:-1]) and all(line.count(b"\n") <= 1 for line in lines)
    assert b"" not in lines


def test_hunks_are_spliced_in_any_order() -> None:
    old, new = split_lines(b"1\n2\n3\n4\n5"), split_lines(b"0\n1\n2\nthree\n4\n")
    hunks = [Hunk(0, 0, 1, 1), Hunk(3, 1, 4, 1), Hunk(4, 2, 5, 1)]
    assert splice(old, new, [hunks[1], hunks[0]]) == b"0\n1\n2\nthree\n4\n5"
    assert splice(old, new, []) == b"1\n2\n3\n4\n5"
    assert splice(old, new, [hunks[0]]) == b"0\n1\n2\n3\n4\n5"


def test_hunks_that_do_not_lead_to_the_new_file_are_not_used() -> None:
    ends = [Entry("a.txt", "100644", name * 40) for name in "12"]
    wrong = FileChange(*ends, hunks=(Hunk(1, 1, 1, 1),), old=b"a\nb\n", new=b"x\ny\n")
    assert wrong.parts == (Part(),)
    assert wrong.entry_with([Part()]) == ends[1] and wrong.entry_with([]) == ends[0]


def test_python_error_says_the_line_and_runs_nothing() -> None:
    assert python_error(b"raise SystemExit('\\d')\n") is None
    assert (python_error(b"x = 1\nreturn x\n") or "").startswith("line 2: ")
    assert python_error(b"x = (\n") is not None
    assert python_error(b"x = '\0'\n") is not None
    assert python_error(b"# coding: no-such\n") is not None


SOURCE = b"""\
import numpy as np
from .blocks import Mlp as Block
LIMIT = 3


class Model(Block):
    width: int = 4

    def forward(self, x, *, scale=LIMIT):
        self.cache = x
        y = np.tanh(x)
        return self.norm(y, eps=scale)


def load(path):
    return open("data/words.txt"), (lambda x: x + shift)(1)
"""


def test_names_are_told_apart_by_where_they_are_looked_up() -> None:
    names = ModuleNames(SOURCE, "net/model.py")
    assert names.defined[("name", "Model")] == {6}
    assert names.defined[("export", "model", "LIMIT")] == {3}
    assert names.defined[("attribute", "forward")] == {9} and names.defined[("attribute", "cache")] == {10}
    assert names.defined[("keyword", "width")] == {7} and names.defined[("keyword", "scale")] == {9}
    assert names.used[("export", "blocks", "Mlp")] == {2} and names.used[("module", "blocks")] == {2}
    assert names.used[("name", "LIMIT")] == {9}
    assert names.used[("local", "class Model.forward", "y")] == {12}
    assert names.used[("attribute", "norm")] == {12} and names.used[("keyword", "eps")] == {12}
    assert names.used[("export", "numpy", "tanh")] == {11}
    assert names.used[("key", "words.txt")] == {16}
    assert names.used[("local", "load.<lambda>", "x")] == {16} and names.used[("name", "shift")] == {16}
    assert ("name", "y") not in names.used and ("name", "y") not in names.defined
    assert module_name("a/b/__init__.py") == "b"


def order_in(*files: tuple[str, str, str], hunks: dict[str, list[Hunk]]) -> tuple[list[str], list[tuple[int, ...]]]:
    """Return the hunks as `file:first new line` in their order, and the rings, of files given by path, old and new text."""
    changes = []
    for path, old, new in files:
        ends = (Entry(path, "100644", "1" * 40) if old else None, Entry(path, "100644", "2" * 40) if new else None)
        changes.append(FileChange(*ends, hunks=tuple(hunks.get(path, ())), old=old.encode(), new=new.encode()))
    parts = [(idx, part) for idx, file in enumerate(changes) for part in file.parts]
    needs = needs_of(changes, parts)
    names = [f"{changes[idx].path}:{part.hunk.new_start if part.hunk else part.key or '*'}" for idx, part in parts]
    return [names[idx] for idx in order_of(needs)], [group for group in groups_of(needs) if len(group) > 1]


def test_definition_comes_before_its_use_and_unrelated_hunks_stay() -> None:
    old = "a = 1\nprint(a)\nb = 2\nc = 3\n"
    new = "a = 5\nprint(a + delta)\nb = 2\ndelta = 3\nc = 3\n"
    order, rings = order_in(("m.py", old, new), hunks={"m.py": [Hunk(1, 1, 1, 1), Hunk(2, 1, 2, 1), Hunk(3, 0, 4, 1)]})
    assert order == ["m.py:1", "m.py:4", "m.py:2"] and rings == []


def test_removed_definition_comes_after_its_last_use() -> None:
    old = "def f():\n    pass\nx = 0\nf()\n"
    new = "x = 0\ng()\n"
    order, _ = order_in(("m.py", old, new), hunks={"m.py": [Hunk(1, 2, 0, 0), Hunk(4, 1, 2, 1)]})
    assert order == ["m.py:2", "m.py:0"]


def test_moved_definition_is_there_twice_before_it_is_there_once() -> None:
    old = "LR = 1\nx = 0\ny = LR\n"
    new = "x = 0\nfrom conf import LR\ny = LR\n"
    order, rings = order_in(("m.py", old, new), hunks={"m.py": [Hunk(1, 1, 0, 0), Hunk(2, 0, 2, 1)]})
    assert order == ["m.py:2", "m.py:0"] and rings == []


def test_renamed_function_and_its_calls_are_a_ring() -> None:
    old, new = "def f(x):\n    return x\n", "def g(x):\n    return x\n"
    calls = ("from a import f\nz = 0\nf(1)\n", "from a import g\nz = 0\ng(1)\n")
    order, rings = order_in(
        ("a.py", old, new), ("b.py", *calls), hunks={"a.py": [Hunk(1, 1, 1, 1)], "b.py": [Hunk(1, 1, 1, 1), Hunk(3, 1, 3, 1)]}
    )
    assert rings == [(0, 1, 2)] and order == ["a.py:1", "b.py:1", "b.py:3"]


def test_new_parameter_comes_before_the_call_that_gives_it() -> None:
    calls = ("z = 0\nfit(1)\n", "z = 0\nfit(1, momentum=2)\n")
    old, new = "def fit(x):\n    return x\n", "def fit(x, momentum=0):\n    return x\n"
    hunks = {"a.py": [Hunk(2, 1, 2, 1)], "b.py": [Hunk(1, 1, 1, 1)]}
    assert order_in(("a.py", *calls), ("b.py", old, new), hunks=hunks)[0] == ["b.py:1", "a.py:2"]


def test_config_key_comes_before_the_code_that_reads_it_and_goes_after_it() -> None:
    code = ("a = cfg.old\nz = 0\nb = 1\n", "a = 1\nz = 0\nb = cfg['fresh']\n")
    config = ("c.yaml", "old: 1\nx: 2\n", "fresh: 3\nx: 2\n")
    lines = [Hunk(1, 1, 1, 1), Hunk(3, 1, 3, 1)]
    order, _ = order_in(("a.py", *code), config, hunks={"a.py": lines, "c.yaml": lines[:1]})
    assert order == ["a.py:1", "c.yaml:old", "c.yaml:fresh", "a.py:3"]
    order, _ = order_in(config, ("z.py", *code), hunks={"z.py": lines, "c.yaml": lines[:1]})
    assert order == ["c.yaml:fresh", "z.py:1", "c.yaml:old", "z.py:3"]


def test_same_name_in_other_files_is_no_need() -> None:
    new = ("x = 0\n", "x = 0\ndef run(step):\n    step = step + 1\n    return step\n")
    user = ("y = 0\n", "y = 0\nstep = 5\nprint(step)\n")
    hunks = {"b.py": [Hunk(1, 0, 2, 3)], "a.py": [Hunk(1, 0, 2, 2)]}
    assert order_in(("a.py", *user), ("b.py", *new), hunks=hunks) == (["a.py:2", "b.py:2"], [])


def test_guess_that_would_close_a_ring_is_dropped() -> None:
    old_a, old_b = "x = 0\n", "y = 0\n"
    new_a = "x = 0\ndef helper(state):\n    return state.total\n"
    new_b = "y = 0\nfrom a import helper\nclass Sum:\n    total = helper\n"
    hunks = {"a.py": [Hunk(1, 0, 2, 2)], "b.py": [Hunk(1, 0, 2, 3)]}
    assert order_in(("a.py", old_a, new_a), ("b.py", old_b, new_b), hunks=hunks) == (["a.py:2", "b.py:2"], [])


def test_renamed_method_and_its_call_in_another_file_are_a_ring() -> None:
    old = "class Model:\n    def run(self):\n        pass\n"
    hunks = {"a.py": [Hunk(1, 1, 1, 1)], "b.py": [Hunk(2, 1, 2, 1)]}
    files = ("a.py", "model.run()\n", "model.go()\n"), ("b.py", old, old.replace("run", "go"))
    assert order_in(*files, hunks=hunks) == (["a.py:1", "b.py:2"], [(0, 1)])


def test_file_that_is_not_python_three_is_not_read() -> None:
    old, new = "print 'x'\na = 1\nb\n", "print 'x'\na = 1\nc\nb = c\n"
    hunks = {"a.py": [Hunk(3, 1, 3, 2)]}
    assert order_in(("a.py", old, new), hunks=hunks) == (["a.py:3"], [])


@given(st.lists(st.sets(st.integers(0, 11), max_size=3), min_size=12, max_size=12))
@settings(max_examples=examples(100))
def test_order_respects_needs_but_in_rings_and_keeps_rings_together(drawn: list[set[int]]) -> None:
    needs = [direct - {idx} for idx, direct in enumerate(drawn)]
    order, groups = order_of(needs), groups_of(needs)
    assert sorted(order) == list(range(12)) and sorted(idx for group in groups for idx in group) == list(range(12))
    place = {idx: number for number, idx in enumerate(order)}
    ring = {idx: group for group in groups for idx in group}
    for idx, direct in enumerate(needs):
        assert all(place[need] < place[idx] or need in ring[idx] for need in direct)
    for group in groups:
        places = [place[idx] for idx in group]
        assert places == list(range(places[0], places[0] + len(group)))
        assert all(_needs(needs, idx, other) for idx in group for other in group if idx != other)


def _needs(needs: list[set[int]], start: int, goal: int) -> bool:
    seen: set[int] = set()
    todo = [start]
    while todo:
        for need in needs[todo.pop()] - seen:
            seen.add(need)
            todo.append(need)
    return goal in seen
