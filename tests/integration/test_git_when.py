"""`when` on real histories: which command, variables, data and patterns each state gets, synthetic states too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.changes.data import digest_links
from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.cli.asked import Asked
from bisect_train.cli.whens import ask_whens, commands_of
from bisect_train.core.changes import GOOD_END, DataLink, make_point
from bisect_train.core.errors import InputError, RecipeError
from bisect_train.core.probe import Rung
from bisect_train.core.question import Range
from bisect_train.core.when import When
from bisect_train.recipe import DataRecipe, Recipe, WhenRecipe
from tests.support.git_repos import UserRepo, question_of

OLD, NEW = ("python", "train.py", "old", "{overrides}"), ("python", "train.py", "--new", "{overrides}")


@pytest.fixture
def user(tmp_path: Path) -> UserRepo:
    return UserRepo.create(tmp_path / "repo")


def history(user: UserRepo) -> list[str]:
    """Return five commits; the third has the new command line and a file `conf/new.yaml`."""
    texts = ["args = old\n", "args = old\n", "args = new\n", "args = new\n", "args = new\n"]
    extra = {2: {"conf/new.yaml": "a: 1\n"}}
    return [user.commit({"train.py": f"# {text}", f"f{idx}": "x", **extra.get(idx, {})}) for idx, text in enumerate(texts)]


def space_of(user: UserRepo, commits: list[str], home: Path, *whens: When) -> ChangeSpace:
    question = replace(question_of(commits[0], commits[-1], command=NEW), whens=whens, rung=Rung(1, overrides=("--n=1",)))
    question = replace(question, command=(*NEW[:-1], "--n=1", "{overrides}"))
    return build_space(user.open(home), question)


def test_command_follows_what_the_tree_holds(user: UserRepo, tmp_path: Path) -> None:
    commits = history(user)
    space = space_of(user, commits, tmp_path / "home", When("r", file="train.py", contains="= old$", command=OLD))
    commands = [space.variant(make_point(num)).command for num in range(5)]
    assert commands[:2] == [("python", "train.py", "old", "--n=1")] * 2
    assert commands[2:] == [("python", "train.py", "--new", "--n=1")] * 3


def test_synthetic_state_has_the_command_of_its_own_tree(user: UserRepo, tmp_path: Path) -> None:
    commits = history(user)
    space = space_of(user, commits, tmp_path / "home", When("r", file="train.py", contains="= old$", command=OLD))
    assert space.variant(make_point(4, minus=(1,))).command[2] == "old"  # the bad end without the commit of the new one
    assert space.variant(make_point(0, plus=(1,))).command[2] == "--new"


def test_since_and_until_are_about_what_a_state_has(user: UserRepo, tmp_path: Path) -> None:
    commits = history(user)
    since = When("r", since=commits[3], env=(("SINCE", "1"),))
    until = When("r", until=commits[2], env=(("UNTIL", "1"),))
    space = space_of(user, commits, tmp_path / "home", since, until)
    names = [[name for name, _ in space.variant(make_point(num)).env] for num in range(5)]
    assert names == [["UNTIL"], ["UNTIL"], [], ["SINCE"], ["SINCE"]]
    assert [name for name, _ in space.variant(make_point(4, minus=(2,))).env] == []
    assert [name for name, _ in space.variant(make_point(4, minus=(1,))).env] == ["SINCE", "UNTIL"]
    assert [name for name, _ in space.variant(make_point(0, plus=(2,))).env] == ["SINCE", "UNTIL"]


def test_commit_of_a_merged_branch_is_there_from_its_merge_on(user: UserRepo, tmp_path: Path) -> None:
    good = user.commit({"train.py": "x"})
    user.git("checkout", "-q", "-b", "side")
    inner = user.commit({"side": "x"})
    user.git("checkout", "-q", "main")
    commits = [good, user.commit({"a": "x"}), user.merge("side"), user.commit({"b": "x"})]
    space = space_of(user, commits, tmp_path / "home", When("r", since=inner, env=(("SINCE", "1"),)))
    assert [bool(space.variant(make_point(num)).env) for num in range(4)] == [False, False, True, True]


def test_good_end_beside_the_chain_is_asked_itself(user: UserRepo, tmp_path: Path) -> None:
    user.commit({"train.py": "x"})
    user.git("checkout", "-q", "-b", "release")
    good = user.commit({"fix": "x"})
    user.git("checkout", "-q", "main")
    bad = user.commit({"a": "x"})
    space = space_of(
        user,
        [good, bad],
        tmp_path / "home",
        When("r", exists="fix", env=(("F", "1"),)),
        When("r", since=good, env=(("G", "1"),)),
    )
    assert [name for name, _ in space.variant(GOOD_END).env] == ["F", "G"]
    assert space.variant(make_point(1)).env == ()


def test_data_patterns_and_variables_are_of_the_variant(user: UserRepo, tmp_path: Path) -> None:
    commits = history(user)
    (tmp_path / "new.bin").write_bytes(b"1")
    link = DataLink(str(tmp_path / "new.bin"), "data/new.bin")
    when = When("r", exists="conf", data=((link, digest_links((link,))),), patterns=(("loss", "new (.*)"),))
    space = space_of(user, commits, tmp_path / "home", when)
    first, last = space.variant(make_point(0)), space.variant(make_point(4))
    assert (first.links, first.patterns) == ((), ())
    assert (last.links, last.patterns) == ((link,), (("loss", "new (.*)"),))
    assert first.data != last.data and len({first.id, last.id}) == 2


def test_step_to_another_choice_counts_as_read(user: UserRepo, tmp_path: Path) -> None:
    commits = history(user)
    plain = space_of(user, commits, tmp_path / "home")
    space = space_of(user, commits, tmp_path / "home", When("r", since=commits[3], env=(("SINCE", "1"),)))
    assert space.num_main_line == plain.num_main_line == 4
    assert all(step is not None for step in plain.file_changes(0, 4))
    assert [step is None for step in space.file_changes(0, 4)] == [False, False, True, False]
    assert [step is None for step in space.file_changes(2, 4)] == [True, False]


def test_blocks_of_a_recipe_are_resolved(user: UserRepo, tmp_path: Path) -> None:
    commits = history(user)
    user.git("tag", "v3", commits[2])
    repository = Repository.open(user.path, home=tmp_path / "home")
    block = WhenRecipe("recipe.yaml, line 3: when[0]", since="v3", command=OLD, data=DataRecipe((DataLink("f0", "x"),)))
    [when] = ask_whens(Asked(), Recipe(whens=(block,)), repository)
    assert (when.since, when.command) == (commits[2], OLD)
    assert when.data[0][0] == DataLink(str(user.path / "f0"), "x") and when.data[0][1]
    ends = Range((commits[0],), commits[4])
    assert commands_of([when], NEW, repository, ends) == (NEW, OLD)
    [own] = ask_whens(Asked(command=("python", "other.py")), Recipe(whens=(block,)), repository)
    assert own.command == ()
    with pytest.raises(RecipeError, match=r"recipe\.yaml, line 3: when\[0\]\.until: unknown revision 'v4'"):
        ask_whens(Asked(), Recipe(whens=(replace(block, until="v4"),)), repository)
    with pytest.raises(InputError, match="there is no such data"):
        ask_whens(Asked(), Recipe(whens=(replace(block, data=DataRecipe((DataLink("gone", "x"),))),)), repository)
    with pytest.raises(InputError, match="--bad-command and `when: command:`"):
        ask_whens(Asked(bad_command="python b.py"), Recipe(whens=(block,)), repository)
