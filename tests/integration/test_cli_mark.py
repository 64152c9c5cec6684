"""The person in the loop: `mark`, through the command line. Nothing is trained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bisect_train.core.changes import FilePatch
from bisect_train.core.question import ConfigEnd, Range
from tests.support.command_bench import CULPRIT, Bench, culprits_of, requests_of


def test_marks_steer_the_search_and_the_answer_is_still_proved(bench: Bench) -> None:
    name = bench.ask()
    out = bench.succeed("mark", bench.commit(8), "good")
    assert out.startswith(f"{bench.commit(8)[:12]} (version 8 of 13) is marked good; `bisect-train resume {name}`")
    bench.succeed("mark", bench.commit(9)[:10], "bad", "--bisection", name)
    report = bench.report("resume", "--quiet")
    assert report["status"] == "isolated" and culprits_of(report) == [bench.commit(CULPRIT)]
    marked = f"marked by hand, not measured: {bench.commit(8)[:8]} good, {bench.commit(9)[:8]} bad"
    assert marked in report["warnings"]
    ran = requests_of(bench.events())
    assert not {("8", 0), ("9", 0)} & {(point, attempt) for point, _, attempt in ran}
    assert {("8", 1), ("9", 1)} <= {(point, attempt) for point, _, attempt in ran}


def test_wrong_marks_end_in_candidates(bench: Bench) -> None:
    bench.ask()
    for idx in range(1, 13):
        bench.succeed("mark", bench.commit(idx), "bad" if idx > 4 else "good")
    report = bench.report("resume", "--quiet")
    assert report["status"] == "candidates" and not report["culprits"]


def test_state_marked_untestable_is_never_run(bench: Bench) -> None:
    bench.ask()
    bench.succeed("mark", bench.commit(CULPRIT), "untestable")
    report = bench.report("resume", "--quiet")
    assert report["status"] == "candidates"
    assert {bench.commit(CULPRIT), bench.commit(CULPRIT + 1)} <= {item["id"] for item in report["candidates"]}
    assert str(CULPRIT) not in {point for point, _, _ in requests_of(bench.events())}


def test_cleared_mark_no_longer_counts(bench: Bench) -> None:
    bench.ask()
    bench.succeed("mark", bench.commit(CULPRIT), "untestable")
    assert "is no longer marked" in bench.succeed("mark", bench.commit(CULPRIT), "clear")
    report = bench.report("resume", "--quiet")
    assert report["status"] == "isolated" and not any("marked" in text for text in report["warnings"])


def test_config_keys_are_marked_by_their_path(bench: Bench) -> None:
    texts = ("lr: 1\nseed: 1\nwidth: 1\n", "lr: 2\nseed: 2\nwidth: 2\n")
    good, bad = (ConfigEnd("a.yaml", FilePatch("a.yaml", text)) for text in texts)
    ends = Range((bench.commit(3),), bench.commit(3))
    question = bench.lab.question(kind="check", range=ends, good_config=good, bad_config=bad)
    with bench.store() as store:
        store.create(question.to_json(), title="keys")
    assert bench.succeed("mark", "seed", "good").startswith("seed (version 2 of 3) is marked good")
    assert "width is the bad end" in bench.refuse("mark", "width", "good")
    assert "is the good end" in bench.refuse("mark", bench.commit(3), "good")
    said = bench.refuse("mark", bench.commit(4), "good")
    assert "is no change of this bisection" in said and "its changes are: lr, seed, width" in said


@pytest.mark.parametrize(("idx", "said"), [(0, "is the good end"), (13, "is the bad end")])
def test_ends_cannot_be_marked(bench: Bench, idx: int, said: str) -> None:
    bench.ask()
    assert said in bench.refuse("mark", bench.commit(idx), "good")
    assert not bench.events()


def test_marks_outside_the_range_or_of_unknown_commits_are_refused(bench: Bench) -> None:
    with bench.store() as store:
        question = bench.lab.question()
        question = replace(question, range=replace(question.range, goods=(bench.commit(4),)))
        store.create(question.to_json(), title="a part")
    said = bench.refuse("mark", bench.commit(2), "bad")
    assert f"is none of the 9 candidates of {bench.commit(4)[:12]}..{bench.commit(13)[:12]}" in said and "git log" in said
    assert "unknown revision 'nosuch'" in bench.refuse("mark", "nosuch", "bad")
    assert "'maybe'" in bench.refuse("mark", bench.commit(6), "maybe")
    assert "there is no bisection 'ffff'" in bench.refuse("mark", bench.commit(6), "bad", "--bisection", "ffff")


@pytest.mark.parametrize("args", [("mark", "HEAD~3", "bad"), ("undo",)])
def test_running_bisection_is_left_alone(bench: Bench, args: tuple[str, ...]) -> None:
    name = bench.ask()
    with bench.store() as store, store.lock(name):
        said = bench.refuse(*args)
    assert "is being run by process" in said and f"bisect-train cancel {name}" in said
    assert not bench.events()


# ---- marks that are wrong --------------------------------------------------------------------------------------------


def test_mark_that_earlier_runs_contradict_is_warned_of_in_the_report_and_while_it_runs(bench: Bench) -> None:
    bench.ask()
    bench.report("resume", "--quiet")
    num_runs = sum(point == str(CULPRIT) for point, _, _ in requests_of(bench.events()))
    bench.succeed("mark", bench.commit(CULPRIT - 1), "good")  # as it is
    bench.succeed("mark", bench.commit(CULPRIT), "good")
    said = f"{bench.commit(CULPRIT)[:8]} was marked good; its "
    assert num_runs >= 2
    status, _, err = bench.call("resume")
    assert status in (0, 3)
    lines = [line for line in err.splitlines() if "was marked" in line]
    assert len(lines) == 1 and lines[0].startswith(f"  warning: {said}") and lines[0].endswith(" runs say bad")
    (warned,) = [text for text in bench.report("report")["warnings"] if "was marked" in text]
    assert warned.startswith(said) and warned.endswith(" runs say bad")
    assert int(warned.split("its ")[1].split()[0]) >= num_runs


def test_mark_that_fresh_runs_contradict_is_warned_of(bench: Bench) -> None:
    """The proof runs the state just before the candidate: a mark called it bad, and so moved the search one change down."""
    bench.ask()
    bench.succeed("mark", bench.commit(CULPRIT - 1), "bad")
    _, _, err = bench.call("resume")
    said = f"{bench.commit(CULPRIT - 1)[:8]} was marked bad; its "
    found = [text for text in bench.report("report")["warnings"] if text.startswith(said)]
    assert bool(found) == (f"warning: {said}" in err) and found and found[0].endswith("good")


def test_right_marks_and_marks_of_untestable_states_are_not_warned_of(bench: Bench) -> None:
    bench.ask()
    bench.report("resume", "--quiet")
    for idx, verdict in ((CULPRIT - 1, "good"), (CULPRIT, "bad"), (CULPRIT + 1, "untestable")):
        bench.succeed("mark", bench.commit(idx), verdict)
    assert not any("was marked" in text for text in bench.report("resume")["warnings"])


def test_fixup_is_not_offered_for_what_a_person_called_untestable(bench: Bench) -> None:
    bench.ask()
    bench.succeed("mark", bench.commit(CULPRIT), "untestable")
    out = " ".join(bench.call("resume", "--quiet")[1].split())
    assert "1 version called untestable by hand. Changes between them cannot be told apart." in out
    assert "--fixup" not in out and "marked untestable" not in out
