"""A search inside a merge that is interrupted, cancelled, killed and gone on with; what the commands show of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bisect_train.cli.desk import Desk, find_bisection, find_stored
from bisect_train.cli.main import group
from bisect_train.cli.reopening import reopen, report_of
from bisect_train.coordinator import Opening, OpeningKind, ask_inside, children_of, look_inside
from bisect_train.coordinator.observing import active_s
from bisect_train.core.errors import InterruptedByUser, MachineError
from bisect_train.core.probe import ProbeJob
from bisect_train.core.question import Limits
from bisect_train.store.contract import StoredEvent
from bisect_train.store.home import open_store
from bisect_train_workers.simulated import SimulatedRun
from tests.support.merge_lab import (
    MergeLab,
    Script,
    answer_of,
    by_hand,
    child_of,
    commits_inside,
    made_lab,
)

lab = made_lab


# ---- stopped and gone on with --------------------------------------------------------------------------------------


def stopped_inside(lab: MergeLab, desk: Desk, after: int, error: BaseException) -> Script:
    """Return a script that raises at the start of the n-th probe of the bisection inside the merge."""
    num = 0

    def script(job: ProbeJob) -> SimulatedRun:
        nonlocal num
        num += len(desk.store.list()) > 1
        if num > after:
            raise error
        return lab.run_of(job)

    return script


@pytest.mark.parametrize("after", [0, 3, 8])
def test_interrupted_inside_a_merge_the_whole_is_resumed_to_the_same_answer(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    lab.culprits = frozenset({"b3"})
    desk = lab.desk()
    with monkeypatch.context() as context:
        lab.use(context, stopped_inside(lab, desk, after, KeyboardInterrupt()), slots=1)
        with pytest.raises(InterruptedByUser, match="interrupted") as caught:
            lab.start(desk, lab.question(), out=tmp_path / "no.json")
    whole = find_bisection(desk.store, "last")
    part = child_of(desk, whole.id)
    assert f"resume {whole.id}" in caught.value.hint, "the whole is what to resume"
    assert {whole.status, desk.store.load(part).status} == {"interrupted"}
    assert not desk.store.is_running(whole.id) and not desk.store.is_running(part)
    report = report_of(desk, reopen(desk, whole.id))
    assert "inside it: the search is not finished" in report.summary and report.culprits[0].inside[0].kind == "file"
    own = [event for event in desk.store.events(whole.id) if "child" not in event.data]
    again = StoredEvent(99, "started", own[-1].time_s + 1000.0, {})
    assert active_s([*desk.store.events(whole.id), again]) == own[-1].time_s - own[0].time_s, "time is not counted twice"
    events = [*desk.store.events(whole.id), *desk.store.events(part)]
    finished = {event.data["key"] for event in events if event.kind == "probe_finished"}
    lab.ran.clear()
    lab.use(monkeypatch, slots=1)
    assert lab.resume(desk, whole.id, out=tmp_path / "report.json") == 0
    assert commits_inside(json.loads((tmp_path / "report.json").read_text())) == [lab.names["b3"]]
    assert child_of(desk, whole.id) == part and len(desk.store.list()) == 2
    assert finished and not finished & set(lab.ran), "no finished probe is run again"


def test_error_of_the_machine_inside_a_merge_leaves_the_whole_to_be_resumed(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.culprits = frozenset({"b3"})
    desk = lab.desk()
    lab.use(monkeypatch, stopped_inside(lab, desk, 2, MachineError("the disk is full")))
    with pytest.raises(MachineError, match="disk is full"):
        lab.start(desk, lab.question(), out=tmp_path / "no.json")
    assert {stored.status for stored in desk.store.list()} == {"interrupted"}


@pytest.mark.parametrize("which", ["whole", "part"])
def test_cancelling_the_whole_or_its_part_stops_both(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    lab.culprits = frozenset({"b3"})
    desk = lab.desk()

    def script(job: ProbeJob) -> SimulatedRun:
        if len(desk.store.list()) > 1:
            part, whole = (stored.id for stored in desk.store.list())
            desk.store.request_cancel(whole if which == "whole" else part)
        return lab.run_of(job)

    with monkeypatch.context() as context:
        lab.use(context, script)
        with pytest.raises(InterruptedByUser, match="cancelled") as caught:
            lab.start(desk, lab.question(), out=tmp_path / "no.json")
    whole = find_bisection(desk.store, "last")
    assert f"resume {whole.id}" in caught.value.hint
    assert {stored.status for stored in desk.store.list()} == {"cancelled"}
    lab.use(monkeypatch)
    assert lab.resume(desk, whole.id, out=tmp_path / "report.json") == 0  # the old request does not stop it again
    assert commits_inside(json.loads((tmp_path / "report.json").read_text())) == [lab.names["b3"]]


def test_part_stored_before_a_kill_but_not_noted_is_taken_up(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.culprits = frozenset({"b3"})
    lab.use(monkeypatch)
    desk = lab.desk()
    answer_of(lab, tmp_path, lab.question(descend=False), desk=desk)
    stored = desk.store.list()[0]
    question = lab.question()
    space = lab.space(question)
    idx = next(iter(space.commits.merges))
    merge = Opening(idx, OpeningKind.MERGE, lab.names["M"])
    inside, _ = look_inside(
        question, space, merge, repository=lab.repo.open(lab.home), part_of=stored.id, limits=question.limits
    )
    orphan = desk.store.create(inside.to_json(), title="killed right after")
    assert ask_inside(desk.store, inside, merge) == orphan
    assert children_of(desk.store.events(stored.id)) == {lab.names["M"]: orphan}
    assert find_bisection(desk.store, "last").id == find_stored(desk.store, "last").id == stored.id


# ---- the command line ----------------------------------------------------------------------------------------------


@pytest.fixture
def cli(lab: MergeLab, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("BISECT_TRAIN_HOME", str(lab.home))
    monkeypatch.setenv("COLUMNS", "200")
    return CliRunner()


def run_cli(cli: CliRunner, *args: str) -> str:
    result = cli.invoke(group, args, standalone_mode=False, catch_exceptions=False)
    return result.output


def test_commands_take_the_whole_for_last_and_show_its_part_with_it(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CliRunner
) -> None:
    lab.culprits = frozenset({"b3"})
    lab.use(monkeypatch)
    args = ("--good", lab.names["good"], "--repo", str(lab.repo.path), "--out", str(tmp_path / "out"))
    output = run_cli(cli, "run", *args, "--", "python", "train.py")
    merge = lab.names["M"][:8]
    assert f'inside merge {merge} "merge M": 5 commits and the merge itself' in output
    store = open_store(lab.home)
    part, whole = (stored.id for stored in store.list())
    lines = [line for line in run_cli(cli, "list").splitlines() if "isolated" in line]
    assert [line.split()[0] for line in lines] == [whole, part], "the part stands below"
    status = run_cli(cli, "status")
    assert status.index(whole) < status.index(f"inside merge {merge} of {whole}, bisection {part}")
    (noted,) = (line for line in run_cli(cli, "log", "last").splitlines() if "descended" in line)
    assert noted.endswith(f"opened={lab.names['M']}  child={part}")
    assert f"bisection {whole} is not running" in run_cli(cli, "cancel")
    lab.ran.clear()
    culprit = f'inside it: commit {lab.names["b3"][:8]} "add b3"'
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<h2>Inside the culprit</h2>" in page and f"commit {lab.names['b3'][:8]}: add b3" in page
    for text in (run_cli(cli, "report"), run_cli(cli, "resume"), page):
        assert culprit in " ".join(text.replace("&#34;", '"').split())
    assert "FOUND THE CULPRIT" in run_cli(cli, "report", part) and not lab.ran
    store.close()


def test_resume_of_a_part_goes_on_with_the_whole(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CliRunner
) -> None:
    lab.culprits = frozenset({"b3"})
    store = open_store(lab.home)
    desk = Desk(lab.home, store)
    with monkeypatch.context() as context:
        lab.use(context, stopped_inside(lab, desk, 2, KeyboardInterrupt()))
        with pytest.raises(InterruptedByUser):
            lab.start(desk, lab.question(), out=tmp_path / "no.json")
    part, whole = (stored.id for stored in store.list())
    assert f"`bisect-train resume {whole}` goes on" in run_cli(cli, "status")
    lab.use(monkeypatch)
    output = " ".join(run_cli(cli, "resume", part).split())
    assert f"inside it: commit {lab.names['b3'][:8]}" in output
    assert {stored.status for stored in store.list()} == {"finished"} and store.list()[0].id == part
    store.close()


def test_no_descend_is_an_option_of_run(lab: MergeLab, monkeypatch: pytest.MonkeyPatch, cli: CliRunner) -> None:
    lab.culprits = frozenset({"b3"})
    lab.use(monkeypatch)
    args = ("--good", lab.names["good"], "--repo", str(lab.repo.path), "--no-descend")
    output = " ".join(run_cli(cli, "run", *args, "--", "python", "train.py").split())
    assert by_hand(lab) in output and "inside it:" not in output


def test_larger_budget_of_the_whole_is_what_the_search_inside_may_use(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CliRunner
) -> None:
    lab.culprits = frozenset({"b3"})
    lab.use(monkeypatch, slots=1)
    store = open_store(lab.home)
    desk = Desk(lab.home, store)
    answer_of(lab, tmp_path, lab.question(descend=False), desk=desk)
    num = sum(event.kind == "probe_finished" for event in store.events(find_bisection(store, "last").id))
    question = lab.question(limits=Limits(max_probes=num + 2, reuse=False))
    report = answer_of(lab, tmp_path, question, desk=desk)
    part = child_of(desk, report["id"])
    assert commits_inside(report) == [] and store.load(part).status == "finished", "the budget was spent inside"
    out = tmp_path / "more.json"
    run_cli(cli, "resume", report["id"], "--max-probes", str(num + 60), "--json", str(out))
    assert commits_inside(json.loads(out.read_text())) == [lab.names["b3"]]
    changed = {event.kind: event.data for event in store.events(part)}["limits_changed"]
    assert changed == {"max_probes": 60}, "what the whole has left"
    lab.ran.clear()
    run_cli(cli, "resume", report["id"])
    assert not lab.ran and sum(event.kind == "limits_changed" for event in store.events(part)) == 1
    store.close()


def test_larger_budget_lets_a_merge_be_looked_into_that_was_not(
    lab: MergeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CliRunner
) -> None:
    lab.culprits = frozenset({"b3"})
    lab.use(monkeypatch, slots=1)
    store = open_store(lab.home)
    desk = Desk(lab.home, store)
    answer_of(lab, tmp_path, lab.question(descend=False), desk=desk)
    num = sum(event.kind == "probe_finished" for event in store.events(find_bisection(store, "last").id))
    report = answer_of(lab, tmp_path, lab.question(limits=Limits(max_probes=num, reuse=False)), desk=desk)
    assert report["status"] == "isolated" and not children_of(store.events(report["id"]))
    out = tmp_path / "more.json"
    run_cli(cli, "resume", report["id"], "--max-probes", str(num + 60), "--json", str(out))
    assert commits_inside(json.loads(out.read_text())) == [lab.names["b3"]]
    store.close()
