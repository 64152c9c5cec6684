"""Candidates of a range, as `git bisect` counts them, and ranges that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_train.changes.history import CommitRange, commit_range, resolve_skips
from bisect_train.changes.repository import Repository
from bisect_train.core.errors import RevisionError
from bisect_train.core.question import Range
from tests.support.git_repos import UserRepo, git


@pytest.fixture
def user(tmp_path: Path) -> UserRepo:
    return UserRepo.create(tmp_path / "repo")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def _range(user: UserRepo, home: Path, goods: str | tuple[str, ...], bad: str, **options: object) -> CommitRange:
    ends = (goods,) if isinstance(goods, str) else goods
    return commit_range(user.open(home), Range(ends, bad, **options))  # type: ignore[arg-type]


def test_range_of_a_chain_lists_the_commits_after_good(user: UserRepo, home: Path) -> None:
    commits = [user.commit({"a": str(idx)}, message=f"step {idx}\n\nbody") for idx in range(5)]
    found = _range(user, home, commits[1], commits[4])
    assert found.commits == tuple(commits[2:])
    assert (found.base, found.good, found.good_is_base, found.bad) == (commits[1], commits[1], True, commits[4])
    assert [change.title for change in found.changes] == ["step 2", "step 3", "step 4"]
    assert found.changes[0].detail.startswith("A U Thor, 2023-11-14 22:")


def test_range_of_one_commit_has_one_change(user: UserRepo, home: Path) -> None:
    good, bad = user.commit(), user.commit()
    assert _range(user, home, good, bad).commits == (bad,)


def test_titles_that_would_move_the_cursor_are_escaped(user: UserRepo, home: Path) -> None:
    good, bad = user.commit(), user.commit(message="red \x1b[31m ünï 'quoted' \"twice\"")
    assert _range(user, home, good, bad).changes[0].title == "red \\x1b[31m ünï 'quoted' \"twice\""


def _merged(user: UserRepo) -> dict[str, str]:
    """main: base - a - M - b, side: base - x - y, merged by M."""
    found = {"base": user.commit({"f": "0"})}
    user.git("switch", "-q", "-c", "side")
    found |= {"x": user.commit({"x": "1"}), "y": user.commit({"y": "1"})}
    user.git("switch", "-q", "main")
    found["a"] = user.commit({"a": "1"})
    found["M"] = user.merge("side")
    found["b"] = user.commit({"b": "1"})
    return found


def test_range_with_a_merge_follows_first_parents_by_default(user: UserRepo, home: Path) -> None:
    names = _merged(user)
    found = _range(user, home, names["base"], names["b"])
    assert found.commits == (names["a"], names["M"], names["b"])
    assert found.parents[1] == (names["a"],)


def test_range_without_first_parent_descends_into_merges(user: UserRepo, home: Path) -> None:
    names = _merged(user)
    found = _range(user, home, names["base"], names["b"], first_parent=False)
    assert found.commits == tuple(names[name] for name in ("a", "x", "y", "M", "b"))
    assert found.heads[2] == (names["a"], names["y"])


def test_good_on_a_merged_side_branch_starts_at_the_fork(user: UserRepo, home: Path) -> None:
    names = _merged(user)
    found = _range(user, home, names["x"], names["b"])
    assert found.commits == (names["a"], names["M"], names["b"])
    assert (found.base, found.good, found.good_is_base) == (names["base"], names["x"], False)
    inside = _range(user, home, names["x"], names["b"], first_parent=False)
    assert inside.commits == tuple(names[name] for name in ("a", "y", "M", "b"))


def test_good_on_another_branch_starts_at_the_merge_base(user: UserRepo, home: Path) -> None:
    fork = user.commit({"f": "0"})
    user.git("switch", "-q", "-c", "fixed")
    good = user.commit({"fix": "1"})
    user.git("switch", "-q", "main")
    first, bad = user.commit({"a": "1"}), user.commit({"b": "1"})
    found = _range(user, home, good, bad)
    assert (found.base, found.good, found.good_is_base) == (fork, good, False)
    assert found.commits == (first, bad)


def test_two_goods_leave_out_what_either_reaches(user: UserRepo, home: Path) -> None:
    commits = [user.commit({"a": str(idx)}) for idx in range(5)]
    found = _range(user, home, (commits[0], commits[2]), commits[4])
    assert found.commits == tuple(commits[3:])
    assert (found.base, found.good, found.good_is_base) == (commits[2], commits[2], True)


def test_two_goods_on_two_branches_take_the_one_that_reaches_the_base(user: UserRepo, home: Path) -> None:
    names = _merged(user)
    user.git("switch", "-q", "-c", "other", names["a"])
    other = user.commit({"o": "1"})
    found = _range(user, home, (names["x"], other), names["b"])
    assert (found.base, found.good, found.good_is_base) == (names["a"], other, False)
    assert found.commits == (names["M"], names["b"])


def test_octopus_merge_is_one_candidate_or_all_its_branches(user: UserRepo, home: Path) -> None:
    base = user.commit({"f": "0"})
    arms = {}
    for name in ("p", "q", "r"):
        user.git("switch", "-q", "-c", name, base)
        arms[name] = user.commit({name: "1"})
    user.git("switch", "-q", "main")
    octopus = user.merge("p", "q", "r")
    assert _range(user, home, base, octopus).commits == (octopus,)
    found = _range(user, home, base, octopus, first_parent=False)
    assert found.commits == (arms["p"], arms["q"], arms["r"], octopus)


def _touching(found: CommitRange) -> tuple[str, ...]:
    return tuple(commit for idx, commit in enumerate(found.commits) if idx not in found.unlikely)


def test_paths_mark_the_commits_that_do_not_touch_them(user: UserRepo, home: Path) -> None:
    good = user.commit({"src/a.py": "0", "doc": "0"})
    touching = user.commit({"src/a.py": "1"})
    user.commit({"doc": "1"})
    deep = user.commit({"src/deep/b.py": "1"})
    bad = user.commit({"doc": "2"})
    found = _range(user, home, good, bad, paths=("src/**/*.py",))
    assert len(found.commits) == 4 and found.unlikely == {1, 3}
    assert _touching(found) == (touching, deep)
    assert _touching(_range(user, home, good, bad, paths=("src/*.py",))) == (touching,)
    assert _touching(_range(user, home, good, bad, paths=("src",))) == (touching, deep)
    assert _touching(_range(user, home, good, bad, paths=("./src/",))) == (touching, deep)
    assert _range(user, home, good, bad, paths=(".",)).unlikely == frozenset()
    with pytest.raises(RevisionError, match="touches"):
        _range(user, home, good, bad, paths=("../x",))
    with pytest.raises(RevisionError, match="touches"):
        _range(user, home, good, bad, paths=("nothing/*",))


def test_paths_count_a_merge_by_what_it_brings(user: UserRepo, home: Path) -> None:
    names = _merged(user)
    assert _touching(_range(user, home, names["base"], names["b"], paths=("x",))) == (names["M"],)
    found = _range(user, home, names["base"], names["b"], paths=("x",), first_parent=False)
    assert _touching(found)[0] == names["x"]


def test_skips_are_prefix_numbers(user: UserRepo, home: Path) -> None:
    commits = [user.commit({"a": str(idx)}) for idx in range(6)]
    found = _range(user, home, commits[0], commits[5], skips=(commits[2], commits[0]))
    assert found.skipped == {2}
    assert _range(user, home, commits[0], commits[5], skips=(f"{commits[1]}..{commits[3]}",)).skipped == {2, 3}


def test_skips_resolve_names_and_ranges(user: UserRepo, home: Path) -> None:
    commits = [user.commit({"a": str(idx)}) for idx in range(4)]
    repository = user.open(home)
    assert set(resolve_skips(repository, ("HEAD~3..HEAD~1", "main"))) == set(commits[1:])
    with pytest.raises(RevisionError, match="unknown"):
        resolve_skips(repository, ("nothing",))
    with pytest.raises(RevisionError, match="unknown"):
        resolve_skips(repository, ("0" * 39 + "1",))


def test_skip_of_the_bad_end_is_refused(user: UserRepo, home: Path) -> None:
    good, bad = user.commit(), user.commit()
    with pytest.raises(RevisionError, match="cannot be skipped"):
        _range(user, home, good, bad, skips=(bad,))


def test_same_commit_is_no_range(user: UserRepo, home: Path) -> None:
    good = user.commit()
    with pytest.raises(RevisionError, match="same commit"):
        _range(user, home, good, good)


def test_swapped_ends_show_the_right_command(user: UserRepo, home: Path) -> None:
    old, new = user.commit(), user.commit()
    with pytest.raises(RevisionError, match="swapped") as caught:
        _range(user, home, new, old)
    assert f"--good {old[:12]} --bad {new[:12]}" in caught.value.hint
    assert caught.value.exit_status == 2


def test_unrelated_histories_are_no_range(user: UserRepo, home: Path) -> None:
    good = user.commit({"a": "1"})
    user.git("switch", "-q", "--orphan", "other")
    with pytest.raises(RevisionError, match="share no history"):
        _range(user, home, good, user.commit({"b": "1"}))


def test_main_line_that_never_meets_good_says_so(user: UserRepo, home: Path) -> None:
    good = user.commit({"a": "1"})
    user.git("switch", "-q", "--orphan", "other")
    user.commit({"b": "1"})
    user.git("merge", "-q", "--allow-unrelated-histories", "-m", "join", "main")
    with pytest.raises(RevisionError, match="never meets good"):
        _range(user, home, good, user.head)


def test_shallow_clone_that_cuts_the_range_says_unshallow(user: UserRepo, home: Path, tmp_path: Path) -> None:
    commits = [user.commit({"a": str(idx)}) for idx in range(6)]
    user.git("branch", "old", commits[0])
    git(tmp_path, "clone", "-q", "--depth=3", "--no-single-branch", f"file://{user.path}", "shallow")
    repository = Repository.open(tmp_path / "shallow", home=home)
    assert commit_range(repository, Range((commits[3],), commits[5])).commits == tuple(commits[4:])
    with pytest.raises(RevisionError, match="cut off") as caught:
        commit_range(repository, Range((commits[0],), commits[5]))
    assert caught.value.hint == "git fetch --unshallow"
    with pytest.raises(RevisionError, match="unknown") as unknown:
        repository.resolve(commits[1])
    assert "--unshallow" in unknown.value.hint
    git(tmp_path / "shallow", "fetch", "-q", "--unshallow")
    again = Repository.open(tmp_path / "shallow", home=home)
    assert len(commit_range(again, Range((commits[0],), commits[5])).commits) == 5


def test_replaced_commits_are_read_as_recorded(user: UserRepo, home: Path) -> None:
    good, middle, bad = user.commit({"a": "0"}), user.commit({"a": "1"}), user.commit({"a": "2"})
    user.git("replace", "--graft", bad, good)
    assert user.open(home).resolve("main~1") == middle
    assert _range(user, home, good, bad).commits == (middle, bad)
