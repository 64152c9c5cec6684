"""Reports about more than one culprit, masked parts, bad stretches before the culprit, and failures that come and go."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rich.console import Console

from bisect_train.core.changes import Point
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.verdict import Criterion
from bisect_train.report import render_html, render_text, report_to_json
from bisect_train.report.parts import ReportData
from tests.support.report_cases import FakeSpace, make_commits, make_fingerprint, make_question, play, unlucky


def shifts(effects: dict[int, float]) -> Callable[[Point, int, int], Fingerprint]:
    """Return runs that each of these changes shifts; every state has bits of its own."""

    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        level = 3.0 + sum(size for idx, size in effects.items() if point.holds(idx))
        return make_fingerprint(level, seed=seed, salt=point.to_text())

    return behave


def report_of(effects: dict[int, float]) -> ReportData:
    return play(shifts(effects), FakeSpace(make_commits(20)), max_probes=1500).report()


@pytest.fixture(scope="module")
def two() -> ReportData:
    return report_of({6: 0.4, 15: 0.2})


def test_report_of_two_culprits_ranks_them_with_their_sizes(two: ReportData) -> None:
    commits = make_commits(20)
    assert (two.status, two.exit_status, two.headline) == ("several", 0, "Found 2 culprits")
    assert two.summary.startswith(f'2 changes each make loss worse: commit {commits[6].id[:8]} "tidy up part 6" (+0.4, 66.7 %')
    data = report_to_json(two)
    assert [item["changes"][0]["id"] for item in data["culprits"]] == [commits[6].id, commits[15].id]
    shares = [item["effect"]["share"] for item in data["culprits"]]
    assert shares == pytest.approx([2 / 3, 1 / 3], abs=0.03)
    assert all("proved between" in item["conditions"][0] for item in data["culprits"])


def test_report_of_two_culprits_shows_the_proof_of_each(two: ReportData) -> None:
    assert len(two.claims) == 8 and all(claim.status == "held" and claim.num_sick >= 3 for claim in two.claims)
    assert [part.is_culprit for part in two.strip].count(True) == 2
    text = _text_of(two)
    assert "is better than the bad end" in text.replace("\n", " ") or "better than bad end" in text
    assert "95 % interval" in " ".join(two.explanation)
    assert render_html(two).count("<h2>The proof</h2>") == 1


def _text_of(report: ReportData) -> str:
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(render_text(report))
    return captured.get()


def test_report_says_that_a_later_change_hides_part() -> None:
    report = report_of({6: 0.6, 15: -0.2})
    assert report.status == "isolated"
    (said,) = [text for text in report.warnings if "makes up for part" in text]
    assert "13 changes" in said and "of the gap" in said
    assert "explains 150 % of the gap" in " ".join(report.explanation)


def test_report_tells_a_bad_stretch_that_was_repaired() -> None:
    report = report_of({2: 0.5, 10: -0.5, 15: 0.5})
    assert report.status == "isolated" and report.culprits[0].changes[0].id == make_commits(20)[15].id
    commits = make_commits(20)
    (told,) = [text for text in report.warnings if "bad before, too" in text]
    assert commits[2].id[:8] in told and commits[10].id[:8] in told and "one of" not in told


def test_report_names_the_longest_stretch_that_could_hide_a_repaired_regression() -> None:
    report = report_of({15: 0.5})
    (hidden,) = [text for text in report.coverage.cannot_see if "bad stretch" in text]
    num = int(hidden.split("up to ")[1].split()[0])
    assert 1 <= num < 15


def test_report_of_a_failure_that_comes_and_goes_gives_the_rates() -> None:
    report = play(
        unlucky(9, rate=0.6), FakeSpace(make_commits(20)), make_question(criterion=Criterion.SYMPTOM), max_probes=1500
    ).report()
    assert report.status == "isolated" and report.culprits[0].changes[0].id == make_commits(20)[9].id
    assert "every time" not in " ".join(report.explanation)
    assert all(claim.how.startswith("p = ") for claim in report.claims)
    assert "fresh runs with it" in report.summary
    assert {row.verdict for row in report.probes} == {"failed", "passed"}
    first = next(row for row in report.probes if row.purpose == "search")
    rows = [row for row in report.probes if row.point == first.point]
    num_failed = [sum(row.verdict == "failed" for row in rows[: idx + 1]) for idx in range(len(rows))]
    assert [row.rate for row in rows] == [f"{num} of {idx + 1} fail" for idx, num in enumerate(num_failed)]
    assert f">failed, {rows[-1].rate}<" in render_html(report) or f">passed, {rows[-1].rate}<" in render_html(report)
    assert f"ed, {report.probes[-1].rate}" in _text_of(report)


def test_report_of_two_culprits_gives_the_commands_for_each(two: ReportData) -> None:
    commits = make_commits(20)
    titles = [part.title for part in two.reproduce[1:]]
    assert [title.split(" (")[0] for title in titles] == [
        f"{word} {commits[idx].id[:8]}" for idx in (6, 15) for word in ("Just before", "With")
    ]
    for idx, part in zip((5, 6, 14, 15), two.reproduce[1:], strict=True):
        assert part.lines[0] == f"git checkout --detach {commits[idx].id}"


def test_report_of_two_culprits_beside_each_other_makes_their_common_state_once() -> None:
    report = report_of({9: 0.4, 10: 0.4})
    assert report.status == "several"
    titles = [part.title.split(" (")[0] for part in report.reproduce[1:]]
    assert len(titles) == len({part.lines for part in report.reproduce[1:]}) == 3
