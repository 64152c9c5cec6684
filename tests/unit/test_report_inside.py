"""The words for what was found, or not, inside a merge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bisect_train.report import Place, ReportData, describe_descent
from bisect_train.report.inside import add_clause, explain_inside, list_conditions_inside, parts_inside
from bisect_train.report.parts import CandidatePart, ChangePart, CulpritPart
from tests.support.report_cases import FakeSpace, make_commits, play, sha, step_change

COMMITS = make_commits(8)
MERGE, FIRST_PARENT = COMMITS[-1].id, sha("base")


@pytest.fixture(scope="module")
def isolated() -> ReportData:
    return play(step_change(3), FakeSpace(COMMITS)).report(inside=(ChangePart("file", "model.py", "model.py"),))


def culprit_with(report: ReportData | None, *, reason: str = "") -> CulpritPart:
    descent = describe_descent(Place("merge", MERGE, FIRST_PARENT), report=report, reason=reason)
    merge = ChangePart("commit", MERGE, "merge the branch")
    return CulpritPart((merge,), 1.0, None, True, True, (), parts_inside(descent, ()), descent)


def clause_of(report: ReportData) -> str:
    return add_clause("It is worse", culprit_with(report)).removeprefix("It is worse; ")


def test_proved_commit_is_named_with_the_files_it_touches(isolated: ReportData) -> None:
    part = culprit_with(isolated)
    assert [item.id for item in part.inside] == [COMMITS[3].id, "model.py"]
    assert clause_of(isolated) == f'inside it: commit {COMMITS[3].id[:8]} "tidy up part 3" (proved by fresh runs)'
    (told,) = explain_inside([part])
    assert told.startswith(f"Inside merge {MERGE[:8]} (7 commits and the merge itself; `bisect-train report 65f0a1b2`): Commit")
    assert list_conditions_inside(part.descent) == ()


def test_several_proved_commits_are_all_named(isolated: ReportData) -> None:
    first = isolated.culprits[0]
    second = replace(first, changes=(ChangePart("commit", MERGE, "merge the branch"),))
    report = replace(isolated, status="several", culprits=(first, second))
    assert "tidy up part 3" in clause_of(report) and "; the merge itself, by what its author changed" in clause_of(report)
    assert [item.id for item in culprit_with(report).inside] == [COMMITS[3].id, MERGE, "model.py"]


def test_candidates_are_counted_and_blame_nobody(isolated: ReportData) -> None:
    candidates = tuple(CandidatePart(ChangePart("commit", item.id, item.title), 1 / 6) for item in reversed(COMMITS[2:]))
    report = replace(isolated, status="candidates", culprits=(), candidates=candidates)
    named = ", ".join(["the merge itself", *(item.id[:8] for item in (COMMITS[6], COMMITS[5], COMMITS[4]))])
    assert clause_of(report) == f"inside it: not narrowed to one commit, left are {named} and 2 more"
    part = culprit_with(report)
    assert part.inside == () and list_conditions_inside(part.descent) == (clause_of(report),)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            "no_regression",
            "inside it: nothing found, its first parent and the merge did not separate in the runs made for this",
        ),
        (
            "not_reproduced",
            "inside it: nothing found, its first parent and the merge did not separate in the runs made for this",
        ),
        ("failed", "inside it: no answer"),
    ],
)
def test_inside_without_an_answer_is_said_so(isolated: ReportData, status: str, said: str) -> None:
    assert clause_of(replace(isolated, status=status, culprits=(), candidates=())) == said


def test_unfinished_search_names_nobody_even_if_its_belief_is_strong() -> None:
    report = play(step_change(3), FakeSpace(COMMITS), max_probes=14).report()
    part = culprit_with(report)
    assert not report.is_finished and part.inside == ()
    assert add_clause("Worse", part) == "Worse; inside it: the search is not finished"


def test_merge_that_was_not_looked_into_comes_with_the_command_that_does() -> None:
    part = culprit_with(None, reason="--no-descend")
    (told,) = explain_inside([part])
    command = f"bisect-train run --good {FIRST_PARENT[:12]} --bad {MERGE[:12]} --no-first-parent"
    assert f"(--no-descend): `{command}`, with the other options" in told
    assert add_clause("Worse", part) == "Worse" and part.inside == ()
    (told,) = explain_inside(
        [culprit_with(None, reason="that brings in no commit of its own: what its author changed is all there is")]
    )
    assert "brings in no commit of its own" in told and "bisect-train" not in told
