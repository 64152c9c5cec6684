"""What differs between the ends beside commits: each kind as changes, and the variants that any set of them gives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.changes.data import digest_path
from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.changes.tree_files import read_file
from bisect_train.core.changes import ChangeKind, DataLink, FilePatch, Point, Variant, make_point
from bisect_train.core.errors import InputError, RecipeError, UnbuildableError
from bisect_train.core.probe import EnvironmentSettings, ProbeJob, ProbeSpec, Rung
from bisect_train.core.question import ConfigEnd, ConfigHold, DataEnd, EndState, Inside, Question
from bisect_train_workers.command import Places, complete_command
from tests.support.git_repos import BAD_CONFIG, GOOD_CONFIG, UserRepo, question_of


@pytest.fixture
def user(tmp_path: Path) -> UserRepo:
    made = UserRepo.create(tmp_path / "repo")
    made.commit({"train.py": "x", "conf.yaml": "lr: 0.1  # kept\nlayers: 2\n"})
    made.commit({"train.py": "y"})
    made.commit({"conf.yaml": "lr: 0.3  # kept\nlayers: 4\n", "train.py": "z"})
    made.commit({"train.py": "end"})
    return made


@pytest.fixture
def repository(user: UserRepo, tmp_path: Path) -> Repository:
    return user.open(tmp_path / "home")


def one_commit(user: UserRepo, **more: object) -> Question:
    return replace(question_of(user.head, user.head, config_path="conf.yaml"), **more)  # type: ignore[arg-type]


def all_sets(space: ChangeSpace) -> list[tuple[frozenset[str], Variant]]:
    """Return every set of a space's changes, by keys, with its variant."""
    num = len(space.changes)
    sets = [chosen for size in range(num + 1) for chosen in itertools.combinations(range(num), size)]
    return [(frozenset(space.changes[i].key for i in chosen), space.variant(make_point(0, plus=chosen))) for chosen in sets]


def keys_of(space: ChangeSpace) -> list[str]:
    return [change.key for change in space.changes]


def test_variables_are_set_changed_and_taken_away_one_by_one(user: UserRepo, repository: Repository) -> None:
    good, bad = EndState(env=(("A", "1"), ("B", "1"), ("SAME", "x"))), EndState(env=(("A", "2"), ("C", "3"), ("SAME", "x")))
    space = build_space(repository, one_commit(user, good_state=good, bad_state=bad, env=(("COMMON", "c"),)))
    assert keys_of(space) == ["env:A", "env:B", "env:C"] and space.num_ordered == 0
    assert [change.title for change in space.changes] == ["A: 1 -> 2", "B: 1 -> not set", "C: not set -> 3"]
    for chosen, variant in all_sets(space):
        wanted = {"COMMON": "c", "SAME": "x", "A": "2" if "env:A" in chosen else "1"}
        wanted |= {} if "env:B" in chosen else {"B": "1"}
        wanted |= {"C": "3"} if "env:C" in chosen else {}
        assert dict(variant.env) == wanted


def test_data_of_each_place_is_a_change_by_content(user: UserRepo, repository: Repository, tmp_path: Path) -> None:
    for name, text in (("a1", "one"), ("a2", "two"), ("b1", "same"), ("b2", "same")):
        (tmp_path / name).write_text(text)

    def end(version: int) -> EndState:
        paths = [(tmp_path / f"{name}{version}", f"data/{name}") for name in "ab"]
        return EndState(data=tuple(DataEnd(DataLink(str(path), target), digest_path(path)) for path, target in paths))

    space = build_space(repository, one_commit(user, good_state=end(1), bad_state=end(2)))
    assert keys_of(space) == ["data:data/a"], "data with the same content are no change, wherever they lie"
    without, with_it = space.variant(Point(0)), space.variant(Point(1))
    assert [link.source for link in with_it.links] == [str(tmp_path / "a2"), str(tmp_path / "b1")]
    assert without.id != with_it.id and without.data != with_it.data
    (tmp_path / "elsewhere").write_text("one")
    moved = replace(
        end(1), data=(replace(end(1).data[0], link=DataLink(str(tmp_path / "elsewhere"), "data/a")), end(1).data[1])
    )
    again = build_space(repository, one_commit(user, good_state=moved, bad_state=end(2)))
    assert again.variant(Point(0)).id == without.id, "where data lie is no part of what they are"


def test_launch_settings_are_arguments_and_ranks(user: UserRepo, repository: Repository) -> None:
    command = ("python", "train.py", "--lr", "0.1", "--bf16")
    bad = EndState(command=("python", "train.py", "--lr", "0.3"), ranks=4)
    space = build_space(repository, one_commit(user, command=command, bad_state=bad, rung=Rung(5, 2)))
    assert keys_of(space) == ["launch:ranks", "launch:--lr", "launch:--bf16"]
    for chosen, variant in all_sets(space):
        lr, bf16 = "0.3" if "launch:--lr" in chosen else "0.1", () if "launch:--bf16" in chosen else ("--bf16",)
        assert variant.command == ("python", "train.py", "--lr", lr, *bf16)
        assert ProbeSpec(variant, Rung(5, 2)).ranks == (4 if "launch:ranks" in chosen else 2)


def configs_over(user: UserRepo, repository: Repository, hold: ConfigHold) -> ChangeSpace:
    good, bad = user.git("rev-parse", "HEAD~3"), user.head
    ends = {
        name: ConfigEnd(name, FilePatch("conf.yaml", read_file(repository.git, commit, "conf.yaml") or ""))
        for name, commit in (("good", good), ("bad", bad))
    }
    held = {ConfigHold.GOOD: ("good", "good"), ConfigHold.BAD: ("bad", "bad"), ConfigHold.SPLIT: ("good", "bad")}.get(hold)
    question = replace(question_of(good, bad, config_path="conf.yaml"), hold=hold)
    if held:
        question = replace(question, good_config=ends[held[0]], bad_config=ends[held[1]])
    return build_space(repository, question)


def states_of(space: ChangeSpace, repository: Repository) -> list[tuple[str, str]]:
    """Return train.py and conf.yaml of each prefix."""
    trees = [space.variant(Point(version)).tree for version in range(len(space.changes) + 1)]
    return [
        (read_file(repository.git, tree, "train.py") or "", read_file(repository.git, tree, "conf.yaml") or "")
        for tree in trees
    ]


def test_config_travels_is_held_or_split_from_the_commits(user: UserRepo, repository: Repository) -> None:
    low, high = "lr: 0.1  # kept\nlayers: 2\n", "lr: 0.3  # kept\nlayers: 4\n"
    programs = ["x", "y", "z", "end"]
    travel = configs_over(user, repository, ConfigHold.TRAVEL)
    assert states_of(travel, repository) == list(zip(programs, [low, low, high, high], strict=True))
    for hold, text in ((ConfigHold.GOOD, low), (ConfigHold.BAD, high)):
        space = configs_over(user, repository, hold)
        assert states_of(space, repository) == [(program, text) for program in programs] and len(space.changes) == 3
    split = configs_over(user, repository, ConfigHold.SPLIT)
    assert keys_of(split)[3:] == ["config:lr", "config:layers"] and split.num_ordered == 3
    between = "lr: 0.3  # kept\nlayers: 2\n"
    assert states_of(split, repository) == [*((program, low) for program in programs), ("end", between), ("end", high)]
    assert split.variant(Point(5)).id == travel.variant(Point(3)).id, "both ends are the commits as they are"
    assert split.variant(Point(0)).id == travel.variant(Point(0)).id


def test_only_and_exclude_leave_changes_as_the_bad_end_has_them(user: UserRepo, repository: Repository) -> None:
    good, bad = EndState(env=(("A", "1"), ("B", "1"))), EndState(env=(("A", "2"), ("B", "2")))
    both = replace(
        question_of(user.git("rev-parse", "HEAD~3"), user.head, command=("python", "{config}")),
        good_config=GOOD_CONFIG,
        bad_config=BAD_CONFIG,
        good_state=good,
        bad_state=bad,
    )
    space = build_space(repository, both)
    assert [change.kind for change in space.changes] == [ChangeKind.COMMIT] * 3 + [ChangeKind.ENV] * 2 + [ChangeKind.CONFIG] * 2
    last = space.variant(Point(len(space.changes)))
    only = build_space(repository, replace(both, only=("env",), exclude=("B",)))
    assert keys_of(only) == ["env:A"] and {change.key for change in only.held} == {"env:B", "config:lr", "config:layers"}
    assert only.variant(Point(1)).id == last.id, "the bad end stays the bad end"
    assert dict(only.variant(Point(0)).env) == {"A": "1", "B": "2"} and only.variant(Point(0)).commit == user.head
    with pytest.raises(InputError, match="--exclude NOPE"):
        build_space(repository, replace(both, exclude=("NOPE",)))
    # what is left out is as the good end has it
    part = build_space(repository, replace(both, left_out=("env:B",), exclude=("env:A",), part_of="1"))
    assert dict(part.variant(Point(len(part.changes))).env) == {"A": "2", "B": "1"}


def test_pieces_of_a_commit_take_its_place(user: UserRepo, repository: Repository) -> None:
    commit, parent = user.git("rev-parse", "HEAD~1"), user.git("rev-parse", "HEAD~2")
    question = replace(question_of(parent, commit), inside=Inside(commit=commit))
    space = build_space(repository, question)
    assert keys_of(space) == ["config:conf.yaml:lr", "config:conf.yaml:layers", "hunk:train.py:1,1"] and space.num_ordered == 0
    assert space.variant(Point(0)).commit == parent and space.variant(Point(3)).commit == commit
    chosen = space.variant(make_point(0, plus=(1,)))
    assert read_file(repository.git, chosen.tree, "conf.yaml") == "lr: 0.1  # kept\nlayers: 4\n"
    assert "-layers: 2\n+layers: 4\n" in space.patch_of([1]) and space.files_of(2) == ("train.py",)


def laid(space: ChangeSpace, *numbers: int) -> Sequence[str]:
    return space.variant(make_point(0, plus=numbers)).packages


def test_packages_that_differ_are_laid_each_at_one_end(user: UserRepo, repository: Repository) -> None:
    good, bad = EndState(packages=("a==1", "b==1", "same==5")), EndState(packages=("a==2", "c==3", "same==5"))
    space = build_space(repository, one_commit(user, good_state=good, bad_state=bad))
    assert keys_of(space) == ["package:a", "package:b", "package:c"]
    assert laid(space) == ("a==1", "b==1") and laid(space, 0) == ("a==2", "b==1") and laid(space, 0, 1, 2) == ("a==2", "c==3")
    whole = replace(question_of(user.head, user.head).settings, environment=EnvironmentSettings(mode="uv"))
    full = build_space(repository, one_commit(user, good_state=good, bad_state=bad, settings=whole))
    assert laid(full, 0) == ("a==2", "b==1", "same==5"), "an environment of its own has all of them"


def test_releases_are_a_chain(user: UserRepo, repository: Repository) -> None:
    good, bad = EndState(packages=("a==1", "b==1")), EndState(packages=("a==4", "b==2"))
    question = one_commit(
        user, good_state=good, bad_state=bad, inside=Inside("", "a", ("1", "2", "4")), left_out=("package:a",), part_of="whole"
    )
    space = build_space(repository, replace(question, exclude=("package:b",)))
    assert [change.title for change in space.changes] == ["a 2: 1 -> 2", "a 4: 2 -> 4"] and space.num_ordered == 2
    assert [laid(space, *range(num)) for num in range(3)] == [("a==1", "b==2"), ("a==2", "b==2"), ("a==4", "b==2")]
    assert space.versions_of(1) == ("2", "4")
    with pytest.raises(UnbuildableError, match="earlier ones"):
        laid(space, 1)


def test_each_commit_runs_with_what_its_own_requirements_name(user: UserRepo, repository: Repository) -> None:
    start = user.head
    user.commit({"requirements.txt": "-r base.txt\nopt==1.0\nhave==3\nloose>=2\n", "base.txt": "tool==7\n"})
    user.commit({"requirements.txt": "-r base.txt\nopt==2.0\nhave==3\nloose>=2\n"})
    question = question_of(start, user.head)
    environment = EnvironmentSettings(files=("requirements.txt",), installed=("have==3", "opt==1.0"))
    space = build_space(repository, replace(question, settings=replace(question.settings, environment=environment)))
    assert [laid(space, *range(num)) for num in range(3)] == [(), ("tool==7",), ("opt==2.0", "tool==7")]


def test_question_about_all_of_it_comes_back_from_json(user: UserRepo) -> None:
    state = EndState((("A", "1"),), ("a==1",), (DataEnd(DataLink("/x", "x"), "d"),), ("python", "t.py"), 2)
    settings = replace(question_of("a", "b").settings, environment=EnvironmentSettings(files=("r.txt",), find_links=("/w",)))
    question = one_commit(
        user,
        settings=settings,
        good_state=state,
        bad_state=EndState(),
        hold=ConfigHold.SPLIT,
        only=("env",),
        exclude=("A",),
        left_out=("env:B",),
        inside=Inside("", "a", ("1", "2"), "/repo"),
        package_repos=(("a", "/repo"),),
    )
    assert Question.of_json(question.to_json()) == question


def test_interpreter_and_image_are_changes(user: UserRepo, repository: Repository) -> None:
    good = EndState(python="/old/python", interpreter="3.10.1 aa", image="img@sha256:1")
    bad = EndState(python="/new/python", interpreter="3.11.2 bb", image="img@sha256:2")
    question = one_commit(user, good_state=good, bad_state=bad, launcher=("run", "--bind", "{out}", "{image}"))
    space = build_space(repository, question)
    assert [change.title for change in space.changes] == [
        "python (interpreter): 3.10.1 -> 3.11.2",
        "container image: img@sha256:1 -> img@sha256:2",
    ]
    for chosen, variant in all_sets(space):
        assert (variant.python, variant.interpreter) == (
            ("/new/python", "3.11.2 bb") if "env:python (interpreter)" in chosen else ("/old/python", "3.10.1 aa")
        )
        image = "img@sha256:2" if "env:container image" in chosen else "img@sha256:1"
        assert variant.launcher == ("run", "--bind", "{out}", image)
        job = ProbeJob("id", ProbeSpec(variant, Rung(1)), question.settings, "repo").with_own_settings()
        assert job.settings.python == variant.python
        places = Places(job.settings.python, "", "/out", 1)
        assert complete_command(job.spec, places) == ["run", "--bind", "/out", image, variant.python, "train.py"]


def test_data_of_a_variant_take_the_place_of_the_recipes(user: UserRepo) -> None:
    settings = replace(question_of("a", "b").settings, links=(DataLink("/old", "data"), DataLink("/kept", "more")))
    variant = Variant("t", "c", ("python",), links=(DataLink("/new", "data"),))
    job = ProbeJob("id", ProbeSpec(variant, Rung(1)), settings, "repo").with_own_settings()
    assert job.settings.links == (DataLink("/kept", "more"), DataLink("/new", "data"))


def test_keys_of_a_hydra_composition_are_given_as_overrides(user: UserRepo, repository: Repository) -> None:
    pytest.importorskip("hydra", reason="Hydra is an optional extra")
    user.commit(
        {
            "conf/train.yaml": "defaults:\n  - optimizer: sgd\n  - _self_\nlr: 0.1\nsteps: 5\n",
            "conf/optimizer/sgd.yaml": "name: sgd\nmomentum: 0.9\n",
            "conf/optimizer/adam.yaml": "name: adam\nlr: ${lr}\n",
        }
    )
    good, bad = EndState(hydra=("train", "lr=0.2")), EndState(hydra=("train", "lr=0.3", "optimizer=adam"))
    question = one_commit(user, good_state=good, bad_state=bad, command=("python", "{overrides}"), hydra_dir="conf")
    space = build_space(repository, question)
    assert {change.id for change in space.changes} >= {"lr", "optimizer.name", "optimizer.momentum", "optimizer.lr"}
    number = next(idx for idx, change in enumerate(space.changes) if change.id == "lr")
    assert space.variant(Point(0)).command == ("python", "lr=0.2")
    assert space.variant(make_point(0, plus=(number,))).command == ("python", "lr=0.2", "lr=0.3")
    with pytest.raises(RecipeError, match="no Hydra config directory"):
        build_space(repository, replace(question, hydra_dir="nowhere"))


def test_hydra_directory_with_a_submodule_and_links_is_composed(user: UserRepo, repository: Repository) -> None:
    pytest.importorskip("hydra", reason="Hydra is an optional extra")
    user.commit({"conf/train.yaml": "defaults: [optimizer: sgd]\n", "conf/optimizer/base.yaml": "lr: 1\n"})
    (user.path / "conf/optimizer/sgd.yaml").symlink_to("base.yaml")
    (user.path / "conf/outside.yaml").symlink_to("/etc/hostname")
    user.git("add", "-A")
    user.git("update-index", "--add", "--cacheinfo", f"160000,{user.head},conf/shared")
    user.git("commit", "-q", "-m", "a submodule among the configs")
    ends = {"good_state": EndState(hydra=("train",)), "bad_state": EndState(hydra=("train", "optimizer.lr=2"))}
    question = one_commit(user, **ends, command=("python", "{overrides}"), hydra_dir="conf")
    assert keys_of(build_space(repository, question)) == ["config:optimizer.lr"]
