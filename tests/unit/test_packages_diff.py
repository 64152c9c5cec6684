"""How two sets of pins differ, and what any set of the changes asks for."""

from __future__ import annotations

import pytest

from bisect_train.changes.packages import PackageDiff, diff_packages, read_packages_text
from bisect_train.changes.packages.pins import Pin
from bisect_train.core.changes import Change, ChangeKind


def diff(good: str, bad: str, **options: tuple[str, ...]) -> PackageDiff:
    return diff_packages(read_packages_text("good.txt", good), read_packages_text("bad.txt", bad), **options)


def ids(found: PackageDiff) -> list[str]:
    return [change.id for change in found.changes]


def test_each_differing_package_is_a_change_in_the_order_of_names() -> None:
    found = diff("torch==2.4.0\nb==1\nsame==1\ngone==3\n", "same==1\nnew>=2\nTorch==2.5.1\nb==2\n")
    assert found.changes == (
        Change(ChangeKind.PACKAGE, "b", "b: 1 -> 2"),
        Change(ChangeKind.PACKAGE, "gone", "gone: 3 -> (absent)"),
        Change(ChangeKind.PACKAGE, "new", "new: (absent) -> >=2"),
        Change(ChangeKind.PACKAGE, "torch", "torch: 2.4.0 -> 2.5.1"),
    )


def test_pins_are_the_bad_ends_for_chosen_packages_and_the_good_ends_for_the_others() -> None:
    found = diff("a==1\nb==1\ngone==3\nsame==1\n", "a==2\nb[x] @ file:///b.whl\nnew==1\nsame==1\n")
    assert found.pins([]) == ("a==1", "b==1", "gone==3")
    assert found.pins(["b"]) == ("a==1", "b[x] @ file:///b.whl", "gone==3")
    assert found.pins(found.changes) == ("a==2", "b[x] @ file:///b.whl", "new==1")
    assert (found.hidden([]), found.hidden(["gone"]), found.hidden(found.changes)) == (("new",), ("gone", "new"), ("gone",))


def test_an_unknown_package_is_an_error() -> None:
    with pytest.raises(ValueError, match="no such package change: c"):
        diff("a==1\n", "a==2\n").pins(["c"])


def test_equal_meaning_is_no_difference() -> None:
    assert not diff("a==1.0\nb>=1,<2\nc[y,x]\n", "A==1.0.0\nb<2,>=1\nc[x,y]\n").changes
    assert ids(diff("a>=1\nb[x]==1\n", "a>=2\nb==1\n")) == ["a", "b"]


def test_a_range_against_a_pin_is_a_difference_and_keeps_its_specifier() -> None:
    found = diff("a>=1,<2\n", "a==2.1\n")
    assert (found.pins([]), found.pins(["a"])) == (("a<2,>=1",), ("a==2.1",))


def test_what_others_depend_upon_comes_first_also_through_packages_that_do_not_differ() -> None:
    good = {
        "app": Pin("app", "==1", needs=("mid",)),
        "mid": Pin("mid", "==1", needs=("zlib",)),
        "zlib": Pin("zlib", "==1"),
        "loop": Pin("loop", "==1", needs=("app", "loop2")),
        "loop2": Pin("loop2", "==1", needs=("loop",)),
    }
    bad = {name: Pin(name, pin.specifier if name == "mid" else "==2", needs=pin.needs) for name, pin in good.items()}
    assert ids(diff_packages(good, bad)) == ["zlib", "app", "loop2", "loop"]


def test_excluded_names_are_no_changes() -> None:
    assert ids(diff("my_project==1\na==1\n", "my_project==2\na==2\n", exclude=("My-Project",))) == ["a"]


def test_what_an_overlay_cannot_lay_is_told() -> None:
    good, bad = (
        read_packages_text("environment.yml", f"dependencies: [python=3.{minor}, numpy=1.{minor}.0, pip: [a=={minor}]]")
        for minor in (10, 11)
    )
    assert [name for name, _ in diff_packages(good, bad).unlayable()] == ["numpy", "python"]
