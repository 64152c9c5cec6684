"""All commits of a history with merges at once: the culprit among the ancestors is named, on whichever branch it lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_train.core.changes import make_point
from tests.support.merge_lab import MergeLab, answer_of, child_of, commits_inside, explained


def tangled_lab(folder: Path) -> MergeLab:
    """Return a history with a nested merge, a criss-cross of two branches, an octopus, and changes made in merges.

    main   good ─ a ───────── c ─── M1 ─ d ─────── OCT ─ e
    side      └─ s1 ─ s2 ─ X1 ─ s3 ┘              ┊
    other     └─ o1 ─ o2 ─ X2 ─ o3 ───────────────┤      X1 = side + o2, X2 = other + s2
    third            └─ t1 ─ N ───────────────────┘      N = third + u (off t1)
    """
    lab = MergeLab.create(folder)
    for name in ("side", "other", "third"):
        lab.branch(name, at="good")
    lab.commit("a", on="main")
    lab.commit("s1", "s2", on="side")
    lab.commit("o1", "o2", on="other")
    lab.merge("X1", lab.names["o2"], on="side", own="x1")
    lab.merge("X2", lab.names["s2"], on="other")
    lab.commit("s3", on="side")
    lab.commit("o3", on="other")
    lab.commit("t1", on="third")
    lab.branch("inner")
    lab.commit("u")
    lab.commit("t2", on="third")
    lab.merge("N", "inner", on="third")
    lab.commit("c", on="main")
    lab.merge("M1", "side")
    lab.commit("d", on="main")
    lab.merge("OCT", "other", "third")
    lab.commit("e", on="main")
    return lab


@pytest.fixture(scope="module")
def tangle(tmp_path_factory: pytest.TempPathFactory) -> MergeLab:
    return tangled_lab(tmp_path_factory.mktemp("tangle"))


COMMITS = ["a", "s1", "s2", "s3", "o1", "o2", "o3", "t1", "t2", "u", "c", "d", "e"]


@pytest.mark.parametrize("culprit", ["a", "s2", "o2", "o3", "u", "t2", "e", "x1"])
def test_full_search_names_any_commit_of_a_tangled_history(
    tangle: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, culprit: str
) -> None:
    lab = tangle
    lab.culprits = frozenset({culprit})
    lab.use(monkeypatch)
    desk = lab.desk()
    report = answer_of(lab, tmp_path, lab.question(first_parent=False), desk=desk)
    named = lab.names["X1" if culprit == "x1" else culprit]
    assert [part["id"] for part in report["culprits"][0]["changes"]] == [named]
    assert report["culprits"][0]["inside"] == [{"kind": "file", "id": culprit, "title": culprit}]
    assert ("is a merge: named is what its author changed" in explained(desk)) == (culprit == "x1")
    assert len(desk.store.list()) == 1, "nothing is left to descend into"


@pytest.mark.parametrize("culprit", ["s2", "x1", "o1", "o3", "u"])
def test_descent_and_full_search_name_the_same_commit_of_a_tangled_history(
    tangle: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, culprit: str
) -> None:
    lab = tangle
    lab.culprits = frozenset({culprit})
    lab.use(monkeypatch)
    report = answer_of(lab, tmp_path)
    whole = lab.names["M1" if culprit in ("s2", "x1", "o1") else "OCT"]
    assert report["culprits"][0]["changes"][0]["id"] == whole
    assert commits_inside(report) == [lab.names["X1" if culprit == "x1" else culprit]]


def conflicting_lab(folder: Path) -> MergeLab:
    """Return main: good m1 M m2, where M brings in s1 s2 s3 and its author resolved a conflict of s2 with m1."""
    lab = MergeLab.create(folder)
    lab.branch("side")
    lab.commit("s1")
    lab.repo.write("shared", "side\n")
    lab.commit("s2", "s3")
    lab.repo.git("switch", "-q", "main")
    lab.repo.write("shared", "main\n")
    lab.commit("m1")
    lab.repo.git("merge", "-q", "--no-commit", "side", check=False)
    lab.names["M"] = lab.repo.commit({"shared": "both\n"}, message="merge M")
    lab.commit("m2")
    return lab


@pytest.mark.parametrize("first_parent", [True, False])
def test_branch_that_conflicts_from_a_commit_on_is_narrowed_as_far_as_it_can_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_parent: bool
) -> None:
    lab = conflicting_lab(tmp_path)
    lab.use(monkeypatch)
    lab.culprits = frozenset({"s1"})
    report = answer_of(lab, tmp_path, lab.question(first_parent=first_parent))
    named = report["culprits"][0]["inside" if first_parent else "changes"][0]["id"]
    assert named == lab.names["s1"]
    lab.culprits = frozenset({"s3"})
    desk = lab.desk()
    lab.start(desk, lab.question(first_parent=first_parent), out=tmp_path / "open.json")
    part = child_of(desk, desk.store.list()[-1].id) if first_parent else desk.store.list()[0].id
    answer = desk.store.load(part).answer or {}
    assert answer["status"] == "candidates" and not answer["culprits"]
    assert {item["id"] for item in answer["candidates"]} == {lab.names[name] for name in ("s2", "s3", "M")}


def test_every_prefix_of_a_tangled_history_holds_exactly_its_commits_and_their_ancestors(tangle: MergeLab) -> None:
    question = tangle.question(first_parent=False)
    space = tangle.space(question)
    files = {tangle.names[name]: name for name in COMMITS} | {tangle.names["X1"]: "x1"}
    assert len(space.changes) == 18 and len(space.commits.merges) == 5
    held: set[str] = set()
    for prefix in range(len(space.changes) + 1):
        if prefix:
            commit = space.commits.commits[prefix - 1]
            ancestors = tangle.repo.git("rev-list", commit, f"^{tangle.names['good']}").split()
            held |= {files[commit]} if commit in files else set()
            assert {files[item] for item in ancestors if item in files} <= held, "each comes after its ancestors"
        tree = space.variant(make_point(prefix)).tree
        listed = set(tangle.repo.open(tangle.home).git.text("ls-tree", "--name-only", tree).split())
        assert listed - {"train.py", "good"} == held
