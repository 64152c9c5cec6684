"""Changes that needed no run, in every form of a report."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import cast

import pytest
from rich.console import Console

from bisect_train.changes.space import ChangeSpace
from bisect_train.cli.descending import total_cost
from bisect_train.report import ReportData, render_html, render_text, report_to_json
from bisect_train.report.parts import Cost
from bisect_train.report.standing import render_standing
from tests.support.report_cases import CULPRIT, FakeSpace, Solved, make_commits, play, step_change


@pytest.fixture(scope="module")
def solved() -> Solved:
    return play(step_change(CULPRIT), FakeSpace(make_commits(24)), max_probes=11)


def with_pruned(report: ReportData, pruned: int) -> ReportData:
    return replace(report, cost=replace(report.cost, pruned=pruned))


def text_of(report: ReportData) -> str:
    console = Console(file=StringIO(), width=400, no_color=True, highlight=False)
    console.print(render_text(report))
    return cast(StringIO, console.file).getvalue()


@pytest.mark.parametrize(
    ("pruned", "said"),
    [
        (0, None),
        (1, "1 change needed no run: the program reads nothing of it"),
        (7, "7 changes needed no run: the program reads nothing of them"),
    ],
)
def test_reports_say_how_many_changes_needed_no_run(solved: Solved, pruned: int, said: str | None) -> None:
    report = with_pruned(solved.report(), pruned)
    assert report_to_json(report)["cost"]["pruned"] == pruned
    assert ("needed no run" in text_of(report)) == (said is not None)
    assert said is None or said in text_of(report)
    assert ("not read by the program" in render_html(report)) == (said is not None)


def test_standing_says_it_while_the_search_goes_on(solved: Solved) -> None:
    space = cast(ChangeSpace, solved.space)
    plan = replace(solved.plan, inert=frozenset({1, 2}))
    line = "not read  2 changes needed no run: the program reads nothing of them"
    assert line in render_standing(plan, space, num_probes=11).splitlines()
    assert "not read" not in render_standing(solved.plan, space, num_probes=11)


def test_cost_with_the_searches_inside_adds_up() -> None:
    assert total_cost(Cost(1, 0, 0.0, 0.0, pruned=3), ()).pruned == 3


def test_page_marks_the_changes_that_are_not_read(solved: Solved) -> None:
    report = replace(solved, plan=replace(solved.plan, inert=frozenset({1, 2}))).report()
    assert [part.number for part in report.strip if part.is_unread] == [2, 3]
    page = render_html(report)
    assert "2 changes needed no run" in page
    assert page.count(", not read by the program") == 2
    assert "needed no run" not in render_html(solved.report())
