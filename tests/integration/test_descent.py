"""Into a merged branch: a first-parent search names a merge, and a bisection of its own finds what inside it did it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.cli.descending import Whole, look_into
from bisect_train.cli.desk import find_bisection
from bisect_train.cli.reopening import reopen, report_of
from bisect_train.coordinator import OpeningKind, children_of, openings
from bisect_train.core.fingerprint import Ending, EndingKind
from bisect_train.core.probe import ProbeJob
from bisect_train.core.question import Limits, Question
from bisect_train.report import ReportData, report_to_json
from bisect_train.search.terms import Answer, Culprit
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SimulatedRun
from tests.support.git_repos import BAD_CONFIG, GOOD_CONFIG, git
from tests.support.merge_lab import (
    MergeLab,
    answer_of,
    by_hand,
    child_of,
    commits_inside,
    explained,
    kinds_of,
    made_lab,
    simple_lab,
)
from tests.support.simulated_bisection import fingerprint_of

lab = made_lab


# ---- what is found -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", ["b1", "b3", "b5"])
def test_descent_names_the_commit_of_the_merged_branch(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, culprit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.culprits = frozenset({culprit})
    lab.use(monkeypatch)
    desk = lab.desk()
    report = answer_of(lab, tmp_path, desk=desk)
    assert report["status"] == "isolated"
    assert [part["id"] for part in report["culprits"][0]["changes"]] == [lab.names["M"]]
    inside = report["culprits"][0]["inside"]
    assert inside[0] == {"kind": "commit", "id": lab.names[culprit], "title": f"add {culprit}"}
    assert inside[1:] == [{"kind": "file", "id": culprit, "title": culprit}]
    said = f'inside it: commit {lab.names[culprit][:8]} "add {culprit}" (proved by fresh runs).'
    assert report["summary"].endswith(said)
    assert said in " ".join(capsys.readouterr().out.split())
    assert report["triage"]["look_first"][:2] == [f"commit {lab.names[culprit][:8]} add {culprit}", culprit]
    assert lab.num_opened == 1, "one executor serves both"


def test_descent_is_a_bisection_of_its_own_and_its_cost_counts(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.culprits = frozenset({"b3"})
    lab.use(monkeypatch)
    desk = lab.desk()
    report = answer_of(lab, tmp_path, desk=desk)
    whole = find_bisection(desk.store, "last")
    part = desk.store.load(child_of(desk, whole.id))
    assert whole.id == report["id"] and part.id > whole.id, "`last` is the whole"
    assert part.title == f"inside merge {lab.names['M'][:8]} of {whole.id}" and part.status == "finished"
    question = Question.of_json(part.question)
    assert question.range.goods == (lab.names["m2"],) and question.range.bad == lab.names["M"]
    assert (part.answer or {})["culprits"][0]["changes"][0]["id"] == lab.names["b3"]
    finished = kinds_of(desk, whole.id)["probe_finished"], kinds_of(desk, part.id)["probe_finished"]
    assert report["cost"]["probes"] == sum(finished) == len(lab.ran)
    assert kinds_of(desk, part.id)["probe_reused"] > 0, "what the whole has shown of the merge and before it is known"
    stored = report_of(desk, reopen(desk, whole.id))
    assert report_to_json(stored) == whole.answer == report


def test_merge_whose_author_broke_it_is_named_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = simple_lab(tmp_path, own="resolved")
    lab.culprits = frozenset({"resolved"})
    lab.use(monkeypatch)
    report = answer_of(lab, tmp_path)
    assert commits_inside(report) == [lab.names["M"]]
    assert report["culprits"][0]["inside"][1:] == [{"kind": "file", "id": "resolved", "title": "resolved"}]
    assert "inside it: the merge itself, by what its author changed beyond merging" in report["summary"]


def test_branch_of_one_commit_is_named_for_the_merge_that_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = MergeLab.create(tmp_path)
    lab.branch("side")
    lab.commit("b1")
    lab.commit("m1", on="main")
    lab.merge("M", "side")
    lab.commit("m2", "m3", on="main")
    lab.culprits = frozenset({"b1"})
    lab.use(monkeypatch)
    desk = lab.desk()
    assert commits_inside(answer_of(lab, tmp_path, desk=desk)) == [lab.names["b1"]]
    part = child_of(desk, find_bisection(desk.store, "last").id)
    assert kinds_of(desk, part)["result_shared"] > 0, "the branch's commit and the merge have the same files"


@pytest.mark.parametrize("culprit", ["n1", "n2", "b2", "b3"])
def test_one_descent_reaches_into_nested_merges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, culprit: str) -> None:
    lab = MergeLab.create(tmp_path)
    lab.branch("side")
    lab.commit("b1")
    lab.branch("nested")
    lab.commit("n1", "n2")
    lab.commit("b2", on="side")
    lab.merge("N", "nested", on="side")
    lab.commit("m1", on="main")
    lab.merge("back", "main", on="side")  # the branch catches up with main before it is merged
    lab.commit("b3", on="side")
    lab.commit("m2", on="main")
    lab.merge("M", "side")
    lab.commit("m3", on="main")
    lab.culprits = frozenset({culprit})
    lab.use(monkeypatch)
    report = answer_of(lab, tmp_path)
    assert report["culprits"][0]["changes"][0]["id"] == lab.names["M"]
    assert commits_inside(report) == [lab.names[culprit]]


def test_inside_that_cannot_be_narrowed_blames_no_commit(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.culprits = frozenset({"b3"})

    def script(job: ProbeJob) -> SimulatedRun:
        files = lab.files_of(job)
        if "b2" in files and "b5" not in files:
            return SimulatedRun(fingerprint_of(1.0, seed_idx=0, ending=Ending(EndingKind.CRASHED, "does not even start")))
        return lab.run_of(job)

    lab.use(monkeypatch, script)
    report = answer_of(lab, tmp_path)
    assert report["status"] == "isolated" and commits_inside(report) == []
    assert report["culprits"][0]["changes"][0]["id"] == lab.names["M"]
    open_text = next(text for text in report["culprits"][0]["conditions"] if text.startswith("inside it: not narrowed"))
    assert lab.names["b3"][:8] in open_text and open_text in report["summary"]


def test_sides_that_do_not_separate_again_leave_the_merge_named(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something outside git has changed meanwhile: the runs of the part all train well."""
    lab.culprits = frozenset({"b3"})
    desk = lab.desk()

    def script(job: ProbeJob) -> SimulatedRun:
        if len(desk.store.list()) == 1:
            return lab.run_of(job)
        return SimulatedRun(fingerprint_of(1.0, seed_idx=job.spec.seed_idx))

    lab.use(monkeypatch, script)
    report = answer_of(lab, tmp_path, lab.question(limits=Limits(reuse=False)), desk=desk)
    assert report["status"] == "isolated" and commits_inside(report) == []
    assert "inside it: nothing found" in report["summary"]


def test_merge_named_beside_config_keys_is_looked_into_with_the_good_config(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.culprits = frozenset({"b4"})
    configs = set()

    def script(job: ProbeJob) -> SimulatedRun:
        if len(desk.store.list()) > 1:
            configs.add(job.spec.variant.config)
        return lab.run_of(job)

    desk = lab.desk()
    lab.use(monkeypatch, script)
    question = lab.question(good_config=GOOD_CONFIG, bad_config=BAD_CONFIG, command=("python", "train.py", "{config}"))
    assert commits_inside(answer_of(lab, tmp_path, question, desk=desk)) == [lab.names["b4"]]
    assert configs == {GOOD_CONFIG.patch}


def test_paths_that_no_commit_of_the_branch_touches_do_not_stop_it(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.culprits = frozenset({"b4"})
    lab.use(monkeypatch)
    assert commits_inside(answer_of(lab, tmp_path, lab.question(paths=("m2",)))) == [lab.names["b4"]]
    assert commits_inside(answer_of(lab, tmp_path, lab.question(paths=("b4",)))) == [lab.names["b4"]]


# ---- when nothing is looked into -----------------------------------------------------------------------------------


def test_no_descend_leaves_the_merge_and_says_how_to_go_on(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.culprits = frozenset({"b3"})
    lab.use(monkeypatch)
    desk = lab.desk()
    report = answer_of(lab, tmp_path, lab.question(descend=False), desk=desk)
    assert commits_inside(report) == [] and len(desk.store.list()) == 1
    assert by_hand(lab) in explained(desk) and "--no-descend" in explained(desk)


def test_budget_is_shared_and_where_it_is_spent_there_is_no_descent(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.culprits = frozenset({"b3"})
    lab.use(monkeypatch, slots=1)
    desk = lab.desk()
    answer_of(lab, tmp_path, lab.question(descend=False), desk=desk)
    num = kinds_of(desk, desk.store.list()[0].id)["probe_finished"]
    spent = lab.desk()
    report = answer_of(lab, tmp_path, lab.question(limits=Limits(max_probes=num)), desk=spent)
    assert report["status"] == "isolated" and len(spent.store.list()) == 1
    assert f"the budget of {num} probes is spent" in explained(spent) and by_hand(lab) in explained(spent)
    short = lab.desk()
    report = answer_of(lab, tmp_path, lab.question(limits=Limits(max_probes=num + 2)), desk=short)
    part = child_of(short, report["id"])
    assert Question.of_json(short.store.load(part).question).limits.max_probes == 2
    assert kinds_of(short, part)["probe_finished"] <= 2 and commits_inside(report) == []
    assert "inside it: " in report["summary"] and report["status"] == "isolated"


def test_gpu_hours_left_are_what_the_descent_may_use(lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.culprits = frozenset({"b3"})
    lab.use(monkeypatch)
    desk = lab.desk()
    question = lab.question(limits=Limits(gpu_hours=1.0))
    question = replace(question, settings=replace(question.settings, gpus=1.0))
    report = answer_of(lab, tmp_path, question, desk=desk)
    used_s = sum(probe.result.wall_s for probe in desk.store.results(report["id"]))
    left = Question.of_json(desk.store.load(child_of(desk, report["id"])).question).limits.gpu_hours
    assert left is not None and 0.9 < left <= 1.0 - used_s / 3600


def test_merge_that_brings_no_commit_is_all_its_author_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = MergeLab.create(tmp_path)
    lab.commit("m1", "m2")
    lab.repo.write("evil", "1\n")
    lab.repo.git("add", "-A")
    merge = lab.repo.git("commit-tree", "-p", "HEAD", "-p", "HEAD~1", "-m", "evil", lab.repo.git("write-tree"))
    lab.repo.git("reset", "-q", "--hard", merge)
    lab.commit("m3")
    lab.culprits = frozenset({"evil"})
    lab.use(monkeypatch)
    desk = lab.desk()
    report = answer_of(lab, tmp_path, desk=desk)
    assert report["culprits"][0]["changes"][0]["id"] == merge and len(desk.store.list()) == 1
    assert "brings in no commit of its own" in explained(desk)


def test_branch_that_a_shallow_clone_cuts_off_is_said_so(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.culprits = frozenset({"b3"})
    clone = tmp_path / "clone" / "repo"
    git(tmp_path, "clone", "-q", f"file://{lab.repo.path}", str(clone))
    (clone / ".git" / "shallow").write_text(f"{lab.names['b3']}\n")  # main itself is whole, only the branch is cut off
    other = replace(lab, repo=replace(lab.repo, path=clone), home=tmp_path / "clone" / "home")
    other.home.mkdir()
    other.use(monkeypatch)
    desk = other.desk()
    report = answer_of(other, tmp_path, desk=desk)
    assert report["culprits"][0]["changes"][0]["id"] == lab.names["M"] and len(desk.store.list()) == 1
    assert "cut off in this shallow clone" in explained(desk)


def test_only_single_merges_of_a_proved_answer_are_looked_into_at_most_three(tmp_path: Path) -> None:
    lab = MergeLab.create(tmp_path)
    for idx in range(4):
        lab.branch(f"side{idx}")
        lab.commit(f"b{idx}")
        lab.commit(f"m{idx}", on="main")
        lab.merge(f"M{idx}", f"side{idx}")
    question = lab.question()
    space = lab.space(question)
    merges = sorted(space.commits.merges)
    assert [space.commits.commits[idx] for idx in merges] == [lab.names[f"M{idx}"] for idx in range(4)]

    def answer(status: str, *named: tuple[int, ...]) -> Answer:
        return Answer(status, "", tuple(Culprit(changes, 1.0, (), True, True) for changes in named))

    every = answer("several", *((idx,) for idx in reversed(merges)))
    assert [item.idx for item in openings(every, space)] == list(reversed(merges)), "as they are ranked"
    assert {item.kind for item in openings(every, space)} == {OpeningKind.MERGE}
    assert openings(answer("isolated", (merges[0], merges[1])), space) == (), "a pair"
    (plain,) = openings(answer("isolated", (0,)), space)
    assert plain.kind is OpeningKind.COMMIT, "no merge"
    assert openings(answer("candidates", (merges[0],)), space) == (), "not proved"
    full = lab.space(lab.question(first_parent=False))
    assert openings(answer("isolated", (max(full.commits.merges),)), full) == (), "its branch was searched"

    store, asked = MemoryStore(), list[str]()
    name = store.create(question.to_json(), title="lab")
    whole = Whole(store, lab.home, name, question, space, every)

    def report_part(child: str) -> ReportData:
        asked.append(child)
        return report_of(lab.desk(store), reopen(lab.desk(store), child))

    found = look_into(whole, report_part=report_part, may_ask=True)
    assert [part.opened for part in found] == [lab.names[f"M{idx}"] for idx in (3, 2, 1, 0)]
    assert asked == [part.bisection for part in found[:3]] == list(children_of(store.events(name)).values())
    assert found[3].bisection == "" and "first 3" in found[3].reason and found[3].by_hand
    assert [part.clause for part in found[:3]] == ["inside it: the search is not finished"] * 3
    again = look_into(whole, report_part=report_part, may_ask=True)
    assert again == found and len(store.list()) == 4, "each is asked once"
