"""Variants of sets of changes, and the packs by which a worker gets them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bisect_train.changes import packs as packs_module
from bisect_train.changes import variant_packs as variant_packs_module
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.core.changes import GOOD_END, ChangeKind, FilePatch, Point, make_point
from tests.support.git_repos import BAD_CONFIG, GOOD_CONFIG, UserRepo, files_of, files_on_worker, git, question_of
from tests.support.properties import examples

NUM_COMMITS = 6


@dataclass
class Example:
    """A history in which commit idx adds the file `f{idx}`, and two config keys: which files there are shows the set."""

    user: UserRepo
    space: ChangeSpace
    good: str
    bad: str


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    folder = tmp_path_factory.mktemp("space")
    user = UserRepo.create(folder / "repo")
    good = user.commit({"train.py": "x"})
    for idx in range(NUM_COMMITS):
        user.commit({f"f{idx}": "x" * idx})
    question = question_of(
        good, user.head, command=("python", "train.py", "{config}"), good_config=GOOD_CONFIG, bad_config=BAD_CONFIG
    )
    return Example(user, build_space(user.open(folder / "home"), question), good, user.head)


_INDICES = st.sets(st.integers(0, NUM_COMMITS + 1), max_size=4)


@given(prefix=st.integers(0, NUM_COMMITS + 2), plus=_INDICES, minus=_INDICES)
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_variant_of_any_point_holds_exactly_its_changes(example: Example, prefix: int, plus: set[int], minus: set[int]) -> None:
    point = Point(prefix, tuple(sorted(plus)), tuple(sorted(minus)))
    variant = example.space.variant(point)
    held = [idx for idx in range(NUM_COMMITS + 2) if point.holds(idx)]
    files = files_of(example.user.open(example.space._repository.home).mirror, variant.tree)
    assert set(files) == {"train.py", *(f"f{idx}" for idx in held if idx < NUM_COMMITS)}
    assert variant.config is not None
    lr, layers = (0.2 if NUM_COMMITS in held else 0.1), (4 if NUM_COMMITS + 1 in held else 2)
    assert variant.config.text == f"lr: {lr}\nlayers: {layers}\nseed: 1\n"
    full = make_point(0, plus=tuple(held))
    assert example.space.variant(full).id == variant.id


def test_changes_are_commits_then_config_keys(example: Example) -> None:
    kinds = [change.kind for change in example.space.changes]
    assert kinds == [ChangeKind.COMMIT] * NUM_COMMITS + [ChangeKind.CONFIG] * 2
    assert [change.id for change in example.space.changes[NUM_COMMITS:]] == ["lr", "layers"]


def test_prefixes_are_the_users_commits(example: Example) -> None:
    commits = [example.space.variant(make_point(k)).commit for k in range(NUM_COMMITS + 3)]
    history = example.user.git("rev-list", "--reverse", "HEAD").split()
    assert commits == [*history, history[-1], history[-1]]
    assert example.space.variant(GOOD_END) == example.space.variant(make_point(0))


@pytest.mark.parametrize("point", [Point(99), Point(0, plus=(99,)), Point(-2)])
def test_point_outside_the_changes_is_refused(example: Example, point: Point) -> None:
    with pytest.raises(ValueError, match=r"must be in|numbered"):
        example.space.variant(point)


@pytest.mark.parametrize(
    "point", [make_point(0), make_point(3), make_point(8), make_point(6, minus=(2,)), make_point(0, plus=(4,))]
)
def test_packs_are_all_that_a_worker_needs(example: Example, point: Point, tmp_path: Path) -> None:
    variant = example.space.variant(point)
    packs = example.space.packs(variant)
    expected = {"train.py", *(f"f{idx}" for idx in range(NUM_COMMITS) if point.holds(idx))}
    assert set(files_on_worker(packs, variant.tree, tmp_path / "worker")) == expected
    assert git(tmp_path / "worker", "cat-file", "-t", variant.commit) == "commit"


def test_packs_share_one_big_one_and_are_kept(example: Example) -> None:
    space = example.space
    first = [pack.id for pack in space.packs(space.variant(make_point(1)))]
    middle = [pack.id for pack in space.packs(space.variant(make_point(6, minus=(1,))))]
    assert len(first) == 1
    assert middle[0] == first[0]
    assert len(middle) == 2
    again = build_space(space._repository, space._question)
    assert [pack.id for pack in again.packs(again.variant(make_point(6, minus=(1,))))] == middle


def test_torn_pack_on_disk_is_made_again(example: Example) -> None:
    space = example.space
    before = space.packs(space.variant(make_point(2)))
    for kept in (space._repository.home / "packs").rglob("*.pack"):
        kept.write_bytes(kept.read_bytes()[:-7])
    again = build_space(space._repository, space._question)
    assert again.packs(again.variant(make_point(2)))[0].data[-20:] == before[0].data[-20:]


def test_packs_of_a_huge_range_are_one_per_variant(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variant_packs_module, "MAX_RANGE_COMMITS", 3)
    space = build_space(example.space._repository, example.space._question)
    variant = space.variant(make_point(3))
    packs = space.packs(variant)
    assert len(packs) == 2
    assert len(files_on_worker(packs, variant.tree, tmp_path / "worker")) == 4
    assert packs_module.MAX_RANGE_COMMITS == 2000


def test_reproduce_gives_the_same_tree_by_hand(example: Example, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(example.user.path), "clone")
    for point in (make_point(4), make_point(6, minus=(1, 3)), make_point(1, plus=(4,)), GOOD_END):
        git(tmp_path / "clone", "reset", "-q", "--hard")
        for command in example.space.reproduce(point):
            git(tmp_path / "clone", *command.split()[1:])
        assert git(tmp_path / "clone", "write-tree") == example.space.variant(point).tree


def test_question_about_configs_only_has_no_commits(example: Example) -> None:
    question = question_of(example.bad, example.bad, good_config=GOOD_CONFIG, bad_config=BAD_CONFIG)
    space = build_space(example.space._repository, question)
    assert [change.id for change in space.changes] == ["lr", "layers"]
    assert space.variant(make_point(0)).tree == space.variant(make_point(2)).tree
    assert space.variant(make_point(0, plus=(1,))).config == FilePatch("train.yaml", "lr: 0.1\nlayers: 4\nseed: 1\n")


def test_override_puts_keys_on_the_command_line(example: Example) -> None:
    question = question_of(
        example.bad,
        example.bad,
        command=("python", "train.py", "{overrides}", "{config}"),
        good_config=GOOD_CONFIG,
        bad_config=BAD_CONFIG,
        override="--{key}={value}",
    )
    space = build_space(example.space._repository, question)
    assert space.variant(make_point(0)).command == ("python", "train.py", "{config}")
    assert space.variant(make_point(2)).command == ("python", "train.py", "--lr=0.2", "--layers=4", "{config}")
    assert space.variant(make_point(0, plus=(1,))).command[2:3] == ("--layers=4",)
    assert space.variant(make_point(2)).config == GOOD_CONFIG.patch


def test_config_in_the_repository_travels_with_the_commit(example: Example) -> None:
    question = question_of(example.good, example.bad, config_path="train.yaml", command=("python", "{overrides}"))
    variant = build_space(example.space._repository, question).variant(make_point(1))
    assert (variant.config, variant.config_path, variant.command) == (None, "train.yaml", ("python",))
